// Linking objects into the process by LLVM's ORC.
#include "codegen/llvm/objects.h"
#include "codegen/llvm/start.h"
#include "graph/support/guarded.h"
#include <dlfcn.h>
#include <llvm/ExecutionEngine/Orc/ExecutionUtils.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/Support/MemoryBuffer.h>
#include <unordered_map>

namespace tessera {

struct HostModule::Impl {
  std::unique_ptr<llvm::orc::LLJIT> jit;
  std::unordered_map<std::string, HostKernelFn> functions;
};

HostModule::HostModule() : impl_(std::make_unique<Impl>()) {}
// Taking the code apart needs memory. Where there is none it is leaked: nothing refers to it any more.
HostModule::~HostModule() {
  if (!impl_->jit) return;
  auto ended = guarded("unloading kernels", [&]() -> Status {
    llvm::consumeError(impl_->jit->getExecutionSession().endSession());
    return {};
  });
  if (!ended.ok()) (void)impl_->jit.release();
}

HostKernelFn HostModule::find(const std::string& symbol) const {
  auto it = impl_->functions.find(symbol);
  return it == impl_->functions.end() ? nullptr : it->second;
}

void* HostModule::address(const std::string& symbol) const { return reinterpret_cast<void*>(find(symbol)); }

namespace {

// Symbols that kernels may call and that the process may not export: glibc's vector math, opened once.
class VectorMath : public llvm::orc::DefinitionGenerator {
public:
  llvm::Error tryToGenerate(llvm::orc::LookupState&, llvm::orc::LookupKind, llvm::orc::JITDylib& dylib,
                            llvm::orc::JITDylibLookupFlags, const llvm::orc::SymbolLookupSet& wanted) override {
    static void* mvec = dlopen("libmvec.so.1", RTLD_NOW | RTLD_LOCAL);
    static void* libm = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
    llvm::orc::SymbolMap found;
    for (const auto& [name, flags] : wanted) {
      std::string symbol = (*name).str();
      void* address = mvec ? dlsym(mvec, symbol.c_str()) : nullptr;
      if (!address && libm) address = dlsym(libm, symbol.c_str());
      if (!address) address = dlsym(RTLD_DEFAULT, symbol.c_str());
      if (address) found[name] = {llvm::orc::ExecutorAddr::fromPtr(address), llvm::JITSymbolFlags::Exported};
    }
    return found.empty() ? llvm::Error::success() : dylib.define(llvm::orc::absoluteSymbols(std::move(found)));
  }
};

using Functions = std::unordered_map<std::string, HostKernelFn>;

Result<std::unique_ptr<llvm::orc::LLJIT>> link(std::span<const CompiledObject> objects,
                                               std::span<const HostSymbol> symbols, Functions& functions) {
  auto failed = [](llvm::Error e) {
    return Diagnostic(ErrorCode::CodegenError, "linking kernels: " + llvm::toString(std::move(e)));
  };
  auto made = llvm::orc::LLJITBuilder().create();
  if (!made) return failed(made.takeError());
  irgen::LeakedOnException<llvm::orc::LLJIT> jit(std::move(*made));
  auto& lljit = *jit;
  // A damaged object must not write to standard error on its own: the caller gets the error.
  lljit.getExecutionSession().setErrorReporter([](llvm::Error e) { llvm::consumeError(std::move(e)); });
  lljit.getMainJITDylib().addGenerator(std::make_unique<VectorMath>());
  llvm::orc::SymbolMap given;
  for (const auto& s : symbols)
    given[lljit.mangleAndIntern(s.name)] = {llvm::orc::ExecutorAddr::fromPtr(s.address),
                                            llvm::JITSymbolFlags::Exported};
  if (!given.empty())
    if (auto e = lljit.getMainJITDylib().define(llvm::orc::absoluteSymbols(std::move(given))))
      return failed(std::move(e));
  for (const auto& o : objects) {
    auto buffer = llvm::MemoryBuffer::getMemBufferCopy(llvm::StringRef(o.object.data(), o.object.size()), o.symbol);
    if (auto e = lljit.addObjectFile(std::move(buffer))) return failed(std::move(e));
  }
  llvm::orc::SymbolLookupSet all;
  for (const auto& o : objects) all.add(lljit.mangleAndIntern(o.symbol));
  auto addresses = lljit.getExecutionSession().lookup(
      {{&lljit.getMainJITDylib(), llvm::orc::JITDylibLookupFlags::MatchAllSymbols}}, std::move(all));
  if (!addresses) return failed(addresses.takeError());
  for (const auto& o : objects)
    functions[o.symbol] = (*addresses)[lljit.mangleAndIntern(o.symbol)].getAddress().toPtr<HostKernelFn>();
  return jit.take();
}

Status start_linking() {
  TESSERA_TRY(irgen::start_host());
  static irgen::StartedOnce linking;
  return linking.start([]() -> Status {
    Functions functions;
    TESSERA_TRY(link({&irgen::empty_object(), 1}, {}, functions));
    return {};
  });
}

} // namespace

Result<std::shared_ptr<HostModule>> HostModule::load(std::span<const CompiledObject> objects,
                                                     std::span<const HostSymbol> symbols) {
  TESSERA_TRY(start_linking());
  std::shared_ptr<HostModule> module(new HostModule());
  TESSERA_ASSIGN(module->impl_->jit, link(objects, symbols, module->impl_->functions));
  return module;
}

} // namespace tessera
