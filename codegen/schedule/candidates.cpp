#include "codegen/schedule/candidates.h"
#include "codegen/schedule/choose.h"
#include "codegen/schedule/choose_blocks.h"
#include "codegen/schedule/space.h"
#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

namespace tessera {
namespace {

// A schedule as a record for these sizes, if it is right there.
std::optional<TunedSchedule> usable(const BlockFacts& f, const SizedFacts& sized, const CallSizes& sizes,
                                    const Schedule& schedule) {
  TunedSchedule t{schedule, ranges_of(f, sized.extents, sizes), ""};
  const Legal l = legal(f, schedule, t.extents);
  return l && holds(l.conditions, sizes) ? std::optional(std::move(t)) : std::nullopt;
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
  for (const BlockChoice& choice : choose_blocks(facts))
    if (holds(choice.legal.conditions, sizes)) {
      out.push_back({{choice.legal.schedule, ranges_of(facts, sized->extents, sizes), ""}, 0});
      break;
    }
  if (out.empty()) return out;
  std::set<Schedule> seen{out[0].tuned.schedule};
  std::vector<Offered> all;
  const CostModel model;
  auto offer = [&](const Schedule& schedule, int64_t blocks_per_row) {
    const Cost c = cost(*sized, schedule, blocks_per_row, device, model);
    if (c.registers <= 1.3 * c.most && seen.insert(schedule).second) all.push_back({schedule, c.us});
  };
  for_each_schedule(facts, *sized, sizes, true, offer);
  std::stable_sort(all.begin(), all.end(), [](const Offered& a, const Offered& b) { return a.us < b.us; });
  std::map<std::tuple<ScheduleKind, int, int, int, bool, int, bool>, int> alike;
  std::vector<char> taken(all.size());
  auto take = [&](size_t i) {
    taken[i] = 1;
    if (auto t = usable(facts, *sized, sizes, all[i].schedule)) out.push_back({std::move(*t), all[i].us});
  };
  for (size_t i = 0; i < all.size() && out.size() < options.most; ++i) {
    const Schedule& s = all[i].schedule;
    if (all[i].us > kHopeless * all[0].us) break;
    // Of those that differ in resident blocks alone a few are enough.
    if (++alike[{s.kind, s.tile.rows, s.tile.columns, s.tile.warps, s.traversal.loop, s.residency.cached_tiles,
                 s.cooperation.max_blocks > 0}] <= 3)
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
  std::set<Schedule> seen;
  auto add = [&](const Schedule& s) {
    if (out.size() < most && seen.insert(s).second) out.push_back({{s, extents, ""}, 0});
  };
  const Schedule base = choose_for(graph, nest, domain, device).schedule;
  add(base);
  auto vary = [&](const Schedule& from, auto number, std::initializer_list<double> factors) {
    for (double factor : factors) {
      Schedule s = from;
      auto& n = number(s);
      n = static_cast<std::decay_t<decltype(n)>>(std::lround(static_cast<double>(n) * factor));
      if (n >= 1 && s.tile.vector <= 64 && s.tile.unroll <= 16) add(s);
    }
  };
  auto vector = [](Schedule& s) -> int& { return s.tile.vector; };
  auto unroll = [](Schedule& s) -> int& { return s.tile.unroll; };
  auto bytes = [](Schedule& s) -> int64_t& { return s.traversal.program_bytes; };
  if (base.placement.axis < 0) return {};
  vary(base, unroll, {0.25, 0.5, 2, 4});
  vary(base, bytes, {0.25, 4, 16});
  vary(base, vector, {0.5, 2});
  const std::vector<Candidate> singles = out;
  for (size_t i = 1; i < singles.size(); ++i) vary(singles[i].tuned.schedule, bytes, {0.25, 4});
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
