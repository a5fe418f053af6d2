#include "codegen/device/cuda/copied_weights.h"
#include "codegen/device/cuda/passes.h"
#include "codegen/device/cuda/product_rewriting.h"
#include "graph/ops/questions.h"
#include "graph/scalar/scalar.h"
#include <algorithm>
#include <cmath>
#include <map>

namespace tessera {
namespace {

bool is_small(DType d) { return d == DType::F8E4M3FN || d == DType::F8E5M2; }

// Numbers of f8e4m3fn above the largest one, 448, that are rounded to it.
constexpr double kRoundedDown = 464;

class SmallFloats : ProductRewriting {
public:
  SmallFloats(Graph& graph, const CudaLibraries& libraries) : ProductRewriting(graph, libraries) {}

  Result<bool> run() {
    if (libraries_.device.tensor_f8_per_cycle <= 0) return false;
    const std::vector<NodeId> order = graph_.order(); // nodes are added behind it
    bool any = false;
    for (NodeId id : order) {
      TESSERA_ASSIGN(const bool changed, convert(id));
      any = any || changed;
    }
    TESSERA_TRY(end());
    return any;
  }

private:
  // Numbers of codes, and codes of numbers that are read as the float type, are casts.
  Result<bool> convert(NodeId id) {
    const Node node = graph_.node(id);
    if (const auto from = ops::decoded_from(node); from && is_small(*from)) {
      if (!is_stored(node.operands[0], *from)) return false;
      TESSERA_ASSIGN(const ValueId numbers, typed(node.operands[0], *from));
      TESSERA_ASSIGN(const ValueId y, cast(numbers, graph_.type(node.results[0]).dtype, node.location));
      replace(node.results[0], y);
      return true;
    }
    if (!ops::is(node, Structured::Alias) || node.operands.empty()) return false;
    const Node* encoding = graph_.producer(node.operands[0]);
    if (encoding == nullptr || ops::encoded_to(*encoding) != graph_.type(node.results[0]).dtype ||
        !is_rounded(*encoding))
      return false;
    TESSERA_ASSIGN(const ValueId y, rounded(*encoding));
    replace(node.results[0], y);
    return true;
  }
  Result<ValueId> cast(ValueId v, DType to, const Location& location) {
    if (graph_.type(v).dtype == to) return v;
    return graph_.apply("cast", {v}, {{"to", to}}, location);
  }

  // True if the codes are those of a stored tensor of 8-bit floats, or of numbers that are rounded to such.
  [[nodiscard]] bool is_stored(ValueId codes, DType from) const {
    const Node* node = graph_.producer(codes);
    if (node == nullptr) return false;
    if (constant_tensor(graph_, codes) != nullptr) return true;
    if (ops::is(*node, Structured::Alias)) return graph_.type(node->operands[0]).dtype == from;
    if (ops::encoded_to(*node)) return ops::encoded_to(*node) == from && is_rounded(*node);
    return is_view(*node) && is_stored(node->operands[0], from);
  }
  // The tensor of 8-bit floats with these codes.
  Result<ValueId> typed(ValueId codes, DType from) {
    const auto [known, fresh] = typed_.try_emplace({codes, from});
    if (!fresh) return known->second;
    TESSERA_ASSIGN(const ValueId made, with_type(codes, from));
    return typed_[{codes, from}] = made;
  }
  Result<ValueId> with_type(ValueId codes, DType from) {
    if (const Tensor* constant = constant_tensor(graph_, codes))
      return graph_.add_constant(constant->reinterpreted(from), names_(graph_.value(codes).name + ".numbers"));
    if (is_stored(codes, from)) {
      const Node node = *graph_.producer(codes);
      if (ops::is(node, Structured::Alias)) return node.operands[0];
      if (ops::encoded_to(node)) return rounded(node);
      std::vector<ValueId> operands = node.operands;
      TESSERA_ASSIGN(operands[0], typed(operands[0], from));
      return graph_.apply(node.op->name, std::move(operands), node.attributes, node.location);
    }
    return graph_.apply("reinterpret", {codes}, {{"to", from}});
  }

  // True if a cast rounds as the node does: casts saturate.
  [[nodiscard]] bool is_rounded(const Node& encoding) const {
    const DType to = *ops::encoded_to(encoding), from = graph_.type(encoding.operands[0]).dtype;
    if (!is_small(to) || !(from == DType::F32 || from == DType::F16 || from == DType::BF16)) return false;
    return to == DType::F8E4M3FN || encoding.attributes.i("saturate", 1) != 0;
  }
  Result<ValueId> rounded(const Node& encoding) {
    const Node node = encoding; // adding nodes moves those of the graph
    const DType to = *ops::encoded_to(node);
    ValueId x = node.operands[0];
    const bool bounded = bound(x, ScalarOp::Min) <= kRoundedDown && bound(x, ScalarOp::Max) >= -kRoundedDown;
    if (node.attributes.i("saturate", 1) == 0 && !bounded) {
      TESSERA_ASSIGN(x, nan_beyond(x, kRoundedDown, node.location));
    }
    return cast(x, to, node.location);
  }
  // x, NaN where its magnitude is above a limit.
  Result<ValueId> nan_beyond(ValueId x, double limit, const Location& location) {
    const DType dtype = graph_.type(x).dtype;
    auto constant = [&](double v) -> Result<ValueId> {
      TESSERA_ASSIGN(Tensor t, Tensor::create(dtype, {}));
      t.set_f64(0, v);
      return graph_.add_constant(std::move(t));
    };
    auto apply = [&](ScalarOp op, std::vector<ValueId> operands) {
      return graph_.apply(info(op).name, std::move(operands), {}, location);
    };
    TESSERA_ASSIGN(const ValueId most, constant(limit));
    TESSERA_ASSIGN(const ValueId nan, constant(std::nan("")));
    TESSERA_ASSIGN(const ValueId magnitude, apply(ScalarOp::Abs, {x}));
    TESSERA_ASSIGN(const ValueId inside, apply(ScalarOp::Le, {magnitude, most}));
    return apply(ScalarOp::Select, {inside, x, nan});
  }
  // An upper bound of a value (by: Min) or a lower one (Max); infinite where none is known.
  [[nodiscard]] double bound(ValueId v, ScalarOp by) const {
    const double none = by == ScalarOp::Min ? INFINITY : -INFINITY;
    if (const Tensor* constant = constant_tensor(graph_, v))
      return constant->count() == 1 && has_data(*constant) ? constant->get_f64(0) : none;
    const Node* node = graph_.producer(v);
    if (node == nullptr || (!ops::is(*node, ScalarOp::Min) && !ops::is(*node, ScalarOp::Max))) return none;
    const double a = bound(node->operands[0], by), b = bound(node->operands[1], by);
    return ops::is(*node, ScalarOp::Min) ? std::min(a, b) : std::max(a, b);
  }

  std::map<std::pair<ValueId, DType>, ValueId> typed_; // by codes
};

} // namespace

Result<bool> small_floats(Graph& graph, const CudaLibraries& libraries) { return SmallFloats(graph, libraries).run(); }

} // namespace tessera
