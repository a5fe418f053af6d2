// Tile kernels to PTX, and to host objects for the emulator.
#include "codegen/llvm/gpu_compile.h"
#include "base/recover.h"
#include "codegen/layout/dot.h"
#include "codegen/llvm/emulated_abi.h"
#include "codegen/llvm/gpu_emit.h"
#include "codegen/llvm/libdevice.h"
#include "codegen/llvm/objects.h"
#include "codegen/llvm/reserve.h"
#include "codegen/llvm/start.h"
#include <llvm/Config/llvm-config.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/TargetSelect.h>

namespace tessera {
namespace {

// LLVM 19 accepts any name and at most warns. Older GPUs lack bf16 and min.NaN; newer ones run PTX of sm_90.
struct Arch {
  std::string_view name;
  bool dependent_launch; // has griddepcontrol; atomic sums of vectors came with it
  bool warpgroups;       // has wgmma
  bool small_floats;     // has cvt and mma of e4m3 and e5m2
};
constexpr Arch kArchs[] = {{"sm_80", false, false, false}, {"sm_86", false, false, false},
                           {"sm_87", false, false, false}, {"sm_89", false, false, true},
                           {"sm_90", true, false, true},   {"sm_90a", true, true, true}};
constexpr const char* kPtxVersion = "+ptx85"; // supported by CUDA 12.5 and later
constexpr const char* kTriple = "nvptx64-nvidia-cuda";

// The emitted code is explicit; the backend separates constant offsets from addresses and reassociates. licm moves
// per-thread computations out of loops.
constexpr const char* kPipeline =
    "always-inline,globaldce,function(nvvm-reflect,sroa,early-cse<memssa>,instcombine<max-iterations=1;no-verify-"
    "fixpoint>,simplifycfg,"
    "loop-mssa(licm),early-cse<memssa>,instcombine<max-iterations=1;no-verify-fixpoint>,simplifycfg,"
    "avoid-faults)";

Result<std::unique_ptr<llvm::TargetMachine>> gpu_machine(const GpuTarget& target, llvm::Module& module) {
  std::string message;
  const auto* llvm_target = llvm::TargetRegistry::lookupTarget(kTriple, message);
  if (!llvm_target) return Diagnostic(ErrorCode::CodegenError, message);
  std::unique_ptr<llvm::TargetMachine> machine(
      llvm_target->createTargetMachine(kTriple, target.arch, kPtxVersion, llvm::TargetOptions(), std::nullopt,
                                       std::nullopt, llvm::CodeGenOptLevel::Aggressive));
  if (!machine) return Diagnostic(ErrorCode::CodegenError, "no target machine for " + target.arch);
  module.setTargetTriple(kTriple);
  module.setDataLayout(machine->createDataLayout());
  module.addModuleFlag(llvm::Module::Override, "nvvm-reflect-ftz", 0u);
  return machine;
}

Status start_gpu() {
  TESSERA_TRY(irgen::start_host());
  static irgen::StartedOnce gpu;
  return gpu.start([]() -> Status {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
    TESSERA_ASSIGN(const irgen::ReserveScope reserve, irgen::ReserveScope::enter());
    irgen::LeakedOnException<llvm::LLVMContext> context;
    irgen::LeakedOnException<llvm::Module> module("tessera_start", *context);
    irgen::add_empty_function(*module, "tessera_start");
    TESSERA_ASSIGN(auto made, gpu_machine({}, *module));
    irgen::LeakedOnException<llvm::TargetMachine> machine(std::move(made));
    TESSERA_TRY(irgen::optimize(*module, *machine, kPipeline, nullptr));
    TESSERA_TRY(irgen::emit_file(*module, *machine, true));
    return {};
  });
}

Status check_name(const tile::Kernel& kernel) {
  auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$'; };
  bool good = !kernel.name.empty() && letter(kernel.name[0]);
  for (char c : kernel.name) good = good && (letter(c) || (c >= '0' && c <= '9'));
  if (good) return {};
  return Diagnostic(ErrorCode::CodegenError, "kernel '" + kernel.name + "': no name that PTX can have");
}

} // namespace

Result<GpuTarget> GpuTarget::parse(std::string_view arch) {
  for (const auto& known : kArchs)
    if (arch == known.name) return GpuTarget{std::string(arch), 0};
  std::string list;
  for (const auto& known : kArchs) list += (list.empty() ? "" : ", ") + std::string(known.name);
  return Diagnostic(ErrorCode::Usage, "no code is generated for GPU architecture '" + std::string(arch) +
                                          "'; known are " + list + " (newer GPUs run code for sm_90)");
}

static const Arch* find_arch(std::string_view name) {
  const auto* it = std::find_if(std::begin(kArchs), std::end(kArchs), [&](const Arch& a) { return a.name == name; });
  return it == std::end(kArchs) ? nullptr : it;
}
bool GpuTarget::dependent_launch() const {
  const Arch* known = find_arch(arch);
  return known && known->dependent_launch;
}
bool GpuTarget::warpgroups() const {
  const Arch* known = find_arch(arch);
  return known && known->warpgroups;
}
bool GpuTarget::small_floats() const {
  const Arch* known = find_arch(arch);
  return known && known->small_floats;
}

std::string gpu_compiler_version(const GpuTarget& target) {
  return "tessera-gpu-25 llvm-" LLVM_VERSION_STRING " " + target.arch + " " + kPtxVersion + " " + kPipeline +
         (target.shared_bytes > 0 ? " shared " + std::to_string(target.shared_bytes) : "");
}

Result<GpuKernelCode> gpu::compile_ptx(const std::string& name, const GpuTarget& target, const EmitKernel& emit,
                                       bool keep_ir) {
  TESSERA_TRY(GpuTarget::parse(target.arch));
  TESSERA_TRY(start_gpu());
  TESSERA_ASSIGN(const irgen::ReserveScope reserve, irgen::ReserveScope::enter());
  irgen::LeakedOnException<llvm::LLVMContext> context;
  irgen::silence(*context);
  irgen::LeakedOnException<llvm::Module> module(name, *context);
  TESSERA_ASSIGN(auto made, gpu_machine(target, *module));
  irgen::LeakedOnException<llvm::TargetMachine> machine(std::move(made));
  TESSERA_ASSIGN(auto emitted, emit(*module, target.dependent_launch() ? Code::DependentPtx : Code::Ptx));
  failure_point("emit");
  TESSERA_TRY(gpu::link_libdevice(*module));
  GpuKernelCode out;
  out.symbol = name;
  out.threads = emitted.threads;
  out.cluster = emitted.cluster;
  out.shared_bytes = emitted.shared_bytes;
  out.dependent_launch = target.dependent_launch();
  out.tensor_maps = std::move(emitted.tensor_maps);
  TESSERA_TRY(irgen::optimize(*module, *machine, kPipeline, keep_ir ? &out.llvm_ir : nullptr));
  TESSERA_ASSIGN(auto text, irgen::emit_file(*module, *machine, true));
  out.ptx.assign(text.begin(), text.end());
  return out;
}

Result<EmulatedKernel> gpu::compile_emulated(const std::string& name, const EmitKernel& emit, bool keep_ir) {
  TESSERA_TRY(irgen::start_host());
  TESSERA_ASSIGN(const irgen::ReserveScope reserve, irgen::ReserveScope::enter());
  irgen::LeakedOnException<llvm::LLVMContext> context;
  irgen::silence(*context);
  irgen::LeakedOnException<llvm::Module> module(name, *context);
  TESSERA_ASSIGN(auto made, irgen::host_machine(HostTarget::detect(), *module));
  irgen::LeakedOnException<llvm::TargetMachine> machine(std::move(made));
  // The code runs a few times and is compiled often; its time is dominated by the emulator's functions.
  machine->setOptLevel(llvm::CodeGenOptLevel::None);
  TESSERA_ASSIGN(auto emitted, emit(*module, Code::Emulated));
  EmulatedKernel out;
  out.object.symbol = name;
  out.threads = emitted.threads;
  out.cluster = emitted.cluster;
  out.shared_bytes = emitted.shared_bytes;
  out.tensor_maps = std::move(emitted.tensor_maps);
  for (const auto& f : *module) out.asynchronous = out.asynchronous || f.getName().starts_with("tessera_emu_async_");
  TESSERA_TRY(irgen::optimize(*module, *machine, "function(early-cse)", keep_ir ? &out.object.llvm_ir : nullptr));
  TESSERA_ASSIGN(out.object.object, irgen::emit_file(*module, *machine, false));
  return out;
}

static gpu::EmitKernel emission(const layout::KernelLayouts& layouts, const GpuTarget& target) {
  return [&](llvm::Module& module, gpu::Code code) -> Result<gpu::EmittedKernel> {
    irgen::LeakedOnException<gpu::Emitter> emitter(module, layouts, code, target);
    TESSERA_TRY(emitter->emit());
    return gpu::EmittedKernel{emitter->threads(), emitter->shared_bytes(), emitter->tensor_maps(), emitter->cluster()};
  };
}

// The products of a kernel that warpgroups compute on this target.
static layout::WarpgroupChoice choose_warpgroups(const tile::Kernel& kernel, const GpuTarget& target) {
  bool has_products = false;
  int64_t taken = gpu::Hazards::kExchangeBytes;
  std::map<tile::ValueId, int64_t> constants;
  for (tile::OpId id = 0; id < kernel.op_count(); ++id) {
    const tile::Op& op = kernel.op(id);
    has_products = has_products || op.kind == tile::OpKind::Dot;
    if (op.kind == tile::OpKind::Const && !op.results.empty()) constants[op.results[0]] = op.i;
    if (op.kind == tile::OpKind::Scratch && !op.results.empty())
      taken += constants[op.operands[0]] * gpu::element_bytes(kernel.type(op.results[0]).dtype);
  }
  if (!target.warpgroups() || !has_products) return {};
  const auto warps = kernel.config.find("warps");
  constexpr int64_t kDefaultWarps = 4;
  const int64_t shared = target.shared_bytes > 0 ? target.shared_bytes : gpu::Hazards::kMaxShared;
  return layout::plan_warpgroups(kernel, static_cast<int>(warps == kernel.config.end() ? kDefaultWarps : warps->second),
                                 shared - taken);
}

// Code: of type GpuKernelCode or EmulatedKernel. Compiles the kernel with its plan of warpgroups; with fewer stages
// where that fails, as they may leave too little shared memory to exchanges; at last without a plan.
template <class Code, class Compile>
static Result<Code> compile_with_layouts(tile::Kernel kernel, const GpuTarget& target, std::string& products,
                                         const Compile& compile) {
  if (target.small_floats()) kernel.config[layout::kSmallFloatProducts] = 1;
  auto [plan, refusal] = choose_warpgroups(kernel, target);
  while (true) {
    TESSERA_ASSIGN(auto layouts, layout::assign_layouts(kernel, plan));
    if (plan) {
      layouts.kernel.config.try_emplace("min_blocks", 1); // bounds the registers that a launch begins with
      layouts.kernel.config["inline_division"] = 1;       // next to a call, products would not be asynchronous
    }
    Result<Code> code = compile(emission(layouts, target));
    if (code.ok() || !plan || code.error().code != ErrorCode::CodegenError) {
      products = plan ? plan->str() : refusal;
      return code;
    }
    constexpr int kLeastStages = 2;
    if (--plan->stages >= kLeastStages) continue;
    plan.reset();
    refusal = code.error().message;
  }
}

Result<GpuKernelCode> compile_gpu_kernel(const tile::Kernel& kernel, const GpuTarget& target, bool keep_ir) {
  TESSERA_TRY(GpuTarget::parse(target.arch));
  TESSERA_TRY(check_name(kernel));
  std::string products;
  TESSERA_ASSIGN(auto code, compile_with_layouts<GpuKernelCode>(kernel, target, products, [&](const auto& emit) {
                   return gpu::compile_ptx(kernel.name, target, emit, keep_ir);
                 }));
  code.products = std::move(products);
  return code;
}

Result<EmulatedKernel> compile_emulated_kernel(const tile::Kernel& kernel, const GpuTarget& target, bool keep_ir) {
  TESSERA_TRY(GpuTarget::parse(target.arch));
  std::string products;
  return compile_with_layouts<EmulatedKernel>(
      kernel, target, products, [&](const auto& emit) { return gpu::compile_emulated(kernel.name, emit, keep_ir); });
}

Result<EmulatedKernel> gpu::compile_altered_kernel(const tile::Kernel& kernel, const GpuTarget& target,
                                                   const std::function<void(llvm::Module&)>& alter) {
  TESSERA_TRY(GpuTarget::parse(target.arch));
  std::string products;
  return compile_with_layouts<EmulatedKernel>(kernel, target, products, [&](const EmitKernel& emit) {
    auto altered = [&](llvm::Module& module, Code code) -> Result<EmittedKernel> {
      TESSERA_ASSIGN(auto emitted, emit(module, code));
      alter(module);
      return emitted;
    };
    return compile_emulated(kernel.name, altered, false);
  });
}

} // namespace tessera
