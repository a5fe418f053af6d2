// The host: target detection, kernels to objects.
#include "base/environment.h"
#include "base/recover.h"
#include "codegen/llvm/emit.h"
#include "codegen/llvm/objects.h"
#include "codegen/llvm/reserve.h"
#include "codegen/llvm/start.h"
#include <llvm/Config/llvm-config.h>
#include <llvm/TargetParser/Host.h>

namespace tessera {

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
  if (const char* isa = environment("TESSERA_HOST_ISA")) {
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

extern const char* const kCodeDigest; // made by the build (source_digest in codegen/CMakeLists.txt)
std::string_view code_digest() { return kCodeDigest; }

std::string host_compiler_version(const HostTarget& target) {
  return "tessera-host-14 llvm-" LLVM_VERSION_STRING " " + target.cpu + " " + std::to_string(target.vector_bytes) +
         " " + target.features + " " + irgen::kHostPipeline;
}

Result<CompiledObject> compile_host_kernel(const tile::Kernel& kernel, const HostTarget& target, bool keep_ir) {
  TESSERA_TRY(irgen::start_host());
  TESSERA_ASSIGN(const irgen::ReserveScope reserve, irgen::ReserveScope::enter());
  irgen::LeakedOnException<llvm::LLVMContext> context;
  irgen::silence(*context);
  irgen::LeakedOnException<llvm::Module> module(kernel.name, *context);
  TESSERA_ASSIGN(auto made, irgen::host_machine(target, *module));
  irgen::LeakedOnException<llvm::TargetMachine> machine(std::move(made));
  irgen::LeakedOnException<host::Emitter> emitter(*module, kernel, target);
  TESSERA_TRY(emitter->emit(kernel.name));
  failure_point("emit");
  CompiledObject out;
  out.symbol = kernel.name;
  TESSERA_TRY(irgen::optimize(*module, *machine, irgen::kHostPipeline, keep_ir ? &out.llvm_ir : nullptr));
  TESSERA_ASSIGN(out.object, irgen::emit_file(*module, *machine, false));
  return out;
}

Result<std::shared_ptr<const HostCode>> link_host_objects(std::span<const CompiledObject> objects,
                                                          std::span<const HostSymbol> symbols) {
  std::vector<HostObject> all;
  for (const CompiledObject& o : objects) all.push_back({o.symbol, o.object});
  return HostCode::load(all, symbols);
}

} // namespace tessera
