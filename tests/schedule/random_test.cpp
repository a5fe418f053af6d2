// Random nests: permuted, broadcast, shifted, strided and gathered accesses, chains of reductions, stores per point and
// per row, in integers, so that every schedule must agree exactly with the nest.
#include "nests.h"
#include "tests/base/seeds.h"
#include <random>

namespace tessera::test {
namespace {

class Generator {
public:
  explicit Generator(uint32_t seed) : rng_(seed) {}

  Problem make() {
    SymExpr n = p_.graph.env().named_symbol("n", {0, 1000}), m = p_.graph.env().named_symbol("m", {0, 1000});
    const std::vector<SymExpr> extents{1, 2, 3, 5, 19, 33, n, m, n, m};
    int outer = pick(4), row = pick(3);
    if (outer + row == 0) outer = 1;
    for (int i = 0; i < outer + row; ++i) {
      Axis a{SymExpr::symbol("i" + std::to_string(i)),
             extents[static_cast<size_t>(pick(static_cast<int>(extents.size())))],
             i < outer ? AxisRole::Outer : AxisRole::Row};
      p_.graph.env().set_range(a.var, {0, std::max<int64_t>(0, p_.graph.env().range(a.extent).hi - 1)});
      p_.nest.axes.push_back(a);
    }
    p_.nest.name = "random";
    for (int i = 0; i < 3; ++i) pool_.push_back(load());
    pool_.push_back(dag().constant_i(DType::I64, 3));
    for (int i = 4 + pick(8); i > 0; --i) step(row > 0);
    store_point();
    if (row > 0) store_row(outer);
    if (pick(2)) store_point();
    return std::move(p_);
  }

private:
  int pick(int n) { return static_cast<int>(rng_() % static_cast<uint32_t>(n)); }
  ScalarDag& dag() { return p_.nest.dag; }
  ScalarId any() { return pool_[static_cast<size_t>(pick(static_cast<int>(pool_.size())))]; }
  std::vector<size_t> shuffled_axes(bool all) {
    std::vector<size_t> order;
    for (size_t i = 0; i < p_.nest.axes.size(); ++i)
      if (all || pick(4)) order.push_back(i);
    if (pick(3) == 0) std::shuffle(order.begin(), order.end(), rng_);
    return order;
  }

  ScalarId load() {
    // An axis a is read as a, a + 1 of a longer dimension, every second element, from the end, or split into two
    // dimensions.
    TensorType type{DType::I64, {}};
    std::vector<SymExpr> index;
    SymExpr one(1);
    for (size_t i : shuffled_axes(false)) {
      const Axis& a = p_.nest.axes[i];
      switch (pick(8)) {
      case 0: type.shape.push_back(a.extent + 1), index.push_back(a.var + 1); break;
      case 1: type.shape.push_back(a.extent * 2), index.push_back(a.var * 2); break;
      case 2: type.shape.push_back(a.extent), index.push_back(a.extent - 1 - a.var); break;
      case 3:
        type.shape.push_back(floordiv(a.extent + 2, 3)), index.push_back(floordiv(a.var, 3));
        type.shape.push_back(SymExpr(3)), index.push_back(mod(a.var, 3));
        break;
      default: type.shape.push_back(a.extent), index.push_back(a.var);
      }
    }
    std::vector<ScalarId> ids;
    for (const SymExpr& e : index) ids.push_back(dag().index(e));
    if (pick(4) == 0) { // the last dimension is looked up, by what another array holds
      ScalarId at = pool_.empty() ? dag().constant_i(DType::I64, 2) : any();
      ScalarId nine = dag().constant_i(DType::I64, 9);
      ids.push_back(dag().check_bounds(dag().op(ScalarOp::Mod, at, nine), nine));
      type.shape.push_back(9);
    }
    ScalarId predicate = -1;
    if (pick(4) == 0 && !p_.nest.axes.empty()) {
      const Axis& a = p_.nest.axes[static_cast<size_t>(pick(static_cast<int>(p_.nest.axes.size())))];
      predicate = dag().condition(pick(2) ? sym_lt(a.var, 2) : sym_le(2, a.var));
    }
    ValueId v = p_.graph.add_input("x" + std::to_string(p_.nest.loads.size()), type);
    p_.nest.loads.push_back(v);
    return dag().load(static_cast<int>(p_.nest.loads.size()) - 1, DType::I64, ids, predicate);
  }
  void step(bool row) {
    constexpr ScalarOp kOps[] = {ScalarOp::Add, ScalarOp::Sub, ScalarOp::Mul,
                                 ScalarOp::Max, ScalarOp::Div, ScalarOp::Mod};
    constexpr ReduceKind kFolds[] = {ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min, ReduceKind::Prod};
    int what = pick(10);
    if (row && what < 3)
      pool_.push_back(dag().reduce(kFolds[pick(4)], any()));
    else if (what == 3)
      pool_.push_back(load());
    else if (what == 4 && !p_.nest.axes.empty())
      pool_.push_back(
          dag().index(p_.nest.axes[static_cast<size_t>(pick(static_cast<int>(p_.nest.axes.size())))].var * 2 - 3));
    else if (what == 5)
      pool_.push_back(dag().op(ScalarOp::Select, dag().op(ScalarOp::Lt, any(), any()), any(), any()));
    else
      pool_.push_back(dag().op(kOps[pick(6)], any(), any()));
  }
  void add_store(const std::vector<size_t>& order, ScalarId value, bool per_row) {
    TensorType type{DType::I64, {}};
    Store s;
    for (size_t i : order) {
      type.shape.push_back(p_.nest.axes[i].extent);
      s.index.push_back(dag().index(p_.nest.axes[i].var));
    }
    s.value = p_.graph.add_input("y" + std::to_string(p_.nest.stores.size()), type);
    s.scalar = value;
    s.per_row = per_row;
    p_.nest.stores.push_back(s);
  }
  void store_point() { add_store(shuffled_axes(true), pool_.back(), false); }
  void store_row(int outer) {
    std::vector<bool> varying = row_varying(p_.nest);
    for (size_t i = pool_.size(); i-- > 0;) {
      if (varying[static_cast<size_t>(pool_[i])]) continue;
      std::vector<size_t> order(static_cast<size_t>(outer));
      for (size_t a = 0; a < order.size(); ++a) order[a] = a;
      return add_store(order, pool_[i], true);
    }
  }

  std::mt19937 rng_;
  Problem p_;
  std::vector<ScalarId> pool_;
};

TEST(Random, SchedulesAgreeWithTheNest) {
  for (uint32_t seed = 0; seed < test::seeds(40); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Problem p = Generator(seed).make();
    Status ok = verify(p.graph, p.nest);
    ASSERT_TRUE(ok.ok()) << ok.error().str();
    // Empty rows with loads that do not depend on the row have no meaning in the nest: sizes start at 1.
    expect_same(p, {{{"n", 1}, {"m", 1}}, {{"n", 3}, {"m", 18}}, {{"n", 17}, {"m", 2}}}, {.tolerance = 0});
    if (HasFailure()) return;
  }
}

} // namespace
} // namespace tessera::test
