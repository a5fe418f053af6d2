#include "runtime/cuda/module.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "runtime/cuda/code_object.h"
#include <charconv>

namespace tessera::cuda {
namespace {

// "sm_90a": 90, 'a'. Number 0: not of that form.
struct Arch {
  int number = 0;
  char suffix = 0;
};
Arch parse_arch(std::string_view text) {
  Arch arch;
  if (!text.starts_with("sm_")) return arch;
  text.remove_prefix(3);
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), arch.number);
  if (error != std::errc()) return {};
  auto rest = text.substr(static_cast<size_t>(end - text.data()));
  if (rest.size() > 1) return {};
  if (rest.size() == 1) arch.suffix = rest[0];
  return arch;
}

// 'a': instructions of that GPU alone. 'f': of its family.
bool suffix_allows(const Arch& arch, const DeviceProperties& device) {
  int number = device.major * 10 + device.minor;
  if (arch.suffix == 'a') return arch.number == number;
  if (arch.suffix == 'f') return arch.number / 10 == device.major;
  return arch.suffix == 0;
}

// The driver will not take this image, but may take another one of the same kernel.
bool refuses_image(CUresult result) {
  return result == CUDA_ERROR_NO_BINARY_FOR_GPU || result == CUDA_ERROR_INVALID_IMAGE ||
         result == CUDA_ERROR_INVALID_SOURCE || result == CUDA_ERROR_NOT_SUPPORTED ||
         result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
}

struct Registry {
  explicit Registry(Context&) {}
  std::mutex mutex;
  std::map<const Executable*, std::weak_ptr<LoadedExecutable>> loaded;
};

} // namespace

bool cubin_runs_on(std::string_view text, const DeviceProperties& device) {
  auto arch = parse_arch(text);
  return arch.number > 0 && arch.number / 10 == device.major && arch.number % 10 <= device.minor &&
         suffix_allows(arch, device);
}

bool ptx_runs_on(std::string_view text, const DeviceProperties& device) {
  auto arch = parse_arch(text);
  return arch.number > 0 && arch.number <= device.major * 10 + device.minor && suffix_allows(arch, device);
}

Status check_device(const std::string& target, const DeviceProperties& device) {
  auto space = target.find(' ');
  if (space == std::string::npos) return {}; // each code object says what it is for
  auto arch = target.substr(space + 1, target.find(' ', space + 1) - space - 1);
  if (ptx_runs_on(arch, device)) return {};
  return Diagnostic(ErrorCode::UnsupportedFeature,
                    "the executable was made for '" + target + "', this GPU (" + device.name + ") is " + device.arch())
      .note("compile it for " + device.arch() + ", or for an older architecture without suffix, which newer GPUs run");
}

Result<std::shared_ptr<LoadedExecutable>> LoadedExecutable::get(const std::shared_ptr<Context>& context,
                                                                std::shared_ptr<const Executable> executable) {
  TESSERA_TRY(check_device(executable->target, context->properties()));
  TESSERA_ASSIGN(const auto registry, context->attachment_of<Registry>("loaded executables"));
  std::lock_guard lock(registry->mutex);
  // An entry whose object is alive keeps the executable alive: its address stands for it.
  std::erase_if(registry->loaded, [](const auto& entry) { return entry.second.expired(); });
  auto& entry = registry->loaded[executable.get()];
  auto loaded = entry.lock();
  if (!loaded) {
    loaded.reset(new LoadedExecutable(context, std::move(executable)));
    entry = loaded;
  }
  return loaded;
}

LoadedExecutable::~LoadedExecutable() {
  Context::Current current(*context_);
  for (CUmodule module : modules_)
    if (module) context_->driver().cuModuleUnload(module);
}

Result<CUmodule> LoadedExecutable::load(int index) {
  auto& loaded = modules_[static_cast<size_t>(index)];
  if (loaded) return loaded;
  CUmodule module = nullptr; // whatever a failed load leaves in it
  const auto& bytes = executable_->objects[static_cast<size_t>(index)];
  TESSERA_ASSIGN(auto object, decode(bytes));
  const auto& device = context_->properties();
  const auto& driver = context_->driver();
  const std::string doing = "loading kernel '" + object.symbol + "'";
  std::string refusal;
  if (!object.cubin.empty() && cubin_runs_on(object.cubin_arch, device)) {
    auto result = driver.cuModuleLoadDataEx(&module, object.cubin.data(), 0, nullptr, nullptr);
    if (result == CUDA_SUCCESS) return loaded = module;
    if (!refuses_image(result)) return context_->error(result, "cuModuleLoadDataEx", doing);
    refusal = "its cubin (" + object.cubin_arch + ", " + object.assembler + ") was refused: " + driver.text(result);
  } else if (!object.cubin.empty()) {
    refusal = "its cubin is for " + object.cubin_arch;
  }
  if (object.ptx.empty() || !ptx_runs_on(object.ptx_arch, device)) {
    Diagnostic d(ErrorCode::UnsupportedFeature, "kernel '" + object.symbol + "' was compiled for " + object.ptx_arch +
                                                    ", this GPU (" + device.name + ") is " + device.arch());
    if (!refusal.empty()) d.note(refusal);
    return d;
  }
  const Stopwatch watch;
  char log[8192] = {};
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log - 1)};
  auto result = driver.cuModuleLoadDataEx(&module, object.ptx.c_str(), 2, options, values);
  if (result == CUDA_SUCCESS) {
    TESSERA_LOGF(LogChannel::Cache, "the driver compiled kernel '" + object.symbol + "' from PTX in " +
                                        std::to_string(watch.ms()) + " ms" + (refusal.empty() ? "" : ": " + refusal));
    return loaded = module;
  }
  bool too_old = result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  if (!too_old && result != CUDA_ERROR_INVALID_PTX && !refuses_image(result))
    return context_->error(result, "cuModuleLoadDataEx", doing);
  Diagnostic d(too_old ? ErrorCode::UnsupportedFeature : ErrorCode::CodegenError,
               doing + ": the driver does not compile its PTX: " + driver.text(result));
  if (*log) d.note(log);
  if (!refusal.empty()) d.note(refusal);
  if (too_old)
    d.note("the driver supports CUDA " + version_text(driver.version) +
           ", which is older than the PTX: update the driver, or compile where an assembler (ptxas) of that CUDA is "
           "found");
  return d;
}

Result<CUfunction> LoadedExecutable::function(const KernelLaunch& kernel) {
  std::lock_guard lock(mutex_);
  const auto& device = context_->properties();
  auto found = functions_.find(std::pair<int, std::string_view>(kernel.object, kernel.symbol));
  if (found == functions_.end()) found = functions_.try_emplace({kernel.object, kernel.symbol}).first;
  Function& f = found->second;
  const bool wants_more = kernel.shared_bytes > f.dynamic_shared;
  const std::string doing = f.handle && !wants_more ? std::string() : "loading kernel '" + kernel.name + "'";
  if (!f.handle) {
    TESSERA_ASSIGN(CUmodule module, load(kernel.object));
    CUfunction handle = nullptr;
    auto result = context_->driver().cuModuleGetFunction(&handle, module, kernel.symbol.c_str());
    if (result == CUDA_ERROR_NOT_FOUND)
      return Diagnostic(ErrorCode::CorruptFile, "the machine code has no kernel '" + kernel.symbol + "'");
    if (result != CUDA_SUCCESS) return context_->error(result, "cuModuleGetFunction", doing);
    int fixed = 0;
    TESSERA_CUDA_TRY(*context_, doing, cuFuncGetAttribute, &fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, handle);
    TESSERA_CUDA_TRY(*context_, doing, cuFuncGetAttribute, &f.max_threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
                     handle);
    f.static_shared = fixed;
    f.dynamic_shared = std::max<int64_t>(0, device.default_shared_bytes_per_block - fixed);
    f.handle = handle;
  }
  if (kernel.threads > f.max_threads)
    return Diagnostic(ErrorCode::UnsupportedFeature, "kernel '" + kernel.name + "' wants blocks of " +
                                                         std::to_string(kernel.threads) + " threads, this GPU (" +
                                                         device.name + ") runs it with at most " +
                                                         std::to_string(f.max_threads));
  if (kernel.shared_bytes + f.static_shared > device.shared_bytes_per_block)
    return Diagnostic(ErrorCode::UnsupportedFeature,
                      "kernel '" + kernel.name + "' wants " + std::to_string(kernel.shared_bytes + f.static_shared) +
                          " bytes of shared memory, a block of this GPU (" + device.name + ") has at most " +
                          std::to_string(device.shared_bytes_per_block));
  if (kernel.shared_bytes > f.dynamic_shared) {
    TESSERA_CUDA_TRY(*context_, doing, cuFuncSetAttribute, f.handle, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                     static_cast<int>(kernel.shared_bytes));
    f.dynamic_shared = kernel.shared_bytes;
  }
  return f.handle;
}

} // namespace tessera::cuda
