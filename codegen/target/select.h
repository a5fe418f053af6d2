// Which target stands for a device: a file that is named, the shipped file of the GPU or architecture, or the nearest
// one with its figures scaled by what the driver reports.
#pragma once
#include "codegen/target/target.h"

namespace tessera {

// Targets whose files are part of the binary, in the order of shipped.cpp.
[[nodiscard]] const std::vector<Target>& shipped_targets();
// The shipped target of a name.
[[nodiscard]] const Target& shipped_target(std::string_view name);

// Properties of the device. Empty and 0: unknown.
struct DeviceFacts {
  Target::Kind kind = Target::Kind::Cpu;
  std::string gpu;                     // as the driver names it: "NVIDIA H200"
  std::string arch;                    // its own compute capability: "sm_100"
  int multiprocessors = 0;             // as the driver reports them, like what follows
  int64_t shared_bytes = 0;            // of a block, in bytes
  int64_t l2_bytes = 0;                // in bytes
  double memory_peak_bytes_per_us = 0; // memory clock times bus width
  int vector_bytes = 0;                // of a host: widest vector register, in bytes
};

struct ChosenTarget {
  Target target;
  std::string why;     // "h200", "a100, scaled to 84 multiprocessors": for reports
  std::string warning; // set if figures were scaled from another device
};

// Where measured schedules of a target file are looked for: FILE.records.txt beside FILE.json.
[[nodiscard]] std::string records_file(const std::string& target_file);
// The target of a name that is shipped, or of a file. Errors as for choose_target.
[[nodiscard]] Result<Target> named_target(const std::string& wanted);
// `wanted`: the name of a shipped target or the path of a target file; empty: the one that TESSERA_TARGET names, if it
// is of the device's kind, else by the device. Errors: Usage for a name
// that is not known, which lists those that are, and for a target of the other kind of device; those of reading and
// parsing a file.
[[nodiscard]] Result<ChosenTarget> choose_target(const std::string& wanted, const DeviceFacts& device);
// The figures of `base` for a device like it: memory, caches and multiprocessors as reported, bandwidths in proportion.
[[nodiscard]] Target scaled_target(const Target& base, const DeviceFacts& device);

} // namespace tessera
