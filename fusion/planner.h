// The planner's state. plan.cpp makes units and merges them, edges.cpp explains every edge.
#pragma once
#include "fusion/constraints.h"
#include "fusion/decide.h"
#include "fusion/merge.h"
#include "fusion/units.h"
#include "fusion/work.h"
#include <set>

namespace tessera::fusion {

// A merge of two units, as the next work. Refused where it failed before.
[[nodiscard]] Work merge_of(const Unit& a, const Unit& b, WorkInHand& hand);
[[nodiscard]] std::optional<Refusal> failed_before(const WorkInHand& hand);

// The attempts to merge units, for the ledger. A read: a value, and the unit as made that reads it.
struct Attempts {
  using Read = std::pair<int32_t, int>;
  std::map<Read, Refusal> refused;                // why the unit was not merged with the value's producer
  std::map<Read, Decisions::Tradeoff> recomputed; // the unit computes the value itself
  std::set<Read> shared;                          // read together with a sibling
  std::vector<PairEntry> pairs;
};

// A finished plan as edges.cpp reads it. `stored`: whether a value has memory.
struct Planned {
  const Graph& graph;
  const FusionOptions& options;
  const Steering& steering;
  NodeBodies& bodies;
  const Decisions& decisions;
  const Units& units;
  const Attempts& attempts;
  std::function<bool(ValueId)> stored;
};
[[nodiscard]] std::vector<LedgerEntry> explain_edges(const Planned& planned);

class Planner {
public:
  Planner(Graph& graph, AxisPool& pool, const FusionOptions& options, const Steering& steering, WorkInHand& work)
      : graph_(graph), options_(options), steering_(steering), pool_(pool), bodies_(graph, pool_),
        estimate_(graph.env()), merger_(graph, pool_), calls_(graph, pool_, bodies_, options.keep_values),
        units_(graph), users_(graph.users()), work_(work) {}
  Result<FusionPlan> run(); // FusionPlan::unmet: pins that did not come about

private:
  // plan.cpp
  Status make_units();
  Status make_stage(ValueId value);
  int add(Unit unit);
  void merge_producers(int unit);
  void merge_siblings(int unit);
  [[nodiscard]] std::optional<Refusal> try_vertical(int producer, int consumer);
  [[nodiscard]] std::optional<Refusal> try_library(int producer, int consumer);
  [[nodiscard]] std::optional<Refusal> try_horizontal(int a, int b);
  // pins.cpp
  [[nodiscard]] std::optional<Refusal> kept_apart(int a, int b) const;
  [[nodiscard]] std::optional<Refusal> kept_apart(int producer, int consumer, const LoopNest& into, bool keep_axes);
  void complete_pins();
  [[nodiscard]] std::vector<UnmetPin> check_pins() const;
  // recompute.cpp
  Status recompute_reads(int unit);
  [[nodiscard]] SymExpr points_read(const LoopNest& nest, ValueId v);
  // side_by_side.cpp
  void merge_small();
  [[nodiscard]] bool try_side_by_side(int a, int b, double worth);
  [[nodiscard]] SizeSum moved(const LoopNest& nest); // bytes
  [[nodiscard]] double at_planned(const SizeSum& bytes);

  [[nodiscard]] std::optional<Refusal> fits(const LoopNest& a, const LoopNest& b, int ua, int ub);
  [[nodiscard]] std::optional<Refusal> keeps_parallelism(const LoopNest& a, const LoopNest& b);
  // Whether anything but these two units reads v, units still to be made included.
  [[nodiscard]] bool will_be_read_elsewhere(ValueId v, int a, int b);
  // Whether v needs memory; `read`: the values that kernels and calls load in the end, where that is known already.
  [[nodiscard]] bool stored(ValueId v, const std::vector<bool>& read = {}) const;
  [[nodiscard]] std::vector<bool> find_reads();
  Result<FusionPlan> emit();
  void fill(Group& group, const LoopNest& nest);
  void order_axes(LoopNest& nest) const;
  [[nodiscard]] std::string group_name(size_t number, const Group& group) const;

  Graph& graph_;
  const FusionOptions& options_;
  const Steering& steering_;
  AxisPool& pool_;
  NodeBodies bodies_;
  Estimator estimate_;
  Merger merger_;
  LibraryCalls calls_;
  Decisions d_; // from here on filled by run()
  Units units_;
  Attempts tried_;
  const std::vector<std::vector<NodeId>> users_; // by value
  bool completing_ = false;                      // merging what is pinned together, whether it pays or not
  WorkInHand& work_;
};

} // namespace tessera::fusion
