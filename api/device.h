// Which device a model is compiled for.
#pragma once
#include "base/result.h"
#include "codegen/compilation/options.h"
#include "runtime/run.h"

namespace tessera {

struct DeviceChoice {
  std::string device; // "cpu" or "cuda"
  std::string name;   // "NVIDIA H200", empty for the CPU and for a GPU that is only compiled for
  std::string why;    // for people: what decided, and what was missing where a GPU was not taken
  std::string arch, assemble_for;
  int multiprocessors = 0;                       // as the driver reports them, like what follows
  int64_t shared_bytes = 0, l2_bytes = 0;        // of a block; of the device
  double memory_peak_bytes_per_us = 0;           // memory clock times bus width
  int gpu = 0;                                   // which one, as the driver counts them: ExecutorOptions::gpu
  std::string driver;                            // "13.0", of a GPU that is here
  bool find_libraries = false;                   // as CompileOptions::find_libraries
  std::shared_ptr<cuda::LibraryStart> libraries; // of a GPU that is here: ExecutorOptions::gpu_libraries

  void apply(CompileOptions& options) const;
  void apply(ExecutorOptions& options) const;
};

// `requested`: "cpu"; "cuda", the first GPU of this machine; "cuda:1", the second; "auto", that GPU if there is one
// that generated code runs on, else the CPU. With `arch` ("sm_90a") code is made for that GPU, and none need be here.
// Errors for "cuda": those of opening the driver, UnsupportedFeature for a GPU before compute capability 8.0, Usage for
// an unknown arch.
[[nodiscard]] Result<DeviceChoice> choose_device(const std::string& requested, const std::string& arch = "");
// The same without an arch: a device of this machine.
// `use`: models need libraries of a GPU, which are opened in the background.
enum class DeviceUse : uint8_t { Models, Kernels };
[[nodiscard]] Result<DeviceChoice> choose_device_here(const std::string& requested, DeviceUse use = DeviceUse::Models);

} // namespace tessera
