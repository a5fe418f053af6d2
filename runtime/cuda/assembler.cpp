#include "runtime/cuda/assembler.h"
#include "base/environment.h"
#include "runtime/cuda/nvjitlink.h"
#include "runtime/cuda/ptxas.h"

namespace tessera::cuda {

std::string_view name(Assembler::Kind kind) { return kind == Assembler::Kind::NvJitLink ? "nvJitLink" : "ptxas"; }

Result<std::shared_ptr<Assembler>> Assembler::find(Kind kind) {
  return kind == Kind::NvJitLink ? open_nvjitlink() : open_ptxas();
}

Result<std::shared_ptr<Assembler>> Assembler::find_for_whole_programs() {
  const char* variable = environment("TESSERA_ASSEMBLER");
  if (variable == nullptr || *variable == 0) return open_ptxas();
  TESSERA_ASSIGN(auto assembler, find());
  if (assembler->kind() == Kind::Ptxas) return assembler;
  return Diagnostic(ErrorCode::UnsupportedFeature,
                    "TESSERA_ASSEMBLER is '" + std::string(variable) + "', which makes relocatable code");
}

Result<std::shared_ptr<Assembler>> Assembler::find() {
  const char* variable = environment("TESSERA_ASSEMBLER");
  std::string requested = variable ? variable : "";
  if (requested == "none")
    return Diagnostic(ErrorCode::UnsupportedFeature, "no assembler: TESSERA_ASSEMBLER is 'none'")
        .note("kernels stay PTX, which the driver assembles each time it loads them");
  if (requested == "nvjitlink") return open_nvjitlink();
  if (requested == "ptxas") return open_ptxas();
  if (requested.find('/') != std::string::npos) return open_ptxas(requested);
  if (!requested.empty())
    return Diagnostic(ErrorCode::Usage, "TESSERA_ASSEMBLER is '" + requested +
                                            "'; it can be nvjitlink, ptxas, the path of a ptxas program, or none");
  auto library = open_nvjitlink();
  if (library) return library;
  auto program = open_ptxas();
  if (program) return program;
  Diagnostic d(ErrorCode::UnsupportedFeature, "no assembler of PTX: neither nvJitLink nor ptxas can be used");
  d.note("without one the driver assembles kernels each time they are loaded, and their registers are unknown");
  for (const auto* error : {&library.error(), &program.error()}) {
    d.note(error->message);
    for (const auto& n : error->notes) d.note(n);
  }
  return d;
}

} // namespace tessera::cuda
