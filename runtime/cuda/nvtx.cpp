#include "runtime/cuda/nvtx.h"
#include "base/environment.h"
#include "runtime/cuda/dynamic_library.h"
#include "runtime/device.h"
#include <cstdlib>
#include <cstring>

namespace tessera::cuda {
namespace {

constexpr const char* kInjection = "NVTX_INJECTION64_PATH";

class Ranges final : public RangeMarker {
public:
  Status bind(std::shared_ptr<const DynamicLibrary> library) {
    library_ = std::move(library);
    TESSERA_TRY(library_->bind(push_, "nvtxRangePushA"));
    return library_->bind(pop_, "nvtxRangePop");
  }
  void begin(const std::string& name) override { push_(name.c_str()); }
  void end() override { pop_(); }

private:
  std::shared_ptr<const DynamicLibrary> library_;
  int (*push_)(const char*) = nullptr;
  int (*pop_)() = nullptr;
};

} // namespace

Result<std::shared_ptr<RangeMarker>> nvtx_ranges() {
  TESSERA_ASSIGN(auto library,
                 DynamicLibrary::open({"NVTX",
                                       {"libnvtx3interop.so.1", "libnvtx3interop.so", "libnvToolsExt.so.1"},
                                       {"cu13", "nvtx"},
                                       "ranges of calls and steps for a profiler",
                                       "pip install nvidia-nvtx"}));
  auto ranges = std::make_shared<Ranges>();
  TESSERA_TRY(ranges->bind(std::move(library)));
  return std::shared_ptr<RangeMarker>(std::move(ranges));
}

std::string no_range_receiver() {
  const char* tool = std::getenv(kInjection);
  if (tool && *tool) return "";
  return std::string("no profiler receives the ranges: ") + kInjection +
         " is not set; start the program by 'nsys profile' or 'ncu --nvtx'";
}

} // namespace tessera::cuda

namespace tessera {

Result<std::shared_ptr<RangeMarker>> wanted_ranges() {
  if (!environment_flag("TESSERA_NVTX", false)) return std::shared_ptr<RangeMarker>();
  return cuda::nvtx_ranges();
}

} // namespace tessera
