// ONNX operators that change a tensor's shape and keep its elements' order, or repeat them: Reshape, Squeeze,
// Unsqueeze, Flatten, Transpose, Expand, Tile.
#include "graph/ops/build.h"

namespace tessera {

namespace {
using namespace ops;

// A composite whose first operand is "data".
OpDef of_data(std::string_view name, std::string_view summary, std::vector<OperandDef> more, DecomposeFn rewrite) {
  more.insert(more.begin(), {"data", TypeSet::Any});
  return composite(name, summary, std::move(more), std::move(rewrite));
}

// ---- Reshape: 0 copies a dimension (unless allowzero), one -1 takes what is left
Result<std::vector<ValueId>> decompose_reshape(Graph& g, const Node& n, int) {
  B b(g, n);
  ValueId x = b.in(0);
  std::vector<SymExpr> want = b.known(1);
  if (!b.ok()) return b.failed();
  SymShape in = b.shape(x);
  bool allow_zero = b.attr().i("allowzero", 0) != 0;
  int rest = -1;
  for (size_t k = 0; k < want.size(); ++k) {
    SymExpr& e = want[k];
    // A value that is read may be a size, 0 or -1; what the graph proves to be a size is one here as well.
    if (b.env().prove(sym_le(0, e)) != true && !e.is_const() &&
        !b.decide(sym_le(allow_zero ? 0 : 1, e), true, "the shape of Reshape holds sizes"))
      e = b.decide(sym_eq(e, 0), true, "a 0 in the shape of Reshape")     ? 0
          : b.decide(sym_eq(e, -1), true, "a -1 in the shape of Reshape") ? -1
                                                                          : -2;
    auto v = e.as_const();
    if (!v) continue;
    if (*v == 0 && !allow_zero) {
      if (k >= in.size())
        b.fail(ErrorCode::ShapeMismatch,
               "the shape copies dimension " + std::to_string(k) + ", which " + b.type(x).str() + " does not have");
      else
        want[k] = in[k];
    } else if (*v == -1) {
      if (rest >= 0) b.fail(ErrorCode::ShapeMismatch, "the shape " + str(SymShape(want)) + " has more than one -1");
      rest = static_cast<int>(k);
    } else if (*v < 0) {
      b.fail(ErrorCode::ShapeMismatch, "the shape " + str(SymShape(want)) + " has a negative size");
    }
  }
  if (!b.ok()) return b.failed();
  if (rest >= 0) {
    SymExpr others = 1;
    for (size_t k = 0; k < want.size(); ++k)
      if (static_cast<int>(k) != rest) others *= want[k];
    SymExpr count = b.env().simplify(b.type(x).count());
    others = b.env().simplify(others);
    auto c = count.as_const(), o = others.as_const();
    if ((o && *o == 0) || (c && o && *c % *o != 0)) {
      b.fail(ErrorCode::ShapeMismatch,
             b.type(x).str() + " has " + count.str() + " elements and cannot become " + str(SymShape(want)));
      return b.failed();
    }
    SymExpr quotient = floordiv(count, others);
    if (!(quotient * others == count))
      b.check(b.env().require(sym_eq(mod(count, others), 0), GuardClass::Required, "reshape divides without remainder",
                              n.location));
    // Dividing may be possible for nothing at all only, and then -1 has no meaning either.
    if (b.ok() && b.env().simplify(others).is_const(0))
      b.fail(ErrorCode::ShapeMismatch,
             b.type(x).str() + " has " + count.str() + " elements and cannot become " + str(SymShape(want)));
    if (!b.ok()) return b.failed();
    want[static_cast<size_t>(rest)] = b.env().simplify(quotient);
  }
  return b.done(reshape(b, x, want));
}

OpDef reshape() {
  OpDef def =
      of_data("Reshape", "the same elements under another shape", {{"shape", TypeSet::Index}}, decompose_reshape);
  def.onnx = {{"Reshape", "", 5}};
  def.attributes = {{"allowzero", AttrKind::Int, false, int64_t{0}}};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    Dims dims = to_i64(c.operands[1]);
    int64_t known = 1;
    for (size_t k = 0; k < dims.size(); ++k) {
      if (dims[k] == 0 && c.node.attributes.i("allowzero", 0) == 0) {
        if (k >= x.dims().size())
          return c.error(ErrorCode::ShapeMismatch, "the shape copies a dimension that is not there");
        dims[k] = x.dims()[k];
      }
      if (dims[k] != -1) known *= dims[k];
    }
    for (int64_t& d : dims)
      if (d == -1) d = known == 0 ? 0 : x.count() / known;
    TESSERA_ASSIGN(int64_t count, element_count(dims));
    if (count != x.count()) return c.error(ErrorCode::ShapeMismatch, "reshape changes the number of elements");
    c.results = {x.reshaped(dims)};
    return {};
  };
  def.samples = [] {
    std::vector<Sample> out;
    for (DType d : {DType::F32, DType::I64, DType::F16})
      for (const Tensor& shape :
           {vec({4, 6}), vec({0, -1}), vec({-1}), vec({2, 0, 2, 2}), vec({2, 3, 4}), vec({1, 0, -1, 2})})
        out.push_back(sample({random(d, {2, 3, 4}, 1), shape}, {}, 13));
    out.push_back(sample({random(DType::F32, {0, 3}, 1), vec({3, 0})}, {{"allowzero", int64_t{1}}}, 14));
    out.push_back(sample({random(DType::F32, {1}, 1), vec({})}, {}, 13));
    return out;
  };
  def.error_samples = [] {
    Tensor x = random(DType::F32, {2, 3});
    return std::vector<ErrorSample>{wrong({x, vec({-1, -1})}, {}, ErrorCode::ShapeMismatch, "more than one -1", 13),
                                    wrong({x, vec({4, -1})}, {}, ErrorCode::ShapeMismatch, "cannot become", 13),
                                    wrong({x, vec({5})}, {}, ErrorCode::ShapeMismatch, "cannot become", 13),
                                    wrong({x, vec({6, 1, 0})}, {}, ErrorCode::ShapeMismatch, "does not have", 13),
                                    wrong({x, vec({-2})}, {}, ErrorCode::ShapeMismatch, "negative size", 13)};
  };
  return def;
}

// ---- Squeeze, Unsqueeze: axes are an attribute before opset 13, an operand since
std::optional<Ints> axes_of(B& b) {
  if (b.has(1)) return b.known_ints(1);
  if (b.attr().has("axes")) return b.attr().ints("axes");
  return std::nullopt;
}

Result<std::vector<ValueId>> decompose_squeeze(Graph& g, const Node& n, int) {
  B b(g, n);
  ValueId x = b.in(0);
  SymShape in = b.shape(x);
  Ints axes;
  if (auto given = axes_of(b)) {
    axes = b.axes(*given, b.rank(x));
    for (int64_t a : axes) {
      const SymExpr& size = in[static_cast<size_t>(a)];
      if (size.is_const() && !size.is_const(1))
        b.fail(ErrorCode::ShapeMismatch, "dimension " + std::to_string(a) + " of " + b.type(x).str() + " is not 1");
      else
        b.check(b.env().require_equal(size, 1, "squeeze removes dimensions of size 1", n.location));
    }
  } else {
    for (size_t k = 0; k < in.size(); ++k)
      if (b.env().simplify(in[k]).is_const(1)) axes.push_back(static_cast<int64_t>(k));
  }
  return b.done(squeeze(b, x, axes));
}

Result<std::vector<ValueId>> decompose_unsqueeze(Graph& g, const Node& n, int) {
  B b(g, n);
  auto given = axes_of(b);
  if (!given) b.fail(ErrorCode::BadAttribute, "axes are missing");
  if (!b.ok()) return b.failed();
  Ints axes = b.axes(*given, b.rank(b.in(0)) + static_cast<int>(given->size()));
  return b.done(unsqueeze(b, b.in(0), axes));
}

void add_squeezes(OpTable& table) {
  auto with_axes = [](OpDef def, bool required) {
    def.operands.push_back({"axes", TypeSet::Index, true});
    def.attributes = {{"axes", AttrKind::Ints}};
    def.samples = [required] {
      std::vector<Sample> out;
      for (DType d : {DType::F32, DType::I64, DType::Bool}) {
        Tensor x = random(d, {1, 3, 1, 2}, 1);
        out.push_back(sample({x}, {{"axes", Ints{0, 2}}}, 11));
        out.push_back(sample({x, vec({-2})}, {}, 13));
        out.push_back(sample({x, vec({2, 0})}, {}, 21));
        if (!required) out.push_back(sample({x}, {}, 13));
      }
      return out;
    };
    return def;
  };
  OpDef squeeze = with_axes(of_data("Squeeze", "x without dimensions of size 1", {}, decompose_squeeze), false);
  squeeze.aten = {"squeeze"};
  squeeze.error_samples = [] {
    Tensor x = random(DType::F32, {1, 3});
    return std::vector<ErrorSample>{wrong({x, vec({1})}, {}, ErrorCode::ShapeMismatch, "is not 1", 13),
                                    wrong({x, vec({2})}, {}, ErrorCode::BadAttribute, "axis", 13)};
  };
  squeeze.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    auto rank = static_cast<int64_t>(x.dims().size());
    std::optional<Ints> axes;
    if (c.operands.size() > 1 && c.operands[1].defined())
      axes = to_i64(c.operands[1]);
    else if (c.node.attributes.has("axes"))
      axes = c.node.attributes.ints("axes");
    Dims dims;
    for (int64_t k = 0; k < rank; ++k) {
      int64_t size = x.dims()[static_cast<size_t>(k)];
      bool out = axes ? std::any_of(axes->begin(), axes->end(), [&](int64_t a) { return a == k || a + rank == k; })
                      : size == 1;
      if (!out)
        dims.push_back(size);
      else if (size != 1)
        return c.error(ErrorCode::ShapeMismatch, "a dimension to remove is not 1");
    }
    c.results = {x.reshaped(dims)};
    return {};
  };
  table.add(std::move(squeeze));
  OpDef unsqueeze =
      with_axes(of_data("Unsqueeze", "x with dimensions of size 1 put in", {}, decompose_unsqueeze), true);
  unsqueeze.aten = {"unsqueeze"};
  unsqueeze.error_samples = [] {
    Tensor x = random(DType::F32, {2});
    return std::vector<ErrorSample>{wrong({x, vec({2})}, {}, ErrorCode::BadAttribute, "axis", 13),
                                    wrong({x, vec({0, 0})}, {}, ErrorCode::BadAttribute, "twice", 13),
                                    wrong({x}, {}, ErrorCode::BadAttribute, "axes are missing", 13)};
  };
  table.add(std::move(unsqueeze));
}

// ---- Flatten: a matrix, the dimensions before `axis` and those from it on
OpDef flatten() {
  OpDef def =
      of_data("Flatten", "a matrix of the dimensions before and from `axis` on", {}, [](Graph& g, const Node& n, int) {
        B b(g, n);
        SymShape in = b.shape(b.in(0));
        auto rank = static_cast<int64_t>(in.size());
        int64_t axis = b.attr().i("axis", 1);
        if (axis < -rank || axis > rank)
          b.fail(ErrorCode::BadAttribute, "axis " + std::to_string(axis) + " is not in [" + std::to_string(-rank) +
                                              ", " + std::to_string(rank) + "]");
        if (!b.ok()) return b.failed();
        if (axis < 0) axis += rank;
        std::span<const SymExpr> all(in);
        return b.done(
            reshape(b, b.in(0),
                    {product(all.first(static_cast<size_t>(axis))), product(all.subspan(static_cast<size_t>(axis)))}));
      });
  def.attributes = {{"axis", AttrKind::Int, false, int64_t{1}}};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    int64_t axis = c.node.attributes.i("axis", 1), outer = 1, inner = 1;
    if (axis < 0) axis += static_cast<int64_t>(x.dims().size());
    for (size_t k = 0; k < x.dims().size(); ++k) (static_cast<int64_t>(k) < axis ? outer : inner) *= x.dims()[k];
    c.results = {x.reshaped({outer, inner})};
    return {};
  };
  def.samples = [] {
    std::vector<Sample> out;
    for (int64_t axis : {0, 1, 2, 3, -1})
      out.push_back(sample({random(DType::F32, {2, 3, 4}, 1)}, {{"axis", axis}}, 13));
    out.push_back(sample({random(DType::I64, {}, 1)}, {{"axis", int64_t{0}}}, 13));
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {2, 3})}, {{"axis", int64_t{3}}}, ErrorCode::BadAttribute, "axis 3", 13)};
  };
  return def;
}

OpDef transpose() {
  OpDef def = of_data("Transpose", "dimensions reordered; reversed when no order is given", {},
                      [](Graph& g, const Node& n, int) {
                        B b(g, n);
                        Ints perm = b.attr().ints("perm");
                        int rank = b.rank(b.in(0));
                        if (!b.attr().has("perm"))
                          for (int k = rank; k-- > 0;) perm.push_back(k);
                        // The primitive names a wrong permutation; the identity is no operation.
                        bool identity = static_cast<int>(perm.size()) == rank;
                        for (size_t k = 0; identity && k < perm.size(); ++k)
                          identity = perm[k] == static_cast<int64_t>(k);
                        return b.done(identity ? b.in(0) : b.op("transpose", {b.in(0)}, {{"perm", perm}}));
                      });
  def.attributes = {{"perm", AttrKind::Ints}};
  def.samples = [] {
    return std::vector<Sample>{sample({random(DType::F32, {2, 3, 4}, 1)}, {}, 13),
                               sample({random(DType::F32, {2, 3, 4}, 1)}, {{"perm", Ints{1, 0, 2}}}, 13),
                               sample({random(DType::I64, {}, 1)}, {}, 13)};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {2, 3})}, {{"perm", Ints{0}}}, ErrorCode::BadAttribute, "no permutation", 13)};
  };
  return def;
}

// ---- Expand: x broadcast with a shape, which may hold 1 where x does not
OpDef expand() {
  OpDef def =
      of_data("Expand", "x broadcast with a shape", {{"shape", TypeSet::Index}}, [](Graph& g, const Node& n, int) {
        B b(g, n);
        std::vector<SymExpr> want = b.sizes(1);
        if (!b.ok()) return b.failed();
        auto shape = b.env().broadcast(b.shape(b.in(0)), want, n.location);
        if (!shape.ok()) b.fail(shape.error());
        if (!b.ok()) return b.failed();
        return b.done(expand(b, b.in(0), *shape));
      });
  def.reference = [](ReferenceContext& c) -> Status {
    TESSERA_ASSIGN(Tensor like, Tensor::create(DType::Bool, to_i64(c.operands[1])));
    const Tensor* all[] = {&c.operands[0], &like};
    TESSERA_ASSIGN(Dims dims, broadcast_dims(all));
    Dims stride = broadcast_strides(c.operands[0].dims(), dims);
    TESSERA_ASSIGN(Tensor y, take_at(c.operands[0], dims, [&](const Dims& at) { return offset(at, stride); }));
    c.results = {y};
    return {};
  };
  def.samples = [] {
    return std::vector<Sample>{sample({random(DType::F32, {3, 1}, 1), vec({2, 1, 6})}, {}, 8),
                               sample({random(DType::I64, {3, 1}, 1), vec({3, 4})}, {}, 13),
                               sample({random(DType::F16, {3, 4}, 1), vec({1})}, {}, 13),
                               sample({random(DType::Bool, {}, 1), vec({0, 2})}, {}, 13)};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {3}), vec({4})}, {}, ErrorCode::ShapeMismatch, "broadcast", 13)};
  };
  return def;
}

// ---- Tile: [d] repeated r times is [r, d] expanded and flattened
OpDef tile() {
  OpDef def = of_data(
      "Tile", "x repeated along its dimensions", {{"repeats", TypeSet::Index}}, [](Graph& g, const Node& n, int) {
        B b(g, n);
        std::vector<SymExpr> repeats = b.sizes(1);
        SymShape in = b.shape(b.in(0)), split, wide, out;
        if (b.ok() && repeats.size() != in.size())
          b.fail(ErrorCode::ShapeMismatch, std::to_string(repeats.size()) + " repeats for " + b.type(b.in(0)).str());
        if (!b.ok()) return b.failed();
        for (size_t k = 0; k < in.size(); ++k) {
          if (!repeats[k].is_const(1) && !in[k].is_const(1)) {
            split.emplace_back(1);
            wide.push_back(repeats[k]);
          }
          split.push_back(in[k]);
          wide.push_back(in[k].is_const(1) ? repeats[k] : in[k]);
          out.push_back(in[k] * repeats[k]);
        }
        return b.done(reshape(b, expand(b, reshape(b, b.in(0), split), wide), out));
      });
  def.onnx = {{"Tile", "", 6}};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    Dims dims = x.dims(), stride = strides_of(x.dims());
    for (size_t k = 0; k < dims.size(); ++k) dims[k] *= c.operands[1].get_i64(static_cast<int64_t>(k));
    TESSERA_ASSIGN(Tensor y, take_at(x, dims, [&](const Dims& at) {
                     int64_t i = 0;
                     for (size_t k = 0; k < at.size(); ++k) i += at[k] % x.dims()[k] * stride[k];
                     return i;
                   }));
    c.results = {y};
    return {};
  };
  def.samples = [] {
    return std::vector<Sample>{sample({random(DType::F32, {2, 3}, 1), vec({2, 3})}, {}, 13),
                               sample({random(DType::I64, {2, 1, 3}, 1), vec({1, 4, 2})}, {}, 13),
                               sample({random(DType::F16, {5}, 1), vec({0})}, {}, 13),
                               sample({random(DType::Bool, {}, 1), vec({})}, {}, 13)};
  };
  def.error_samples = [] {
    Tensor x = random(DType::F32, {2});
    return std::vector<ErrorSample>{wrong({x, vec({1, 1})}, {}, ErrorCode::ShapeMismatch, "2 repeats", 13),
                                    wrong({x, vec({-1})}, {}, ErrorCode::ShapeMismatch, "negative size", 13)};
  };
  return def;
}

} // namespace

void register_shape_composites(OpTable& table);
void register_shape_composites(OpTable& table) {
  add_squeezes(table);
  for (OpDef (*make)() : {reshape, flatten, transpose, expand, tile}) table.add(make());
}

} // namespace tessera
