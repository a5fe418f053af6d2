#include "codegen/schedule/contraction.h"
#include "codegen/layout/dot.h"
#include "codegen/layout/warpgroup.h"
#include "fusion/structured_nest.h"
#include <algorithm>

namespace tessera {
namespace {

// True if tensor cores multiply factors of this dtype, with sums of the other one.
bool is_multiplied(DType factor, DType sum) {
  if (sum != DType::F32) return factor == DType::I8 || factor == DType::U8;
  return factor == DType::F16 || factor == DType::BF16 || factor == DType::F8E4M3FN || factor == DType::F8E5M2;
}

// True if tensor cores multiply both dtypes with each other.
bool are_multiplied(DType a, DType b) { return a == b || (info(a).bits == 8 && info(b).bits == 8); }

// The value in a dtype of tensor cores that a factor in f32 or i32 is equal to, and the dtype.
std::optional<std::pair<ScalarId, DType>> narrow(const Graph& graph, const LoopNest& nest, const Domain& domain,
                                                 ScalarId factor) {
  auto multiplied = [&](DType d) { return is_multiplied(d, nest.dag[factor].dtype); };
  auto stored = [&](ScalarId id) { // of a load: the dtype in memory
    return graph.type(domain.buffers[static_cast<size_t>(domain.loads[static_cast<size_t>(id)].buffer)]).dtype;
  };
  const ScalarNode& n = nest.dag[factor];
  if (n.op == ScalarOp::Load && multiplied(stored(factor))) return std::pair(factor, stored(factor));
  if (n.op != ScalarOp::Cast) return std::nullopt;
  const ScalarId from = n.args[0];
  const ScalarNode& rounded = nest.dag[from];
  if (!multiplied(rounded.dtype)) return std::nullopt;
  if (rounded.op == ScalarOp::Cast) // of a load that needs no rounding
    if (const ScalarId load = rounded.args[0]; nest.dag[load].op == ScalarOp::Load && stored(load) == rounded.dtype)
      return std::pair(load, rounded.dtype);
  return std::pair(from, rounded.dtype);
}

// The parts of a factor of matmul_of_parts; of another one, the factor.
std::vector<ScalarId> parts_of(const LoopNest& nest, ScalarId factor, bool of_parts) {
  std::vector<ScalarId> out;
  for (; of_parts && nest.dag[factor].op == ScalarOp::Add; factor = nest.dag[factor].args[0])
    out.push_back(nest.dag[factor].args[1]);
  out.push_back(factor);
  std::reverse(out.begin(), out.end());
  return out;
}

} // namespace

std::optional<Contraction> Contraction::find(const Graph& graph, const LoopNest& nest, const Domain& domain) {
  Contraction out;
  for (ScalarId id = 0; id < nest.dag.size(); ++id) {
    if (!domain.live[static_cast<size_t>(id)]) continue;
    const ScalarNode& n = nest.dag[id];
    if (n.op == ScalarOp::CheckBounds && domain.row_varying(id)) return std::nullopt; // each tile would report
    if (n.op != ScalarOp::Reduce) continue;
    if (out.fold >= 0 || n.reduce != ReduceKind::Sum || (n.dtype != DType::F32 && n.dtype != DType::I32))
      return std::nullopt;
    out.fold = id;
  }
  if (out.fold < 0) return std::nullopt;
  for (size_t i = 0; i < nest.stores.size(); ++i)
    if (domain.row_varying(nest.stores[i].scalar) || (domain.access_deps(domain.stores[i]) & domain.row_mask))
      return std::nullopt;
  const ScalarNode& product = nest.dag[nest.dag[out.fold].args[0]];
  if (product.op != ScalarOp::Mul || product.dtype != nest.dag[out.fold].dtype) return std::nullopt;
  std::array<uint64_t, 2> deps{};
  const bool of_parts = std::any_of(nest.sources.begin(), nest.sources.end(),
                                    [&](NodeId id) { return fusion::product_parts(graph.node(id)) > 1; });
  for (size_t i : {size_t{0}, size_t{1}}) {
    for (const ScalarId part : parts_of(nest, product.args[i], of_parts)) {
      const auto value = narrow(graph, nest, domain, part);
      const bool first = i == 0 && out.factors[0].empty();
      if (!value || (!first && !are_multiplied(value->second, out.dtype))) return std::nullopt;
      out.factors[i].push_back(value->first);
      if (first) out.dtype = value->second;
    }
    deps[i] = domain.deps[static_cast<size_t>(product.args[i])];
  }
  for (size_t i : {size_t{0}, size_t{1}}) {
    out.axes[i] = deps[i] & ~deps[1 - i] & ~domain.row_mask;
    out.depth[i] = deps[i] & domain.row_mask;
    if (out.axes[i] == 0 || out.depth[i] == 0) return std::nullopt;
  }
  if (out.factors[0].size() != out.factors[1].size()) return std::nullopt;
  return out;
}

int Contraction::max_depth() const {
  const int whole = 8 * layout::kMmaDepthBytes * 8 / info(dtype).bits;
  return promoted() && info(dtype).bits == 8 ? std::min(whole, kPromotedDepth) : whole;
}

bool by_warpgroups(const TileShape& tile, int sums, const Target& device) {
  return device.warpgroup_f16_per_cycle > 0 && layout::fits_warpgroups({tile.rows, tile.columns}, tile.warps, sums);
}

} // namespace tessera
