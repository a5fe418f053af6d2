// The meaning of a nest: one outer point after the other, each row point by point, in plain loops.
#include "fusion/loop_nest.h"
#include "fusion/rewrite.h"
#include <algorithm>

namespace tessera {

namespace {

using fusion::reachable;
using fusion::store_roots;
using Bindings = std::unordered_map<uint64_t, int64_t>;

// Enumerates the indices of some axes in row-major order, binding their symbols.
class Odometer {
public:
  Odometer(std::vector<const Axis*> axes, Dims extents, Bindings& bound)
      : axes_(std::move(axes)), extents_(std::move(extents)), at_(extents_.size()), bound_(bound) {
    bind();
  }
  void next() {
    for (size_t d = at_.size(); d-- > 0;) {
      if (++at_[d] < extents_[d]) break;
      at_[d] = 0;
    }
    bind();
  }

private:
  void bind() {
    for (size_t d = 0; d < at_.size(); ++d) bound_[axes_[d]->var.symbol_id()] = at_[d];
  }
  std::vector<const Axis*> axes_;
  Dims extents_, at_;
  Bindings& bound_;
};

bool float_like(DType d) { return is_float(d); }

class Interpreter {
public:
  Interpreter(const Graph& graph, const LoopNest& nest, const std::vector<Tensor>& loads, Bindings bound)
      : graph_(graph), nest_(nest), loads_(loads), bound_(std::move(bound)),
        need_(reachable(nest.dag, store_roots(nest))), varying_(row_varying(nest)) {}

  Result<std::vector<Tensor>> run() {
    std::vector<const Axis*> outer, row;
    Dims outer_extents, row_extents;
    for (const auto& axis : nest_.axes) {
      TESSERA_ASSIGN(int64_t extent, axis.extent.eval(bound_));
      bool is_row = axis.role == AxisRole::Row;
      (is_row ? row : outer).push_back(&axis);
      (is_row ? row_extents : outer_extents).push_back(extent);
    }
    TESSERA_ASSIGN(int64_t outers, element_count(outer_extents));
    TESSERA_ASSIGN(rows_, element_count(row_extents));
    std::vector<Tensor> results;
    for (const auto& store : nest_.stores) {
      const TensorType& type = graph_.type(store.value);
      Dims dims;
      for (const auto& d : type.shape) {
        TESSERA_ASSIGN(int64_t n, d.eval(bound_));
        dims.push_back(n);
      }
      TESSERA_ASSIGN(Tensor t, Tensor::create(type.dtype, dims, true));
      results.push_back(std::move(t));
    }
    values_.resize(static_cast<size_t>(nest_.dag.size()));
    Odometer point(outer, outer_extents, bound_);
    for (int64_t o = 0; o < outers; ++o, point.next()) {
      for (ScalarId id = 0; id < nest_.dag.size(); ++id) {
        if (!need_[static_cast<size_t>(id)]) continue;
        auto& out = values_[static_cast<size_t>(id)];
        if (!varying_[static_cast<size_t>(id)]) {
          out.resize(1);
          TESSERA_TRY(eval(id, 0, out[0]));
          continue;
        }
        out.resize(static_cast<size_t>(rows_));
        Odometer along(row, row_extents, bound_);
        for (int64_t r = 0; r < rows_; ++r, along.next()) TESSERA_TRY(eval(id, r, out[static_cast<size_t>(r)]));
      }
      for (size_t s = 0; s < nest_.stores.size(); ++s) TESSERA_TRY(store(nest_.stores[s], results[s]));
    }
    return results;
  }

private:
  [[nodiscard]] const ScalarValue& value(ScalarId id, int64_t row) const {
    const auto& v = values_[static_cast<size_t>(id)];
    return varying_[static_cast<size_t>(id)] ? v[static_cast<size_t>(row)] : v[0];
  }

  Result<int64_t> flat_index(const Tensor& t, std::span<const ScalarId> index, int64_t row, const char* what) {
    int64_t flat = 0;
    for (size_t d = 0; d < index.size(); ++d) {
      int64_t i = value(index[d], row).i;
      if (i < 0 || i >= t.dims()[d])
        return Diagnostic(ErrorCode::Internal, "nest " + nest_.name + ": " + what + " out of range: index " +
                                                   std::to_string(i) + " of dimension " + std::to_string(d) + " of " +
                                                   std::to_string(t.dims()[d]));
      flat = flat * t.dims()[d] + i;
    }
    return flat;
  }

  Status eval(ScalarId id, int64_t row, ScalarValue& out) {
    const ScalarNode& node = nest_.dag[id];
    switch (node.op) {
    case ScalarOp::Const: out = {node.f, node.i}; return {};
    case ScalarOp::Index: {
      TESSERA_ASSIGN(out.i, node.sym.eval(bound_));
      return {};
    }
    case ScalarOp::Load: {
      out = {};
      if (node.masked && value(node.args.back(), row).i == 0) return {};
      const Tensor& t = loads_[static_cast<size_t>(node.operand)];
      std::span<const ScalarId> index(node.args.data(), node.args.size() - (node.masked ? 1 : 0));
      TESSERA_ASSIGN(int64_t flat, flat_index(t, index, row, "load"));
      if (float_like(t.dtype()))
        out.f = t.get_f64(flat);
      else
        out.i = t.get_i64(flat);
      return {};
    }
    case ScalarOp::CheckBounds: {
      int64_t i = value(node.args[0], row).i, extent = value(node.args[1], row).i;
      if (i < 0 || i >= extent)
        return Diagnostic(ErrorCode::BadInput, "nest " + nest_.name + ": index " + std::to_string(i) +
                                                   " is out of range [0, " + std::to_string(extent) + ")");
      out.i = i;
      return {};
    }
    case ScalarOp::Reduce: out = reduce(node); return {};
    default: break;
    }
    ScalarValue args[3];
    for (size_t k = 0; k < node.args.size(); ++k) args[k] = value(node.args[k], row);
    DType argument = nest_.dag[node.op == ScalarOp::Select ? node.args[1] : node.args[0]].dtype;
    out = eval_scalar(node.op, node.dtype, argument, {args, node.args.size()});
    return {};
  }

  ScalarValue reduce(const ScalarNode& node) {
    DType d = nest_.dag[node.args[0]].dtype;
    bool arg = node.reduce == ReduceKind::ArgMax || node.reduce == ReduceKind::ArgMin;
    ScalarValue acc;
    if (arg) return reduce_arg(node, d);
    if (float_like(d))
      acc.f = reduce_identity_f64(node.reduce, d);
    else
      acc.i = reduce_identity_i64(node.reduce, d);
    ScalarOp op = ScalarOp::Add;
    switch (node.reduce) {
    case ReduceKind::Sum: op = ScalarOp::Add; break;
    case ReduceKind::Prod: op = ScalarOp::Mul; break;
    case ReduceKind::Max: op = ScalarOp::Max; break;
    case ReduceKind::Min: op = ScalarOp::Min; break;
    case ReduceKind::Any: op = ScalarOp::Or; break;
    case ReduceKind::All: op = ScalarOp::And; break;
    case ReduceKind::ArgMax:
    case ReduceKind::ArgMin: break;
    }
    // Float sums are taken in f64 and rounded once: a reduction's order of additions is not part of its meaning.
    DType in = node.reduce == ReduceKind::Sum && float_like(d) ? DType::F64 : d;
    for (int64_t r = 0; r < rows_; ++r) {
      ScalarValue args[2] = {acc, value(node.args[0], r)};
      acc = eval_scalar(op, in, in, args);
    }
    if (in != d) acc = eval_scalar(ScalarOp::Cast, d, in, {&acc, 1});
    return acc;
  }

  ScalarValue reduce_arg(const ScalarNode& node, DType d) {
    ScalarValue best;
    int64_t at = 0;
    bool max = node.reduce == ReduceKind::ArgMax;
    auto wins = [&](const ScalarValue& x) { // over the best so far
      if (float_like(d)) {
        bool nan = x.f != x.f, best_nan = best.f != best.f;
        if (best_nan || nan) return nan && (!best_nan || node.select_last);
        return max ? (x.f > best.f || (node.select_last && x.f == best.f))
                   : (x.f < best.f || (node.select_last && x.f == best.f));
      }
      ScalarValue args[2] = {x, best};
      bool beyond = eval_scalar(max ? ScalarOp::Gt : ScalarOp::Lt, DType::Bool, d, args).i != 0;
      return beyond || (node.select_last && x.i == best.i);
    };
    for (int64_t r = 0; r < rows_; ++r) {
      const ScalarValue& x = value(node.args[0], r);
      if (r > 0 && !wins(x)) continue;
      best = x;
      at = r;
    }
    return {0, at};
  }

  Status store(const Store& store, Tensor& into) {
    // A row store of an empty row writes nothing; a store once per outer point does not depend on the row.
    int64_t points = store.per_row ? 1 : rows_;
    for (int64_t r = 0; r < points; ++r) {
      TESSERA_ASSIGN(int64_t flat, flat_index(into, store.index, r, "store"));
      const ScalarValue& v = value(store.scalar, r);
      if (float_like(into.dtype()))
        into.set_f64(flat, v.f);
      else
        into.set_i64(flat, v.i);
    }
    return {};
  }

  const Graph& graph_;
  const LoopNest& nest_;
  const std::vector<Tensor>& loads_;
  Bindings bound_;
  std::vector<bool> need_, varying_;
  std::vector<std::vector<ScalarValue>> values_;
  int64_t rows_ = 1;
};

} // namespace

Result<std::vector<Tensor>> interpret(const Graph& graph, const LoopNest& nest, const std::vector<Tensor>& loads,
                                      const std::unordered_map<uint64_t, int64_t>& symbols) {
  if (loads.size() != nest.loads.size())
    return Diagnostic(ErrorCode::Internal,
                      "nest " + nest.name + " takes " + std::to_string(nest.loads.size()) + " operands");
  for (size_t k = 0; k < loads.size(); ++k)
    if (static_cast<int>(loads[k].dims().size()) != graph.type(nest.loads[k]).rank())
      return Diagnostic(ErrorCode::Internal,
                        "nest " + nest.name + ": operand " + std::to_string(k) + " has another rank");
  return Interpreter(graph, nest, loads, symbols).run();
}

} // namespace tessera
