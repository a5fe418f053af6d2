// Exceptions as errors.
#include "base/guarded.h"
#include <gtest/gtest.h>
#include <stdexcept>
#include <system_error>
#include <thread>

namespace tessera {
namespace {

Diagnostic error_of(const std::function<void()>& body) {
  Result<int> result = guarded({"working on", "x"}, [&]() -> Result<int> {
    body();
    return 1;
  });
  EXPECT_FALSE(result.ok());
  return result.ok() ? Diagnostic() : std::move(result).take_error();
}

TEST(Guarded, GivesWhatTheBodyGives) {
  EXPECT_EQ(guarded("working", []() -> Result<int> { return 7; }).value(), 7);
  auto error = guarded("working", []() -> Status { return Diagnostic(ErrorCode::BadInput, "here"); });
  EXPECT_EQ(error.error().message, "here");
}

TEST(Guarded, ExceptionsAreErrors) {
  auto memory = error_of([] { throw std::bad_alloc(); });
  EXPECT_EQ(memory.code, ErrorCode::OutOfMemory);
  EXPECT_EQ(memory.message, "working on 'x': memory is exhausted");
  EXPECT_FALSE(memory.notes.empty());
  EXPECT_EQ(error_of([] { throw std::length_error("long"); }).code, ErrorCode::OutOfMemory);
  EXPECT_EQ(error_of([] { throw std::system_error(EAGAIN, std::generic_category(), "thread"); }).code,
            ErrorCode::OutOfMemory);
  EXPECT_EQ(error_of([] { throw std::system_error(EPERM, std::generic_category()); }).code, ErrorCode::Internal);
  auto other = error_of([] { throw std::runtime_error("what"); });
  EXPECT_EQ(other.code, ErrorCode::Internal);
  EXPECT_EQ(other.message, "working on 'x': what");
  EXPECT_EQ(error_of([] { throw 1; }).code, ErrorCode::Internal);
}

// The value of a result that memory was missing for is read: no bug, unlike that of other errors.
TEST(Guarded, AValueThatMemoryWasMissingForIsAnErrorToo) {
  Result<int> failed = Diagnostic(ErrorCode::OutOfMemory, "cannot allocate 4 bytes");
  EXPECT_EQ(error_of([&] { (void)failed.value(); }).code, ErrorCode::OutOfMemory);
}

TEST(Guarded, OneExceptionOfManyTasksIsKept) {
  FirstException first;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back([&] { first.run([] { throw std::bad_alloc(); }); });
  }
  EXPECT_TRUE(first.thrown());
  EXPECT_THROW(first.rethrow(), std::bad_alloc);
  EXPECT_FALSE(first.thrown());
  EXPECT_NO_THROW(first.rethrow());
  EXPECT_TRUE(first.run([] {}));
}

} // namespace
} // namespace tessera
