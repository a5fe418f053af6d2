// cse: nodes that apply one operator with equal attributes to the same operands become one.
#include "graph/passes/passes.h"
#include <algorithm>
#include <cstring>
#include <unordered_map>

namespace tessera::passes {
namespace {
// A node's operator, attributes and operands as bytes: equal for nodes that compute the same. Keys are valid within one
// process only, since they contain addresses of interned objects; nothing is iterated in their order.
class Key {
public:
  template <class T>
  void number(T v) {
    bytes.append(reinterpret_cast<const char*>(&v), sizeof v);
  }
  void text(std::string_view s) {
    number(s.size());
    bytes.append(s);
  }
  template <class T>
  void list(const std::vector<T>& xs) {
    number(xs.size());
    for (const T& x : xs) {
      if constexpr (std::is_same_v<T, std::string>)
        text(x);
      else if constexpr (std::is_same_v<T, SymExpr>)
        number(x.identity());
      else
        number(x);
    }
  }
  // Small tensors by their bytes; large ones, which stay unread, by where they are.
  bool tensor(const Tensor& t) {
    constexpr size_t kSmall = 256;
    if (!has_data(t)) return false;
    number(t.dtype());
    list(t.dims());
    if (!has_bytes(t.dtype()))
      list(t.string_values());
    else if (t.bytes() <= kSmall)
      text({reinterpret_cast<const char*>(t.data()), t.bytes()});
    else
      number(t.data());
    return true;
  }
  bool attribute(const Attribute& a) {
    number(a.index());
    return std::visit(
        [&](const auto& v) {
          using T = std::decay_t<decltype(v)>;
          if constexpr (std::is_same_v<T, Tensor>)
            return tensor(v);
          else if constexpr (std::is_same_v<T, std::shared_ptr<Graph>>)
            return false;
          else if constexpr (std::is_same_v<T, std::string>)
            text(v);
          else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>)
            number(v);
          else
            list(v);
          return true;
        },
        a);
  }
  std::string bytes;
};

bool commutes(std::string_view op) {
  for (std::string_view name : {"add", "mul", "and", "or", "xor", "eq", "ne"})
    if (op == name) return true;
  return false;
}

// nullopt for nodes that are like no other.
std::optional<std::string> key_of(const Node& node) {
  if (node.op->side_effect || node.op->data_dependent_shape) return std::nullopt;
  Key key;
  key.number(node.op);
  key.number(node.opset);
  std::vector<ValueId> operands = node.operands;
  if (commutes(node.op->name)) std::sort(operands.begin(), operands.end());
  key.number(operands.size());
  for (ValueId v : operands) key.number(v.index);
  key.number(node.results.size());
  for (ValueId v : node.results) key.number(v.valid());
  for (const auto& [name, attribute] : node.attributes.items()) {
    key.text(name);
    if (!key.attribute(attribute)) return std::nullopt;
  }
  return std::move(key.bytes);
}
} // namespace

Result<bool> cse(Graph& graph, const PassOptions&) {
  std::unordered_map<std::string, NodeId> seen;
  return Sweep(graph).run([&](NodeId id) -> Result<std::vector<ValueId>> {
    std::optional<std::string> key = key_of(graph.node(id));
    if (!key) return std::vector<ValueId>{};
    auto [it, fresh] = seen.emplace(std::move(*key), id);
    if (fresh) return std::vector<ValueId>{};
    // Sizes may be spelled in two ways that are not known to be equal: then the users' types would change.
    const Node &first = graph.node(it->second), &node = graph.node(id);
    for (size_t r = 0; r < node.results.size(); ++r)
      if (node.results[r].valid() && !(graph.type(first.results[r]) == graph.type(node.results[r])))
        return std::vector<ValueId>{};
    return first.results;
  });
}

} // namespace tessera::passes
