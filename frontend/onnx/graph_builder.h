// GraphProto to Graph: names to values, nodes to operators of the table, functions and decided branches inlined.
//
// Names live in scopes. The body of a function is a scope without an outside; a subgraph (of If, Loop, Scan) sees the
// names around it. A subgraph that becomes a Graph of its own cannot point at values of another Graph: each outer value
// that it reads becomes an input of it, after its own inputs, and an operand of the node, after its own operands. The
// attribute "captures" of the node says how many each subgraph took, in the order of the attributes' names.
#pragma once
#include "frontend/onnx/attributes.h"
#include "frontend/onnx/choices.h"
#include "frontend/onnx/functions.h"
#include "frontend/onnx/opsets.h"
#include "frontend/onnx/types.h"
#include "frontend/onnx/upgrade.h"
#include <deque>
#include <set>
#include <span>
#include <unordered_map>
#include <unordered_set>

namespace tessera::onnx {

// Inlined functions may call each other, and subgraphs nest: bounds on what a small file may cause. A file of a few kB
// may call functions 2^40 times; what it makes beyond its own nodes takes a few seconds to import at most.
inline constexpr int kMaxNesting = 100;
inline constexpr int64_t kMaxInlined = 100'000;

// A Graph under construction. Its values have unique names.
struct PartialGraph {
  Graph& graph;
  std::unordered_set<std::string> names;
  std::vector<ValueId> captured; // values of the outer graph, one for each input after the subgraph's own

  std::string unique(std::string name);
};

// Counts how deep functions and subgraphs are in each other while it lives.
struct Nesting {
  int& depth;
  explicit Nesting(int& d) : depth(d) { ++depth; }
  ~Nesting() { --depth; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;
};

// The prefix for the names of a node's bodies.
[[nodiscard]] inline std::string body_prefix(const Location& where) {
  return (where.node.empty() ? where.output : where.node) + "/";
}

// A scope maps names to values of the graph `into`.
struct Scope {
  PartialGraph& into;
  const Scope* outer = nullptr; // lexically around it
  const Opsets* opsets = nullptr;
  const std::map<std::string_view, BoundAttribute>* function = nullptr; // attributes of the call being inlined
  std::string prefix;                                                   // of node and value names: "call/"
  mutable std::unordered_map<std::string_view, ValueId> values = {};    // mutable: captures are added as they are found
  std::unordered_map<std::string_view, std::string> result_names =
      {}; // of an inlined body: what its results are called outside
  std::unordered_map<std::string_view, const proto::ValueInfoProto*> declared = {};
  std::unordered_set<std::string_view> read = {};    // names that nodes or outputs of the scope read
  std::unordered_set<std::string_view> unknown = {}; // of a survey: names that refused nodes define

  [[nodiscard]] bool is_unknown(std::string_view name) const;
  // Whether `name` is not known, for `as` to stand for it in the other scope.
  [[nodiscard]] bool follow_unknown(std::string_view name, Scope& other, std::string_view as) const;
};

class GraphBuilder {
public:
  GraphBuilder(const ParsedModel& parsed, const ImportOptions& options, WeightLoader& weights, Choices& choices,
               std::string file, ImportedModel& out);
  // The main graph, into the model given.
  [[nodiscard]] Status build();
  // The same, and goes on after each node that cannot be imported (ModelSurvey).
  [[nodiscard]] Status survey(std::vector<RefusedNode>& refused);

private:
  // -- graph_builder.cpp
  Status build_inputs(Scope& scope);
  Status build_outputs(const Scope& scope);
  Status build_undetermined(Scope& scope);
  Status add_initializers(Scope& scope, const proto::GraphProto& graph, bool main);
  Status add_nodes(Scope& scope, const Nodes& nodes);
  Status add_node(Scope& scope, const proto::NodeProto& node);
  Status add_operator(Scope& scope, const proto::NodeProto& node, const BoundAttributes& attributes, Location where);
  Result<const OpDef*> find_operator(std::string_view op_type, std::string_view domain, int opset,
                                     const Location& where);
  int opset_of(const Scope& scope, std::string_view domain);
  void warn_of_initializers(const Scope& scope);
  // `op`: nothing where the operator has old forms only.
  Result<Attributes> operator_attributes(const OpDef* op, bool old_form, const proto::NodeProto& node,
                                         const BoundAttributes& attributes, const Scope& scope,
                                         std::vector<ValueId>& captured, const Location& where);
  Result<std::vector<ValueId>> operands_of(const Scope& scope, const proto::NodeProto& node, const Location& where);
  Status define(Scope& scope, const std::string& name, ValueId value, const Location& where);
  [[nodiscard]] std::string name_of_result(const Scope& scope, const std::string& name) const;
  [[nodiscard]] Location model_location() const;

  // -- inline.cpp
  Status inline_call(Scope& scope, const proto::NodeProto& node, const proto::FunctionProto& function,
                     const BoundAttributes& attributes, const Location& where);
  // The branch that is taken in the place of an If; false where that is not known. `decided`: whether it is the first.
  Result<bool> inline_branch(Scope& scope, const proto::NodeProto& node, const BoundAttributes& attributes,
                             const Location& where, std::optional<int64_t> decided = std::nullopt);
  // A graph of its own, in the environment `env`. Inputs have the types that are given, or are declared; `loop`: the
  // second one holds whenever the graph runs.
  Result<std::shared_ptr<Graph>> subgraph(const Scope& around, std::shared_ptr<ShapeEnv> env,
                                          const proto::GraphProto& graph, const std::string& prefix,
                                          const std::vector<TensorType>& types, bool loop,
                                          std::vector<ValueId>& captured, const Location& where);
  Result<ValueId> lookup(const Scope& scope, const std::string& name, const Location& where);
  const ValueId* find_value(const Scope& scope, std::string_view name);
  Status enter(const Location& where);
  // Counts a node that is imported; UnsupportedFeature once there are kMaxInlined more than the file has.
  Status count(const Location& where);

  // -- control.cpp
  struct Repeat; // a Loop or Scan
  Status add_branches(Scope& scope, const proto::NodeProto& node, const BoundAttributes& attributes,
                      const Location& where);
  // Whether an If here whose branches yield different types is decided by the call.
  [[nodiscard]] bool decides(const Scope& scope) const { return calls_decide_ && &scope.into.graph == &out_.graph; }
  // The branch of an If in the main graph that the condition of the call at hand takes: another call is a miss.
  Status decide_branch(Scope& scope, const proto::NodeProto& node, const BoundAttributes& attributes, ValueId condition,
                       const Location& where);
  // The nodes order[0], an If, to the end: those that read its results become part of both branches.
  Status finish_in_branches(Scope& scope, const Nodes& nodes, std::span<const int> order,
                            const std::unordered_set<std::string_view>& yielded);
  Status add_repeat(Scope& scope, const proto::NodeProto& node, const BoundAttributes& attributes,
                    const Location& where);
  Status build_body(Scope& scope, Repeat& r, const Location& where);
  Result<std::vector<TensorType>> body_types(const Graph& outer, const Repeat& r, ShapeEnv& env, const Location& where);
  std::optional<int64_t> unrolled_trips(const Graph& graph, const Repeat& r) const;
  Status unroll(Scope& scope, const proto::NodeProto& node, const Repeat& r, int64_t trips, const Location& where);
  Result<const BoundAttribute*> graph_attribute(const BoundAttributes& attributes, std::string_view name,
                                                const Scope& scope, const Location& where);
  Status add_control_node(Scope& scope, const proto::NodeProto& node, std::string_view op,
                          std::vector<ValueId> operands, Attributes values, const Location& where);
  // -- flex_attention.cpp
  Status inline_flex_attention(Scope& scope, const proto::NodeProto& node, const BoundAttributes& attributes,
                               const Location& where);
  // Applies the subgraph of that name to a value; the value itself where there is none.
  Result<ValueId> inline_modifier(Scope& scope, const BoundAttributes& attributes, std::string_view name, ValueId input,
                                  const Location& where);

  // -- survey.cpp
  // A node that failed: the error again, unless this is a survey.
  Status refuse(Scope& scope, const proto::NodeProto& node, Diagnostic error);
  void report(const Scope& scope, const proto::NodeProto& node, Diagnostic error);
  // Looks up the operators of a node that reads what is not known, and of the graphs in it.
  void look_up(const Scope& scope, const proto::NodeProto& node);

  const ParsedModel& parsed_;
  const ImportOptions& options_;
  WeightLoader& weights_;
  Choices& choices_;
  std::string file_;
  ImportedModel& out_;
  FunctionTable functions_;
  Opsets opsets_;
  DimensionTable dimensions_;
  std::vector<const proto::ValueInfoProto*> inputs_; // that are no weights
  std::vector<const proto::FunctionProto*> calls_;   // being inlined
  std::set<std::string> not_imported_;               // domains that are used all the same
  std::deque<proto::NodeProto> made_;                // nodes that stand for others; scopes have their names
  // An If that has just been refused as its branches yield tensors of different ranks, or a tensor and a list.
  const proto::NodeProto* open_choice_ = nullptr;
  // True once the branches' results have no common type left, as they are outputs of the model: calls decide.
  bool calls_decide_ = false;
  std::set<std::string, std::less<>> open_outputs_; // of the model: their ranks follow from the call
  int nesting_ = 0;
  // Nodes that were imported, with those of bodies that were built again at other sizes; and those of the file.
  int64_t imported_ = 0, in_file_ = 0;
  std::vector<RefusedNode>* refused_ = nullptr; // of a survey
  bool reads_unknown_ = false;                  // the last error follows from one before
};

} // namespace tessera::onnx
