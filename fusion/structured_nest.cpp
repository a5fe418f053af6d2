#include "fusion/structured_nest.h"
#include "graph/ops/questions.h"
#include <algorithm>
#include <bit>

namespace tessera::fusion {

bool folds(const Node& node) {
  if (node.op->reduction()) return true;
  return ops::is_matrix_product(node) || ops::is(node, Structured::Conv) || ops::is(node, Structured::Pool);
}

namespace {

class StructuredBody {
public:
  StructuredBody(const Graph& graph, const Node& node, AxisPool& pool)
      : graph_(graph), node_(node), pool_(pool), env_(pool.env()), result_(graph.type(node.results[0]).shape) {}

  NodeBody matmul() {
    auto at = result_axes();
    const auto half = static_cast<int>(node_.operands.size() / 2);
    const SymShape &a = shape(0), &b = shape(half);
    size_t rank = result_.size();
    SymExpr k = row(a.back());
    auto factor = [&](int o, const SymShape& own, const SymExpr& first, const SymExpr& second) {
      std::vector<SymExpr> index;
      size_t skip = rank - own.size();
      for (size_t d = 0; d + 2 < own.size(); ++d)
        index.push_back(env_.known_equal(own[d], 1) ? SymExpr(0) : at[skip + d]);
      index.push_back(first);
      index.push_back(second);
      ScalarId sum = load(o, index, {});
      for (int part = 1; part < half; ++part) sum = out_.dag.op(ScalarOp::Add, sum, load(o + part, index, {}));
      return sum;
    };
    ScalarId x = factor(0, a, at[rank - 2], k), y = factor(half, b, k, at[rank - 1]);
    sum(out_.dag.op(ScalarOp::Mul, x, y));
    return std::move(out_);
  }

  NodeBody rows_in_groups() {
    auto at = result_axes();
    const SymExpr k = row(shape(0).back()), groups = shape(1)[0];
    const ScalarId group = group_of(at[0], groups);
    const ScalarId inside = out_.dag.op(ScalarOp::Lt, group, out_.dag.index(groups));
    const ScalarId x = load(0, {at[0], k}, {});
    const ScalarId y = element(1, {group, out_.dag.index(k), out_.dag.index(at[1])}, inside);
    sum(out_.dag.op(ScalarOp::Mul, x, y));
    return std::move(out_);
  }

  NodeBody depth_in_groups() {
    auto at = result_axes();
    const SymExpr t = row(shape(0).back());
    ScalarDag& dag = out_.dag;
    const ScalarId begin = dag.cast(element(2, {dag.index(at[0] - 1)}, dag.condition(sym_lt(0, at[0]))), DType::I64),
                   end = dag.cast(load(2, {at[0]}, {}), DType::I64), here = dag.index(t);
    const ScalarId inside = dag.op(ScalarOp::And, dag.op(ScalarOp::Le, begin, here), dag.op(ScalarOp::Lt, here, end));
    const ScalarId x = element(0, {dag.index(at[1]), here}, inside);
    sum(dag.op(ScalarOp::Mul, x, element(1, {here, dag.index(at[2])}, inside)));
    return std::move(out_);
  }

  NodeBody conv(bool transposed) {
    auto at = channels_first(result_axes());
    const SymShape x = channels_first(shape(0)), &w = shape(1);
    int64_t groups = node_.attributes.i("groups", 1);
    // w is [O, C/G, k...], transposed [C, O/G, k...]; the row axis runs over the input channels of one group.
    SymExpr channels = transposed ? exact(x[1], groups) : w[1], filters = transposed ? w[1] : exact(w[0], groups);
    // Channels are the innermost rows where they are neighbours in x.
    bool last = node_.attributes.i("channels_last", 0) != 0;
    SymExpr c = last ? SymExpr(0) : row(channels);
    std::vector<SymExpr> taps;
    for (size_t i = 2; i < w.size(); ++i) taps.push_back(row(w[i]));
    if (last) c = row(channels);
    SymExpr group = groups == 1 || env_.known_equal(filters, 0) ? SymExpr(0) : floordiv(at[1], filters);
    SymExpr channel = group * channels + c, filter = at[1] - group * filters;
    Ints stride = node_.attributes.ints("strides"), pad = node_.attributes.ints("pads_begin"),
         dilation = node_.attributes.ints("dilations");
    std::vector<SymExpr> index = {at[0], channel};
    std::vector<SymExpr> inside;
    for (size_t i = 0; i + 2 < x.size(); ++i) {
      SymExpr p = transposed ? at[i + 2] + pad[i] - taps[i] * dilation[i]
                             : at[i + 2] * stride[i] - pad[i] + taps[i] * dilation[i];
      if (transposed && stride[i] != 1) {
        inside.push_back(sym_eq(mod(p, stride[i]), 0));
        p = floordiv(p, stride[i]);
      }
      inside.push_back(sym_le(0, p));
      inside.push_back(sym_lt(p, x[i + 2]));
      index.push_back(p);
    }
    ScalarId image = load(0, own_order(index), inside);
    std::vector<SymExpr> weight = transposed ? std::vector{channel, filter} : std::vector{at[1], c};
    weight.insert(weight.end(), taps.begin(), taps.end());
    sum(out_.dag.op(ScalarOp::Mul, image, load(1, weight, {})));
    return std::move(out_);
  }

  NodeBody pool() {
    auto at = channels_first(result_axes());
    const SymShape x = channels_first(shape(0));
    Ints kernel = node_.attributes.ints("kernel"), stride = node_.attributes.ints("strides"),
         pad = node_.attributes.ints("pads_begin"), dilation = node_.attributes.ints("dilations");
    std::string mode = node_.attributes.s("mode");
    std::vector<SymExpr> index = {at[0], at[1]};
    std::vector<SymExpr> inside;
    SymExpr covered = 1;
    int64_t taps = 1;
    for (size_t i = 0; i < kernel.size(); ++i) {
      SymExpr k = row(kernel[i]), first = at[i + 2] * stride[i] - pad[i], p = first + k * dilation[i];
      inside.push_back(sym_le(0, p));
      inside.push_back(sym_lt(p, x[i + 2]));
      index.push_back(p);
      // Taps from the first one at or after 0 to the last one before the end.
      SymExpr begin = sym_max(ceildiv(-first, dilation[i]), 0);
      SymExpr end = sym_min(floordiv(x[i + 2] - 1 - first, dilation[i]) + 1, kernel[i]);
      covered = covered * sym_max(end - begin, 0);
      taps *= kernel[i];
    }
    DType dtype = compute_dtype(graph_.type(node_.operands[0]).dtype);
    ScalarDag& dag = out_.dag;
    if (mode == "max") {
      ScalarId least = is_float(dtype) ? dag.constant_f(dtype, reduce_identity_f64(ReduceKind::Max, dtype))
                                       : dag.constant_i(dtype, reduce_identity_i64(ReduceKind::Max, dtype));
      ScalarId value = load(0, own_order(index), inside);
      if (predicate_ >= 0) value = dag.op(ScalarOp::Select, predicate_, value, least);
      fold(ReduceKind::Max, value);
      return std::move(out_);
    }
    sum(load(0, own_order(index), inside));
    SymExpr count = mode == "average" ? env_.simplify(covered) : SymExpr(taps);
    ScalarId divisor = count.is_const() ? dag.constant_f(dtype, static_cast<double>(count.const_value()))
                                        : dag.cast(dag.index(count), dtype);
    out_.root = dag.op(ScalarOp::Div, out_.root, divisor);
    return std::move(out_);
  }

private:
  [[nodiscard]] const SymShape& shape(int operand) const {
    return graph_.type(node_.operands[static_cast<size_t>(operand)]).shape;
  }
  SymExpr axis(const SymExpr& size, AxisRole role) {
    SymExpr extent = env_.simplify(size);
    int slot = slot_++;
    if (extent.is_const(1)) return 0;
    SymExpr var = pool_.axis(slot, extent);
    out_.axes.push_back({var, extent, role});
    return var;
  }
  SymExpr row(const SymExpr& size) { return axis(size, AxisRole::Row); }
  // In the result's own order of dimensions.
  std::vector<SymExpr> result_axes() {
    for (const auto& size : result_) out_.at.push_back(axis(size, AxisRole::Outer));
    return out_.at;
  }
  [[nodiscard]] std::vector<SymExpr> channels_first(std::vector<SymExpr> dims) const {
    if (node_.attributes.i("channels_last", 0) != 0) std::rotate(dims.begin() + 1, dims.end() - 1, dims.end());
    return dims;
  }
  [[nodiscard]] std::vector<SymExpr> own_order(std::vector<SymExpr> dims) const {
    if (node_.attributes.i("channels_last", 0) != 0) std::rotate(dims.begin() + 1, dims.begin() + 2, dims.end());
    return dims;
  }
  [[nodiscard]] SymExpr exact(const SymExpr& size, int64_t groups) const {
    return groups == 1 ? size : env_.simplify(floordiv(size, groups));
  }
  // An element of an operand; with conditions that are not known to hold, a load that yields 0 where they do not.
  ScalarId load(int operand, const std::vector<SymExpr>& index, const std::vector<SymExpr>& conditions) {
    std::vector<ScalarId> at;
    for (const auto& e : index) at.push_back(out_.dag.index(env_.simplify(e)));
    SymExpr all = 1;
    for (const auto& c : conditions) {
      SymExpr known = env_.simplify(c);
      if (!known.is_const(1)) all = all.is_const(1) ? known : sym_and(all, known);
    }
    predicate_ = all.is_const(1) ? -1 : out_.dag.condition(all);
    return out_.dag.load(operand, compute_dtype(graph_.type(node_.operands[static_cast<size_t>(operand)]).dtype),
                         std::move(at), predicate_);
  }
  ScalarId element(int operand, std::vector<ScalarId> at, ScalarId predicate) {
    const DType stored = graph_.type(node_.operands[static_cast<size_t>(operand)]).dtype;
    return out_.dag.load(operand, compute_dtype(stored), std::move(at), predicate);
  }
  // How many of the ends in operand 2, which do not decrease, are at most t: by bisection.
  ScalarId group_of(const SymExpr& t, const SymExpr& groups) {
    constexpr int64_t kMaxGroups = int64_t{1} << 30;
    ScalarDag& dag = out_.dag;
    const int64_t most = std::min(env_.range(groups).hi, kMaxGroups);
    ScalarId found = dag.constant_i(DType::I64, 0);
    for (auto step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(most))); step > 0; step /= 2) {
      const ScalarId last = dag.op(ScalarOp::Add, found, dag.constant_i(DType::I64, step - 1));
      const ScalarId exists = dag.op(ScalarOp::Lt, last, dag.index(groups));
      const ScalarId end = dag.cast(element(2, {last}, exists), DType::I64);
      const ScalarId passed = dag.op(ScalarOp::And, exists, dag.op(ScalarOp::Le, end, dag.index(t)));
      found = dag.op(ScalarOp::Select, passed, dag.op(ScalarOp::Add, found, dag.constant_i(DType::I64, step)), found);
    }
    return found;
  }
  void fold(ReduceKind kind, ScalarId value) {
    if (std::any_of(out_.axes.begin(), out_.axes.end(),
                    [](const Axis& a) { return a.role == AxisRole::Row && a.extent.is_const(0); })) {
      // A reduction of no elements may name none.
      std::erase_if(out_.axes, [](const Axis& a) { return a.role == AxisRole::Row; });
      DType dtype = out_.dag[value].dtype;
      out_.root = is_float(dtype) ? out_.dag.constant_f(dtype, reduce_identity_f64(kind, dtype))
                                  : out_.dag.constant_i(dtype, reduce_identity_i64(kind, dtype));
      return;
    }
    bool rows = std::any_of(out_.axes.begin(), out_.axes.end(), [](const Axis& a) { return a.role == AxisRole::Row; });
    out_.root = rows ? out_.dag.reduce(kind, value) : value; // of single elements
  }
  void sum(ScalarId value) { fold(ReduceKind::Sum, value); }

  const Graph& graph_;
  const Node& node_;
  AxisPool& pool_;
  const ShapeEnv& env_;
  const SymShape& result_;
  NodeBody out_;
  ScalarId predicate_ = -1; // of the last load
  int slot_ = 0;
};

} // namespace

Result<NodeBody> structured_body(const Graph& graph, const Node& node, AxisPool& pool) {
  StructuredBody body(graph, node, pool);
  if (ops::is(node, Structured::Matmul) || ops::is(node, Structured::MatmulOfParts)) return body.matmul();
  if (const auto grouped = ops::grouped(graph, node); grouped != ops::Grouped::No)
    return grouped == ops::Grouped::Rows ? body.rows_in_groups() : body.depth_in_groups();
  if (ops::is(node, Structured::Conv)) return body.conv(ops::is_transposed(node));
  if (ops::is(node, Structured::Pool)) return body.pool();
  return Diagnostic(ErrorCode::UnsupportedFeature, node.location,
                    "operator '" + std::string(node.op->name) + "' has no loops");
}

} // namespace tessera::fusion
