// Constraints: what a user requires of a plan, and what that means for one graph.
//
// The idea. The planner decides in few places: whether a value has memory or is written out in its readers (decide.h),
// whether two units are merged (planner.h), whether a kernel recomputes what it would read, whether three groups become
// an attention. Each of these places asks here. There are three requests:
//
//   apart    two operators are in no common group
//   break    an operator's result is in memory, and no group has both the operator that makes it and one that reads it
//   pinned   a group consists of exactly these nodes, with memory for exactly these values
//
// Operators are those of the source model, by the name that the exporter gave: Location::node, or the name of its first
// output. One may be several nodes after decomposition. Pins are about nodes, by keys which are the same for the same
// model and passes: "/layer.0/LayerNorm/reduce_sum#1", operator, primitive, and which of several.
//
// A pin that does not fit the graph or the device is dropped as a whole, with the reason, and the planner decides about
// its nodes as it does without. A pin binds both ways: units of two different pinned groups, or of a pinned group and
// of none, are not merged.
#pragma once
#include "graph/ir/graph.h"
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace tessera {

struct PinnedGroup {
  enum class Kind : uint8_t { Kernel, Library, Attention, Other } kind = Kind::Kernel;
  std::string name;                // of the group when it was saved, for messages
  std::vector<std::string> nodes;  // keys of what it computes
  std::vector<std::string> stages; // keys of values that had a unit: in memory, or between the stages of its nest
  std::vector<std::string> reads;  // keys of values of other groups that it reads from memory
  std::vector<int> parts;          // Attention: its product, softmax and product, as indices of pinned groups
  std::string route;               // what computes it: "oneDNN", "generated code"; for messages
};
enum class FusionReason : uint8_t; // plan.h
// Why a node shares a group with no other one, or nothing is fused across a value.
struct Separation {
  FusionReason reason{};
  std::string why;
};
// Changes of a plan after another one, as of a failure (codegen/driver/detours.h): nodes and values of the same graph.
struct FusionDetours {
  std::map<NodeId, std::string> on_host; // run by their reference on the host; why
  std::map<NodeId, Separation> alone;    // share a group with no other node
  std::set<ValueId> in_steps;            // results of attentions that stay three groups
};
struct FusionConstraints {
  std::vector<std::pair<std::string, std::string>> apart; // operators
  std::vector<std::string> breaks;                        // operators
  std::vector<PinnedGroup> groups;
  FusionDetours detours;
};
// A pin that does not hold in a plan.
struct UnmetPin {
  int group = -1; // index of FusionConstraints::groups
  std::string why;
};

[[nodiscard]] const std::string& operator_name(const Location& location);
// Whether a node is of an operator of this name: the exporter's, or that of its first output.
[[nodiscard]] bool is_of(const Location& location, const std::string& name);

// Keys of nodes and values, for graphs after passes.
class NodeKeys {
public:
  explicit NodeKeys(const Graph& graph);
  [[nodiscard]] const std::string& of(NodeId node) const { return by_node_.at(node); }
  [[nodiscard]] std::string of(ValueId value) const; // of a node's result
  [[nodiscard]] bool has(NodeId node) const { return by_node_.contains(node); }
  [[nodiscard]] std::optional<NodeId> node(const std::string& key) const;
  [[nodiscard]] std::optional<ValueId> value(const std::string& key) const;

private:
  const Graph& graph_;
  std::unordered_map<NodeId, std::string> by_node_;
  std::unordered_map<std::string, NodeId> by_key_;
};

namespace fusion {

// Constrained operators that a set of nodes contains, sorted: numbers that are good in one Steering.
using Marks = std::vector<int>;

class Steering {
public:
  // `dropped`: pins that are known not to hold. Adds those that name a node which the graph does not have.
  Steering(const Graph& graph, const FusionConstraints& constraints, std::vector<UnmetPin> dropped = {});

  // ---- apart and break
  [[nodiscard]] Marks marks(NodeId node) const;
  [[nodiscard]] Marks marks(std::span<const NodeId> nodes) const;
  [[nodiscard]] static Marks united(const Marks& a, const Marks& b);
  // Two operators that are in `a` and `b` and must not be in one group, as text; nullopt where there are none.
  [[nodiscard]] std::optional<std::string> conflict(const Marks& a, const Marks& b) const;
  // Whether nothing may be fused across the value, or with the node, and why; null: it may be.
  [[nodiscard]] bool broken(ValueId value) const { return broken_.contains(value.index); }
  [[nodiscard]] const Separation* separation(ValueId value) const;
  [[nodiscard]] const Separation* separation(NodeId node) const;

  // ---- pins; -1 where there is none
  [[nodiscard]] bool has_pins() const { return has_pins_; }
  [[nodiscard]] int pin_of_stage(ValueId value) const;
  [[nodiscard]] int pin_of_call(NodeId structured) const; // of a library call, or of a node that is a group by itself
  [[nodiscard]] bool pinned_as_loops(NodeId structured) const;
  [[nodiscard]] bool contains(int pin, NodeId node) const;
  [[nodiscard]] bool reads(int pin, ValueId value) const { return pin >= 0 && reads_.contains({pin, value.index}); }
  // Whether the value has memory or a unit; nullopt where no pin says.
  [[nodiscard]] std::optional<bool> stored(ValueId value) const;
  [[nodiscard]] const PinnedGroup& pinned(int pin) const { return constraints_.groups[static_cast<size_t>(pin)]; }
  [[nodiscard]] size_t pins() const { return constraints_.groups.size(); }
  [[nodiscard]] bool holds(int pin) const { return pin >= 0 && !why_dropped_[static_cast<size_t>(pin)]; }
  [[nodiscard]] const std::vector<NodeId>& nodes(int pin) const { return nodes_[static_cast<size_t>(pin)]; } // sorted
  // The attention of which these are the parts; -1.
  [[nodiscard]] int attention_of(std::span<const int> parts) const;
  [[nodiscard]] std::vector<UnmetPin> unmet() const;

private:
  void find_breaks();
  void find_detours();
  void find_pins(std::vector<UnmetPin> dropped);
  const Graph& graph_;
  const FusionConstraints& constraints_;
  std::vector<std::string> operators_; // that constraints name, by mark
  std::vector<std::pair<int, int>> apart_;
  std::unordered_map<int32_t, Separation> broken_; // by value
  bool has_pins_ = false;
  std::vector<std::optional<std::string>> why_dropped_;
  std::vector<std::vector<NodeId>> nodes_;
  std::unordered_map<int32_t, int> stage_of_;   // by value
  std::unordered_map<int32_t, int> call_of_;    // by node
  std::unordered_map<int32_t, bool> contained_; // by node: in some group; true: as loops
  std::set<int32_t> read_;                      // values
  std::set<std::pair<int, int32_t>> reads_;     // pin, value
};

} // namespace fusion
} // namespace tessera
