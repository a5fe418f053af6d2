#include "graph/ir/graph.h"
#include "graph/ir/operator.h"
#include "graph/ir/sizes.h"
#include <algorithm>
#include <unordered_map>

namespace tessera {

namespace {
constexpr std::string_view kContainers[] = {"sequence", "optional", "map"};
bool same(const std::shared_ptr<const ItemType>& a, const std::shared_ptr<const ItemType>& b) {
  return a == b || (a && b && *a == *b);
}
} // namespace

std::string TensorType::str() const {
  return std::string(tessera::name(dtype)) + (items ? "<" + items->str() + ">" : "") + tessera::str(shape);
}
bool TensorType::operator==(const TensorType& other) const {
  return dtype == other.dtype && shape == other.shape && same(items, other.items);
}

std::string ItemType::str() const {
  std::string out(kContainers[static_cast<size_t>(container)]);
  if (container == Container::Map) out += " " + std::string(tessera::name(keys));
  out += " " + std::string(tessera::name(dtype)) + (items ? "<" + items->str() + ">" : "") + "[";
  for (size_t i = 0; shape && i < shape->size(); ++i)
    out += (i ? ", " : "") + ((*shape)[i] < 0 ? "?" : std::to_string((*shape)[i]));
  return out + (shape ? "]" : "...]");
}
bool ItemType::operator==(const ItemType& other) const {
  return container == other.container && dtype == other.dtype && shape == other.shape && same(items, other.items) &&
         keys == other.keys;
}

std::shared_ptr<const ItemType> item_of(ItemType::Container container, const TensorType& value) {
  auto out = std::make_shared<ItemType>();
  out->container = container;
  out->dtype = value.dtype;
  out->items = value.items;
  out->shape.emplace();
  for (const SymExpr& e : value.shape) out->shape->push_back(e.as_const().value_or(-1));
  return out;
}

// Items of one sequence have one type: two vectors of as many elements of two types are the keys and values of a map.
static bool is_map(const Tensor& list) {
  const auto& items = list.items();
  return items.size() == 2 && items[0].dtype() != items[1].dtype() && items[0].dims().size() == 1 &&
         items[0].dims() == items[1].dims() && (items[0].dtype() == DType::String || is_integer(items[0].dtype())) &&
         items[1].dtype() != DType::List;
}

TensorType type_of(const Tensor& tensor) {
  TensorType out{tensor.dtype(), SymShape(tensor.dims().begin(), tensor.dims().end())};
  if (tensor.dtype() != DType::List) return out;
  if (is_map(tensor)) {
    auto map = std::make_shared<ItemType>();
    map->container = ItemType::Container::Map;
    map->keys = tensor.items()[0].dtype();
    map->dtype = tensor.items()[1].dtype();
    map->shape.emplace(); // values are scalars
    out.items = std::move(map);
    return out;
  }
  for (const Tensor& t : tensor.items()) {
    auto item = item_of(ItemType::Container::Sequence, type_of(t));
    out.items = out.items ? join(*out.items, *item) : item;
  }
  if (!out.items) out.items = std::make_shared<ItemType>();
  return out;
}

std::shared_ptr<const ItemType> join(const ItemType& a, const ItemType& b) {
  if (a.container != b.container || a.dtype != b.dtype || a.keys != b.keys ||
      (a.items == nullptr) != (b.items == nullptr))
    return nullptr;
  auto out = std::make_shared<ItemType>(a);
  if (a.items && (out->items = join(*a.items, *b.items)) == nullptr) return nullptr;
  if (!a.shape || !b.shape || a.shape->size() != b.shape->size()) {
    out->shape.reset();
    return out;
  }
  for (size_t i = 0; i < a.shape->size(); ++i)
    if ((*a.shape)[i] != (*b.shape)[i]) (*out->shape)[i] = -1;
  return out;
}

Node::Node() = default;
Node::Node(const Node&) = default;
Node::Node(Node&&) noexcept = default;
Node& Node::operator=(const Node&) = default;
Node& Node::operator=(Node&&) noexcept = default;
Node::~Node() = default;

Value::Value() = default;
Value::Value(const Value&) = default;
Value::Value(Value&&) noexcept = default;
Value& Value::operator=(const Value&) = default;
Value& Value::operator=(Value&&) noexcept = default;
Value::~Value() = default;

Graph::Graph(std::string name) : Graph(std::move(name), std::make_shared<ShapeEnv>()) {}
Graph::Graph(std::string name, std::shared_ptr<ShapeEnv> env) : name_(std::move(name)), env_(std::move(env)) {}
Graph::Graph(const Graph&) = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(const Graph&) = default;
Graph& Graph::operator=(Graph&&) noexcept = default;
Graph::~Graph() = default;

ValueId Graph::add_input(std::string name, TensorType type) {
  Value v;
  v.type = std::move(type);
  v.name = std::move(name);
  values_.push_back(std::move(v));
  ValueId id{value_count() - 1};
  inputs_.push_back(id);
  return id;
}

void Graph::add_output(std::string name, ValueId value) { outputs_.push_back({std::move(name), value}); }

const Tensor* Graph::constant(ValueId id) const {
  const Node* n = id.valid() ? producer(id) : nullptr;
  if (n == nullptr || n->removed) return nullptr;
  const StructuredOp* structured = n->op->structured();
  if (structured == nullptr || structured->kind != Structured::Constant) return nullptr;
  auto* tensor = n->attributes.get<Tensor>("value");
  return tensor != nullptr && has_data(*tensor) ? tensor : nullptr;
}

// Depth-first from each node in the order they were added, operands and the nodes that define its sizes first: nodes that
// passes appended come right before their first user, everything else stays where it was.
std::vector<NodeId> Graph::order() const {
  std::vector<NodeId> out;
  out.reserve(nodes_.size());
  const SizeDefiners sizes(*this);
  enum : uint8_t { New, Open, Done };
  std::vector<uint8_t> state(nodes_.size(), New);
  struct Frame {
    int32_t node;
    std::vector<int32_t> first; // to come before, last one first
  };
  std::vector<Frame> stack;
  auto open = [&](int32_t node) {
    state[static_cast<size_t>(node)] = Open;
    Frame frame{node, {}};
    // An open producer closes a cycle; verify() reports it as a use before the definition.
    auto before = [&](NodeId p) {
      if (p.valid() && !this->node(p).removed && state[static_cast<size_t>(p.index)] == New)
        frame.first.push_back(p.index);
    };
    for (ValueId v : nodes_[static_cast<size_t>(node)].operands)
      if (v.valid()) before(value(v).producer);
    sizes.needed_by(*this, NodeId{node}, before);
    std::reverse(frame.first.begin(), frame.first.end());
    stack.push_back(std::move(frame));
  };
  for (int32_t start = 0; start < node_count(); ++start) {
    if (nodes_[static_cast<size_t>(start)].removed || state[static_cast<size_t>(start)] != New) continue;
    open(start);
    while (!stack.empty()) {
      Frame& top = stack.back();
      while (!top.first.empty() && state[static_cast<size_t>(top.first.back())] != New) top.first.pop_back();
      if (!top.first.empty()) {
        open(top.first.back());
      } else {
        state[static_cast<size_t>(top.node)] = Done;
        out.push_back(NodeId{top.node});
        stack.pop_back();
      }
    }
  }
  return out;
}

std::vector<std::vector<NodeId>> Graph::users() const {
  std::vector<std::vector<NodeId>> out(values_.size());
  for (int32_t i = 0; i < node_count(); ++i) {
    const Node& n = nodes_[static_cast<size_t>(i)];
    if (n.removed) continue;
    for (ValueId v : n.operands)
      if (v.valid()) out[static_cast<size_t>(v.index)].push_back(NodeId{i});
  }
  return out;
}

void Graph::replace_all_uses(ValueId from, ValueId to) {
  for (Node& n : nodes_)
    if (!n.removed) std::replace(n.operands.begin(), n.operands.end(), from, to);
  for (Output& o : outputs_)
    if (o.value == from) o.value = to;
}

void Graph::replace_uses(const std::vector<ValueId>& by_value) {
  size_t steps = 0;
  auto final_value = [&](ValueId v) {
    steps = 0;
    while (v.valid() && static_cast<size_t>(v.index) < by_value.size() &&
           by_value[static_cast<size_t>(v.index)].valid()) {
      v = by_value[static_cast<size_t>(v.index)];
      TESSERA_CHECK(++steps <= by_value.size(), "replace_uses: the replacements form a cycle");
    }
    return v;
  };
  for (Node& n : nodes_) {
    if (n.removed) continue;
    for (ValueId& v : n.operands) v = final_value(v);
  }
  for (Output& o : outputs_) o.value = final_value(o.value);
}

void Graph::remove_node(NodeId id) { node(id).removed = true; }

} // namespace tessera
