// Matrix products and what is made of them.
#include "frontend/fx/aten/parts.h"

namespace tessera::fx {
namespace {

void translate_matmul(Call& c) {
  ValueId x = c.in.tensor(c.in.given("self") ? "self" : "input");
  const char* second = c.schema().argument("other") ? "other" : c.schema().argument("mat2") ? "mat2" : "vec";
  c.result(matrix_product(c, x, c.in.tensor(second)));
}

// Sum of products of two vectors. Numbers are real, so vdot is the same.
void translate_dot(Call& c) {
  ValueId x = c.in.tensor("self"), y = c.in.tensor(c.schema().argument("tensor") ? "tensor" : "other");
  c.result(matrix_product(c, x, y));
}

// beta * self + alpha * product; self counts for nothing, NaN included, where beta is 0.
ValueId weighted_sum(Call& c, ValueId product) {
  product = scaled(c.b, c.in, product, "alpha");
  const Scalar beta = c.in.scalar("beta");
  if (!c.b.ok() || (beta.is_constant() && beta.number == 0)) return product;
  return add(c.b, product, scaled(c.b, c.in, cast(c.b, c.in.tensor("self"), c.b.dtype(product)), "beta"));
}

template <const char* kFirst, const char* kSecond>
void translate_weighted(Call& c) {
  ValueId product = matrix_product(c, c.in.tensor(kFirst), c.in.tensor(kSecond));
  c.result(weighted_sum(c, product));
}
constexpr char kMat1[] = "mat1", kMat2[] = "mat2", kBatch1[] = "batch1", kBatch2[] = "batch2", kMat[] = "mat",
               kVec[] = "vec";

// The sum over the batch is one product of wider matrices.
void translate_addbmm(Call& c) {
  ValueId x = c.in.tensor("batch1"), y = c.in.tensor("batch2");
  if (!c.b.ok()) return;
  const SymShape sx = c.b.shape(x), sy = c.b.shape(y);
  if (sx.size() != 3 || sy.size() != 3)
    return c.b.fail(ErrorCode::ShapeMismatch, "addbmm takes batches of matrices, not " + str(sx) + " and " + str(sy));
  x = reshape(c.b, transpose(c.b, x, {1, 0, 2}), {sx[1], sx[0] * sx[2]});
  y = reshape(c.b, y, {sy[0] * sy[1], sy[2]});
  c.result(weighted_sum(c, matmul(c.b, x, y)));
}

ValueId outer(Call& c, ValueId x, ValueId y) {
  if (!c.b.ok()) return {};
  return mul(c.b, unsqueeze(c.b, x, {1}), unsqueeze(c.b, y, {0}));
}
void translate_outer(Call& c) {
  const DType d = promoted(c.b, c.in, {"self", "vec2"});
  ValueId x = operand(c.b, c.in, "self", d), y = operand(c.b, c.in, "vec2", d);
  if (!c.b.ok()) return;
  if (d == DType::Bool) return c.result(logical_and(c.b, unsqueeze(c.b, x, {1}), unsqueeze(c.b, y, {0})));
  c.result(outer(c, x, y));
}
void translate_addr(Call& c) {
  const DType d = promoted(c.b, c.in, {"self", "vec1", "vec2"});
  ValueId x = operand(c.b, c.in, "vec1", d), y = operand(c.b, c.in, "vec2", d);
  if (!c.b.ok()) return;
  c.result(cast(c.b, weighted_sum(c, outer(c, widen(c.b, x), widen(c.b, y))), d));
}

void translate_addmm_activation(Call& c) {
  ValueId y = weighted_sum(c, matmul(c.b, c.in.tensor("mat1"), c.in.tensor("mat2")));
  const bool gelu = c.in.flag("use_gelu");
  if (!c.b.ok()) return;
  c.result(gelu ? c.b.op("Gelu", {y}, {{"approximate", std::string("tanh")}}) : c.b.op1("Relu", y));
}

// self [m, k] times mat2 [k, n], both 8-bit floats, summed in f32; times scale_a, one number or [m, 1], and scale_b, one or
// [1, n]; plus bias [n].
void translate_scaled_mm(Call& c) {
  ValueId x = c.in.tensor("self"), y = c.in.tensor("mat2");
  const ValueId scales[] = {c.in.tensor("scale_a"), c.in.tensor("scale_b")};
  const ValueId bias = c.in.maybe("bias");
  const bool scales_result = c.in.given("scale_result");
  if (!c.b.ok()) return;
  const DType to = c.in.dtype("out_dtype").value_or(c.b.dtype(x));
  ValueId product = matmul(c.b, cast(c.b, x, DType::F32), cast(c.b, y, DType::F32));
  for (const int side : {0, 1}) {
    const ValueId scale = scales[side];
    if (!c.b.ok()) return;
    const SymShape shape = c.b.shape(scale);
    const bool one = std::all_of(shape.begin(), shape.end(), [](const SymExpr& e) { return e.is_const(1); });
    const size_t summed = side == 0 ? 1 : 0;
    const SymExpr kept = c.b.shape(product)[1 - summed];
    const bool rows = shape.size() == 2 && shape[summed].is_const(1) && c.b.env().known_equal(shape[1 - summed], kept);
    if (!one && !rows) return c.unsupported("a scale of blocks, " + str(shape));
    product = mul(c.b, product, one ? reshape(c.b, cast(c.b, scale, DType::F32), {}) : cast(c.b, scale, DType::F32));
  }
  if (scales_result) return c.unsupported("a scale of the result");
  if (bias.valid()) product = add(c.b, product, cast(c.b, bias, DType::F32));
  c.result(cast(c.b, product, to));
}

void translate_linear(Call& c) { c.result(linear(c, c.in.tensor("input"), c.in.tensor("weight"), c.in.maybe("bias"))); }

// y[..., o] = sum over i, j of x1[..., i] * weight[o, i, j] * x2[..., j]
void translate_bilinear(Call& c) {
  ValueId x1 = c.in.tensor("input1"), x2 = c.in.tensor("input2"), weight = c.in.tensor("weight"),
          bias = c.in.maybe("bias");
  if (!c.b.ok()) return;
  ValueId y = c.b.op("Einsum", {x1, weight, x2}, {{"equation", std::string("...i,oij,...j->...o")}});
  c.result(bias.valid() ? add(c.b, y, bias) : y);
}

// The product of three tensors, each with dimensions added where it has none of its own, summed over some of them.
void translate_trilinear(Call& c) {
  const std::vector<ValueId> operands = {c.in.tensor("i1"), c.in.tensor("i2"), c.in.tensor("i3")};
  const Ints added[] = {c.in.ints("expand1"), c.in.ints("expand2"), c.in.ints("expand3")}, summed = c.in.ints("sumdim");
  if (!c.b.ok()) return;
  const int64_t rank = c.b.rank(operands[0]) + static_cast<int64_t>(added[0].size());
  if (rank > 26) return c.unsupported("a product of three tensors in " + std::to_string(rank) + " dimensions");
  auto labels = [&](const Ints& left_out) { // one letter a dimension
    std::string out;
    for (int64_t d = 0; d < rank; ++d)
      if (std::find(left_out.begin(), left_out.end(), d) == left_out.end()) out.push_back(static_cast<char>('a' + d));
    return out;
  };
  const std::string equation =
      labels(added[0]) + "," + labels(added[1]) + "," + labels(added[2]) + "->" + labels(summed);
  c.result(c.b.op("Einsum", operands, {{"equation", equation}}));
}

void translate_einsum(Call& c) {
  std::vector<ValueId> operands = c.in.tensors("tensors");
  std::string equation = c.in.text("equation");
  if (!c.b.ok()) return;
  DType common = c.b.dtype(operands.at(0));
  for (ValueId& v : operands) common = promote(common, c.b.dtype(v));
  for (ValueId& v : operands) v = cast(c.b, v, common);
  c.result(c.b.op("Einsum", operands, {{"equation", equation}}));
}

// Contracted dimensions last on the left, first on the right; one product of matrices.
ValueId contracted(Call& c, ValueId x, ValueId y, const Ints& from_x, const Ints& from_y) {
  if (!c.b.ok()) return {};
  if (from_x.size() != from_y.size()) {
    c.b.fail(ErrorCode::BadAttribute, "different numbers of dimensions of the two tensors are contracted: " +
                                          std::to_string(from_x.size()) + " and " + std::to_string(from_y.size()));
    return {};
  }
  const SymShape sx = c.b.shape(x), sy = c.b.shape(y);
  auto inside = [](const Ints& all, int64_t a) { return std::find(all.begin(), all.end(), a) != all.end(); };
  Ints px, py = from_y;
  SymShape out;
  SymExpr rows = 1, columns = 1;
  for (int64_t a = 0; a < static_cast<int64_t>(sx.size()); ++a)
    if (!inside(from_x, a)) {
      px.push_back(a);
      out.push_back(sx[static_cast<size_t>(a)]);
      rows *= out.back();
    }
  px.insert(px.end(), from_x.begin(), from_x.end());
  for (int64_t a = 0; a < static_cast<int64_t>(sy.size()); ++a)
    if (!inside(from_y, a)) {
      py.push_back(a);
      out.push_back(sy[static_cast<size_t>(a)]);
      columns *= out.back();
    }
  // A contracted dimension of size 1 broadcasts: the other side is summed over it.
  SymExpr depth = 1;
  SymShape wide_x = sx, wide_y = sy;
  for (size_t i = 0; i < from_x.size(); ++i) {
    SymExpr &p = wide_x[static_cast<size_t>(from_x[i])], &q = wide_y[static_cast<size_t>(from_y[i])];
    auto both = c.b.env().broadcast(p, q, c.b.node().location);
    if (!both.ok()) return c.b.fail(both.error()), ValueId{};
    depth *= *both;
    p = q = *both;
  }
  ValueId a = reshape(c.b, transpose(c.b, expand(c.b, x, wide_x), px), {rows, depth});
  ValueId b = reshape(c.b, transpose(c.b, expand(c.b, y, wide_y), py), {depth, columns});
  return reshape(c.b, matmul(c.b, a, b), out);
}

void translate_tensordot(Call& c) {
  ValueId x = c.in.tensor("self"), y = c.in.tensor("other");
  Ints dx = c.in.ints("dims_self"), dy = c.in.ints("dims_other");
  if (!c.b.ok()) return;
  for (int64_t& a : dx) a = c.b.axis(a, c.b.rank(x));
  for (int64_t& a : dy) a = c.b.axis(a, c.b.rank(y));
  c.result(contracted(c, x, y, dx, dy));
}

void translate_inner(Call& c) {
  ValueId x = c.in.tensor("self"), y = c.in.tensor("other");
  if (!c.b.ok()) return;
  const int rx = c.b.rank(x), ry = c.b.rank(y);
  if (rx == 0 || ry == 0) return c.result(mul(c.b, x, y));
  c.result(contracted(c, x, y, {rx - 1}, {ry - 1}));
}

void translate_vecdot(Call& c) {
  const DType d = promoted(c.b, c.in, {"x", "y"});
  ValueId x = operand(c.b, c.in, "x", d), y = operand(c.b, c.in, "y", d);
  if (!c.b.ok()) return;
  ValueId product = mul(c.b, widen(c.b, x), widen(c.b, y));
  const int rank = c.b.rank(product);
  c.result(cast(c.b, sum(c.b, product, {c.in.axis("dim", rank)}, false), d));
}

// Groups of rows, of columns or of the depth by whether each factor has a matrix for each group; of both, a batch.
void translate_grouped(Call& c) {
  ValueId x = c.in.tensor("self"), y = c.in.tensor("mat2"), ends = c.in.maybe("offs");
  if (c.in.given("bias")) return c.unsupported("a grouped product with a bias");
  const DType to = c.in.dtype("out_dtype").value_or(c.b.dtype(x));
  if (!c.b.ok()) return;
  const int rank_x = c.b.rank(x), rank_y = c.b.rank(y);
  if (!ends.valid() != (rank_x == 3 && rank_y == 3))
    return c.b.fail(ErrorCode::ShapeMismatch, "a grouped product of " + c.b.type(x).str() + " and " +
                                                  c.b.type(y).str() + (ends.valid() ? " has no" : " needs") +
                                                  " ends of groups");
  auto grouped = [&](ValueId a, ValueId b) { return c.b.op("grouped_matmul", {a, b, ends}); };
  ValueId z;
  if (!ends.valid())
    z = matmul(c.b, x, y);
  else if (rank_x == 3) // columns: rows of the transposed product
    z = transpose(c.b, grouped(transpose(c.b, y, {1, 0}), transpose(c.b, x, {0, 2, 1})), {1, 0});
  else
    z = grouped(x, y);
  c.result(cast(c.b, z, to));
}

// Products of a chain, in the order that multiplies least (sizes that are not constants: from the left).
void translate_chain(Call& c) {
  std::vector<ValueId> xs = c.in.tensors(c.schema().argument("matrices") ? "matrices" : "tensors");
  if (!c.b.ok()) return;
  const size_t n = xs.size();
  std::vector<double> size; // xs[i] is size[i] x size[i + 1]
  bool known = n > 2;
  for (size_t i = 0; i < n && known; ++i) {
    const SymShape s = c.b.shape(xs[i]);
    auto rows = s.size() == 2 ? s[0].as_const() : i == 0 ? std::optional<int64_t>(1) : s[0].as_const();
    auto columns = s.size() == 2 || i == 0 ? s.back().as_const() : std::optional<int64_t>(1);
    known = rows && columns;
    if (!known) break;
    if (i == 0) size.push_back(static_cast<double>(*rows));
    size.push_back(static_cast<double>(*columns));
  }
  if (!known) {
    ValueId y = xs.at(0);
    for (size_t i = 1; i < n; ++i) y = matrix_product(c, y, xs[i]);
    return c.result(y);
  }
  std::vector<std::vector<double>> cost(n, std::vector<double>(n, 0));
  std::vector<std::vector<size_t>> split(n, std::vector<size_t>(n, 0));
  for (size_t length = 2; length <= n; ++length)
    for (size_t i = 0; i + length <= n; ++i) {
      const size_t j = i + length - 1;
      cost[i][j] = -1;
      for (size_t k = i; k < j; ++k) {
        double at = cost[i][k] + cost[k + 1][j] + size[i] * size[k + 1] * size[j + 1];
        if (cost[i][j] < 0 || at < cost[i][j]) {
          cost[i][j] = at;
          split[i][j] = k;
        }
      }
    }
  auto multiply = [&](auto&& self, size_t i, size_t j) -> ValueId {
    if (i == j) return xs[i];
    return matrix_product(c, self(self, i, split[i][j]), self(self, split[i][j] + 1, j));
  };
  c.result(multiply(multiply, 0, n - 1));
}

void translate_cross(Call& c) {
  const DType d = promoted(c.b, c.in, {"self", "other"});
  ValueId x = operand(c.b, c.in, "self", d), y = operand(c.b, c.in, "other", d);
  if (!c.b.ok()) return;
  auto shape = c.b.env().broadcast(c.b.shape(x), c.b.shape(y), c.b.node().location);
  if (!shape.ok()) return c.b.fail(shape.error());
  x = expand(c.b, x, *shape);
  y = expand(c.b, y, *shape);
  const int rank = static_cast<int>(shape->size());
  int64_t axis = 0;
  if (c.in.given("dim")) {
    axis = c.in.axis("dim", rank);
  } else { // the first dimension of size 3
    while (axis < rank && !(*shape)[static_cast<size_t>(axis)].is_const(3)) ++axis;
    if (axis == rank) return c.b.fail(ErrorCode::ShapeMismatch, "no dimension of a cross product has size 3");
  }
  if (!c.b.ok()) return;
  auto part = [&](ValueId v, int64_t i) { return slice(c.b, v, axis, i % 3, 1); };
  std::vector<ValueId> out;
  for (int64_t i = 0; i < 3; ++i)
    out.push_back(sub(c.b, mul(c.b, part(x, i + 1), part(y, i + 2)), mul(c.b, part(x, i + 2), part(y, i + 1))));
  c.result(concat(c.b, out, axis));
}

} // namespace

void register_products(AtenTable& t) {
  t.add({"mm.default", "bmm.default", "matmul.default", "linalg_matmul.default", "mv.default"}, translate_matmul);
  t.add({"dot.default", "vdot.default"}, translate_dot);
  t.add({"addmm.default"}, translate_weighted<kMat1, kMat2>);
  t.add({"baddbmm.default"}, translate_weighted<kBatch1, kBatch2>);
  t.add({"addmv.default"}, translate_weighted<kMat, kVec>);
  t.add({"addbmm.default"}, translate_addbmm);
  t.add({"addr.default"}, translate_addr);
  t.add({"outer.default", "ger.default"}, translate_outer);
  t.add({"_addmm_activation.default"}, translate_addmm_activation);
  t.add({"_scaled_mm.default"}, translate_scaled_mm);
  t.add({"linear.default"}, translate_linear);
  t.add({"bilinear.default"}, translate_bilinear);
  t.add({"_trilinear.default"}, translate_trilinear);
  t.add({"einsum.default"}, translate_einsum);
  t.add({"tensordot.default"}, translate_tensordot);
  t.add({"inner.default"}, translate_inner);
  t.add({"linalg_vecdot.default"}, translate_vecdot);
  t.add({"chain_matmul.default", "linalg_multi_dot.default"}, translate_chain);
  t.add({"_grouped_mm.default"}, translate_grouped);
  t.add({"cross.default", "linalg_cross.default"}, translate_cross);
}

} // namespace tessera::fx
