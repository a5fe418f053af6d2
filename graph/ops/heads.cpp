#include "graph/ops/heads.h"
#include <algorithm>

namespace tessera::ops {

SymExpr heads_per_key(B& b, const SymExpr& heads, const SymExpr& key_heads) {
  if (!b.ok()) return 1;
  ShapeEnv& env = b.env();
  const SymExpr all = env.simplify(heads), keys = env.simplify(key_heads);
  if (all == keys) return 1;
  auto no_multiple = [&](const std::string& of_queries, const std::string& of_keys) {
    b.fail(ErrorCode::ShapeMismatch, of_queries + " heads of Q share " + of_keys + " of K");
    return SymExpr(1);
  };
  if (const auto k = keys.as_const()) {
    const auto h = all.as_const();
    if (*k == 0 || (h && *h % *k != 0)) return no_multiple(all.str(), keys.str());
    b.check(
        env.require(sym_eq(mod(all, *k), 0), GuardClass::Required, "heads of K divide those of Q", b.node().location));
    return env.simplify(floordiv(all, *k));
  }
  constexpr int64_t kMax = 256; // heads that share one
  for (int64_t group = 2; group <= kMax; ++group)
    if (env.known_equal(all, keys * group)) return group;
  int64_t group = 1;
  if (const auto h = env.hint(all), k = env.hint(keys); h && k) {
    if (*k == 0 ? *h != 0 : *h % *k != 0 || *h / *k > kMax) return no_multiple(std::to_string(*h), std::to_string(*k));
    if (*k > 0) group = std::max<int64_t>(1, *h / *k);
  }
  b.check(
      env.require(sym_eq(all, keys * group), GuardClass::Assumed, "heads of Q that share one of K", b.node().location));
  return group;
}

} // namespace tessera::ops
