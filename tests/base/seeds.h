#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace tessera::test {

// How many of `all` seeds a random test runs: the first ones, by the share that the environment's TESSERA_TEST_SEEDS gives in per cent,
// at least one; all of them where that is not set. tools/check sets it for its quick and middle tiers (CONTRIBUTING.md).
inline uint32_t seeds(uint32_t all) {
  const char* percent = std::getenv("TESSERA_TEST_SEEDS");
  if (percent == nullptr) return all;
  const uint64_t share = uint64_t{all} * std::strtoul(percent, nullptr, 10) / 100;
  return static_cast<uint32_t>(std::clamp<uint64_t>(share, std::min(all, 1u), all));
}

} // namespace tessera::test
