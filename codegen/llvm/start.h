// What LLVM makes once in a process: targets, the registry of passes, tables that are made when they are first used. It
// is all made at the beginning, by compiling and linking an empty function, so that no later failure can leave it half
// made: LLVM is compiled without exceptions, and one that passes through it, std::bad_alloc, leaves its locks held.
// Private to codegen/llvm.
#pragma once
#include "codegen/llvm/host_compiler.h"
#include <functional>
#include <llvm/IR/Module.h>
#include <mutex>

namespace tessera::irgen {

// A part of LLVM that is started once. `body` is called when the part is first needed, and never again: where it fails
// or throws, this and every later call is an error. Errors: OutOfMemory, before `body` is called; CodegenError.
class StartedOnce {
public:
  [[nodiscard]] Status start(const std::function<Status()>& body);

private:
  std::mutex mutex_;
  enum class State : uint8_t { New, Begun, Done } state_ = State::New;
};

// Compiling for the host. Other parts start theirs after it.
[[nodiscard]] Status start_host();
// The object that start_host() compiled.
[[nodiscard]] const CompiledObject& empty_object();
void add_empty_function(llvm::Module& module, const std::string& name);

} // namespace tessera::irgen
