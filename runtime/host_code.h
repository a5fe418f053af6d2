// Machine code of the host: relocatable objects, as a compiler emits them, made executable in this process. No compiler
// and no linker is needed.
//
// Objects are ELF files for x86-64 of position-independent code: what refers to code or data does so relative to its own
// place. The code of all objects lies in one mapping:
//
//   code of each object, a jump per imported function | read-only data, addresses of imported functions | variables
//
// It is filled while it is writable and not executable; then the first part becomes executable, the second read-only.
#pragma once
#include "base/result.h"
#include "runtime/executable.h"
#include <span>
#include <unordered_map>

namespace tessera {

// A function of this process that objects call and that no shared library exports.
struct HostSymbol {
  std::string name;
  const void* address = nullptr;
};

struct HostObject {
  std::string symbol; // the function that it is loaded for
  std::span<const char> bytes;
};

class HostCode {
public:
  // Objects may call `symbols`, functions of the mathematical libraries (libmvec, libm), and those that compilers call by
  // themselves: memcpy, conversions of f16. Errors: CorruptFile for bytes that are no such object, whatever they are; UnsupportedFeature for a function
  // that this system lacks, and where it does not let a program make code; OutOfMemory.
  [[nodiscard]] static Result<std::shared_ptr<const HostCode>> load(std::span<const HostObject> objects,
                                                                    std::span<const HostSymbol> symbols = {});
  // The address of an object's function; null if there is none of that name.
  [[nodiscard]] void* address(const std::string& symbol) const;
  [[nodiscard]] HostKernelFn find(const std::string& symbol) const;
  HostCode(const HostCode&) = delete;
  HostCode& operator=(const HostCode&) = delete;
  ~HostCode();

private:
  HostCode() = default;
  friend class HostLinker;
  std::byte* memory_ = nullptr;
  size_t bytes_ = 0;
  std::unordered_map<std::string, void*> functions_;
};

} // namespace tessera
