// Nests that differ only in the values that they read and write are scheduled and lowered once.
#pragma once
#include "base/hash.h"
#include "fusion/loop_nest.h"
#include <optional>
#include <unordered_map>

namespace tessera {

class SameNests {
public:
  explicit SameNests(const Graph& graph) : graph_(graph) {}
  // The `number` of an earlier nest with the same loops, expressions, types and shapes; otherwise nothing, and this
  // nest is added with `number`. Nests that report indices out of range are never equal, because their messages name
  // the operator.
  [[nodiscard]] std::optional<size_t> find_or_add(const LoopNest& nest, size_t number);

private:
  const Graph& graph_;
  std::unordered_map<std::string, size_t>
      seen_; // by the nest's bytes; expressions are hash-consed and compared by address
};

// The buffers of a kernel made for `from`, for the equal nest `to` (loads, then stored values).
[[nodiscard]] std::vector<ValueId> buffers_for(const LoopNest& to, const LoopNest& from, std::vector<ValueId> buffers);

} // namespace tessera
