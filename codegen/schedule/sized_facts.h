// The numbers of a nest that the cost of a schedule needs at given sizes, computed once for all schedules.
#pragma once
#include "codegen/schedule/block_facts.h"
#include "codegen/schedule/tuned.h"
#include "codegen/schedule/window_facts.h"
#include <memory>

namespace tessera {

// An access of a nest at given sizes.
struct SizedStream {
  int bytes = 4; // of an element
  bool store = false;
  bool shared = false;       // a load of elements that a load before it reads, too: of neighbours, of overlapping parts
  uint64_t deps = 0;         // axes, as bits
  uint64_t unknown = 0;      // of them, those along which data decide where it reads, or that meet it in no equal steps
  double count = 1;          // distinct elements
  std::vector<int64_t> step; // elements from one position to the next, by axis
  int64_t start = 0;         // offset at the first position, elements
  int64_t data_step = 0;     // of what data decide: a divisor of its offsets, elements; 0: of none
  [[nodiscard]] bool affine() const { return unknown == 0; }
  [[nodiscard]] bool affine(size_t axis) const { return !(unknown >> axis & 1); }
};

struct SizedFacts {
  struct Work {
    uint64_t deps = 0;                 // axes that the values move with
    double simple = 0, elementary = 0; // instructions of a value: additions and the like; of exp, tanh, division ...
    double code = 0;                   // of their code: elementary functions of f64 are longer
  };
  // The loops over a row of reductions, with sums folded online or not.
  struct Rounds {
    int rounds = 1;                            // loops over the row
    int folds = 0;                             // of them, those that reduce
    int kept_bytes = 0;                        // of an element that rounds after the first need
    bool read = false;                         // what is folded, by more than results of the row
    double again = 0;                          // instructions of an element that later rounds compute again
    double cached_code = 0, uncached_code = 0; // of an element, that later rounds have again, with what is kept or not
    int loads = 0;                             // of an element, that later rounds make again
    int kept_reads = 0, kept_read_bytes = 0;   // of values of an element that a host keeps between rounds (stages.h)
  };
  // A part of a factor of a contraction.
  struct Factor {
    uint64_t axes = 0;   // outer axes on which it alone depends
    uint64_t deps = 0;   // all on which it depends
    int stream = -1;     // the load that it is; -1: it is computed
    bool masked = false; // the load has a predicate
    int bits = 16;       // of an element that is multiplied
  };
  std::vector<int64_t> extents;
  std::vector<char> known;     // the extent is a constant
  std::vector<Factor> factors; // of a contraction, else none: the first parts of both factors, the second ones ...
  int parts = 1, products = 1, sum_tiles = 1; // of a contraction (contraction.h)
  DType factor_dtype = DType::F16;            // of its tiles
  int64_t groups = 0; // of rows of a contraction, those without rows not counted; 0: it has none
  int64_t ranges = 1; // parts of the depth, of which a sum has one
  std::vector<SizedStream> streams;
  std::vector<Work> work;
  Rounds rounds[2]; // [1]: online
  double points = 1;
  uint64_t row_mask = 0;
  bool reduces = false, sums = false; // reductions; sums of floats among them
  int live = 1, accumulators = 1;
  int compute_bytes = 4;                     // of the widest element that is computed with
  int64_t vector = 1;                        // elements of an access of the narrowest large stream
  int column = -1;                           // axis along which most bytes are contiguous
  std::shared_ptr<const WindowFacts> window; // empty: no windows

  // Positions of these axes together.
  [[nodiscard]] int64_t count(uint64_t axes) const {
    int64_t n = 1;
    for (size_t i = 0; i < extents.size(); ++i)
      if (axes >> i & 1) n *= extents[i];
    return n;
  }
};
// `sizes` has all symbols of the nest. Error: an expression that cannot be evaluated.
[[nodiscard]] Result<SizedFacts> sized_facts(const BlockFacts& facts, const CallSizes& sizes);

} // namespace tessera
