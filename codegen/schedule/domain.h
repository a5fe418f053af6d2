// Domain: a loop nest in the form that schedules use.
//
// A schedule needs the offset of each access rather than its indices: index expressions are linearised over the
// row-major buffer into one SymExpr (plus data-dependent terms, for gathers). Then axes are made fewer and longer,
// because tiles need long contiguous axes:
//   drop      an axis of extent 1 becomes the number 0
//   split     an axis i that occurs as floordiv(i, k) and mod(i, k), with k dividing its extent, becomes i1*k + i0: the
//             division of a reshape disappears
//   collapse  axes (a, b) become c if every expression depends on them only through a*extent(b) + b:
//             stride(a) == stride(b)*extent(b)
// Example: x[i0, i1, i2] + bias[i2] over [b, s, 768]: offsets (i0*s + i1)*768 + i2 and i2; i0 and i1 collapse, i2 is
// kept.
#pragma once
#include "fusion/loop_nest.h"
#include <limits>

namespace tessera {

struct Access {
  int buffer = -1;                                 // kernel parameter
  SymExpr offset;                                  // in elements, without the data-dependent terms
  std::vector<std::pair<ScalarId, SymExpr>> terms; // + value of a node * stride: data-dependent indices
  ScalarId predicate = -1;                         // masked loads
  std::vector<SymExpr> index;                      // of loads, by dimension of the buffer; empty with terms
};

struct Domain {
  std::vector<Axis> axes;       // outer ones first
  ShapeEnv env;                 // facts about these axes and the nest's sizes only, so that queries are cheap
  std::vector<ValueId> buffers; // parameters: loads in operand order, then stored values; each once
  std::vector<bool> written;
  std::vector<char> live;          // by ScalarId: the value is needed as such, not only inside an offset
  std::vector<SymExpr> sym;        // by ScalarId: of live Index nodes, over the new axes; of CheckBounds, positions
  std::vector<Access> loads;       // by ScalarId: of live Load nodes
  std::vector<Access> stores;      // by index in nest.stores
  std::vector<SymExpr> conditions; // conditions over the axes that a schedule adds
  std::vector<uint64_t> deps;      // by ScalarId: axes a live value depends on, as bits; a Reduce ends row axes
  std::vector<int> stage;          // by ScalarId: number of stages of reductions on which it depends
  uint64_t row_mask = 0;
  bool reduces = false; // has a reduction, or row axes and a store per outer point

  [[nodiscard]] uint64_t axes_in(const SymExpr& e) const;
  [[nodiscard]] uint64_t access_deps(const Access& a) const;
  [[nodiscard]] bool row_varying(ScalarId id) const { return (deps[static_cast<size_t>(id)] & row_mask) != 0; }
  [[nodiscard]] SymExpr row_count() const; // product of the row extents
  // Dtype of positions along the row in reductions: i32 if they fit, which halves registers and shuffles.
  [[nodiscard]] DType position_dtype() const {
    return env.range(row_count()).hi <= std::numeric_limits<int32_t>::max() ? DType::I32 : DType::I64;
  }
};

// Errors: UnsupportedType for element types without tiles, UnsupportedFeature for more than 64 axes.
[[nodiscard]] Result<Domain> make_domain(const Graph& graph, const LoopNest& nest);

// Every expression over axes that a kernel will compute: offsets and live Index values.
void each_expression(const LoopNest& nest, Domain& domain, const std::function<void(SymExpr&)>& f);
// Positions of checked indices, and the indices of loads: rewritten as expressions are, but no reason for or against
// anything.
void each_position(const LoopNest& nest, Domain& domain, const std::function<void(SymExpr&)>& f);
// Sets row_mask, deps and stage from the axes and expressions.
void find_dependences(const LoopNest& nest, Domain& domain);

// Read buffers with elements of the written one's size that are read only at the offset of the store `w`.
[[nodiscard]] std::vector<int> read_only_where(const Graph& graph, const LoopNest& nest, const Domain& domain,
                                               const Access& w);

// True if the blocks of a Tiled2D schedule can be traversed in squares: there are no gathers and no masks, so that values
// are scalars, rows, columns or squares.
[[nodiscard]] bool squares_fit(const LoopNest& nest, const Domain& domain);

} // namespace tessera
