#include "codegen/driver/load.h"
#include "codegen/driver/host_payload.h"
#include "codegen/llvm/host_compiler.h"
#include "graph/support/file.h"
#include "runtime/file_format.h"
#include <cstring>
#include <map>

namespace tessera {

bool is_compiled_file(const std::string& path) {
  char magic[sizeof file::kMagic] = {};
  auto file = open_file(path);
  auto bytes = file.ok() ? read_some(*file, path, magic, sizeof magic) : std::move(file).failure();
  return bytes.ok() && *bytes == sizeof magic && std::memcmp(magic, file::kMagic, sizeof magic) == 0;
}

Result<std::shared_ptr<Executable>> load_compiled(const std::string& path) {
  LinkFn link = [](const Executable& executable) -> Result<LinkedCode> {
    std::map<std::string, int> objects; // symbol -> object; kernels share them
    auto add = [&](const KernelLaunch& k) { objects.emplace(k.symbol, k.object); };
    for (const auto& step : executable.steps) {
      if (const auto* k = std::get_if<KernelLaunch>(&step)) add(*k);
      if (const auto* l = std::get_if<LibraryStep>(&step))
        std::visit(
            [&](const auto& call) {
              if constexpr (requires { call.epilogue; })
                if (call.epilogue) add(call.epilogue->kernel);
            },
            l->call);
    }
    std::vector<CompiledObject> code;
    for (const auto& [symbol, object] : objects) {
      if (object < 0 || static_cast<size_t>(object) >= executable.objects.size())
        return Diagnostic(ErrorCode::CorruptFile, "kernel " + symbol + " has no machine code");
      code.push_back({symbol, executable.objects[static_cast<size_t>(object)], ""});
    }
    TESSERA_ASSIGN(auto module, HostModule::load(code));
    return LinkedCode{module, [module](const std::string& symbol) { return module->find(symbol); }};
  };
  TESSERA_ASSIGN(auto executable, load_executable(path, link));
  TESSERA_TRY(each_executable(*executable, [](Executable& e) -> Status {
    for (auto& step : e.steps)
      if (auto* host = std::get_if<HostStep>(&step)) {
        TESSERA_ASSIGN(host->run, resolve_host_step(*host, e));
      }
    return {};
  }));
  return executable;
}

} // namespace tessera
