// The compile driver: Graph -> passes -> fusion plan -> schedules -> tile kernels -> objects -> Executable. One
// readable function.
#pragma once
#include "codegen/schedule/schedule.h"
#include "fusion/plan.h"
#include "graph/passes/pass.h"
#include "runtime/executable.h"
#include <set>

namespace tessera {

class TunedSchedules;

struct CompileOptions {
  std::string device = "cpu"; // or "cuda"
  // Of a GPU: the target of PTX ("sm_90a"; empty: sm_90, which newer GPUs run too), the GPU that machine code is made
  // for where it is not the target itself ("sm_100"), and its multiprocessors (0: an H200's).
  std::string arch, assemble_for;
  int multiprocessors = 0;
  // The GPU that is here, with its driver ("NVIDIA H200", "13.0"): which measured schedules count. Empty: not known.
  std::string device_name, driver;
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
  bool strict_rounding = false; // round after every operator
  bool cache = true;            // object cache on disk
  std::string cache_dir;        // empty: TESSERA_CACHE_DIR, else $XDG_CACHE_HOME/tessera, else ~/.cache/tessera
  bool keep_tiles = false;      // keep the text of tile kernels (KernelReport::tile_text)
  bool keep_texts = false;      // that, and the LLVM IR and PTX, which are made anew where the cache has the code
  std::vector<std::string> disabled_passes;
};

struct KernelReport {
  struct Alternative {
    std::string when; // "if 1 <= cols <= 1024, cols % 8 == 0"
    Schedule schedule;
  };
  std::string name;
  Schedule schedule;                     // for every size
  std::vector<Alternative> alternatives; // that are taken before it: the first one whose conditions hold
  std::string tile_text, llvm_text;
  std::string ptx_text;                 // of a GPU
  int registers = -1, spill_bytes = -1; // of a thread; the most of the alternatives, -1 where no assembler told
  std::vector<std::string> tuned;       // of the alternatives that a tuner chose: what it measured
  bool from_cache = false;
  double compile_ms = 0;
};
// Everything that explain prints and run throws away.
struct CompileReport {
  std::vector<PassStats> passes;
  FusionPlan plan;
  std::vector<KernelReport> kernels; // in the order of flat_groups(), of those that have code
  double import_ms = 0, passes_ms = 0, fusion_ms = 0, codegen_ms = 0, link_ms = 0, total_ms = 0;
  int cache_hits = 0, cache_misses = 0;
  std::vector<std::string> cache_warnings;  // a corrupt entry that was replaced, a folder that cannot be written
  std::vector<std::string> device_warnings; // what the device's code lacks: spilled registers, no assembler
  int source_nodes = 0;                     // operators in the imported graph
};
struct KernelWork; // what code was generated from, beside graph and plan (compile.cpp)
struct Compiled {
  std::shared_ptr<const Executable> executable;
  std::shared_ptr<Graph> graph; // after passes
  CompileReport report;
  std::shared_ptr<const KernelWork> work;
};
// Consumes the graph (imported, not yet decomposed).
[[nodiscard]] Result<Compiled> compile(Graph graph, const CompileOptions& options);
// The same graph and plan, with the schedules that options.tuned has by now: an executable with the same inputs,
// outputs and constants, which share their memory. Only reads `before`, which other threads may use.
[[nodiscard]] Result<Compiled> compile_again(const Compiled& before, const CompileOptions& options);

} // namespace tessera
