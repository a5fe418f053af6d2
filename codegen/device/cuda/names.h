// Unique names for values that passes add to a graph.
#pragma once
#include "graph/ir/graph.h"
#include <unordered_set>

namespace tessera {

class NewNames {
public:
  explicit NewNames(const Graph& graph) {
    for (int v = 0; v < graph.value_count(); ++v) taken_.insert(graph.value(ValueId{v}).name);
  }
  // Returns `wanted`, or "wanted.2" and so on if it is in use; each name once.
  [[nodiscard]] std::string operator()(const std::string& wanted) {
    std::string name = wanted;
    for (int i = 2; !taken_.insert(name).second; ++i) name = wanted + "." + std::to_string(i);
    return name;
  }

private:
  std::unordered_set<std::string> taken_;
};

} // namespace tessera
