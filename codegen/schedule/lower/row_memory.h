// Prefetching, private to the folder.
#pragma once
#include "codegen/schedule/lower/loop_context.h"

namespace tessera::loops {

class Prefetches final : Part {
public:
  explicit Prefetches(Context& context) : Part(context) {}
  void plan();
  void behind_round(size_t s); // at the end of the stage's loop body
  void next_chunk(size_t s);

private:
  void next_row();
  void next_points(size_t s);

  int round_ = -1;                // the stage in which the next row is prefetched
  std::vector<ScalarId> fetched_; // the prefetched loads
};

} // namespace tessera::loops
