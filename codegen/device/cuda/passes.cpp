// The passes of an NVIDIA GPU in the order in which they run.
#include "codegen/device/cuda/passes.h"
#include "codegen/device/cuda/backend.h"
#include "codegen/device/cuda/contract_products.h"
#include "codegen/device/cuda/join_products.h"
#include "codegen/device/cuda/pad_products.h"
#include "codegen/device/cuda/split_products.h"
#include "codegen/device/integer_products.h"
#include "graph/ops/questions.h"
#include <algorithm>
#include <set>
#include <tuple>

namespace tessera {
namespace {

CudaBackend& backend_of(Compilation& c) { return static_cast<CudaBackend&>(c.backend()); }

Result<bool> find_libraries(Compilation& c) {
  backend_of(c).find_libraries(c.graph());
  return false; // the graph is unchanged; later passes use the libraries that were found
}

Result<bool> place(Compilation& c) {
  const auto& pinned = c.fusion().constraints.groups;
  const auto& routes = c.backend().routes()->attention;
  auto by_kernel = [&](const Group& group) {
    return group.pin >= 0 && std::any_of(routes.begin(), routes.end(), [&](const AttentionRoute& route) {
             return route.kind == RouteKind::OwnKernel && route.by == pinned[static_cast<size_t>(group.pin)].route;
           });
  };
  return place_attention(c.graph(), backend_of(c).libraries(), c.plan(), by_kernel);
}

Result<bool> join(Graph& graph, const CudaLibraries& libraries) {
  TESSERA_ASSIGN(int joined, join_products(graph, libraries));
  return joined > 0;
}
Result<bool> pad(Graph& graph, const CudaLibraries& libraries) {
  TESSERA_ASSIGN(int padded, pad_products(graph, libraries));
  return padded > 0;
}
Result<bool> split(Graph& graph, const CudaLibraries& libraries) {
  TESSERA_ASSIGN(int split, split_products(graph, libraries));
  return split > 0;
}

// Values whose condition is checked on the host alone are used as they are.
Result<bool> leave_unchecked(Graph& graph, const CudaLibraries&) {
  std::vector<ValueId> by_value(static_cast<size_t>(graph.value_count()));
  std::vector<Node> unchecked;
  for (NodeId id : graph.order()) {
    const Node& node = graph.node(id);
    if (ops::checks_of(node) != ops::Checks::Condition || node.attributes.i("host", 0) == 0) continue;
    by_value[static_cast<size_t>(node.results[0].index)] = node.operands[0];
    unchecked.push_back(node);
  }
  if (unchecked.empty()) return false;
  graph.replace_uses(by_value);
  for (const Node& node : unchecked) graph.remove_node(graph.value(node.results[0]).producer);
  const auto users = graph.users();
  std::set<ValueId> seen;
  for (const Node& node : unchecked) { // conditions that nothing else reads
    if (!seen.insert(node.operands[1]).second) continue;
    const ValueId condition = node.operands[1];
    const NodeId producer = graph.value(condition).producer;
    const bool is_output = std::any_of(graph.outputs().begin(), graph.outputs().end(),
                                       [&](const Graph::Output& o) { return o.value == condition; });
    if (!users[static_cast<size_t>(condition.index)].empty() || is_output || !producer.valid()) continue;
    if (graph.node(producer).results.size() == 1) graph.remove_node(producer);
  }
  graph.compact();
  return true;
}

// cuDNN may sum a convolution's products after a transform, which rounds.
Result<bool> integer_products(Graph& graph, const CudaLibraries& libraries) {
  return small_integer_products(graph, false, libraries.device.tensor_i8_per_cycle > 0);
}

// A float that its integer type or narrow float type does not hold becomes what PyTorch's kernels for GPUs make of it.
Result<bool> convert_as_here(Graph& graph, const CudaLibraries&) {
  bool any = false;
  for (NodeId id : graph.order()) {
    Attributes& attributes = graph.node(id).attributes;
    for (const auto& [name, on_x86, here] :
         {std::tuple{"wraps", int64_t{1}, int64_t{2}}, std::tuple{"saturate", int64_t{2}, int64_t{0}}}) {
      if (attributes.i(name, -1) != on_x86) continue;
      attributes.set(name, here);
      any = true;
    }
  }
  return any;
}

// Each thread of the largest block has two pairs of elements at a time, the bytes of one access each.
Result<bool> sort(Compilation& c) {
  const Target& device = c.backend().device();
  const int64_t pair = device.access_bytes / byte_size(DType::U64, 1);
  return sort_by_tiles(c.graph(), 2 * pair * device.block_threads);
}

} // namespace

const std::vector<CudaRewriting>& cuda_rewritings() {
  static const std::vector<CudaRewriting> table = {
      {"leave-unchecked", "divisions by zero are no error, as in PyTorch's kernels for GPUs", leave_unchecked},
      {"convert-as-here", "floats beyond an integer or float8 type become what PyTorch's kernels for GPUs make of them",
       convert_as_here},
      {"small-floats", "numbers of 8-bit floats have their types in kernels, which convert them by instructions",
       small_floats},
      {"byte-products", "products of 8-bit numbers are of them as stored, with zero points and scales behind them",
       byte_products},
      {"integer-matrix-products",
       "products of matrices of 8-bit integers become exact ones in floating point, which the library has",
       integer_products},
      {"narrow-products", "products of widened f16 and bf16 operands read them as they are", narrow_products},
      {"round-to-tf32", "marks f32 convolutions and products whose operands may be rounded to TF32", round_to_tf32},
      {"points-to-products",
       "channels-last convolutions of single points, or of patches of few channels, become products",
       points_to_products},
      {"even-pads", "pads the input where a library's convolution pads as much before as behind", even_pads},
      {"lay-out-weights", "lays weights of convolutions out as their library or their loops read them",
       lay_out_weights},
      {"join-products", "products of one operand with constant weights become one", join},
      {"pad-products", "products whose rows are no multiple of 16 bytes get zeros up to one", pad},
      {"split-products", "products of f32 become products of three bf16 parts, which tensor cores compute", split},
  };
  return table;
}

std::vector<CompilePass> cuda_passes() {
  std::vector<CompilePass> all = {{"find-libraries",
                                   "opens the libraries that the graph has work for; without one, loops are generated",
                                   PassLevel::Graph, find_libraries}};
  for (const CudaRewriting& r : cuda_rewritings())
    all.push_back({r.name, r.summary, PassLevel::Graph,
                   [run = r.run](Compilation& c) { return run(c.graph(), backend_of(c).libraries()); }});
  all.push_back({"scatter-in-any-order", "scatters whose targets may repeat become atomic updates, or folds of runs",
                 PassLevel::Graph, [](Compilation& c) {
                   return scatter_in_any_order(c.graph(), c.backend().device(), c.options().deterministic);
                 }});
  all.push_back(
      {"sort-by-tiles", "rows are sorted as tiles, one a block, whose runs are merged", PassLevel::Graph, sort});
  all.push_back({"contract-products",
                 "products and convolutions become generated contractions with what stands in front and behind, where "
                 "that takes less time",
                 PassLevel::Plan, contract_products, "fuse"});
  all.push_back({"place-attention", "puts a generated kernel in place of attention, or behind the library's call",
                 PassLevel::Plan, place});
  return all;
}

} // namespace tessera
