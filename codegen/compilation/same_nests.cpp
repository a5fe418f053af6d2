#include "codegen/compilation/same_nests.h"
#include <bit>

namespace tessera {
namespace {

class Bytes {
public:
  template <class T>
  void add(T v) {
    static_assert(std::has_unique_object_representations_v<T>);
    text_.append(reinterpret_cast<const char*>(&v), sizeof v);
  }
  void add(const SymExpr& e) { add(reinterpret_cast<uintptr_t>(e.identity())); }
  void add(const TensorType& type) {
    add(type.dtype);
    add(type.shape.size());
    for (const SymExpr& e : type.shape) add(e);
  }
  [[nodiscard]] std::string take() { return std::move(text_); }

private:
  std::string text_;
};

} // namespace

std::optional<size_t> SameNests::find_or_add(const LoopNest& nest, size_t number) {
  Bytes bytes;
  bytes.add(nest.axes.size());
  for (const Axis& a : nest.axes) {
    bytes.add(a.var);
    bytes.add(a.extent);
    bytes.add(a.role);
  }
  bytes.add(nest.loads.size());
  for (ValueId v : nest.loads) bytes.add(graph_.type(v));
  bytes.add(nest.dag.size());
  for (ScalarId id = 0; id < nest.dag.size(); ++id) {
    const ScalarNode& n = nest.dag[id];
    if (n.op == ScalarOp::CheckBounds) return std::nullopt;
    bytes.add(n.op);
    bytes.add(n.dtype);
    bytes.add(n.reduce);
    bytes.add(static_cast<uint8_t>((n.masked ? 1 : 0) | (n.select_last ? 2 : 0)));
    bytes.add(n.operand);
    bytes.add(std::bit_cast<uint64_t>(n.f));
    bytes.add(n.i);
    bytes.add(n.sym);
    bytes.add(n.args.size());
    for (ScalarId a : n.args) bytes.add(a);
  }
  for (const Store& s : nest.stores) {
    bytes.add(graph_.type(s.value));
    bytes.add(static_cast<uint8_t>(s.per_row));
    bytes.add(s.scalar);
    for (ScalarId i : s.index) bytes.add(i);
  }
  auto [it, fresh] = seen_.try_emplace(bytes.take(), number);
  return fresh ? std::nullopt : std::optional(it->second);
}

std::vector<ValueId> buffers_for(const LoopNest& to, const LoopNest& from, std::vector<ValueId> buffers) {
  std::unordered_map<ValueId, ValueId> other;
  for (size_t i = 0; i < from.loads.size(); ++i) other.emplace(from.loads[i], to.loads[i]);
  for (size_t i = 0; i < from.stores.size(); ++i) other.emplace(from.stores[i].value, to.stores[i].value);
  for (ValueId& v : buffers) v = other.at(v);
  return buffers;
}

} // namespace tessera
