// Nests that differ only in the values they read and write: one is scheduled and lowered for all of them.
#pragma once
#include "fusion/loop_nest.h"
#include "graph/support/hash.h"
#include <optional>
#include <unordered_map>

namespace tessera {

class SameNests {
public:
  explicit SameNests(const Graph& graph) : graph_(graph) {}
  // A number that an earlier nest of the same loops, expressions, types and shapes was added with; otherwise nothing,
  // and `number` is this nest's. Nests that report indices out of range are never the same: their messages name the
  // operator.
  [[nodiscard]] std::optional<size_t> find_or_add(const LoopNest& nest, size_t number);

private:
  const Graph& graph_;
  std::unordered_map<std::string, size_t>
      seen_; // by the nest's bytes; expressions are hash-consed and count by address
};

// Buffers of a kernel made for `from`, as they are for `to`, which is the same nest (loads, then stored values).
[[nodiscard]] std::vector<ValueId> buffers_for(const LoopNest& to, const LoopNest& from, std::vector<ValueId> buffers);

} // namespace tessera
