// Graph IR: tensor operators in SSA form, with symbolic shapes.
//
// Semantics. A Graph is a list of nodes in topological order. A node applies an operator (operator.h) to operand values
// and defines result values. Values are immutable tensors. There are no side effects except of operators marked so
// (random numbers). Floating point is IEEE: x - x is not 0, x * 0 is not 0, max keeps NaN; integers wrap. Ids are dense
// indices and stay valid until compact(); a removed node's id is not reused before that.
#pragma once
#include "base/tensor.h"
#include "graph/ir/attribute.h"
#include "symbols/env.h"
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tessera {

struct OpDef; // operator.h

struct ValueId {
  int32_t index = -1;
  [[nodiscard]] bool valid() const { return index >= 0; }
  auto operator<=>(const ValueId&) const = default;
};
struct NodeId {
  int32_t index = -1;
  [[nodiscard]] bool valid() const { return index >= 0; }
  auto operator<=>(const NodeId&) const = default;
};

// False for the weights of a graph whose text was written without data: such a tensor has a dtype and dims only.
[[nodiscard]] inline bool has_data(const Tensor& t) {
  return t.data() != nullptr || !has_bytes(t.dtype()) || (t.count() == 0 && !t.dims().empty());
}

// The type that the items of a List have in common.
struct ItemType {
  enum class Container : uint8_t { Sequence, Optional, Map } container = Container::Sequence;
  DType dtype = DType::F32;  // of an item; of a map's values
  std::optional<Dims> shape; // of every item, -1 where they differ or it is not known; nothing: not even the rank
  std::shared_ptr<const ItemType> items; // of items that are Lists
  DType keys = DType::I64;               // of a map
  [[nodiscard]] std::string str() const; // "sequence f32[?, 4]"
  bool operator==(const ItemType& other) const;
};
struct TensorType {
  DType dtype = DType::F32;
  SymShape shape;
  std::shared_ptr<const ItemType> items = nullptr; // of a List, whose shape is its length
  [[nodiscard]] int rank() const { return static_cast<int>(shape.size()); }
  [[nodiscard]] SymExpr count() const { return product(shape); }
  [[nodiscard]] std::string str() const; // "f16[b, s, 768]", "list<sequence f32[?, 4]>[n]"
  bool operator==(const TensorType& other) const;
};

// The type of an item that is a value of this type, in a container.
[[nodiscard]] std::shared_ptr<const ItemType> item_of(ItemType::Container container, const TensorType& value);
// The type of a tensor; items of a List are those of a sequence.
[[nodiscard]] TensorType type_of(const Tensor& tensor);
// The most exact type that items of both types have; null where a container or dtype differs.
[[nodiscard]] std::shared_ptr<const ItemType> join(const ItemType& a, const ItemType& b);

struct Value {
  TensorType type;
  std::string name; // from the source, unique in the graph after import; may be empty for temporaries
  NodeId producer;  // invalid for graph inputs
  int result = 0;   // which result of the producer
  // The sizes as they were stated, where simplify_shapes() has written them another way (m where m was found to be n):
  // the symbols that a call binds. Only of values that define symbols: graph inputs, and results whose sizes depend on
  // data.
  std::optional<SymShape> declared;
  // Contents of a small integer tensor (dimension arithmetic) where they are known, row-major, count() of them.
  std::optional<std::vector<SymExpr>> contents;
  Value();
  Value(const Value&);
  Value(Value&&) noexcept;
  Value& operator=(const Value&);
  Value& operator=(Value&&) noexcept;
  ~Value();
};

struct Node {
  const OpDef* op = nullptr;
  std::vector<ValueId> operands; // an invalid id stands for an optional operand that is left out
  std::vector<ValueId> results;  // an invalid id stands for an optional result that is unused
  Attributes attributes;
  Location location; // where in the source it came from
  int opset = 0;     // version of its source domain; 0 for our own operators
  bool removed = false;
  Node();
  Node(const Node&);
  Node(Node&&) noexcept;
  Node& operator=(const Node&);
  Node& operator=(Node&&) noexcept;
  ~Node();
};

class Graph {
public:
  explicit Graph(std::string name = "main");
  // With an environment that others have, too: that of the graph around a subgraph of If, Loop, Scan, or an inner() one.
  Graph(std::string name, std::shared_ptr<ShapeEnv> env);
  Graph(const Graph&);
  Graph(Graph&&) noexcept;
  Graph& operator=(const Graph&);
  Graph& operator=(Graph&&) noexcept;
  ~Graph();

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] ShapeEnv& env() { return *env_; }
  [[nodiscard]] const ShapeEnv& env() const { return *env_; }
  [[nodiscard]] const std::shared_ptr<ShapeEnv>& shared_env() const { return env_; }

  ValueId add_input(std::string name, TensorType type);
  void add_output(std::string name, ValueId value); // a value may be several outputs
  // A constant node. Small integer tensors get `contents`.
  ValueId add_constant(Tensor value, std::string name = "");
  // Appends a node, infers its result types and contents (graph/infer) and defines its results. `result_names` gives
  // the number of results wanted ("" for an unnamed one). Errors carry `location`.
  Result<NodeId> add_node(const OpDef& op, std::vector<ValueId> operands, Attributes attributes, Location location = {},
                          std::vector<std::string> result_names = {""}, int opset = 0);
  // The same for operators with one result, by name of the operator (a name that is not defined is a bug).
  Result<ValueId> apply(std::string_view op, std::vector<ValueId> operands, Attributes attributes = {},
                        Location location = {});

  // The value as a node `read` yields it, whose contents are `symbols`; the value itself where its contents are known.
  Result<ValueId> read(ValueId value, std::span<const SymExpr> symbols, const Location& location);

  [[nodiscard]] const Node& node(NodeId id) const { return nodes_[static_cast<size_t>(id.index)]; }
  [[nodiscard]] Node& node(NodeId id) { return nodes_[static_cast<size_t>(id.index)]; }
  [[nodiscard]] const Value& value(ValueId id) const { return values_[static_cast<size_t>(id.index)]; }
  [[nodiscard]] Value& value(ValueId id) { return values_[static_cast<size_t>(id.index)]; }
  [[nodiscard]] const TensorType& type(ValueId id) const { return value(id).type; }
  // The sizes as stated: what a call is bound to and checked against. Equal to the type's under the environment's
  // guards.
  [[nodiscard]] const SymShape& declared_shape(ValueId id) const {
    return value(id).declared ? *value(id).declared : value(id).type.shape;
  }
  [[nodiscard]] const Node* producer(ValueId id) const {
    auto p = value(id).producer;
    return p.valid() ? &node(p) : nullptr;
  }
  // The tensor when the value is a constant or weight that has its data, else nullptr.
  [[nodiscard]] const Tensor* constant(ValueId id) const;

  [[nodiscard]] int node_count() const { return static_cast<int>(nodes_.size()); } // with removed ones
  [[nodiscard]] int value_count() const { return static_cast<int>(values_.size()); }
  // Live nodes in topological order.
  [[nodiscard]] std::vector<NodeId> order() const;
  struct Output {
    std::string name;
    ValueId value;
  };
  [[nodiscard]] const std::vector<ValueId>& inputs() const { return inputs_; }
  [[nodiscard]] const std::vector<Output>& outputs() const { return outputs_; }
  [[nodiscard]] std::vector<Output>& outputs() { return outputs_; }

  // Nodes that read each value (a node once per operand position), indexed by value; outputs are not in it.
  [[nodiscard]] std::vector<std::vector<NodeId>> users() const;
  void replace_all_uses(ValueId from, ValueId to); // operands and outputs; one sweep over the graph: many at once below
  // The same for many values in one sweep: `by_value[v]` replaces v where it is valid; chains are followed. Shorter
  // than value_count() is fine.
  void replace_uses(const std::vector<ValueId>& by_value);
  void remove_node(NodeId id); // its results must be unused
  // Rebuilds without removed nodes and unused values, sorted topologically, ids renumbered in order.
  void compact();
  // A copy with an environment of its own (copies of a Graph share it), subgraphs included.
  [[nodiscard]] Graph clone() const;
  // Simplifies every shape and symbolic attribute by what the environment has learnt. Values that define symbols keep
  // the declared sizes as well as the simplified ones.
  void simplify_shapes();

private:
  void set_env(std::shared_ptr<ShapeEnv> env); // copies subgraphs; those of this environment get the same
  std::string name_;
  std::shared_ptr<ShapeEnv> env_;
  std::vector<Node> nodes_;
  std::vector<Value> values_;
  std::vector<ValueId> inputs_;
  std::vector<Output> outputs_;
};

// Checks the IR: operands defined before use, attributes as the operator's record says, types equal to what inference
// yields, names unique. Error Internal with the node. Run after every pass in debug builds and on request.
[[nodiscard]] Status verify(const Graph& graph);

// Text form (docs/graph-ir.md). Large constants are printed as weights: by name, type and content hash unless
// `with_data`; a graph printed without data parses to one whose weights have no data (fine for the golden tests of
// passes).
//   graph @main(%x: f16[b, s, 768], %r: f16[b, s, 768]) -> (%y: f16[b, s, 768]) where b in [1, ?], s in [1, 512] {
//     %encoder.norm.weight = weight #5d3c… : f16[768]
//     %two = constant {2} : f16[]
//     %z = add(%x, %r) : f16[b, s, 768]   // Add_12
//     %t = transpose(%z) perm=[0, 2, 1] : f16[b, 768, s]
//   }
[[nodiscard]] std::string print(const Graph& graph, bool with_data = false);
[[nodiscard]] Result<Graph> parse_graph(std::string_view text, const std::string& file = "<text>");

} // namespace tessera

template <>
struct std::hash<tessera::ValueId> {
  size_t operator()(tessera::ValueId v) const { return static_cast<size_t>(v.index); }
};
template <>
struct std::hash<tessera::NodeId> {
  size_t operator()(tessera::NodeId v) const { return static_cast<size_t>(v.index); }
};
