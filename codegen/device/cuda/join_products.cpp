#include "codegen/device/cuda/join_products.h"
#include "codegen/device/cuda/copied_weights.h"
#include "codegen/device/cuda/passes.h"
#include "codegen/device/cuda/product_rewriting.h"
#include "graph/ops/questions.h"
#include <algorithm>
#include <map>

namespace tessera {
namespace {

// Bytes of weights above which a product is not joined: reading them takes longer than a few launches, and the copy is
// large.
constexpr int64_t kMaxJoinedBytes = int64_t{64} << 20;

// ---- candidates

struct Sibling {
  NodeId product;
  ValueId weight; // a constant [K, N], or [N, K] with a transpose
  ValueId bias;   // a constant of N elements, if one is added
  ValueId result; // after the bias and `follows`
  int64_t columns = 0;
  NodeId follows;      // an operator with one tensor operand that all siblings have; -1: none
  bool shared = false; // the weight has other readers
};
// Common properties of siblings.
struct Kind {
  ValueId operand;
  bool transposed = false;
  bool tf32 = false;   // the products' attribute
  std::string follows; // text of that operator
  auto operator<=>(const Kind&) const = default;
};

class Joiner : ProductRewriting {
public:
  Joiner(Graph& graph, const CudaLibraries& libraries) : ProductRewriting(graph, libraries) {}

  Result<int> join_families() {
    std::map<Kind, std::vector<Sibling>> families;
    for (NodeId id : graph_.order()) {
      Kind kind;
      auto s = product(id, kind);
      if (s && is_aligned(*s) && joins(*s, kind)) families[kind].push_back(std::move(*s));
    }
    int joined = 0;
    for (const auto& [kind, siblings] : families) {
      if (siblings.size() < 2 || !may_copy(siblings)) continue;
      TESSERA_TRY(join(kind, siblings));
      joined += static_cast<int>(siblings.size()) - 1;
    }
    TESSERA_TRY(end());
    return joined;
  }

private:
  // Columns are whole vector accesses.
  [[nodiscard]] bool is_aligned(const Sibling& s) const {
    return s.columns * info(graph_.type(s.result).dtype).bits % (libraries_.device.access_bytes * 8) == 0;
  }
  [[nodiscard]] std::optional<NodeId> only_user(ValueId v) const {
    if (users(v).size() != 1 || is_output(v)) return std::nullopt;
    return users(v)[0];
  }
  [[nodiscard]] bool is_pointwise(const Node& node) const {
    return node.op->pointwise() && node.results.size() == 1 && !node.op->side_effect;
  }

  // A product with a known number of columns, with its bias if weight and bias are constants.
  std::optional<Sibling> product(NodeId id, Kind& kind) const {
    const Node& node = graph_.node(id);
    if (!is_product(id) || !cublaslt_multiplies(graph_, node, libraries_)) return std::nullopt;
    if (is_kept_apart(node) || node.attributes.i("wide", 0) != 0) return std::nullopt;
    Sibling s{id, node.operands[1], {}, node.results[0], 0, {}, false};
    kind.operand = node.operands[0];
    if (graph_.type(kind.operand).rank() < 2 || constant_tensor(graph_, kind.operand)) return std::nullopt;
    const Node* turn = graph_.producer(s.weight);
    kind.tf32 = node.attributes.i("tf32", 0) != 0;
    kind.transposed = turn && graph_.type(s.weight).rank() == 2 && ops::permutation_of(*turn) == Ints{1, 0};
    const ValueId source = kind.transposed ? turn->operands[0] : s.weight;
    const SymShape& shape = graph_.type(source).shape;
    const auto columns = shape.size() == 2 ? shape[kind.transposed ? 0 : 1].as_const() : std::nullopt;
    if (!columns || *columns == 0) return std::nullopt;
    s.columns = *columns;
    if (constant_tensor(graph_, source) == nullptr) return std::nullopt;
    s.shared = (kind.transposed && !only_user(s.weight)) || !only_user(source);
    s.weight = source;
    take_bias(s);
    return s;
  }

  // Requirements of a sibling: joining it loses nothing.
  bool joins(Sibling& s, Kind& kind) const {
    return !s.shared && take_what_follows(s, kind) && read_by_strides(s.result);
  }

  // True if the weights may be stored twice.
  bool may_copy(const std::vector<Sibling>& siblings) {
    int64_t bytes = 0;
    for (const auto& s : siblings) {
      const Tensor& weight = *constant_tensor(graph_, s.weight);
      bytes += byte_size(weight.dtype(), weight.count());
    }
    return bytes <= kMaxJoinedBytes && ProductRewriting::may_copy(bytes);
  }

  void take_bias(Sibling& s) const {
    auto user = only_user(s.result);
    if (!user) return;
    const Node& add = graph_.node(*user);
    if (!ops::is(add, ScalarOp::Add) || add.operands[0] == add.operands[1] || is_kept_apart(add)) return;
    ValueId bias = add.operands[add.operands[0] == s.result ? 1 : 0];
    const Tensor* vector = constant_tensor(graph_, bias);
    if (!vector || vector->count() != s.columns || vector->dims().empty() || vector->dims().back() != s.columns ||
        graph_.type(add.results[0]).shape != graph_.type(s.result).shape)
      return;
    s.bias = bias;
    s.result = add.results[0];
  }

  // The epilogue that a library fuses: a unary or scalar operator is joined if all siblings have it; an addition of
  // another tensor needs the whole result.
  bool take_what_follows(Sibling& s, Kind& kind) const {
    ValueId value = s.result;
    auto user = only_user(value);
    while (user && is_view(graph_.node(*user))) {
      value = graph_.node(*user).results[0];
      user = only_user(value);
    }
    if (!user || !is_pointwise(graph_.node(*user))) return true;
    const Node& node = graph_.node(*user);
    if (is_kept_apart(node)) return true; // it stays as it is
    bool alone = true;
    std::string text(node.op->name);
    for (ValueId v : node.operands) {
      if (!v.valid() || v == value) {
        text += v == value ? " ." : " -";
        continue;
      }
      const Tensor* tensor = constant_tensor(graph_, v);
      alone = alone && tensor && tensor->count() == 1;
      text += " " + std::to_string(v.index);
    }
    if (!alone) return !ops::is(node, ScalarOp::Add);
    // A product that reads the sum applies the factor to it.
    if (ops::is(node, ScalarOp::Mul) || ops::is(node, ScalarOp::Div)) return true;
    if (value != s.result || !node.attributes.items().empty() || graph_.type(node.results[0]) != graph_.type(value))
      return false;
    kind.follows = text;
    s.follows = *user;
    s.result = node.results[0];
    return true;
  }

  // ---- joining
  Status join(const Kind& kind, const std::vector<Sibling>& siblings) {
    std::vector<Tensor> weights, biases;
    int64_t columns = 0;
    bool biased = false;
    const DType dtype = graph_.type(siblings[0].weight).dtype;
    for (const auto& s : siblings) {
      weights.push_back(*constant_tensor(graph_, s.weight));
      biased = biased || s.bias.valid();
      columns += s.columns;
    }
    const size_t axis = kind.transposed ? 0 : 1;
    Dims dims = weights[0].dims();
    dims[axis] = columns;
    const Node first = graph_.node(siblings[0].product);
    TESSERA_ASSIGN(Tensor weight, copied_weights(weights, axis, std::move(dims)));
    ValueId w = graph_.add_constant(std::move(weight), names_(graph_.value(siblings[0].weight).name + ".joined"));
    if (kind.transposed) {
      TESSERA_ASSIGN(w, graph_.apply("transpose", {w}, {{"perm", Ints{1, 0}}}, first.location));
    }
    TESSERA_ASSIGN(ValueId y, graph_.apply("matmul", {kind.operand, w}, tf32_attribute(kind.tf32), first.location));
    if (biased) {
      std::string name;
      for (const auto& s : siblings) {
        if (s.bias.valid()) {
          if (name.empty()) name = graph_.value(s.bias).name;
          biases.push_back(constant_tensor(graph_, s.bias)->reshaped({s.columns}));
          continue;
        }
        TESSERA_ASSIGN(Tensor none, Tensor::create(dtype, {s.columns}));
        for (int64_t i = 0; i < s.columns; ++i) none.set_f64(i, -0.0);
        biases.push_back(std::move(none));
      }
      TESSERA_ASSIGN(Tensor bias, copied_weights(biases, 0, {columns}));
      ValueId b = graph_.add_constant(std::move(bias), names_(name + ".joined"));
      TESSERA_ASSIGN(y, graph_.apply("add", {y, b}, {}, first.location));
    }
    if (siblings[0].follows.valid()) {
      const Node node = graph_.node(siblings[0].follows);
      std::vector<ValueId> operands = node.operands;
      for (ValueId& v : operands)
        if (v.valid() && !constant_tensor(graph_, v)) v = y;
      TESSERA_ASSIGN(y, graph_.apply(node.op->name, operands, node.attributes, node.location));
    }
    int64_t start = 0;
    for (const auto& s : siblings) {
      SymShape starts, sizes = graph_.type(y).shape;
      starts.assign(sizes.size(), SymExpr(0));
      starts.back() = start;
      sizes.back() = s.columns;
      start += s.columns;
      TESSERA_ASSIGN(ValueId part, slice(y, std::move(starts), std::move(sizes), graph_.node(s.product).location));
      replace(s.result, part);
    }
    return {};
  }
};

} // namespace

Result<int> join_products(Graph& graph, const CudaLibraries& libraries) {
  return Joiner(graph, libraries).join_families();
}

} // namespace tessera
