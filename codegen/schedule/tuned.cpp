#include "codegen/schedule/tuned.h"
#include "codegen/schedule/choose.h"
#include <bit>

namespace tessera {
ExtentRange bucket_of(int64_t extent) {
  if (extent < 1) return {0, 0, 1};
  auto up = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(extent)));
  return {up / 2 + 1, up, std::min<int64_t>(16, extent & -extent)};
}

std::optional<Schedule> tuned_host_schedule(const Graph& graph, const LoopNest& nest, const Target& device,
                                            const TunedSchedules& tuned) {
  auto domain = make_domain(graph, nest);
  if (!domain.ok()) return std::nullopt; // lowering says why
  const Schedule chosen = choose_for(graph, nest, *domain, device);
  for (TunedSchedule& t : tuned.find(nest_key(graph, nest, *domain))) {
    bool fits = t.extents.size() == domain->axes.size() && t.schedule.kind == chosen.kind;
    for (size_t i = 0; fits && i < t.extents.size(); ++i) {
      auto n = domain->env.simplify(domain->axes[i].extent).as_const();
      fits = n && *n >= t.extents[i].min && *n <= t.extents[i].max && *n % t.extents[i].multiple_of == 0;
    }
    // What comes from a file may be anything.
    auto number = [&](const char* name) {
      auto it = t.schedule.config.find(name);
      return it == t.schedule.config.end() ? -1 : it->second;
    };
    auto power = [&](const char* name, int64_t most) {
      int64_t n = number(name);
      return n >= 1 && n <= most && std::has_single_bit(static_cast<uint64_t>(n));
    };
    fits = fits && number("axis") == chosen.config.at("axis") && power("vector", 64) && power("unroll", 16) &&
           number("program_bytes") >= 1 && number("program_bytes") <= int64_t{1} << 30;
    if (!fits) continue;
    Schedule s = chosen;
    for (const char* name : {"vector", "unroll", "program_bytes"}) s.config[name] = number(name);
    s.measured = t.schedule.measured;
    return s;
  }
  return std::nullopt;
}

} // namespace tessera
