#include "codegen/kernels/host_code.h"
#include "codegen/compilation/kernels.h"
#include "codegen/llvm/host_compiler.h"

namespace tessera {
namespace {

// The error with the kernel's own name in the place of its symbol.
Diagnostic with_name(Diagnostic error, const std::string& symbol, const std::string& name) {
  if (const size_t at = error.message.find(symbol); at != std::string::npos)
    error.message.replace(at, symbol.size(), "'" + name + "'");
  return error;
}

} // namespace

Result<LinkedKernel> linked_kernel(const tile::Kernel& kernel, Cache& cache) {
  const HostTarget target = HostTarget::detect();
  const std::string version = host_compiler_version(target);
  const Hash128 key = hash128(anonymous_text(kernel), hash128(version + std::string(code_digest())).lo);
  tile::Kernel named = kernel;
  named.name = "tsr_" + key.hex();
  const auto link = [&](std::vector<char> object) -> Result<LinkedKernel> {
    const CompiledObject compiled{named.name, std::move(object), ""};
    TESSERA_ASSIGN(auto code, link_host_objects(std::span(&compiled, 1)));
    const HostKernelFn function = code->find(named.name);
    if (function == nullptr) return Diagnostic(ErrorCode::CorruptFile, "the machine code has no kernel " + named.name);
    return LinkedKernel{std::move(code), function, false};
  };
  if (auto object = cache.find(EntryKind::Kernel, key)) {
    auto linked = link(std::move(*object));
    if (linked.ok()) {
      linked->from_cache = true;
      return linked;
    }
    cache.report_damaged(EntryKind::Kernel, key, linked.error().message);
  }
  auto compiled = compile_host_kernel(named, target, false);
  if (!compiled.ok()) return with_name(std::move(compiled).take_error(), named.name, kernel.name);
  cache.store(EntryKind::Kernel, key, kernel_origin(version, kernel.name),
              {compiled->object.data(), compiled->object.size()});
  return link(std::move(compiled->object));
}

} // namespace tessera
