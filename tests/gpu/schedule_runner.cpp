// The tests of tests/schedule, which compare kernels with their loop nest, in this program: kernels for blocks of
// threads run on the emulator, and once more in place.
#include "../schedule/harness.h"
#include "codegen/emulate/emulator.h"
#include "graph/support/hash.h"

namespace tessera::test {
namespace {

// Kernels are run for many sizes: compiled once.
const EmulatedProgram* compiled(const tile::Kernel& kernel, std::optional<Diagnostic>& error) {
  static std::map<Hash128, EmulatedProgram> programs;
  auto key = hash128(tile::print(kernel));
  auto it = programs.find(key);
  if (it != programs.end()) return &it->second;
  if (programs.size() > 100) programs.clear();
  auto made = kernel;
  if (key.lo % 4 == 0) // some with another number of warps than the schedule's
    if (auto warps = made.config.find("warps"); warps != made.config.end())
      warps->second = key.hi % 2 ? std::max<int64_t>(1, warps->second / 2) : std::min<int64_t>(32, warps->second * 2);
  auto program = EmulatedProgram::compile(made, {});
  if (!program) {
    error = program.error();
    return nullptr;
  }
  return &programs.emplace(key, std::move(*program)).first->second;
}

Result<std::vector<int>> run(const tile::Kernel& kernel, std::span<const tile::Argument> args, int64_t grid) {
  static uint64_t seed = 0;
  std::optional<Diagnostic> error;
  const auto* program = compiled(kernel, error);
  if (!program) return std::move(*error);
  TESSERA_ASSIGN(auto result, program->run(args, grid, {.seed = ++seed % 50}));
  return result.reported_sites;
}

[[maybe_unused]] const bool kInstalled = [] {
  kernel_runner() = {run, true, true};
  return true;
}();

} // namespace
} // namespace tessera::test
