// What a compile can be told. Part of the installed interface.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace tessera {

class TunedSchedules;

// Which f32 operations of a GPU's libraries may round their operands to TF32 (10 bits of mantissa; sums stay in f32):
// none, convolutions (PyTorch's default), or products as well.
enum class Tf32 : uint8_t { Off, Conv, All };

struct CompileOptions {
  std::string device = "cpu"; // or "cuda"
  // Of a GPU: the target of PTX ("sm_90a"; empty: sm_90, which newer GPUs run too), the GPU that machine code is made
  // for where it is not the target itself ("sm_100").
  std::string arch, assemble_for;
  // The device whose figures schedules are chosen by: the name of a known target ("a100", "avx2") or the path of a
  // target file (codegen/target). Empty: that of TESSERA_TARGET, or by what the following say of the GPU, or by the
  // host's vectors.
  std::string target;
  // What the driver reports of the GPU; 0: not known. Memory clock times bus width is in bytes per microsecond.
  int multiprocessors = 0;
  int64_t shared_bytes = 0, l2_bytes = 0; // of a block, in bytes; of the device, in bytes
  double memory_peak_bytes_per_us = 0;
  // The GPU that is here, with its driver ("NVIDIA H200", "13.0"): which measured schedules count. Empty: not known.
  std::string device_name, driver;
  bool records = true; // schedules that ship with the target count (codegen/schedule/schedule_records.h)
  std::shared_ptr<const TunedSchedules> tuned; // measured schedules (codegen/tune); empty: the rules choose
  bool cublaslt = true, cudnn = true; // there where the executable runs; what they would do becomes generated loops
  // The executable is for the GPU of this machine: of the two, what cannot be opened here is not counted on.
  bool find_libraries = false;
  // Nodes of the model, by name, whose products, convolutions and pooling are generated loops whatever libraries there
  // are: those that a library refused when it was asked.
  std::set<std::string> as_loops;
  int threads = 0; // of the machine the executable will run on; 0 = all
  int jobs = 0;    // kernels that are compiled at the same time; 0: as many as threads
  // Asked between kernels, on any thread: true ends the compile with error Cancelled.
  std::function<bool()> cancelled;
  bool fusion = true;
  bool strict_rounding = false; // round after every operator; nothing is computed in TF32
  Tf32 tf32 = Tf32::Conv;       // of f32 operations on a GPU
  bool cache = true;            // object cache on disk
  std::string cache_dir;        // empty: TESSERA_CACHE_DIR, else $XDG_CACHE_HOME/tessera, else ~/.cache/tessera
  bool keep_tiles = false;      // keep the text of tile kernels (KernelReport::tile_text)
  bool keep_texts = false;      // that, and the LLVM IR and PTX, which are made anew where the cache has the code
  std::vector<std::string> disabled_passes;
  // Bytes of a value that does not depend on inputs, and of all of them together, which are computed when compiling
  // (fold_constants.h); more where the constants that they are made from have more. Negative: none are.
  int64_t fold_bytes = int64_t{64} << 20;
};

} // namespace tessera
