#include "codegen/schedule/lower/nest_values.h"
#include "codegen/schedule/index_sites.h"
#include <algorithm>
#include <array>

namespace tessera {

NestValues::NestValues(KernelContext& context, Memo& memo)
    : DagValues(context.nest.dag, context.d, memo), kernel_(context), reported_(context.d.live.size(), -2) {
  const IndexSites sites = index_sites(kernel_.graph, kernel_.nest, domain_);
  sites_ = sites.of;
  kernel_.out.report_sites = sites.checks;
}

void NestValues::hoist(uint64_t axes) {
  for (ScalarId id = 0; id < dag_.size(); ++id) {
    const auto i = static_cast<size_t>(id);
    if (!domain_.live[i]) continue;
    const ScalarOp o = dag_[id].op;
    if (divides_by_row_scalar(id) && values_[static_cast<size_t>(dag_[id].args[1])] >= 0) reciprocal(dag_[id].args[1]);
    if (values_[i] >= 0 || (domain_.deps[i] & ~axes) || domain_.stage[i] > kernel_.known || o == ScalarOp::Const ||
        o == ScalarOp::Index)
      continue;
    if (o == ScalarOp::Reduce) continue; // known after its stage
    if (need_is_known(domain_, kernel_.needs, id, axes, kernel_.known)) value(id);
  }
}

tile::ValueId NestValues::compute(ScalarId id) {
  const ScalarNode& n = dag_[id];
  switch (n.op) {
  case ScalarOp::Const: return is_float(n.dtype) ? kernel_.b.const_f(n.dtype, n.f) : kernel_.b.const_i(n.dtype, n.i);
  case ScalarOp::Index: {
    const SymExpr e = here(domain_.sym[static_cast<size_t>(id)]);
    return n.dtype == DType::Bool ? kernel_.sizes.condition(e) : kernel_.sizes.number(e);
  }
  case ScalarOp::Load: return load(id);
  case ScalarOp::CheckBounds: return check_bounds(id);
  case ScalarOp::Reduce: return reduce(id);
  case ScalarOp::Cast: return kernel_.b.cast(value(n.args[0]), n.dtype);
  case ScalarOp::Bitcast: return kernel_.b.bitcast(value(n.args[0]), n.dtype);
  case ScalarOp::Div:
    if (divides_by_row_scalar(id)) return divide(id);
    break;
  default: break;
  }
  std::vector<V> args;
  for (ScalarId a : n.args) args.push_back(value(a));
  return pointwise(kernel_.b, n.op, args);
}

bool NestValues::divides_by_row_scalar(ScalarId id) const {
  return !kernel_.exact_division && tessera::divides_by_row_scalar(kernel_.nest, domain_, kernel_.needs, id);
}
tile::ValueId NestValues::reciprocal(ScalarId divisor) {
  const size_t by = static_cast<size_t>(divisor), slot = domain_.live.size() + by;
  if (values_[slot] < 0) values_.remember(slot, kernel_.b.scalar(ScalarOp::Reciprocal, std::array{value(divisor)}));
  return values_[slot];
}
tile::ValueId NestValues::divide(ScalarId id) {
  const V x = value(dag_[id].args[0]);
  return pointwise(kernel_.b, ScalarOp::Mul, std::array{x, reciprocal(dag_[id].args[1])});
}

tile::ValueId NestValues::row_has_points(ScalarId id) {
  if (!kernel_.row_may_be_empty || kernel_.round >= 0 || domain_.row_varying(id) ||
      kernel_.needs.outside[static_cast<size_t>(id)])
    return -1;
  return kernel_.sizes.condition(sym_lt(0, domain_.row_count()));
}

tile::ValueId NestValues::offset_of(const Access& a, const SymExpr& start) {
  SizeEmitter& sizes = kernel_.sizes;
  V offset = sizes.number(start);
  for (const auto& [term, stride] : a.terms)
    offset = sizes.op(ScalarOp::Add, offset, sizes.op(ScalarOp::Mul, value(term), sizes.number(here(stride))));
  return offset;
}

tile::ValueId NestValues::may_read(ScalarId load) {
  const Access& a = domain_.loads[static_cast<size_t>(load)];
  V mask = row_has_points(load);
  for (const auto& [term, stride] : a.terms) {
    // A dimension that may be empty has no element to which a bad index can be clamped.
    if (dag_[term].op != ScalarOp::CheckBounds) continue;
    const ScalarId extent = dag_[term].args[1];
    auto sym = dag_.as_sym(extent);
    if (!sym || domain_.env.range(*sym).lo < 1)
      mask = conjunction(kernel_.b, mask,
                         pointwise(kernel_.b, ScalarOp::Lt, std::array{kernel_.sizes.constant(0), value(extent)}));
  }
  return a.predicate < 0 ? mask : conjunction(kernel_.b, mask, value(a.predicate));
}

// The index as the model has it, and where it stands. Axes on which the check does not depend are at 0.
void NestValues::report(ScalarId check, V bad, V below, V index) {
  tile::Builder& b = kernel_.b;
  const ScalarNode& n = dag_[check];
  if (n.masked) {
    const V before = tessera::pointwise(b, ScalarOp::Sub, std::array{index, value(n.args[1])});
    index = tessera::pointwise(b, ScalarOp::Select, std::array{below, before, index});
  }
  SymExpr at = domain_.sym[static_cast<size_t>(check)];
  std::unordered_map<uint64_t, SymExpr> fixed;
  for (size_t a = 0; a < domain_.axes.size(); ++a)
    if ((domain_.deps[static_cast<size_t>(check)] >> a & 1) == 0) fixed.emplace(domain_.axes[a].var.symbol_id(), 0);
  at = at.is_const(-1) ? SymExpr(IndexReport::kNoPosition) : here(domain_.env.simplify(at.substitute(fixed)));
  const std::vector<int> shape = b.kernel().type(bad).shape;
  V position = kernel_.sizes.number(at);
  if (common_shape(b.kernel(), std::array{bad, position}) != shape)
    position = kernel_.sizes.constant(IndexReport::kNoPosition);
  auto spread = [&](V v) { return b.kernel().type(v).is_tile() ? b.broadcast(v, shape) : v; };
  b.report_index(bad, spread(index), spread(position), sites_[static_cast<size_t>(check)]);
}

tile::ValueId NestValues::check_bounds(ScalarId id) {
  tile::Builder& b = kernel_.b;
  auto pointwise = [&](ScalarOp o, V x, V y) { return tessera::pointwise(b, o, std::array{x, y}); };
  const ScalarNode& n = dag_[id];
  const V i = value(n.args[0]), extent = value(n.args[1]), zero = kernel_.sizes.constant(0);
  const V below = pointwise(ScalarOp::Lt, i, zero);
  const V bad = pointwise(ScalarOp::Or, below, pointwise(ScalarOp::Ge, i, extent));
  int& round = reported_[static_cast<size_t>(id)];
  if (round == -2 || round == kernel_.round) { // a later stage that recomputes it need not report again
    V where = -1;
    const auto& under = kernel_.needs.predicates[static_cast<size_t>(id)];
    const bool always =
        kernel_.needs.always[static_cast<size_t>(id)] ||
        std::any_of(under.begin(), under.end(), [&](ScalarId p) { return depends_on(kernel_.nest, p, id); });
    bool all_known = true;
    if (!always)
      for (ScalarId p : under) {
        // A later stage reports.
        if (!kernel_.stages.stages.empty() && domain_.stage[static_cast<size_t>(p)] > kernel_.known)
          all_known = false;
        else
          where = where < 0 ? value(p) : pointwise(ScalarOp::Or, where, value(p));
      }
    if (all_known) round = kernel_.round;
    if (always || where >= 0) {
      where = conjunction(b, where, row_has_points(id));
      const auto shape = where < 0 ? b.kernel().type(bad).shape : common_shape(b.kernel(), std::array{bad, where});
      where = conjunction(b, inside(shape), where);
      report(id, conjunction(b, bad, where), below, i);
    }
  }
  return tessera::pointwise(b, ScalarOp::Select, std::array{bad, zero, i});
}

// All values before the first store: an output may alias an input that is read at the same index.
void NestValues::store_all() {
  std::vector<V> values;
  for (const Store& s : kernel_.nest.stores) values.push_back(value(s.scalar));
  for (size_t i = 0; i < values.size(); ++i) store(i, values[i]);
}

void NestValues::store_rows() {
  const std::vector<size_t>& stores = kernel_.stages.row_stores;
  std::vector<V> values;
  for (size_t i : stores) values.push_back(value(kernel_.nest.stores[i].scalar));
  for (size_t i = 0; i < stores.size(); ++i) store(stores[i], values[i]);
}

} // namespace tessera
