#include "measure/accuracy/taps.h"
#include "codegen/schedule/tuned.h"
#include "fusion/attention.h"
#include "graph/ir/operator.h"
#include <algorithm>
#include <cstring>

namespace tessera::accuracy {

namespace {

using Inputs = std::map<std::string, Tensor>;

// The axes over which a tap of an inner value is stored: the outer ones, and the row's where the value or its place
// depends on them (what is the same for a row may be many equal elements).
std::vector<Axis> axes_of(const LoopNest& nest, const InnerValue& inner) {
  std::vector<Axis> axes;
  bool varies = row_varying(nest)[static_cast<size_t>(inner.scalar)];
  for (const Axis& axis : nest.axes) {
    if (axis.role == AxisRole::Outer) continue;
    varies |= inner.condition.contains(axis.var);
    for (const SymExpr& i : inner.index) varies |= i.contains(axis.var);
  }
  for (const Axis& axis : nest.axes)
    if (axis.role == AxisRole::Outer || varies) axes.push_back(axis);
  return axes;
}

bool draws(const Node& node) {
  return node.op->structured() && node.op->structured()->kind == Structured::Seed && !node.attributes.has("seed");
}
bool draws(const Graph& graph) {
  const auto order = graph.order();
  return std::any_of(order.begin(), order.end(), [&](NodeId id) { return draws(graph.node(id)); });
}

// The schedules that a kernel has, in the order in which they are tried.
std::vector<TunedSchedule> schedules_of(const KernelReport& report) {
  const std::string why = "the schedule without taps";
  std::vector<TunedSchedule> out;
  for (const auto& a : report.alternatives) out.push_back({a.schedule, a.extents, why});
  out.push_back({report.schedule, report.extents, why});
  return out;
}

} // namespace

class TapRuns::Runner {
public:
  Runner(const Compiled& compiled, const Inputs& inputs, const SymValues& sizes, const TapOptions& options)
      : compiled_(compiled), graph_(seeded(*compiled.graph)), inputs_(inputs), sizes_(sizes), options_(options) {
    for (const KernelReport& k : compiled.report.kernels) reports_.emplace(k.name, &k);
    for (const Group* group : flat_groups(compiled.report.plan)) flat_.push_back(group);
  }

  Status begin() {
    auto plain = compiled_.executable;
    if (draws(*compiled_.graph)) {
      TESSERA_ASSIGN(Compiled with_seeds,
                     compile_plan(compiled_, graph_, compiled_.report.plan, options_.compile, forced()));
      plain = with_seeds.executable;
    }
    TESSERA_ASSIGN(out_.outputs, execute(plain));
    TESSERA_ASSIGN(auto again, execute(plain));
    out_.reproducible = same(out_.outputs, again);
    Taps taps = find_taps(compiled_);
    out_.not_tapped = std::move(taps.not_tapped);
    for (const Tap& tap : taps.taps) taps_[tap.value].push_back(tap);
    all_ = taps.taps.size();
    return {};
  }
  Status run(const std::vector<ValueId>& values) {
    std::vector<Tap> taps;
    for (ValueId v : values)
      if (auto it = taps_.find(v); it != taps_.end()) taps.insert(taps.end(), it->second.begin(), it->second.end());
    for (std::vector<Tap>& batch : batches(taps)) TESSERA_TRY(take(std::move(batch)));
    return {};
  }
  [[nodiscard]] int64_t bytes(ValueId value) const {
    int64_t all = 0;
    if (auto it = taps_.find(value); it != taps_.end())
      for (const Tap& tap : it->second) all += bytes(tap);
    return all;
  }
  TapResults& results() { return out_; }

private:
  [[nodiscard]] int64_t bytes(const Tap& tap) const {
    const Graph& graph = *compiled_.graph;
    SymExpr count = graph.type(tap.value).count();
    if (tap.inner >= 0) {
      const LoopNest& nest = *tapped_nest(compiled_.report.plan.groups[tap.group]);
      count = 1;
      for (const Axis& a : axes_of(nest, nest.inner[static_cast<size_t>(tap.inner)])) count = count * a.extent;
    }
    auto n = size_of(graph, count, sizes_);
    return n.ok() ? byte_size(compute_dtype(graph.type(tap.value).dtype), *n) : 0;
  }

  // First those with memory, which change no kernel.
  std::vector<std::vector<Tap>> batches(const std::vector<Tap>& taps) const {
    std::vector<std::vector<Tap>> out;
    for (bool inner : {false, true}) {
      int64_t room = 0;
      std::map<size_t, size_t> of_group;
      std::vector<Tap> left;
      for (const Tap& tap : taps)
        if ((tap.inner >= 0) == inner) left.push_back(tap);
      while (!left.empty()) {
        std::vector<Tap> now, later;
        room = options_.bytes;
        of_group.clear();
        for (const Tap& tap : left) {
          const int64_t needs = bytes(tap);
          const bool fits = now.empty() || (needs <= room && of_group[tap.group] < options_.per_kernel);
          (fits ? now : later).push_back(tap);
          if (!fits) continue;
          room -= needs;
          ++of_group[tap.group];
        }
        out.push_back(std::move(now));
        left = std::move(later);
      }
    }
    return out;
  }

  // Takes all of them in one run; where the results of the model or a kernel's schedule change, each half by itself.
  Status take(std::vector<Tap> taps) {
    if (options_.progress) options_.progress({out_.runs + 1, taps.size(), done_, all_});
    std::string why;
    auto values = try_all(taps, why);
    if (values.ok() && why.empty()) {
      done_ += taps.size();
      for (size_t i = 0; i < taps.size(); ++i) {
        ++out_.taps;
        out_.inner += taps[i].inner >= 0;
        out_.values[taps[i].value].push_back({taps[i], std::move((*values)[i])});
      }
      return {};
    }
    if (!values.ok()) {
      if (values.error().code == ErrorCode::Cancelled) return std::move(values).take_error();
      why = values.error().message;
    }
    if (taps.size() == 1) {
      ++done_;
      out_.not_tapped.push_back({taps[0].value, std::move(why)});
      return {};
    }
    const auto half = taps.begin() + static_cast<std::ptrdiff_t>(taps.size() / 2);
    TESSERA_TRY(take({taps.begin(), half}));
    return take({half, taps.end()});
  }

  // The taps' tensors. `why`: what is not as without taps.
  Result<std::vector<Tensor>> try_all(const std::vector<Tap>& taps, std::string& why) {
    auto graph = std::make_shared<Graph>(*graph_);
    FusionPlan plan = compiled_.report.plan;
    std::vector<size_t> output; // of each tap, among the executable's
    std::map<ValueId, size_t> known;
    for (size_t o = 0; o < graph->outputs().size(); ++o) known.emplace(graph->outputs()[o].value, o);
    for (const Tap& tap : taps) {
      ValueId value = tap.inner < 0 ? tap.value : store(*graph, plan.groups[tap.group], tap.inner);
      auto [it, fresh] = known.try_emplace(value, graph->outputs().size());
      if (fresh) graph->add_output("tap " + std::to_string(it->second), value);
      output.push_back(it->second);
    }
    TESSERA_ASSIGN(Compiled tapped, compile_plan(compiled_, graph, std::move(plan), options_.compile, forced()));
    for (const KernelReport& now : tapped.report.kernels)
      if (auto before = reports_.find(now.name); before != reports_.end() && !as_before(*before->second, now)) {
        why = "with a store more, kernel " + now.name + " cannot have its schedule";
        return std::vector<Tensor>();
      }
    ++out_.runs;
    TESSERA_ASSIGN(auto all, execute(tapped.executable));
    if (out_.reproducible && !same(out_.outputs, all)) {
      why = "with a store more, the outputs of the model have other bits";
      return std::vector<Tensor>();
    }
    std::vector<Tensor> values;
    for (size_t o : output) values.push_back(all[o]);
    return values;
  }

  // Adds a store of an inner value to the group's nest; returns the value that it defines.
  static ValueId store(Graph& graph, Group& group, int index) {
    LoopNest& nest = group.kind == Group::Kind::Kernel ? group.nest : *group.call.epilogue_nest;
    const InnerValue& inner = nest.inner[static_cast<size_t>(index)];
    Store store;
    TensorType type{nest.dag[inner.scalar].dtype, {}};
    for (const Axis& axis : axes_of(nest, inner)) {
      type.shape.push_back(axis.extent);
      store.index.push_back(nest.dag.index(axis.var));
    }
    store.scalar = inner.scalar;
    store.per_row = nest.has_reduction() && store.index.size() < nest.axes.size();
    store.value = fusion::add_temporary(graph, std::move(type));
    group.writes.push_back(store.value);
    nest.stores.push_back(store);
    return store.value;
  }

  // Every kernel keeps its schedules.
  ForcedSchedules forced() const {
    ForcedSchedules out;
    for (size_t g = 0; g < flat_.size(); ++g)
      for (const char* suffix : {"", ".epilogue"})
        if (auto it = reports_.find(flat_[g]->name + suffix); it != reports_.end())
          out.emplace(g, std::make_shared<FixedSchedules>(schedules_of(*it->second)));
    return out;
  }
  static bool as_before(const KernelReport& before, const KernelReport& now) {
    const auto then = schedules_of(before), with_taps = schedules_of(now);
    return with_taps.size() >= then.size() &&
           std::equal(then.begin(), then.end(), with_taps.begin(),
                      [](const auto& a, const auto& b) { return a.schedule == b.schedule; });
  }

  Result<std::vector<Tensor>> execute(const std::shared_ptr<const Executable>& executable) const {
    ExecutorOptions options = options_.executor;
    auto plain = executable;
    if (!executable->states.empty()) { // their values are inputs, and new ones outputs
      auto without = std::make_shared<Executable>(*executable);
      without->states.clear();
      plain = std::move(without);
    }
    TESSERA_ASSIGN(auto executor, Executor::create({std::move(plain)}, std::move(options)));
    return executor->run(inputs_);
  }
  // The outputs of the model; taps follow them.
  static bool same(const std::vector<Tensor>& model, const std::vector<Tensor>& other) {
    for (size_t i = 0; i < model.size(); ++i)
      if (!same_bits(model[i], other[i])) return false;
    return true;
  }

  const Compiled& compiled_;
  const std::shared_ptr<Graph> graph_; // with seeds
  const Inputs& inputs_;
  const SymValues& sizes_;
  const TapOptions& options_;
  std::map<std::string, const KernelReport*> reports_; // by name
  std::vector<const Group*> flat_;
  std::map<ValueId, std::vector<Tap>> taps_;
  size_t done_ = 0, all_ = 0; // taps
  TapResults out_;
};

TapRuns::TapRuns(std::unique_ptr<Runner> runner) : runner_(std::move(runner)) {}
TapRuns::TapRuns(TapRuns&&) noexcept = default;
TapRuns& TapRuns::operator=(TapRuns&&) noexcept = default;
TapRuns::~TapRuns() = default;

Result<TapRuns> TapRuns::create(const Compiled& compiled, const std::map<std::string, Tensor>& inputs,
                                const SymValues& sizes, const TapOptions& options) {
  auto runner = std::make_unique<Runner>(compiled, inputs, sizes, options);
  TESSERA_TRY(runner->begin());
  return TapRuns(std::move(runner));
}
int64_t TapRuns::bytes(ValueId value) const { return runner_->bytes(value); }
Status TapRuns::run(const std::vector<ValueId>& values) { return runner_->run(values); }
TapResults& TapRuns::results() { return runner_->results(); }

namespace {

// ---- elements

// A linear function of the axes, with numbers.
struct Linear {
  int64_t offset = 0;
  std::vector<int64_t> steps; // by axis
};

std::optional<Linear> linear(SymExpr e, const std::vector<Axis>& axes) {
  Linear out;
  for (const Axis& axis : axes) {
    auto split = e.linear_in(axis.var);
    auto step = split ? split->first.as_const() : std::nullopt;
    if (!step) return std::nullopt;
    out.steps.push_back(*step);
    e = split->second;
  }
  auto offset = e.as_const();
  if (!offset) return std::nullopt;
  out.offset = *offset;
  return out;
}

// Calls f(point, flat index of the element) for each point of a tap at which it holds an element of its value.
template <class F>
Status each_point(const InnerValue& inner, const std::vector<Axis>& axes, const Dims& extents, const Dims& dims,
                  const SymValues& sizes, F&& f) {
  std::unordered_map<uint64_t, SymExpr> numbers;
  for (const auto& [symbol, value] : sizes) numbers.emplace(symbol, SymExpr(value));
  SymExpr flat;
  for (size_t d = 0; d < dims.size(); ++d) flat = flat * dims[d] + inner.index[d].substitute(numbers);
  const SymExpr condition = inner.condition.substitute(numbers);
  int64_t points = 1, elements = 1;
  for (int64_t n : extents) points *= n;
  for (int64_t n : dims) elements *= n;
  const auto simple = condition.is_const(1) ? linear(flat, axes) : std::nullopt;
  Dims at(extents.size());
  SymValues bound;
  for (int64_t p = 0; p < points; ++p) {
    int64_t element = 0, holds = 1;
    if (simple) {
      element = simple->offset;
      for (size_t a = 0; a < axes.size(); ++a) element += simple->steps[a] * at[a];
    } else {
      for (size_t a = 0; a < axes.size(); ++a) bound[axes[a].var.symbol_id()] = at[a];
      TESSERA_ASSIGN(holds, condition.eval(bound));
      if (holds != 0) {
        TESSERA_ASSIGN(element, flat.eval(bound));
      }
    }
    if (holds != 0) {
      if (element < 0 || element >= elements)
        return Diagnostic(ErrorCode::Internal,
                          "a tap holds element " + std::to_string(element) + " of " + std::to_string(elements));
      f(p, element);
    }
    for (size_t a = at.size(); a-- > 0;) {
      if (++at[a] < extents[a]) break;
      at[a] = 0;
    }
  }
  return {};
}

} // namespace

bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.dims() != b.dims()) return false;
  if (a.dtype() == DType::String) return a.string_values() == b.string_values();
  if (a.dtype() == DType::List) {
    if (a.items().size() != b.items().size()) return false;
    for (size_t i = 0; i < a.items().size(); ++i)
      if (!same_bits(a.items()[i], b.items()[i])) return false;
    return true;
  }
  return a.bytes() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0;
}

std::shared_ptr<Graph> seeded(const Graph& graph) {
  auto out = std::make_shared<Graph>(graph);
  int64_t seed = 1;
  for (NodeId id : out->order())
    if (draws(out->node(id))) out->node(id).attributes.set("seed", seed++);
  return out;
}

Result<TapResults> run_with_taps(const Compiled& compiled, const Inputs& inputs, const SymValues& sizes,
                                 const TapOptions& options) {
  TESSERA_ASSIGN(TapRuns runs, TapRuns::create(compiled, inputs, sizes, options));
  std::vector<ValueId> all;
  for (int32_t v = 0; v < compiled.graph->value_count(); ++v) all.push_back({v});
  TESSERA_TRY(runs.run(all));
  return std::move(runs.results());
}

Result<int64_t> size_of(const Graph& graph, const SymExpr& size, const SymValues& symbols) {
  auto value = size.eval(symbols);
  if (value.ok()) return value;
  const SymExpr simpler = graph.env().simplify(size);
  if (simpler == size) return value;
  return simpler.eval(symbols);
}

Result<Elements> elements_of(const Compiled& compiled, const std::vector<Tapped>& tapped, const SymValues& sizes) {
  Elements out;
  if (tapped.size() == 1 && tapped[0].tap.inner < 0) {
    out.tensor = tapped[0].tensor;
    return out;
  }
  Dims dims;
  for (const SymExpr& d : compiled.graph->type(tapped[0].tap.value).shape) {
    TESSERA_ASSIGN(int64_t n, size_of(*compiled.graph, d, sizes));
    dims.push_back(n);
  }
  TESSERA_ASSIGN(out.tensor, Tensor::create(tapped[0].tensor.dtype(), dims, true));
  out.present.assign(static_cast<size_t>(out.tensor.count()), false);
  for (const Tapped& t : tapped) {
    const LoopNest& nest = *tapped_nest(compiled.report.plan.groups[t.tap.group]);
    const InnerValue& inner = nest.inner[static_cast<size_t>(t.tap.inner)];
    const size_t width = static_cast<size_t>(info(t.tensor.dtype()).bits) / 8;
    const std::byte* from = t.tensor.data();
    std::byte* to = out.tensor.mutable_data();
    TESSERA_TRY(each_point(inner, axes_of(nest, inner), t.tensor.dims(), dims, sizes, [&](int64_t p, int64_t element) {
      std::memcpy(to + static_cast<size_t>(element) * width, from + static_cast<size_t>(p) * width, width);
      out.present[static_cast<size_t>(element)] = true;
    }));
  }
  if (std::find(out.present.begin(), out.present.end(), false) == out.present.end()) out.present.clear();
  return out;
}

} // namespace tessera::accuracy
