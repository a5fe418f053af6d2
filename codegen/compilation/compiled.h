// The records of a compile: its report, for `explain`, and all that it yields.
#pragma once
#include "codegen/compilation/options.h"
#include "codegen/schedule/schedule.h"
#include "codegen/target/target.h"
#include "fusion/plan.h"
#include "graph/passes/pass.h"
#include "runtime/executable.h"

namespace tessera {

struct DeviceRoutes;

struct KernelReport {
  struct Alternative {
    std::string when; // "if 1 <= cols <= 1024, cols % 8 == 0"
    Schedule schedule;
    std::string why; // ScheduledKernel::why
    PredictedTime predicted;
    int registers = -1;               // registers per thread; -1 without an assembler
    std::vector<ExtentRange> extents; // ScheduledKernel::extents
  };
  std::string name;
  Schedule schedule; // the schedule without conditions
  std::string why;   // ScheduledKernel::why
  PredictedTime predicted;
  std::vector<Alternative> alternatives; // tried in order before it; the first one whose conditions hold runs
  std::string tile_text, llvm_text;
  std::string ptx_text;                 // of a GPU
  int registers = -1, spill_bytes = -1; // per thread, largest of the alternatives; -1 without an assembler
  std::vector<std::string> tuned;       // measurements of the alternatives that a tuner chose
  std::vector<ExtentRange> extents;     // ScheduledKernel::extents, of `schedule`
  std::vector<std::string> unmet;       // schedules of a plan file that do not fit, and why
  bool from_cache = false;
  double compile_ms = 0;
};
// A failed check, fatal error of LLVM or exception while compiling, and what was done in another way (detours.h).
struct ContainedFailure {
  std::string where; // "pass cse", "kernel k3_softmax"
  Diagnostic error;
  std::string instead;                   // "each of its operators is planned alone"
  std::string saved;                     // the file with graph and plan; empty: none could be written
  [[nodiscard]] std::string str() const; // one line
};
// Values without inputs: those that were computed at compile time (besides the pass `fold`), and those that were not.
struct FoldedConstants {
  struct Left {
    std::string value, op; // the value's name, and the operator that computes it
    int64_t bytes = 0;
    std::string why;
  };
  int values = 0;
  int64_t bytes = 0;
  double milliseconds = 0;
  std::vector<Left> left;                  // computed at every call
  std::vector<ContainedFailure> contained; // of the compiles that computed them
};
// The prices of a product with the kernels around it: as a library's call and kernels, and as generated contraction.
struct ContractionChoice {
  double library_us = 0, contraction_us = 0; // INFINITY: no kernels that have a price
  bool taken = false;                        // the contraction
  std::string refusal;                       // why the library has it without a comparison of prices; empty: compared
};
// The report of a compilation, for `explain`.
struct CompileReport {
  std::vector<PassStats> passes;
  FusionPlan plan;
  FusionConstraints requests;                       // operators to keep apart, those of a plan file included
  std::map<NodeId, ContractionChoice> contractions; // by product
  FoldedConstants constants;
  std::vector<KernelReport> kernels; // of groups with code, in the order of flat_groups()
  double import_ms = 0, passes_ms = 0, fusion_ms = 0, codegen_ms = 0, link_ms = 0, total_ms = 0;
  int cache_hits = 0, cache_misses = 0;
  std::vector<std::string> cache_warnings;  // a corrupt entry that was replaced, a folder that cannot be written
  std::vector<std::string> plan_warnings;   // what of a plan file does not fit, operators of options that are not there
  std::vector<std::string> device_warnings; // problems of device code: spilled registers, no assembler
  std::vector<ContainedFailure>
      contained;       // what failed and cost a schedule, a route or a pass, those of bodies included
  std::string figures; // the target whose figures the cost model used: "h200", "a100, scaled to ..."
  Target device;       // these figures
  std::shared_ptr<const DeviceRoutes> routes; // of the device (codegen/compilation/routes.h)
  // Operators of the imported graph but constants, in order: where each stands in the model.
  std::vector<Location> operators;
};
struct ControlCode; // of an If or a loop (bodies.h)
struct KernelWork;  // inputs of code generation other than graph and plan (compile.cpp)
struct Compiled {
  std::shared_ptr<const Executable> executable;
  std::shared_ptr<Graph> graph; // after passes
  CompileReport report;
  std::shared_ptr<const KernelWork> work;
  std::map<size_t, std::shared_ptr<const ControlCode>> bodies; // by index of the group in flat_groups()
};

} // namespace tessera
