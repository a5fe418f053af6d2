#include "codegen/schedule/candidates.h"
#include "codegen/schedule/choose_blocks.h"
#include "codegen/schedule/choose_host.h"
#include "codegen/schedule/cost.h"
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

// The schedule that is chosen at these sizes.
std::optional<Schedule> chosen(const BlockFacts& facts, const CallSizes& sizes) {
  if (!facts.device.is_gpu()) return choose_host(facts).schedule;
  for (const BlockChoice& choice : choose_blocks(facts))
    if (holds(choice.legal.conditions, sizes)) return choice.legal.schedule;
  return std::nullopt;
}

} // namespace

// The chosen schedule first, then the best ones by predicted time, then some of the others at random.
Result<std::vector<Candidate>> candidates(const Graph& graph, const LoopNest& nest, const Target& device,
                                          const CallSizes& sizes, const CandidateOptions& options) {
  constexpr double kHopeless = 6; // times the least prediction
  TESSERA_ASSIGN(Domain domain, make_domain(graph, nest));
  std::vector<Candidate> out;
  if (domain.axes.empty()) return out;
  const BlockFacts facts(graph, nest, domain, device);
  auto sized = sized_facts(facts, sizes);
  if (!sized.ok()) return out;
  const auto first = chosen(facts, sizes);
  auto record = first ? usable(facts, *sized, sizes, *first) : std::nullopt;
  if (!record) return out; // of a host: one kernel for all sizes, so only what is known can be tuned
  out.push_back({std::move(*record), 0});
  std::set<Schedule> seen{out[0].tuned.schedule};
  std::vector<Offered> all;
  const CostModel model;
  auto offer = [&](const Schedule& schedule, int64_t blocks_per_row) {
    const Cost c = cost(*sized, schedule, blocks_per_row, device, model);
    if (c.registers <= 1.3 * c.most && seen.insert(schedule).second) all.push_back({schedule, c.us});
  };
  for_each_schedule(facts, *sized, sizes, true, offer);
  std::stable_sort(all.begin(), all.end(), [](const Offered& a, const Offered& b) { return a.us < b.us; });
  using Form = std::tuple<ScheduleKind, int, int, int, bool, int, bool, Placement, int, int, int, int64_t, int, int>;
  std::map<Form, int> alike;
  std::vector<char> taken(all.size());
  auto take = [&](size_t i) {
    taken[i] = 1;
    if (auto t = usable(facts, *sized, sizes, all[i].schedule)) out.push_back({std::move(*t), all[i].us});
  };
  for (size_t i = 0; i < all.size() && out.size() < options.most; ++i) {
    const Schedule& s = all[i].schedule;
    if (all[i].us > kHopeless * all[0].us) break;
    // A few are enough of those that differ in resident blocks alone.
    const Placement along{.axis = s.placement.axis, .cross_axis = s.placement.cross_axis};
    if (++alike[{s.kind, s.tile.rows, s.tile.columns, s.tile.warps, s.traversal.loop, s.residency.cached_tiles,
                 s.cooperation.max_blocks > 0, along, s.tile.vector, s.tile.unroll, s.tile.square,
                 s.traversal.program_bytes, s.cooperation.programs_per_row, s.cooperation.cluster}] <= 3)
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

} // namespace tessera
