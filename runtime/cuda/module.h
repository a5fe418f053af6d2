// Machine code of an executable on a GPU: its code objects, loaded when a kernel of theirs is first planned, and shared
// by all executors of that executable.
#pragma once
#include "runtime/cuda/context.h"
#include "runtime/executable.h"

namespace tessera::cuda {

// May code for `target` ("cuda sm_90a") run on this GPU, one way or another? Error UnsupportedFeature naming both.
[[nodiscard]] Status check_device(const std::string& target, const DeviceProperties& device);
// A cubin of `arch` runs on GPUs of its generation from its minor version on; PTX on every newer GPU as well; both on
// that very GPU alone if the name ends in 'a'.
[[nodiscard]] bool cubin_runs_on(std::string_view arch, const DeviceProperties& device);
[[nodiscard]] bool ptx_runs_on(std::string_view arch, const DeviceProperties& device);

class LoadedExecutable {
public:
  // The one of this executable on this GPU.
  [[nodiscard]] static Result<std::shared_ptr<LoadedExecutable>> get(const std::shared_ptr<Context>& context,
                                                                     std::shared_ptr<const Executable> executable);
  ~LoadedExecutable();
  LoadedExecutable(const LoadedExecutable&) = delete;
  LoadedExecutable& operator=(const LoadedExecutable&) = delete;

  // The function to launch for `kernel`, allowed the shared memory that it needs. The cubin is taken where it runs and
  // the driver accepts it, else the driver compiles the PTX (seconds, the first time; it keeps a cache of its own).
  // Thread-safe; the context is current. Errors: UnsupportedFeature (code for another GPU, a driver older than the PTX,
  // more shared memory or threads than the GPU has), CorruptFile (a damaged object, or one without the kernel),
  // CodegenError (the driver's compiler, with its log), OutOfMemory, DeviceError.
  [[nodiscard]] Result<CUfunction> function(const KernelLaunch& kernel);

private:
  LoadedExecutable(std::shared_ptr<Context> context, std::shared_ptr<const Executable> executable)
      : context_(std::move(context)), executable_(std::move(executable)), modules_(executable_->objects.size()) {}
  [[nodiscard]] Result<CUmodule> load(int object);

  struct Function {
    CUfunction handle = nullptr;
    int64_t static_shared = 0, dynamic_shared = 0; // dynamic: what it is allowed
    int max_threads = 0;
  };
  std::shared_ptr<Context> context_;
  std::shared_ptr<const Executable> executable_;
  std::mutex mutex_;
  std::vector<CUmodule> modules_; // by object; null until loaded
  // By object and symbol; found without a copy of the symbol.
  struct ByName {
    using is_transparent = void;
    bool operator()(const auto& a, const auto& b) const {
      return std::pair<int, std::string_view>(a.first, a.second) < std::pair<int, std::string_view>(b.first, b.second);
    }
  };
  std::map<std::pair<int, std::string>, Function, ByName> functions_;
};

} // namespace tessera::cuda
