// Destructors whose work needs memory: where there is none, the work is left undone and nobody hears of it.
#include "base/temporary_folder.h"
#include "failing_allocations.h"
#include "runtime/cache/cache.h"
#include <filesystem>
#include <gtest/gtest.h>
#include <optional>

namespace tessera {
namespace {

TEST(Destructors, NeedNoMemory) {
  auto place = TemporaryFolder::create("destructors");
  ASSERT_TRUE(place.ok()) << place.error().str();
  const EntryOrigin origin;
  for (long number = 1; number <= 40; ++number) {
    auto cache = std::make_optional<Cache>(place->path() + "/cache", true);
    cache->store(EntryKind::Choice, hash128(std::to_string(number)), origin, "a payload");
    ASSERT_TRUE(cache->warnings().empty()) << cache->warnings().front();
    const test::FailingAllocations failing(number);
    cache.reset();
  }
  for (long number = 1; number <= 10; ++number) {
    auto made = TemporaryFolder::create("destroyed");
    ASSERT_TRUE(made.ok()) << made.error().str();
    const std::string path = made->path();
    std::filesystem::create_directory(path + "/inner");
    {
      std::optional<TemporaryFolder> folder(std::move(*made));
      const test::FailingAllocations failing(number, false);
      folder.reset();
    }
    std::filesystem::remove_all(path);
  }
  Cache cache(place->path() + "/cache", true);
  EXPECT_TRUE(cache.find(EntryKind::Choice, hash128(std::to_string(40))).has_value());
}

} // namespace
} // namespace tessera
