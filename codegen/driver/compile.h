// The compile driver: Graph -> passes -> fusion plan -> schedules -> tile kernels -> objects -> Executable.
#pragma once
#include "codegen/compilation/compiled.h"

namespace tessera {

// Consumes the graph (imported, not yet decomposed). `dump_prefix`: prefix of file names in TESSERA_DUMP_DIR.
[[nodiscard]] Result<Compiled> compile(Graph graph, const CompileOptions& options, const std::string& dump_prefix = "");
class FixedSchedules; // codegen/schedule/tuned.h
// Schedules that kernels are to have, by index of the group in flat_groups(). One that is not legal is passed over, and
// the report of the kernel has another.
using ForcedSchedules = std::map<size_t, std::shared_ptr<const FixedSchedules>>;
// Compiles a plan that was made from before's, whose groups it has in the same order, over a graph that has at least
// the values of before's. Inputs, constants and bodies are those of `before`; outputs are the graph's.
[[nodiscard]] Result<Compiled> compile_plan(const Compiled& before, std::shared_ptr<Graph> graph, FusionPlan plan,
                                            const CompileOptions& options, const ForcedSchedules& schedules);
// The last inputs and outputs of the executable become those of states, one for each of these constants: its name and
// first value (Executable::states).
void add_states(std::vector<Constant> first, Compiled& compiled);
// Compiles the same graph and plan with the schedules that options.tuned has now. The new executable has the same
// inputs, outputs, states and constants and shares their memory. Only reads `before`, which other threads may use.
[[nodiscard]] Result<Compiled> compile_again(const Compiled& before, const CompileOptions& options);

} // namespace tessera
