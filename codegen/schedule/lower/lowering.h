// Lowering of one nest, private to the folder.
//
// The idea. A program is a nest of scopes: the program itself, a loop over outer points, a tile of the tile axis, a
// round of the loop over the row. Binding an axis opens a scope. A value is emitted in the scope where it is first
// asked for and is forgotten when that scope ends; before a loop opens, hoist() asks for everything that does not
// depend on what the loop binds. So each value stands as far out as its axes allow, and no later pass has to prove that
// a load may move.
//
//   Flat        outer points x tiles of an outer axis: values, then stores
//   Tiled2D     the same, a block at a time: narrow along the tiles' axis, long along another one, the innermost loop;
//               in squares of both, tiles [n, n], where vectors are as long as those
//   RowLoop     outer points x rounds (stages.h) x tiles along the last loop over the row; folds end in scalars
//   ColumnLoop  outer points x tiles of an outer axis x rounds x single row points; folds are tiles
// Rows that no cache holds are folded chunk by chunk (row_online.cpp); few rows and columns are programs' in parts,
// whose states the last one to arrive merges (row_split.cpp). A range is walked in up to three phases: steps of the
// full tile, of one vector, and one masked vector for the rest, so that no access but the last is masked.
#pragma once
#include "codegen/schedule/choose.h"
#include "codegen/schedule/lower/sizes.h"
#include "codegen/schedule/needs.h"
#include "codegen/schedule/online.h"
#include "codegen/schedule/stages.h"

namespace tessera {

// A number of Schedule::config.
[[nodiscard]] inline int64_t setting(const Schedule& s, const char* key, int64_t fallback) {
  auto it = s.config.find(key);
  return it == s.config.end() ? fallback : it->second;
}

// Whether the blocks of a Tiled2D schedule may be walked in squares.
[[nodiscard]] bool squares_fit(const LoopNest& nest, const Domain& domain);

// Whether a RowLoop schedule may fold online.
[[nodiscard]] bool online_fits(const LoopNest& nest, const Domain& domain);
// Whether programs may share its rows, or columns. `domain` has the stages of what is folded online.
[[nodiscard]] bool splits(const LoopNest& nest, const Domain& domain, ScheduleKind kind);

class Lowering {
public:
  // `online`: of a schedule that folds so, empty for others; `domain` has the stages that follow.
  Lowering(const Graph& graph, const LoopNest& nest, const Domain& domain, OnlineSums online, const Schedule& schedule,
           const std::string& name);
  ScheduledKernel run();

private:
  using V = tile::ValueId;
  using Values = std::vector<V>;
  struct Phase {
    int lanes;
    V from, to;
    std::optional<int64_t> only;
    bool masked;
  }; // only: a single step at that base
  // A range of an axis; `extent` is known when it is the whole one.
  struct Range {
    V from, to;
    SymExpr extent;
    bool whole;
  };

  // lower.cpp: programs and loops
  void program();
  void program_sizes();
  void outer_points(V block);
  void decode(V point);
  void row_points();
  void inner(V column_block);
  [[nodiscard]] Range tile_range(V column_block);
  V squares(V column_block, V from, V to);
  [[nodiscard]] uint64_t outer_axes() const;             // of a flattened outer point
  [[nodiscard]] bool in_squares(const Axis& axis) const; // nothing is left behind the last one
  void flat_body();
  void rounds();
  void store_rows();
  void row_round(size_t s);
  void column_round(size_t s);
  Values column_points(size_t s);
  Values row_axes_loop(size_t k, Values carried, const std::function<Values(Values)>& innermost);
  [[nodiscard]] std::vector<Phase> phases(const Range& range);
  Values walk(const Phase& phase, const SymExpr& axis, V end, Values carried,
              const std::function<Values(Values)>& body);
  Values loop(V from, V to, int64_t step, Values carried, const std::function<Values(V, Values)>& body);
  Values round_body(size_t s, Values accumulators);

  // row_online.cpp: rounds that fold sums together with what they are about
  [[nodiscard]] bool is_online(size_t s) const;
  void online_round(size_t s);
  Values fold_range(size_t s, const Fold& fold, V begin, V end);
  void finish_row(const Fold& fold, const Values& row);
  Values online_chunk(size_t s, const Fold& fold, const Phase& chunk, V row_end, Values state);
  Values accumulate_references(const Fold& fold, const Values& acc);
  Values accumulate_online(const Fold& fold, const Values& sums, const Values& about);
  V inside_row(V v, V otherwise);

  // row_split.cpp: programs that share a row
  void split_parameters();
  void split_sizes();
  void split_round();
  void split_columns(const std::function<void(const std::function<void()>&)>& each_tile);
  void if_last(const std::function<void()>& body);
  [[nodiscard]] SymExpr outer_points() const;
  [[nodiscard]] std::pair<V, V> own_part(const SymExpr& extent, int64_t unit);

  // row_memory.cpp: what rounds read and keep
  void plan_prefetch();
  void prefetch_next_row();
  void prefetch_next_points(size_t s);
  void prefetch_next_chunk(size_t s);
  [[nodiscard]] std::vector<ScalarId> loads_of_round(size_t s) const;
  void find_homes();

  // reduce.cpp: folding
  [[nodiscard]] bool is_arg(ScalarId r) const;
  Values identities(const Stage& stage, int lanes);
  Values accumulate(ScalarId r, std::span<const V> acc);
  void finish(const Stage& stage, const std::vector<Values>& groups);
  V better(ScalarId r, V v, V i, V best, V best_i);
  V fold_value(ScalarId r);

  // values.cpp: scalar DAG to tile operations
  V value(ScalarId id);
  V compute(ScalarId id);
  void prepare(ScalarId root);
  // An earlier round than the current one has kept it.
  [[nodiscard]] bool is_kept_before(ScalarId id) const {
    auto i = static_cast<size_t>(id);
    return round_ > d_.stage[i] && (scratch_[i] >= 0 || (!home_.empty() && home_[i] >= 0));
  }
  V load(ScalarId id);
  V check_bounds(ScalarId id);
  V divide(ScalarId id);
  V kept(ScalarId id);
  void keep(ScalarId id);
  void store(size_t index, V value);
  V scratch_offset();
  V offset_of(const Access& a);
  // The mask under which a value that only the row needs may be read ahead of the row: the row has points. -1 is true.
  V row_has_points(ScalarId id);
  V both(V a, V b); // conjunction of masks, -1 is true
  void hoist(uint64_t axes);
  [[nodiscard]] bool divides_by_row_scalar(ScalarId id) const;
  int site(ScalarId id);

  bool is_tile(V v) { return b_.kernel().type(v).is_tile(); }
  V in_full(V v) { return in_square_ ? b_.broadcast(v, {square_, square_}) : v; }
  V splat(V v, int lanes) { return is_tile(v) ? v : b_.broadcast(v, {lanes}); }
  V op(ScalarOp o, V x, V y) { return sizes_.op(o, x, y); }
  [[nodiscard]] const ScalarNode& node(ScalarId id) const { return nest_.dag[id]; }
  [[nodiscard]] const Axis& axis(size_t i) const { return d_.axes[i]; }
  template <class F>
  auto scoped(F&& f) {
    size_t mark = log_.size();
    struct Leave {
      Lowering& l;
      size_t mark;
      ~Leave() {
        for (; l.log_.size() > mark; l.log_.pop_back()) l.memo_[l.log_.back()] = -1;
      }
    } leave{*this, mark};
    return f();
  }
  void remember(size_t slot, V v) {
    memo_[slot] = v;
    log_.push_back(slot);
  }
  void overwritable();

  const Graph& graph_;
  const LoopNest& nest_;
  const Domain& d_;
  const OnlineSums online_;
  const Schedule& schedule_;
  ScheduledKernel out_;
  tile::Builder b_;
  SizeEmitter sizes_;
  Stages stages_;

  Values pointers_;         // by buffer
  std::vector<V> memo_;     // by ScalarId; then reciprocals by ScalarId of the divisor
  std::vector<size_t> log_; // slots in order of remembering
  std::vector<V> scratch_;  // by ScalarId, pointers of kept values
  std::vector<int> home_;   // by ScalarId, the store in whose memory a kept value lies; -1: in scratch
  V mask_ = -1;             // of the current tile
  bool row_may_be_empty_ = false;
  int prefetch_round_ = -1;          // in which the next row is prefetched
  std::vector<ScalarId> prefetched_; // the loads whose memory is
  int round_ = -1;                   // of the row loops being emitted; -1 outside
  int known_ = 0;                    // rounds whose reductions are known
  int tile_axis_ = -1;               // index of axis
  int cross_axis_ = -1;              // Tiled2D: the axis that a block is walked along
  int vector_ = 1, wide_ = 1;        // lanes of the narrow and of the full tile
  int64_t chunk_ = 0;                // online: elements of the row between two moves of a reference
  int64_t parts_ = 1;                // programs that share a row, or columns
  Values workspaces_;                // of these, by number of the state
  V counters_ = -1, part_ = -1, row_number_ = -1;
  std::optional<std::pair<V, V>> share_; // of the outermost axis of the row, while columns are folded
  int square_ = 1;                       // Tiled2D: points of either axis that are taken at a time, 1: of one axis only
  bool exact_division_ = false, preparing_ = false, in_square_ = false;
  std::vector<size_t> prefix_, row_axes_;  // outer axes flattened into a point; row axes, the tile axis last
  int middle_ = -1;                        // outer axis with a loop of its own
  SymExpr columns_, middle_rows_, points_; // per program
  SymExpr column_blocks_, middle_blocks_, point_blocks_;
  Needs needs_;
  std::vector<int> sites_;    // of CheckBounds, -1 before
  std::vector<int> reported_; // round that reports
};

} // namespace tessera
