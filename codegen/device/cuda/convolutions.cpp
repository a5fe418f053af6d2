// Prepares convolutions for the library or the loops that compute them.
#include "codegen/device/cuda/names.h"
#include "codegen/device/cuda/passes.h"
#include "graph/ops/questions.h"
#include <algorithm>
#include <map>

namespace tessera {
namespace {

std::vector<NodeId> nodes_of(const Graph& graph, Structured kernel) {
  std::vector<NodeId> out;
  for (NodeId id : graph.order())
    if (const auto* s = graph.node(id).op->structured(); s && s->kind == kernel) out.push_back(id);
  return out;
}

bool weighs_single_points(const Graph& graph, ValueId weight) {
  const SymShape& w = graph.type(weight).shape;
  return std::all_of(w.begin() + 2, w.end(), [](const SymExpr& k) { return k.is_const(1); });
}

bool all(const Node& node, const char* attribute, int64_t value) {
  const Ints values = node.attributes.ints(attribute);
  return std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == value; });
}

bool convolves_single_points(const Graph& graph, const Node& node) {
  return weighs_single_points(graph, node.operands[1]) && is_channels_last(node) && !ops::is_transposed(node) &&
         node.attributes.i("groups", 1) == 1 && all(node, "strides", 1) && all(node, "pads_begin", 0) &&
         all(node, "pads_end", 0);
}

// Whether the convolution cuts its input into patches that neither overlap nor leave anything over, of channels that do not
// fill an access of the device: the library's kernels for these reach a small part of a product's speed.
bool cuts_thin_patches(const Graph& graph, const Node& node, int64_t access_bytes) {
  const SymShape &x = graph.type(node.operands[0]).shape, &w = graph.type(node.operands[1]).shape;
  if (!is_channels_last(node) || ops::is_transposed(node) || node.attributes.i("groups", 1) != 1 ||
      !all(node, "pads_begin", 0) || !all(node, "pads_end", 0) || !all(node, "dilations", 1) || !w[1].as_const())
    return false;
  const Ints strides = node.attributes.ints("strides");
  int64_t patch = *w[1].as_const();
  const int64_t element = byte_size(graph.type(node.operands[0]).dtype, 1);
  if (patch * element >= access_bytes || strides.size() + 2 != w.size()) return false;
  for (size_t d = 0; d < strides.size(); ++d) {
    if (!w[d + 2].is_const(strides[d]) || !graph.env().simplify(mod(x[d + 1], SymExpr(strides[d]))).is_const(0))
      return false;
    patch *= strides[d];
  }
  return patch * element % access_bytes == 0;
}

// [N, pixels..., C] as [N, patches..., what a patch has in the order of a weight's row].
Result<ValueId> patches(Graph& graph, const Node& node) {
  const SymShape x = graph.type(node.operands[0]).shape;
  const Ints kernel = node.attributes.ints("strides");
  const auto spatial = static_cast<int64_t>(kernel.size());
  SymShape cut = {x[0]}, rows = {x[0]};
  Ints perm = {0}, within = {2 * spatial + 1};
  SymExpr row = x.back();
  for (int64_t d = 0; d < spatial; ++d) {
    const SymExpr k(kernel[static_cast<size_t>(d)]), count = floordiv(x[static_cast<size_t>(d) + 1], k);
    cut.insert(cut.end(), {count, k});
    rows.push_back(count);
    row *= k;
    perm.push_back(2 * d + 1);
    within.push_back(2 * d + 2);
  }
  cut.push_back(x.back());
  rows.push_back(row);
  perm.insert(perm.end(), within.begin(), within.end());
  TESSERA_ASSIGN(ValueId parts, graph.apply("reshape", {node.operands[0]}, {{"shape", cut}}, node.location));
  TESSERA_ASSIGN(ValueId ordered, graph.apply("transpose", {parts}, {{"perm", perm}}, node.location));
  return graph.apply("reshape", {ordered}, {{"shape", rows}}, node.location);
}

Result<Tensor> transposed(const Tensor& from, const Ints& perm) {
  const auto& dims = from.dims();
  Dims to_dims, strides(dims.size(), 1), walk;
  for (size_t d = dims.size(); d-- > 1;) strides[d - 1] = strides[d] * dims[d];
  for (int64_t p : perm) {
    to_dims.push_back(dims[static_cast<size_t>(p)]);
    walk.push_back(strides[static_cast<size_t>(p)]);
  }
  TESSERA_ASSIGN(Tensor out, Tensor::create(from.dtype(), to_dims));
  auto bytes = static_cast<size_t>(info(from.dtype()).bits / 8);
  const auto* source = static_cast<const std::byte*>(from.data());
  auto* target = static_cast<std::byte*>(out.mutable_data());
  Dims at(perm.size(), 0);
  int64_t position = 0;
  for (int64_t i = 0; i < out.count(); ++i) {
    std::copy_n(source + static_cast<size_t>(position) * bytes, bytes, target + static_cast<size_t>(i) * bytes);
    for (size_t d = at.size(); d-- > 0;) {
      position += walk[d];
      if (++at[d] < to_dims[d]) break;
      position -= walk[d] * to_dims[d];
      at[d] = 0;
    }
  }
  return out;
}

// The order of a weight's dimensions [O, C, kernel...] in memory.
Ints order_in_memory(int64_t rank, bool for_library) {
  Ints perm;
  if (for_library) perm.push_back(0);
  for (int64_t d = 2; d < rank; ++d) perm.push_back(d);
  perm.push_back(1);
  if (!for_library) perm.push_back(0);
  return perm;
}

class WeightLayouts {
public:
  WeightLayouts(Graph& graph, const CudaLibraries& libraries) : graph_(graph), libraries_(libraries), names_(graph) {}

  Result<bool> run() {
    bool changed = false;
    for (NodeId id : nodes_of(graph_, Structured::Conv)) {
      if (!is_channels_last(graph_.node(id))) continue;
      const ValueId weight = graph_.node(id).operands[1];
      TESSERA_ASSIGN(ValueId laid_out, lay_out(graph_.node(id), weight));
      graph_.node(id).operands[1] = laid_out;
      changed = changed || laid_out != weight;
    }
    if (changed) graph_.compact();
    return changed;
  }

private:
  // A transposed view of the weight in the memory order of the node's route; the weight itself if it has that order, or
  // if its data is missing.
  Result<ValueId> lay_out(const Node& node, ValueId w) {
    const Location where = node.location;
    const Tensor* value = graph_.constant(w);
    const Node* producer = graph_.producer(w);
    const auto* structured = producer ? producer->op->structured() : nullptr;
    if (!value && structured && structured->kind == Structured::Constant) return w;
    const Ints perm = order_in_memory(graph_.type(w).rank(), cudnn_convolves(graph_, node, libraries_));
    ValueId& moved = moved_[{w, perm}];
    if (moved.valid()) return moved;
    Ints back(perm.size());
    for (size_t d = 0; d < perm.size(); ++d) back[static_cast<size_t>(perm[d])] = static_cast<int64_t>(d);
    ValueId stored;
    if (value) {
      TESSERA_ASSIGN(Tensor tensor, transposed(*value, perm));
      stored = graph_.add_constant(std::move(tensor), names_(graph_.value(w).name + ".channels_last"));
    } else {
      const bool lies_so = producer && ops::permutation_of(*producer) == back;
      if (lies_so || weighs_single_points(graph_, w)) return w;
      // A weight that is a run-time input is copied to its layout in each call.
      TESSERA_ASSIGN(ValueId view, graph_.apply("transpose", {w}, {{"perm", perm}}, where));
      TESSERA_ASSIGN(stored, graph_.apply("copy", {view}, {}, where));
    }
    TESSERA_ASSIGN(moved, graph_.apply("transpose", {stored}, {{"perm", back}}, where));
    return moved;
  }

  Graph& graph_;
  const CudaLibraries& libraries_;
  NewNames names_;
  std::map<std::pair<ValueId, Ints>, ValueId> moved_;
};

} // namespace

Result<bool> round_to_tf32(Graph& graph, const CudaLibraries& libraries) {
  bool changed = false;
  auto mark = [&](Structured kernel) {
    for (NodeId id : nodes_of(graph, kernel)) {
      Node& node = graph.node(id);
      if (graph.type(node.operands[0]).dtype != DType::F32 || node.attributes.i("tf32", 0) != 0) continue;
      node.attributes.set("tf32", int64_t{1});
      changed = true;
    }
  };
  const Tf32 tf32 = libraries.tf32;
  if (tf32 == Tf32::Conv || tf32 == Tf32::All) mark(Structured::Conv);
  if (tf32 == Tf32::Matmul || tf32 == Tf32::All) {
    mark(Structured::Matmul);
    mark(Structured::GroupedMatmul);
  }
  return changed;
}

// [N, pixels..., C] times the transpose of [O, C], or [N, patches..., C kernel] times that of [O, C kernel]: both views of
// the weight become strides.
Result<bool> points_to_products(Graph& graph, const CudaLibraries& libraries) {
  if (!libraries.cublaslt) return false;
  bool changed = false;
  for (NodeId id : nodes_of(graph, Structured::Conv)) {
    const Node node = graph.node(id);
    const DType dtype = graph.type(node.operands[0]).dtype;
    const bool of_points = convolves_single_points(graph, node);
    if (!cudnn_computes_in(dtype) || !(of_points || cuts_thin_patches(graph, node, libraries.device.access_bytes)))
      continue;
    ValueId rows = node.operands[0];
    if (!of_points) {
      TESSERA_ASSIGN(rows, patches(graph, node));
    }
    const SymShape w = graph.type(node.operands[1]).shape;
    const SymShape flat = {w[0], graph.type(rows).shape.back()};
    TESSERA_ASSIGN(ValueId matrix, graph.apply("reshape", {node.operands[1]}, {{"shape", flat}}, node.location));
    TESSERA_ASSIGN(ValueId weight, graph.apply("transpose", {matrix}, {{"perm", Ints{1, 0}}}, node.location));
    TESSERA_ASSIGN(ValueId y, graph.apply("matmul", {rows, weight}, tf32_attribute(node.attributes.i("tf32", 0) != 0),
                                          node.location));
    graph.value(y).name = graph.value(node.results[0]).name;
    graph.value(node.results[0]).name.clear();
    graph.replace_all_uses(node.results[0], y);
    graph.remove_node(id);
    changed = true;
  }
  if (changed) graph.compact();
  return changed;
}

Result<bool> even_pads(Graph& graph, const CudaLibraries& libraries) {
  bool changed = false;
  for (NodeId id : nodes_of(graph, Structured::Conv)) {
    const Node node = graph.node(id);
    const Ints begin = node.attributes.ints("pads_begin"), end = node.attributes.ints("pads_end");
    if (begin == end || !cudnn_convolves(graph, node, libraries)) continue;
    SymShape before(begin.size() + 2, SymExpr(0)), behind = before;
    for (size_t i = 0; i < begin.size(); ++i) {
      const size_t d = is_channels_last(node) ? i + 1 : i + 2;
      before[d] = begin[i];
      behind[d] = end[i];
    }
    TESSERA_ASSIGN(ValueId padded, graph.apply("pad", {node.operands[0]},
                                               {{"pads_begin", before}, {"pads_end", behind}}, node.location));
    Node& convolution = graph.node(id);
    convolution.operands[0] = padded;
    convolution.attributes.set("pads_begin", Ints(begin.size(), 0));
    convolution.attributes.set("pads_end", Ints(end.size(), 0));
    changed = true;
  }
  if (changed) graph.compact();
  return changed;
}

Result<bool> lay_out_weights(Graph& graph, const CudaLibraries& libraries) {
  return WeightLayouts(graph, libraries).run();
}

} // namespace tessera
