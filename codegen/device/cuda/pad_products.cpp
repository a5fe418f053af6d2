#include "codegen/device/cuda/pad_products.h"
#include "codegen/device/cuda/copied_weights.h"
#include "codegen/device/cuda/product_rewriting.h"
#include "codegen/device/cuda/routes.h"
#include "codegen/device/library_cost.h"
#include "fusion/cost.h"
#include "graph/ops/questions.h"
#include "graph/scalar/scalar.h"
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

namespace tessera {
namespace {

struct Candidate {
  NodeId product;
  StoredOperand a, b;
  SymExpr m, k, n;               // extents as they are
  SymExpr rows, summed, columns; // padded
};

class Padder : ProductRewriting {
public:
  Padder(Graph& graph, const CudaLibraries& libraries) : ProductRewriting(graph, libraries) {}

  Result<int> run() {
    attentions_ = attentions();
    std::vector<Candidate> found;
    for (NodeId id : graph_.order())
      if (auto c = candidate(id); c && gains(*c)) found.push_back(std::move(*c));
    for (const Candidate& c : found) TESSERA_TRY(pad(c));
    TESSERA_TRY(end());
    return static_cast<int>(found.size());
  }

private:
  // A product by tensor cores, with extents that end inside an access.
  std::optional<Candidate> candidate(NodeId id) {
    const Node& node = graph_.node(id);
    if (!is_product(id) || attentions_.contains(id) || is_kept_apart(node)) return std::nullopt;
    if (!cublaslt_multiplies(graph_, node, libraries_)) return std::nullopt;
    const TensorType &a = graph_.type(node.operands[0]), &b = graph_.type(node.operands[1]);
    const int bits = info(a.dtype).bits;
    if (a.rank() < 2 || b.rank() < 2 || (bits != 16 && node.attributes.i("tf32", 0) == 0)) return std::nullopt;
    const SymExpr &m = a.shape[a.shape.size() - 2], &k = a.shape.back();
    if (b.shape[b.shape.size() - 2] != k) return std::nullopt; // another expression of it
    Candidate c{id, stored(node.operands[0]), stored(node.operands[1]), m, k, b.shape.back(), {}, {}, {}};
    const int64_t whole = libraries_.device.access_bytes * 8 / bits;
    auto padded = [&](const SymExpr& extent, bool contiguous) {
      return contiguous && !is_aligned(extent, whole) ? ceildiv(extent, whole) * whole : extent;
    };
    c.rows = padded(c.m, c.a.turned);
    c.summed = padded(c.k, !c.a.turned || c.b.turned);
    c.columns = padded(c.n, true);
    if (c.rows == c.m && c.summed == c.k && c.columns == c.n) return std::nullopt;
    return c;
  }

  bool is_aligned(const SymExpr& extent, int64_t whole) {
    if (extent.known_divisor() % whole == 0) return true;
    return std::llround(estimate_(extent)) % whole == 0;
  }

  // True if the product gains more time than the copies take.
  bool gains(const Candidate& c) {
    const Node& node = graph_.node(c.product);
    const TensorType& a = graph_.type(node.operands[0]);
    const ValueId result = node.results[0];
    ProductShape shape = shape_of(node);
    ProductShape padded = shape;
    padded.n = estimate_(c.columns);
    padded.k = estimate_(c.summed);
    padded.m *= estimate_(c.rows) / std::max(1.0, estimate_(c.m));
    const int64_t element = info(a.dtype).bits / 8;
    auto bytes = [&](const ProductShape& s) {
      return s.batch * (s.m * s.k + s.k * s.n + s.m * s.n) * static_cast<double>(element);
    };
    shape.bytes = bytes(shape);
    padded.bytes = bytes(padded);
    for (const auto& [extent, extended] : {std::pair(&c.m, &c.rows), {&c.k, &c.summed}, {&c.n, &c.columns}})
      if (*extent != *extended) shape.alignment = std::gcd(shape.alignment, element * std::llround(estimate_(*extent)));
    const Target& device = libraries_.device;
    const double gained = product_time(shape, device).us - product_time(padded, device).us;
    double copies = 0;
    int64_t copied = 0;
    if (c.rows != c.m || c.summed != c.k) copies += operand_us(c.a, copied);
    if (c.summed != c.k || c.columns != c.n) copies += operand_us(c.b, copied);
    if ((c.rows != c.m || c.columns != c.n) && !read_by_strides(result)) copies += copy_us(result);
    return gained > copies && may_copy(copied);
  }

  // A copy's time in each call; `copied`: takes the bytes of a weight, which is copied when compiling.
  double operand_us(const StoredOperand& operand, int64_t& copied) {
    if (const Tensor* weight = constant_tensor(graph_, operand.value)) {
      copied += byte_size(weight->dtype(), weight->count());
      return 0;
    }
    return is_made_for_one(operand.value) ? 0 : copy_us(operand.value);
  }
  double copy_us(ValueId v) {
    const double bytes = estimate_(graph_.type(v).count()) * info(graph_.type(v).dtype).bits / 8.0;
    return copy_time(2 * bytes, libraries_.device);
  }

  Status pad(const Candidate& c) {
    const Node node = graph_.node(c.product);
    TESSERA_ASSIGN(const ValueId a, operand(c.a, node.operands[0], {c.m, c.k}, {c.rows, c.summed}, node.location));
    TESSERA_ASSIGN(const ValueId b, operand(c.b, node.operands[1], {c.k, c.n}, {c.summed, c.columns}, node.location));
    TESSERA_ASSIGN(ValueId y, graph_.apply(node.op->name, {a, b}, node.attributes, node.location));
    if (c.rows != c.m || c.columns != c.n) {
      SymShape sizes = graph_.type(node.results[0]).shape;
      SymShape starts(sizes.size(), SymExpr(0));
      TESSERA_ASSIGN(y, slice(y, std::move(starts), std::move(sizes), node.location));
    }
    replace(node.results[0], y);
    return {};
  }

  // `operand` with its last two extents padded; products that read one value padded alike share it.
  Result<ValueId> operand(const StoredOperand& stored, ValueId operand, std::pair<SymExpr, SymExpr> from,
                          std::pair<SymExpr, SymExpr> to, const Location& location) {
    if (from == to) return operand;
    auto [known, fresh] = padded_.try_emplace({operand, to.first.str(), to.second.str()});
    if (!fresh) return known->second;
    if (stored.turned) {
      std::swap(from.first, from.second);
      std::swap(to.first, to.second);
    }
    ValueId out;
    if (const Tensor* weight = constant_tensor(graph_, stored.value)) {
      Dims dims = weight->dims();
      dims[dims.size() - 2] = to.first.const_value();
      dims.back() = to.second.const_value();
      TESSERA_ASSIGN(Tensor copy, copied_weights({*weight}, 0, std::move(dims)));
      out = graph_.add_constant(std::move(copy), names_(graph_.value(stored.value).name + ".padded"));
    } else {
      SymShape none(graph_.type(stored.value).shape.size(), SymExpr(0)), behind = none;
      behind[behind.size() - 2] = to.first - from.first;
      behind.back() = to.second - from.second;
      TESSERA_ASSIGN(out, graph_.apply("pad", {stored.value}, {{"pads_begin", none}, {"pads_end", behind}}, location));
    }
    if (stored.turned) {
      const Node turn = *graph_.producer(operand);
      TESSERA_ASSIGN(out, graph_.apply(turn.op->name, {out}, turn.attributes, turn.location));
    }
    return known->second = out;
  }

  std::set<NodeId> attentions_;
  std::map<std::tuple<ValueId, std::string, std::string>, ValueId> padded_; // by value and its padded extents
};

} // namespace

Result<int> pad_products(Graph& graph, const CudaLibraries& libraries) { return Padder(graph, libraries).run(); }

} // namespace tessera
