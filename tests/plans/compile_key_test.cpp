// The key of a compile: every option that changes the result is in it, and no other.
#include "codegen/driver/compile_key.h"
#include "codegen/driver/plan_file.h"
#include <gtest/gtest.h>
#include <set>

namespace tessera::plan_test {
namespace {

std::string key_of(const CompileOptions& options) {
  KeyText key;
  EXPECT_TRUE(add_options(key, options));
  return key.str();
}

TEST(CompileKey, EveryOptionThatChangesTheResult) {
  using Change = std::function<void(CompileOptions&)>;
  const Change changes[] = {
      [](auto& o) { o.device = "cuda"; },
      [](auto& o) { o.arch = "sm_80"; },
      [](auto& o) { o.assemble_for = "sm_80"; },
      [](auto& o) { o.target = "a100"; },
      [](auto& o) { o.multiprocessors = 1; },
      [](auto& o) { o.shared_bytes = 1; },
      [](auto& o) { o.l2_bytes = 1; },
      [](auto& o) { o.memory_peak_bytes_per_us = 0.5; },
      [](auto& o) { o.device_name = "a"; },
      [](auto& o) { o.driver = "a"; },
      [](auto& o) { o.records = false; },
      [](auto& o) { o.cublaslt = false; },
      [](auto& o) { o.cudnn = false; },
      [](auto& o) { o.find_libraries = true; },
      [](auto& o) { o.as_loops = {"a"}; },
      [](auto& o) { o.threads = 1; },
      [](auto& o) { o.fusion = false; },
      [](auto& o) {
        o.no_fuse = {{"a", "b"}};
      },
      [](auto& o) {
        o.no_fuse = {{"ab", ""}};
      },
      [](auto& o) { o.break_at = {"a"}; },
      [](auto& o) {
        o.break_at = {"a", "b"};
      },
      [](auto& o) { o.break_at = {"ab"}; },
      [](auto& o) { o.plan_strict = true; },
      [](auto& o) { o.strict_rounding = true; },
      [](auto& o) { o.tf32 = Tf32::Off; },
      [](auto& o) { o.keep_values = true; },
      [](auto& o) { o.disabled_passes = {"a"}; },
      [](auto& o) { o.fold_bytes = 0; },
  };
  std::set<std::string> keys = {key_of({})};
  for (size_t i = 0; i < std::size(changes); ++i) {
    CompileOptions options;
    changes[i](options);
    EXPECT_TRUE(keys.insert(key_of(options)).second) << "change " << i;
  }
}

TEST(CompileKey, WhatIsReportedAndHowIsNotInIt) {
  CompileOptions options;
  options.jobs = 3;
  options.cancelled = [] { return false; };
  options.cache = false;
  options.cache_dir = "/elsewhere";
  options.keep_tiles = options.keep_texts = true;
  EXPECT_EQ(key_of(options), key_of({}));
}

TEST(CompileKey, WhatHasNoText) {
  CompileOptions options;
  options.plan = std::make_shared<PlanFile>();
  KeyText key;
  EXPECT_FALSE(add_options(key, options));
  options.plan = nullptr;
  options.tuned = std::make_shared<FixedSchedules>(std::vector<TunedSchedule>());
  EXPECT_FALSE(add_options(key, options));
}

TEST(CompileKey, DevicesDiffer) {
  std::set<std::string> keys;
  for (const char* arch : {"", "sm_80", "sm_90", "sm_90a"}) {
    CompileOptions options;
    options.device = *arch ? "cuda" : "cpu";
    options.arch = arch;
    KeyText key;
    std::string device;
    ASSERT_TRUE(add_device(key, options, device).ok());
    EXPECT_TRUE(keys.insert(key.str()).second);
    EXPECT_TRUE(device.starts_with(options.device)) << device;
  }
  CompileOptions unknown;
  unknown.device = "abacus";
  KeyText key;
  std::string device;
  EXPECT_FALSE(add_device(key, unknown, device).ok());
}

TEST(KeyTexts, FieldsDoNotRunTogether) {
  const auto text = [](std::string_view a, std::string_view b) {
    KeyText key;
    key.add("a", a);
    key.add("b", b);
    return key.str();
  };
  EXPECT_NE(text("x", "yz"), text("xy", "z"));
  EXPECT_NE(text("x\n1:b", ""), text("x", "\n1:b"));
}

} // namespace
} // namespace tessera::plan_test
