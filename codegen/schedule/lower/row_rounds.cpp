#include "codegen/schedule/lower/row_rounds.h"
#include <algorithm>

namespace tessera {

// Rows of one axis, and no index checks, because chunks are read twice.
namespace loops {

// The stages of the row of one outer point (RowLoop) or of a tile of them (ColumnLoop), then stores of values per row.
void Rounds::rounds() {
  uint64_t outer = ~d_.row_mask;
  int before = c_.known;
  for (size_t s = 0; s < stages_.stages.size(); ++s) {
    c_.known = static_cast<int>(s);
    scalars_.hoist(outer);
    c_.round = c_.known;
    if (is_row_loop())
      online_rows_.is_online(s) ? online_rows_.round(s) : row_round(s);
    else
      folding_.finish(stages_.stages[s], {column_points(s)});
    c_.round = -1;
    c_.known = static_cast<int>(s) + 1;
  }
  scalars_.store_rows();
  c_.known = before;
}

// Loops over all row axes but the last one of c_.row_axes (RowLoop) or over all of them (ColumnLoop).
Values Rounds::row_axes_loop(size_t k, Values carried, const std::vector<bool>& sums,
                             const std::function<Values(Values)>& innermost,
                             const std::optional<std::pair<V, V>>& share) {
  size_t count = c_.row_axes.size() - (is_row_loop() ? 1 : 0);
  if (k == count) return innermost(std::move(carried));
  const Axis& a = axis(c_.row_axes[k]);
  const bool shared = k == 0 && share;
  V from = shared ? share->first : sizes_.number(0), to = shared ? share->second : sizes_.number(a.extent);
  int64_t adds = 1;
  if (is_row_loop()) adds = row_loop_.additions(tile_axis().extent, c_.wide, 1);
  for (size_t inner = count; --inner > k;) adds = row_loop_.additions(axis(c_.row_axes[inner]).extent, 1, adds);
  return row_loop_.summing_loop(from, to, 1, a.extent, adds, std::move(carried), sums, [&](V i, Values c) {
    sizes_.bind(a.var, i);
    return row_axes_loop(k + 1, std::move(c), sums, innermost, share);
  });
}

void Rounds::row_round(size_t s) {
  const Stage& stage = stages_.stages[s];
  const Axis& a = tile_axis();
  Range range{sizes_.number(0), sizes_.number(a.extent), a.extent, true};
  // One set of accumulators per tile width; the outer row loops carry all of them.
  std::vector<int> widths;
  std::vector<Phase> plan = row_loop_.phases(range);
  for (const Phase& p : plan)
    if (std::find(widths.begin(), widths.end(), p.lanes) == widths.end()) widths.push_back(p.lanes);
  Values carried;
  for (int w : widths) {
    Values id = folding_.identities(stage, w);
    carried.insert(carried.end(), id.begin(), id.end());
  }
  size_t each = widths.empty() ? 0 : carried.size() / widths.size();
  const std::vector<bool> of_group = folding_.sums(stage);
  std::vector<bool> sums;
  for (size_t g = 0; g < widths.size(); ++g) sums.insert(sums.end(), of_group.begin(), of_group.end());
  carried = row_axes_loop(
      0, std::move(carried), sums,
      [&](Values c) {
        // Bounds are emitted again: the first ones may be in a scope that has ended.
        for (const Phase& p : row_loop_.phases(range)) {
          size_t group = static_cast<size_t>(std::find(widths.begin(), widths.end(), p.lanes) - widths.begin()) * each;
          Values part(c.begin() + static_cast<int64_t>(group), c.begin() + static_cast<int64_t>(group + each));
          part = row_loop_.walk(
              p, a.var, range.to, std::move(part), [&](Values acc) { return body(s, std::move(acc)); }, of_group,
              a.extent);
          std::copy(part.begin(), part.end(), c.begin() + static_cast<int64_t>(group));
        }
        return c;
      },
      std::nullopt);
  std::vector<Values> groups;
  for (size_t g = 0; g < widths.size(); ++g)
    groups.emplace_back(carried.begin() + static_cast<int64_t>(g * each),
                        carried.begin() + static_cast<int64_t>((g + 1) * each));
  folding_.finish(stage, groups);
}

Values Rounds::column_points(size_t s, std::optional<std::pair<V, V>> share) {
  return row_axes_loop(
      0, folding_.identities(stages_.stages[s], sizes_.lanes()), folding_.sums(stages_.stages[s]),
      [&](Values acc) { return memo_.scoped([&] { return body(s, std::move(acc)); }); }, share);
}

Values Rounds::body(size_t s, Values accumulators) {
  const Stage& stage = stages_.stages[s];
  Values stored;
  for (ScalarId r : stage.reduces) scalars_.value(node(r).args[0]);
  for (ScalarId k : stage.caches) scalars_.value(k);
  for (size_t i : stage.stores) stored.push_back(scalars_.value(nest_.stores[i].scalar));
  Values next;
  size_t at = 0;
  for (ScalarId r : stage.reduces) {
    size_t n = folding_.is_arg(r) ? 2 : 1;
    for (V v : folding_.accumulate(r, std::span<const V>(accumulators).subspan(at, n))) next.push_back(v);
    at += n;
  }
  for (ScalarId k : stage.caches) scalars_.cache(k);
  for (size_t i = 0; i < stored.size(); ++i) scalars_.store(stage.stores[i], stored[i]);
  prefetches_.behind_round(s);
  return next;
}

} // namespace loops
} // namespace tessera
