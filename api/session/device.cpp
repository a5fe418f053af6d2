#include "api/device.h"
#include "codegen/llvm/gpu_compiler.h"
#include "runtime/cuda/library_start.h"
#include <charconv>

namespace tessera {

void DeviceChoice::apply(CompileOptions& options) const {
  options.device = device;
  options.arch = arch;
  options.assemble_for = assemble_for;
  options.multiprocessors = multiprocessors;
  options.shared_bytes = shared_bytes;
  options.l2_bytes = l2_bytes;
  options.memory_peak_bytes_per_us = memory_peak_bytes_per_us;
  options.device_name = name;
  options.driver = driver;
  options.find_libraries = find_libraries;
}

void DeviceChoice::apply(ExecutorOptions& options) const {
  options.gpu = gpu;
  options.gpu_libraries = libraries;
}

namespace {

// Code for a GPU that is here, with its own instructions where this build has a target for them; else PTX that newer ones
// run as well, and machine code for this one.
Result<DeviceChoice> open_gpu(int gpu, DeviceUse use) {
  std::shared_ptr<cuda::LibraryStart> libraries;
  if (use == DeviceUse::Models) {
    libraries = std::make_shared<cuda::LibraryStart>();
    libraries->begin(gpu, {.products = true}); // nearly all models have some
  }
  TESSERA_ASSIGN(auto context, cuda::Context::open(gpu));
  const auto& p = context->properties();
  if (p.major < 8)
    return Diagnostic(ErrorCode::UnsupportedFeature, p.name + " has compute capability " + std::to_string(p.major) +
                                                         "." + std::to_string(p.minor) +
                                                         "; generated code needs 8.0 or newer");
  DeviceChoice c;
  c.device = "cuda";
  c.gpu = gpu;
  c.name = p.name;
  c.arch = GpuTarget::of(p.major, p.minor).arch;
  if (!c.arch.starts_with(p.arch())) c.assemble_for = p.arch();
  c.multiprocessors = p.multiprocessors;
  c.shared_bytes = p.shared_bytes_per_block;
  c.l2_bytes = p.l2_bytes;
  c.memory_peak_bytes_per_us = p.memory_peak_bytes_per_us;
  c.driver = cuda::version_text(context->driver().version);
  c.find_libraries = use == DeviceUse::Models;
  c.libraries = std::move(libraries);
  c.why = p.name + " (" + p.arch() + ")";
  return c;
}

// The number in "cuda:1"; 0 for "cuda"; nothing for anything else.
std::optional<int> gpu_number(std::string_view requested) {
  constexpr std::string_view cuda = "cuda";
  if (!requested.starts_with(cuda)) return {};
  requested.remove_prefix(cuda.size());
  if (requested.empty()) return 0;
  int number = 0;
  auto [end, error] = std::from_chars(requested.data() + 1, requested.data() + requested.size(), number);
  if (requested[0] != ':' || error != std::errc() || end != requested.data() + requested.size() || number < 0)
    return {};
  return number;
}

DeviceChoice cpu(std::string why) {
  DeviceChoice c;
  c.device = "cpu";
  c.why = std::move(why);
  return c;
}

} // namespace

Result<DeviceChoice> choose_device_here(const std::string& requested, DeviceUse use) {
  if (requested == "cpu") return cpu("requested");
  const auto number = requested == "auto" ? 0 : gpu_number(requested);
  if (!number)
    return Diagnostic(ErrorCode::Usage, "there is no device '" + requested + "': it is auto, cpu, cuda or cuda:N");
  auto gpu = open_gpu(*number, use);
  if (gpu.ok() || requested != "auto") return gpu;
  return cpu(gpu.error().message);
}

} // namespace tessera
