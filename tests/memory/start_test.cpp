// Memory that runs out while LLVM is started: LLVM may be of no use afterwards, which is an error each time and no
// hang.
#include "base/guarded.h"
#include "codegen/llvm/host_compiler.h"
#include "failing_allocations.h"
#include <gtest/gtest.h>
#include <unistd.h>

namespace tessera {
namespace {

// A kernel that does nothing, for this machine.
struct Subject {
  tile::Kernel kernel;
  HostTarget target = HostTarget::detect();
  Subject() { kernel.name = "nothing"; }
};

Status start(const Subject& subject) {
  return guarded("starting", [&]() -> Status {
    TESSERA_ASSIGN([[maybe_unused]] auto object, compile_host_kernel(subject.kernel, subject.target));
    return {};
  });
}

// 0: started although an allocation failed; 1: an error, and again; 2: an error, then started; 3: anything else.
[[noreturn]] void start_without(long number) {
  ::alarm(60); // a hang ends by its signal
  set_errors_aside();
  const Subject subject;
  test::FailingAllocations failing(number);
  const Status first = start(subject);
  if (!failing.stop()) std::_Exit(3);
  if (first.ok()) std::_Exit(0);
  if (first.error().code != ErrorCode::OutOfMemory) std::_Exit(3);
  const Status second = start(subject), third = start(subject);
  if (second.ok() && third.ok()) std::_Exit(2);
  if (second.ok() || third.ok() || second.error().code != ErrorCode::CodegenError) std::_Exit(3);
  std::_Exit(third.error().str().find("start the process again") == std::string::npos ? 3 : 1);
}

// Each in a process of its own: LLVM starts once.
TEST(StartDeathTest, AFailureIsAnErrorFromThenOn) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(start_without(1), testing::ExitedWithCode(2), ""); // before anything is begun
  int broken = 0; // LLVM's passes answer a failure from memory set aside; what comes before them does not
  for (long number = 50; number < 3000; number = number * 3 / 2)
    EXPECT_EXIT(
        start_without(number),
        [&](int status) {
          broken += WIFEXITED(status) && WEXITSTATUS(status) == 1;
          return WIFEXITED(status) && WEXITSTATUS(status) < 3;
        },
        "");
  EXPECT_GT(broken, 0);
}

} // namespace
} // namespace tessera
