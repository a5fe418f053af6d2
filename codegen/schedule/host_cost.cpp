#include "codegen/schedule/host_cost.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace tessera {
namespace {

// The schedule of a nest on a host: what every stage below reads. The stages are functions of this and of the records
// of those before them.
struct Problem {
  const SizedFacts& f;
  const Schedule& s;
  const Target& d;
  const HostCostModel& m;
  const size_t axis = static_cast<size_t>(std::max(0, s.placement.axis)); // the tile's
  const uint64_t bit = uint64_t{1} << axis;
  const SizedFacts::Rounds& loops = f.rounds[0];                           // over rows, or over each chunk of them
  const SizedFacts::Rounds& rounds = f.rounds[s.traversal.online ? 1 : 0]; // over what is in memory
  const bool row_loop = s.kind == ScheduleKind::RowLoop, column_loop = s.kind == ScheduleKind::ColumnLoop;
  const double wide = s.tile.vector * s.tile.unroll; // indices of a full tile

  [[nodiscard]] double extent(size_t of) const { return static_cast<double>(f.extents[of]); }
  // Whether a stream is contiguous along the cross axis instead of the tile's.
  [[nodiscard]] bool crosses(const SizedStream& stream) const {
    const int cross = s.placement.cross_axis;
    return cross >= 0 && stream.affine() && stream.step[axis] != 1 && stream.step[static_cast<size_t>(cross)] == 1;
  }
};

// How vectors lie along the tile's axis: steps of the full tile, single vectors, a masked one.
struct Lines {
  double length = 1, lines = 1, row = 1;     // indices of a line, lines, indices of a row
  double steps = 0, singles = 0, masked = 0; // of a line: full tiles, vectors, masked vectors
  double registers = 1;                      // of a vector
  double cross = 0, rest = 0; // Tiled2D: indices of the cross axis, the part of them that no square holds
};

Lines lines(const Problem& p) {
  Lines out;
  out.length = p.extent(p.axis);
  out.lines = p.f.points / out.length;
  for (size_t i = 0; i < p.f.extents.size(); ++i)
    if (p.f.row_mask >> i & 1) out.row *= p.extent(i);
  const double v = p.s.tile.vector;
  out.steps = std::floor(out.length / p.wide);
  out.singles = std::floor((out.length - out.steps * p.wide) / v);
  out.masked = out.length - out.steps * p.wide - out.singles * v > 0 ? 1 : 0;
  out.registers = std::max(1.0, v * p.f.compute_bytes / p.d.vector_bytes);
  if (p.s.kind != ScheduleKind::Tiled2D) return out;
  out.cross = p.extent(static_cast<size_t>(p.s.placement.cross_axis));
  out.rest = 1 - std::floor(out.cross / p.s.tile.square) * p.s.tile.square / out.cross;
  return out;
}

// Instructions of the kernel.
struct Instructions {
  double operations = 0;         // of an element
  double load_bytes = 4;         // of a load that moves with the tile
  double vector = 0.5, line = 0; // cycles: of a vector, of what a line has to do besides
  bool elementary = false;       // functions made of many instructions
};

Instructions instructions(const Problem& p, const Lines& l) {
  const SizedFacts& f = p.f;
  const Schedule& s = p.s;
  const Target& d = p.d;
  const HostCostModel& m = p.m;
  // Cycles of a vector, at so many 32-bit results a cycle.
  auto of_registers = [&](double rate) { return l.registers * (d.vector_bytes / 4.0) / rate; };
  const double v = s.tile.vector, squares = s.tile.square;
  Instructions out;
  double loads = 0, load_cycles = 0, bytes = 0; // that move with the tile
  for (const SizedStream& stream : f.streams) {
    if (!(stream.deps & p.bit)) {
      out.vector += m.hoisted;
      continue;
    }
    const double before = out.vector, gathered = v / d.gather_per_cycle * (stream.bytes < 4 ? m.narrow : 1);
    const double step = stream.affine(p.axis) ? static_cast<double>(std::abs(stream.step[p.axis])) : 2;
    if (step == 1)
      out.vector += of_registers(d.load_store_per_cycle);
    else if (squares > 1 && p.crosses(stream)) // what no square holds is gathered
      out.vector +=
          (1 - l.rest) * (of_registers(d.load_store_per_cycle) + l.registers * m.shuffle * std::log2(squares)) +
          l.rest * gathered;
    else
      out.vector += gathered;
    if (stream.bytes < f.compute_bytes) out.vector += of_registers(d.conversion_per_cycle);
    if (!stream.store) ++loads, load_cycles += out.vector - before, bytes += stream.bytes;
  }
  if (loads > 0) out.load_bytes = bytes / loads;
  for (const SizedFacts::Work& w : f.work) {
    out.elementary = out.elementary || w.elementary > 0;
    out.operations += w.simple + w.elementary;
    const double cycles = of_registers(d.fma_per_cycle) * (w.simple + w.elementary);
    (w.deps & p.bit ? out.vector : out.line) += cycles;
  }
  // Later rounds read values again, or compute them.
  if (f.reduces)
    out.vector += p.loops.loads * load_cycles / std::max(1.0, loads) +
                  of_registers(d.load_store_per_cycle) * 2 * p.loops.kept_reads +
                  of_registers(d.fma_per_cycle) * p.rounds.again + (s.traversal.online ? m.online * l.registers : 0);
  return out;
}

// Cycles of all cores.
double cycles(const Problem& p, const Lines& l, const Instructions& i) {
  const SizedFacts& f = p.f;
  const Schedule& s = p.s;
  const Target& d = p.d;
  const HostCostModel& m = p.m;
  const double file = d.vector_bytes >= 64 ? 32 : 16;
  auto spilled = [&](double unroll) {
    const double need =
        unroll * l.registers * (f.live + (i.elementary ? m.temporaries : 1) + (p.column_loop ? f.accumulators : 0));
    return 1 + m.spill * std::max(0.0, need / file - 1);
  };
  const double chain = f.reduces ? m.chain * std::max(1, p.loops.folds) : 0, unroll = s.tile.unroll;
  const double rounds = f.reduces ? std::max(1, p.loops.rounds) : 1;
  // The rows of a square are one step.
  const double at_once = s.tile.square, step = m.step * rounds / at_once, masked = m.masked * rounds / at_once;
  const double full =
      std::max(i.vector * spilled(unroll) * (1 + m.alone / std::min(unroll * at_once, 4.0)), chain / unroll) * unroll +
      step;
  const double single = std::max(i.vector * spilled(1) * (1 + m.alone / std::min(at_once, 4.0)), chain) + step;
  const double phases = (l.steps > 0) + (l.singles > 0) + l.masked;
  const double line =
      l.steps * full + l.singles * single + l.masked * (single + masked) + phases * m.phase * rounds / at_once + i.line;
  double out = l.lines * line;
  // Indices are computed once a line; down columns once for all of their points.
  const double tiles = l.steps + l.singles + l.masked;
  out += m.line * rounds *
         (p.column_loop ? l.lines / l.row * tiles
          : l.cross > 0 ? l.lines / l.cross * tiles
                        : l.lines);
  if (p.row_loop) {
    double ends = m.row + m.fold * std::max(1, p.loops.folds);
    if (s.traversal.online) ends *= std::ceil(l.row / static_cast<double>(std::max<int64_t>(1, s.traversal.chunk)));
    out += f.points / l.row * ends;
  }
  return out;
}

struct Programs {
  double count = 1, busy = 1, tail = 1; // programs, those that run at a time, the end's share
  double overhead_us = 0;
};

Programs programs(const Problem& p, const Lines& l) {
  const SizedFacts& f = p.f;
  const Schedule& s = p.s;
  const Target& d = p.d;
  const HostCostModel& m = p.m;
  double bytes = 0;
  for (const SizedStream& stream : f.streams)
    if (stream.deps != 0) bytes += stream.bytes;
  const double elements =
      std::max<double>(p.wide, static_cast<double>(s.traversal.program_bytes) / std::max(1.0, bytes));
  const double rows = f.points / l.row;
  double most = rows; // programs that rows can be divided into
  if (p.column_loop) most = rows / l.length * std::ceil(l.length / p.wide);
  if (!f.reduces) most = f.points / std::min(p.wide, l.length);
  const double parts = s.cooperation.programs_per_row;
  Programs out;
  out.count = std::clamp(std::ceil(f.points / elements), 1.0, std::max(1.0, most));
  if (parts > 1) out.count = most * parts;
  out.busy = std::min(out.count, m.programs);
  // The last program of a core ends while others have none.
  out.tail = out.count > out.busy ? 1 + 0.5 * out.busy / out.count : 1;
  out.overhead_us =
      m.program / d.clock_mhz * out.count / out.busy + (parts > 1 ? m.partial / d.clock_mhz * (1 + parts / 8) : 0);
  return out;
}

// The cache, or memory, that holds all that a kernel reads and writes: bytes/us and latency.
struct Level {
  double bandwidth = 1, latency = 0;
};

Level level(const Problem& p, const Programs& programs) {
  const Target& d = p.d;
  double all = 0;
  for (const SizedStream& s : p.f.streams) all += s.shared ? 0 : s.count * s.bytes;
  if (all / programs.busy <= static_cast<double>(d.l2_bytes)) return {d.l2_bytes_per_us, d.l2_latency_us};
  if (all / programs.busy <= static_cast<double>(d.l3_bytes) / std::max(1, d.cores))
    return {d.l3_bytes_per_us, d.l3_latency_us};
  return {d.core_memory_bytes_per_us, d.memory_latency_us};
}

// Latency of the nearest cache that holds so many lines at a time, `stride` bytes from each other; 0: the first one.
double latency_of(const Problem& p, const Level& level, double lines, double stride) {
  const Target& d = p.d;
  auto held = [&](int64_t bytes, double way) {
    const double apart = std::gcd(static_cast<int64_t>(stride), static_cast<int64_t>(way));
    return static_cast<double>(bytes) / std::max(static_cast<double>(d.line_bytes), apart) / 2;
  };
  if (lines <= held(d.l1_bytes, p.m.way)) return 0;
  if (lines <= held(d.l2_bytes, static_cast<double>(d.l2_bytes) / p.m.ways)) return d.l2_latency_us;
  return std::max(level.latency, d.l3_latency_us); // whatever level() is, which counts a core's share
}

struct Traffic {
  double bytes = 0;    // moved
  double evicted = 0;  // moved once for each of their elements: no cache of the core holds the lines
  double waits_us = 0; // for lines
  double again_us = 0; // of rows that later rounds read
};

Traffic traffic(const Problem& p, const Lines& l, const Instructions& i, const Level& level) {
  const SizedFacts& f = p.f;
  const Schedule& s = p.s;
  const Target& d = p.d;
  const HostCostModel& m = p.m;
  const double line = static_cast<double>(d.line_bytes), l2 = static_cast<double>(d.l2_bytes);
  // As many lines are on their way as the instructions in flight require.
  const double ahead =
      std::min(m.fills, std::max(1.0, m.window / std::max(1.0, i.operations)) + s.traversal.prefetch_points);
  Traffic out;
  double row = 0;
  for (const SizedStream& stream : f.streams) {
    double moved = stream.count * stream.bytes;
    const double step = stream.affine(p.axis) ? static_cast<double>(std::abs(stream.step[p.axis])) : 0;
    if ((stream.deps & p.bit) && step > 1) {
      // A line that the tile's axis leaves is there when the next index of another axis needs the rest of it, if a
      // cache holds the lines of all indices before. Stores wait for their lines one after another.
      const double lines = p.row_loop || s.kind == ScheduleKind::Flat ? l.length : std::min(p.wide, l.length);
      const double latency = latency_of(p, level, lines, step * stream.bytes);
      const double accesses = stream.count / (p.crosses(stream) ? s.tile.square : 1);
      out.waits_us += accesses * latency / (stream.store ? 1 : m.fills);
      if (latency > d.l2_latency_us) {
        out.evicted += stream.shared ? 0 : moved * std::max(1.0, std::min(step, line / stream.bytes));
        moved = 0;
      }
    }
    // Down columns each index is another segment, of the tile's width.
    if (p.column_loop && step == 1 && (stream.deps & f.row_mask) && p.wide < l.length) {
      moved *= 1 + m.segment / (p.wide * stream.bytes);
      out.waits_us += stream.count * stream.bytes / line *
                      (level.latency / ahead + (s.traversal.prefetch_points > 0 ? 1 / d.clock_mhz : 0));
    }
    out.bytes += stream.shared ? 0 : moved;
    if (stream.deps & f.row_mask) row += stream.bytes * l.row;
  }
  if (!f.reduces || p.rounds.rounds < 2) return out;
  // Later rounds read rows again from what holds one, and so are values kept in scratch, which is every row's. Those
  // in an output are where that is.
  const double again = (p.rounds.loads * i.load_bytes + p.rounds.kept_read_bytes) * l.row / (p.rounds.rounds - 1),
               kept = p.rounds.kept_read_bytes * f.points, in_row = p.rounds.loads * i.load_bytes * f.points;
  const double held = row > static_cast<double>(d.l3_bytes) / 2 ? d.core_memory_bytes_per_us
                      : row > l2 / 2                            ? std::min(level.bandwidth, d.l3_bytes_per_us)
                                                                : d.l2_bytes_per_us;
  if (again <= static_cast<double>(d.l1_bytes) / 2) return out; // the first-level cache, a part of the instructions
  const bool evicted = s.residency.cache_in_output && row > l2 / 2;
  out.again_us = in_row / held + 2 * kept / (evicted ? std::min(level.bandwidth, held) : held) +
                 (s.residency.cache_in_output ? 0 : kept / d.l2_bytes_per_us);
  return out;
}

} // namespace

Cost host_cost(const SizedFacts& facts, const Schedule& schedule, const Target& device, const HostCostModel& model) {
  Cost cost;
  cost.launch = device.launch_us;
  cost.us = cost.launch;
  if (facts.extents.empty() || schedule.placement.axis < 0) return cost;
  const Problem p{facts, schedule, device, model};
  const Lines l = lines(p);
  const Instructions i = instructions(p, l);
  const Programs n = programs(p, l);
  const Level from = level(p, n);
  const Traffic moved = traffic(p, l, i, from);
  cost.blocks = n.count;
  cost.bytes = moved.bytes + moved.evicted;
  const double evicted_us = moved.evicted / std::min(from.bandwidth, device.l3_bytes_per_us);
  cost.memory = (moved.bytes / from.bandwidth + evicted_us + moved.again_us) / n.busy * n.tail;
  cost.issue = cycles(p, l, i) / device.clock_mhz / n.busy * n.tail;
  cost.latency = moved.waits_us / n.busy * n.tail + n.overhead_us;
  const double memory = std::max(cost.memory, moved.waits_us / n.busy * n.tail);
  cost.us = cost.launch + n.overhead_us + std::max(memory, cost.issue) + model.overlap * std::min(memory, cost.issue);
  return cost;
}

} // namespace tessera
