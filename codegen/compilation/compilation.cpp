#include "codegen/compilation/compilation.h"

namespace tessera {

Compilation::Compilation(Graph& graph, Backend& backend, const CompileOptions& options)
    : GraphSubject(graph), backend_(backend), options_(options), planning_(graph.env()) {}

FusionPlan& Compilation::plan() {
  TESSERA_CHECK(planning_.plan.has_value(), "a pass over plans stands behind fuse");
  return *planning_.plan;
}

std::string Compilation::text() const {
  return planning_.plan ? print(graph_) + "\n" + print(graph_, *planning_.plan) : GraphSubject::text();
}

Status Compilation::verify() const {
  TESSERA_TRY(GraphSubject::verify());
  return planning_.plan ? tessera::verify(graph_, *planning_.plan) : Status();
}

int Compilation::size() const {
  return planning_.plan ? static_cast<int>(planning_.plan->groups.size()) : GraphSubject::size();
}

void Compilation::plan_around(const FusionDetours& detours) {
  planning_.detours = detours;
  planning_.plan.reset();
  planning_.contractions.clear();
  planning_.uncompared.clear();
  planning_.contracting = Contracting::Done;
}

} // namespace tessera
