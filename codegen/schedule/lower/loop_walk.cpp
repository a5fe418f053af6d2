#include "codegen/schedule/lower/loop_walk.h"
#include <array>

namespace tessera::loops {

// Full tiles, then vectors, then the masked remainder; phases that a constant extent excludes are not emitted.
std::vector<Phase> Walk::phases(const Range& range) {
  std::vector<Phase> list;
  SymExpr extent = d_.env.simplify(range.extent);
  if (auto n = extent.as_const(); n && range.whole) {
    int64_t at = 0;
    for (int lanes : {c_.wide, c_.vector}) {
      int64_t end = at + (*n - at) / lanes * lanes;
      if (end == at) continue;
      list.push_back({lanes, sizes_.constant(at), sizes_.constant(end),
                      end - at == lanes ? std::optional(at) : std::nullopt, false});
      at = end;
    }
    if (at < *n) list.push_back({c_.vector, sizes_.constant(at), sizes_.constant(*n), at, true});
    return list;
  }
  // Blocks of a range start and, except for the last, end at multiples of the full tile.
  int64_t divisor = d_.env.divisor(extent);
  V from = range.from, length = op(ScalarOp::Sub, range.to, range.from);
  auto whole_steps = [&](int lanes) { // both widths are powers of two
    return divisor % lanes == 0 ? range.to
                                : op(ScalarOp::Add, range.from, op(ScalarOp::And, length, sizes_.constant(-lanes)));
  };
  for (int lanes : {c_.wide, c_.vector}) {
    V to = whole_steps(lanes);
    list.push_back({lanes, from, to, std::nullopt, false});
    if (divisor % lanes == 0) return list;
    from = to;
    if (c_.wide == c_.vector) break;
  }
  list.push_back({c_.vector, from, range.to, std::nullopt, true});
  return list;
}

Values Walk::walk(const Phase& phase, const SymExpr& axis, V end, Values carried,
                  const std::function<Values(Values)>& body) {
  auto step = [&](V base, Values c) {
    sizes_.bind_tile(axis, base, phase.lanes);
    c_.mask = phase.masked ? b_.scalar(ScalarOp::Lt, std::array{sizes_.number(axis), end}) : -1;
    Values next = body(std::move(c));
    sizes_.unbind_tile();
    c_.mask = -1;
    return next;
  };
  if (phase.only) return memo_.scoped([&] { return step(sizes_.number(*phase.only), std::move(carried)); });
  return loop(phase.from, phase.to, phase.lanes, std::move(carried), step);
}

Values Walk::loop(V from, V to, int64_t step, Values carried, const std::function<Values(V, Values)>& body) {
  return b_.for_loop(from, to, sizes_.constant(step), std::move(carried), [&](V i, std::span<const V> c) {
    return memo_.scoped([&] { return body(i, Values(c.begin(), c.end())); });
  });
}

} // namespace tessera::loops
