// Scatters change their operand in place. What computes the operand writes the result's memory, an output's too, where
// nothing else reads the operand; a fill is one of its own for each reader, and no constant. Otherwise it is copied.
#include "graph/ops/samples.h"
#include "harness.h"

namespace tessera::driver_test {
namespace {

int copies(const Executable& e) {
  return static_cast<int>(
      std::count_if(e.steps.begin(), e.steps.end(), [](const Step& s) { return std::holds_alternative<CopyStep>(s); }));
}

// Scatters of `rows` updates into rows of [64, 32], each of a value of `operands` whose text is given.
Graph scatters(const std::string& outputs, const std::string& nodes) {
  return parse("graph @main(%x: f32[64, 32], %t: i64[1, 8], %u: f32[8, 32]) -> (" + outputs + R"() {
  %zero = constant {0.0} : f32[]
  %two = constant {2.0} : f32[]
)" + nodes + "}");
}
std::string scatter(const std::string& result, const std::string& data, const char* reduction = "add") {
  return "  %" + result + " = scatter(%" + data + ", %t, %u) reduction=\"" + reduction +
         "\" unique=0 view=[1, 64, 32] : f32[64, 32]\n";
}
const std::string kFill = "  %z = expand(%zero) shape=[64, 32] : f32[64, 32]\n";

// Copies in the executable of a device; on the host, the results are those of the reference.
void check(const Graph& graph, int want) {
  TemporaryFolder folder;
  auto host = compile_it(graph.clone(), options(folder.path()));
  ASSERT_TRUE(host.executable);
  EXPECT_EQ(copies(*host.executable), want);
  EXPECT_EQ(host.report.constants.values, 0);
  // Targets repeat, and one is left out.
  const Tensor targets = ops::integers(DType::I64, {1, 8}, {3, 0, 3, 63, -1, 3, 0, 17});
  expect_right(graph, host, {{"x", random(DType::F32, {64, 32})}, {"t", targets}, {"u", random(DType::F32, {8, 32})}},
               1e-6);
  CompileOptions o = options(folder.path());
  o.device = "cuda";
  auto gpu = compile_it(graph.clone(), o);
  ASSERT_TRUE(gpu.executable);
  EXPECT_EQ(gpu.executable->host_steps, 0);
  EXPECT_EQ(copies(*gpu.executable), want);
}

TEST(InPlace, AFillIsWrittenIntoTheOutput) {
  for (const char* reduction : {"add", "none", "max", "mul"}) {
    SCOPED_TRACE(reduction);
    check(scatters("%y: f32[64, 32]", kFill + scatter("y", "z", reduction)), 0);
  }
}

TEST(InPlace, WhatIsComputedIsWrittenIntoTheResult) {
  check(scatters("%y: f32[64, 32]", "  %d = mul(%x, %two) : f32[64, 32]\n" + scatter("y", "d")), 0);
  check(scatters("%y: f32[64, 32]",
                 "  %d = mul(%x, %two) : f32[64, 32]\n" + scatter("s", "d") + "  %y = mul(%s, %two) : f32[64, 32]\n"),
        0);
}

TEST(InPlace, AChainHasOneMemory) {
  check(scatters("%y: f32[64, 32]", kFill + scatter("s", "z") + scatter("r", "s", "max") + scatter("y", "r")), 0);
}

TEST(InPlace, EachReaderOfAFillHasOneOfItsOwn) {
  check(scatters("%y: f32[64, 32], %w: f32[64, 32]", kFill + scatter("y", "z") + scatter("w", "z", "max")), 0);
}

TEST(InPlace, WhatIsReadElsewhereIsCopied) {
  check(scatters("%y: f32[64, 32]", scatter("y", "x")), 1);
  check(scatters("%y: f32[64, 32], %d: f32[64, 32]", "  %d = mul(%x, %two) : f32[64, 32]\n" + scatter("y", "d")), 1);
  check(scatters("%y: f32[64, 32], %w: f32[64, 32]",
                 "  %d = mul(%x, %two) : f32[64, 32]\n" + scatter("y", "d") + scatter("w", "d", "max")),
        2);
}

} // namespace
} // namespace tessera::driver_test
