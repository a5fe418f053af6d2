#include "codegen/schedule/host_cost.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace tessera {
namespace {

class HostPredictor {
public:
  HostPredictor(const SizedFacts& f, const Schedule& s, const Target& device, const HostCostModel& m)
      : f_(f), s_(s), d_(device), m_(m), axis_(static_cast<size_t>(std::max(0, s.placement.axis))),
        bit_(uint64_t{1} << axis_), loops_(f.rounds[0]), rounds_(f.rounds[s.traversal.online ? 1 : 0]),
        row_loop_(s.kind == ScheduleKind::RowLoop), column_loop_(s.kind == ScheduleKind::ColumnLoop) {}

  Cost run() {
    cost_.launch = d_.launch_us;
    cost_.us = cost_.launch;
    if (f_.extents.empty() || s_.placement.axis < 0) return cost_;
    lines();
    vectors();
    programs();
    memory();
    return total();
  }

private:
  [[nodiscard]] double extent(size_t axis) const { return static_cast<double>(f_.extents[axis]); }
  // How vectors lie along the tile's axis: steps of the full tile, single vectors, a masked one.
  void lines() {
    length_ = extent(axis_);
    lines_ = f_.points / length_;
    for (size_t i = 0; i < f_.extents.size(); ++i)
      if (f_.row_mask >> i & 1) row_ *= extent(i);
    const double v = s_.tile.vector, wide = v * s_.tile.unroll;
    steps_ = std::floor(length_ / wide);
    singles_ = std::floor((length_ - steps_ * wide) / v);
    masked_ = length_ - steps_ * wide - singles_ * v > 0 ? 1 : 0;
    registers_ = std::max(1.0, v * f_.compute_bytes / d_.vector_bytes);
    if (s_.kind != ScheduleKind::Tiled2D) return;
    cross_ = extent(static_cast<size_t>(s_.placement.cross_axis));
    rest_ = 1 - std::floor(cross_ / s_.tile.square) * s_.tile.square / cross_;
  }

  [[nodiscard]] double of_registers(double rate) const { // cycles of a vector, at so many 32-bit results a cycle
    return registers_ * (d_.vector_bytes / 4.0) / rate;
  }
  // Cycles that a vector takes, with its loads, stores and operations.
  void vectors() {
    const double v = s_.tile.vector, squares = s_.tile.square;
    double loads = 0, load_cycles = 0, bytes = 0; // that move with the tile
    for (const SizedStream& s : f_.streams) {
      if (!(s.deps & bit_)) {
        issue_ += m_.hoisted;
        continue;
      }
      const double before = issue_, gathered = v / d_.gather_per_cycle * (s.bytes < 4 ? m_.narrow : 1);
      const double step = s.affine(axis_) ? static_cast<double>(std::abs(s.step[axis_])) : 2;
      if (step == 1)
        issue_ += of_registers(d_.load_store_per_cycle);
      else if (squares > 1 && crosses(s)) // what no square holds is gathered
        issue_ += (1 - rest_) * (of_registers(d_.load_store_per_cycle) + registers_ * m_.shuffle * std::log2(squares)) +
                  rest_ * gathered;
      else
        issue_ += gathered;
      if (s.bytes < f_.compute_bytes) issue_ += of_registers(d_.conversion_per_cycle);
      if (!s.store) ++loads, load_cycles += issue_ - before, bytes += s.bytes;
    }
    if (loads > 0) load_bytes_ = bytes / loads;
    bool elementary = false;
    for (const SizedFacts::Work& w : f_.work) {
      elementary = elementary || w.elementary > 0;
      operations_ += w.simple + w.elementary;
      const double cycles = of_registers(d_.fma_per_cycle) * (w.simple + w.elementary);
      (w.deps & bit_ ? issue_ : line_work_) += cycles;
    }
    // What later rounds read again.
    // What later rounds read, or compute again.
    if (f_.reduces)
      issue_ += loops_.loads * load_cycles / std::max(1.0, loads) +
                of_registers(d_.load_store_per_cycle) * 2 * loops_.kept_reads +
                of_registers(d_.fma_per_cycle) * rounds_.again + (s_.traversal.online ? m_.online * registers_ : 0);
    const double file = d_.vector_bytes >= 64 ? 32 : 16;
    auto spilled = [&](double unroll) {
      const double need =
          unroll * registers_ * (f_.live + (elementary ? m_.temporaries : 1) + (column_loop_ ? f_.accumulators : 0));
      return 1 + m_.spill * std::max(0.0, need / file - 1);
    };
    const double chain = f_.reduces ? m_.chain * std::max(1, loops_.folds) : 0, unroll = s_.tile.unroll;
    const double rounds = f_.reduces ? std::max(1, loops_.rounds) : 1;
    // The rows of a square are one step.
    const double at_once = s_.tile.square, step = m_.step * rounds / at_once, masked = m_.masked * rounds / at_once;
    const double full =
        std::max(issue_ * spilled(unroll) * (1 + m_.alone / std::min(unroll * at_once, 4.0)), chain / unroll) * unroll +
        step;
    const double single = std::max(issue_ * spilled(1) * (1 + m_.alone / std::min(at_once, 4.0)), chain) + step;
    const double phases = (steps_ > 0) + (singles_ > 0) + masked_;
    line_ = steps_ * full + singles_ * single + masked_ * (single + masked) + phases * m_.phase * rounds / at_once +
            line_work_;
    cycles_ = lines_ * line_;
    // Indices are computed once a line; down columns once for all of their points.
    const double tiles = steps_ + singles_ + masked_;
    cycles_ += m_.line * rounds *
               (column_loop_ ? lines_ / row_ * tiles
                : cross_ > 0 ? lines_ / cross_ * tiles
                             : lines_);
    if (row_loop_) {
      double ends = m_.row + m_.fold * std::max(1, loops_.folds);
      if (s_.traversal.online) ends *= std::ceil(row_ / static_cast<double>(std::max<int64_t>(1, s_.traversal.chunk)));
      cycles_ += f_.points / row_ * ends;
    }
  }
  // Whether a stream is contiguous along the cross axis instead of the tile's.
  [[nodiscard]] bool crosses(const SizedStream& s) const {
    const int cross = s_.placement.cross_axis;
    return cross >= 0 && s.affine() && s.step[axis_] != 1 && s.step[static_cast<size_t>(cross)] == 1;
  }

  void programs() {
    double bytes = 0;
    for (const SizedStream& s : f_.streams)
      if (s.deps != 0) bytes += s.bytes;
    const double elements = std::max<double>(s_.tile.vector * s_.tile.unroll,
                                             static_cast<double>(s_.traversal.program_bytes) / std::max(1.0, bytes));
    const double rows = f_.points / row_, wide = s_.tile.vector * s_.tile.unroll;
    double most = rows; // programs that rows can be divided into
    if (column_loop_) most = rows / length_ * std::ceil(length_ / wide);
    if (!f_.reduces) most = f_.points / std::min(wide, length_);
    const double parts = s_.cooperation.programs_per_row;
    programs_ = std::clamp(std::ceil(f_.points / elements), 1.0, std::max(1.0, most));
    if (parts > 1) programs_ = most * parts;
    cost_.blocks = programs_;
    busy_ = std::min(programs_, m_.programs);
    // The last program of a core ends while others have none.
    tail_ = programs_ > busy_ ? 1 + 0.5 * busy_ / programs_ : 1;
    overhead_us_ =
        m_.program / d_.clock_mhz * programs_ / busy_ + (parts > 1 ? m_.partial / d_.clock_mhz * (1 + parts / 8) : 0);
  }

  // Latency of the nearest cache that holds so many lines at a time, `stride` bytes from each other; 0: the first one.
  [[nodiscard]] double latency_of(double lines, double stride) const {
    auto held = [&](int64_t bytes, double way) {
      const double apart = std::gcd(static_cast<int64_t>(stride), static_cast<int64_t>(way));
      return static_cast<double>(bytes) / std::max(static_cast<double>(d_.line_bytes), apart) / 2;
    };
    if (lines <= held(d_.l1_bytes, m_.way)) return 0;
    return lines <= held(d_.l2_bytes, static_cast<double>(d_.l2_bytes) / m_.ways) ? d_.l2_latency_us : far_latency_;
  }

  void memory() {
    const double line = static_cast<double>(d_.line_bytes), l2 = static_cast<double>(d_.l2_bytes),
                 wide = s_.tile.vector * s_.tile.unroll;
    double all = 0, row = 0;
    for (const SizedStream& s : f_.streams) all += s.shared ? 0 : s.count * s.bytes;
    const bool in_l2 = all / busy_ <= l2,
               in_l3 = all / busy_ <= static_cast<double>(d_.l3_bytes) / std::max(1, d_.cores);
    bandwidth_ = in_l2 ? d_.l2_bytes_per_us : in_l3 ? d_.l3_bytes_per_us : d_.core_memory_bytes_per_us;
    far_latency_ = in_l2 ? d_.l2_latency_us : in_l3 ? d_.l3_latency_us : d_.memory_latency_us;
    // As many lines are on their way as the instructions in flight require.
    const double ahead =
        std::min(m_.fills, std::max(1.0, m_.window / std::max(1.0, operations_)) + s_.traversal.prefetch_points);
    for (const SizedStream& s : f_.streams) {
      double moved = s.count * s.bytes;
      const double step = s.affine(axis_) ? static_cast<double>(std::abs(s.step[axis_])) : 0;
      if ((s.deps & bit_) && step > 1) {
        // A line that the tile's axis leaves is there when the next index of another axis needs the rest of it, if a cache
        // holds the lines of all indices before. Stores wait for their lines one after another.
        const double lines = row_loop_ || s_.kind == ScheduleKind::Flat ? length_ : std::min(wide, length_);
        const double latency = latency_of(lines, step * s.bytes), wasted = std::min(step, line / s.bytes);
        const double accesses = s.count / (crosses(s) ? s_.tile.square : 1);
        waits_us_ += accesses * latency / (s.store ? 1 : m_.fills);
        if (latency > d_.l2_latency_us) moved *= std::max(1.0, wasted);
      }
      // Down columns each index is another segment, of the tile's width.
      if (column_loop_ && step == 1 && (s.deps & f_.row_mask) && wide < length_) {
        moved *= 1 + m_.segment / (wide * s.bytes);
        waits_us_ += s.count * s.bytes / line *
                     (far_latency_ / ahead + (s_.traversal.prefetch_points > 0 ? 1 / d_.clock_mhz : 0));
      }
      cost_.bytes += s.shared ? 0 : moved;
      if (s.deps & f_.row_mask) row += s.bytes * row_;
    }
    if (!f_.reduces || rounds_.rounds < 2) return;
    // Later rounds read rows again from what holds one, and so are values kept in scratch, which is every row's. Those
    // in an output are where that is.
    const double again = (rounds_.loads * load_bytes_ + rounds_.kept_read_bytes) * row_ / (rounds_.rounds - 1),
                 kept = rounds_.kept_read_bytes * f_.points, in_row = rounds_.loads * load_bytes_ * f_.points;
    const double held = row > static_cast<double>(d_.l3_bytes) / 2 ? d_.core_memory_bytes_per_us
                        : row > l2 / 2                             ? std::min(bandwidth_, d_.l3_bytes_per_us)
                                                                   : d_.l2_bytes_per_us;
    if (again <= static_cast<double>(d_.l1_bytes) / 2) return; // the first-level cache, a part of the instructions
    const bool evicted = s_.residency.cache_in_output && row > l2 / 2;
    again_us_ = in_row / held + 2 * kept / (evicted ? std::min(bandwidth_, held) : held) +
                (s_.residency.cache_in_output ? 0 : kept / d_.l2_bytes_per_us);
  }

  Cost total() {
    cost_.memory = (cost_.bytes / bandwidth_ + again_us_) / busy_ * tail_;
    cost_.issue = cycles_ / d_.clock_mhz / busy_ * tail_;
    cost_.latency = waits_us_ / busy_ * tail_ + overhead_us_;
    const double memory = std::max(cost_.memory, waits_us_ / busy_ * tail_);
    cost_.us = cost_.launch + overhead_us_ + std::max(memory, cost_.issue) + m_.overlap * std::min(memory, cost_.issue);
    return cost_;
  }

  const SizedFacts& f_;
  const Schedule& s_;
  const Target& d_;
  const HostCostModel& m_;
  const size_t axis_;
  const uint64_t bit_;
  const SizedFacts::Rounds& loops_;  // over rows, or over each chunk of them
  const SizedFacts::Rounds& rounds_; // over what is in memory
  const bool row_loop_, column_loop_;
  Cost cost_;
  double cross_ = 0, rest_ = 0;             // Tiled2D: indices of the cross axis, the part of them that no square holds
  double length_ = 1, lines_ = 1, row_ = 1; // indices of a line, lines, indices of a row
  double steps_ = 0, singles_ = 0, masked_ = 0;   // of a line: full tiles, vectors, masked vectors
  double registers_ = 1;                          // of a vector
  double issue_ = 0.5, line_work_ = 0, line_ = 0; // cycles: of a vector, of a line's other work, of a line
  double load_bytes_ = 4;                         // of a load that moves with the tile
  double operations_ = 0;                         // of an element
  double cycles_ = 0;                             // of all
  double programs_ = 1, busy_ = 1, tail_ = 1;     // programs, those that run at a time, the end's share
  double overhead_us_ = 0, again_us_ = 0, waits_us_ = 0;
  double bandwidth_ = 1, far_latency_ = 0; // bytes/us and latency of what holds all of it
};

} // namespace

Cost host_cost(const SizedFacts& facts, const Schedule& schedule, const Target& device, const HostCostModel& model) {
  return HostPredictor(facts, schedule, device, model).run();
}

} // namespace tessera
