#include "codegen/llvm/objects.h"
#include "codegen/llvm/reserve.h"
#include <llvm/Analysis/CGSCCPassManager.h>
#include <llvm/Analysis/LoopAnalysisManager.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
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

void silence(llvm::LLVMContext& context) {
  context.setDiagnosticHandlerCallBack([](const llvm::DiagnosticInfo*, void*) {}, nullptr);
}

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
  if (llvm::verifyModule(module, &problem_stream)) return failed(module, "invalid LLVM IR: " + problem_stream.str());
  TESSERA_ASSIGN(const ReserveScope reserve, ReserveScope::enter());
  LeakedOnException<Pipeline> p(&machine);
  p->register_analyses();
  if (auto e = p->builder.parsePassPipeline(p->passes, pipeline)) return failed(module, llvm::toString(std::move(e)));
  p->passes.run(module, p->modules);
  if (printed) {
    llvm::raw_string_ostream text(*printed);
    module.print(text, nullptr);
  }
  return {};
}

Result<std::vector<char>> emit_file(llvm::Module& module, llvm::TargetMachine& machine, bool assembly) {
  TESSERA_ASSIGN(const ReserveScope reserve, ReserveScope::enter());
  LeakedOnException<File> file;
  auto kind = assembly ? llvm::CodeGenFileType::AssemblyFile : llvm::CodeGenFileType::ObjectFile;
  if (machine.addPassesToEmitFile(file->passes, file->stream, nullptr, kind))
    return failed(module, "the target cannot emit such a file");
  file->passes.run(module);
  return std::vector<char>(file->bytes.begin(), file->bytes.end());
}

} // namespace tessera::irgen
