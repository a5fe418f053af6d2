// Ways around what fails in a compile. A failed check, a fatal error of LLVM or an exception of a library costs the piece
// of work in which it happens, never the compile, as long as there is another way:
//
//   what fails                     what is done instead, in this order
//   a pass                         the compile begins again without it, from the imported graph
//   merging two units of a plan    they are two kernels (fusion/plan.cpp)
//   an operator's loop nest        the host runs it (fusion/plan.cpp)
//   planning as a whole            no fusion; every operator on the host (pipeline.cpp)
//   a schedule or its code         the next legal schedule (codegen/device), then as for the kernel
//   the kernel of an attention     its three steps
//   a kernel of several operators  a kernel for each
//   a kernel of one operator       the host runs it (CPU fallback)
//   a step of the executable       as for a kernel
//
// A failure that no detour avoids is an error of code Internal. Each failure is counted (contained_failures()), logged
// as a warning, listed in the report, and saved as a text with the graph and plan: in TESSERA_DUMP_DIR, or below the
// cache folder, which keeps the last ones.
#pragma once
#include "codegen/compilation/contain.h"

namespace tessera {

// Groups of a plan without code, by index in flat_groups().
using FailedGroups = std::map<size_t, Diagnostic>;

class Detours {
public:
  // Passes to leave out, those of the options included.
  [[nodiscard]] const std::vector<std::string>& passes() const { return passes_; }
  [[nodiscard]] const FusionDetours& plan() const { return plan_; }
  // False: the pass may not be left out, or was.
  [[nodiscard]] bool leave_out(const std::string& pass);
  // The detour in the place of the group; empty: there is no other way.
  [[nodiscard]] std::string around(const Graph& graph, const FusionPlan& plan, const Group& group,
                                   const Diagnostic& error);
  // The host is to run every operator. False: it is already.
  [[nodiscard]] bool all_on_host(const Graph& graph, const Diagnostic& error);
  void next_round() { ++rounds_; }

  explicit Detours(const CompileOptions& options) : passes_(options.disabled_passes) {}

private:
  std::vector<std::string> passes_;
  FusionDetours plan_; // nodes and values of the graph that the passes() make
  int rounds_ = 0;     // plans with failed groups
};

} // namespace tessera
