#include "measure/accuracy/accuracy.h"
#include "codegen/device/library_cost.h"
#include "graph/ir/operator.h"
#include "graph/ir/sizes.h"
#include "graph/ops/samples.h"
#include "graph/scalar/scalar.h"
#include "measure/accuracy/exact_reference.h"
#include <algorithm>
#include <cmath>
#include <unordered_set>

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
  if (seen.tensor.dims() != expected.dims()) {
    out.other_sizes = type_of(seen.tensor).str() + ", not " + type_of(expected).str();
    out.error = out.max_abs = INFINITY;
    return out;
  }
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

constexpr const char* kDecides = "its operands agree, and lie where it rounds or compares to another result";
constexpr const char* kAmplifies = "its operands agree, and it makes their errors larger: it cancels, or is steep";
constexpr const char* kRandom = "random numbers: the reference goes on with the device's";
constexpr const char* kDrawnElsewhere = "computed from random numbers, which the other side draws by itself";
constexpr const char* kOfRandom = "computed from random numbers that cannot be tapped";

bool is_constant(const Node& node) {
  return node.op->structured() && node.op->structured()->kind == Structured::Constant;
}
// Whether a node draws random numbers that are not those of the other side.
bool draws(const Node& node, bool alike) {
  const bool seed = node.op->structured() && node.op->structured()->kind == Structured::Seed;
  return seed ? !alike : is_random(node);
}
bool is_view(const Node& node) { return node.op->indexing() && node.op->indexing()->view; }

// Whether the operator steps: its result is an integer or boolean, or is rounded to one.
bool steps(const Graph& graph, const Node& node, ValueId result) {
  if (!is_float(graph.type(result).dtype)) return true;
  return computes_by(graph, node, {ScalarOp::Floor, ScalarOp::Ceil, ScalarOp::Round});
}

// The device's values, tapped in windows of the graph's order, each as long as a later node needs it.
class DeviceValues {
public:
  DeviceValues(const Compiled& compiled, const Inputs& inputs, const SymValues& sizes, const TapOptions& options)
      : compiled_(compiled), graph_(*compiled.graph), inputs_(inputs), input_sizes_(sizes), sizes_(sizes),
        options_(options), order_(graph_.order()) {
    // The source of a view is needed as long as the view is.
    last_use_.resize(static_cast<size_t>(graph_.value_count()));
    for (size_t i = order_.size(); i-- > 0;) {
      const Node& node = graph_.node(order_[i]);
      size_t last = i;
      if (is_view(node))
        for (ValueId r : node.results)
          if (r.valid()) last = std::max(last, last_use_[static_cast<size_t>(r.index)]);
      for (ValueId v : node.operands)
        if (v.valid())
          last_use_[static_cast<size_t>(v.index)] = std::max(last_use_[static_cast<size_t>(v.index)], last);
    }
  }

  // Runs the model without taps, and with those that say the sizes which data decides.
  Status begin(ExactReference& reference) {
    TESSERA_ASSIGN(TapRuns runs, TapRuns::create(compiled_, inputs_, input_sizes_, options_));
    runs_ = std::make_unique<TapRuns>(std::move(runs));
    std::vector<NodeId> definers;
    std::vector<ValueId> values;
    for (NodeId id : order_) {
      if (defined_sizes(graph_, graph_.node(id)).empty()) continue;
      definers.push_back(id);
      for (const auto* list : {&graph_.node(id).operands, &graph_.node(id).results})
        for (ValueId v : *list) add_source(v, values);
    }
    if (definers.empty()) return {};
    TESSERA_TRY(runs_->run(values));
    for (NodeId id : definers) TESSERA_TRY(define_sizes(reference, id));
    results().values.clear();
    elements_.clear();
    return {};
  }
  [[nodiscard]] const std::vector<NodeId>& order() const { return order_; }
  [[nodiscard]] TapResults& results() { return runs_->results(); }
  [[nodiscard]] const SymValues& sizes() const { return sizes_; }

  // Nodes from this position of the order on whose taps fit into memory together; the position behind them.
  [[nodiscard]] size_t window(size_t begin) const {
    size_t end = begin;
    for (int64_t room = options_.bytes; end < order_.size(); ++end) {
      for (ValueId v : graph_.node(order_[end]).results)
        if (v.valid()) room -= runs_->bytes(v);
      if (room < 0 && end > begin) break;
    }
    return end;
  }
  // Taps these nodes' values.
  Status load(size_t begin, size_t end) {
    std::vector<ValueId> values;
    for (size_t i = begin; i < end; ++i)
      for (ValueId v : graph_.node(order_[i]).results)
        if (v.valid()) values.push_back(v);
    return runs_->run(values);
  }
  // Taps these values, and frees all others.
  Status only(const std::vector<ValueId>& values) {
    results().values.clear();
    elements_.clear();
    return runs_->run(values);
  }
  // Frees what no node behind this position needs.
  void drop(size_t position) {
    const Node& node = graph_.node(order_[position]);
    auto done = [&](ValueId v) {
      if (!v.valid() || last_use_[static_cast<size_t>(v.index)] > position) return;
      results().values.erase(v);
      elements_.erase(v);
    };
    for (ValueId v : node.operands) done(v);
    for (ValueId v : node.results) done(v);
  }

  // The elements that were tapped of a value; null: none.
  Result<const Elements*> tapped(ValueId value) {
    if (auto it = elements_.find(value); it != elements_.end()) return static_cast<const Elements*>(&it->second);
    auto found = results().values.find(value);
    if (found == results().values.end()) return static_cast<const Elements*>(nullptr);
    auto held = elements_of(compiled_, found->second, sizes_);
    if (!held.ok()) { // of a size that the run alone knows
      results().not_tapped.push_back({value, held.error().message});
      results().values.erase(found);
      return static_cast<const Elements*>(nullptr);
    }
    Elements elements = std::move(*held);
    found->second.clear(); // the elements have them now
    found->second.shrink_to_fit();
    return static_cast<const Elements*>(&elements_.emplace(value, std::move(elements)).first->second);
  }
  // A whole value, in its own type for integers: tapped, an input, a constant, or a view of such.
  Result<std::optional<Tensor>> whole(ExactReference& reference, ValueId value) {
    using Whole = std::optional<Tensor>;
    const Node* producer = graph_.producer(value);
    if (!producer) {
      auto it = inputs_.find(graph_.value(value).name);
      return it == inputs_.end() ? Whole() : Whole(it->second);
    }
    if (is_constant(*producer)) {
      TESSERA_ASSIGN(auto results, evaluate_node(graph_, *producer, {}, sizes_));
      return Whole(std::move(results.front()));
    }
    TESSERA_ASSIGN(const Elements* found, tapped(value));
    if (found) {
      if (!found->present.empty()) return Whole();
      TESSERA_ASSIGN(Tensor t, of_type(found->tensor, graph_.type(value).dtype));
      return Whole(std::move(t));
    }
    if (!is_view(*producer)) return Whole();
    TESSERA_ASSIGN(auto results, alone(reference, graph_.value(value).producer));
    return results.empty() ? Whole() : Whole(std::move(results.front()));
  }
  // The operator's reference on the operands that the device has computed; empty where one is not whole.
  Result<std::vector<Tensor>> alone(ExactReference& reference, NodeId id) {
    std::vector<Tensor> operands;
    for (ValueId v : graph_.node(id).operands) {
      if (!v.valid()) {
        operands.emplace_back();
        continue;
      }
      TESSERA_ASSIGN(auto operand, whole(reference, v));
      if (!operand) return std::vector<Tensor>();
      operands.push_back(std::move(*operand));
    }
    return reference.node(id, std::move(operands), sizes_);
  }

  // Sizes that only the reference has: what defines them cannot be tapped.
  void add_sizes(const SymValues& known) { sizes_.insert(known.begin(), known.end()); }

private:
  // The values that are tapped in the place of this one: what a view shows.
  void add_source(ValueId v, std::vector<ValueId>& values) const {
    const Node* producer = v.valid() ? graph_.producer(v) : nullptr;
    if (!producer) return;
    values.push_back(v);
    if (is_view(*producer))
      for (ValueId o : producer->operands) add_source(o, values);
  }
  // By the node's results, else by its reference on the device's operands. What neither says, the reference defines.
  Status define_sizes(ExactReference& reference, NodeId id) {
    const Node& node = graph_.node(id);
    std::vector<Tensor> results;
    for (ValueId v : node.results)
      if (const Tensor* found = v.valid() ? results_of(v) : nullptr) results.push_back(*found);
    if (results.size() < node.results.size()) {
      TESSERA_ASSIGN(results, alone(reference, id));
    }
    if (results.size() == node.results.size()) bind_defined_sizes(graph_, node, results, sizes_);
    return {};
  }
  // A value with memory as it was tapped.
  const Tensor* results_of(ValueId v) {
    auto it = results().values.find(v);
    const bool memory = it != results().values.end() && it->second.size() == 1 && it->second[0].tap.inner < 0;
    return memory ? &it->second[0].tensor : nullptr;
  }

  const Compiled& compiled_;
  const Graph& graph_;
  const Inputs& inputs_;
  const SymValues& input_sizes_;
  SymValues sizes_; // and those that the device's run defined
  const TapOptions& options_;
  std::vector<NodeId> order_;
  std::vector<size_t> last_use_; // by value: the position of the last node that needs it
  std::unique_ptr<TapRuns> runs_;
  std::map<ValueId, Elements> elements_;
};

class Comparer {
public:
  Comparer(const Compiled& compiled, const Inputs& inputs, const SymValues& sizes, const AccuracyOptions& options)
      : graph_(*compiled.graph), options_(options), tolerance_(tolerances(graph_)),
        device_(compiled, inputs, sizes, options.taps), seeded_(seeded(graph_)), reference_(*seeded_),
        work_(work_of(compiled)) {}

  Status begin() { return device_.begin(reference_); }
  ExactReference& reference() { return reference_; }
  DeviceValues& device() { return device_; }

  // Before the node at this position is compared. `loaded`: called when more values were tapped.
  Status reach(size_t position, const std::function<Status(size_t begin, size_t end)>& loaded = {}) {
    if (position < loaded_) return {};
    const size_t end = device_.window(position);
    TESSERA_TRY(device_.load(position, end));
    if (loaded) TESSERA_TRY(loaded(position, end));
    loaded_ = end;
    return {};
  }
  void passed(size_t position) {
    device_.drop(position);
    done_ += work_[position];
    if (options_.progress && total_ > 0) options_.progress(done_ / total_);
  }

  // A value against the one that is expected; null: nothing is. `other_is_right`: whether what is expected is right by
  // the reference on its own operands. Returns whether the reference is to go on with the device's value.
  Result<bool> compare_value(NodeId id, size_t result, const Elements* expected,
                             const std::function<Result<bool>(double tolerance)>& other_is_right = {}) {
    const ValueId value = graph_.node(id).results[result];
    TESSERA_ASSIGN(const Elements* seen, device_.tapped(value));
    if (!seen || !expected) { // it departs as its operands do
      if (of_departed(id)) departed_.insert(value.index);
      return false;
    }
    TESSERA_ASSIGN(ValueError error, error_of(value, *seen, expected->tensor, expected->present));
    error.tolerance = options_.rtol.value_or(tolerance_[static_cast<size_t>(value.index)]);
    TESSERA_ASSIGN(const auto* alone, alone_of(id));
    if (!alone->empty()) {
      TESSERA_ASSIGN(const ValueError own, error_of(value, *seen, (*alone)[result]));
      error.own = own.error;
    }
    bool right = error.departs() && error.own && *error.own <= error.tolerance && !of_departed(id);
    if (right && other_is_right) {
      TESSERA_ASSIGN(right, other_is_right(error.tolerance));
    }
    if (right) error.unjudged = steps(graph_, graph_.node(id), value) ? kDecides : kAmplifies;
    if (error.departs()) departed_.insert(value.index);
    if (error.departs() && !report_.first) report_.first = report_.values.size();
    report_.values.push_back(std::move(error));
    return right;
  }
  void not_compared(ValueId value, std::string why) { report_.not_compared.push_back({value, std::move(why)}); }

  // A node's results against the reference's, which become the device's where the reference cannot know better.
  Status compare_node(NodeId id, std::vector<Tensor>& results) {
    const Node& node = graph_.node(id);
    const bool of_random = std::any_of(node.operands.begin(), node.operands.end(),
                                       [&](ValueId v) { return v.valid() && random_.contains(v.index); });
    for (size_t r = 0; r < node.results.size(); ++r) {
      const ValueId value = node.results[r];
      if (!value.valid()) continue;
      const bool random = is_random(node);
      bool replace = random || of_random;
      TESSERA_ASSIGN(const Elements* seen, device_.tapped(value));
      if (replace && seen) not_compared(value, random ? kRandom : kOfRandom);
      if (!replace) {
        const Elements expected{results[r], {}};
        TESSERA_ASSIGN(replace, compare_value(id, r, &expected));
      }
      if (!replace) continue;
      if (seen && seen->present.empty()) {
        TESSERA_ASSIGN(Tensor own, of_type(seen->tensor, graph_.type(value).dtype));
        TESSERA_ASSIGN(results[r], widened(own));
      } else {
        random_.insert(value.index);
      }
    }
    return {};
  }

  AccuracyReport take() {
    TapResults& taps = device_.results();
    for (auto& n : taps.not_tapped) report_.not_compared.push_back(std::move(n));
    report_.runs = taps.runs;
    report_.taps = taps.taps;
    report_.inner = taps.inner;
    report_.reproducible = taps.reproducible;
    return std::move(report_);
  }

private:
  [[nodiscard]] bool of_departed(NodeId id) const {
    const auto& operands = graph_.node(id).operands;
    return std::any_of(operands.begin(), operands.end(),
                       [&](ValueId v) { return v.valid() && departed_.contains(v.index); });
  }
  Result<const std::vector<Tensor>*> alone_of(NodeId id) {
    if (alone_node_ != id) {
      TESSERA_ASSIGN(alone_, device_.alone(reference_, id));
      alone_node_ = id;
    }
    return static_cast<const std::vector<Tensor>*>(&alone_);
  }

  // The work of each node in the order: elements that it reads and writes, and multiplications and additions of a
  // library call.
  std::vector<double> work_of(const Compiled& compiled) {
    std::map<int32_t, double> of_calls;
    for (const Group* group : flat_groups(compiled.report.plan))
      if (group->kind == Group::Kind::Library && !group->call.sources.empty())
        if (auto n = size_of(graph_, flops(group->call), device_.sizes()); n.ok())
          of_calls[group->call.sources.front().index] += static_cast<double>(*n);
    std::vector<double> work;
    for (NodeId id : device_.order()) {
      const Node& node = graph_.node(id);
      double elements = 0;
      for (const auto* values : {&node.operands, &node.results})
        for (ValueId v : *values)
          if (v.valid() && !is_constant(node))
            if (auto n = size_of(graph_, graph_.type(v).count(), device_.sizes()); n.ok())
              elements += static_cast<double>(*n);
      auto call = of_calls.find(id.index);
      work.push_back(elements + (call == of_calls.end() ? 0 : call->second));
      total_ += work.back();
    }
    return work;
  }

  const Graph& graph_;
  const AccuracyOptions& options_;
  std::vector<double> tolerance_;
  DeviceValues device_;
  const std::shared_ptr<const Graph> seeded_;
  ExactReference reference_;
  double total_ = 0, done_ = 0; // of work_
  std::vector<double> work_;
  size_t loaded_ = 0; // positions of the order whose values were tapped
  std::unordered_set<int32_t> departed_;
  std::unordered_set<int32_t> random_; // values that the reference computes from other random numbers than the device
  NodeId alone_node_;
  std::vector<Tensor> alone_; // results of that node by its reference on the device's operands
  AccuracyReport report_;
};

// Another compiled model's values.
class RunValues : public OtherValues {
public:
  RunValues(const OtherRun& run, const Inputs& inputs)
      : graph_(*run.compiled.graph), device_(run.compiled, inputs, run.sizes, run.taps), seeded_(seeded(graph_)),
        reference_(*seeded_) {
    for (size_t i = 0; i < device_.order().size(); ++i)
      for (ValueId v : graph_.node(device_.order()[i]).results)
        if (v.valid() && !graph_.value(v).name.empty()) by_name_.emplace(graph_.value(v).name, v);
  }
  Status begin() { return device_.begin(reference_); }
  bool draws_alike() const override { return true; }
  Status load(const std::vector<std::string>& names) override {
    std::vector<ValueId> values;
    for (const std::string& name : names)
      if (auto it = by_name_.find(name); it != by_name_.end()) values.push_back(it->second);
    return device_.only(values);
  }
  Result<std::optional<Elements>> get(const std::string& name) override {
    auto it = by_name_.find(name);
    if (it == by_name_.end()) return std::optional<Elements>();
    TESSERA_ASSIGN(const Elements* found, device_.tapped(it->second));
    return found ? std::optional(*found) : std::optional<Elements>();
  }

private:
  const Graph& graph_;
  DeviceValues device_;
  const std::shared_ptr<const Graph> seeded_;
  ExactReference reference_;
  std::map<std::string, ValueId> by_name_;
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
  Comparer comparer(compiled, inputs, sizes, options);
  TESSERA_TRY(comparer.begin());
  SymValues known = sizes;
  const std::vector<NodeId>& order = comparer.device().order();
  size_t at = 0; // constants are not reported to `each`
  auto each = [&](NodeId id, std::vector<Tensor>& results) -> Status {
    while (order[at] != id) comparer.passed(at++);
    comparer.device().add_sizes(known);
    TESSERA_TRY(comparer.reach(at));
    TESSERA_TRY(comparer.compare_node(id, results));
    comparer.passed(at++);
    return {};
  };
  TESSERA_TRY(comparer.reference().run(inputs, known, each));
  return comparer.take();
}

Result<AccuracyReport> compare_with_values(const Compiled& compiled, OtherValues& other, const Inputs& inputs,
                                           const SymValues& sizes, const AccuracyOptions& options) {
  const Graph& graph = *compiled.graph;
  Comparer comparer(compiled, inputs, sizes, options);
  TESSERA_TRY(comparer.begin());
  const std::vector<NodeId>& order = comparer.device().order();
  auto loaded = [&](size_t begin, size_t end) {
    std::set<std::string> names; // of what is compared, and of what that is computed from
    for (size_t i = begin; i < end; ++i)
      for (const auto* values : {&graph.node(order[i]).results, &graph.node(order[i]).operands})
        for (ValueId v : *values)
          if (v.valid() && !graph.value(v).name.empty()) names.insert(graph.value(v).name);
    return other.load({names.begin(), names.end()});
  };
  // The other's operands of a node; nothing where one of them is not whole.
  auto operands_of = [&](const Node& node) -> Result<std::vector<Tensor>> {
    std::vector<Tensor> out;
    for (ValueId v : node.operands) {
      const Node* producer = v.valid() ? graph.producer(v) : nullptr;
      if (!v.valid()) {
        out.emplace_back();
      } else if (!producer || is_constant(*producer)) {
        TESSERA_ASSIGN(auto same, comparer.device().whole(comparer.reference(), v));
        if (!same) return std::vector<Tensor>();
        out.push_back(std::move(*same));
      } else {
        TESSERA_ASSIGN(auto theirs, other.get(graph.value(v).name));
        if (!theirs || !theirs->present.empty()) return std::vector<Tensor>();
        TESSERA_ASSIGN(auto typed, of_type(theirs->tensor, graph.type(v).dtype));
        out.push_back(std::move(typed));
      }
    }
    return out;
  };
  std::unordered_set<int32_t> drawn; // values that random numbers of each side decide
  for (size_t i = 0; i < order.size(); ++i) {
    TESSERA_TRY(comparer.reach(i, loaded));
    const Node& node = graph.node(order[i]);
    const bool random = draws(node, other.draws_alike()) ||
                        std::any_of(node.operands.begin(), node.operands.end(),
                                    [&](ValueId v) { return v.valid() && drawn.contains(v.index); });
    for (size_t r = 0; r < node.results.size(); ++r) {
      const ValueId v = node.results[r];
      if (!v.valid() || is_constant(node)) continue;
      TESSERA_ASSIGN(const Elements* seen, comparer.device().tapped(v));
      TESSERA_ASSIGN(auto want, other.get(graph.value(v).name));
      if (seen && !want) comparer.not_compared(v, "the other run has no value of this name that can be tapped");
      if (random) drawn.insert(v.index);
      if (seen && want && random) comparer.not_compared(v, kDrawnElsewhere);
      if (random) want.reset();
      auto right = [&](double tolerance) -> Result<bool> {
        TESSERA_ASSIGN(auto operands, operands_of(node));
        if (operands.empty()) return false;
        TESSERA_ASSIGN(auto results,
                       comparer.reference().node(order[i], std::move(operands), comparer.device().sizes()));
        TESSERA_ASSIGN(const ValueError own, error_of(v, *want, results[r]));
        return own.error <= tolerance;
      };
      TESSERA_ASSIGN([[maybe_unused]] const bool unjudged,
                     comparer.compare_value(order[i], r, want ? &*want : nullptr, right));
    }
    comparer.passed(i);
  }
  return comparer.take();
}

Result<AccuracyReport> compare_with_run(const Compiled& compiled, const OtherRun& other, const Inputs& inputs,
                                        const SymValues& sizes, const AccuracyOptions& options) {
  RunValues values(other, inputs);
  TESSERA_TRY(values.begin());
  return compare_with_values(compiled, values, inputs, sizes, options);
}

} // namespace tessera::accuracy
