#include "codegen/schedule/candidates.h"
#include "codegen/schedule/block_config.h"
#include "codegen/schedule/choose.h"
#include "codegen/schedule/space.h"
#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

namespace tessera {
namespace {

bool holds(const SizeCondition& c, const CallSizes& sizes) {
  auto v = c.value.eval(sizes);
  return v.ok() && *v >= c.min && *v <= c.max && *v % c.multiple_of == 0;
}

// What an axis that nothing is contiguous along is divisible by does not matter.
ExtentRange range_of(const BlockFacts& f, const SizedFacts& sized, size_t axis) {
  const int64_t n = sized.extents[axis];
  if (f.constant(f.extent(axis))) return {n, n, 1};
  ExtentRange r = bucket_of(n);
  auto along = [&](const Stream& s) { return f.contiguous(s, axis); };
  if (std::none_of(f.streams.begin(), f.streams.end(), along)) r.multiple_of = 1;
  return r;
}

// A schedule as a record for these sizes, if it is right there.
std::optional<TunedSchedule> usable(const BlockFacts& f, const SizedFacts& sized, const CallSizes& sizes,
                                    const Schedule& schedule) {
  TunedSchedule t{schedule, {}};
  for (size_t i = 0; i < sized.extents.size(); ++i) t.extents.push_back(range_of(f, sized, i));
  auto plan = tuned_plan(f, t);
  const bool fits = plan && std::all_of(plan->conditions.begin(), plan->conditions.end(),
                                        [&](const SizeCondition& c) { return holds(c, sizes); });
  return fits ? std::optional(std::move(t)) : std::nullopt;
}

struct Offered {
  Schedule schedule;
  double us;
};

// The chosen schedule first, then the best ones by predicted time, then some of the others at random.
Result<std::vector<Candidate>> block_candidates(const Graph& graph, const LoopNest& nest, const Domain& domain,
                                                const Target& device, const CallSizes& sizes,
                                                const CandidateOptions& options) {
  constexpr double kHopeless = 6; // times the least prediction
  BlockFacts facts(graph, nest, domain, device);
  auto sized = sized_facts(facts, sizes);
  if (!sized.ok()) return std::vector<Candidate>{};
  std::vector<Candidate> out;
  for (const BlockPlan& plan : plan_blocks(graph, nest, domain, device, {}))
    if (std::all_of(plan.conditions.begin(), plan.conditions.end(), [&](const auto& c) { return holds(c, sizes); })) {
      TunedSchedule t{plan.schedule, {}};
      t.schedule.config.erase("exact_division");
      for (size_t i = 0; i < sized->extents.size(); ++i) t.extents.push_back(range_of(facts, *sized, i));
      out.push_back({std::move(t), 0});
      break;
    }
  if (out.empty()) return out;
  std::set<std::pair<ScheduleKind, std::map<std::string, int64_t>>> seen;
  seen.insert({out[0].tuned.schedule.kind, out[0].tuned.schedule.config});
  std::vector<Offered> all;
  const CostModel model;
  auto offer = [&](const BlockPlan& plan, int64_t members) {
    const Cost c = cost(*sized, plan, members, device, model);
    if (c.registers > 1.3 * c.most) return;
    BlockPlan p = plan;
    p.schedule.why = BlockFacts::sizes(p);
    write_config(p);
    if (seen.insert({p.schedule.kind, p.schedule.config}).second) all.push_back({p.schedule, c.us});
  };
  for_each_schedule(facts, *sized, sizes, true, offer);
  std::stable_sort(all.begin(), all.end(), [](const Offered& a, const Offered& b) { return a.us < b.us; });
  std::map<std::tuple<ScheduleKind, int64_t, int64_t, int64_t, int64_t, int64_t, bool>, int> alike;
  std::vector<char> taken(all.size());
  auto take = [&](size_t i) {
    taken[i] = 1;
    if (auto t = usable(facts, *sized, sizes, all[i].schedule)) out.push_back({std::move(*t), all[i].us});
  };
  for (size_t i = 0; i < all.size() && out.size() < options.most; ++i) {
    auto& c = all[i].schedule.config;
    if (all[i].us > kHopeless * all[0].us) break;
    // Of those that differ in resident blocks alone a few are enough.
    if (++alike[{all[i].schedule.kind, c["rows"], c["columns"], c["warps"], c["loop"], c["keep"], c["programs"] > 0}] <=
        3)
      take(i);
  }
  std::mt19937_64 random(options.seed);
  std::vector<size_t> rest;
  for (size_t i = 0; i < all.size(); ++i)
    if (!taken[i] && all[i].us <= kHopeless * all[0].us) rest.push_back(i);
  std::shuffle(rest.begin(), rest.end(), random);
  for (size_t n = out.size() + options.samples; !rest.empty() && out.size() < n; rest.pop_back()) take(rest.back());
  return out;
}

// A host has one kernel for all sizes, so only what is known can be tuned: one number at a time, then pairs.
std::vector<Candidate> host_candidates(const Graph& graph, const LoopNest& nest, const Domain& domain,
                                       const Target& device, size_t most) {
  std::vector<ExtentRange> extents;
  for (const Axis& a : domain.axes) {
    auto n = domain.env.simplify(a.extent).as_const();
    if (!n || *n < 1) return {};
    extents.push_back({*n, *n, 1});
  }
  std::vector<Candidate> out;
  std::set<std::map<std::string, int64_t>> seen;
  auto add = [&](Schedule s) {
    if (out.size() < most && seen.insert(s.config).second) out.push_back({{std::move(s), extents}, 0});
  };
  const Schedule base = choose_for(graph, nest, domain, device);
  add(base);
  auto vary = [&](const Schedule& from, const char* name, std::initializer_list<double> factors) {
    for (double factor : factors) {
      Schedule s = from;
      auto n = static_cast<int64_t>(std::lround(static_cast<double>(from.config.at(name)) * factor));
      s.config[name] = n;
      if (n >= 1 && (name != std::string_view("vector") || n <= 64) && (name != std::string_view("unroll") || n <= 16))
        add(std::move(s));
    }
  };
  if (base.config.at("axis") < 0) return {};
  vary(base, "unroll", {0.25, 0.5, 2, 4});
  vary(base, "program_bytes", {0.25, 4, 16});
  vary(base, "vector", {0.5, 2});
  const std::vector<Candidate> singles = out;
  for (size_t i = 1; i < singles.size(); ++i) vary(singles[i].tuned.schedule, "program_bytes", {0.25, 4});
  return out;
}

} // namespace

Result<std::vector<Candidate>> candidates(const Graph& graph, const LoopNest& nest, const Target& device,
                                          const CallSizes& sizes, const CandidateOptions& options) {
  TESSERA_ASSIGN(Domain domain, make_domain(graph, nest));
  if (domain.axes.empty()) return std::vector<Candidate>{};
  return device.kind == Target::Kind::Cuda ? block_candidates(graph, nest, domain, device, sizes, options)
                                           : host_candidates(graph, nest, domain, device, options.most);
}

} // namespace tessera
