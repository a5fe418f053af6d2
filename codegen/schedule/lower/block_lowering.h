// Lowering of one nest to blocks of threads, private to the folder.
//
// The idea. BlockSpace has at most three axes: a scalar point, and one along either dimension of the tile. Everything
// is emitted for the tile at once, and each value has the shape that its dependences ask for:
//
//   depends on        shape       example, layer norm of [rows, cols]
//   nothing           scalar      epsilon, sizes
//   rows              [R, 1]      mean, variance
//   columns           [1, C]      gamma, beta, the mask of the last columns
//   both              [R, C]      x, x - mean, the offsets of loads
//
// Where a dimension has one position the tile has one dimension, and values along the other one are scalars. Operations
// bring operands to a common shape (shapes.h), so that what is known once a row is computed once a row.
//
// Values are memoized. Without a loop a value that a later reduction needs again is simply there, in registers: one
// read of memory. With a loop over the row (rows longer than a tile) each round of reductions (stages.h, online.h) is a
// loop that reads memory again, through the L2; before a loop opens, what does not move with it is computed.
#pragma once
#include "codegen/schedule/block_choose.h"
#include "codegen/schedule/kept.h"
#include "codegen/schedule/lower/sizes.h"
#include "codegen/schedule/needs.h"
#include "codegen/schedule/online.h"
#include "codegen/schedule/stages.h"
#include <array>

namespace tessera {

// The axes that a thread of a window plan unrolls (block_window_lower.cpp).
struct WindowAxes {
  struct Outputs {
    SymExpr var;     // position among a thread's results
    int count = 1;   // of them
    int inside = -1; // whether such a result exists: index into Domain::conditions; -1: all do
  };
  std::array<Outputs, 2> outputs; // along BlockPlan::window and outer_window
  SymExpr fold;                   // all row axes as one number
  SymExpr round;                  // of the loop over the outermost one
  int taps = 0, row = 0;          // extents: of `fold`, and of what lies within one position of the outermost row axis
};
// Replaces the window axes of `d` by blocks of results. Error CodegenError where the plan does not fit.
[[nodiscard]] Result<WindowAxes> spread_window(const LoopNest& nest, Domain& d, const BlockPlan& plan);

class BlockLowering {
public:
  // `online`: of loops; its stages are those of the space's domain. `window`: of a plan with taps.
  BlockLowering(const Graph& graph, const LoopNest& nest, const BlockSpace& space, const BlockPlan& plan,
                const std::string& name, OnlineSums online, std::optional<WindowAxes> window = std::nullopt);
  ScheduledKernel run();

private:
  using V = tile::ValueId;
  using Values = std::vector<V>;
  // A dimension of the tile. `axis` is a position in the domain, -1 when nothing lies along it; of one lane: scalars.
  struct Side {
    int axis = -1, lanes = 1;
    int steps = 1, run = 1; // of several: the side is more dimensions, [steps, lanes / steps / run, run]
    int dim = -1;           // of tiles; -1 for one lane
    V base = -1;            // position of the first lane
    V mask = -1;            // positions within the axis' extent, along this dimension; -1: all are
    V blocks = -1;          // number of this program along it
    [[nodiscard]] int dims() const { return dim < 0 ? 0 : 1 + (steps > 1) + (run > 1); }
    [[nodiscard]] int width() const { return lanes / steps / run; } // accumulators
  };

  // block_lower.cpp: the program, loops, stores
  void parameters();
  void program();
  void in_turns();
  void place(Side& side, V base, bool masks);
  [[nodiscard]] bool always_whole(const Side& side) const;
  void body(bool whole);
  V whole_block();
  [[nodiscard]] bool stands_alone(const Side& side) const;
  void rounds();
  void finish_sizes();
  void overwritable();

  // block_shift.cpp: rows that begin at any alignment
  void shift_row();
  void shift_tile_rows();
  [[nodiscard]] std::optional<SymExpr> in_step(const Access& a) const;
  void tell_end(const Access& a);
  [[nodiscard]] bool shifted(const Side& s) const { return plan_.shift > 1 && &s == &sides_[1]; }
  void mask_shifted(Side& side);
  V whole_tile(V at);
  V shifted_tiles();
  [[nodiscard]] SymExpr positions_of_row() const; // that tiles are to cover

  // block_stage.cpp: transposed operands through shared memory, as they lie in memory
  struct StagedOperand {
    ScalarId id = -1;     // of the load
    SymExpr pitch;        // from one column to the next, elements
    int64_t vector = 1;   // elements of a whole access
    int64_t halo = 0;     // columns before the tile's
    int64_t columns = 1;  // of them and the tile's
    int64_t accesses = 1; // whole ones, of a column; of all of it where that is one run
    bool one_run = false; // columns lie in memory without gaps, and the tile has all their rows
    bool gaps = false;    // in shared memory, against conflicts
    V memory = -1, first = -1;
  };
  void reserve_staged();
  void stage_operands(bool whole);
  void load_beside();
  [[nodiscard]] const StagedOperand* staged(ScalarId id) const;
  V staged_step(const StagedOperand& s);
  V staged_place(const StagedOperand& s, V column);
  V staged_value(const StagedOperand& s);

  // block_window_lower.cpp: several results a thread, taps written out
  struct TapLoad {
    ScalarId id;
    SymExpr condition;
    int output; // the result along the window that it was first made for; 0: made for all
    V value;
  };
  void window_body();
  Values fold_taps(Values accumulators, const SymExpr& first);
  void fold_tap(Values& accumulators);
  void at_each_output(const std::function<void(size_t)>& f);
  void unroll(const SymExpr& var, const SymExpr& at);
  void find_unrolled_values();
  [[nodiscard]] SymExpr here(const SymExpr& e) const; // at the result and tap of the moment
  std::optional<TapLoad*> tap_load(ScalarId id);

  // block_walk.cpp: rounds over the row
  Values walk(size_t round, const Fold& fold);
  Values walk_ahead(size_t round, const Fold& fold);
  Values walk_between_ends(size_t round, const Fold& fold, int64_t n);
  Values round_body(const Stage& stage, const Fold& fold, const Values& accumulators);
  [[nodiscard]] std::vector<ScalarId> streams(const Stage& stage) const;
  // What the tile at `at` has of `loads`; masked where asked, or, fetched, where the row begins or ends in it.
  Values load_tile(const std::vector<ScalarId>& loads, V at, bool masks, V guard);
  Values fetch(const std::vector<ScalarId>& loads, V at, bool masks, V guard);
  Values fold_tile(size_t round, const Fold& fold, const std::vector<ScalarId>& loads, V at, bool masks,
                   std::span<const V> accumulators, std::span<const V> tile);

  // block_share.cpp: which tiles of the row, and what is kept of them between rounds
  void share_row();
  Values walk_share(const Stage& stage, const Fold& fold);
  [[nodiscard]] std::optional<int64_t> tiles_of_each(const SymExpr& count) const;
  [[nodiscard]] bool plain_load(ScalarId id) const;
  V tile_base(V i);
  V kept_offset(V i);
  V raw(const KeptValue& k);
  void recall(const KeptValue& k, V v);

  // block_fold.cpp: reductions
  [[nodiscard]] std::vector<int> full_shape() const;
  V full(V v) { return b_.broadcast(v, full_shape()); }
  V position();
  V nearest_position(V i); // within the row
  V inside_row(V v, V otherwise);
  V filled(ScalarId from, DType dtype, ReduceKind kind);
  V fold_value(ScalarId r);
  V reduce(ScalarId r);
  // Loops. Accumulators are tiles without the dimensions of steps and runs.
  Values identities(const Fold& fold);
  Values accumulate(const Fold& fold, const Values& acc);
  Values accumulate_online(const Fold& fold, const FoldState::Part& part, const Values& acc, const Values& next);
  Values merged(const Fold& fold, Values acc);
  void finish(const Fold& fold, const Values& acc);
  Values own(const std::function<Values(const Values&, int)>& fold, Values v);
  V own(ReduceKind kind, V v);
  V beside_own(V v);
  V elements_met();
  V kept(V v);

  // block_team.cpp: programs that share a row
  struct Boxes {
    int64_t message = 0;  // words; 0: nothing is exchanged
    SymExpr words, start; // of a team's boxes; where the first team's begin
  };
  void team_parameters();
  V take_member(V number, const SymExpr& teams);
  [[nodiscard]] bool ends(size_t stage) const;
  [[nodiscard]] int places() const; // of a tile with an element for each member
  [[nodiscard]] bool exchanges(size_t stage) const;
  V team_boxes(const Boxes& boxes);
  void expect_messages(const Boxes& boxes);
  Values exchange(const Fold& fold, size_t stage, const Values& state);
  void leave(V workspace, V part);
  Values gather(const Fold& fold, size_t stage);
  void settle(size_t stage, const Fold& fold, const Values& state);
  void finish_team();
  void store_rows();

  // block_values.cpp: scalar DAG to tile operations
  V value(ScalarId id);
  V compute(ScalarId id);
  void prepare(ScalarId root);
  V load(ScalarId id) { return b_.cast(stored_value(id), node(id).dtype); }
  V stored_value(ScalarId id); // of a load: as memory has it
  [[nodiscard]] tile::Caching caching(const Access& a) const;
  V check_bounds(ScalarId id);
  V divide(ScalarId id);
  void store(size_t index, V value);
  V offset_of(const Access& a);
  V row_has_points(ScalarId id);
  V both(V a, V b) { return a < 0 ? b : b < 0 ? a : sizes_.op(ScalarOp::And, a, b); } // -1 is true
  V inside(const std::vector<int>& shape);                                            // mask of the sides that it has
  int site(ScalarId id);
  void hoist(uint64_t axes);
  void load_ahead();

  bool is_tile(V v) { return b_.kernel().type(v).is_tile(); }
  V splat(V v, const std::vector<int>& shape) { return shape.empty() ? v : b_.broadcast(v, shape); }
  [[nodiscard]] const ScalarNode& node(ScalarId id) const { return nest_.dag[id]; }
  [[nodiscard]] const Axis& axis(const Side& s) const { return d_.axes[static_cast<size_t>(s.axis)]; }
  [[nodiscard]] Side* fold_side() { return fold_ < 0 ? nullptr : &sides_[static_cast<size_t>(fold_)]; }
  template <class F>
  auto scoped(F&& f) {
    size_t mark = log_.size();
    struct Leave {
      BlockLowering& l;
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

  const Graph& graph_;
  const LoopNest& nest_;
  const Domain& d_;
  const BlockPlan& plan_;
  int point_; // axis that a program has one position of, -1 when there is none
  ScheduledKernel out_;
  tile::Builder b_;
  SizeEmitter sizes_;
  OnlineSums online_;
  Stages stages_; // of loops
  Needs needs_;
  std::array<Side, 2> sides_; // rows, columns
  int fold_ = -1;             // side along which rows are folded
  Values pointers_;           // by buffer
  std::vector<V> memo_;       // by ScalarId; then reciprocals by ScalarId of the divisor
  std::vector<size_t> log_;   // slots in order of remembering
  std::vector<V> raw_;        // by ScalarId: what a load in memo_ has read, before it is cast
  bool row_may_be_empty_ = false, exact_division_ = false, preparing_ = false;
  // Walks that load ahead: tiles by ScalarId of the load, -1 where there is none; a condition on all loads; what the
  // next round begins with, the last tile of the row and the one before it.
  Values loaded_;
  V guard_ = -1;
  struct {
    std::vector<ScalarId> last, before;
    Values last_tiles, before_tiles;
  } kept_;
  struct {
    SymExpr start;              // of the row in the accesses that decide, elements
    SymExpr aligned, by, place; // start - by, a multiple of plan_.shift; position in the tiles, from `aligned` on
  } shift_;
  std::vector<StagedOperand> staged_;
  // Of a window: what the axes that are unrolled stand for now; values that vary with them; loads by their offset; the
  // nest's reductions.
  std::optional<WindowAxes> window_;
  std::unordered_map<uint64_t, SymExpr> unrolled_;
  std::vector<size_t> unrolled_values_;
  int output_ = 0;
  std::unordered_map<SymExpr, std::vector<TapLoad>> tap_loads_;
  std::vector<ScalarId> reductions_;
  int reading_ = 0;                // round that loads are for
  int last_round_ = 0;             // that reads the row
  int round_ = -1;                 // whose loop is being emitted; -1 outside
  int known_ = 0;                  // rounds whose reductions are known
  std::vector<Values> workspaces_; // of a team: by stage, a pointer for each number of its state
  // Of loops that leave out the program's last tile (block_walk.cpp): its number, else -1; what later rounds need of
  // it; the same of the first tiles, in shared memory.
  V last_ = -1;
  std::vector<KeptValue> kept_values_;
  Values kept_last_, kept_memory_;
  int rounds_walked_ = 0;
  bool idle_members_ = false; // there may be more members than tiles
  bool copies_ = false;       // the first tiles are copied to shared memory
  bool all_kept_ = false;     // and are all that there are
  V counters_ = -1, boxes_ = -1, team_ = -1, member_ = -1, members_ = -1;
  std::vector<Boxes> exchanged_; // by stage
  std::vector<int> sites_;       // of CheckBounds, -1 before
  std::vector<int> reported_;    // round that reports; -2: none has
};

} // namespace tessera
