#include "codegen/schedule/tuned.h"
#include <bit>

namespace tessera {

ExtentRange bucket_of(int64_t extent) {
  if (extent < 1) return {0, 0, 1};
  auto up = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(extent)));
  return {up / 2 + 1, up, std::min<int64_t>(16, extent & -extent)};
}

} // namespace tessera
