#include "codegen/schedule/lower/loop_walk.h"
#include <algorithm>
#include <array>

namespace tessera::loops {

// Full tiles, then vectors, then the masked remainder; phases that a constant extent excludes are not emitted.
std::vector<Phase> RowLoop::phases(const Range& range) {
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

Values RowLoop::walk(const Phase& phase, const SymExpr& axis, V end, Values carried,
                     const std::function<Values(Values)>& body, const std::vector<bool>& sums, const SymExpr& most) {
  auto step = [&](V base, Values c) {
    sizes_.bind_tile(axis, base, phase.lanes);
    c_.mask = phase.masked ? b_.scalar(ScalarOp::Lt, std::array{sizes_.number(axis), end}) : -1;
    Values next = body(std::move(c));
    sizes_.unbind_tile();
    c_.mask = -1;
    return next;
  };
  if (phase.only) return memo_.scoped([&] { return step(sizes_.number(*phase.only), std::move(carried)); });
  // Only a few steps remain behind the full tiles.
  if (sums.empty() || phase.masked || phase.lanes < c_.wide)
    return loop(phase.from, phase.to, phase.lanes, std::move(carried), step);
  return summing_loop(phase.from, phase.to, phase.lanes, most, 1, std::move(carried), sums, step);
}

namespace {
// An error of at most 64 roundings a level, on any device. Three levels and the vector's lanes are more elements than a
// thread adds; a level more would be a loop more around every symbolic sum.
constexpr int64_t kBlock = 64; // additions
constexpr int kLevels = 3;
} // namespace

int64_t RowLoop::additions(const SymExpr& extent, int64_t step, int64_t adds) const {
  const int64_t steps = (std::max<int64_t>(d_.env.range(extent).hi, 1) - 1) / step + 1;
  return steps <= kBlock / adds ? steps * adds : 1;
}

// `level` levels of blocks: one of the lowest has `steps` steps, one of the next kBlock of these.
Values RowLoop::levels(V from, V to, int64_t step, int64_t steps, int level, Values carried, const Blocks& blocks,
                       const std::function<Values(V, Values)>& body) {
  if (level == 0) return loop(from, to, step, std::move(carried), body);
  int64_t stride = step * steps;
  for (int l = 1; l < level; ++l) stride *= kBlock;
  return loop(from, to, stride, std::move(carried), [&](V i, const Values& totals) {
    const V end = op(ScalarOp::Min, op(ScalarOp::Add, i, sizes_.constant(stride)), to);
    return blocks.combine(totals, levels(i, end, step, steps, level - 1, blocks.begin(totals), blocks, body));
  });
}

Values RowLoop::blocked_loop(V from, V to, int64_t step, const SymExpr& extent, int64_t adds, Values carried,
                             const Blocks& blocks, const std::function<Values(V, Values)>& body) {
  const int64_t steps = std::max<int64_t>(1, kBlock / adds), block = steps * step;
  const SymRange length = d_.env.range(extent);
  int level = 0;
  for (int64_t most = length.hi / block; most > 0 && level < kLevels; most /= kBlock) ++level;
  if (level == 0) return loop(from, to, step, std::move(carried), body);
  auto all = [&] { return levels(from, to, step, steps, level, carried, blocks, body); };
  if (adds > 1 || length.lo > block) return all();
  const V is_short = op(ScalarOp::Le, op(ScalarOp::Sub, to, from), sizes_.constant(block));
  return b_.if_else(
      is_short, [&] { return memo_.scoped([&] { return loop(from, to, step, carried, body); }); },
      [&] { return memo_.scoped(all); });
}

Values RowLoop::summing_loop(V from, V to, int64_t step, const SymExpr& extent, int64_t adds, Values carried,
                             const std::vector<bool>& sums, const std::function<Values(V, Values)>& body) {
  if (std::find(sums.begin(), sums.end(), true) == sums.end()) return loop(from, to, step, std::move(carried), body);
  auto begin = [&](const Values& totals) {
    Values block = totals;
    for (size_t k = 0; k < block.size(); ++k)
      if (sums[k]) {
        const tile::Type& type = b_.kernel().type(totals[k]);
        block[k] = splat(b_.const_f(type.dtype, 0), type.is_tile() ? type.shape[0] : 1);
      }
    return block;
  };
  auto combine = [&](const Values& totals, Values block) {
    for (size_t k = 0; k < block.size(); ++k)
      if (sums[k]) block[k] = b_.scalar(ScalarOp::Add, std::array{totals[k], block[k]});
    return block;
  };
  return blocked_loop(from, to, step, extent, adds, std::move(carried), {begin, combine}, body);
}

Values RowLoop::loop(V from, V to, int64_t step, Values carried, const std::function<Values(V, Values)>& body) {
  return b_.for_loop(from, to, sizes_.constant(step), std::move(carried), [&](V i, std::span<const V> c) {
    return memo_.scoped([&] { return body(i, Values(c.begin(), c.end())); });
  });
}

} // namespace tessera::loops
