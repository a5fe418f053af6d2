// Decisions before any nest is made: which nodes run where, and which values have memory.
//
// A value has memory when something needs it there (an output of the graph, an operand of a library call or of a host
// operator, a reduction) or when that is cheaper than writing its expression out in each reader. Everything else is
// virtual. A kernel that would read a value from memory may still compute it, where that moves less (Recipe).
#pragma once
#include "fusion/constraints.h"
#include "fusion/cost.h"
#include "fusion/library.h"

namespace tessera::fusion {

enum class Place : uint8_t { Unneeded, Constant, Loops, Library, Own, Control, Alias, Host };

struct Decisions {
  std::vector<NodeId> order;
  std::vector<Place> place;             // by node
  std::vector<std::string> host_reason; // by node, of Host
  std::vector<bool> pinned;             // by value: something needs it in memory
  std::vector<bool> is_virtual;         // by value
  std::vector<bool> compared;           // by value: with its extreme, so it is computed once, and rounds as eager does
  std::vector<bool> too_expensive;      // by value: stored because recomputing costs more
  // By value, where there was a choice: bytes, with instructions as bytes, for its readers.
  struct Tradeoff {
    SizeSum computed, stored; // written out in each reader; written once and read by each
  };
  std::map<int32_t, Tradeoff> tradeoffs;
  // By value, of those that have memory: what they may be computed from once more.
  struct Recipe {
    std::vector<ValueId> leaves; // that lie in memory in any case
    double instructions = 0;     // for an element, less the load that they replace
  };
  std::map<int32_t, Recipe> recipes;
  std::vector<int> sites;                    // by value: consumers, views looked through
  std::map<int32_t, std::string> kept_apart; // by value: it has memory by request, which this says
  std::map<int32_t, Marks> call_marks;       // by node of a call: constrained operators in it, with its operands' views
  std::map<int32_t, CallDraft> calls;        // by node
};

[[nodiscard]] Result<Decisions> decide(const Graph& graph, const FusionOptions& options, const Steering& steering,
                                       AxisPool& pool, NodeBodies& bodies, Estimator& estimate);
[[nodiscard]] bool is_view(const Graph& graph, ValueId value);

} // namespace tessera::fusion
