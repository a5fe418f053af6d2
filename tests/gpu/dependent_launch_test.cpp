// Programmatic dependent launch: kernels for compute capability 9.0 wait for the kernels before them, and touch no global
// memory before. Whole models: tests/driver/cuda_spills_test.cpp.
#include "codegen/llvm/gpu_compiler.h"
#include "machine_code.h"
#include "runtime/cuda/assembler.h"
#include <gtest/gtest.h>

namespace tessera::test {
namespace {

// The kernel for `arch`, assembled where there is an assembler.
cuda::CodeObject made(const std::string& text, const std::string& arch) {
  cuda::CodeObject o;
  auto kernel = tile::parse(text);
  EXPECT_TRUE(kernel.ok()) << kernel.error().str();
  auto code = compile_gpu_kernel(*kernel, *GpuTarget::parse(arch));
  EXPECT_TRUE(code.ok()) << code.error().str();
  o.ptx = code->ptx;
  o.dependent_launch = code->dependent_launch;
  static auto assembler = cuda::Assembler::find();
  if (!assembler.ok() || !arch.starts_with("sm_90")) return o;
  auto cubin = (*assembler)->assemble(o.ptx, arch);
  EXPECT_TRUE(cubin.ok()) << cubin.error().str();
  o.cubin = cubin->bytes;
  return o;
}

// The instructions of the body without loads of parameters, one a line, operands left out.
std::string instructions(const std::string& ptx) {
  std::string out;
  std::istringstream lines(ptx.substr(ptx.find('{')));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word.starts_with('@')) words >> word;
    if (word.find('.') == std::string::npos || word.starts_with(".") || word.starts_with("ld.param")) continue;
    out += word + "\n";
  }
  return out;
}

// Loads that LLVM moves: of invariant memory, always made, masked, in a loop, and of a place that all threads share.
const char* const kReads =
    R"(tile.kernel @reads(%x: ptr<f32> invariant, %i: ptr<i64> invariant, %y: ptr<f32> written, %n: i64) config(warps: 4) {
  %p = program_id 0 : i64
  %s = mul(%p, 512) : i64
  %r = range 512 : tile<[512], i64>
  %o = add(%r, %s) : tile<[512], i64>
  %in = lt(%o, %n) : tile<[512], bool>
  %by = load %i[0] : i64
  %zero = const 0 : tile<[512], f32>
  %sum = for %k = 0 to %by step 1 carry(%a = %zero) {
    %same = load %x[%r] : tile<[512], f32>
    %b = add(%a, %same) : tile<[512], f32>
    yield %b
  }
  %v = load %x[%o] mask=%in : tile<[512], f32>
  %w = add(%v, %sum) : tile<[512], f32>
  store %y[%o] = %w mask=%in
})";

TEST(DependentLaunch, TheKernelWaitsFirst) {
  const auto o = made(R"(tile.kernel @k(%x: ptr<f32> invariant, %y: ptr<f32> written) config(warps: 4) {
  %r = range 512 : tile<[512], i64>
  %v = load %x[%r] : tile<[512], f32>
  store %y[%r] = %v
})",
                      "sm_90");
  EXPECT_EQ(wrong_wait(o), "");
  const std::string text = instructions(o.ptx);
  EXPECT_TRUE(text.starts_with("griddepcontrol.wait;\ngriddepcontrol.launch_dependents;\nmov.b64\n")) << text;
  EXPECT_NE(text.find("ld.global.v4.b32"), std::string::npos) << text;
}

TEST(DependentLaunch, NoReadIsMovedBeforeTheWait) {
  for (const char* arch : {"sm_90", "sm_90a"}) {
    const auto o = made(kReads, arch);
    EXPECT_TRUE(o.dependent_launch);
    EXPECT_EQ(wrong_wait(o), "") << o.ptx;
  }
}

TEST(DependentLaunch, AReadBeforeTheWaitIsSeen) {
  auto assembler = cuda::Assembler::find();
  if (!assembler.ok()) GTEST_SKIP() << assembler.error().message;
  const auto good = made(kReads, "sm_90");
  auto late = good;
  const std::string wait = "griddepcontrol.wait;";
  late.ptx.erase(late.ptx.find(wait), wait.size());
  late.ptx.insert(late.ptx.rfind("ret;"), wait + "\n");
  late.cubin = (*assembler)->assemble(late.ptx, "sm_90").value().bytes;
  EXPECT_NE(wrong_wait(late), "");
  late.ptx = good.ptx;
  EXPECT_TRUE(wrong_wait(late).starts_with("machine code before the wait")) << wrong_wait(late);
}

TEST(DependentLaunch, OlderGpusHaveNoWait) {
  for (const char* arch : {"sm_80", "sm_86", "sm_89"}) {
    const auto o = made(kReads, arch);
    EXPECT_FALSE(o.dependent_launch);
    EXPECT_EQ(o.ptx.find("griddepcontrol"), std::string::npos);
    EXPECT_NE(o.ptx.find("ld.global.nc"), std::string::npos);
  }
}

// LLVM still merges and moves reads of invariant memory.
TEST(DependentLaunch, EqualReadsAreOne) {
  const auto reads = [](const std::string& attribute) {
    const auto o = made("tile.kernel @k(%x: ptr<f32> " + attribute +
                            R"(, %y: ptr<f32> written, %z: ptr<f32> written) config(warps: 4) {
  %r = range 512 : tile<[512], i64>
  %v = load %x[%r] : tile<[512], f32>
  %u = neg(%v) : tile<[512], f32>
  store %y[%r] = %u
  %w = load %x[%r] : tile<[512], f32>
  store %z[%r] = %w
})",
                        "sm_90");
    size_t found = 0;
    for (size_t at = o.ptx.find("ld.global"); at != std::string::npos; at = o.ptx.find("ld.global", at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(reads("invariant"), 1u);
  EXPECT_EQ(reads(""), 2u);
}

} // namespace
} // namespace tessera::test
