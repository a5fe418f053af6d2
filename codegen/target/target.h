// Device figures as data: what schedules, fusion and reports use of a GPU or a host. Each known device has a file under
// data/; `tessera calibrate` measures the device at hand.
#pragma once
#include "base/result.h"
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tessera {

enum class FigureSource : uint8_t {
  Published, // in the vendor's documents, or in a published study
  Measured,  // on the device
  Estimated, // taken from a similar device, or scaled from one
};

// "Multiprocessor" stands for one streaming multiprocessor of a GPU; in rates, for one core of a host as well. A figure
// that the kind of device does not have is 0. target_fields() gives each figure's unit and bounds.
struct Target {
  enum class Kind : uint8_t { Cpu, Cuda } kind = Kind::Cpu;
  std::string name;    // of the file: "h200", "avx512"
  std::string gpu;     // how the driver names the GPU, or how such names begin: "NVIDIA H200"; empty for a host
  std::string arch;    // compute capability: "sm_90"; empty for a host
  std::string note;    // source of the figures, as text; may be empty
  std::string records; // file of measured schedules next to a target file; empty: those that are part of the binary

  // Structure of a GPU.
  int multiprocessors = 0;                 // multiprocessors
  int schedulers = 0;                      // warp schedulers of a multiprocessor
  int64_t registers = 0;                   // 32-bit registers of a multiprocessor
  int64_t thread_registers = 0;            // 32-bit registers that one thread may use
  int64_t resident_threads = 0;            // threads that are resident on a multiprocessor at a time
  int64_t resident_blocks = 0;             // blocks that are resident on a multiprocessor at a time
  int64_t block_threads = 0;               // threads that one block may have
  int64_t shared_bytes = 0;                // shared memory that one block may use, in bytes
  int64_t multiprocessor_shared_bytes = 0; // shared memory of a multiprocessor, in bytes
  int64_t reserved_shared_bytes = 0;       // shared memory that the system takes for each resident block, in bytes

  // Structure of a host.
  int cores = 0;        // cores, each of which runs one program at a time
  int vector_bytes = 0; // widest vector register, in bytes
  int unroll = 0;       // vectors in one step that hide the latency of arithmetic

  // Caches, of a multiprocessor or core (L1; on a host also L2) or of the device.
  int64_t l1_bytes = 0, l2_bytes = 0, l3_bytes = 0; // capacity, in bytes
  int64_t instruction_cache_bytes = 0;              // code that a multiprocessor of a GPU has at hand, in bytes
  int64_t line_bytes = 0;                           // a cache line, in bytes
  int64_t sector_bytes = 0;                         // what memory moves at least, in bytes
  int64_t access_bytes = 0;                         // widest load or store of one thread, in bytes

  // Bandwidth, in bytes per microsecond.
  double memory_peak_bytes_per_us = 0; // memory clock times bus width
  double memory_bytes_per_us = 0;      // memory, of the whole device, reads and writes together
  double core_memory_bytes_per_us = 0; // memory, of one multiprocessor or core that works alone
  double l1_bytes_per_us = 0;          // level-1 cache of one core
  double l2_bytes_per_us = 0;          // level-2 cache: of a whole GPU, of one core of a host
  double l3_bytes_per_us = 0;          // level-3 cache of one core
  double shared_bytes_per_us = 0;      // shared memory of one multiprocessor
  int64_t saturating_bytes = 0;        // loads in flight on each multiprocessor that saturate memory, in bytes

  // Latency, in microseconds.
  double memory_latency_us = 0, l1_latency_us = 0, l2_latency_us = 0, l3_latency_us = 0; // of one dependent load
  double shared_latency_us = 0;      // of one dependent load from shared memory
  double barrier_us = 0;             // barrier of a block of 256 threads
  double grid_barrier_us = 0;        // barrier of all resident blocks
  double launch_us = 0;              // what one more kernel (on a host, one more parallel loop) adds on the device
  double host_launch_us = 0;         // what one launch takes the host
  double iteration_us = 0;           // what starting a compiled body once more takes the host, without its steps
  double host_copy_bytes_per_us = 0; // between a GPU and pinned memory of the host, in bytes per microsecond
  double host_wait_us = 0;           // until the host goes on when a GPU has finished, and the GPU when the host has
  double kernel_us = 0;              // a kernel that moves next to nothing, between the events around it
  double block_us = 0;               // what each block adds to a grid of many empty ones
  double warp_exchange_us = 0;       // what each warp adds to a reduction across the warps of a block

  // Arithmetic: results per multiprocessor and cycle.
  double clock_mhz = 0;
  double fma_per_cycle = 0;         // f32 multiply-add, multiply, add
  double integer_per_cycle = 0;     // 32-bit integer add, compare, logic
  double special_per_cycle = 0;     // reciprocal, rsqrt, exp2, log2, sine; on a host, division
  double conversion_per_cycle = 0;  // between f32 and integers or narrower floats
  double load_store_per_cycle = 0;  // 32-bit elements that load/store units take
  double gather_per_cycle = 0;      // 32-bit elements of a gather, from the level-1 cache
  double shuffle_per_cycle = 0;     // 32-bit elements that lanes of a warp exchange
  double tensor_f16_per_cycle = 0;  // multiply-adds of f16 or bf16 on tensor cores
  double tensor_tf32_per_cycle = 0; // multiply-adds of TF32 on tensor cores
  // Multiply-adds of f16 or bf16 in asynchronous products of a warpgroup (wgmma); 0: code cannot use them.
  double warpgroup_f16_per_cycle = 0;
  double tensor_i8_per_cycle = 0; // multiply-adds of 8-bit integers on tensor cores
  double tensor_f8_per_cycle = 0; // of 8-bit floats, with sums in f32; 0: they have no such products

  std::vector<FigureSource> sources; // of each of target_fields(); empty for a target that no file describes

  [[nodiscard]] bool is_gpu() const { return kind == Kind::Cuda; }
  // Bytes that memory moves in the time of one f32 instruction of one lane: of a GPU all of whose multiprocessors work,
  // of one core of a host.
  [[nodiscard]] double bytes_per_instruction() const {
    const double bytes = is_gpu() ? memory_bytes_per_us / multiprocessors : core_memory_bytes_per_us;
    return bytes / (fma_per_cycle * clock_mhz);
  }
};

// One figure of a target. Parser, printer, checks and docs derive from this table.
struct TargetField {
  enum Kinds : uint8_t { Cpu = 1, Cuda = 2, Both = 3 };
  std::string_view name, unit, meaning;
  std::variant<int Target::*, int64_t Target::*, double Target::*> member;
  double least, most; // sane bounds
  Kinds kinds;        // devices that have it

  [[nodiscard]] bool applies(Target::Kind kind) const {
    return (kinds & (kind == Target::Kind::Cuda ? Cuda : Cpu)) != 0;
  }
  [[nodiscard]] double get(const Target& target) const;
  void set(Target& target, double value) const;
};
[[nodiscard]] std::span<const TargetField> target_fields();
[[nodiscard]] std::string_view name(FigureSource source); // "published"
[[nodiscard]] std::string_view name(Target::Kind kind);   // "cuda"

// Text of a target file (JSON; README.md describes it) and back. Errors of parsing: ParseError that names the file, the
// field, the value seen and what is expected: text that is no JSON, a field that is unknown, missing, given twice, no
// number, or out of bounds.
[[nodiscard]] Result<Target> parse_target(std::string_view text, const std::string& file);
[[nodiscard]] std::string print_target(const Target& target);
// The bounds of every field, and of fields together. Error ParseError as above.
[[nodiscard]] Status verify_target(const Target& target, const std::string& file);

} // namespace tessera
