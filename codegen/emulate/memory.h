// Global memory of emulated kernels: copies of the arguments with gaps between them, so that an access beyond the end
// of one argument is detected.
#pragma once
#include "codegen/emulate/pages.h"
#include "codegen/tile/tile.h"

namespace tessera::emu {

// One argument, or several that overlap.
struct Region {
  std::byte* begin = nullptr;
  int64_t bytes = 0;
  bool written = false;      // true if some parameter of the region is written
  std::string names;         // "%x", "%x, %y"
  int64_t history_start = 0; // offset of its first byte in the concatenation of all written regions
};

class GlobalMemory {
public:
  // Copies pointer arguments to addresses with exactly the alignment of their parameter. Errors: BadInput for a wrong
  // number of arguments, a scalar that violates `multiple`, invariant memory that another parameter writes;
  // OutOfMemory.
  [[nodiscard]] static Result<GlobalMemory> make(const tile::Kernel& kernel, std::span<const tile::Argument> args);
  // Copies written regions back to the arguments.
  void copy_back() const;

  // The region of this address, or nullptr. `describe` gives the nearest one: "16 bytes behind the end of %x".
  [[nodiscard]] const Region* find(const std::byte* address) const;
  [[nodiscard]] std::string describe(const std::byte* address) const;
  [[nodiscard]] int64_t written_bytes() const {
    return written_bytes_;
  } // of all written regions, each a multiple of 16

  [[nodiscard]] std::byte* pointer(size_t param) const { return reinterpret_cast<std::byte*>(values_[param]); }
  // Kernel arguments of a launch: the address of each argument, then the address of the pointer `report`.
  [[nodiscard]] std::vector<void*> launch_arguments(IndexReport*& report);

private:
  struct Copy {
    std::byte *from, *to;
    size_t bytes;
  };
  Pages pages_;
  std::vector<Region> regions_; // by address
  std::vector<Copy> copies_;    // of written parameters
  int64_t written_bytes_ = 0;
  std::vector<uint64_t> values_; // pointers and scalars as the kernel's arguments
};

} // namespace tessera::emu
