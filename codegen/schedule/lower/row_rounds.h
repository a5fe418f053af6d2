// Stages over the row, private to the folder: in memory order, folded online chunk by chunk, or divided among programs.
#pragma once
#include "codegen/schedule/lower/loop_walk.h"
#include "codegen/schedule/lower/reduce.h"
#include "codegen/schedule/lower/row_memory.h"

namespace tessera {

namespace loops {

// row_online.cpp: stages that fold sums together with the reductions on which they depend
class OnlineRows final : Part {
public:
  OnlineRows(Context& context, Scalars& scalars, Folding& folding, Prefetches& prefetches, RowLoop& walk)
      : Part(context), scalars_(scalars), folding_(folding), prefetches_(prefetches), row_loop_(walk) {}
  [[nodiscard]] bool is_online(size_t s) const;
  void round(size_t s);
  Values fold_range(size_t s, const Fold& fold, V begin, V end);
  void finish_row(const Fold& fold, const Values& row);

private:
  Values online_chunk(size_t s, const Fold& fold, const Phase& chunk, V row_end, Values state);
  Values accumulate_references(const Fold& fold, const Values& acc);
  Values accumulate_online(const Fold& fold, const Values& sums, const Values& about);
  V inside_row(V v, V otherwise);

  Scalars& scalars_;
  Folding& folding_;
  Prefetches& prefetches_;
  RowLoop& row_loop_;
};

// row_rounds.cpp
class Rounds final : Part {
public:
  Rounds(Context& context, Scalars& scalars, Folding& folding, Prefetches& prefetches, RowLoop& walk,
         OnlineRows& online)
      : Part(context), scalars_(scalars), folding_(folding), prefetches_(prefetches), row_loop_(walk),
        online_rows_(online) {}
  void rounds();
  // Accumulators of a tile of columns, over the part `share` of the outermost row axis.
  Values column_points(size_t s, std::optional<std::pair<V, V>> share = std::nullopt);

private:
  void row_round(size_t s);
  Values row_axes_loop(size_t k, Values carried, const std::vector<bool>& sums,
                       const std::function<Values(Values)>& innermost, const std::optional<std::pair<V, V>>& share);
  Values body(size_t s, Values accumulators);

  Scalars& scalars_;
  Folding& folding_;
  Prefetches& prefetches_;
  RowLoop& row_loop_;
  OnlineRows& online_rows_;
};

// row_split.cpp: cooperative programs of a row
class SplitRows final : Part {
public:
  SplitRows(Context& context, Scalars& scalars, Folding& folding, RowLoop& walk, OnlineRows& online, Rounds& rounds)
      : Part(context), scalars_(scalars), folding_(folding), row_loop_(walk), online_rows_(online), rounds_(rounds) {}
  void add_parameters();
  void add_sizes();
  V take_part(V number); // index of the row, or of the columns
  void round();
  void columns(const std::function<void(const std::function<void()>&)>& each_tile);

private:
  void if_last(const std::function<void()>& body);
  [[nodiscard]] SymExpr outer_points() const;
  [[nodiscard]] std::pair<V, V> own_part(const SymExpr& extent, int64_t unit);

  Scalars& scalars_;
  Folding& folding_;
  RowLoop& row_loop_;
  OnlineRows& online_rows_;
  Rounds& rounds_;
  Values workspaces_; // by index of the state
  V counters_ = -1, part_ = -1, row_number_ = -1;
};

} // namespace loops
} // namespace tessera
