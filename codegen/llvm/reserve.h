// Memory set aside for LLVM, in scope before a context is made and until it is gone. LLVM is compiled without exceptions:
// std::bad_alloc that leaves a pass leaves the locks of LLVM's global tables held, and every later compilation waits for
// them; one that leaves the destructor of a module ends the process. Private to codegen/llvm.
#pragma once
#include "base/result.h"

namespace tessera::irgen {

// While one exists, an allocation of this thread that fails gives the reserve back to the system and is tried again.
// Each thread keeps its reserve (kReserveBytes of address space, never touched) from scope to scope.
class ReserveScope {
public:
  // Error OutOfMemory: there is no memory for the reserve.
  [[nodiscard]] static Result<ReserveScope> enter();
  ReserveScope(ReserveScope&& other) noexcept;
  ReserveScope& operator=(ReserveScope&&) = delete;
  ReserveScope(const ReserveScope&) = delete;
  ReserveScope& operator=(const ReserveScope&) = delete;
  ~ReserveScope();

private:
  ReserveScope() = default;
  bool inside_ = true;
};

inline constexpr size_t kReserveBytes =
    size_t{64} << 20; // as start.cpp's kRoom; what passes take beyond it ends in std::bad_alloc

} // namespace tessera::irgen
