// Padding: a tensor inside a larger (or, with negative amounts, smaller) one.
#include "graph/ops/build.h"

namespace tessera {

namespace {
using namespace ops;

enum class PadMode { Constant, Reflect, Edge, Wrap };
std::optional<PadMode> pad_mode(std::string_view s) {
  if (s == "constant") return PadMode::Constant;
  if (s == "reflect") return PadMode::Reflect;
  if (s == "edge") return PadMode::Edge;
  if (s == "wrap") return PadMode::Wrap;
  return std::nullopt;
}

Status infer_pad(InferContext& c) {
  SymShape begin = c.node.attributes.dims("pads_begin"), end = c.node.attributes.dims("pads_end"), shape = c.shape(0);
  std::string text = c.node.attributes.s("mode", "constant");
  auto mode = pad_mode(text);
  if (!mode) return c.error(ErrorCode::BadAttribute, "mode '" + text + "' is none of constant, reflect, edge, wrap");
  if (begin.size() != shape.size() || end.size() != shape.size())
    return c.error(ErrorCode::BadAttribute, "pads need a begin and an end for every dimension of " + c.type(0).str());
  if (c.has(1) && c.type(1).rank() != 0)
    return c.error(ErrorCode::ShapeMismatch, "the value to pad with is a scalar, not " + c.type(1).str());
  for (size_t k = 0; k < shape.size(); ++k) {
    bool grows = !(begin[k].is_const(0) && end[k].is_const(0));
    if (*mode != PadMode::Constant && grows && shape[k].is_const(0))
      return c.error(ErrorCode::ShapeMismatch,
                     "nothing to repeat in dimension " + std::to_string(k) + " of " + c.type(0).str());
    shape[k] = c.env().simplify(shape[k] + begin[k] + end[k]);
    if (shape[k].is_const() && shape[k].const_value() < 0)
      return c.error(ErrorCode::ShapeMismatch,
                     "padding leaves dimension " + std::to_string(k) + " of " + c.type(0).str() + " a negative size");
  }
  return set_result(c, c.type(0).dtype, std::move(shape));
}

Result<ScalarId> pad_body(ScalarDag& d, int, std::span<const ScalarId> at, const Node& n, const Graph& g) {
  IndexMath m{d};
  SymShape begin = n.attributes.dims("pads_begin"), end = n.attributes.dims("pads_end");
  const SymShape& in = operand_type(g, n, 0).shape;
  PadMode mode = *pad_mode(n.attributes.s("mode", "constant"));
  std::vector<ScalarId> from;
  ScalarId inside = -1;
  for (size_t k = 0; k < at.size(); ++k) {
    ScalarId i = m.sub(at[k], m.sym(begin[k])), size = m.sym(in[k]);
    if (begin[k].is_const(0) && end[k].is_const(0)) {
      from.push_back(at[k]);
      continue;
    }
    switch (mode) {
    case PadMode::Constant: {
      ScalarId here = m.both(m.le(m.sym(0), i), m.lt(i, size));
      inside = inside < 0 ? here : m.both(inside, here);
      break;
    }
    case PadMode::Edge: i = m.min(m.max(i, m.sym(0)), m.sym(in[k] - 1)); break;
    case PadMode::Wrap: i = m.mod(i, size); break; // Mod has the divisor's sign
    case PadMode::Reflect: {                       // a period of n - 1 forth and back, the ends once
      ScalarId period = m.sym(sym_max(in[k] * 2 - 2, 1));
      ScalarId r = m.mod(i, period);
      i = m.min(r, m.max(m.sub(period, r), m.sym(0)));
      if (in[k].is_const(1)) i = m.sym(0);
      break;
    }
    }
    from.push_back(i);
  }
  ScalarId x = load(d, g, n, 0, std::move(from), inside);
  if (inside < 0 || n.operands.size() < 2 || !n.operands[1].valid()) return x;
  return d.op(ScalarOp::Select, inside, x, load(d, g, n, 1, {}));
}

// The index in the source of position i of the padded tensor; -1 outside.
int64_t source_index(int64_t i, int64_t n, PadMode mode) {
  if (i >= 0 && i < n) return i;
  switch (mode) {
  case PadMode::Constant: return -1;
  case PadMode::Edge: return i < 0 ? 0 : n - 1;
  case PadMode::Wrap: return ((i % n) + n) % n;
  case PadMode::Reflect: {
    if (n == 1) return 0;
    int64_t period = 2 * (n - 1), r = ((i % period) + period) % period;
    return r < n ? r : period - r;
  }
  }
  return -1;
}

Result<Tensor> pad_plain(const Tensor& x, const Dims& begin, const Dims& end, PadMode mode, const Tensor& value) {
  Dims dims = x.dims(), stride = strides_of(x.dims());
  for (size_t k = 0; k < dims.size(); ++k) {
    dims[k] += begin[k] + end[k];
    if (dims[k] < 0) return Diagnostic(ErrorCode::ShapeMismatch, "padding leaves a negative size");
  }
  TESSERA_ASSIGN(Tensor y, Tensor::create(x.dtype(), dims, true));
  for (MultiIndex w(dims); !w.done(); w.next()) {
    int64_t from = 0;
    for (size_t k = 0; k < dims.size() && from >= 0; ++k) {
      int64_t i = source_index(w[k] - begin[k], x.dims()[k], mode);
      from = i < 0 ? -1 : from + i * stride[k];
    }
    if (from < 0 && !value.defined()) continue;
    const Tensor& source = from < 0 ? value : x;
    if (is_float(x.dtype()))
      y.set_f64(w.i(), source.get_f64(std::max<int64_t>(from, 0)));
    else
      y.set_i64(w.i(), source.get_i64(std::max<int64_t>(from, 0)));
  }
  return y;
}

OpDef pad_primitive() {
  OpDef def;
  def.name = "pad";
  def.summary = "x between pads_begin and pads_end more elements per dimension; negative amounts crop";
  def.aten = {"constant_pad_nd"};
  def.operands = {{"x", TypeSet::NumericOrBool}, {"value", TypeSet::SameAsFirst, true}};
  def.attributes = {{"pads_begin", AttrKind::Dims, true},
                    {"pads_end", AttrKind::Dims, true},
                    {"mode", AttrKind::String, false, std::string("constant")}};
  def.infer = infer_pad;
  def.meaning = Indexing{pad_body, false};
  def.reference = [](ReferenceContext& c) -> Status {
    TESSERA_ASSIGN(Dims begin, c.dims("pads_begin"));
    TESSERA_ASSIGN(Dims end, c.dims("pads_end"));
    Tensor value = c.operands.size() > 1 ? c.operands[1] : Tensor();
    TESSERA_ASSIGN(Tensor y,
                   pad_plain(c.operands[0], begin, end, *pad_mode(c.node.attributes.s("mode", "constant")), value));
    c.results = {y};
    return {};
  };
  def.samples = [] {
    std::vector<Sample> out;
    for (std::string mode : {"constant", "reflect", "edge", "wrap"})
      for (DType d : {DType::F32, DType::I64, DType::F16})
        for (auto [dims, begin, end] : {std::tuple<Dims, SymShape, SymShape>{{4, 5}, {1, 2}, {3, 0}},
                                        {{6}, {-1}, {2}},
                                        {{3}, {5}, {7}},
                                        {{2, 1, 3}, {0, 1, 1}, {0, 1, 0}}})
          out.push_back(sample({random(d, dims, 4)}, {{"pads_begin", begin}, {"pads_end", end}, {"mode", mode}}));
    out.push_back(sample({random(DType::F32, {2, 3}, 4), scalar(DType::F32, 7)},
                         {{"pads_begin", SymShape{1, 0}}, {"pads_end", SymShape{0, 2}}}));
    out.push_back(sample({random(DType::Bool, {0, 3}, 4), scalar(DType::Bool, 1)},
                         {{"pads_begin", SymShape{1, 0}}, {"pads_end", SymShape{0, 2}}}));
    return out;
  };
  def.error_samples = [] {
    Tensor x = random(DType::F32, {2});
    return std::vector<ErrorSample>{
        wrong({x}, {{"pads_begin", SymShape{-1}}, {"pads_end", SymShape{-2}}}, ErrorCode::ShapeMismatch,
              "negative size"),
        wrong({x}, {{"pads_begin", SymShape{}}, {"pads_end", SymShape{}}}, ErrorCode::BadAttribute, "every dimension"),
        wrong({x}, {{"pads_begin", SymShape{1}}, {"pads_end", SymShape{1}}, {"mode", std::string("fold")}},
              ErrorCode::BadAttribute, "none of")};
  };
  return def;
}

// ---- ONNX Pad: amounts are an attribute before opset 11, an operand since; axes since 18

Result<std::vector<ValueId>> decompose_pad(Graph& g, const Node& n, int) {
  B b(g, n);
  ValueId x = b.in(0), value = b.in(2);
  int rank = b.rank(x);
  std::vector<SymExpr> pads;
  if (b.opset() >= 11) {
    pads = b.known(1);
  } else {
    for (int64_t p : b.attr().ints("pads")) pads.emplace_back(p);
    if (b.attr().has("value")) value = b.like(x, b.attr().f("value"));
  }
  Ints axes;
  if (b.has(3)) {
    for (int64_t a : b.known_ints(3)) axes.push_back(b.axis(a, rank));
  } else {
    for (int64_t a = 0; a < rank; ++a) axes.push_back(a);
  }
  if (!b.ok()) return b.failed();
  if (pads.size() != 2 * axes.size()) {
    b.fail(ErrorCode::ShapeMismatch,
           std::to_string(pads.size()) + " pads for " + std::to_string(axes.size()) + " axes");
    return b.failed();
  }
  SymShape begin(static_cast<size_t>(rank), SymExpr(0)), end = begin;
  for (size_t i = 0; i < axes.size(); ++i) {
    begin[static_cast<size_t>(axes[i])] = pads[i];
    end[static_cast<size_t>(axes[i])] = pads[axes.size() + i];
  }
  if (value.valid() && b.rank(value) > 0) value = reshape(b, value, {});
  std::vector<ValueId> operands = {x};
  std::string mode = b.attr().s("mode", "constant");
  if (value.valid() && mode == "constant") operands.push_back(value);
  return b.done(b.op("pad", std::move(operands), {{"pads_begin", begin}, {"pads_end", end}, {"mode", mode}}));
}

OpDef pad_onnx() {
  OpDef def;
  def.name = "Pad";
  def.summary = "a tensor with elements added or cropped at the ends of its dimensions";
  def.onnx = {{"Pad", "", 2}};
  def.operands = {{"data", TypeSet::NumericOrBool},
                  {"pads", TypeSet::Index, true},
                  {"constant_value", TypeSet::SameAsFirst, true},
                  {"axes", TypeSet::Index, true}};
  def.attributes = {
      {"mode", AttrKind::String, false, std::string("constant")}, {"pads", AttrKind::Ints}, {"value", AttrKind::Float}};
  def.meaning = Decomposition{decompose_pad};
  def.samples = [] {
    return std::vector<Sample>{
        sample({random(DType::F32, {2, 3}, 1)}, {{"pads", Ints{0, 1, 2, 0}}, {"value", 1.5}}, 10),
        sample({random(DType::F32, {2, 3}, 1)}, {{"pads", Ints{0, 1, 0, 2}}, {"mode", std::string("reflect")}}, 7),
        sample({random(DType::I64, {2, 3}, 1), vec({0, 1, 2, -1}), scalar(DType::I64, 9)}, {}, 13),
        sample({random(DType::F32, {2, 3}, 1), vec({2, 1}), Tensor(), vec({-1})}, {{"mode", std::string("edge")}}, 18),
        sample({random(DType::F16, {2, 3}, 1), vec({2, 5}), Tensor(), vec({1})}, {{"mode", std::string("wrap")}}, 19)};
  };
  def.error_samples = [] {
    Tensor x = random(DType::F32, {2, 3});
    return std::vector<ErrorSample>{
        wrong({x, vec({1, 1})}, {}, ErrorCode::ShapeMismatch, "2 pads for 2 axes", 13),
        wrong({x, vec({1, 1}), Tensor(), vec({5})}, {}, ErrorCode::BadAttribute, "axis", 18)};
  };
  return def;
}

} // namespace

void register_pad(OpTable& table);
void register_pad(OpTable& table) {
  table.add(pad_primitive());
  table.add(pad_onnx());
}

} // namespace tessera
