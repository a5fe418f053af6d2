// Online reductions of rows larger than the caches, on a host: sums that depend on reductions of the same stage
// (online.h) are folded in it, so that the row is read once less.
//
// An update of a sum's reference (the maximum so far) costs an exponential, as much as an element does. So it happens
// once per chunk of the row, and the chunk is read twice, the second time from the L1 cache:
//
//   for each chunk      states (m, s) per lane: the greatest x so far, the sum of exp(x - m)
//     m' = max(m, x)    over the chunk
//     s  = s exp(m - m')
//     s += exp(x - m')  over the chunk
//   at the end          the states of all lanes are combined
#include "codegen/schedule/lower/row_rounds.h"
#include "codegen/schedule/shapes.h"
#include <array>

namespace tessera::loops {
namespace {

ReduceKind reference_kind(const OnlineSum& s) {
  return s.kind == OnlineSum::Kind::Squares ? ReduceKind::Sum : ReduceKind::Max;
}

} // namespace

bool OnlineRows::is_online(size_t s) const {
  const auto& reduces = stages_.stages[s].reduces;
  return std::any_of(reduces.begin(), reduces.end(), [&](ScalarId r) {
    return !online_.empty() && online_[static_cast<size_t>(r)].kind != OnlineSum::Kind::None;
  });
}

// Replaces elements beyond the row.
V OnlineRows::inside_row(V v, V otherwise) {
  v = splat(v, c_.wide);
  return c_.mask < 0 ? v : b_.scalar(ScalarOp::Select, std::array{c_.mask, v, otherwise});
}

// The state without the online sums, after the current tile.
Values OnlineRows::accumulate_references(const Fold& fold, const Values& acc) {
  Values next = acc;
  auto add = [&](size_t i, ReduceKind kind, V v) { next[i] = b_.scalar(fold_operator(kind), std::array{acc[i], v}); };
  std::vector<char> done(acc.size());
  for (const FoldState::Part& p : fold.state().parts) {
    const size_t first = static_cast<size_t>(p.first);
    const OnlineSum& sum = fold.online(p);
    if (sum.kind == OnlineSum::Kind::None) {
      Values own =
          folding_.accumulate(p.reduce, std::span<const V>(acc).subspan(first, folding_.is_arg(p.reduce) ? 2 : 1));
      std::copy(own.begin(), own.end(), next.begin() + p.first);
      done[first] = 1;
      continue;
    }
    const size_t ref = static_cast<size_t>(p.reference);
    if (done[ref]) continue; // another reduction of the nest has it
    done[ref] = 1;
    const DType dtype = fold.state().dtypes[ref];
    const ReduceKind kind = reference_kind(sum);
    add(ref, kind,
        inside_row(b_.cast(scalars_.value(sum.moving), dtype), b_.const_f(dtype, reduce_identity_f64(kind, dtype))));
  }
  if (const int c = fold.state().count; c >= 0) {
    const DType dtype = fold.state().dtypes[static_cast<size_t>(c)];
    add(static_cast<size_t>(c), ReduceKind::Sum, inside_row(b_.const_f(dtype, 1), b_.const_f(dtype, 0)));
  }
  return next;
}

// The online sums after the current tile; `about`: their references.
Values OnlineRows::accumulate_online(const Fold& fold, const Values& sums, const Values& about) {
  Values next;
  for (const FoldState::Part& p : fold.state().parts) {
    const OnlineSum& sum = fold.online(p);
    if (sum.kind == OnlineSum::Kind::None) continue;
    const DType dtype = fold.state().dtypes[static_cast<size_t>(p.first)];
    const size_t i = next.size();
    V added = fold.term(p, b_.cast(scalars_.value(sum.moving), dtype), about[i]);
    for (ScalarId w : sum.weights) added = pointwise(b_, ScalarOp::Mul, std::array{added, scalars_.value(w)});
    next.push_back(b_.scalar(ScalarOp::Add, std::array{sums[i], inside_row(added, b_.const_f(dtype, 0))}));
  }
  return next;
}

// The state after a chunk.
Values OnlineRows::online_chunk(size_t s, const Fold& fold, const Phase& chunk, V row_end, Values state) {
  const Stage& stage = stages_.stages[s];
  const SymExpr& along = tile_axis().var;
  const SymExpr most = is_online(s) ? SymExpr(c_.chunk) : tile_axis().extent;
  std::vector<bool> adds(state.size());
  for (const FoldState::Part& p : fold.state().parts) {
    const bool online = fold.online(p).kind != OnlineSum::Kind::None;
    const auto at = static_cast<size_t>(online ? p.reference : p.first);
    adds[at] = (online ? reference_kind(fold.online(p)) : node(p.reduce).reduce) == ReduceKind::Sum &&
               is_float(fold.state().dtypes[at]);
  }
  Values moved = row_loop_.walk(
      chunk, along, row_end, state,
      [&](Values acc) {
        Values stored;
        for (ScalarId k : stage.caches) scalars_.value(k);
        for (size_t i : stage.stores) stored.push_back(scalars_.value(nest_.stores[i].scalar));
        acc = accumulate_references(fold, acc);
        for (ScalarId k : stage.caches) scalars_.cache(k);
        for (size_t i = 0; i < stored.size(); ++i) scalars_.store(stage.stores[i], stored[i]);
        return acc;
      },
      adds, most);
  auto count = [&](const Values& of) {
    return fold.state().count < 0 ? -1 : of[static_cast<size_t>(fold.state().count)];
  };
  Values sums, about;
  for (const FoldState::Part& p : fold.state().parts) {
    if (fold.online(p).kind == OnlineSum::Kind::None) continue;
    const size_t ref = static_cast<size_t>(p.reference);
    V from = fold.reference(p, state[ref], count(state)), to = fold.reference(p, moved[ref], count(moved));
    sums.push_back(fold.moved(p, state[static_cast<size_t>(p.first)], from, to, count(state)));
    about.push_back(to);
  }
  if (sums.empty()) return moved;
  sums = row_loop_.walk(
      chunk, along, row_end, sums,
      [&](Values acc) {
        Values next = accumulate_online(fold, acc, about);
        if (c_.mask < 0) prefetches_.next_chunk(s);
        return next;
      },
      std::vector<bool>(sums.size(), true), most);
  size_t i = 0;
  for (const FoldState::Part& p : fold.state().parts)
    if (fold.online(p).kind != OnlineSum::Kind::None) moved[static_cast<size_t>(p.first)] = sums[i++];
  return moved;
}

// The state of elements [begin, end) of the row; `begin` is a multiple of the full tile, or the end.
Values OnlineRows::fold_range(size_t s, const Fold& fold, V begin, V end) {
  Values state = fold.identities();
  for (V& v : state) v = b_.broadcast(v, {c_.wide});
  const SymExpr& extent = tile_axis().extent;
  const bool whole = d_.env.divisor(d_.env.simplify(extent)) % c_.wide == 0;
  V full = whole ? end : op(ScalarOp::Max, begin, op(ScalarOp::And, end, sizes_.constant(-c_.wide)));
  auto fold_chunk = [&](V from, V to, bool masked, Values before) {
    return online_chunk(s, fold, {c_.wide, from, to, std::nullopt, masked}, end, std::move(before));
  };
  if (is_online(s))
    state = row_loop_.blocked_loop(
        begin, full, c_.chunk, extent, c_.chunk / c_.wide, state,
        {[&](const Values&) { return state; }, [&](const Values& a, const Values& b) { return fold.united(a, b); }},
        [&](V from, Values carried) {
          V to = op(ScalarOp::Min, op(ScalarOp::Add, from, sizes_.constant(c_.chunk)), full);
          return fold_chunk(from, to, false, std::move(carried));
        });
  else
    state = fold_chunk(begin, full, false, std::move(state));
  return whole ? state : fold_chunk(full, end, true, std::move(state));
}

// The reductions of a row, from its state.
void OnlineRows::finish_row(const Fold& fold, const Values& row) {
  for (const FoldState::Part& p : fold.state().parts) {
    const bool online = fold.online(p).kind != OnlineSum::Kind::None;
    V v = fold.result(p, row, online ? scalars_.value(fold.online(p).about) : -1);
    if (online && c_.row_may_be_empty) // then its reference may be NaN
      v = b_.scalar(ScalarOp::Select, std::array{sizes_.condition(sym_lt(0, d_.row_count())), v,
                                                 fold_identities(b_, nest_, p.reduce)[0]});
    memo_.remember(static_cast<size_t>(p.reduce), v);
  }
}

void OnlineRows::round(size_t s) {
  const Fold fold(b_, nest_, online_, fold_state(nest_, stages_.stages[s].reduces, online_, d_.position_dtype()));
  const V end = sizes_.number(tile_axis().extent);
  finish_row(fold, fold.merge(fold_range(s, fold, sizes_.number(0), end), 0));
}

} // namespace tessera::loops
