#include "codegen/load/load.h"
#include "base/file.h"
#include "codegen/load/resolve_host_step.h"
#include "runtime/file_format.h"
#include "runtime/host_code.h"
#include <cstring>
#include <map>

namespace tessera {
namespace {

// The machine code of an executable. Kernels share functions.
Result<LinkedCode> link(const Executable& executable) {
  std::map<std::string, int> objects; // by symbol
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
  std::vector<HostObject> code;
  for (const auto& [symbol, object] : objects) {
    if (object < 0 || static_cast<size_t>(object) >= executable.objects.size())
      return Diagnostic(ErrorCode::CorruptFile, "kernel " + symbol + " has no machine code");
    code.push_back({symbol, executable.objects[static_cast<size_t>(object)]});
  }
  TESSERA_ASSIGN(auto loaded, HostCode::load(code));
  return LinkedCode{loaded, [loaded](const std::string& symbol) { return loaded->find(symbol); }};
}

} // namespace

bool is_compiled_file(const std::string& path) {
  char magic[sizeof file::kMagic] = {};
  auto file = open_file(path);
  auto bytes = file.ok() ? read_some(*file, path, magic, sizeof magic) : std::move(file).failure();
  return bytes.ok() && *bytes == sizeof magic && std::memcmp(magic, file::kMagic, sizeof magic) == 0;
}

Result<std::vector<FileExecutable>> load_compiled(const std::string& path) {
  return load_executables(path, link, resolve_host_step);
}

Result<std::shared_ptr<Executable>> load_plan(Storage plan, const std::string& name, const ModelParts& parts) {
  return load_plan_bytes(std::move(plan), name, parts, link, resolve_host_step);
}

} // namespace tessera
