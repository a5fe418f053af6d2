// Units, from which the groups of a plan come: who defines and reads each value, and which units were merged.
#pragma once
#include "fusion/constraints.h"
#include "fusion/library.h"
#include "fusion/merge.h"
#include "fusion/order.h"
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

class Units {
public:
  explicit Units(const Graph& graph);
  Units(const Units&) = delete;
  Units& operator=(const Units&) = delete;

  int add(Unit unit); // behind all others
  [[nodiscard]] Unit& operator[](int unit) { return units_[static_cast<size_t>(unit)]; }
  [[nodiscard]] const Unit& operator[](int unit) const { return units_[static_cast<size_t>(unit)]; }
  // Units as made that read a value, and those that contain a node.
  [[nodiscard]] std::vector<int>& readers(ValueId v) { return readers_[static_cast<size_t>(v.index)]; }
  [[nodiscard]] const std::vector<int>& readers(ValueId v) const { return readers_[static_cast<size_t>(v.index)]; }
  [[nodiscard]] std::vector<int>& homes(NodeId n) { return homes_[static_cast<size_t>(n.index)]; }
  [[nodiscard]] const std::vector<int>& homes(NodeId n) const { return homes_[static_cast<size_t>(n.index)]; }

  // From here on units are those that no other one took.
  [[nodiscard]] int find(int unit) const;  // the unit into which one was merged
  [[nodiscard]] int home(ValueId v) const; // unit that defines v in memory, -1 for inputs, constants and virtual values
  [[nodiscard]] bool edge(int producer, int consumer) const; // the one reads what the other defines, or needs its sizes
  [[nodiscard]] bool read_elsewhere(ValueId v, int a, int b) const;
  [[nodiscard]] std::optional<Refusal> path_between(int a, int b);
  void contract(int a, int b, int kept); // after path_between(a, b)
  [[nodiscard]] std::vector<int> order() const { return order_.order(); }
  [[nodiscard]] int position(int unit) const { return order_.position(unit); }

private:
  void successors(int unit, const std::function<void(int)>& f) const;

  const Graph& graph_;
  std::vector<Unit> units_;
  std::vector<int> defined_by_;           // by value: unit as made, -1
  std::vector<std::vector<int>> readers_; // by value
  std::vector<std::vector<int>> homes_;   // by node
  SizeDefiners sizes_;
  std::unordered_map<NodeId, std::vector<int>> waiting_; // by node of the host: units that need a size it defines
  UnitOrder order_;
};

} // namespace tessera::fusion
