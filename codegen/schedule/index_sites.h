// The checks of indices in a kernel, and what their errors name.
#pragma once
#include "codegen/schedule/domain.h"
#include "runtime/index_check.h"

namespace tessera {

struct IndexSites {
  std::vector<int> of;            // by ScalarId: the site of a live CheckBounds; -1: none
  std::vector<IndexCheck> checks; // by site, in the order of the graph
};
[[nodiscard]] IndexSites index_sites(const Graph& graph, const LoopNest& nest, const Domain& domain);

} // namespace tessera
