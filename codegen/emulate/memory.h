// Global memory as emulated kernels see it: the arguments, copied apart from each other, so that an access behind the
// end of one never lands in another.
#pragma once
#include "codegen/emulate/pages.h"
#include "codegen/tile/tile.h"

namespace tessera::emu {

// One argument, or several that share memory.
struct Region {
  std::byte* begin = nullptr;
  int64_t bytes = 0;
  bool written = false;      // by some parameter that lies here
  std::string names;         // "%x", "%x, %y"
  int64_t history_start = 0; // of its first byte among the bytes of all written regions
};

class GlobalMemory {
public:
  // Pointer arguments are copied to addresses that have the alignment their parameter promises and not more. Errors:
  // BadInput for a wrong number of arguments, a scalar that is no multiple of what its parameter promises, memory that
  // is marked as invariant and written through another parameter; OutOfMemory.
  [[nodiscard]] static Result<GlobalMemory> make(const tile::Kernel& kernel, std::span<const tile::Argument> args);
  // Results back to where the arguments came from.
  void copy_back() const;

  // The region with this address, or nullptr. `describe` says where it is instead: "16 bytes behind the end of %x".
  [[nodiscard]] const Region* find(const std::byte* address) const;
  [[nodiscard]] std::string describe(const std::byte* address) const;
  [[nodiscard]] int64_t written_bytes() const {
    return written_bytes_;
  } // of all written regions, each a multiple of 16

  // What a launch passes: the address of each argument, then of the address of `report`.
  [[nodiscard]] std::vector<void*> launch_arguments(int32_t*& report);

private:
  struct Copy {
    std::byte *from, *to;
    size_t bytes;
  };
  Pages pages_;
  std::vector<Region> regions_; // by address
  std::vector<Copy> copies_;    // of written parameters
  int64_t written_bytes_ = 0;
  std::vector<uint64_t> values_; // pointers and scalars, as the kernel takes them
};

} // namespace tessera::emu
