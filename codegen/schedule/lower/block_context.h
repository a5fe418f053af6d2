// What all parts of the lowering to blocks share, private to the folder: the plan, the sides of the tile, and the values
// that are known.
#pragma once
#include "codegen/schedule/choose_blocks.h"
#include "codegen/schedule/lower/kernel_context.h"
#include "codegen/schedule/lower/memo.h"
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

struct Context : KernelContext {
  Context(const Graph& graph, const LoopNest& nest, const BlockSpace& space, const Legal& legal,
          const std::string& name, OnlineSums online, bool window);

  const Legal& legal;
  const Schedule& schedule; // legal.schedule
  LoadMemo memo;
  std::array<Side, 2> sides; // rows, columns
  int point;                 // axis that a program has one position of, -1 when there is none
  int fold = -1;             // side along which rows are folded
  // Of the moment.
  V guard = -1;       // a condition on all loads and stores; -1: true
  int reading = 0;    // round that loads are for
  int last_round = 0; // that reads the row
};

// What a part of the lowering names of the context.
class Part : protected KernelPart {
protected:
  explicit Part(Context& c)
      : KernelPart(c), c_(c), legal_(c.legal), schedule_(c.schedule), memo_(c.memo), sides_(c.sides), fold_(c.fold) {}
  ~Part() = default;

  [[nodiscard]] const Axis& axis(const Side& s) const { return d_.axes[static_cast<size_t>(s.axis)]; }
  [[nodiscard]] Side* fold_side() const { return fold_ < 0 ? nullptr : &sides_[static_cast<size_t>(fold_)]; }
  V splat(V v, const std::vector<int>& shape) { return shape.empty() ? v : b_.broadcast(v, shape); }
  [[nodiscard]] std::vector<int> full_shape() const;
  V full(V v) { return b_.broadcast(v, full_shape()); }
  V kept(V v);                             // of a tile without the row's dimensions: with them, of one position
  V inside(const std::vector<int>& shape); // mask of the sides that it has
  [[nodiscard]] tile::Caching caching(const Access& a) const;

  Context& c_;
  const Legal& legal_;
  const Schedule& schedule_;
  LoadMemo& memo_;
  std::array<Side, 2>& sides_;
  const int fold_;
};

} // namespace tessera::block
