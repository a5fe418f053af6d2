#include "base/check.h"
#include "base/guarded.h"
#include <gtest/gtest.h>
#include <thread>

namespace tessera {
namespace {

class Recover : public testing::Test {
protected:
  void SetUp() override { ASSERT_TRUE(inject_failure("merge")); } // checks throw whatever TESSERA_CHECKS says
  void TearDown() override { inject_failure(""); }
};

TEST_F(Recover, AFailedCheckIsAnErrorWithItsPlaceAndTheWorkInHand) {
  const Status failed = guarded("working", []() -> Status {
    const CheckContext outer("pass x"), inner("kernel y");
    TESSERA_CHECK(1 + 1 == 3, "sums differ");
    return {};
  });
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::Internal);
  const std::string text = failed.error().str();
  for (const char* part : {"working: sums differ", "check: 1 + 1 == 3", "recover_test.cpp", "while: kernel y",
                           "while: pass x", "a bug in Tessera"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
  EXPECT_LT(text.find("kernel y"), text.find("pass x"));
}

TEST_F(Recover, TasksOfOtherThreadsCarryItToTheOneThatWaits) {
  FirstException first;
  std::thread([&] { first.run([] { TESSERA_UNREACHABLE("in a thread"); }); }).join();
  const Status failed = guarded("waiting", [&]() -> Status {
    first.rethrow();
    return {};
  });
  EXPECT_EQ(failed.error().code, ErrorCode::Internal);
}

TEST_F(Recover, WithoutAScopeAndForMemoryTheProcessEnds) {
  EXPECT_FALSE(RecoveryScope::open());
  EXPECT_DEATH(TESSERA_CHECK(false, "nobody recovers"), "internal error: nobody recovers");
  EXPECT_DEATH((void)guarded("working",
                             []() -> Status {
                               TESSERA_MEMORY_CHECK(false, "memory is damaged");
                               return {};
                             }),
               "internal error: memory is damaged");
}

TEST_F(Recover, ScopesNest) {
  const RecoveryScope outer;
  (void)guarded("inside", []() -> Status { return {}; });
  EXPECT_TRUE(RecoveryScope::open());
}

TEST_F(Recover, FailuresComeAtTheirStageAndNumber) {
  EXPECT_TRUE(failure_due("merge"));
  EXPECT_FALSE(failure_due("fuse"));
  ASSERT_TRUE(inject_failure("pass/cse:2"));
  EXPECT_FALSE(failure_due("pass", "dce"));
  EXPECT_FALSE(failure_due("pass", "cse"));
  EXPECT_TRUE(failure_due("pass", "cse"));
  EXPECT_FALSE(failure_due("pass", "cse"));
  for (const char* wrong : {"nowhere", "merge:", "merge:0", "merge:x", ":1"})
    EXPECT_FALSE(inject_failure(wrong)) << wrong;
}

} // namespace
} // namespace tessera
