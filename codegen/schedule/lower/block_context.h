// State shared by all parts of the lowering to blocks, private to the folder: the schedule, the sides of the tile, and
// known values.
#pragma once
#include "codegen/schedule/choose_blocks.h"
#include "codegen/schedule/lower/kernel_context.h"
#include "codegen/schedule/lower/memo.h"
#include <array>

namespace tessera::block {

using V = tile::ValueId;
using Values = std::vector<V>;

// A dimension of the tile. `axis` is an index into Domain::axes, -1 if no axis lies along it; then its extent is 1 and
// values along it are scalars.
struct Side {
  int axis = -1, lanes = 1;
  int steps = 1, run = 1; // if > 1, the side has more dimensions: [steps, lanes / steps / run, run]
  int dim = -1;           // dimension of tiles; -1: one lane
  int cluster = 1;        // programs that have neighbouring tiles along the side, of which the last may not exist
  V base = -1;            // position of the first lane
  V first = -1;           // that of the program's tile where it is no multiple of the lanes
  V end = -1;             // first position behind those that the program has, before the axis' extent; -1: the extent
  V mask = -1;            // mask of positions within the axis' extent, along this dimension; -1: all
  V blocks = -1;          // index of this program along the side
  std::vector<BlockSpace::BoxAxis>
      box; // axes along the side, the last one fastest, which is `axis`; empty: it is the only
  [[nodiscard]] int dims() const { return dim < 0 ? 0 : 1 + (steps > 1) + (run > 1); }
  [[nodiscard]] uint64_t axes() const { // as bits
    uint64_t bits = axis < 0 ? 0 : uint64_t{1} << axis;
    for (const BlockSpace::BoxAxis& a : box) bits |= uint64_t{1} << a.axis;
    return bits;
  }
  [[nodiscard]] int width() const { return lanes / steps / run; } // number of accumulators
};

// Known values, and values of loads.
class LoadMemo : public Memo {
public:
  explicit LoadMemo(size_t n) : Memo(n), raw(n, -1), loaded(n, -1) {}
  Values raw;    // by ScalarId of a known load: the value before its cast
  Values loaded; // by ScalarId of a load: the prefetched tile, -1: none
};

struct Context : KernelContext {
  Context(const Graph& graph, const LoopNest& nest, const BlockSpace& space, const Legal& legal,
          const std::string& name, OnlineSums online, bool window);

  const Legal& legal;
  const Schedule& schedule; // legal.schedule
  LoadMemo memo;
  std::array<Side, 2> sides; // rows, columns
  int point;                 // axis with one index per program; -1: none
  int depth, step;           // of a contraction: reduced axes (block_space.h); -1: none
  int fold = -1;             // side along which rows are folded
  // State during emission.
  V guard = -1;       // a condition on all loads and stores; -1: true
  int reading = 0;    // the stage whose loads are emitted
  int last_round = 0; // the last stage that reads the row
};

// Base of the parts: short names for the context's members.
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
  V keep_dims(V v);                        // restores the row's dimensions, of extent 1, in a tile without them
  V inside(const std::vector<int>& shape); // mask of the tile's sides in this shape
  [[nodiscard]] tile::Caching caching(const Access& a) const;

  Context& c_;
  const Legal& legal_;
  const Schedule& schedule_;
  LoadMemo& memo_;
  std::array<Side, 2>& sides_;
  const int fold_;
};

} // namespace tessera::block
