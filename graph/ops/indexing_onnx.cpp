// ONNX operators that rearrange or mask by position: DepthToSpace, SpaceToDepth, CenterCropPad, OneHot, Trilu.
#include "graph/ops/build.h"

namespace tessera {

namespace {
using namespace ops;

// a / b for sizes that must divide; fails ShapeMismatch where they are known not to.
SymExpr exact(B& b, const SymExpr& size, const SymExpr& by, const std::string& what) {
  if (by.is_const(0)) {
    b.fail(ErrorCode::BadAttribute, what + " is 0");
    return 1;
  }
  if (size.is_const() && by.is_const() && size.const_value() % by.const_value() != 0)
    b.fail(ErrorCode::ShapeMismatch, "size " + size.str() + " is no multiple of " + what + " " + by.str());
  else
    b.check(b.env().require(sym_eq(mod(size, by), 0), GuardClass::Required, what + " divides the dimension",
                            b.node().location));
  return b.env().simplify(floordiv(size, by));
}

// [N, C, H, W] and the block size, checked.
std::optional<std::pair<SymShape, int64_t>> image(B& b) {
  SymShape s = b.shape(b.in(0));
  int64_t block = b.attr().i("blocksize");
  if (s.size() != 4) b.fail(ErrorCode::ShapeMismatch, "an image [N, C, H, W] is needed, not " + b.type(b.in(0)).str());
  if (block < 1 || block > (1 << 20))
    b.fail(ErrorCode::BadAttribute, "blocksize " + std::to_string(block) + " is out of range");
  if (!b.ok()) return std::nullopt;
  return std::pair(s, block);
}

OpDef depth_to_space() {
  OpDef def =
      composite("DepthToSpace", "blocks of channels moved into height and width", {{"input", TypeSet::NumericOrBool}},
                [](Graph& g, const Node& n, int) {
                  B b(g, n);
                  auto in = image(b);
                  std::string mode = b.attr().s("mode", "DCR");
                  if (mode != "DCR" && mode != "CRD")
                    b.fail(ErrorCode::BadAttribute, "mode '" + mode + "' is neither DCR nor CRD");
                  if (!in || !b.ok()) return b.failed();
                  auto [s, k] = *in;
                  SymExpr depth = exact(b, s[1], k * k, "blocksize squared");
                  ValueId x =
                      mode == "DCR"
                          ? transpose(b, reshape(b, b.in(0), {s[0], k, k, depth, s[2], s[3]}), {0, 3, 4, 1, 5, 2})
                          : transpose(b, reshape(b, b.in(0), {s[0], depth, k, k, s[2], s[3]}), {0, 1, 4, 2, 5, 3});
                  return b.done(reshape(b, x, {s[0], depth, s[2] * k, s[3] * k}));
                });
  def.aten = {"pixel_shuffle"};
  def.attributes = {{"blocksize", AttrKind::Int, true}, {"mode", AttrKind::String, false, std::string("DCR")}};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    int64_t k = c.node.attributes.i("blocksize"), depth = x.dims()[1] / (k * k);
    bool dcr = c.node.attributes.s("mode", "DCR") == "DCR";
    Dims dims = {x.dims()[0], depth, x.dims()[2] * k, x.dims()[3] * k}, stride = strides_of(x.dims());
    TESSERA_ASSIGN(Tensor y, take_at(x, dims, [&](const Dims& at) {
                     int64_t block = at[2] % k * k + at[3] % k;
                     int64_t channel = dcr ? block * depth + at[1] : at[1] * k * k + block;
                     return offset({at[0], channel, at[2] / k, at[3] / k}, stride);
                   }));
    c.results = {y};
    return {};
  };
  def.samples = [] {
    Tensor x = random(DType::F32, {2, 8, 3, 2}, 1);
    return std::vector<Sample>{sample({x}, {{"blocksize", int64_t{2}}}, 13),
                               sample({x}, {{"blocksize", int64_t{2}}, {"mode", std::string("CRD")}}, 11),
                               sample({random(DType::F16, {1, 9, 1, 2}, 1)}, {{"blocksize", int64_t{3}}}, 1)};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {1, 6, 2, 2})}, {{"blocksize", int64_t{2}}}, ErrorCode::ShapeMismatch, "no multiple",
              13),
        wrong({random(DType::F32, {4, 2, 2})}, {{"blocksize", int64_t{2}}}, ErrorCode::ShapeMismatch, "image", 13),
        wrong({random(DType::F32, {1, 4, 2, 2})}, {{"blocksize", int64_t{0}}}, ErrorCode::BadAttribute, "out of range",
              13)};
  };
  return def;
}

OpDef space_to_depth() {
  OpDef def = composite("SpaceToDepth", "blocks of height and width moved into channels",
                        {{"input", TypeSet::NumericOrBool}}, [](Graph& g, const Node& n, int) {
                          B b(g, n);
                          auto in = image(b);
                          std::string mode = b.attr().s("mode", "DCR");
                          if (mode != "DCR" && mode != "CRD")
                            b.fail(ErrorCode::BadAttribute, "mode '" + mode + "' is neither DCR nor CRD");
                          if (!in || !b.ok()) return b.failed();
                          auto [s, k] = *in;
                          SymExpr h = exact(b, s[2], k, "blocksize"), w = exact(b, s[3], k, "blocksize");
                          ValueId x = reshape(b, b.in(0), {s[0], s[1], h, k, w, k});
                          x = transpose(b, x, mode == "DCR" ? Ints{0, 3, 5, 1, 2, 4} : Ints{0, 1, 3, 5, 2, 4});
                          return b.done(reshape(b, x, {s[0], s[1] * (k * k), h, w}));
                        });
  def.aten = {"pixel_unshuffle"};
  def.attributes = {{"blocksize", AttrKind::Int, true}, {"mode", AttrKind::String, false, std::string("DCR")}};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    int64_t k = c.node.attributes.i("blocksize"), channels = x.dims()[1];
    bool dcr = c.node.attributes.s("mode", "DCR") == "DCR";
    Dims dims = {x.dims()[0], channels * k * k, x.dims()[2] / k, x.dims()[3] / k}, stride = strides_of(x.dims());
    TESSERA_ASSIGN(Tensor y, take_at(x, dims, [&](const Dims& at) {
                     int64_t block = dcr ? at[1] / channels : at[1] % (k * k),
                             channel = dcr ? at[1] % channels : at[1] / (k * k);
                     return offset({at[0], channel, at[2] * k + block / k, at[3] * k + block % k}, stride);
                   }));
    c.results = {y};
    return {};
  };
  def.samples = [] {
    Tensor x = random(DType::F32, {2, 3, 4, 6}, 1);
    return std::vector<Sample>{sample({x}, {{"blocksize", int64_t{2}}}, 13),
                               sample({x}, {{"blocksize", int64_t{2}}, {"mode", std::string("CRD")}}, 28),
                               sample({random(DType::F16, {1, 1, 3, 6}, 1)}, {{"blocksize", int64_t{3}}}, 1)};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{wrong({random(DType::F32, {1, 2, 3, 4})}, {{"blocksize", int64_t{2}}},
                                          ErrorCode::ShapeMismatch, "no multiple", 13)};
  };
  return def;
}

// ---- CenterCropPad: one padding, of negative amounts where it crops; an odd crop starts, an odd padding ends, half an
// element later
OpDef center_crop_pad() {
  OpDef def =
      composite("CenterCropPad", "the middle of a tensor cropped or zero-padded to a shape",
                {{"input", TypeSet::NumericOrBool}, {"shape", TypeSet::Index}}, [](Graph& g, const Node& n, int) {
                  B b(g, n);
                  SymShape in = b.shape(b.in(0));
                  std::vector<SymExpr> want = b.sizes(1);
                  Ints axes;
                  if (b.attr().has("axes")) {
                    for (int64_t a : b.attr().ints("axes")) axes.push_back(b.axis(a, static_cast<int>(in.size())));
                  } else {
                    for (size_t k = 0; k < in.size(); ++k) axes.push_back(static_cast<int64_t>(k));
                  }
                  if (b.ok() && want.size() != axes.size())
                    b.fail(ErrorCode::ShapeMismatch,
                           std::to_string(want.size()) + " sizes for " + std::to_string(axes.size()) + " axes");
                  if (!b.ok()) return b.failed();
                  SymShape begin(in.size(), SymExpr(0)), end = begin;
                  for (size_t i = 0; i < axes.size(); ++i) {
                    auto k = static_cast<size_t>(axes[i]);
                    SymExpr crop = floordiv(in[k] - want[i], 2), grow = floordiv(want[i] - in[k], 2);
                    begin[k] = b.env().simplify(sym_select(sym_lt(want[i], in[k]), -crop, grow));
                    end[k] = b.env().simplify(want[i] - in[k] - begin[k]);
                  }
                  return b.done(pad(b, b.in(0), begin, end));
                });
  def.attributes = {{"axes", AttrKind::Ints}};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    Dims dims = x.dims(), shift(dims.size(), 0), stride = strides_of(dims);
    Ints axes = c.node.attributes.ints("axes");
    for (int64_t i = 0; i < c.operands[1].count(); ++i) {
      int64_t a = c.node.attributes.has("axes") ? axes[static_cast<size_t>(i)] : i;
      auto k = static_cast<size_t>(a < 0 ? a + static_cast<int64_t>(dims.size()) : a);
      int64_t want = c.operands[1].get_i64(i);
      shift[k] = want < dims[k] ? (dims[k] - want) / 2 : -((want - dims[k]) / 2);
      dims[k] = want;
    }
    TESSERA_ASSIGN(Tensor y, take_at(x, dims, [&](const Dims& at) -> int64_t {
                     int64_t o = 0;
                     for (size_t k = 0; k < at.size(); ++k) {
                       int64_t i = at[k] + shift[k];
                       if (i < 0 || i >= x.dims()[k]) return -1;
                       o += i * stride[k];
                     }
                     return o;
                   }));
    c.results = {y};
    return {};
  };
  def.samples = [] {
    Tensor x = random(DType::F32, {5, 6, 3}, 1);
    return std::vector<Sample>{sample({x, vec({2, 9, 3})}, {}, 18),
                               sample({x, vec({8, 2})}, {{"axes", Ints{0, -1}}}, 18),
                               sample({random(DType::I64, {4}, 1), vec({7})}, {}, 18)};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {5, 6}), vec({2})}, {}, ErrorCode::ShapeMismatch, "1 sizes for 2 axes", 18)};
  };
  return def;
}

OpDef one_hot() {
  OpDef def =
      composite("OneHot", "values[1] at the position an index names along a new axis, values[0] elsewhere",
                {{"indices", TypeSet::Numeric}, {"depth", TypeSet::Numeric}, {"values", TypeSet::NumericOrBool}},
                [](Graph& g, const Node& n, int) {
                  B b(g, n);
                  ValueId indices = cast(b, b.in(0), DType::I64);
                  const Tensor* t = g.constant(b.in(1));
                  auto given = !is_float(b.dtype(b.in(1))) ? b.known(1)
                               : t && t->count() == 1      ? std::vector<SymExpr>{static_cast<int64_t>(t->get_f64(0))}
                                                           : b.read(cast(b, b.in(1), DType::I64));
                  if (b.ok() && given.size() != 1)
                    b.fail(ErrorCode::ShapeMismatch, "depth of OneHot is not one number");
                  if (!b.ok()) return b.failed();
                  const SymExpr depth = given[0];
                  b.check_size(depth, "depth of OneHot");
                  SymExpr values = b.dim(b.in(2), 0);
                  if (b.rank(b.in(2)) != 1 || (values.is_const() && !values.is_const(2)))
                    b.fail(ErrorCode::ShapeMismatch, "values of OneHot are not two numbers");
                  else
                    b.check(b.env().require_equal(values, 2, "values of OneHot are two numbers", n.location));
                  int64_t axis = b.axis(b.attr().i("axis", -1), b.rank(indices) + 1);
                  if (!b.ok()) return b.failed();
                  // A negative index counts from the end; one outside of [-depth, depth) matches no position.
                  ValueId wrapped = select(b, lt(b, indices, 0.0), add(b, indices, b.size(depth, DType::I64)), indices);
                  SymShape ramp(static_cast<size_t>(b.rank(indices)) + 1, SymExpr(1));
                  ramp[static_cast<size_t>(axis)] = depth;
                  ValueId on = eq(b, unsqueeze(b, wrapped, {axis}), iota(b, ramp, axis));
                  ValueId low = reshape(b, slice(b, b.in(2), 0, 0, 1), {}),
                          high = reshape(b, slice(b, b.in(2), 0, 1, 1), {});
                  return b.done(select(b, on, high, low));
                });
  def.attributes = {{"axis", AttrKind::Int, false, int64_t{-1}}};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor &indices = c.operands[0], &values = c.operands[2];
    int64_t depth = c.operands[1].get_i64(0), axis = c.node.attributes.i("axis", -1);
    if (is_float(c.operands[1].dtype())) depth = static_cast<int64_t>(c.operands[1].get_f64(0));
    Dims dims = indices.dims(), stride = strides_of(indices.dims());
    if (axis < 0) axis += static_cast<int64_t>(dims.size()) + 1;
    dims.insert(dims.begin() + axis, depth);
    TESSERA_ASSIGN(Tensor y, take_at(values, dims, [&](const Dims& at) -> int64_t {
                     Dims where = at;
                     where.erase(where.begin() + axis);
                     int64_t o = offset(where, stride);
                     int64_t i =
                         is_float(indices.dtype()) ? static_cast<int64_t>(indices.get_f64(o)) : indices.get_i64(o);
                     return (i < 0 ? i + depth : i) == at[static_cast<size_t>(axis)] ? 1 : 0;
                   }));
    c.results = {y};
    return {};
  };
  def.samples = [] {
    Tensor i = integers(DType::I64, {2, 3}, {0, 4, -1, 9, -5, 2});
    return std::vector<Sample>{
        sample({i, scalar(DType::I64, 5), floats({2}, {0.5, 2})}, {}, 11),
        sample({i, vec({5}), integers(DType::I32, {2}, {-1, 7})}, {{"axis", int64_t{0}}}, 9),
        sample({i, scalar(DType::F32, 5), floats({2}, {0, 1})}, {{"axis", int64_t{-2}}}, 11),
        sample({floats({2}, {1, 3}), scalar(DType::I32, 4), random(DType::Bool, {2}, 3)}, {}, 11)};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({vec({1}), vec({2}), floats({3}, {1, 2, 3})}, {}, ErrorCode::ShapeMismatch, "two numbers", 11),
        wrong({vec({1}), vec({2, 3}), floats({2}, {1, 2})}, {}, ErrorCode::ShapeMismatch, "one number", 11)};
  };
  return def;
}

OpDef trilu() {
  OpDef def = composite(
      "Trilu", "the upper or lower triangle of matrices, zero elsewhere",
      {{"input", TypeSet::NumericOrBool}, {"k", TypeSet::Index, true}}, [](Graph& g, const Node& n, int) {
        B b(g, n);
        SymShape s = b.shape(b.in(0));
        if (s.size() < 2) b.fail(ErrorCode::ShapeMismatch, "matrices are needed, not " + b.type(b.in(0)).str());
        if (!b.ok()) return b.failed();
        ValueId row = iota(b, {s[s.size() - 2], 1}, 0), column = iota(b, {1, s.back()}, 1);
        if (b.has(1)) {
          ValueId k = cast(b, b.in(1), DType::I64);
          if (b.type(k).count() != SymExpr(1))
            b.fail(ErrorCode::ShapeMismatch, "k is a scalar, not " + b.type(k).str());
          // No diagonal lies beyond the sizes, and sums with sizes do not overflow.
          k = min(b, max(b, reshape(b, k, {}), b.scalar_i(DType::I64, -kSymMax)), b.scalar_i(DType::I64, kSymMax));
          row = add(b, row, k);
        }
        ValueId keep = b.attr().i("upper", 1) != 0 ? ge(b, column, row) : le(b, column, row);
        return b.done(select(b, keep, b.in(0), 0.0));
      });
  def.aten = {"triu", "tril"};
  def.attributes = {{"upper", AttrKind::Int, false, int64_t{1}}};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    int64_t k = c.operands.size() > 1 && c.operands[1].defined() ? c.operands[1].get_i64(0) : 0;
    bool upper = c.node.attributes.i("upper", 1) != 0;
    Dims stride = strides_of(x.dims());
    TESSERA_ASSIGN(Tensor y, take_at(x, x.dims(), [&](const Dims& at) -> int64_t {
                     int64_t d = at[at.size() - 1] - at[at.size() - 2];
                     return (upper ? d >= k : d <= k) ? offset(at, stride) : -1;
                   }));
    c.results = {y};
    return {};
  };
  def.samples = [] {
    std::vector<Sample> out;
    for (int64_t upper : {0, 1}) {
      out.push_back(sample({random(DType::F32, {4, 5}, 1)}, {{"upper", upper}}, 14));
      out.push_back(sample({random(DType::I64, {2, 3, 3}, 1), scalar(DType::I64, -1)}, {{"upper", upper}}, 14));
      out.push_back(sample({random(DType::Bool, {3, 2}, 1), scalar(DType::I64, 1)}, {{"upper", upper}}, 14));
    }
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{wrong({random(DType::F32, {3})}, {}, ErrorCode::ShapeMismatch, "matrices", 14)};
  };
  return def;
}

} // namespace

void register_move_composites(OpTable& table);
void register_move_composites(OpTable& table) {
  for (OpDef (*make)() : {depth_to_space, space_to_depth, center_crop_pad, one_hot, trilu}) table.add(make());
}

} // namespace tessera
