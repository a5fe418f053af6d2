#include "codegen/schedule/tuned.h"
#include "codegen/schedule/legal.h"
#include <bit>

namespace tessera {

std::string refusal(const Graph& graph, const LoopNest& nest, const Target& device, const TunedSchedule& tuned) {
  auto domain = make_domain(graph, nest);
  if (!domain.ok()) return domain.error().message;
  return legal(BlockFacts(graph, nest, *domain, device), tuned.schedule, tuned.extents).refusal;
}

ExtentRange bucket_of(int64_t extent) {
  if (extent < 1) return {0, 0, 1};
  auto up = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(extent)));
  return {up / 2 + 1, up, std::min<int64_t>(16, extent & -extent)};
}

} // namespace tessera
