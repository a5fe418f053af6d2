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

// Linked code: functions, and the session that owns their memory.
struct HostModule::Impl {
  std::unique_ptr<llvm::orc::LLJIT> jit;
  std::unordered_map<std::string, HostKernelFn> functions;
  bool lacks_memory = false; // true if an error was caused by lack of memory
  const int exceptions = std::uncaught_exceptions();

  // Unloading the code needs memory. If there is none, or an exception passed through LLVM, the session is leaked.
  ~Impl() {
    if (!jit) return;
    const bool taken_apart =
        std::uncaught_exceptions() == exceptions && guarded("unloading kernels", [&]() -> Status {
                                                      llvm::consumeError(jit->getExecutionSession().endSession());
                                                      return {};
                                                    }).ok();
    if (!taken_apart) (void)jit.release();
  }
  // The text of an LLVM error; records whether memory ran out.
  std::string text_of(llvm::Error error) {
    std::string text;
    llvm::handleAllErrors(std::move(error), [&](const llvm::ErrorInfoBase& e) {
      text += (text.empty() ? "" : "; ") + e.message();
      lacks_memory = lacks_memory || e.convertToErrorCode() == std::errc::not_enough_memory;
    });
    return text;
  }
  [[nodiscard]] Status link(std::span<const CompiledObject> objects, std::span<const HostSymbol> symbols);
};

HostModule::HostModule() : impl_(std::make_unique<Impl>()) {}
HostModule::~HostModule() = default;

HostKernelFn HostModule::find(const std::string& symbol) const {
  auto it = impl_->functions.find(symbol);
  return it == impl_->functions.end() ? nullptr : it->second;
}

void* HostModule::address(const std::string& symbol) const { return reinterpret_cast<void*>(find(symbol)); }

namespace irgen {

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

} // namespace irgen
} // namespace tessera

// Its destructor needs memory. If an exception passed through LLVM, it is leaked, as by LeakedOnException.
template <>
struct std::default_delete<tessera::irgen::VectorMath> {
  void operator()(tessera::irgen::VectorMath* generator) const {
    if (std::uncaught_exceptions() == 0) delete generator;
  }
};

namespace tessera {

Status HostModule::Impl::link(std::span<const CompiledObject> objects, std::span<const HostSymbol> symbols) {
  auto failed = [&](llvm::Error e) {
    std::string text = text_of(std::move(e));
    return Diagnostic(lacks_memory ? ErrorCode::OutOfMemory : ErrorCode::CodegenError, "linking kernels: " + text);
  };
  auto made = llvm::orc::LLJITBuilder().create();
  if (!made) return failed(made.takeError());
  jit = std::move(*made);
  // LLVM must not print errors of a damaged object to standard error: the caller gets the error.
  jit->getExecutionSession().setErrorReporter([this](llvm::Error e) { (void)text_of(std::move(e)); });
  jit->getMainJITDylib().addGenerator(std::make_unique<irgen::VectorMath>());
  llvm::orc::SymbolMap given;
  for (const auto& s : symbols)
    given[jit->mangleAndIntern(s.name)] = {llvm::orc::ExecutorAddr::fromPtr(s.address), llvm::JITSymbolFlags::Exported};
  if (!given.empty())
    if (auto e = jit->getMainJITDylib().define(llvm::orc::absoluteSymbols(std::move(given))))
      return failed(std::move(e));
  for (const auto& o : objects) {
    auto buffer = llvm::MemoryBuffer::getMemBufferCopy(llvm::StringRef(o.object.data(), o.object.size()), o.symbol);
    if (auto e = jit->addObjectFile(std::move(buffer))) return failed(std::move(e));
  }
  llvm::orc::SymbolLookupSet all;
  for (const auto& o : objects) all.add(jit->mangleAndIntern(o.symbol));
  auto addresses = jit->getExecutionSession().lookup(
      {{&jit->getMainJITDylib(), llvm::orc::JITDylibLookupFlags::MatchAllSymbols}}, std::move(all));
  if (!addresses) return failed(addresses.takeError());
  for (const auto& o : objects)
    functions[o.symbol] = (*addresses)[jit->mangleAndIntern(o.symbol)].getAddress().toPtr<HostKernelFn>();
  return {};
}

Result<std::shared_ptr<HostModule>> HostModule::load(std::span<const CompiledObject> objects,
                                                     std::span<const HostSymbol> symbols) {
  TESSERA_TRY(irgen::start_host());
  static irgen::StartedOnce linking;
  TESSERA_TRY(linking.start([] { return Impl().link({&irgen::empty_object(), 1}, {}); }));
  std::shared_ptr<HostModule> module(new HostModule());
  TESSERA_TRY(module->impl_->link(objects, symbols));
  return module;
}

} // namespace tessera
