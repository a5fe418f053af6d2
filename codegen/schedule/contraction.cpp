#include "codegen/schedule/contraction.h"
#include "codegen/layout/dot.h"
#include "codegen/layout/warpgroup.h"
#include "graph/ops/questions.h"
#include <algorithm>
#include <bit>

namespace tessera {
namespace {

// True if tensor cores multiply factors of this dtype, with sums of the other one.
bool is_multiplied(DType factor, DType sum) {
  if (sum != DType::F32) return factor == DType::I8 || factor == DType::U8;
  return factor == DType::F16 || factor == DType::BF16 || factor == DType::F8E4M3FN || factor == DType::F8E5M2;
}

// True if tensor cores multiply both dtypes with each other.
bool are_multiplied(DType a, DType b) { return a == b || (info(a).bits == 8 && info(b).bits == 8); }

// The value that a factor in f32 or i32 is equal to, and its dtype, one of tensor cores; none of an f32 that is equal to a
// value of each: of an integer of 8 bits.
std::optional<std::pair<ScalarId, std::optional<DType>>> narrow(const Graph& graph, const LoopNest& nest,
                                                                const Domain& domain, ScalarId factor) {
  auto multiplied = [&](DType d) { return is_multiplied(d, nest.dag[factor].dtype); };
  auto stored = [&](ScalarId id) { // of a load: the dtype in memory
    return graph.type(domain.buffers[static_cast<size_t>(domain.loads[static_cast<size_t>(id)].buffer)]).dtype;
  };
  const ScalarNode& n = nest.dag[factor];
  using Narrow = std::pair<ScalarId, std::optional<DType>>;
  if (n.op == ScalarOp::Load && multiplied(stored(factor))) return Narrow(factor, stored(factor));
  if (n.op != ScalarOp::Cast) return std::nullopt;
  const ScalarId from = n.args[0];
  const ScalarNode& rounded = nest.dag[from];
  if (n.dtype == DType::F32 && (rounded.dtype == DType::I8 || rounded.dtype == DType::U8))
    return Narrow(factor, std::nullopt);
  if (!multiplied(rounded.dtype)) return std::nullopt;
  if (rounded.op == ScalarOp::Cast) // of a load that needs no rounding
    if (const ScalarId load = rounded.args[0]; nest.dag[load].op == ScalarOp::Load && stored(load) == rounded.dtype)
      return Narrow(load, rounded.dtype);
  return Narrow(from, rounded.dtype);
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

// Axes on which a value depends in another way than by the number of its group.
uint64_t deps_within_group(const LoopNest& nest, const Domain& domain, ScalarId id, ScalarId group) {
  std::vector<uint64_t> deps(static_cast<size_t>(id) + 1);
  for (ScalarId i = 0; i <= id; ++i) {
    const auto at = static_cast<size_t>(i);
    if (!domain.live[at] || i == group) continue;
    const ScalarNode& n = nest.dag[i];
    if (n.op == ScalarOp::Index) deps[at] = domain.axes_in(domain.sym[at]);
    if (n.op == ScalarOp::Load) deps[at] = domain.axes_in(domain.loads[at].offset);
    for (const ScalarId a : n.args) deps[at] |= deps[static_cast<size_t>(a)];
  }
  return deps[static_cast<size_t>(id)];
}

// The groups of a factor: a load at an index of data along its first dimension, which is found by loads of one vector.
std::optional<Contraction::Groups> groups_of(const Graph& graph, const LoopNest& nest, const Domain& domain,
                                             ScalarId factor) {
  if (std::none_of(nest.sources.begin(), nest.sources.end(),
                   [&](NodeId id) { return ops::grouped(graph, graph.node(id)) == ops::Grouped::Rows; }))
    return std::nullopt;
  const Access& access = domain.loads[static_cast<size_t>(factor)];
  if (nest.dag[factor].op != ScalarOp::Load || access.terms.size() != 1) return std::nullopt;
  Contraction::Groups out;
  out.group = access.terms[0].first;
  out.axis = domain.deps[static_cast<size_t>(out.group)];
  if (!std::has_single_bit(out.axis) || (out.axis & domain.row_mask) != 0) return std::nullopt;
  std::vector<bool> above(static_cast<size_t>(out.group) + 1); // the operands of the group's number
  above.back() = true;
  for (ScalarId id = out.group; id >= 0; --id) {
    if (!above[static_cast<size_t>(id)] || !domain.live[static_cast<size_t>(id)]) continue;
    const ScalarNode& n = nest.dag[id];
    if (n.op == ScalarOp::Load) {
      const int buffer = domain.loads[static_cast<size_t>(id)].buffer;
      if (out.ends >= 0 && out.ends != buffer) return std::nullopt;
      out.ends = buffer;
    }
    for (const ScalarId a : n.args) above[static_cast<size_t>(a)] = true;
  }
  if (out.ends < 0) return std::nullopt;
  const TensorType& ends = graph.type(domain.buffers[static_cast<size_t>(out.ends)]);
  if (ends.rank() != 1 || !is_integer(ends.dtype)) return std::nullopt;
  out.count = domain.env.simplify(ends.shape[0]);
  return out;
}

// The range of a load's predicate begin <= position < end along a reduced axis.
std::optional<Contraction::Range> range_of(const LoopNest& nest, const Domain& domain, ScalarId load) {
  if (nest.dag[load].op != ScalarOp::Load) return std::nullopt;
  const ScalarId predicate = domain.loads[static_cast<size_t>(load)].predicate;
  if (predicate < 0 || nest.dag[predicate].op != ScalarOp::And) return std::nullopt;
  const auto& sides = nest.dag[predicate].args; // in any order
  const size_t lower = nest.dag[sides[0]].op == ScalarOp::Le ? 0 : 1;
  const ScalarNode &first = nest.dag[sides[lower]], &last = nest.dag[sides[1 - lower]];
  if (first.op != ScalarOp::Le || last.op != ScalarOp::Lt || first.args[1] != last.args[0]) return std::nullopt;
  const ScalarId position = last.args[0];
  const bool along = std::any_of(domain.axes.begin(), domain.axes.end(), [&](const Axis& a) {
    return a.role == AxisRole::Row && nest.dag[position].op == ScalarOp::Index &&
           domain.sym[static_cast<size_t>(position)] == a.var;
  });
  const Contraction::Range out{first.args[0], last.args[1],
                               domain.deps[static_cast<size_t>(first.args[0])] |
                                   domain.deps[static_cast<size_t>(last.args[1])]};
  return along && (out.axes & domain.row_mask) == 0 ? std::optional(out) : std::nullopt;
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
  std::array<uint64_t, 2>& deps = out.deps;
  std::optional<DType> dtype; // of the factors so far
  const bool of_parts = std::any_of(nest.sources.begin(), nest.sources.end(),
                                    [&](NodeId id) { return ops::is(graph.node(id), Structured::MatmulOfParts); });
  for (size_t i : {size_t{0}, size_t{1}}) {
    for (const ScalarId part : parts_of(nest, product.args[i], of_parts)) {
      const auto value = narrow(graph, nest, domain, part);
      if (!value) return std::nullopt;
      if (value->second && dtype && !are_multiplied(*value->second, *dtype)) return std::nullopt;
      out.factors[i].push_back(value->first);
      out.computed[i] = out.computed[i] || nest.dag[value->first].op != ScalarOp::Load;
      if (!dtype) dtype = value->second;
    }
    deps[i] = domain.deps[static_cast<size_t>(product.args[i])];
    if (auto groups = groups_of(graph, nest, domain, out.factors[i][0])) {
      deps[i] = deps_within_group(nest, domain, product.args[i], groups->group);
      groups->factor = i;
      out.groups = std::move(groups);
    }
  }
  if (out.groups && (deps[1 - out.groups->factor] & out.groups->axis) == 0) return std::nullopt;
  for (size_t i : {size_t{0}, size_t{1}}) {
    out.axes[i] = deps[i] & ~deps[1 - i] & ~domain.row_mask;
    out.depth[i] = deps[i] & domain.row_mask;
    if (out.axes[i] == 0 || out.depth[i] == 0) return std::nullopt;
  }
  if (out.factors[0].size() != out.factors[1].size()) return std::nullopt;
  out.dtype = dtype.value_or(DType::BF16);
  const auto predicate = [&](size_t i) { return domain.loads[static_cast<size_t>(out.factors[i][0])].predicate; };
  if (out.parts() == 1 && std::popcount(domain.row_mask) == 1 && predicate(0) == predicate(1))
    out.range = range_of(nest, domain, out.factors[0][0]);
  return out;
}

int Contraction::max_depth() const {
  const int whole = 8 * layout::kMmaDepthBytes * 8 / info(dtype).bits;
  return promoted() && info(dtype).bits == 8 ? std::min(whole, kPromotedDepth) : whole;
}

WarpgroupNeeds Contraction::warpgroup_needs(uint64_t rows, uint64_t columns) const {
  const size_t left = this->left(rows, columns) == 1 ? 1 : 0;
  return {sums(), computed[left] ? parts() * info(dtype).bits : 0, computed[1 - left]};
}

bool by_warpgroups(const TileShape& tile, const WarpgroupNeeds& needs, const Target& device) {
  return device.warpgroup_f16_per_cycle > 0 && !needs.right_computed &&
         layout::fits_warpgroups({tile.rows, tile.columns}, tile.warps, needs.sums, needs.left_bits * tile.depth);
}

} // namespace tessera
