// Copying scalar DAGs: with axes replaced, with loads renumbered or replaced by scalars, and index expressions that
// become data where an axis is replaced by something read from memory.
#pragma once
#include "fusion/axes.h"

namespace tessera::fusion {

// Rewrites a copied load; `args` are its copied arguments. Negative: the copy as it is.
using LoadRewrite =
    std::function<ScalarId(ScalarDag& into, const ScalarNode& load, ScalarId old, std::span<const ScalarId> args)>;

// Copies what `roots` need of `from`, axes replaced and index expressions simplified. Returns the new id of each old
// one (-1 where not needed).
[[nodiscard]] std::vector<ScalarId> copy_dag(const ScalarDag& from, std::span<const ScalarId> roots, ScalarDag& into,
                                             const Substitution& axes, const ShapeEnv& env, const LoadRewrite& load);
// Nodes that `roots` need, by id.
[[nodiscard]] std::vector<bool> reachable(const ScalarDag& dag, std::span<const ScalarId> roots);

// An index expression as arithmetic on scalars, some of its symbols being scalars that were read from memory. i64, or
// bool for conditions.
[[nodiscard]] ScalarId index_of_data(ScalarDag& dag, const SymExpr& e,
                                     const std::unordered_map<uint64_t, ScalarId>& data, bool condition);

// Every id that stores of the nest need directly.
[[nodiscard]] std::vector<ScalarId> store_roots(const LoopNest& nest);
// Appends the inner values of `from` to those of `into`, whose DAG has a copy of from's. `to`: new scalars by old ones,
// -1 where not copied; these values are left out. `axes`: as for copy_dag().
void copy_inner(const std::vector<InnerValue>& from, std::span<const ScalarId> to, const Substitution& axes,
                const ShapeEnv& env, std::vector<InnerValue>& into);
// Removes the stores of values that are not `stored`. With `keep` they become inner values.
void remove_stores(LoopNest& nest, const std::function<bool(ValueId)>& stored, bool keep);
// The operand number of `value`, added when it is new.
[[nodiscard]] int load_slot(LoopNest& nest, ValueId value);
// All of the nest under another set of axes.
void reindex(LoopNest& nest, std::vector<Axis> axes, const Substitution& map, const ShapeEnv& env);
// Leaves out roundings of what is a number of that dtype already; axes stay. Loads of `raw` are no such numbers: a
// product's result before it is stored.
void drop_exact_roundings(LoopNest& nest, const Graph& graph, ValueId raw = {});
// Splits axes until no index divides one by a divisor of its extent; drops axes of one point.
void split_axes(LoopNest& nest, AxisPool& pool);

} // namespace tessera::fusion
