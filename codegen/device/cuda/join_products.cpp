#include "codegen/device/cuda/join_products.h"
#include "codegen/device/cuda/names.h"
#include "codegen/device/cuda/passes.h"
#include "fusion/cost.h"
#include "graph/ops/questions.h"
#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

namespace tessera {
namespace {

// Bytes of weights above which a product is not joined: reading them takes longer than a few launches, and the copy is
// large.
constexpr int64_t kMaxJoinedBytes = int64_t{64} << 20;
constexpr int64_t kMaxBytesOfModel = int64_t{1} << 30;
constexpr int64_t kAccess = 16; // bytes of a vector access of kernels and libraries

// Columns rounded up to a whole vector access.
int64_t aligned_columns(int64_t columns, DType dtype) {
  const int64_t whole = kAccess * 8 / info(dtype).bits;
  return (columns + whole - 1) / whole * whole;
}

// The tensor of a constant node, with or without its data.
const Tensor* tensor_of(const Graph& graph, ValueId value) {
  const Node* node = graph.producer(value);
  const auto* structured = node ? node->op->structured() : nullptr;
  if (!structured || structured->kind != Structured::Constant) return nullptr;
  return node->attributes.get<Tensor>("value");
}

// ---- concatenated constants

// Concatenates matrices along `axis`, or vectors, and pads with zeros to `extent` elements. The result is cached while
// it is in use: variants of a model are compiled separately and have the same weights.
Result<Tensor> side_by_side(const std::vector<Tensor>& parts, size_t axis, int64_t extent) {
  struct Joined {
    std::shared_ptr<std::byte> bytes;
    std::vector<Tensor> parts; // owned, so that their addresses are not reused
  };
  using Key = std::vector<std::pair<const std::byte*, Dims>>;
  static std::mutex mutex;
  static std::map<std::tuple<Key, size_t, int64_t>, std::weak_ptr<const Joined>> made;

  Dims dims = parts[0].dims();
  const auto element = static_cast<size_t>(info(parts[0].dtype()).bits / 8);
  dims[axis] = 0;
  Key key;
  bool known = true;
  for (const auto& part : parts) {
    dims[axis] += part.dims()[axis];
    known = known && has_data(part);
    key.emplace_back(part.data(), part.dims());
  }
  const int64_t zeros = extent - dims[axis];
  dims[axis] = extent;
  TESSERA_ASSIGN(int64_t count, element_count(dims));
  const auto bytes = static_cast<size_t>(byte_size(parts[0].dtype(), count));
  if (!known) return Tensor::view(parts[0].dtype(), dims, {nullptr, nullptr, bytes});

  std::lock_guard lock(mutex);
  std::erase_if(made, [](const auto& entry) { return entry.second.expired(); });
  auto& entry = made[{key, axis, extent}];
  auto joined = entry.lock();
  if (!joined) {
    TESSERA_ASSIGN(auto block, allocate_bytes(bytes));
    size_t inner = element;
    for (size_t d = axis + 1; d < dims.size(); ++d) inner *= static_cast<size_t>(dims[d]);
    const auto runs = static_cast<size_t>(axis == 0 ? 1 : dims[0]); // extent of the dimensions before the axis
    for (size_t r = 0, at = 0; r < runs; ++r) {
      for (const auto& part : parts) {
        size_t n = static_cast<size_t>(part.dims()[axis]) * inner;
        if (n > 0) std::memcpy(block.get() + at, part.data() + r * n, n);
        at += n;
      }
      std::memset(block.get() + at, 0, static_cast<size_t>(zeros) * inner);
      at += static_cast<size_t>(zeros) * inner;
    }
    joined = std::make_shared<const Joined>(Joined{std::move(block), parts});
    entry = joined;
  }
  const std::byte* data = joined->bytes.get();
  return Tensor::view(parts[0].dtype(), dims, {std::move(joined), data, bytes});
}

// ---- candidates

struct Sibling {
  NodeId product;
  ValueId weight; // a constant [K, N], or [N, K] with a transpose
  ValueId bias;   // a constant of N elements, if one is added
  ValueId result; // after the bias and `follows`
  int64_t columns = 0;
  NodeId follows; // an operator with one tensor operand that all siblings have; -1: none
  std::vector<NodeId> replaced;
  bool shared = false; // the weight has other readers
  bool given = false;  // the weight is a run-time input, padded in each call
};
// Common properties of siblings.
struct Kind {
  ValueId operand;
  bool transposed = false;
  bool tf32 = false;   // the products' attribute
  std::string follows; // text of that operator
  auto operator<=>(const Kind&) const = default;
};

class Joiner {
public:
  Joiner(Graph& graph, const CudaLibraries& libraries)
      : graph_(graph), libraries_(libraries), users_(graph.users()), given_(users_.size(), false),
        by_value_(users_.size()), names_(graph) {
    for (const auto& output : graph.outputs()) given_[at(output.value)] = true;
  }

  Result<int> join_families() {
    std::map<Kind, std::vector<Sibling>> families;
    for (NodeId id : graph_.order()) {
      Kind kind;
      auto s = product(id, kind);
      if (s && is_aligned(*s) && joins(*s, kind)) families[kind].push_back(std::move(*s));
    }
    int joined = 0;
    for (const auto& [kind, siblings] : families) {
      if (siblings.size() < 2 || !may_copy(siblings, kMaxJoinedBytes)) continue;
      TESSERA_TRY(join(kind, siblings));
      joined += static_cast<int>(siblings.size()) - 1;
    }
    replace();
    return joined;
  }

  Result<int> pad_each() {
    std::vector<std::pair<Kind, Sibling>> odd;
    for (NodeId id : graph_.order()) {
      Kind kind;
      auto s = product(id, kind);
      if (s && !is_aligned(*s) && gains_by_padding(*s, kind)) odd.emplace_back(kind, std::move(*s));
    }
    int padded = 0;
    for (const auto& [kind, s] : odd) {
      if (!may_copy({s}, kMaxBytesOfModel)) continue;
      TESSERA_TRY(join(kind, {s}));
      ++padded;
    }
    replace();
    return padded;
  }

private:
  [[nodiscard]] bool is_aligned(const Sibling& s) const {
    return s.columns == aligned_columns(s.columns, graph_.type(s.result).dtype);
  }
  // Replaces values by their joined versions.
  void replace() {
    if (replaced_.empty()) return;
    graph_.replace_uses(by_value_);
    for (auto id = replaced_.rbegin(); id != replaced_.rend(); ++id) graph_.remove_node(*id);
    graph_.compact();
  }
  static size_t at(ValueId v) { return static_cast<size_t>(v.index); }
  [[nodiscard]] bool is_view(const Node& node) const {
    return node.op->indexing() && node.op->indexing()->view && !node.operands.empty() && node.results.size() == 1;
  }
  [[nodiscard]] std::optional<NodeId> only_user(ValueId v) const {
    const auto& users = users_[at(v)];
    if (users.size() != 1 || given_[at(v)]) return std::nullopt;
    return users[0];
  }
  [[nodiscard]] bool is_pointwise(const Node& node) const {
    return node.op->pointwise() && node.results.size() == 1 && !node.op->side_effect;
  }

  // True for an operator that must stay recognizable.
  [[nodiscard]] bool is_kept_apart(const Node& node) const {
    const auto& names = libraries_.kept_apart;
    return !names.empty() && (names.contains(node.location.node) || names.contains(node.location.output));
  }

  // A product with a known number of columns, with its bias if weight and bias are constants.
  std::optional<Sibling> product(NodeId id, Kind& kind) const {
    const Node& node = graph_.node(id);
    const auto* structured = node.op->structured();
    if (!structured || structured->kind != Structured::Matmul || !cublaslt_multiplies(graph_, node, libraries_))
      return std::nullopt;
    if (is_kept_apart(node) || node.attributes.i("wide", 0) != 0) return std::nullopt;
    Sibling s{id, node.operands[1], {}, node.results[0], 0, {}, {id}, false, false};
    kind.operand = node.operands[0];
    if (graph_.type(kind.operand).rank() < 2 || tensor_of(graph_, kind.operand)) return std::nullopt;
    auto take = [&](ValueId weight) { // weights with other readers are not joined
      if (only_user(weight))
        s.replaced.insert(s.replaced.begin(), graph_.value(weight).producer);
      else
        s.shared = true;
    };
    const Node* turn = graph_.producer(s.weight);
    kind.tf32 = node.attributes.i("tf32", 0) != 0;
    kind.transposed = turn && graph_.type(s.weight).rank() == 2 && ops::permutation_of(*turn) == Ints{1, 0};
    const ValueId source = kind.transposed ? turn->operands[0] : s.weight;
    const SymShape& shape = graph_.type(source).shape;
    const auto columns = shape.size() == 2 ? shape[kind.transposed ? 0 : 1].as_const() : std::nullopt;
    if (!columns || *columns == 0) return std::nullopt;
    s.columns = *columns;
    s.given = tensor_of(graph_, source) == nullptr;
    if (kind.transposed && !s.given) take(s.weight);
    if (!s.shared && !s.given) take(source);
    s.weight = source;
    if (!s.given) take_bias(s);
    return s;
  }

  // Requirements of a sibling: joining it loses nothing.
  bool joins(Sibling& s, Kind& kind) const {
    return !s.shared && !s.given && take_what_follows(s, kind) && read_by_strides(s.result);
  }

  // True if padding pays: 16-bit elements (tensor cores need aligned rows), aligned rows of the other operand, and a
  // product much larger than the kernel that copies misaligned rows for readers of the result.
  bool gains_by_padding(const Sibling& s, const Kind& kind) const {
    constexpr int64_t kFew = 256;
    const DType dtype = graph_.type(s.result).dtype;
    const SymExpr& summed = graph_.type(kind.operand).shape.back();
    return info(dtype).bits == 16 && s.columns >= kFew && summed.known_divisor() % (kAccess * 8 / 16) == 0 &&
           (!s.given || worth_padding_in_each_call(s, kind));
  }

  // True if a faster product saves more than a copy of the weight and of the result takes in each call.
  bool worth_padding_in_each_call(const Sibling& s, const Kind& kind) const {
    // Fraction of peak multiply-adds that cuBLASLt reaches with misaligned and with padded rows.
    constexpr double kUnaligned = 0.09, kPadded = 0.726;
    const Target& device = libraries_.device;
    const double peak = device.multiprocessors * device.tensor_f16_per_cycle * device.clock_mhz;
    fusion::Estimator estimate(graph_.env());
    const double summed = estimate(graph_.type(kind.operand).shape.back());
    const double rows = estimate(graph_.type(kind.operand).count()) / std::max(summed, 1.0);
    const double columns = static_cast<double>(s.columns), width = info(graph_.type(s.result).dtype).bits / 8.0;
    const double gained = rows * summed * columns / peak * (1 / kUnaligned - 1 / kPadded);
    return gained > 2 * (summed + rows) * columns * width / device.memory_bytes_per_us;
  }

  // True if weights may be stored twice.
  bool may_copy(const std::vector<Sibling>& siblings, int64_t most) {
    int64_t bytes = 0;
    for (const auto& s : siblings) {
      if (s.given) continue;
      const Tensor& weight = *tensor_of(graph_, s.weight);
      bytes += byte_size(weight.dtype(), weight.count());
    }
    if (bytes > most || copied_ + bytes > kMaxBytesOfModel) return false;
    copied_ += bytes;
    return true;
  }

  void take_bias(Sibling& s) const {
    auto user = only_user(s.result);
    if (!user) return;
    const Node& add = graph_.node(*user);
    if (!ops::is(add, ScalarOp::Add) || add.operands[0] == add.operands[1] || is_kept_apart(add)) return;
    ValueId bias = add.operands[add.operands[0] == s.result ? 1 : 0];
    const Tensor* vector = tensor_of(graph_, bias);
    if (!vector || vector->count() != s.columns || vector->dims().empty() || vector->dims().back() != s.columns ||
        graph_.type(add.results[0]).shape != graph_.type(s.result).shape)
      return;
    s.bias = bias;
    s.result = add.results[0];
    s.replaced.push_back(*user);
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
      const Tensor* tensor = tensor_of(graph_, v);
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
    s.replaced.push_back(*user);
    return true;
  }

  // True if all readers of the value, through views, accept strides.
  bool read_by_strides(ValueId value) const {
    if (given_[at(value)]) return false;
    return std::all_of(users_[at(value)].begin(), users_[at(value)].end(), [&](NodeId user) {
      const Node& node = graph_.node(user);
      if (is_view(node)) return read_by_strides(node.results[0]);
      const auto* structured = node.op->structured();
      return !structured || structured->kind == Structured::Matmul;
    });
  }

  // ---- joining
  Status join(const Kind& kind, const std::vector<Sibling>& siblings) {
    std::vector<Tensor> weights, biases;
    int64_t columns = 0;
    bool biased = false;
    const DType dtype = graph_.type(siblings[0].weight).dtype;
    for (const auto& s : siblings) {
      if (!s.given) weights.push_back(*tensor_of(graph_, s.weight));
      biased = biased || s.bias.valid();
      columns += s.columns;
    }
    columns = aligned_columns(columns, dtype);
    const char* suffix = siblings.size() > 1 ? ".joined" : ".padded";
    const int axis = kind.transposed ? 0 : 1;
    const Node first = graph_.node(siblings[0].product);
    ValueId w;
    if (weights.empty()) { // a run-time input
      SymShape none(2, SymExpr(0)), behind = none;
      behind[static_cast<size_t>(axis)] = columns - siblings[0].columns;
      TESSERA_ASSIGN(
          w, graph_.apply("pad", {siblings[0].weight}, {{"pads_begin", none}, {"pads_end", behind}}, first.location));
    } else {
      TESSERA_ASSIGN(Tensor weight, side_by_side(weights, axis, columns));
      w = graph_.add_constant(std::move(weight), names_(graph_.value(siblings[0].weight).name + suffix));
    }
    if (kind.transposed) {
      TESSERA_ASSIGN(w, graph_.apply("transpose", {w}, {{"perm", Ints{1, 0}}}, first.location));
    }
    TESSERA_ASSIGN(ValueId y, graph_.apply("matmul", {kind.operand, w}, tf32_attribute(kind.tf32), first.location));
    if (biased) {
      std::string name;
      for (const auto& s : siblings) {
        if (s.bias.valid()) {
          if (name.empty()) name = graph_.value(s.bias).name;
          biases.push_back(tensor_of(graph_, s.bias)->reshaped({s.columns}));
          continue;
        }
        TESSERA_ASSIGN(Tensor none, Tensor::create(dtype, {s.columns}));
        for (int64_t i = 0; i < s.columns; ++i) none.set_f64(i, -0.0);
        biases.push_back(std::move(none));
      }
      TESSERA_ASSIGN(Tensor bias, side_by_side(biases, 0, columns));
      ValueId b = graph_.add_constant(std::move(bias), names_(name + suffix));
      TESSERA_ASSIGN(y, graph_.apply("add", {y, b}, {}, first.location));
    }
    if (siblings[0].follows.valid()) {
      const Node node = graph_.node(siblings[0].follows);
      std::vector<ValueId> operands = node.operands;
      for (ValueId& v : operands)
        if (v.valid() && !tensor_of(graph_, v)) v = y;
      TESSERA_ASSIGN(y, graph_.apply(node.op->name, operands, node.attributes, node.location));
    }
    int64_t start = 0;
    for (const auto& s : siblings) {
      SymShape starts, sizes = graph_.type(y).shape;
      starts.assign(sizes.size(), SymExpr(0));
      starts.back() = start;
      sizes.back() = s.columns;
      start += s.columns;
      TESSERA_ASSIGN(ValueId part,
                     graph_.apply("slice", {y},
                                  {{"starts", starts}, {"steps", Ints(sizes.size(), 1)}, {"sizes", sizes}},
                                  graph_.node(s.product).location));
      graph_.value(part).name = std::exchange(graph_.value(s.result).name, "");
      by_value_[at(s.result)] = part;
      replaced_.insert(replaced_.end(), s.replaced.begin(), s.replaced.end());
    }
    return {};
  }

  Graph& graph_;
  const CudaLibraries& libraries_;
  std::vector<std::vector<NodeId>> users_; // of the original graph, by value
  std::vector<bool> given_;                // outputs
  std::vector<ValueId> by_value_;          // replacement of each value
  std::vector<NodeId> replaced_;
  NewNames names_;
  int64_t copied_ = 0; // bytes of copied weights
};

} // namespace

Result<int> join_products(Graph& graph, const CudaLibraries& libraries) {
  return Joiner(graph, libraries).join_families();
}

Result<int> pad_products(Graph& graph, const CudaLibraries& libraries) { return Joiner(graph, libraries).pad_each(); }

} // namespace tessera
