// Instructions of cubins for compute capability 9.0, 16 bytes each, and what of them lies before a kernel's wait for
// the kernels before it (programmatic dependent launch).
#pragma once
#include "runtime/cuda/code_object.h"
#include <cstring>
#include <functional>
#include <regex>
#include <set>

namespace tessera::test {

// Calls f with the lowest 12 bits of every instruction, in order, section by section.
inline void each_opcode(const std::vector<char>& cubin, const std::function<void(uint64_t opcode)>& f) {
  auto number = [&](size_t at, size_t bytes) {
    uint64_t n = 0;
    std::memcpy(&n, cubin.data() + at, bytes);
    return n;
  };
  const size_t sections = number(0x28, 8), each = number(0x3A, 2), count = number(0x3C, 2);
  for (size_t s = 0; s < count; ++s) {
    const size_t header = sections + s * each;
    constexpr uint64_t kExecutable = 4;
    if (!(number(header + 8, 8) & kExecutable)) continue;
    const size_t begin = number(header + 0x18, 8), size = number(header + 0x20, 8);
    for (size_t i = begin; i + 16 <= begin + size; i += 16) f(number(i, 8) & 0xfff);
  }
}

// The error in the code of a kernel that shall wait before it touches global memory; empty: none. It waits in its first
// block, before any load, store, atomic update, copy or prefetch, and reads nothing by ld.global.nc, which ptxas moves,
// but tables of the module, which nobody writes. A kernel that shall not wait does not.
inline std::string wrong_wait(const cuda::CodeObject& kernel) {
  const std::string& ptx = kernel.ptx;
  const size_t begin = ptx.find(".entry"), wait = ptx.find("griddepcontrol.wait;", begin),
               launch = ptx.find("griddepcontrol.launch_dependents;", begin);
  if (!kernel.dependent_launch) return wait == std::string::npos && launch == std::string::npos ? "" : "it waits";
  if (wait == std::string::npos || launch == std::string::npos) return "it does not wait";
  if (launch < wait) return "the next kernel may start before the wait";
  static const std::regex after_wait(R"(\s((ld|st|atom|red|cp|prefetch|bar)\.|(bra|call)\b)\S*)");
  const auto at = [&](size_t place) { return ptx.begin() + static_cast<std::ptrdiff_t>(place); };
  for (std::sregex_iterator it(at(begin), at(wait), after_wait), end; it != end; ++it)
    if (it->str().find("ld.param") == std::string::npos) return "before the wait: " + it->str();
  const bool tables = ptx.find("\n.global .align") != std::string::npos;
  if (!tables && ptx.find("ld.global.nc") != std::string::npos) return "ld.global.nc";
  if (kernel.cubin.empty()) return "";
  constexpr uint64_t kWait = 0x82e; // ACQBULK
  // LD, LDG, ST, STG, REDG, ATOMG, CCTL, MEMBAR, LDGSTS. Functions that are called touch no memory.
  static const std::set<uint64_t> accesses = {0x980, 0x981, 0x985, 0x986, 0x98e, 0x9a6,
                                              0x9a8, 0x3a9, 0x98f, 0x992, 0xfae, 0xdae};
  bool waited = false;
  std::string wrong;
  each_opcode(kernel.cubin, [&](uint64_t opcode) {
    waited = waited || opcode == kWait;
    if (!waited && accesses.contains(opcode)) wrong = "machine code before the wait: " + std::to_string(opcode);
  });
  return waited || !wrong.empty() ? wrong : "machine code without a wait";
}

} // namespace tessera::test
