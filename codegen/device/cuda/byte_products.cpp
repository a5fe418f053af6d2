// Products of 8-bit numbers: f8e4m3fn and f8e5m2, i8 and u8.
//
//   x = (X - p) * s     of stored elements X, a zero point p of integers and a scale s
//   y = (Y - q) * t
//   sum of x y = (sum of X Y - p * sum of Y - q * sum of X + depth * p * q) * s * t
//
// where p, s, q and t do not vary along the sum. In i32, which wraps, this is exact. In floats the sums have more bits than
// the model's own, as X and Y are multiplied without an error, and every scale is applied once.
#include "codegen/device/cuda/copied_weights.h"
#include "codegen/device/cuda/passes.h"
#include "codegen/device/cuda/product_rewriting.h"
#include "codegen/layout/tensor_access.h"
#include "graph/ops/questions.h"
#include "graph/passes/pass.h"
#include "graph/scalar/scalar.h"
#include <algorithm>
#include <numeric>

namespace tessera {
namespace {

bool is_byte_float(DType d) { return d == DType::F8E4M3FN || d == DType::F8E5M2; }
bool is_byte_integer(DType d) { return d == DType::I8 || d == DType::U8; }
bool is_wide_float(DType d) { return d == DType::F32 || d == DType::F16 || d == DType::BF16; }

// Sums of so many products of differences of 8-bit integers fit i32.
constexpr int64_t kExactDepth = (int64_t{1} << 31) / (255 * 255);

class ByteProducts : ProductRewriting {
public:
  ByteProducts(Graph& graph, const CudaLibraries& libraries) : ProductRewriting(graph, libraries) {}

  Result<bool> run() {
    const std::set<NodeId> attentions = this->attentions();
    const std::vector<NodeId> order = graph_.order(); // nodes are added behind it
    bool any = false, left = false;
    for (NodeId id : order) {
      if (!is_product(id) || attentions.contains(id) || !is_found(graph_.node(id))) continue;
      TESSERA_ASSIGN(const bool changed, multiply(graph_.node(id)));
      (changed ? any : left) = true;
    }
    TESSERA_TRY(end());
    if (left) TESSERA_TRY(find_graph_pass("dce")->run(graph_, {})); // factors of products that stay
    return any;
  }

private:
  // A number that a factor is multiplied with, or divided by, in the dimensions of the factor.
  struct Scale {
    ValueId value;
    ScalarOp op;
  };
  struct Factor {
    ValueId value; // of 8 bits
    ValueId zero;  // of integers: i32 in the dimensions of the factor, or none
    std::vector<Scale> scales;
  };

  [[nodiscard]] DType dtype(ValueId v) const { return graph_.type(v).dtype; }
  [[nodiscard]] static int sum_axis(const TensorType& type, size_t operand) {
    return type.rank() - (operand == 0 ? 1 : 2);
  }

  // ---- which products
  [[nodiscard]] bool is_found(const Node& node) const {
    if (is_kept_apart(node) || node.attributes.i("wide", 0) != 0) return false;
    std::array<DType, 2> stored{};
    for (const size_t i : {size_t{0}, size_t{1}}) {
      const TensorType& type = graph_.type(node.operands[i]);
      const auto found = factor_dtype(node.operands[i], sum_axis(type, i));
      if (!found) return false;
      stored[i] = *found;
    }
    if (is_byte_float(stored[0]) != is_byte_float(stored[1])) return false;
    if (is_byte_float(stored[0])) return libraries_.device.tensor_f8_per_cycle > 0;
    const auto depth = graph_.type(node.operands[0]).shape.back().as_const();
    return libraries_.device.tensor_i8_per_cycle > 0 &&
           (dtype(node.results[0]) == DType::I32 || (depth && *depth <= kExactDepth));
  }
  // The operand of a node that has all its elements where the other one is constant along `axis`: either of a product, the
  // first one of another operator. -1: there is none.
  [[nodiscard]] int whole_operand(const Node& node, ScalarOp op, int axis) const {
    if (!ops::is(node, op)) return -1;
    const SymShape& all = graph_.type(node.results[0]).shape;
    for (const int i : {0, 1}) {
      const SymShape &x = graph_.type(node.operands[static_cast<size_t>(i)]).shape,
                     &other = graph_.type(node.operands[static_cast<size_t>(1 - i)]).shape;
      const int at = axis - static_cast<int>(all.size() - other.size());
      const bool constant = at < 0 || other[static_cast<size_t>(at)].is_const(1);
      if (x == all && constant && (op == ScalarOp::Mul || i == 0)) return i;
    }
    return -1;
  }
  [[nodiscard]] int scaled_operand(const Node& node, int axis) const {
    const int product = whole_operand(node, ScalarOp::Mul, axis);
    return product >= 0 ? product : whole_operand(node, ScalarOp::Div, axis);
  }
  // The dtype of the stored elements of a factor of this form; nothing for another value.
  [[nodiscard]] std::optional<DType> factor_dtype(ValueId v, int axis) const {
    const Node* node = graph_.producer(v);
    if (node == nullptr) return std::nullopt;
    if (ops::is(*node, ScalarOp::Cast)) {
      const DType from = dtype(node->operands[0]), to = dtype(v);
      if (is_byte_float(from)) return is_wide_float(to) ? std::optional(from) : std::nullopt;
      if (is_byte_integer(from)) return is_wide_float(to) || to == DType::I32 ? std::optional(from) : std::nullopt;
      if (!is_wide_float(to) || !(is_wide_float(from) || from == DType::I32)) return std::nullopt;
      return factor_dtype(node->operands[0], axis);
    }
    if (const Ints permutation = ops::permutation_of(*node); !permutation.empty())
      return factor_dtype(node->operands[0], static_cast<int>(permutation[static_cast<size_t>(axis)]));
    if (dtype(v) == DType::I32 && whole_operand(*node, ScalarOp::Sub, axis) == 0) {
      const Node* shifted = graph_.producer(node->operands[0]); // one zero point
      if (shifted == nullptr || ops::is(*shifted, ScalarOp::Sub)) return std::nullopt;
      return factor_dtype(node->operands[0], axis);
    }
    const int scaled = is_wide_float(dtype(v)) ? scaled_operand(*node, axis) : -1;
    return scaled < 0 ? std::nullopt : factor_dtype(node->operands[static_cast<size_t>(scaled)], axis);
  }

  // ---- their factors
  Result<ValueId> apply(std::string_view op, std::vector<ValueId> operands, Attributes attributes = {}) {
    return graph_.apply(op, std::move(operands), std::move(attributes), location_);
  }
  Result<ValueId> apply(ScalarOp op, ValueId a, ValueId b) { return apply(info(op).name, {a, b}); }
  Result<ValueId> cast(ValueId v, DType to) {
    if (dtype(v) == to) return v;
    return apply("cast", {v}, {{"to", to}});
  }
  Result<Factor> factor(ValueId v, int axis) {
    const Node node = *graph_.producer(v); // adding nodes moves those of the graph
    if (ops::is(node, ScalarOp::Cast)) {
      const DType from = dtype(node.operands[0]);
      if (is_byte_float(from) || is_byte_integer(from)) return Factor{node.operands[0], {}, {}};
      return factor(node.operands[0], axis);
    }
    if (const Ints permutation = ops::permutation_of(node); !permutation.empty()) {
      TESSERA_ASSIGN(Factor f, factor(node.operands[0], static_cast<int>(permutation[static_cast<size_t>(axis)])));
      TESSERA_ASSIGN(f.value, apply(node.op->name, {f.value}, node.attributes));
      if (f.zero.valid()) {
        TESSERA_ASSIGN(f.zero, permuted(f.zero, node, permutation.size()));
      }
      for (Scale& scale : f.scales) {
        TESSERA_ASSIGN(scale.value, permuted(scale.value, node, permutation.size()));
      }
      return f;
    }
    if (dtype(v) == DType::I32) {
      TESSERA_ASSIGN(Factor f, factor(node.operands[0], axis));
      f.zero = node.operands[1];
      return f;
    }
    const auto scaled = static_cast<size_t>(scaled_operand(node, axis));
    TESSERA_ASSIGN(Factor f, factor(node.operands[scaled], axis));
    f.scales.push_back({node.operands[1 - scaled], ops::is(node, ScalarOp::Mul) ? ScalarOp::Mul : ScalarOp::Div});
    return f;
  }
  // A value that broadcasts against the result of a permutation, from one that does against its operand.
  Result<ValueId> permuted(ValueId v, const Node& permutation, size_t rank) {
    SymShape shape = graph_.type(v).shape;
    if (std::all_of(shape.begin(), shape.end(), [](const SymExpr& e) { return e.is_const(1); }))
      return apply("reshape", {v}, {{"shape", SymShape{}}});
    if (shape.size() < rank) {
      shape.insert(shape.begin(), rank - shape.size(), SymExpr(1));
      TESSERA_ASSIGN(v, apply("reshape", {v}, {{"shape", shape}}));
    }
    return apply(permutation.op->name, {v}, permutation.attributes);
  }
  // A constant right factor that is contiguous along the sum; another one as it is.
  Result<ValueId> along_the_sum(ValueId v) {
    const Tensor* constant = constant_tensor(graph_, v);
    if (constant == nullptr || !has_data(*constant) || !may_copy(static_cast<int64_t>(constant->bytes()))) return v;
    Dims dims = constant->dims();
    const size_t last = dims.size() - 1;
    std::swap(dims[last - 1], dims[last]);
    TESSERA_ASSIGN(Tensor copy, Tensor::create(constant->dtype(), dims));
    const int64_t columns = dims[last - 1], rows = dims[last], each = rows * columns;
    for (int64_t i = 0; i < constant->count(); ++i)
      copy.mutable_data()[i / each * each + i % columns * rows + i / columns % rows] = constant->data()[i];
    const ValueId turned = graph_.add_constant(std::move(copy), names_(graph_.value(v).name + ".turned"));
    Ints permutation(dims.size());
    std::iota(permutation.begin(), permutation.end(), 0);
    std::swap(permutation[last - 1], permutation[last]);
    return apply("transpose", {turned}, {{"perm", permutation}});
  }
  // Bulk copies and tensor cores take 8-bit elements that are contiguous along the sum, in whole accesses.
  [[nodiscard]] bool is_multiplied(const Factor& a, const Factor& b) const {
    return !stored(a.value).turned && stored(b.value).turned &&
           graph_.env().divisor(graph_.type(a.value).shape.back()) % layout::kTensorAlignment == 0;
  }

  // ---- their products
  Result<bool> multiply(const Node& product) {
    const Node node = product;
    location_ = node.location;
    const DType to = dtype(node.results[0]);
    TESSERA_ASSIGN(Factor a, factor(node.operands[0], sum_axis(graph_.type(node.operands[0]), 0)));
    TESSERA_ASSIGN(Factor b, factor(node.operands[1], sum_axis(graph_.type(node.operands[1]), 1)));
    const ValueId right = b.value;
    TESSERA_ASSIGN(b.value, along_the_sum(b.value));
    const bool as_before = !a.zero.valid() && !b.zero.valid() && b.value == right;
    ValueId y;
    if (to == DType::I32 && (as_before || !is_multiplied(a, b))) return false;
    if (!is_multiplied(a, b)) {
      TESSERA_ASSIGN(const ValueId x, as_bf16(a));
      TESSERA_ASSIGN(const ValueId w, as_bf16(b));
      TESSERA_ASSIGN(y, apply(node.op->name, {x, w}, {{"wide", int64_t{1}}}));
    } else if (is_byte_float(dtype(a.value))) {
      TESSERA_ASSIGN(y, apply(node.op->name, {a.value, b.value}, {{"wide", int64_t{1}}}));
    } else {
      TESSERA_ASSIGN(y, of_integers(node, a, b));
    }
    if (to == DType::I32) {
      replace(node.results[0], y);
      return true;
    }
    TESSERA_ASSIGN(y, cast(y, DType::F32));
    for (const Factor& f : {a, b})
      for (const Scale& scale : f.scales) {
        TESSERA_ASSIGN(const ValueId wide, cast(scale.value, DType::F32));
        TESSERA_ASSIGN(y, apply(scale.op, y, wide));
      }
    TESSERA_ASSIGN(y, cast(y, to));
    replace(node.results[0], y);
    return true;
  }
  // A factor without its scales in bf16, which holds 8-bit floats and differences of 8-bit integers.
  Result<ValueId> as_bf16(const Factor& f) {
    ValueId v = f.value;
    if (f.zero.valid()) {
      TESSERA_ASSIGN(v, cast(v, DType::I32));
      TESSERA_ASSIGN(v, apply(ScalarOp::Sub, v, f.zero));
    }
    return cast(v, DType::BF16);
  }
  Result<ValueId> of_integers(const Node& node, const Factor& a, const Factor& b) {
    TESSERA_ASSIGN(const ValueId x, cast(a.value, DType::I32));
    TESSERA_ASSIGN(const ValueId w, cast(b.value, DType::I32));
    TESSERA_ASSIGN(ValueId y, apply(node.op->name, {x, w}));
    if (a.zero.valid()) {
      TESSERA_ASSIGN(const ValueId sums, apply("reduce_sum", {w}, along(w, 1)));
      TESSERA_ASSIGN(const ValueId part, apply(ScalarOp::Mul, sums, a.zero));
      TESSERA_ASSIGN(y, apply(ScalarOp::Sub, y, part));
    }
    if (!b.zero.valid()) return y;
    ValueId shifted = x; // x - p, whose sums are those of x less depth * p
    if (a.zero.valid()) {
      TESSERA_ASSIGN(shifted, apply(ScalarOp::Sub, x, a.zero));
    }
    TESSERA_ASSIGN(const ValueId sums, apply("reduce_sum", {shifted}, along(x, 0)));
    TESSERA_ASSIGN(const ValueId part, apply(ScalarOp::Mul, sums, b.zero));
    return apply(ScalarOp::Sub, y, part);
  }
  [[nodiscard]] Attributes along(ValueId v, size_t operand) const {
    return {{"axes", Ints{sum_axis(graph_.type(v), operand)}}, {"keepdims", int64_t{1}}};
  }

  Location location_; // of the product
};

} // namespace

Result<bool> byte_products(Graph& graph, const CudaLibraries& libraries) {
  return ByteProducts(graph, libraries).run();
}

} // namespace tessera
