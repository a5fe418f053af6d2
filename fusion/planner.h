// The planner's state: units and how they were merged. plan.cpp makes and merges them, edges.cpp explains every edge.
#pragma once
#include "fusion/constraints.h"
#include "fusion/decide.h"
#include "fusion/merge.h"
#include "fusion/order.h"
#include "fusion/work.h"
#include "graph/ir/sizes.h"

namespace tessera::fusion {

// A kernel, library call or host operator to be.
struct Unit {
  Group::Kind kind = Group::Kind::Kernel;
  NodeId node;                    // Library, Host
  LoopNest nest;                  // Kernel
  std::optional<CallDraft> draft; // Library
  std::vector<ValueId> reads;     // as it was made, before merging
  std::vector<ValueId> defines;   // of all that was merged into it
  std::vector<int> members;       // units that were merged into it, and itself
  Marks marks;                    // constrained operators in it
  int pin = -1;                   // the pinned group that it is, or is a part of
  bool unread = false;            // nothing reads what it makes: it is left out of the plan
  mutable int parent = -1;        // merged into that unit, or into one that was merged further; find() shortens the way
};

// The nodes that a unit computes; of a call without what is attached to it.
[[nodiscard]] std::vector<NodeId> nodes_of(const Unit& unit);
// A merge of two units, as the next work. Refused where it failed before.
[[nodiscard]] Work merge_of(const Unit& a, const Unit& b, WorkInHand& hand);
[[nodiscard]] std::optional<Refusal> failed_before(const WorkInHand& hand);

class Planner {
public:
  Planner(Graph& graph, AxisPool& pool, const FusionOptions& options, const Steering& steering, WorkInHand& work)
      : graph_(graph), options_(options), steering_(steering), pool_(pool), bodies_(graph, pool_),
        estimate_(graph.env()), merger_(graph, pool_), calls_(graph, pool_, bodies_, options.keep_values),
        order_([this](int u, const std::function<void(int)>& f) { successors(u, f); }), work_(work) {}
  Result<FusionPlan> run();
  // Pins that did not come about in run().
  [[nodiscard]] std::vector<UnmetPin> unmet() const { return unmet_; }

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
  void check_pins();
  // recompute.cpp
  Status recompute_reads(int unit);
  [[nodiscard]] SymExpr points_read(const LoopNest& nest, ValueId v);
  // side_by_side.cpp
  void merge_small();
  [[nodiscard]] bool try_side_by_side(int a, int b, double worth);
  [[nodiscard]] SizeSum moved(const LoopNest& nest); // bytes
  [[nodiscard]] double at_planned(const SizeSum& bytes);

  [[nodiscard]] std::optional<Refusal> path_between(int a, int b);
  [[nodiscard]] std::optional<Refusal> fits(const LoopNest& a, const LoopNest& b, int ua, int ub);
  [[nodiscard]] std::optional<Refusal> keeps_parallelism(const LoopNest& a, const LoopNest& b);
  void contract(int a, int b, int kept);
  void successors(int unit, const std::function<void(int)>& f);
  [[nodiscard]] int find(int unit) const;
  [[nodiscard]] int home(ValueId v) const; // unit that defines v in memory, -1 for inputs, constants and virtual values
  [[nodiscard]] bool read_elsewhere(ValueId v, int a, int b) const;
  // Whether anything but these two units reads v, units still to be made included.
  [[nodiscard]] bool will_be_read_elsewhere(ValueId v, int a, int b);
  [[nodiscard]] bool stored(ValueId v) const; // needs memory after all merging
  void find_reads();
  Result<FusionPlan> emit();
  void fill(Group& group, const LoopNest& nest);
  void order_axes(LoopNest& nest) const;
  [[nodiscard]] std::string group_name(size_t number, const Group& group) const;

  // edges.cpp
  void explain(FusionPlan& plan);
  LedgerEntry explain_edge(NodeId consumer, ValueId value);
  [[nodiscard]] Detail tradeoff(ValueId value, bool is_stored) const;
  void explain_not_merged(LedgerEntry& entry, const std::vector<int>& homes, int from);

  Graph& graph_;
  const FusionOptions& options_;
  const Steering& steering_;
  AxisPool& pool_;
  NodeBodies bodies_;
  Estimator estimate_;
  Merger merger_;
  LibraryCalls calls_;
  UnitOrder order_;
  Decisions d_;
  std::vector<Unit> units_;
  std::vector<int> defined_by_;           // by value: unit as made, -1
  std::vector<std::vector<int>> readers_; // by value: units as made
  SizeDefiners sizes_{graph_};
  std::unordered_map<NodeId, std::vector<int>> waiting_; // by node of the host: units that need a size it defines
  std::vector<std::vector<int>> homes_;                  // by node: units as made that contain it
  std::vector<std::vector<NodeId>> users_;               // by value
  std::vector<PairEntry> pairs_;
  std::map<std::pair<int32_t, int>, Refusal>
      refused_; // (value, reader as made) -> why it was not merged with its producer
  std::map<std::pair<int32_t, int>, Decisions::Tradeoff> recomputed_; // likewise: it computes the value itself
  std::map<std::pair<int32_t, int>, bool> shared_; // (value, unit as made): read together with a sibling
  std::vector<bool> read_;                         // by value: a unit of the plan loads it; empty until find_reads()
  bool completing_ = false;                        // merging what is pinned together, whether it pays or not
  std::vector<UnmetPin> unmet_;
  WorkInHand& work_;
};

} // namespace tessera::fusion
