#include "codegen/schedule/sized_facts.h"
#include "codegen/schedule/online.h"
#include "codegen/schedule/stages.h"
#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

namespace tessera {
namespace {

constexpr double kWideCode = 6; // times the code of an elementary function of f32: the same in f64
constexpr int kElementary = 8;  // ScalarInfo::cost of functions that are made of many instructions

// Counted instructions of the code of a scalar operator.
double code_of(const ScalarNode& node) {
  const int cost = std::max(0, info(node.op).cost);
  return cost >= kElementary && node.dtype == DType::F64 ? cost * kWideCode : cost;
}

// Steps of an access along all axes as numbers.
Result<SizedStream> sized_stream(const BlockFacts& f, const Stream& s, const CallSizes& sizes,
                                 const std::vector<int64_t>& extents) {
  SizedStream out;
  out.bytes = s.bytes;
  out.store = s.store;
  out.deps = s.deps;
  out.step.resize(extents.size());
  for (const auto& [value, stride] : s.access->terms) {
    out.unknown |= f.d.deps[static_cast<size_t>(value)];
    const auto step = stride.eval(sizes);
    out.data_step = std::gcd(out.data_step, step.ok() ? *step : 1);
  }
  SymExpr rest = s.access->offset;
  for (size_t i = 0; i < extents.size(); ++i) {
    if (!(s.deps >> i & 1)) continue;
    out.count *= static_cast<double>(extents[i]);
    auto linear = rest.linear_in(f.d.axes[i].var);
    auto step = linear ? linear->first.eval(sizes) : Result<int64_t>(Diagnostic(ErrorCode::Usage, ""));
    if (!step.ok()) {
      out.unknown |= uint64_t{1} << i;
      rest = rest.substitute({{f.d.axes[i].var.symbol_id(), 0}});
      continue;
    }
    out.step[i] = *step;
    rest = linear->second;
  }
  if (auto start = rest.eval(sizes); start.ok()) out.start = *start;
  return out;
}

// Whether two loads of one buffer meet the same elements: one is the other, shifted along an axis by less than it.
bool overlap(const SizedStream& a, const SizedStream& b, const std::vector<int64_t>& extents) {
  if (a.store || b.store || !a.affine() || !b.affine() || a.step != b.step) return false;
  const int64_t shift = std::abs(a.start - b.start);
  if (shift == 0) return true;
  for (size_t i = 0; i < extents.size(); ++i) {
    const int64_t step = std::abs(a.step[i]);
    if (step > 0 && shift % step == 0 && shift / step < extents[i]) return true;
  }
  return false;
}

// The work of the loops after the first: what they compute, load and find resident.
void later_rounds(const LoopNest& nest, const Domain& d, const Stages& stages, SizedFacts::Rounds& r) {
  Stages uncached = stages;
  std::fill(uncached.cached.begin(), uncached.cached.end(), false);
  std::vector<char> met(d.live.size()), computed(d.live.size());
  for (size_t k = 0; k < stages.stages.size(); ++k) {
    for (ScalarId id : computed_in(nest, d, uncached, k))
      if (std::exchange(computed[static_cast<size_t>(id)], 1)) r.uncached_code += code_of(nest.dag[id]);
    std::set<ScalarId> kept;
    auto use = [&](ScalarId id) {
      const auto i = static_cast<size_t>(id);
      if (id >= 0 && stages.cached[i] && d.stage[i] < static_cast<int>(k)) kept.insert(id);
    };
    for (ScalarId id : computed_in(nest, d, stages, k)) {
      for (ScalarId a : nest.dag[id].args) use(a);
      if (!std::exchange(met[static_cast<size_t>(id)], 1)) continue;
      if (nest.dag[id].op == ScalarOp::Load) ++r.loads;
      r.again += std::max(0, info(nest.dag[id].op).cost);
      r.cached_code += code_of(nest.dag[id]);
    }
    for (ScalarId fold : stages.stages[k].reduces) use(nest.dag[fold].args[0]);
    for (size_t store : stages.stages[k].stores) use(nest.stores[store].scalar);
    for (ScalarId id : kept) {
      ++r.kept_reads;
      r.kept_read_bytes += info(nest.dag[id].dtype).bits / 8;
    }
  }
}

} // namespace

Result<SizedFacts> sized_facts(const BlockFacts& facts, const CallSizes& sizes) {
  SizedFacts f;
  for (size_t i = 0; i < facts.d.axes.size(); ++i) {
    TESSERA_ASSIGN(int64_t n, facts.extent(i).eval(sizes));
    f.extents.push_back(std::max<int64_t>(1, n));
    f.known.push_back(facts.constant(facts.extent(i)).has_value());
    f.points *= static_cast<double>(f.extents.back());
  }
  const auto& groups = facts.contraction ? facts.contraction->groups : std::nullopt;
  if (groups) {
    TESSERA_ASSIGN(f.groups, groups->count.eval(sizes));
    f.groups = std::clamp<int64_t>(f.groups, 1, f.count(groups->axis));
  }
  if (facts.contraction && facts.contraction->range) f.ranges = f.count(facts.contraction->range->axes);
  for (const Stream& s : facts.streams) {
    TESSERA_ASSIGN(SizedStream stream, sized_stream(facts, s, sizes, f.extents));
    if (groups && s.access == &facts.d.loads[static_cast<size_t>(facts.contraction->factors[groups->factor][0])])
      stream.count *= static_cast<double>(f.groups);
    for (size_t n = 0; n < f.streams.size() && !stream.shared; ++n)
      stream.shared = facts.streams[n].access->buffer == s.access->buffer && overlap(f.streams[n], stream, f.extents);
    f.streams.push_back(std::move(stream));
  }
  std::map<uint64_t, SizedFacts::Work> work;
  for (size_t n = 0; n < facts.d.live.size(); ++n) {
    if (!facts.d.live[n]) continue;
    const int slots = std::max(0, info(facts.nest.dag[static_cast<ScalarId>(n)].op).cost);
    SizedFacts::Work& w = work[facts.d.deps[n]];
    w.deps = facts.d.deps[n];
    (slots >= kElementary ? w.elementary : w.simple) += slots;
    w.code += code_of(facts.nest.dag[static_cast<ScalarId>(n)]);
  }
  for (const auto& [deps, w] : work) f.work.push_back(w);
  f.row_mask = facts.d.row_mask;
  if (facts.contraction) {
    f.parts = facts.contraction->parts(), f.products = facts.contraction->products();
    f.sum_tiles = facts.contraction->sums(), f.factor_dtype = facts.contraction->dtype;
    for (int n = 0; n < 2 * facts.contraction->parts(); ++n) {
      const auto i = static_cast<size_t>(n % 2);
      const auto value = static_cast<size_t>(facts.contraction->factors[i][static_cast<size_t>(n / 2)]);
      const bool grouped = facts.is_grouped(static_cast<ScalarId>(value)); // all of it has the one predicate
      SizedFacts::Factor factor{facts.contraction->axes[i], grouped ? facts.contraction->deps[i] : facts.d.deps[value],
                                -1, !grouped && facts.d.loads[value].predicate >= 0,
                                info(facts.contraction->dtype).bits};
      for (size_t n = 0; n < facts.streams.size(); ++n)
        if (facts.nest.dag[static_cast<ScalarId>(value)].op == ScalarOp::Load &&
            facts.streams[n].access == &facts.d.loads[value])
          factor.stream = static_cast<int>(n);
      f.factors.push_back(factor);
    }
  }
  f.reduces = facts.d.reduces;
  for (size_t n = 0; n < facts.d.live.size(); ++n) {
    const ScalarNode& node = facts.nest.dag[static_cast<ScalarId>(n)];
    f.sums = f.sums ||
             (facts.d.live[n] && node.op == ScalarOp::Reduce && node.reduce == ReduceKind::Sum && is_float(node.dtype));
  }
  f.live = facts.live;
  f.compute_bytes = facts.compute_bytes();
  f.accumulators = facts.accumulators();
  f.vector = facts.vector;
  f.column = facts.contiguous_axis;
  if (auto window = WindowFacts::find(facts)) f.window = std::make_shared<const WindowFacts>(std::move(*window));
  if (f.reduces)
    for (const bool online : {false, true}) {
      Domain d = facts.d;
      if (online) static_cast<void>(find_online(facts.nest, d));
      SizedFacts::Rounds& r = f.rounds[online ? 1 : 0];
      const Stages stages = plan_stages(facts.nest, d);
      r = {0, 0, static_cast<int>(facts.cached_element_bytes(online)), stages.folds_are_read()};
      for (const Stage& s : stages.stages) {
        r.rounds += !s.reduces.empty() || !s.stores.empty();
        r.folds += !s.reduces.empty();
      }
      later_rounds(facts.nest, d, stages, r);
      r.rounds = std::max(1, r.rounds);
    }
  return f;
}

} // namespace tessera
