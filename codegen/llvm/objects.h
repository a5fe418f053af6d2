// What host code and emulated GPU code share behind their emitters: target machines, pipelines, files. Private to
// codegen/llvm.
#pragma once
#include "codegen/llvm/host_compiler.h"
#include <llvm/IR/Module.h>
#include <llvm/Target/TargetMachine.h>

namespace tessera::irgen {

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
