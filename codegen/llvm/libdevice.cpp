#include "codegen/llvm/libdevice.h"
#include <llvm/Bitcode/BitcodeReader.h>
#include <llvm/Linker/Linker.h>
#include <llvm/Support/MemoryBuffer.h>

// The file that the build found (TESSERA_LIBDEVICE in cmake/TesseraDependencies.cmake), as it is.
__asm__(".pushsection .rodata\n"
        ".balign 16\n"
        ".local tessera_libdevice_begin\n"
        "tessera_libdevice_begin:\n"
        ".incbin \"" TESSERA_LIBDEVICE_FILE "\"\n"
        ".local tessera_libdevice_end\n"
        "tessera_libdevice_end:\n"
        ".byte 0\n"
        ".popsection\n");
extern "C" {
__attribute__((visibility("hidden"))) extern const char tessera_libdevice_begin[];
__attribute__((visibility("hidden"))) extern const char tessera_libdevice_end[];
}

namespace tessera::gpu {

Status link_libdevice(llvm::Module& module) {
  bool called = false;
  for (const auto& f : module) called = called || (f.isDeclaration() && f.getName().starts_with("__nv_"));
  if (!called) return {};
  auto failed = [&](const std::string& what) {
    return Diagnostic(ErrorCode::CodegenError, "kernel " + module.getName().str() + ": libdevice: " + what);
  };
  llvm::StringRef bytes(tessera_libdevice_begin, static_cast<size_t>(tessera_libdevice_end - tessera_libdevice_begin));
  auto library = llvm::getLazyBitcodeModule(llvm::MemoryBufferRef(bytes, "libdevice"), module.getContext());
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
    f.addFnAttr(llvm::Attribute::AlwaysInline); // a call would cost more than most of them do
  }
  for (auto& g : module.globals())
    if (!g.isDeclaration()) g.setLinkage(llvm::GlobalValue::InternalLinkage);
  return {};
}

} // namespace tessera::gpu
