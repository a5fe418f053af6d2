// The table of environment variables.
#include "base/environment.h"
#include <algorithm>
#include <cstdlib>
#include <gtest/gtest.h>

namespace tessera {
namespace {

// Each variable refuses a value that it may not have; those that take any text are left out.
TEST(Environment, AValueThatMayNotBeIsAnError) {
  size_t checked = 0;
  for (const EnvironmentVariable& v : environment_variables()) {
    const std::string name(v.name);
    if (v.valid("wrong")) continue;
    ++checked;
    ASSERT_EQ(::setenv(name.c_str(), "wrong", 1), 0);
    const Status status = check_environment();
    ASSERT_EQ(::setenv(name.c_str(), "", 1), 0);
    EXPECT_TRUE(check_environment().ok()) << "an empty variable is none";
    ASSERT_EQ(::unsetenv(name.c_str()), 0);
    ASSERT_FALSE(status.ok()) << name;
    EXPECT_EQ(status.error().code, ErrorCode::Usage);
    const std::string text = status.error().str();
    for (const std::string_view part : {v.name, std::string_view("'wrong'"), v.expected})
      EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  EXPECT_GT(checked, 9U);
}

TEST(Environment, TheTableIsInOrderAndSaysWhatThereIs) {
  const auto all = environment_variables();
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end(), [](auto& a, auto& b) { return a.name < b.name; }));
  for (const EnvironmentVariable& v : all) EXPECT_FALSE(v.expected.empty() || v.help.empty()) << v.name;
}

TEST(Environment, Flags) {
  ASSERT_EQ(::setenv("TESSERA_NVTX", "1", 1), 0);
  EXPECT_TRUE(environment_flag("TESSERA_NVTX", false));
  ASSERT_EQ(::setenv("TESSERA_NVTX", "0", 1), 0);
  EXPECT_FALSE(environment_flag("TESSERA_NVTX", true));
  ASSERT_EQ(::unsetenv("TESSERA_NVTX"), 0);
  EXPECT_TRUE(environment_flag("TESSERA_NVTX", true));
}

} // namespace
} // namespace tessera
