// What all parts of the lowering to blocks share, private to the folder: the nest and its plan, the kernel that is
// being written, the sides of the tile, and the values that are known.
#pragma once
#include "codegen/schedule/choose_blocks.h"
#include "codegen/schedule/lower/memo.h"
#include "codegen/schedule/lower/sizes.h"
#include "codegen/schedule/needs.h"
#include "codegen/schedule/online.h"
#include "codegen/schedule/stages.h"
#include <array>

namespace tessera::block {

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

// With what loads have read, besides.
class LoadMemo : public Memo {
public:
  explicit LoadMemo(size_t n) : Memo(n), raw(n, -1), loaded(n, -1) {}
  Values raw;    // by ScalarId: what a load that is known has read, before it is cast
  Values loaded; // by ScalarId of a load: the tile that a walk has loaded ahead, -1 where there is none
};

struct Context {
  Context(const Graph& graph, const LoopNest& nest, const BlockSpace& space, const Legal& legal,
          const std::string& name, OnlineSums online, bool window);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Graph& graph;
  const LoopNest& nest;
  const Domain& d;
  const Legal& legal;
  const Schedule& schedule; // legal.schedule
  ScheduledKernel out;
  tile::Builder b;
  SizeEmitter sizes;
  const OnlineSums online;
  const Stages stages; // of loops and teams
  const Needs needs;
  LoadMemo memo;
  std::array<Side, 2> sides; // rows, columns
  int point;                 // axis that a program has one position of, -1 when there is none
  int fold = -1;             // side along which rows are folded
  Values pointers;           // by buffer
  bool row_may_be_empty = false, exact_division = false;
  // Of the moment.
  V guard = -1;       // a condition on all loads and stores; -1: true
  int reading = 0;    // round that loads are for
  int last_round = 0; // that reads the row
  int round = -1;     // whose loop is being emitted; -1 outside
  int known = 0;      // rounds whose reductions are known
};

// What a part of the lowering names of the context.
class Part {
public:
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

protected:
  explicit Part(Context& c)
      : c_(c), graph_(c.graph), nest_(c.nest), d_(c.d), legal_(c.legal), schedule_(c.schedule), stages_(c.stages),
        online_(c.online), out_(c.out), b_(c.b), sizes_(c.sizes), memo_(c.memo), sides_(c.sides), fold_(c.fold) {}
  ~Part() = default;

  [[nodiscard]] const ScalarNode& node(ScalarId id) const { return nest_.dag[id]; }
  [[nodiscard]] const Axis& axis(const Side& s) const { return d_.axes[static_cast<size_t>(s.axis)]; }
  [[nodiscard]] Side* fold_side() const { return fold_ < 0 ? nullptr : &sides_[static_cast<size_t>(fold_)]; }
  [[nodiscard]] bool is_tile(V v) const { return b_.kernel().type(v).is_tile(); }
  V splat(V v, const std::vector<int>& shape) { return shape.empty() ? v : b_.broadcast(v, shape); }
  [[nodiscard]] std::vector<int> full_shape() const;
  V full(V v) { return b_.broadcast(v, full_shape()); }
  V kept(V v); // of a tile without the row's dimensions: with them, of one position
  V both(V a, V b) { return a < 0 ? b : b < 0 ? a : sizes_.op(ScalarOp::And, a, b); } // -1 is true
  V inside(const std::vector<int>& shape);                                            // mask of the sides that it has
  [[nodiscard]] tile::Caching caching(const Access& a) const;

  Context& c_;
  const Graph& graph_;
  const LoopNest& nest_;
  const Domain& d_;
  const Legal& legal_;
  const Schedule& schedule_;
  const Stages& stages_;
  const OnlineSums& online_;
  ScheduledKernel& out_;
  tile::Builder& b_;
  SizeEmitter& sizes_;
  LoadMemo& memo_;
  std::array<Side, 2>& sides_;
  const int fold_;
};

} // namespace tessera::block
