// Target detection, the optimization pipeline, and machine code.
#include "codegen/llvm/emit.h"
#include <cstdlib>
#include <llvm/Analysis/CGSCCPassManager.h>
#include <llvm/Analysis/LoopAnalysisManager.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/SmallVectorMemoryBuffer.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Host.h>
#include <mutex>

namespace tessera {
namespace {

void initialize_llvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
  });
}

// Loop-invariant code motion and common subexpressions are what matters: the vector code is already explicit.
constexpr const char* kPipeline =
    "sroa,early-cse<memssa>,instcombine<no-verify-fixpoint>,simplifycfg,loop-mssa(licm),early-cse<memssa>,"
    "instcombine<no-verify-fixpoint>,simplifycfg";

} // namespace

HostTarget HostTarget::detect() {
  HostTarget t;
  t.cpu = llvm::sys::getHostCPUName().str();
  auto features = llvm::sys::getHostCPUFeatures();
  auto has = [&](const char* f) {
    auto it = features.find(f);
    return it != features.end() && it->second;
  };
  int level = has("avx512f") && has("avx512bw") && has("avx512dq") && has("avx512vl") ? 64
              : has("avx2") && has("fma")                                             ? 32
                                                                                      : 16;
  if (const char* isa = std::getenv("TESSERA_HOST_ISA")) {
    std::string_view want = isa;
    int cap = want == "sse" ? 16 : want == "avx2" ? 32 : 64;
    if (cap < level) {
      level = cap;
      t.cpu = "x86-64"; // only what is named below
      std::string f =
          cap == 32 ? "+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+sse4.1,+sse4.2,+ssse3,+popcnt" : "+sse4.1,+sse4.2,+ssse3";
      t.features = f;
      t.vector_bytes = level;
      return t;
    }
  }
  std::vector<std::string> names; // sorted: part of cache keys
  for (auto& f : features) names.push_back((f.second ? "+" : "-") + f.first().str());
  std::sort(names.begin(), names.end());
  for (auto& n : names) t.features += (t.features.empty() ? "" : ",") + n;
  t.vector_bytes = level;
  return t;
}

std::string host_compiler_version(const HostTarget& target) {
  return "tessera-host-9 llvm-" LLVM_VERSION_STRING " " + target.cpu + " " + std::to_string(target.vector_bytes) + " " +
         target.features + " " + kPipeline;
}

Result<CompiledObject> compile_host_kernel(const tile::Kernel& kernel, const HostTarget& target, bool keep_ir) {
  initialize_llvm();
  auto failed = [&](const std::string& what) {
    return Diagnostic(ErrorCode::CodegenError, "kernel " + kernel.name + ": " + what);
  };
  llvm::LLVMContext context;
  context.setDiagnosticHandlerCallBack([](const llvm::DiagnosticInfo*, void*) {}, nullptr);
  llvm::Module module(kernel.name, context);
  std::string triple = llvm::sys::getProcessTriple(), message;
  const auto* llvm_target = llvm::TargetRegistry::lookupTarget(triple, message);
  if (!llvm_target) return failed(message);
  std::unique_ptr<llvm::TargetMachine> machine(
      llvm_target->createTargetMachine(triple, target.cpu, target.features, llvm::TargetOptions(), llvm::Reloc::PIC_,
                                       llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default, true));
  if (!machine) return failed("no target machine for " + triple);
  module.setTargetTriple(triple);
  module.setDataLayout(machine->createDataLayout());

  host::Emitter emitter(module, kernel, target);
  TESSERA_TRY(emitter.emit(kernel.name));
  std::string problems;
  llvm::raw_string_ostream problem_stream(problems);
  if (llvm::verifyModule(module, &problem_stream)) return failed("invalid LLVM IR: " + problem_stream.str());

  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager sccs;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(machine.get());
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(sccs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, sccs, modules);
  llvm::FunctionPassManager passes;
  if (auto e = builder.parsePassPipeline(passes, kPipeline)) return failed(llvm::toString(std::move(e)));
  for (auto& f : module)
    if (!f.isDeclaration()) passes.run(f, functions);

  CompiledObject out;
  out.symbol = kernel.name;
  if (keep_ir) {
    llvm::raw_string_ostream text(out.llvm_ir);
    module.print(text, nullptr);
  }
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager emit;
  if (machine->addPassesToEmitFile(emit, stream, nullptr, llvm::CodeGenFileType::ObjectFile))
    return failed("target cannot emit objects");
  emit.run(module);
  out.object.assign(bytes.begin(), bytes.end());
  return out;
}

} // namespace tessera
