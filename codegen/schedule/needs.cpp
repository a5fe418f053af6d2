#include "codegen/schedule/needs.h"
#include <algorithm>
#include <bit>
#include <map>

namespace tessera {

// Discontinuous operations: an error of one ulp of the argument may become an error of 1.
static bool jumps(const ScalarNode& n, const LoopNest& nest) {
  switch (n.op) {
  case ScalarOp::Sign:
  case ScalarOp::Floor:
  case ScalarOp::Ceil:
  case ScalarOp::Round:
  case ScalarOp::Trunc:
  case ScalarOp::Mod:
  case ScalarOp::Fmod:
  case ScalarOp::Eq:
  case ScalarOp::Ne:
  case ScalarOp::Lt:
  case ScalarOp::Le:
  case ScalarOp::Gt:
  case ScalarOp::Ge: return true;
  case ScalarOp::Bitcast: return true;
  case ScalarOp::Cast: return !is_float(n.dtype) && is_float(nest.dag[n.args[0]].dtype);
  case ScalarOp::Reduce: return n.reduce == ReduceKind::ArgMax || n.reduce == ReduceKind::ArgMin;
  default: return false;
  }
}

// Finds for each node whether it is needed if the row is empty, under which predicates, and whether its last bit
// matters.
Needs find_needs(const LoopNest& nest, const Domain& domain) {
  Needs needs;
  size_t n = domain.live.size();
  needs.outside.assign(n, 0);
  needs.always.assign(n, 0);
  needs.steep.assign(n, 0);
  needs.predicates.resize(n);
  for (size_t i = 0; i < nest.stores.size(); ++i) {
    size_t v = static_cast<size_t>(nest.stores[i].scalar);
    needs.always[v] = 1;
    if (((domain.deps[v] | domain.axes_in(domain.stores[i].offset)) & domain.row_mask) == 0) needs.outside[v] = 1;
  }
  for (size_t id = n; id-- > 0;) {
    if (!domain.live[id]) continue;
    const ScalarNode& x = nest.dag[static_cast<ScalarId>(id)];
    for (size_t k = 0; k < x.args.size(); ++k) {
      size_t a = static_cast<size_t>(x.args[k]);
      if (needs.steep[id] || jumps(x, nest)) needs.steep[a] = 1;
      if (needs.outside[id] && x.op != ScalarOp::Reduce) needs.outside[a] = 1;
      bool guarded = x.op == ScalarOp::Load && x.masked && k + 1 < x.args.size();
      if (guarded) {
        needs.predicates[a].push_back(x.args.back());
        continue;
      }
      needs.always[a] = needs.always[a] || needs.always[id];
      for (ScalarId p : needs.predicates[id])
        if (std::find(needs.predicates[a].begin(), needs.predicates[a].end(), p) == needs.predicates[a].end())
          needs.predicates[a].push_back(p);
    }
  }
  return needs;
}

bool need_is_known(const Domain& domain, const Needs& needs, ScalarId id, uint64_t axes, int known) {
  if (needs.always[static_cast<size_t>(id)]) return true;
  const std::vector<ScalarId>& under = needs.predicates[static_cast<size_t>(id)];
  return std::all_of(under.begin(), under.end(), [&](ScalarId p) {
    return (domain.deps[static_cast<size_t>(p)] & ~axes) == 0 && domain.stage[static_cast<size_t>(p)] <= known;
  });
}

std::optional<ScalarValue> value_of_zeros(const LoopNest& nest, ScalarId id,
                                          const std::function<bool(ScalarId)>& reads_zero) {
  constexpr int kMaxNodes = 32; // larger expressions make a select cheap in comparison
  std::map<ScalarId, std::optional<ScalarValue>> known;
  std::function<std::optional<ScalarValue>(ScalarId)> find = [&](ScalarId x) -> std::optional<ScalarValue> {
    if (auto it = known.find(x); it != known.end()) return it->second;
    if (known.size() >= kMaxNodes) return std::nullopt;
    const ScalarNode& n = nest.dag[x];
    std::optional<ScalarValue> result;
    if (n.op == ScalarOp::Const) result = ScalarValue{n.f, n.i};
    if (n.op == ScalarOp::Load && reads_zero(x)) result = ScalarValue{};
    bool leaf = n.op == ScalarOp::Const || n.op == ScalarOp::Load || n.op == ScalarOp::Index ||
                n.op == ScalarOp::Reduce || n.op == ScalarOp::CheckBounds;
    if (!leaf) {
      std::vector<ScalarValue> args;
      for (ScalarId a : n.args)
        if (auto v = find(a)) args.push_back(*v);
      // Elementary functions may differ in their last bits between devices.
      if (args.size() == n.args.size() && info(n.op).cost <= info(ScalarOp::Div).cost)
        result = eval_scalar(n.op, n.dtype, nest.dag[n.args.back()].dtype, args);
    }
    known[x] = result;
    return result;
  };
  return find(id);
}
bool same_value(DType dtype, const ScalarValue& a, const ScalarValue& b) {
  return is_float(dtype) ? std::bit_cast<uint64_t>(a.f) == std::bit_cast<uint64_t>(b.f) : a.i == b.i;
}

bool divides_by_row_scalar(const LoopNest& nest, const Domain& domain, const Needs& needs, ScalarId id) {
  const ScalarNode& n = nest.dag[id];
  return n.op == ScalarOp::Div && n.dtype == DType::F32 && domain.row_varying(id) &&
         !needs.steep[static_cast<size_t>(id)] && !domain.row_varying(n.args[1]) &&
         domain.stage[static_cast<size_t>(n.args[1])] > 0;
}

bool depends_on(const LoopNest& nest, ScalarId id, ScalarId on) {
  if (id <= on) return id == on;
  std::vector<char> reached(static_cast<size_t>(id) + 1);
  reached.back() = 1;
  for (ScalarId x = id; x > on; --x)
    if (reached[static_cast<size_t>(x)])
      for (ScalarId a : nest.dag[x].args) reached[static_cast<size_t>(a)] = 1;
  return reached[static_cast<size_t>(on)];
}

} // namespace tessera
