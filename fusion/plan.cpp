#include "fusion/plan.h"
#include "base/guarded.h"
#include "base/log.h"
#include "fusion/attention.h"
#include "fusion/idioms.h"
#include "fusion/planner.h"
#include "graph/ops/questions.h"
#include <algorithm>
#include <cmath>

namespace tessera {

Group::Group() = default;
Group::Group(const Group&) = default;
Group::Group(Group&&) noexcept = default;
Group& Group::operator=(const Group&) = default;
Group& Group::operator=(Group&&) noexcept = default;
Group::~Group() = default;

namespace {

constexpr size_t kMaxFailures = 16; // that one plan goes around; each costs an attempt

// Another attempt does without what failed. False: what failed is no part that could be left out.
bool plan_around(const Graph& graph, const fusion::Work& work, const Diagnostic& error, FusionConstraints& constraints,
                 std::set<int>& merges, std::vector<PlanFailure>& failures) {
  if (error.code != ErrorCode::Internal || work.nodes.empty() || failures.size() >= kMaxFailures) return false;
  std::string names;
  for (NodeId n : work.nodes) names += (names.empty() ? "" : ", ") + std::string(graph.node(n).op->name);
  if (work.merge >= 0) {
    merges.insert(work.merge);
    failures.push_back({"merging " + names, error, "they are two kernels"});
    return true;
  }
  merges.clear(); // the plan is another one, whose merges have other numbers
  FusionDetours& detours = constraints.detours;
  const bool together = work.nodes.size() > 1 && !detours.alone.contains(work.nodes[0]);
  for (NodeId n : work.nodes)
    if (together)
      detours.alone.emplace(n, Separation{FusionReason::InternalFailure, "planning them together failed"});
    else if (!detours.on_host.emplace(n, "planning it failed: " + error.message).second)
      return false;
  failures.push_back({"planning " + names, error, together ? "each is planned alone" : "the host runs it"});
  return true;
}

} // namespace

Result<FusionPlan> plan_groups(Graph& graph, fusion::AxisPool& axes, const FusionOptions& given) {
  failure_point("fuse");
  // A pin that turns out not to hold is dropped, and the rest is planned again; so is what fails.
  std::vector<UnmetPin> dropped;
  std::vector<PlanFailure> failures;
  std::set<int> failed_merges;
  std::optional<FusionOptions> changed;
  while (true) {
    const FusionOptions& options = changed ? *changed : given;
    const fusion::Steering steering(graph, options.constraints, dropped);
    fusion::WorkInHand work(failed_merges);
    fusion::Planner planner(graph, axes, options, steering, work);
    auto plan = guarded("planning", [&] { return planner.run(); });
    if (!plan.ok()) {
      if (!changed) changed = given;
      if (plan_around(graph, work.now(), plan.error(), changed->constraints, failed_merges, failures)) continue;
      return plan;
    }
    if (plan->unmet.empty()) {
      plan->unmet = steering.unmet();
      plan->failures = std::move(failures);
      return plan;
    }
    for (UnmetPin& pin : plan->unmet) dropped.push_back(std::move(pin));
  }
}

Result<FusionPlan> plan_fusion(Graph& graph, const FusionOptions& options) {
  fusion::AxisPool axes(graph.env());
  TESSERA_ASSIGN(FusionPlan plan, plan_groups(graph, axes, options));
  fusion::fuse_attention(graph, axes, options, plan);
  return plan;
}

namespace fusion {

namespace {

constexpr int kMaxScalarNodes = 1500; // of a kernel: registers, and time to compile it
constexpr double kFewRows = 8;        // a kernel of fewer rows leaves cores idle ...
constexpr double kLongRow = 1 << 16;  // ... which matters when each row is long
constexpr size_t kSiblings = 4;       // most recent readers of a value tried for horizontal merging
constexpr int kSiblingDistance = 64;  // positions in the order

size_t at(ValueId v) { return static_cast<size_t>(v.index); }
size_t at(NodeId n) { return static_cast<size_t>(n.index); }

} // namespace

Result<FusionPlan> Planner::run() {
  TESSERA_ASSIGN(d_, decide(graph_, options_, steering_, pool_, bodies_, estimate_));
  TESSERA_TRY(make_units());
  merge_small();
  std::vector<UnmetPin> unmet;
  if (steering_.has_pins()) {
    complete_pins();
    unmet = check_pins();
  }
  TESSERA_ASSIGN(FusionPlan plan, emit());
  plan.unmet = std::move(unmet);
  return plan;
}

// ---- units

int Planner::add(Unit unit) {
  if (auto call = d_.call_marks.find(unit.node.index); call != d_.call_marks.end())
    unit.marks = call->second;
  else
    unit.marks = steering_.marks(nodes_of(unit));
  return units_.add(std::move(unit));
}

Status Planner::make_units() {
  for (NodeId id : d_.order) {
    const Node& node = graph_.node(id);
    switch (d_.place[at(id)]) {
    case Place::Unneeded:
    case Place::Constant: break;
    case Place::Own:
    case Place::Control:
    case Place::Alias:
    case Place::Host: {
      Unit unit;
      const Place where = d_.place[at(id)];
      unit.kind = where == Place::Own       ? Group::Kind::Own
                  : where == Place::Control ? Group::Kind::Control
                  : where == Place::Alias   ? Group::Kind::Alias
                                            : Group::Kind::Host;
      unit.node = id;
      unit.pin = steering_.pin_of_call(id);
      for (ValueId v : node.operands)
        if (v.valid()) unit.reads.push_back(v);
      for (ValueId v : node.results)
        if (v.valid()) unit.defines.push_back(v);
      add(std::move(unit));
      break;
    }
    case Place::Library: {
      Unit unit;
      unit.kind = Group::Kind::Library;
      unit.node = id;
      unit.draft = std::move(d_.calls.at(id.index));
      for (const auto& operand : unit.draft->call.operands) unit.reads.push_back(operand.value);
      unit.defines = {node.results[0]};
      unit.pin = steering_.pin_of_call(id);
      add(std::move(unit));
      break;
    }
    case Place::Loops:
      for (ValueId v : node.results)
        if (v.valid() && !d_.is_virtual[at(v)]) TESSERA_TRY(make_stage(v));
      break;
    }
  }
  return {};
}

Work merge_of(const Unit& a, const Unit& b, WorkInHand& hand) {
  Work work{hand.next_merge(), nodes_of(a)};
  for (NodeId n : nodes_of(b)) work.nodes.push_back(n);
  return work;
}

Status Planner::make_stage(ValueId value) {
  const WorkInHand::Doing making(work_, {-1, {graph_.value(value).producer}});
  failure_point("nest");
  Expander expander(
      graph_, pool_, bodies_, [&](ValueId v) { return static_cast<bool>(d_.is_virtual[at(v)]); },
      options_.strict_rounding || d_.compared[at(value)], options_.keep_values);
  TESSERA_ASSIGN(LoopNest nest, expander.nest(value));
  // Known contents read at an index that is data have to be in memory after all; they depend on nothing.
  for (ValueId v : nest.loads)
    if (graph_.producer(v) && units_.home(v) < 0 && d_.place[at(graph_.value(v).producer)] != Place::Constant) {
      if (!known_contents(graph_, v))
        return Diagnostic(ErrorCode::Internal, graph_.node(graph_.value(v).producer).location,
                          "read before it is planned");
      d_.is_virtual[at(v)] = false;
      TESSERA_TRY(make_stage(v));
    }
  split_axes(nest, pool_);
  normalize(nest, graph_.env());
  Unit unit;
  unit.reads = nest.loads;
  unit.defines = {value};
  unit.pin = steering_.pin_of_stage(value);
  unit.nest = std::move(nest);
  int id = add(std::move(unit));
  if (!options_.enabled) return {};
  merge_producers(id);
  TESSERA_TRY(recompute_reads(id));
  merge_siblings(id);
  return {};
}

// ---- merging

// Merges a new unit with the units that make what it reads, most expensive value first.
void Planner::merge_producers(int unit) {
  struct Candidate {
    double bytes;
    int position, unit;
    ValueId value;
  };
  std::vector<Candidate> producers;
  for (ValueId v : units_[unit].reads)
    if (int from = units_.home(v); from >= 0)
      producers.push_back({estimate_(byte_count(graph_, v)), units_.position(from), from, v});
  std::stable_sort(producers.begin(), producers.end(), [](const Candidate& x, const Candidate& y) {
    return x.bytes != y.bytes ? x.bytes > y.bytes : x.position > y.position;
  });
  for (const auto& c : producers) {
    int from = units_.find(c.unit), to = units_.find(unit);
    if (from == to) continue;
    if (auto refusal = try_vertical(from, to)) tried_.refused[{c.value.index, unit}] = std::move(*refusal);
  }
}

// And with units that read the same.
void Planner::merge_siblings(int unit) {
  std::vector<int> tried;
  std::vector<ValueId> reads = units_[unit].reads;
  for (ValueId v : reads) {
    const auto& readers = units_.readers(v);
    size_t count = 0;
    for (size_t i = readers.size(); i-- > 0 && count < kSiblings;) {
      int a = units_.find(readers[i]), b = units_.find(unit);
      if (a == b) continue;
      ++count;
      if (std::find(tried.begin(), tried.end(), a) != tried.end()) continue;
      tried.push_back(a);
      if (try_horizontal(a, b)) continue;
      for (int member : units_[units_.find(unit)].members)
        if (member != unit)
          for (ValueId w : units_[member].reads)
            if (std::find(reads.begin(), reads.end(), w) != reads.end()) tried_.shared.emplace(w.index, unit);
    }
  }
}

bool Planner::will_be_read_elsewhere(ValueId v, int a, int b) {
  if (units_.read_elsewhere(v, a, b)) return true;
  // Through what is written out into its readers, to what is in memory.
  std::vector<ValueId> work = {v};
  std::unordered_set<int32_t> seen = {v.index};
  while (!work.empty()) {
    ValueId value = work.back();
    work.pop_back();
    for (NodeId user : users_[at(value)]) {
      if (d_.place[at(user)] != Place::Loops) continue; // those read operands, which are pinned
      for (ValueId r : graph_.node(user).results) {
        if (!r.valid() || !seen.insert(r.index).second) continue;
        if (d_.is_virtual[at(r)]) {
          work.push_back(r);
          continue;
        }
        int unit = units_.home(r);
        if (unit != a && unit != b) return true;
      }
    }
  }
  return false;
}

std::optional<Refusal> Planner::fits(const LoopNest& a, const LoopNest& b, int ua, int ub) {
  // A kernel on tensor cores has one sum: with another one the product would be a loop over scalars.
  auto on_tensor_cores = [&](const LoopNest& nest) {
    return std::any_of(nest.sources.begin(), nest.sources.end(), [&](NodeId id) {
      const Node& node = graph_.node(id);
      return ops::is(node, Structured::MatmulOfParts) || ops::is(node, Structured::GroupedMatmul);
    });
  };
  if (a.has_reduction() && b.has_reduction() && (on_tensor_cores(a) || on_tensor_cores(b)))
    return Refusal{FusionReason::DifferentReduction, "a product on tensor cores is the one sum of its kernel"};
  int nodes = a.dag.size() + b.dag.size();
  if (nodes > kMaxScalarNodes) return Refusal{FusionReason::TooManyBuffers, std::to_string(nodes) + " operations"};
  if (options_.cached_instructions > 0 && !completing_) {
    const double code = instructions(a) + instructions(b);
    if (code > options_.cached_instructions)
      return Refusal{FusionReason::TooManyBuffers,
                     std::to_string(std::llround(code)) + " instructions for an element, of which " +
                         std::to_string(std::llround(options_.cached_instructions)) + " stay in the instruction cache"};
  }
  std::vector<ValueId> buffers;
  auto count = [&](ValueId v) {
    if (std::find(buffers.begin(), buffers.end(), v) == buffers.end()) buffers.push_back(v);
  };
  auto stores = [](const LoopNest& nest, ValueId v) {
    return std::any_of(nest.stores.begin(), nest.stores.end(), [&](const Store& s) { return s.value == v; });
  };
  for (const LoopNest* nest : {&a, &b}) {
    for (ValueId v : nest->loads)
      if (!stores(a, v) && !stores(b, v)) count(v);
    for (const auto& s : nest->stores)
      if (d_.pinned[at(s.value)] || units_.read_elsewhere(s.value, ua, ub) || units_.readers(s.value).empty())
        count(s.value);
  }
  if (static_cast<int>(buffers.size()) > options_.max_buffers)
    return Refusal{FusionReason::TooManyBuffers,
                   std::to_string(buffers.size()) + " buffers, " + std::to_string(options_.max_buffers) + " at most"};
  return std::nullopt;
}

// Joining a large pointwise nest to a small number of long rows would leave cores idle where one program computes a
// row.
std::optional<Refusal> Planner::keeps_parallelism(const LoopNest& a, const LoopNest& b) {
  if (options_.cooperative_rows || completing_ || a.has_reduction() == b.has_reduction()) return std::nullopt;
  const LoopNest& rows = a.has_reduction() ? a : b;
  const LoopNest& wide = a.has_reduction() ? b : a;
  double outer = estimate_(product(rows.extents(AxisRole::Outer))),
         row = estimate_(product(rows.extents(AxisRole::Row)));
  if (outer >= kFewRows || row < kLongRow || estimate_(wide.points()) <= outer) return std::nullopt;
  return Refusal{FusionReason::NoGain,
                 "a kernel of " + std::to_string(static_cast<int64_t>(outer)) + " rows would leave cores idle"};
}

// Also where a failure is injected.
std::optional<Refusal> failed_before(const WorkInHand& hand) {
  if (hand.failed_before()) return Refusal{FusionReason::InternalFailure, "merging them failed"};
  failure_point("merge");
  return std::nullopt;
}

std::optional<Refusal> Planner::try_vertical(int producer, int consumer) {
  Unit &p = units_[producer], &c = units_[consumer];
  if (p.kind == Group::Kind::Own || c.kind == Group::Kind::Own)
    return Refusal{FusionReason::SeparateKernel, "a separate kernel"};
  if (p.kind == Group::Kind::Control || c.kind == Group::Kind::Control)
    return Refusal{FusionReason::ControlFlow, "its bodies run by themselves"};
  if (p.kind == Group::Kind::Alias || c.kind == Group::Kind::Alias)
    return Refusal{FusionReason::SeparateKernel, "bytes that are read as another type are in memory"};
  if (p.kind == Group::Kind::Host || c.kind == Group::Kind::Host)
    return Refusal{FusionReason::HostOperator, "runs on the host"};
  if (c.kind == Group::Kind::Library)
    return Refusal{FusionReason::OtherCallsEpilogue, "the reader already belongs to another call's result"};
  if (p.kind == Group::Kind::Library) return try_library(producer, consumer);
  if (auto r = fits(p.nest, c.nest, producer, consumer)) return r;
  if (auto r = keeps_parallelism(p.nest, c.nest)) return r;
  if (auto r = units_.path_between(producer, consumer)) return r;
  if (auto r = kept_apart(producer, consumer, p.nest, false)) return r;
  const WorkInHand::Doing merging(work_, merge_of(p, c, work_));
  if (auto r = failed_before(work_)) return r;
  if (auto r = merger_.vertical(p.nest, c.nest, false)) return r;
  units_.contract(producer, consumer, producer);
  return std::nullopt;
}

std::optional<Refusal> Planner::try_library(int producer, int consumer) {
  Unit &p = units_[producer], &c = units_[consumer];
  std::string op(graph_.node(p.node).op->name);
  if (!options_.generated_epilogues && !options_.fixed_epilogues && !options_.library_accepts)
    return Refusal{FusionReason::ResultOfLibrary, "no epilogues are offered"};
  if (c.nest.has_reduction())
    return Refusal{FusionReason::RowsOfLibraryResult, "a reduction needs whole rows of the result of " + op};
  if (auto r = fits(p.draft->epilogue, c.nest, producer, consumer)) return r;
  if (auto r = units_.path_between(producer, consumer)) return r;
  const WorkInHand::Doing merging(work_, merge_of(p, c, work_));
  if (auto r = failed_before(work_)) return r;
  CallDraft draft = *p.draft;
  if (auto r = merger_.vertical(draft.epilogue, c.nest, true)) return r;
  if (options_.library_accepts || options_.fixed_epilogues) {
    std::string why;
    auto kept = [&](ValueId v) {
      return d_.pinned[at(v)] || will_be_read_elsewhere(v, producer, consumer) || units_.readers(v).empty();
    };
    auto call = calls_.finish(draft, kept);
    if (options_.fixed_epilogues && call.epilogue_nest) {
      if (kept(graph_.node(call.node).results[0]))
        return Refusal{FusionReason::ResultOfLibrary, "others read the bare result of " + op};
      call.fixed = calls_.fixed(call, &why);
      if (!call.fixed) return Refusal{FusionReason::ResultOfLibrary, why};
    }
    if (options_.library_accepts && !options_.library_accepts(graph_, call, &why))
      return Refusal{FusionReason::ResultOfLibrary, why};
  }
  if (auto r = kept_apart(producer, consumer)) return r;
  p.draft = std::move(draft);
  units_.contract(producer, consumer, producer);
  return std::nullopt;
}

std::optional<Refusal> Planner::try_horizontal(int a, int b) {
  Unit &x = units_[a], &y = units_[b];
  Refusal no{FusionReason::NoGain, ""};
  if (x.kind != Group::Kind::Kernel || y.kind != Group::Kind::Kernel) return no;
  if (!completing_ && std::abs(units_.position(a) - units_.position(b)) > kSiblingDistance) return no;
  // Reading a value once instead of twice has to be worth it.
  double shared = 0, all = 0;
  SizeSum both;
  for (ValueId v : y.nest.loads) {
    double bytes = estimate_(byte_count(graph_, v));
    all += bytes;
    if (std::find(x.nest.loads.begin(), x.nest.loads.end(), v) != x.nest.loads.end()) {
      shared += bytes;
      both.add(byte_count(graph_, v));
    }
  }
  for (const auto& s : y.nest.stores) all += estimate_(byte_count(graph_, s.value));
  if (!completing_ && shared * 8 < all) return no;
  if (auto r = fits(x.nest, y.nest, a, b)) return r;
  if (auto r = keeps_parallelism(x.nest, y.nest)) return r;
  if (units_.edge(a, b) || units_.edge(b, a)) return no; // that was tried as producer and consumer
  if (auto r = units_.path_between(a, b)) return r;
  const auto apart = kept_apart(a, b);
  const WorkInHand::Doing merging(work_, merge_of(x, y, work_));
  if (auto r = failed_before(work_)) return r;
  LoopNest trial = apart ? x.nest : LoopNest{}; // what stands in the way without the request is the reason
  if (auto r = merger_.horizontal(apart ? trial : x.nest, y.nest)) {
    // A kernel folds over one set of axes: what two reductions over different ones both read is read twice.
    if (x.nest.has_reduction() && y.nest.has_reduction())
      tried_.pairs.push_back({x.nest.sources[0], y.nest.sources[0], FusionReason::DifferentReduction,
                              Detail("both read ") << both << ": " + r->detail});
    return r;
  }
  if (apart) return apart;
  units_.contract(a, b, a);
  return std::nullopt;
}

// ---- groups

bool Planner::stored(ValueId v, const std::vector<bool>& read) const {
  if (d_.pinned[at(v)]) return true;
  int from = units_.home(v);
  if (!read.empty() && from >= 0 && units_[from].kind == Group::Kind::Kernel) return read[at(v)];
  if (units_.readers(v).empty()) return true;
  return std::any_of(units_.readers(v).begin(), units_.readers(v).end(), [&](int r) { return units_.find(r) != from; });
}

// Finds the values that kernels and calls load in the end, from the last unit to the first. Sizes may have decided
// since a unit was made, or while it was merged, that it reads nothing of a value; a kernel stores no such value, and a
// unit that makes nothing else is left out.
std::vector<bool> Planner::find_reads() {
  std::vector<bool> read(d_.pinned.size(), false);
  const auto load = [&](const std::vector<ValueId>& values) {
    for (ValueId v : values) read[at(v)] = true;
  };
  const auto wanted = [&](ValueId v) { return d_.pinned[at(v)] || read[at(v)]; };
  const std::vector<int> order = units_.order();
  for (auto id = order.rbegin(); id != order.rend(); ++id) {
    Unit& unit = units_[*id];
    const bool computes = unit.kind == Group::Kind::Kernel || unit.kind == Group::Kind::Library;
    unit.unread = computes && std::none_of(unit.defines.begin(), unit.defines.end(), wanted);
    if (unit.unread) continue;
    if (unit.kind == Group::Kind::Kernel) {
      remove_stores(unit.nest, wanted, options_.keep_values);
      order_axes(unit.nest);
      normalize(unit.nest, graph_.env());
      load(unit.nest.loads);
    } else if (unit.kind == Group::Kind::Library) {
      for (const auto& operand : unit.draft->call.operands) read[at(operand.value)] = true;
      load(unit.draft->epilogue.loads);
    } else {
      load(unit.reads);
    }
  }
  return read;
}

// Outer axes in the order in which the first full store has them: the innermost axis is the one whose elements are
// neighbours.
void Planner::order_axes(LoopNest& nest) const {
  if (nest.has_reduction()) return;
  auto strides = contiguous_strides(graph_.type(nest.stores[0].value).shape);
  std::vector<std::pair<size_t, size_t>> key; // dimension, digit within it
  for (const auto& axis : nest.axes) {
    std::pair<size_t, size_t> where{strides.size(), 0};
    for (size_t d = 0; d < strides.size(); ++d) {
      auto e = nest.dag.as_sym(nest.stores[0].index[d]);
      auto digits =
          e ? radix_of(*e, nest.axes, graph_.type(nest.stores[0].value).shape[d], graph_.env()) : std::nullopt;
      if (!digits) return;
      for (size_t k = 0; k < digits->size(); ++k)
        if (nest.axes[static_cast<size_t>((*digits)[k])].var == axis.var) where = {d, k};
    }
    key.push_back(where);
  }
  std::vector<size_t> order(nest.axes.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t x, size_t y) { return key[x] < key[y]; });
  std::vector<Axis> axes;
  for (size_t i : order) axes.push_back(nest.axes[i]);
  nest.axes = std::move(axes);
}

void Planner::fill(Group& group, const LoopNest& nest) {
  auto bytes = bytes_read(graph_, nest, estimate_);
  for (size_t k = 0; k < nest.loads.size(); ++k) {
    if (group.kind == Group::Kind::Library && nest.loads[k] == graph_.node(group.call.node).results[0]) continue;
    group.reads.push_back(nest.loads[k]);
    group.bytes_read += bytes[k];
  }
  for (const auto& s : nest.stores) group.writes.push_back(s.value);
}

std::string Planner::group_name(size_t number, const Group& group) const {
  std::vector<NodeId> nodes = group.kind == Group::Kind::Kernel ? group.nest.sources : group.call.sources;
  if (group.node.valid()) nodes = {group.node};
  // By what the loops are, where that has a name; else by the operators that they came from.
  std::vector<std::string_view> words;
  size_t more = 0;
  const LoopNest* loops = group.kind == Group::Kind::Kernel ? &group.nest
                          : group.kind == Group::Kind::Library
                              ? (group.call.epilogue_nest ? &*group.call.epilogue_nest : nullptr)
                              : nullptr;
  if (loops) words = idioms(*loops);
  if (group.kind == Group::Kind::Kernel && std::all_of(words.begin(), words.end(), is_activation)) words.clear();
  if (group.kind == Group::Kind::Library && !words.empty())
    words.insert(words.begin(), graph_.node(group.call.node).op->name);
  if (words.empty())
    for (NodeId n : nodes) {
      const Node& node = graph_.node(n);
      if (node.op->indexing() && node.op->indexing()->view && nodes.size() > 1) continue;
      if (std::find(words.begin(), words.end(), node.op->name) != words.end()) continue;
      if (words.size() < 4)
        words.push_back(node.op->name);
      else
        ++more;
    }
  if (words.empty() && !nodes.empty()) words.push_back(graph_.node(nodes[0]).op->name);
  std::string name = (group.kind == Group::Kind::Kernel    ? "k"
                      : group.kind == Group::Kind::Library ? "c"
                      : group.kind == Group::Kind::Control ? "f"
                      : group.kind == Group::Kind::Alias   ? "a"
                                                           : "h") +
                     std::to_string(number);
  for (auto w : words) name += "_" + std::string(w);
  return more ? name + "_more" : name;
}

Result<FusionPlan> Planner::emit() {
  FusionPlan plan;
  const std::vector<bool> read = find_reads();
  const auto stored = [&](ValueId v) { return this->stored(v, read); };
  auto by_index = [](NodeId x, NodeId y) { return x.index < y.index; };
  for (int id : units_.order()) {
    Unit& unit = units_[id];
    if (unit.unread) continue;
    const WorkInHand::Doing emitting(work_, {-1, nodes_of(unit)});
    Group group;
    group.kind = unit.kind;
    group.stages = unit.defines;
    group.pin = unit.pin;
    std::vector<NodeId> sources;
    if (unit.kind == Group::Kind::Kernel) {
      group.nest = std::move(unit.nest);
      drop_exact_roundings(group.nest, graph_);
      std::sort(group.nest.sources.begin(), group.nest.sources.end(), by_index);
      fill(group, group.nest);
      sources = group.nest.sources;
    } else if (unit.kind == Group::Kind::Library) {
      group.call = calls_.finish(*unit.draft, stored);
      std::sort(group.call.sources.begin(), group.call.sources.end(), by_index);
      if (options_.fixed_epilogues && group.call.epilogue_nest) {
        group.call.fixed = calls_.fixed(group.call, nullptr);
        if (!group.call.fixed)
          return Diagnostic(ErrorCode::Internal, graph_.node(unit.node).location,
                            "an epilogue was attached that the library does not compute");
      }
      if (group.call.epilogue_nest)
        drop_exact_roundings(*group.call.epilogue_nest, graph_, graph_.node(unit.node).results[0]);
      for (const auto& operand : group.call.operands) {
        group.reads.push_back(operand.value);
        group.bytes_read += byte_count(graph_, operand.value);
      }
      ValueId raw = graph_.node(unit.node).results[0];
      if (stored(raw) || group.call.result.value != raw) group.writes.push_back(group.call.result.value);
      if (group.call.epilogue_nest)
        fill(group, *group.call.epilogue_nest);
      else if (group.writes.empty())
        group.writes.push_back(group.call.result.value);
      sources = group.call.sources;
    } else {
      group.node = unit.node;
      if (unit.kind == Group::Kind::Host) group.host_reason = d_.host_reason[at(unit.node)];
      for (ValueId v : unit.reads) {
        group.reads.push_back(v);
        group.bytes_read += byte_count(graph_, v);
      }
      group.writes = unit.defines;
      sources = {unit.node};
    }
    for (ValueId v : group.writes) group.bytes_written += byte_count(graph_, v);
    for (NodeId n : sources) group.bytes_unfused += bytes_alone(graph_, n);
    group.name = group_name(plan.groups.size(), group);
    plan.groups.push_back(std::move(group));
  }
  for (const auto& output : graph_.outputs()) {
    const Node* producer = graph_.producer(output.value);
    if (producer && d_.place[at(graph_.value(output.value).producer)] != Place::Constant) continue;
    Group group; // an input or constant that is given out as it is
    group.kind = Group::Kind::Alias;
    group.reads = group.writes = {output.value};
    group.bytes_read = group.bytes_written = group.bytes_unfused = byte_count(graph_, output.value);
    group.name = "a" + std::to_string(plan.groups.size()) + "_output";
    plan.groups.push_back(std::move(group));
  }
  plan.ledger = explain_edges({graph_, options_, steering_, bodies_, d_, units_, tried_, stored});
  plan.pairs = std::move(tried_.pairs);
  return plan;
}

} // namespace fusion
} // namespace tessera
