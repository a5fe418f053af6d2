#include "codegen/accuracy/accuracy.h"
#include "codegen/accuracy/exact_reference.h"
#include "graph/ops/op.h"
#include "graph/ops/samples.h"
#include <algorithm>
#include <cmath>

namespace tessera::accuracy {

namespace {

using Inputs = std::map<std::string, Tensor>;

Dims position(int64_t flat, const Dims& dims) {
  Dims at(dims.size());
  for (size_t d = dims.size(); d-- > 0;) {
    at[d] = flat % dims[d];
    flat /= dims[d];
  }
  return at;
}

// The elements that both have, as f64.
struct Pair {
  Tensor seen, expected;
  std::vector<int64_t> element; // flat index in the value; empty: all of them
};
Result<Pair> common(const Elements& seen, const Tensor& expected, const std::vector<bool>& present) {
  Pair out;
  if (seen.present.empty() && present.empty()) {
    TESSERA_ASSIGN(out.seen, widened(seen.tensor));
    TESSERA_ASSIGN(out.expected, widened(expected));
    return out;
  }
  for (int64_t i = 0; i < seen.tensor.count(); ++i) {
    const auto at = static_cast<size_t>(i);
    if ((seen.present.empty() || seen.present[at]) && (present.empty() || present[at])) out.element.push_back(i);
  }
  const auto count = static_cast<int64_t>(out.element.size());
  auto gather = [&](const Tensor& from) -> Result<Tensor> {
    const bool real = is_float(from.dtype());
    TESSERA_ASSIGN(Tensor to, Tensor::create(real ? DType::F64 : from.dtype(), {count}));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = out.element[static_cast<size_t>(i)];
      if (real)
        to.set_f64(i, from.get_f64(at));
      else
        to.set_i64(i, from.get_i64(at));
    }
    return to;
  };
  TESSERA_ASSIGN(out.seen, gather(seen.tensor));
  TESSERA_ASSIGN(out.expected, gather(expected));
  return out;
}

// Integers that a kernel computes in a wider type are those of the value's type.
Result<Tensor> of_type(const Tensor& tensor, DType dtype) {
  if (tensor.dtype() == dtype || is_float(dtype)) return tensor;
  TESSERA_ASSIGN(Tensor out, Tensor::create(dtype, tensor.dims()));
  for (int64_t i = 0; i < tensor.count(); ++i) out.set_i64(i, tensor.get_i64(i));
  return out;
}

Result<ValueError> error_of(ValueId value, const Elements& seen, const Tensor& expected,
                            const std::vector<bool>& present = {}) {
  ValueError out;
  out.value = value;
  if (seen.tensor.dims() != expected.dims())
    return Diagnostic(ErrorCode::Internal, "a value has another shape than its reference");
  TESSERA_ASSIGN(Pair pair, common(seen, expected, present));
  TESSERA_ASSIGN(pair.seen, of_type(pair.seen, pair.expected.dtype()));
  TESSERA_ASSIGN(pair.expected, of_type(pair.expected, pair.seen.dtype()));
  const Comparison c = compare(pair.seen, pair.expected, 0, 0);
  out.error = c.norm_ratio;
  out.max_abs = c.max_abs;
  out.compared = pair.seen.count();
  int64_t worst = -1;
  double largest = -1;
  for (int64_t i = 0; i < pair.seen.count() && !out.not_finite; ++i) {
    const double x = pair.seen.get_f64(i), y = pair.expected.get_f64(i);
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    const double d = std::fabs(x - y);
    out.not_finite = !std::isfinite(x) || !std::isfinite(y);
    if (!out.not_finite && d <= largest) continue;
    largest = d;
    worst = i;
  }
  if (worst < 0) return out;
  out.seen = pair.seen.get_f64(worst);
  out.expected = pair.expected.get_f64(worst);
  out.at = position(pair.element.empty() ? worst : pair.element[static_cast<size_t>(worst)], expected.dims());
  return out;
}

class Comparer {
public:
  Comparer(const Compiled& compiled, const AccuracyOptions& options)
      : compiled_(compiled), options_(options), tolerance_(tolerances(*compiled.graph)) {}

  Status tap(const Inputs& inputs, const SymValues& sizes) {
    TESSERA_ASSIGN(taps_, run_with_taps(compiled_, inputs, sizes, options_.taps));
    return {};
  }
  [[nodiscard]] const TapResults& taps() const { return taps_; }

  // The device's elements of a value; null: not tapped.
  Result<const Elements*> seen(ValueId value, const SymValues& sizes) {
    if (auto it = seen_.find(value); it != seen_.end()) return static_cast<const Elements*>(&it->second);
    auto tapped = taps_.values.find(value);
    if (tapped == taps_.values.end()) return static_cast<const Elements*>(nullptr);
    TESSERA_ASSIGN(Elements elements, elements_of(compiled_, tapped->second, sizes));
    return static_cast<const Elements*>(&seen_.emplace(value, std::move(elements)).first->second);
  }

  void add(ValueError error) {
    error.tolerance = options_.rtol.value_or(tolerance_[static_cast<size_t>(error.value.index)]);
    if (error.departs() && !report_.first) report_.first = report_.values.size();
    report_.values.push_back(std::move(error));
  }
  // The results of a node with the reference's. Of random numbers the device's become the reference's.
  Status compare_node(ExactReference& reference, NodeId id, const std::vector<Tensor>& operands,
                      std::vector<Tensor>& results, const SymValues& sizes) {
    const Node& node = compiled_.graph->node(id);
    std::vector<std::pair<size_t, const Elements*>> here;
    for (size_t r = 0; r < node.results.size(); ++r) {
      if (!node.results[r].valid()) continue;
      TESSERA_ASSIGN(const Elements* found, seen(node.results[r], sizes));
      if (found) here.emplace_back(r, found);
    }
    if (here.empty()) return {};
    if (is_random(node)) {
      for (auto [r, found] : here) {
        if (!found->present.empty()) continue;
        TESSERA_ASSIGN(results[r], widened(found->tensor));
      }
      return {};
    }
    TESSERA_ASSIGN(auto alone, on_own_operands(reference, id, operands, sizes));
    for (auto [r, found] : here) {
      TESSERA_ASSIGN(ValueError error, error_of(node.results[r], *found, results[r]));
      if (!alone.empty()) {
        TESSERA_ASSIGN(ValueError own, error_of(node.results[r], *found, alone[r]));
        error.own = own.error;
      }
      add(std::move(error));
    }
    return {};
  }
  void not_compared(ValueId value, std::string why) { report_.not_compared.push_back({value, std::move(why)}); }

  AccuracyReport take() {
    for (auto& n : taps_.not_tapped) report_.not_compared.push_back(std::move(n));
    report_.runs = taps_.runs;
    report_.taps = taps_.taps;
    report_.inner = taps_.inner;
    report_.reproducible = taps_.reproducible;
    return std::move(report_);
  }

private:
  // The operator's reference on the operands that the device has computed; empty where one was not tapped whole.
  Result<std::vector<Tensor>> on_own_operands(ExactReference& reference, NodeId id, std::vector<Tensor> operands,
                                              const SymValues& sizes) {
    const Graph& graph = *compiled_.graph;
    const Node& node = graph.node(id);
    for (size_t k = 0; k < node.operands.size(); ++k) {
      const ValueId v = node.operands[k];
      const Node* producer = v.valid() ? graph.producer(v) : nullptr;
      if (!producer || (producer->op->structured() && producer->op->structured()->kind == Structured::Constant))
        continue;
      TESSERA_ASSIGN(const Elements* found, seen(v, sizes));
      if (!found || !found->present.empty()) return std::vector<Tensor>();
      TESSERA_ASSIGN(operands[k], of_type(found->tensor, graph.type(v).dtype));
    }
    return reference.node(id, std::move(operands), sizes);
  }

  const Compiled& compiled_;
  const AccuracyOptions& options_;
  std::vector<double> tolerance_;
  TapResults taps_;
  std::map<ValueId, Elements> seen_;
  AccuracyReport report_;
};

} // namespace

std::vector<double> tolerances(const Graph& graph) {
  std::vector<double> out(static_cast<size_t>(graph.value_count()));
  std::vector<int> roundings(out.size()); // on the longest way to a value
  auto own = [&](ValueId v) {
    const DType dtype = graph.type(v).dtype;
    return is_float(dtype) ? ops::tolerance(dtype) : 0;
  };
  for (ValueId v : graph.inputs()) out[static_cast<size_t>(v.index)] = own(v);
  for (NodeId id : graph.order()) {
    const Node& node = graph.node(id);
    double coarsest = node.attributes.i("tf32", 0) != 0 ? ops::tolerance(DType::F16) : 0; // 10 bits of mantissa, too
    int most = 0;
    for (ValueId v : node.operands)
      if (v.valid()) {
        coarsest = std::max(coarsest, out[static_cast<size_t>(v.index)]);
        most = std::max(most, roundings[static_cast<size_t>(v.index)]);
      }
    const bool rounds = !node.op->indexing();
    for (ValueId v : node.results)
      if (v.valid()) {
        out[static_cast<size_t>(v.index)] = std::max(coarsest, own(v));
        roundings[static_cast<size_t>(v.index)] = most + (rounds ? 1 : 0);
      }
  }
  // The tolerance of a type is 4 units of its last place. Independent errors of 1/sqrt(12) units each, the mean of
  // rounding, add up to half of that after 48 roundings, and from there on with the root of their number.
  constexpr double kCovered = 48;
  for (size_t v = 0; v < out.size(); ++v) out[v] *= std::sqrt(std::max(1.0, roundings[v] / kCovered));
  return out;
}

Result<AccuracyReport> compare_with_reference(const Compiled& compiled, const Inputs& inputs, const SymValues& sizes,
                                              const AccuracyOptions& options) {
  Comparer comparer(compiled, options);
  TESSERA_TRY(comparer.tap(inputs, sizes));
  ExactReference reference(*compiled.graph);
  SymValues known = sizes;
  auto each = [&](NodeId id, const std::vector<Tensor>& operands, std::vector<Tensor>& results) {
    return comparer.compare_node(reference, id, operands, results, known);
  };
  TESSERA_TRY(reference.run(inputs, known, each));
  return comparer.take();
}

Result<AccuracyReport> compare_with_run(const Compiled& compiled, const OtherRun& other, const Inputs& inputs,
                                        const SymValues& sizes, const AccuracyOptions& options) {
  const Graph &graph = *compiled.graph, &theirs = *other.compiled.graph;
  AccuracyOptions of_other;
  of_other.taps = other.taps;
  Comparer comparer(compiled, options), expected(other.compiled, of_other);
  TESSERA_TRY(comparer.tap(inputs, sizes));
  TESSERA_TRY(expected.tap(inputs, other.sizes));
  std::map<std::string, ValueId> by_name;
  for (NodeId id : theirs.order())
    for (ValueId v : theirs.node(id).results)
      if (v.valid() && !theirs.value(v).name.empty()) by_name.emplace(theirs.value(v).name, v);
  for (NodeId id : graph.order())
    for (ValueId v : graph.node(id).results) {
      if (!v.valid()) continue;
      auto it = by_name.find(graph.value(v).name);
      if (!comparer.taps().values.contains(v)) continue;
      if (it == by_name.end() || !expected.taps().values.contains(it->second)) {
        comparer.not_compared(v, "the other run has no value of this name that can be tapped");
        continue;
      }
      TESSERA_ASSIGN(const Elements* seen, comparer.seen(v, sizes));
      TESSERA_ASSIGN(const Elements* want, expected.seen(it->second, other.sizes));
      if (seen->tensor.dims() != want->tensor.dims()) {
        comparer.not_compared(v, "the other run has it in another shape");
        continue;
      }
      TESSERA_ASSIGN(ValueError error, error_of(v, *seen, want->tensor, want->present));
      comparer.add(std::move(error));
    }
  return comparer.take();
}

} // namespace tessera::accuracy
