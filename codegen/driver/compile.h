// The compile driver: Graph -> passes -> fusion plan -> schedules -> tile kernels -> objects -> Executable. One
// readable function.
#pragma once
#include "codegen/driver/options.h"
#include "codegen/schedule/schedule.h"
#include "fusion/plan.h"
#include "graph/passes/pass.h"
#include "runtime/executable.h"

namespace tessera {

[[nodiscard]] std::optional<Tf32> parse_tf32(std::string_view name); // "off", "conv", "all"

struct KernelReport {
  struct Alternative {
    std::string when; // "if 1 <= cols <= 1024, cols % 8 == 0"
    Schedule schedule;
    std::string why;    // ScheduledKernel::why
    int registers = -1; // of a thread; -1 where no assembler is there
  };
  std::string name;
  Schedule schedule;                     // for every size
  std::string why;                       // ScheduledKernel::why
  std::vector<Alternative> alternatives; // that are taken before it: the first one whose conditions hold
  std::string tile_text, llvm_text;
  std::string ptx_text;                 // of a GPU
  int registers = -1, spill_bytes = -1; // of a thread; the most of the alternatives, -1 where no assembler is there
  std::vector<std::string> tuned;       // of the alternatives that a tuner chose: what it measured
  bool from_cache = false;
  double compile_ms = 0;
};
// What was computed of constants when compiling, beside what the pass `fold` did, and what was not.
struct FoldedConstants {
  struct Left {
    std::string value, op; // the value's name, the operator that makes it
    int64_t bytes = 0;
    std::string why;
  };
  int values = 0;
  int64_t bytes = 0;
  double milliseconds = 0;
  std::vector<Left> left; // computed at every call
};
// Everything that explain prints and run throws away.
struct CompileReport {
  std::vector<PassStats> passes;
  FusionPlan plan;
  FoldedConstants constants;
  std::vector<KernelReport> kernels; // in the order of flat_groups(), of those that have code
  double import_ms = 0, passes_ms = 0, fusion_ms = 0, codegen_ms = 0, link_ms = 0, total_ms = 0;
  int cache_hits = 0, cache_misses = 0;
  std::vector<std::string> cache_warnings;  // a corrupt entry that was replaced, a folder that cannot be written
  std::vector<std::string> device_warnings; // what the device's code lacks: spilled registers, no assembler
  std::string figures;                      // the target whose figures decided: "h200", "a100, scaled to ..."
  int source_nodes = 0;                     // operators in the imported graph
};
struct KernelWork; // what code was generated from, beside graph and plan (compile.cpp)
struct Compiled {
  std::shared_ptr<const Executable> executable;
  std::shared_ptr<Graph> graph; // after passes
  CompileReport report;
  std::shared_ptr<const KernelWork> work;
};
// Consumes the graph (imported, not yet decomposed). `dump_prefix`: of the names of files in TESSERA_DUMP_DIR.
[[nodiscard]] Result<Compiled> compile(Graph graph, const CompileOptions& options, const std::string& dump_prefix = "");
// The same graph and plan, with the schedules that options.tuned has by now: an executable with the same inputs,
// outputs and constants, which share their memory. Only reads `before`, which other threads may use.
[[nodiscard]] Result<Compiled> compile_again(const Compiled& before, const CompileOptions& options);

} // namespace tessera
