#include "codegen/llvm/libdevice.h"
#include "base/embed.h"
#include <llvm/Bitcode/BitcodeReader.h>
#include <llvm/Linker/Linker.h>
#include <llvm/Support/MemoryBuffer.h>

// The file that the build found (TESSERA_LIBDEVICE in cmake/TesseraDependencies.cmake).
TESSERA_EMBED(libdevice, TESSERA_LIBDEVICE_FILE)

namespace tessera::gpu {

Status link_libdevice(llvm::Module& module) {
  bool called = false;
  for (const auto& f : module) called = called || (f.isDeclaration() && f.getName().starts_with("__nv_"));
  if (!called) return {};
  auto failed = [&](const std::string& what) {
    return Diagnostic(ErrorCode::CodegenError, "kernel " + module.getName().str() + ": libdevice: " + what);
  };
  auto library = llvm::getLazyBitcodeModule(llvm::MemoryBufferRef(libdevice(), "libdevice"), module.getContext());
  if (!library) return failed(llvm::toString(library.takeError()));
  (*library)->setTargetTriple(module.getTargetTriple());
  (*library)->setDataLayout(module.getDataLayout());
  std::vector<std::string> known;
  for (const auto& f : module)
    if (!f.isDeclaration()) known.push_back(f.getName().str());
  if (llvm::Linker::linkModules(module, std::move(*library), llvm::Linker::LinkOnlyNeeded))
    return failed("linking failed");
  for (auto& f : module) {
    if (f.isDeclaration()) {
      if (f.getName().starts_with("__nv_")) return failed("it has no function " + f.getName().str());
      continue;
    }
    if (std::find(known.begin(), known.end(), f.getName().str()) != known.end()) continue;
    f.setLinkage(llvm::GlobalValue::InternalLinkage);
    f.removeFnAttr(llvm::Attribute::NoInline);
    f.removeFnAttr(llvm::Attribute::OptimizeNone);
    f.addFnAttr(llvm::Attribute::AlwaysInline); // most are cheaper than a call
  }
  for (auto& g : module.globals())
    if (!g.isDeclaration()) g.setLinkage(llvm::GlobalValue::InternalLinkage);
  return {};
}

} // namespace tessera::gpu
