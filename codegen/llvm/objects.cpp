#include "codegen/llvm/objects.h"
#include "base/recover.h"
#include "codegen/llvm/gpu_faults.h"
#include <cstdio>
#include <cstdlib>
#include <llvm/Analysis/CGSCCPassManager.h>
#include <llvm/Analysis/LoopAnalysisManager.h>
#include <llvm/IR/DiagnosticHandler.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/TargetParser/Host.h>

namespace tessera::irgen {

// The emitted vector code is explicit: loop-invariant code motion and common subexpression elimination matter.
const char* const kHostPipeline =
    "function(sroa,early-cse<memssa>,instcombine<no-verify-fixpoint>,simplifycfg,loop-mssa(licm),early-cse<memssa>,"
    "instcombine<no-verify-fixpoint>,simplifycfg)";

static Diagnostic failed(const llvm::Module& module, const std::string& what) {
  return {ErrorCode::CodegenError, "kernel " + module.getName().str() + ": " + what};
}

namespace {
thread_local std::string first_error; // of the context in which this thread compiles

void keep_error(const llvm::DiagnosticInfo* info, void*) {
  if (info->getSeverity() != llvm::DS_Error || !first_error.empty()) return;
  llvm::raw_string_ostream text(first_error);
  llvm::DiagnosticPrinterRawOStream printer(text);
  info->print(printer);
}

// The error that LLVM reported through the context: the code that it makes in spite of it is not right.
Status reported(const llvm::Module& module) {
  const llvm::DiagnosticHandler* handler = module.getContext().getDiagHandlerPtr();
  if (handler == nullptr || !handler->HasErrors) return {};
  return failed(module, first_error.empty() ? "LLVM reports an error" : first_error);
}

void fatal_error(void*, const char* reason, bool) {
  if (RecoveryScope::open()) throw InternalError("LLVM: " + std::string(reason), "no fatal error", "LLVM", {});
  std::fprintf(stderr, "tessera: LLVM: %s\n", reason);
  std::abort();
}

struct FatalPass : llvm::PassInfoMixin<FatalPass> { // for tests
  static llvm::PreservedAnalyses run(llvm::Module&, llvm::ModuleAnalysisManager&) {
    llvm::report_fatal_error("a failure was injected at stage llvm");
  }
};

struct AvoidFaults : llvm::PassInfoMixin<AvoidFaults> {
  static llvm::PreservedAnalyses run(llvm::Function& function, llvm::FunctionAnalysisManager&) {
    return gpu::avoid_faults(function) ? llvm::PreservedAnalyses::none() : llvm::PreservedAnalyses::all();
  }
};
} // namespace

void silence(llvm::LLVMContext& context) {
  first_error.clear();
  context.setDiagnosticHandlerCallBack(keep_error, nullptr);
}

void throw_fatal_errors() { llvm::install_fatal_error_handler(fatal_error); }

Result<std::unique_ptr<llvm::TargetMachine>> host_machine(const HostTarget& target, llvm::Module& module) {
  std::string triple = llvm::sys::getProcessTriple(), message;
  const auto* llvm_target = llvm::TargetRegistry::lookupTarget(triple, message);
  if (!llvm_target) return failed(module, message);
  std::unique_ptr<llvm::TargetMachine> machine(
      llvm_target->createTargetMachine(triple, target.cpu, target.features, llvm::TargetOptions(), llvm::Reloc::PIC_,
                                       llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default, true));
  if (!machine) return failed(module, "no target machine for " + triple);
  module.setTargetTriple(triple);
  module.setDataLayout(machine->createDataLayout());
  return machine;
}

namespace {
struct Pipeline {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager sccs;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder;
  llvm::ModulePassManager passes;
  explicit Pipeline(llvm::TargetMachine* machine) : builder(machine) {}
  // Not in the constructor, because an exception would then destroy the partly constructed object.
  void register_analyses() {
    builder.registerModuleAnalyses(modules);
    builder.registerCGSCCAnalyses(sccs);
    builder.registerFunctionAnalyses(functions);
    builder.registerLoopAnalyses(loops);
    builder.crossRegisterProxies(loops, functions, sccs, modules);
  }
};
struct File {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream{bytes};
  llvm::legacy::PassManager passes;
};
} // namespace

Status optimize(llvm::Module& module, llvm::TargetMachine& machine, const char* pipeline, std::string* printed) {
  std::string problems;
  llvm::raw_string_ostream problem_stream(problems);
  if (llvm::verifyModule(module, &problem_stream))
    return Diagnostic(ErrorCode::Internal,
                      "kernel " + module.getName().str() + ": invalid LLVM IR: " + problem_stream.str());
  LeakedOnException<Pipeline> p(&machine);
  p->register_analyses();
  p->builder.registerPipelineParsingCallback(
      [](llvm::StringRef name, llvm::FunctionPassManager& passes, llvm::ArrayRef<llvm::PassBuilder::PipelineElement>) {
        if (name != gpu::kAvoidFaults) return false;
        passes.addPass(AvoidFaults());
        return true;
      });
  if (auto e = p->builder.parsePassPipeline(p->passes, pipeline)) return failed(module, llvm::toString(std::move(e)));
  if (failure_due("llvm")) p->passes.addPass(FatalPass());
  p->passes.run(module, p->modules);
  TESSERA_TRY(reported(module));
  if (printed) {
    llvm::raw_string_ostream text(*printed);
    module.print(text, nullptr);
  }
  return {};
}

Result<std::vector<char>> emit_file(llvm::Module& module, llvm::TargetMachine& machine, bool assembly) {
  LeakedOnException<File> file;
  auto kind = assembly ? llvm::CodeGenFileType::AssemblyFile : llvm::CodeGenFileType::ObjectFile;
  if (machine.addPassesToEmitFile(file->passes, file->stream, nullptr, kind))
    return failed(module, "the target cannot emit such a file");
  if (failure_due("llvm-emit")) llvm::report_fatal_error("a failure was injected at stage llvm-emit");
  file->passes.run(module);
  TESSERA_TRY(reported(module));
  return std::vector<char>(file->bytes.begin(), file->bytes.end());
}

} // namespace tessera::irgen
