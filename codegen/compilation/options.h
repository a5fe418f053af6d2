// Options of a compilation. Part of the installed interface.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct Target;

class TunedSchedules;
struct PlanFile;

// Which f32 operations of a GPU's libraries may round their operands to TF32 (10 bits of mantissa; sums stay in f32):
// none, convolutions (PyTorch's default), products, or both.
enum class Tf32 : uint8_t { Off, Conv, Matmul, All };
inline constexpr std::array<const char*, 4> kTf32Names = {"off", "conv", "matmul", "all"};

struct CompileOptions {
  std::string device = "cpu"; // or "cuda"
  // The target of PTX for a GPU ("sm_90a"; empty: sm_90, which newer GPUs run, too), and the GPU of the machine code,
  // if it is not the target ("sm_100").
  std::string arch, assemble_for;
  // The device whose figures the cost model uses: the name of a known target ("a100", "avx2") or the path of a target
  // file (codegen/target). Empty: TESSERA_TARGET, else by the following fields for a GPU, or by the host's vectors.
  std::string target;
  // The device whose figures the report prices with, where they are others than those that planned: measured on the
  // machine that is compared with. Not part of what is compiled.
  std::shared_ptr<const Target> prices;
  // Properties that the driver reports; 0: unknown. Memory clock times bus width is in bytes per microsecond.
  int multiprocessors = 0;
  int64_t shared_bytes = 0, l2_bytes = 0; // of one block; of the device; in bytes
  double memory_peak_bytes_per_us = 0;
  // The GPU at hand and its driver ("NVIDIA H200", "13.0"), which select the measured schedules. Empty: unknown.
  std::string device_name, driver;
  bool records = true; // measured schedules that ship with the target apply (codegen/schedule/schedule_records.h)
  std::shared_ptr<const TunedSchedules> tuned; // measured schedules (measure/tune); null: the cost model chooses
  bool cublaslt = true, cudnn = true;          // available where the executable runs; without them, loops are generated
  // The executable is for the GPU of this machine: libraries that cannot be opened here are not used.
  bool find_libraries = false;
  // Nodes of the model, by name, whose products, convolutions and pooling are generated loops although a library is
  // available: those that a library rejected.
  std::set<std::string> as_loops;
  int threads = 0; // threads of the machine that runs the executable; 0: all
  int jobs = 0;    // kernels that are compiled at the same time; 0: as many as threads
  // Polled between kernels, on any thread: true ends the compilation with error Cancelled.
  std::function<bool()> cancelled;
  bool fusion = true;
  // Steering (docs/steering.md). Operators by the name that the exporter gave, or by the name of their first output.
  std::vector<std::pair<std::string, std::string>> no_fuse; // two operators: no kernel or library call has both
  std::vector<std::string> break_at;    // an operator: its result is in memory, and nothing is fused across it
  std::shared_ptr<const PlanFile> plan; // pins fusion, schedules and routes (codegen/driver/plan_file.h)
  bool plan_strict = false;             // what of the plan does not fit is an error, not a warning
  bool strict_rounding = false;         // round after every operator; nothing is computed in TF32
  bool deterministic = false;           // sums at repeated indices have the same bits in each call on a GPU
  Tf32 tf32 = Tf32::Conv;               // of f32 operations on a GPU
  bool cache = true;                    // object cache on disk
  std::string cache_dir;                // empty: TESSERA_CACHE_DIR, else $XDG_CACHE_HOME/tessera, else ~/.cache/tessera
  bool keep_values = false;             // nests list the values that they do not store (FusionOptions::keep_values)
  bool keep_tiles = false;              // report the text of tile kernels (KernelReport::tile_text)
  bool keep_texts = false; // also report LLVM IR and PTX, which are generated again if the cache has the code
  std::vector<std::string> disabled_passes;
  // Largest size in bytes of one value without inputs, and of all together, that is computed at compile time
  // (fold_constants.h); more if the constants from which they are computed are larger. Negative: none.
  int64_t fold_bytes = int64_t{64} << 20;
};

[[nodiscard]] std::optional<Tf32> parse_tf32(std::string_view name); // one of kTf32Names

} // namespace tessera
