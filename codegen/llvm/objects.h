// What host code and emulated GPU code share behind their emitters: target machines, pipelines, files. Private to
// codegen/llvm.
#pragma once
#include "codegen/llvm/host_compiler.h"
#include <exception>
#include <llvm/IR/Module.h>
#include <llvm/Target/TargetMachine.h>

namespace tessera::irgen {

// Owner of LLVM's objects in a scope. LLVM is compiled without exceptions: one that passes through it, std::bad_alloc,
// runs none of its destructors there, so that its objects may be half changed and their locks held. A scope that is
// left by an exception therefore leaks what it owns instead of destroying it.
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

// Of the machine that this runs on; sets the module's triple and data layout.
[[nodiscard]] Result<std::unique_ptr<llvm::TargetMachine>> host_machine(const HostTarget& target, llvm::Module& module);
// Verifies, runs a pipeline in the text form of LLVM's `opt` over the module, and prints what it has become, when
// asked for. Errors are LLVM's messages.
[[nodiscard]] Status optimize(llvm::Module& module, llvm::TargetMachine& machine, const char* pipeline,
                              std::string* printed);
// The object file, or the assembler text.
[[nodiscard]] Result<std::vector<char>> emit_file(llvm::Module& module, llvm::TargetMachine& machine, bool assembly);
// Diagnostics of LLVM go nowhere: all of them come back as errors of the calls above, or are of no interest.
void silence(llvm::LLVMContext& context);

// Pipeline of host code, for functions.
extern const char* const kHostPipeline;

} // namespace tessera::irgen
