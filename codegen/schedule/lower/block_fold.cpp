// Reductions of tiles: along the row within a tile, and accumulators of loops over the row (online.h).
#include "codegen/schedule/lower/block_fold.h"
#include "codegen/schedule/fold.h"
#include "codegen/schedule/shapes.h"
#include <array>
#include <bit>
#include <limits>
#include <tuple>

namespace tessera::block {

// Along the row. Positions beyond the row hold the identity and need no mask: the identity wins only if no element of
// the row is better. Then all elements are equal to it, and the position nearest to it is the first, or the last, of
// the row.
V Scalars::position() { return b_.cast(sizes_.number(axis(*fold_side()).var), d_.position_dtype()); }
V Scalars::nearest_position(V i) {
  const V last = sizes_.op(ScalarOp::Sub, sizes_.number(axis(*fold_side()).extent), sizes_.constant(1));
  i = pointwise(b_, ScalarOp::Min, std::array{b_.cast(i, DType::I64), last});
  return pointwise(b_, ScalarOp::Max, std::array{i, sizes_.constant(0)});
}

V Scalars::inside_row(V v, V otherwise) {
  if (fold_side()->mask < 0) return v;
  return pointwise(b_, ScalarOp::Select, std::array{fold_side()->mask, v, otherwise});
}

// The operand of a reduction; positions beyond the row hold the identity.
V Scalars::filled(ScalarId from, DType dtype, ReduceKind kind) {
  V v = b_.cast(value(from), dtype);
  if (fold_side()->mask < 0) return v;
  double f = reduce_identity_f64(kind, dtype);
  int64_t i = reduce_identity_i64(kind, dtype);
  // Loads beyond the row are 0, which is often the identity.
  if (auto there = value_of_zeros(nest_, from, [&](ScalarId load) { return d_.row_varying(load); })) {
    if (node(from).dtype != dtype) there = eval_scalar(ScalarOp::Cast, dtype, node(from).dtype, std::array{*there});
    if (same_value(dtype, *there, {f, i})) return v;
  }
  return inside_row(v, is_float(dtype) ? b_.const_f(dtype, f) : b_.const_i(dtype, i));
}
// The operand of reduction r in its accumulator dtype.
V Scalars::fold_value(ScalarId r) {
  ReduceKind kind = node(r).reduce;
  if (is_arg_fold(node(r))) kind = kind == ReduceKind::ArgMax ? ReduceKind::Max : ReduceKind::Min;
  return filled(node(r).args[0], fold_dtype(nest_, r), kind);
}

// The tile holds the whole row.
V Scalars::reduce(ScalarId r) {
  TESSERA_CHECK(!schedule_.traversal.loop && !legal_.blocks_per_row, "a reduction is used before its round");
  const bool arg = is_arg_fold(node(r));
  const int dim = fold_side()->dim;
  if (dim < 0) return arg ? sizes_.number(axis(*fold_side()).var) : fold_value(r); // a row of one element
  V v = full(fold_value(r));
  if (!arg) return keep_dims(b_.reduce(node(r).reduce, v, dim));
  V i = b_.reduce_arg(node(r).reduce, v, full(position()), dim, node(r).select_last).second;
  return keep_dims(nearest_position(i));
}

// ---- loops

// Folds the elements of each thread: tiles of the accumulators' shape.
Values Accumulators::own(const std::function<Values(const Values&, int)>& fold, Values v) {
  const Side& s = *fold_side();
  if (s.run > 1) v = fold(v, s.dim + s.dims() - 1);
  if (s.steps > 1) v = fold(v, s.dim);
  return v;
}
V Accumulators::own(ReduceKind kind, V v) {
  return own([&](const Values& x, int dim) { return Values{b_.reduce(kind, x[0], dim)}; }, {v})[0];
}
// The reverse: broadcasts accumulators to the tile's shape.
V Accumulators::beside_own(V v) {
  const Side& s = *fold_side();
  if (!is_tile(v)) return v;
  if (s.steps > 1) v = b_.expand_dims(v, s.dim);
  if (s.run > 1) v = b_.expand_dims(v, s.dim + s.dims() - 1);
  return v;
}

// Number of elements of the row that each accumulator folds in this tile: segments of `run` elements from lane * run
// on, width * run apart, as many as begin before the row's end.
V Accumulators::elements_met() {
  const Side& s = *fold_side();
  V most = sizes_.constant(int64_t{s.steps} * s.run);
  if (s.mask < 0) return most;
  if (schedule_.access.alignment_peel > 1 ||
      d_.env.divisor(d_.row_count()) % s.run != 0) // rows begin or end within a segment
    return own(ReduceKind::Sum, b_.cast(s.mask, DType::I32));
  int rank = static_cast<int>(full_shape().size()) - s.dims() + 1, apart = s.width() * s.run;
  V lane = b_.range(s.width());
  for (int i = 0; i < rank; ++i)
    if (i != s.dim) lane = b_.expand_dims(lane, i);
  V left = sizes_.op(ScalarOp::Sub, sizes_.number(axis(s).extent), s.base);
  left = sizes_.op(ScalarOp::Add, left, sizes_.constant(apart - 1));
  V n = sizes_.op(ScalarOp::Sub, left, sizes_.op(ScalarOp::Mul, lane, sizes_.constant(s.run)));
  n = sizes_.op(ScalarOp::Max, n, sizes_.constant(0));
  n = sizes_.op(ScalarOp::Shr, n, sizes_.constant(std::countr_zero(static_cast<unsigned>(apart))));
  return sizes_.op(ScalarOp::Min, sizes_.op(ScalarOp::Mul, n, sizes_.constant(s.run)), most);
}

Values Accumulators::identities(const Fold& fold) {
  std::vector<int> shape = full_shape();
  const Side& s = *fold_side();
  int dim = s.dim;
  if (s.run > 1) shape.erase(shape.begin() + dim + s.dims() - 1);
  if (s.steps > 1) shape.erase(shape.begin() + dim);
  std::vector<int> along(shape.size(), 1);
  if (dim >= 0) along[static_cast<size_t>(dim)] = shape[static_cast<size_t>(dim)];
  Values list = fold.identities();
  for (size_t i = 0; i < list.size(); ++i)
    list[i] = splat(list[i], static_cast<int>(i) == fold.state().count ? along : shape);
  return list;
}

Values Accumulators::loop(const Fold& fold, V from, V to, V step, const SymExpr& tiles, const Values& carried,
                          const std::function<Values(V, std::span<const V>)>& body) {
  if (!fold.rounds() || d_.env.range(tiles).hi <= kFoldBlock) return b_.for_loop(from, to, step, carried, body);
  const size_t numbers = fold.state().dtypes.size(), own = carried.size();
  const V zero = sizes_.constant(0);
  // One loop with a condition rather than two nested ones: what does not change in it takes registers once.
  Values all = carried;
  const Values none = identities(fold);
  all.insert(all.end(), none.begin(), none.end()); // of the blocks before this one
  all.push_back(zero);                             // tiles in this block
  all = b_.for_loop(from, to, step, all, [&](V at, std::span<const V> now) {
    Values next = body(at, now.first(own));
    const Values before(now.begin() + static_cast<std::ptrdiff_t>(own), now.end() - 1);
    const V count = sizes_.op(ScalarOp::Add, now.back(), sizes_.constant(1));
    const V full = pointwise(b_, ScalarOp::Eq, std::array{count, sizes_.constant(kFoldBlock)});
    const Values block(next.begin(), next.begin() + static_cast<std::ptrdiff_t>(numbers));
    auto joined = [](Values x, const Values& y, V last) {
      x.insert(x.end(), y.begin(), y.end());
      x.push_back(last);
      return x;
    };
    const Values state = b_.if_else(
        full, [&] { return joined(identities(fold), fold.united(before, block), sizes_.constant(0)); },
        [&] { return joined(block, before, count); });
    std::copy_n(state.begin(), numbers, next.begin());
    next.insert(next.end(), state.begin() + static_cast<std::ptrdiff_t>(numbers), state.end());
    return next;
  });
  const auto end = all.begin() + static_cast<std::ptrdiff_t>(own);
  Values out =
      fold.united(Values(end, all.end() - 1), Values(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(numbers)));
  out.insert(out.end(), all.begin() + static_cast<std::ptrdiff_t>(numbers), end);
  return out;
}

// The accumulators after this tile; acc: those before it.
Values Accumulators::accumulate(const Fold& fold, const Values& acc) {
  Values next(acc.size(), -1);
  if (int c = fold.state().count; c >= 0) {
    size_t i = static_cast<size_t>(c);
    V met = b_.cast(b_.cast(elements_met(), DType::I32), fold.state().dtypes[i]);
    next[i] = pointwise(b_, ScalarOp::Add, std::array{acc[i], met});
  }
  for (const FoldState::Part& p : fold.state().parts) {
    const ScalarNode& r = node(p.reduce);
    size_t at = static_cast<size_t>(p.first);
    if (fold.online(p).kind != OnlineSum::Kind::None) {
      next = accumulate_online(fold, p, acc, next);
    } else if (is_arg_fold(r)) {
      V v = full(scalars_.fold_value(p.reduce)), i = full(scalars_.position());
      Values best = own(
          [&](const Values& x, int dim) {
            auto [value, place] = b_.reduce_arg(r.reduce, x[0], x[1], dim, r.select_last);
            return Values{value, place};
          },
          {v, i});
      v = best[0], i = best[1];
      V wins = arg_replaces(b_, r, v, i, acc[at], acc[at + 1]);
      next[at] = b_.scalar(ScalarOp::Select, std::array{wins, v, acc[at]});
      next[at + 1] = b_.scalar(ScalarOp::Select, std::array{wins, i, acc[at + 1]});
    } else {
      V v = own(r.reduce, full(scalars_.fold_value(p.reduce)));
      next[at] = b_.scalar(fold_operator(r.reduce), std::array{acc[at], v});
    }
  }
  return next;
}

// The reference is updated first, then the sum is scaled to it, then the tile's elements are added.
Values Accumulators::accumulate_online(const Fold& fold, const FoldState::Part& p, const Values& acc,
                                       const Values& now) {
  Values next = now;
  const OnlineSum& sum = fold.online(p);
  const bool squares = sum.kind == OnlineSum::Kind::Squares;
  const ReduceKind kind = squares ? ReduceKind::Sum : ReduceKind::Max;
  size_t at = static_cast<size_t>(p.first), ref = static_cast<size_t>(p.reference);
  DType dtype = fold.state().dtypes[at];
  V v = full(scalars_.filled(sum.moving, dtype, kind)), zero = b_.const_f(dtype, 0);
  if (next[ref] < 0) next[ref] = b_.scalar(fold_operator(kind), std::array{acc[ref], own(kind, v)});
  auto count = [&](const Values& of) { return squares ? of[static_cast<size_t>(fold.state().count)] : -1; };
  V from = fold.reference(p, acc[ref], count(acc)), to = fold.reference(p, next[ref], count(next));
  V added = fold.term(p, v, beside_own(to));
  for (ScalarId w : sum.weights) added = pointwise(b_, ScalarOp::Mul, std::array{added, scalars_.value(w)});
  if (squares || !sum.weights.empty()) added = scalars_.inside_row(added, zero);
  added = own(ReduceKind::Sum, full(added));
  next[at] = pointwise(b_, ScalarOp::Add, std::array{fold.moved(p, acc[at], from, to, count(acc)), added});
  return next;
}

// Combines the accumulators after a loop into one state.
Values Accumulators::merged(const Fold& fold, Values acc) {
  int dim = fold_side()->dim;
  if (dim >= 0) acc = fold.merge(acc, dim);
  for (V& v : acc) v = keep_dims(v);
  return acc;
}

// The reductions of a state; references of online sums are known.
void Accumulators::finish(const Fold& fold, const Values& acc) {
  for (const FoldState::Part& p : fold.state().parts) {
    bool online = fold.online(p).kind != OnlineSum::Kind::None;
    V v = fold.result(p, acc, online ? scalars_.value(fold.online(p).about) : -1);
    if (is_arg_fold(node(p.reduce))) v = scalars_.nearest_position(v);
    if (online && c_.row_may_be_empty) // then its reference may be NaN
      v = pointwise(
          b_, ScalarOp::Select,
          std::array{sizes_.condition(sym_lt(0, d_.row_count())), v, fold_identities(b_, nest_, p.reduce)[0]});
    memo_.remember(static_cast<size_t>(p.reduce), v);
  }
}

} // namespace tessera::block
