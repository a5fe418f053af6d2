#include "codegen/device/cuda/split_products.h"
#include "codegen/device/cuda/copied_weights.h"
#include "codegen/device/cuda/product_rewriting.h"
#include "codegen/device/cuda/routes.h"
#include "codegen/layout/tensor_access.h"
#include "codegen/schedule/predict.h"
#include "graph/ops/questions.h"
#include <array>
#include <cmath>
#include <map>

namespace tessera {
namespace {

class Splitter : ProductRewriting {
public:
  Splitter(Graph& graph, const CudaLibraries& libraries) : ProductRewriting(graph, libraries) {}

  Result<int> run() {
    if (libraries_.device.warpgroup_f16_per_cycle <= 0) return 0;
    const std::set<NodeId> attentions = this->attentions();
    std::vector<NodeId> found;
    for (NodeId id : graph_.order())
      if (is_product(id) && !attentions.contains(id) && gains(id)) found.push_back(id);
    for (NodeId id : found) TESSERA_TRY(split(id));
    TESSERA_TRY(end());
    return static_cast<int>(found.size());
  }

private:
  using Parts = std::array<ValueId, ops::kFloatParts>;

  bool gains(NodeId id) {
    const Node& node = graph_.node(id);
    const DType dtype = graph_.type(node.operands[0]).dtype;
    if (dtype != DType::F32 || node.attributes.i("tf32", 0) != 0 || is_kept_apart(node)) return false;
    if (!cublaslt_multiplies(graph_, node, libraries_)) return false;
    ProductShape shape = shape_of(node);
    if (shape.m < 1 || shape.n < 1 || shape.k < 1 || shape.batch < 1) return false;
    shape.bytes = (shape.batch * (shape.m * shape.k + shape.k * shape.n + shape.m * shape.n)) * info(dtype).bits / 8;
    const double before = product_time(shape, libraries_.device).us;
    int64_t copied = 0;
    double after = node.operands[0] == node.operands[1] ? 0 : operand_us(node.operands[0], copied);
    after += operand_us(node.operands[1], copied);
    if (after >= before) return false;
    after += contraction_us(shape);
    return after * kPriceError < before && may_copy(copied);
  }

  // The time to write an operand's parts; `copied`: takes the bytes of a weight's, which are written when compiling.
  double operand_us(ValueId operand, int64_t& copied) {
    const ValueId value = stored(operand).value;
    const double count = estimate_(graph_.type(value).count());
    const double written = count * ops::kFloatParts * info(DType::BF16).bits / 8,
                 whole = count * info(DType::F32).bits / 8;
    if (const Tensor* weight = constant_tensor(graph_, value)) {
      copied += byte_size(DType::BF16, weight->count()) * ops::kFloatParts;
      return 0;
    }
    return is_made_for_one(value) ? copy_time(written - whole, libraries_.device)
                                  : copy_time(written + whole, libraries_.device);
  }

  // The time of the generated contraction, of aligned operands at these sizes.
  double contraction_us(const ProductShape& shape) {
    const std::array<int64_t, 4> sizes = {std::llround(shape.batch), std::llround(shape.m), std::llround(shape.k),
                                          std::llround(shape.n)};
    auto [known, fresh] = priced_.try_emplace(sizes, double{INFINITY});
    if (!fresh) return known->second;
    Graph g;
    const int64_t whole = aligned_elements();
    auto padded = [&](int64_t extent) { return (extent + whole - 1) / whole * whole; };
    auto matrix = [&](const char* name, int64_t rows, int64_t columns) {
      const ValueId v = g.add_input(name, {DType::BF16, {sizes[0], rows, padded(columns)}});
      return g.apply(
          "slice", {v},
          {{"starts", SymShape{0, 0, 0}}, {"steps", Ints{1, 1, 1}}, {"sizes", SymShape{sizes[0], rows, columns}}});
    };
    std::vector<ValueId> parts;
    for (const char* name : {"a0", "a1", "a2"})
      if (auto part = matrix(name, sizes[1], sizes[2]); part.ok()) parts.push_back(*part);
    for (const char* name : {"b0", "b1", "b2"})
      if (auto part = matrix(name, sizes[2], sizes[3]); part.ok()) parts.push_back(*part);
    auto y = g.apply("matmul_of_parts", parts);
    if (!y.ok()) return INFINITY;
    g.add_output("y", *y);
    auto plan = plan_fusion(g, {});
    if (!plan.ok() || plan->groups.size() != 1) return INFINITY;
    const auto time = predict_chosen(g, plan->groups[0].nest, libraries_.device);
    return known->second = time.ok() ? time->us : INFINITY;
  }

  Status split(NodeId id) {
    const Node node = graph_.node(id);
    std::vector<ValueId> operands;
    for (const ValueId operand : node.operands) {
      TESSERA_ASSIGN(const Parts parts, parts_of(operand, node.location));
      operands.insert(operands.end(), parts.begin(), parts.end());
    }
    TESSERA_ASSIGN(const ValueId y, graph_.apply("matmul_of_parts", operands, {}, node.location));
    replace(node.results[0], y);
    return {};
  }

  [[nodiscard]] static int64_t aligned_elements() { return layout::kTensorAlignment * 8 / info(DType::BF16).bits; }

  // Products that read one value share its parts.
  Result<Parts> parts_of(ValueId operand, const Location& location) {
    const StoredOperand from = stored(operand);
    auto [known, fresh] = parts_.try_emplace(from.value);
    if (fresh) {
      const SymShape shape = graph_.type(from.value).shape;
      const SymExpr& last = shape.back();
      const bool aligned = last.known_divisor() % aligned_elements() == 0;
      ValueId whole = from.value;
      if (!aligned) {
        SymShape none(shape.size(), SymExpr(0)), behind = none;
        behind.back() = ceildiv(last, aligned_elements()) * aligned_elements() - last;
        TESSERA_ASSIGN(whole, graph_.apply("pad", {whole}, {{"pads_begin", none}, {"pads_end", behind}}, location));
      }
      for (size_t p = 0; p < ops::kFloatParts; ++p) {
        TESSERA_ASSIGN(ValueId part,
                       graph_.apply("float_part", {whole}, {{"part", static_cast<int64_t>(p)}}, location));
        if (!aligned) {
          TESSERA_ASSIGN(part, slice(part, SymShape(shape.size(), SymExpr(0)), shape, location));
        }
        known->second[p] = part;
      }
    }
    Parts out = known->second;
    if (!from.turned) return out;
    const Node turn = *graph_.producer(operand);
    for (ValueId& part : out) {
      TESSERA_ASSIGN(part, graph_.apply(turn.op->name, {part}, turn.attributes, turn.location));
    }
    return out;
  }

  std::map<std::array<int64_t, 4>, double> priced_; // by batch, m, k, n
  std::map<ValueId, Parts> parts_;                  // by what they are parts of, without the slice's turn
};

} // namespace

Result<int> split_products(Graph& graph, const CudaLibraries& libraries) { return Splitter(graph, libraries).run(); }

} // namespace tessera
