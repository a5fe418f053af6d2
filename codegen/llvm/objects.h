// Shared back end of host code and emulated GPU code: target machines, pass pipelines, object files. Private to
// codegen/llvm.
#pragma once
#include "codegen/llvm/host_compiler.h"
#include <exception>
#include <llvm/IR/Module.h>
#include <llvm/Target/TargetMachine.h>

namespace tessera::irgen {

// Owner of LLVM objects in a scope. LLVM is compiled without exceptions: if std::bad_alloc passes through it, its
// destructors do not run, so its objects may be inconsistent and its locks held. A scope that is left by an exception
// therefore leaks its objects.
template <class T>
class LeakedOnException {
public:
  template <class... Args>
  explicit LeakedOnException(Args&&... args) : object_(std::make_unique<T>(std::forward<Args>(args)...)) {}
  explicit LeakedOnException(std::unique_ptr<T> object) : object_(std::move(object)) {}
  ~LeakedOnException() {
    if (std::uncaught_exceptions() > exceptions_) (void)object_.release();
  }
  LeakedOnException(const LeakedOnException&) = delete;
  LeakedOnException& operator=(const LeakedOnException&) = delete;
  T& operator*() const { return *object_; }
  T* operator->() const { return object_.get(); }
  std::unique_ptr<T> take() { return std::move(object_); }

private:
  int exceptions_ = std::uncaught_exceptions();
  std::unique_ptr<T> object_;
};

// Target machine of this host; sets the module's triple and data layout.
[[nodiscard]] Result<std::unique_ptr<llvm::TargetMachine>> host_machine(const HostTarget& target, llvm::Module& module);
// Verifies the module and runs a pipeline in the text form of LLVM's `opt`, which also knows gpu::kAvoidFaults; prints the
// result if requested. Errors are LLVM's messages.
[[nodiscard]] Status optimize(llvm::Module& module, llvm::TargetMachine& machine, const char* pipeline,
                              std::string* printed);
// Emits an object file or assembly text.
[[nodiscard]] Result<std::vector<char>> emit_file(llvm::Module& module, llvm::TargetMachine& machine, bool assembly);
// LLVM's diagnostics of this context are not printed. optimize() and emit_file() return the first error; the rest is
// discarded.
void silence(llvm::LLVMContext& context);
// A fatal error of LLVM, which would end the process, throws an InternalError where a RecoveryScope is open. LLVM is
// compiled without exceptions: what it holds is leaked (LeakedOnException), as after std::bad_alloc. To be called once.
void throw_fatal_errors();

// Pipeline of host code, for functions.
extern const char* const kHostPipeline;

} // namespace tessera::irgen
