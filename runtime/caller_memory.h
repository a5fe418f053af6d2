// Memory of the host that functions of the caller's give (MemoryAccount::Functions).
#pragma once
#include "runtime/memory_account.h"

namespace tessera {

// `account` has functions; what they give is not counted here. `what`: "intermediate results". Errors: OutOfMemory,
// Usage (misaligned; the memory is given back).
[[nodiscard]] Result<std::byte*> memory_of_caller(const MemoryAccount& account, size_t bytes, size_t alignment,
                                                  const char* what);

} // namespace tessera
