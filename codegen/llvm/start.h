// One-time initialisation of LLVM: targets, the pass registry, lazily made tables. All of it happens at the beginning,
// by compiling an empty function, so that no later failure leaves it incomplete: LLVM is compiled without
// exceptions, and std::bad_alloc that passes through it leaves its locks held. Private to codegen/llvm.
#pragma once
#include "codegen/llvm/host_compiler.h"
#include <functional>
#include <llvm/IR/Module.h>
#include <mutex>

namespace tessera::irgen {

// A part of LLVM that is initialised once. `body` is called at the first use and never again: if it fails or throws,
// this and every later call is an error. Errors: OutOfMemory, before `body` is called; CodegenError.
class StartedOnce {
public:
  [[nodiscard]] Status start(const std::function<Status()>& body);

private:
  std::mutex mutex_;
  enum class State : uint8_t { New, Begun, Done } state_ = State::New;
};

// Initialises compilation for the host. Other parts start after it.
[[nodiscard]] Status start_host();
void add_empty_function(llvm::Module& module, const std::string& name);

} // namespace tessera::irgen
