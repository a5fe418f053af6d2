#include "codegen/schedule/split_reductions.h"
#include "graph/ops/op.h"
#include <algorithm>

namespace tessera {
namespace {

// Of an H200: what a multiprocessor reads while others idle, what all read together, and another launch with its
// dependence on the first.
constexpr double kBytesPerUsAlone = 40e3, kBytesPerUs = 4.4e6, kSecondLaunchUs = 4;
constexpr int64_t kBlocksPerMultiprocessor = 8;
constexpr int64_t kLeastBytes = 16 << 10; // of a block's share

struct Cut {
  size_t axis;    // among the operand's dimensions
  int64_t pieces; // divides its extent
};

// Where to cut the reduction of `dims` over `axes`; nothing where one step is as good.
std::optional<Cut> find_cut(const Dims& dims, const Ints& axes, int64_t element_bytes, int multiprocessors) {
  int64_t row = 1, points = 1;
  for (size_t d = 0; d < dims.size(); ++d)
    (std::find(axes.begin(), axes.end(), static_cast<int64_t>(d)) != axes.end() ? row : points) *= dims[d];
  if (axes.empty() || row < 2 || points < 1) return std::nullopt;
  double bytes = static_cast<double>(row) * static_cast<double>(points) * static_cast<double>(element_bytes);
  // Blocks of one step: a row each, or 16 columns where the innermost axis is not folded (block_rows.cpp).
  bool columns = axes.back() + 1 != static_cast<int64_t>(dims.size()) && dims.back() > 1;
  int64_t blocks = columns ? (points + 15) / 16 : points;
  double whole = bytes / std::min(kBytesPerUs, static_cast<double>(blocks) * kBytesPerUsAlone);
  if (whole < bytes / kBytesPerUs + 2 * kSecondLaunchUs) return std::nullopt;
  int64_t wanted =
      kBlocksPerMultiprocessor * multiprocessors / std::max<int64_t>(1, columns ? (points + 31) / 32 : points);
  wanted = std::min(wanted, static_cast<int64_t>(bytes / static_cast<double>(blocks)) / kLeastBytes);
  // The outermost axis that has a divisor of use: what is folded first stays as contiguous as it was.
  for (int64_t a : axes) {
    int64_t extent = dims[static_cast<size_t>(a)], best = 1, power = extent & -extent;
    for (int64_t k = std::min(wanted, extent); k >= 2 && best == 1; --k)
      if (extent % k == 0) best = k;
    while (power > wanted) power /= 2;
    if (power * 2 > best) best = power; // leaves the rest aligned
    if (best >= 4) return Cut{static_cast<size_t>(a), best};
  }
  return std::nullopt;
}

std::optional<Dims> known(const Graph& graph, const SymShape& shape) {
  Dims dims;
  for (const SymExpr& e : shape) {
    auto n = graph.env().simplify(e).as_const();
    if (!n) return std::nullopt;
    dims.push_back(*n);
  }
  return dims;
}

} // namespace

Result<int> split_reductions(Graph& graph, const DeviceTraits& device) {
  int count = 0;
  for (NodeId id : graph.order()) {
    const Node& node = graph.node(id);
    const Reduction* reduction = node.op->reduction();
    if (!reduction || reduction->kind == ReduceKind::ArgMax || reduction->kind == ReduceKind::ArgMin) continue;
    const TensorType type = graph.type(node.operands[0]), result = graph.type(node.results[0]);
    auto dims = known(graph, type.shape);
    if (!dims) continue;
    Ints axes = node.attributes.ints("axes");
    // What is read: halves that were widened for the sum are halves in memory.
    int64_t bytes = info(type.dtype).bits / 8;
    if (const Node* from = graph.producer(node.operands[0]); from && from->op->name == std::string_view("cast"))
      bytes = std::min<int64_t>(bytes, info(graph.type(from->operands[0]).dtype).bits / 8);
    auto cut = find_cut(*dims, axes, std::max<int64_t>(1, bytes), device.multiprocessors);
    if (!cut) continue;
    std::string op(node.op->name);
    Location where = node.location;
    ValueId old = node.results[0], x = node.operands[0];

    DType partial = compute_dtype(type.dtype);
    if (partial != type.dtype) {
      TESSERA_ASSIGN(x, graph.apply("cast", {x}, {{"to", partial}}, where));
    }
    SymShape cut_shape;
    Ints first;
    for (size_t d = 0; d < dims->size(); ++d) {
      bool here = d == cut->axis;
      if (here) cut_shape.emplace_back(cut->pieces);
      if (std::find(axes.begin(), axes.end(), static_cast<int64_t>(d)) != axes.end())
        first.push_back(static_cast<int64_t>(cut_shape.size()));
      cut_shape.emplace_back(here ? (*dims)[d] / cut->pieces : (*dims)[d]);
    }
    TESSERA_ASSIGN(x, graph.apply("reshape", {x}, {{"shape", cut_shape}}, where));
    TESSERA_ASSIGN(x, graph.apply(op, {x}, {{"axes", first}, {"keepdims", int64_t{0}}}, where));
    // Where the pieces are now that folded axes before them are gone.
    auto place = static_cast<int64_t>(cut->axis) - std::count_if(axes.begin(), axes.end(), [&](int64_t a) {
                   return a < static_cast<int64_t>(cut->axis);
                 });
    TESSERA_ASSIGN(x, graph.apply(op, {x}, {{"axes", Ints{place}}, {"keepdims", int64_t{0}}}, where));
    if (partial != type.dtype) {
      TESSERA_ASSIGN(x, graph.apply("cast", {x}, {{"to", result.dtype}}, where));
    }
    if (graph.type(x).shape != result.shape) {
      TESSERA_ASSIGN(x, graph.apply("reshape", {x}, {{"shape", result.shape}}, where));
    }
    graph.value(x).name = graph.value(old).name;
    graph.value(old).name.clear();
    graph.replace_all_uses(old, x);
    graph.remove_node(id);
    ++count;
  }
  if (count > 0) graph.compact();
  return count;
}

} // namespace tessera
