#include "codegen/schedule/tuned.h"
#include "codegen/schedule/choose.h"
#include <bit>

namespace tessera {
ExtentRange bucket_of(int64_t extent) {
  if (extent < 1) return {0, 0, 1};
  auto up = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(extent)));
  return {up / 2 + 1, up, std::min<int64_t>(16, extent & -extent)};
}

std::optional<HostChoice> tuned_host_schedule(const Graph& graph, const LoopNest& nest, const Target& device,
                                              const TunedSchedules& tuned) {
  auto domain = make_domain(graph, nest);
  if (!domain.ok()) return std::nullopt; // lowering says why
  const Schedule chosen = choose_for(graph, nest, *domain, device).schedule;
  for (const TunedSchedule& t : tuned.find(nest_key(graph, nest, *domain))) {
    bool fits = t.extents.size() == domain->axes.size() && t.schedule.kind == chosen.kind;
    for (size_t i = 0; fits && i < t.extents.size(); ++i) {
      auto n = domain->env.simplify(domain->axes[i].extent).as_const();
      fits = n && *n >= t.extents[i].min && *n <= t.extents[i].max && *n % t.extents[i].multiple_of == 0;
    }
    // What comes from a file may be anything.
    auto power = [](int64_t n, int64_t most) {
      return n >= 1 && n <= most && std::has_single_bit(static_cast<uint64_t>(n));
    };
    const Schedule& r = t.schedule;
    fits = fits && r.placement.axis == chosen.placement.axis && power(r.tile.vector, 64) && power(r.tile.unroll, 16) &&
           r.traversal.program_bytes >= 1 && r.traversal.program_bytes <= int64_t{1} << 30;
    if (!fits) continue;
    HostChoice out{chosen, "", t.measured};
    out.schedule.tile.vector = r.tile.vector;
    out.schedule.tile.unroll = r.tile.unroll;
    out.schedule.traversal.program_bytes = r.traversal.program_bytes;
    return out;
  }
  return std::nullopt;
}

} // namespace tessera
