#include "codegen/schedule/cost.h"
#include "codegen/schedule/contraction_cost.h"
#include "codegen/schedule/host_cost.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <numeric>
#include <set>
#include <utility>

namespace tessera {
namespace {

constexpr double kBurst = 64;         // bytes that memory moves at once
constexpr double kBetweenWaits = 600; // instructions of a window between two waits for loads
constexpr double kAccessCode = 3;     // instructions of an access: its address and parts
constexpr double kMaskCode = 4;       // of an element of an access that has a mask

// A dimension of the tile, or the points of the grid, with the axes that lie along it.
struct Side {
  double extent = 1;         // positions
  uint64_t axes = 0;         // of the domain, as bits
  std::vector<size_t> order; // the same, the fastest one last
  bool folds = false;        // they are the row's
  int64_t part = 1;          // the last axis has only its remainder by it here, or, negative, the quotient
  [[nodiscard]] int inner() const { return order.empty() ? -1 : static_cast<int>(order.back()); }
};

Side side(const SizedFacts& f, const Schedule& s, const std::vector<size_t>& axes) {
  Side out;
  const auto split = static_cast<size_t>(std::max(0, s.placement.split_axis));
  for (size_t a : axes) {
    size_t axis = s.placement.split_axis >= 0 && a > split ? a - 1 : a;
    auto n = static_cast<double>(f.extents[axis]);
    if (s.placement.split_axis >= 0 && axis == split) {
      out.part = a == split ? -s.tile.columns : s.tile.columns;
      n = a == split ? std::ceil(n / s.tile.columns) : s.tile.columns;
    }
    out.extent *= n;
    out.axes |= uint64_t{1} << axis;
    out.order.push_back(axis);
  }
  out.folds = f.reduces && out.axes != 0 && (out.axes & f.row_mask) == out.axes;
  return out;
}

// The schedule of a nest on a device: what every stage below reads. The stages are functions of this and of the
// records of those before them.
struct Problem {
  Problem(const SizedFacts& facts, const Schedule& schedule, int64_t blocks_of_a_row, const Target& target,
          const CostModel& model)
      : f(facts), s(schedule), m(model), device(target),
        blocks_per_row(static_cast<double>(std::max<int64_t>(1, blocks_of_a_row))) {
    const AxisGroups groups = axis_groups(s.placement, f.extents.size(), f.column, f.row_mask);
    points = side(f, s, groups.points);
    rows = side(f, s, groups.rows);
    columns = side(f, s, groups.columns);
  }

  const SizedFacts& f;
  const Schedule& s;
  const CostModel& m;
  const Target& device;
  const double blocks_per_row;
  Side points, rows, columns;
  const int threads = 32 * s.tile.warps; // of a block
  const bool cooperative = s.kind == ScheduleKind::BlockCooperative;
  const bool row_loop = s.traversal.loop || cooperative; // the row is not held in the tile
  const SizedFacts::Rounds& rounds = f.rounds[!row_loop || s.traversal.online ? 1 : 0];
  const double level2 = m.level2 * static_cast<double>(device.l2_bytes); // bytes
};

// The part of a tile that a thread has.
struct ThreadTile {
  double elements = 1, rows = 1, columns = 1; // of them, down and along the tile
  double across = 1;                          // neighbouring threads along the columns
  double contiguous = 1;                      // elements that follow each other

  [[nodiscard]] double moving_with(const Problem& p, uint64_t deps) const { // elements of values that move with axes
    return ((deps & p.rows.axes) ? rows : 1) * ((deps & p.columns.axes) ? columns : 1);
  }
};

ThreadTile thread_tile(const Problem& p) {
  const Schedule& s = p.s;
  ThreadTile out;
  const double each = std::max(1.0, static_cast<double>(s.tile.rows) * s.tile.columns / p.threads);
  const double wide = p.f.reduces && p.row_loop
                          ? (p.columns.folds ? s.tile.contiguous : static_cast<double>(p.f.vector))
                          : static_cast<double>(p.f.vector);
  const double vt = std::clamp(wide, 1.0, std::max(1.0, std::min<double>(s.tile.columns, each)));
  out.across = std::clamp(s.tile.columns / vt, 1.0, static_cast<double>(p.threads));
  out.columns = s.tile.columns / out.across;
  out.rows = std::max(1.0, s.tile.rows / (p.threads / out.across));
  out.contiguous = vt;
  // The accesses beyond the end of a row that is held in the tile do not exist.
  if (p.columns.folds && !p.row_loop) {
    const double accesses = std::ceil((p.columns.extent + s.access.alignment_peel - 1) / (out.across * vt));
    out.columns = std::min(out.columns, accesses * vt);
  }
  if (p.rows.folds && !p.row_loop)
    out.rows = std::min(out.rows, std::max(1.0, std::ceil(p.rows.extent * out.across / p.threads)));
  out.elements = out.rows * out.columns;
  return out;
}

// The blocks of a launch, and the tiles of each.
struct Grid {
  double blocks = 1;
  double tiles = 1;         // of a block, along the row
  int loops = 1;            // over them
  double resident_part = 1; // of the row, that later loops find on the multiprocessor
};

Grid grid(const Problem& p) {
  const Schedule& s = p.s;
  Grid g;
  g.blocks = p.points.extent;
  const double row = std::ceil(p.rows.extent / (static_cast<double>(s.tile.rows) * s.traversal.rows_in_flight));
  const double column =
      std::ceil((p.columns.extent + (s.access.alignment_peel > 1 ? s.access.alignment_peel - 1 : 0)) / s.tile.columns);
  (p.rows.folds ? g.tiles : g.blocks) *= row;
  (p.columns.folds ? g.tiles : g.blocks) *= column;
  g.blocks *= p.blocks_per_row;
  if (p.blocks_per_row > 1) g.tiles = std::ceil(g.tiles / p.blocks_per_row);
  g.loops = s.traversal.loop ? std::max(1, p.rounds.rounds) : 1;
  if (g.loops > 1) {
    const double cached = p.columns.folds
                              ? (p.cooperative || s.residency.cached_tiles > 0 ? s.residency.cached_tiles + 1.0 : 0.0)
                              : s.residency.cached_tiles;
    g.resident_part = std::min(1.0, cached / g.tiles);
  }
  return g;
}

// Whether an access meets the axes of a side as one contiguous segment, or as one number at least.
bool one_number(const Problem& p, const SizedStream& s, const Side& side) {
  if (s.unknown & side.axes) return false;
  for (size_t i = 0; i + 1 < side.order.size(); ++i)
    if (s.step[side.order[i]] != s.step[side.order[i + 1]] * p.f.extents[side.order[i + 1]]) return false;
  return true;
}

// Whether the level-2 cache loses what a tile has left of a line until the block comes that reads the rest of it,
// `blocks` later.
bool far(const Problem& p, double blocks) {
  double bytes = 0;
  for (const SizedStream& s : p.f.streams)
    if (s.deps & (p.rows.axes | p.columns.axes))
      bytes += static_cast<double>(p.s.tile.rows) * p.s.tile.columns * s.bytes;
  return blocks * bytes > p.level2;
}

double step_of(const SizedStream& s, int axis) {
  return static_cast<double>(std::abs(s.step[static_cast<size_t>(axis)]));
}

// Elements that follow each other from row to row of a split tile.
double rows_run(const Problem& p, const SizedStream& s) {
  double run = static_cast<double>(p.f.extents[static_cast<size_t>(p.columns.inner())]);
  for (size_t i = p.rows.order.size(); i-- > 1;) {
    const size_t outer = p.rows.order[i - 1], here = p.rows.order[i];
    if (s.step[outer] != s.step[here] * p.f.extents[here]) break;
    run *= static_cast<double>(p.f.extents[outer]);
  }
  return std::min(run, static_cast<double>(p.s.tile.rows) * p.s.tile.columns);
}

bool rows_follow(const Problem& p, const SizedStream& s) {
  const int row = p.rows.inner();
  if (row < 0 || p.columns.order.empty()) return false;
  const size_t first = p.columns.order.front();
  return s.step[static_cast<size_t>(row)] == s.step[first] * p.f.extents[first] && one_number(p, s, p.rows);
}

// Whether rows of an access begin where those of the accesses do that the alignment is made for.
bool in_step(const Problem& p, const SizedStream& s) { return (s.deps & ~p.columns.axes) != 0; }

// Elements of an access at whose multiples all rows begin, at most 16 bytes.
double aligned(const Problem& p, const SizedStream& s) {
  int64_t g = 16 / s.bytes;
  uint64_t inside = 0; // axes of the segment
  for (const Side* side : {&p.columns, &p.rows})
    if (side->inner() >= 0 && s.step[static_cast<size_t>(side->inner())] == 1) {
      if (one_number(p, s, *side))
        inside |= side->axes;
      else
        inside |= uint64_t{1} << side->inner();
    }
  for (size_t i = 0; i < s.step.size(); ++i)
    if ((s.deps >> i & 1) && !(inside >> i & 1)) g = std::gcd(g, s.step[i]);
  g = std::gcd(std::gcd(g, s.start), s.data_step);
  if (p.s.access.alignment_peel > 1 && in_step(p, s)) g = 16 / s.bytes;
  return static_cast<double>(std::max<int64_t>(1, g));
}

// How a warp meets the elements of a stream.
struct AccessShape {
  double width = 1;       // elements of one access of a thread
  double segment = 0;     // contiguous bytes
  double apart = 128;     // bytes from one lane's access to the next one's
  double step = 1;        // elements from one to the next
  double split_slots = 0; // issue slots of an access that is taken from two aligned ones
  double partial = 0;     // bytes that the ends of a warp's stores read again
  bool exchanged = false; // elements change threads
  bool next_far = false;  // the block that reads the next segment comes late
};

AccessShape access_shape(const Problem& p, const ThreadTile& t, const SizedStream& s) {
  const Schedule& schedule = p.s;
  const bool down = (s.deps & p.rows.axes) != 0, along = (s.deps & p.columns.axes) != 0;
  const int inner = p.columns.inner(), inner_row = p.rows.inner();
  const bool even = along && inner >= 0 && s.affine(static_cast<size_t>(inner));
  const bool even_rows = down && inner_row >= 0 && s.affine(static_cast<size_t>(inner_row)) && p.rows.part == 1;
  const double column_step = even ? step_of(s, inner) : 0, row_step = even_rows ? step_of(s, inner_row) : 0;
  AccessShape out;
  out.segment = s.bytes;
  if (column_step == 1) {
    const bool whole = one_number(p, s, p.columns), split = p.columns.part > 1;
    const auto inner_extent = static_cast<double>(p.f.extents[static_cast<size_t>(inner)]);
    const double run = split ? rows_run(p, s) : whole ? p.columns.extent : inner_extent;
    out.segment = s.bytes * (split ? run : std::min<double>(schedule.tile.columns, run));
    if (!split && schedule.tile.rows > 1 && down && schedule.tile.columns >= p.columns.extent && whole &&
        rows_follow(p, s))
      out.segment = s.bytes * std::min<double>(schedule.tile.rows, p.rows.extent) * p.columns.extent;
    out.width = std::min<double>(whole || split ? aligned(p, s) : 1, std::max(1.0, t.contiguous));
    if (schedule.access.alignment_peel > 1 && !in_step(p, s)) {
      const bool windows = schedule.traversal.loop || p.cooperative || schedule.access.staged;
      out.width = windows ? t.contiguous : 1;
      out.split_slots = windows ? p.m.split_access : 0;
    }
    out.apart = out.width * s.bytes;
    out.next_far = schedule.placement.rows_fastest && far(p, p.rows.extent / schedule.tile.rows);
    if (s.store && aligned(p, s) * s.bytes < 32)
      out.partial = s.count * s.bytes * 2 * p.m.partial / std::max(1.0, std::min(out.segment, 32 * out.apart));
  } else if (row_step == 1) {
    out.segment = s.bytes * std::min<double>(schedule.tile.rows, p.rows.extent);
    out.width = schedule.access.staged ? 16.0 / s.bytes : std::min<double>(aligned(p, s), 16.0 / s.bytes);
    out.apart = out.width * s.bytes;
    out.exchanged = true;
    out.next_far = !schedule.placement.rows_fastest && far(p, p.columns.extent / schedule.tile.columns);
  } else if (column_step > 0 || row_step > 0) {
    out.step = column_step > 0 ? column_step : row_step;
    const double lanes = column_step > 0 ? std::min<double>(schedule.tile.columns, p.columns.extent)
                                         : std::min<double>(schedule.tile.rows, p.rows.extent);
    out.segment = out.step * s.bytes <= 128 ? lanes * out.step * s.bytes : 32;
    out.apart = std::min(128.0, out.step * s.bytes);
  } else if (even || !along) { // constant along the fastest axis
    out.width = even ? std::max(1.0, t.contiguous) : 1;
    out.apart = 0;
    out.segment = 128;
  }
  return out;
}

double division(const Problem& p, const Side& side, size_t from) {
  bool known = true, power = true;
  for (size_t i = from; i < side.order.size(); ++i) {
    known &= p.f.known[side.order[i]] != 0;
    power &= std::has_single_bit(static_cast<uint64_t>(std::max<int64_t>(1, p.f.extents[side.order[i]])));
  }
  return !known ? p.m.divide : power ? p.m.simple : p.m.divide_constant;
}

// Issue slots of taking positions along a side apart, for each of `count`.
double index_slots(const Problem& p, const Side& side, double count) {
  if (side.order.size() < 2 || count <= 0) return 0;
  std::set<std::pair<size_t, size_t>> parts; // of the side's axes, that an access meets as one number
  for (const SizedStream& s : p.f.streams) {
    if (!(s.deps & side.axes)) continue;
    for (size_t first = 0; first < side.order.size();) {
      size_t last = first;
      while (last + 1 < side.order.size() && s.affine(side.order[last]) && s.affine(side.order[last + 1]) &&
             s.step[side.order[last]] == s.step[side.order[last + 1]] * p.f.extents[side.order[last + 1]])
        ++last;
      if (s.deps >> side.order[last] & 1) parts.emplace(first, last);
      first = last + 1;
    }
  }
  double slots = 0;
  for (auto [first, last] : parts) {
    if (last + 1 < side.order.size()) slots += division(p, side, last + 1);
    if (first > 0) slots += division(p, side, first);
  }
  return slots * count;
}

// The work of a thread for a tile, and the bytes that all tiles move.
struct Traffic {
  double slots = 0, cycles = 0;          // issue slots, and cycles of shared memory, of a thread and tile
  double access_code = 0, load_code = 0; // instructions of all accesses of a tile, of its greatest load
  double mask_code = 0;                  // of the masks of all elements
  double exchanged = 0;                  // elements of a thread that change threads
  double loaded = 0;                     // bytes of a thread's loads of a tile
  double bytes = 0, again = 0;           // moved from and to memory; read again
  double reread = 0;                     // bytes of all loops after the first, of what is not resident
};

Traffic traffic(const Problem& p, const ThreadTile& t, const Grid& g) {
  const Schedule& schedule = p.s;
  const CostModel& m = p.m;
  const double blocks_tiles = g.blocks * g.tiles * schedule.traversal.rows_in_flight;
  Traffic out;
  double read = 0;
  for (const SizedStream& s : p.f.streams) {
    const bool down = (s.deps & p.rows.axes) != 0, along = (s.deps & p.columns.axes) != 0;
    const double elements = t.moving_with(p, s.deps);
    const AccessShape a = access_shape(p, t, s);
    out.again += a.partial;
    if (a.exchanged) out.exchanged += elements;
    const double accesses = elements / std::max(1.0, a.width);
    out.slots += accesses * (m.access + a.split_slots) + (s.bytes < 4 ? elements * m.convert : 0);
    const double code = accesses * kAccessCode + (s.bytes < 4 ? elements : 0);
    out.access_code += code;
    if (!s.store) out.load_code = std::max(out.load_code, code);
    out.mask_code += elements * kMaskCode;
    out.cycles += accesses * std::clamp(32 * a.apart / 128, 1.0, 32.0) / 32;
    const double wasted = std::clamp(a.step, 1.0, std::max(1.0, 32.0 / s.bytes));
    double moved = s.count * s.bytes * wasted * (1 + m.segment / std::max(1.0, a.segment));
    if (a.next_far) { // each end of a segment that begins within a burst takes all of it
      const double ends = aligned(p, s) * s.bytes < kBurst || a.segment < kBurst ? kBurst : 0;
      moved *= std::max(1.0, (std::ceil(a.segment / kBurst) * kBurst + ends) / a.segment);
    }
    if (!s.store && schedule.access.load_hint == tile::Caching::Normal) moved *= 1 + m.unhinted;
    if (s.shared)
      out.again += s.count * s.bytes; // the first of them has it from memory
    else
      out.bytes += moved;
    if (s.store) continue;
    if (along || down) out.loaded += static_cast<double>(s.bytes) * elements;
    if (s.shared) continue;
    read += moved;
    // The level-2 cache yields, to each of several blocks, the elements that they all read.
    const double each_block = (down ? std::min<double>(schedule.tile.rows, p.rows.extent) : 1.0) *
                              (along ? std::min<double>(schedule.tile.columns, p.columns.extent) : 1.0);
    if (s.affine()) out.again += std::max(0.0, blocks_tiles * each_block * s.bytes - s.count * s.bytes);
  }
  out.reread = (g.loops - 1) * read * (1 - g.resident_part);
  out.slots += out.exchanged * 2;
  out.cycles += out.exchanged / 16;
  for (const SizedFacts::Work& w : p.f.work)
    out.slots += t.moving_with(p, w.deps) * (w.simple * m.simple + w.elementary * m.elementary);
  if (p.f.reduces) out.slots += t.elements * p.f.accumulators * m.simple;
  out.slots +=
      index_slots(p, p.rows, schedule.tile.rows > 1 ? t.rows : 0) +
      index_slots(p, p.columns,
                  schedule.tile.columns > 1
                      ? t.columns / (schedule.tile.contiguous > 1 && !p.f.reduces ? schedule.tile.contiguous : 1)
                      : 0);
  return out;
}

// Instructions of the kernel. A tile is written out, its loops are not, and each of these parts has a copy of all
// rounds: tiles with masks, tiles without; those that are resident, others, and the last one (lower/block_share.cpp).
double code(const Problem& p, const ThreadTile& t, const Grid& g, const Traffic& traffic) {
  const Schedule& s = p.s;
  double tile = traffic.access_code;
  for (const SizedFacts::Work& w : p.f.work) tile += t.moving_with(p, w.deps) * w.code;
  const bool peel = s.access.alignment_peel > 1;
  double copies = s.traversal.unmasked_branch ? 2 : 1, again = 0;
  if (p.row_loop) {
    const double placed = peel ? 2 : 1;
    const bool resident = s.residency.cached_tiles > 0 && g.loops > 1;
    const bool last = p.cooperative || resident || s.traversal.num_stages > 1;
    // Asynchronous copies keep what is loaded, not what is computed of it.
    const double cached =
        !resident ? 0 : t.elements * (s.residency.async_copy ? p.rounds.uncached_code : p.rounds.cached_code);
    tile += traffic.load_code * p.rounds.loads;
    copies = placed + (resident ? placed : 0) + (last ? 1 : 0);
    again = t.elements * p.rounds.uncached_code * (placed + (last ? 1 : 0)) + cached * placed;
  }
  return tile * copies + again + (peel || p.row_loop ? traffic.mask_code : 0);
}

// Whether a loop over the row has the totals of blocks of tiles as well as the sums of one block.
bool sums_by_blocks(const Problem& p) {
  if (!p.f.sums) return false;
  double row = 1;
  for (size_t i = 0; i < p.f.extents.size(); ++i) {
    if (!(p.f.row_mask >> i & 1)) continue;
    if (!p.f.known[i]) return true;
    row *= static_cast<double>(p.f.extents[i]);
  }
  return row > static_cast<double>(kFoldBlock * (p.rows.folds ? p.s.tile.rows : p.s.tile.columns));
}

// The resources of a thread, and the blocks that a multiprocessor has room for.
struct Occupancy {
  double registers = 32; // of a thread, that it needs not to spill
  double most = 255;     // that it may have
  double taken = 32;     // that the assembler gives it
  double resident = 1;   // blocks
};

// The occupancy by blocks whose threads need so many registers, and which have so much shared memory in bytes.
Occupancy occupancy(const Problem& p, double registers, double shared) {
  const Target& device = p.device;
  Occupancy out;
  out.registers = std::clamp(registers, 16.0, 1000.0);
  const auto file = static_cast<double>(device.registers), threads = static_cast<double>(device.resident_threads);
  const double min_threads = static_cast<double>(p.threads) * std::max(1, p.s.access.min_blocks);
  out.most = std::min(static_cast<double>(device.thread_registers), std::floor(file / min_threads / 8) * 8);
  out.taken = std::min(out.registers + p.m.registers_free * std::max(0.0, out.most - out.registers), out.most);
  const double taken = std::min(std::ceil(out.taken / 8) * 8, out.most);
  shared += static_cast<double>(BlockFacts::kExchangeBytes + device.reserved_shared_bytes);
  const double room = static_cast<double>(device.shared_bytes + device.reserved_shared_bytes);
  out.resident = std::max(1.0, std::min({std::floor(file / (p.threads * taken)), std::floor(threads / p.threads),
                                         static_cast<double>(device.resident_blocks), std::floor(room / shared)}));
  return out;
}

Occupancy occupancy(const Problem& p, const ThreadTile& t, const Traffic& traffic) {
  const Schedule& s = p.s;
  const CostModel& m = p.m;
  const double words = traffic.loaded / 4;
  const double wide = std::max(1, p.f.compute_bytes / 4); // registers of a value
  double need = m.registers + t.elements * p.f.live * wide * m.registers_live + words * m.registers_loaded +
                static_cast<double>(p.f.streams.size()) * m.registers_stream + t.rows * m.registers_row;
  if (s.traversal.loop) need += m.registers_loop + (s.traversal.num_stages > 1 ? words * m.registers_prefetched : 0);
  if (s.access.alignment_peel > 1) need += m.registers_peel + t.elements * m.registers_mask;
  if (p.f.reduces && s.traversal.loop) {
    const double accumulators = t.elements / s.traversal.fold_steps * p.f.accumulators * wide;
    need += accumulators / s.tile.contiguous * m.registers_fold;
    if (sums_by_blocks(p)) need += accumulators;
  }
  if (p.f.reduces && !s.traversal.loop && p.rows.folds) need += t.columns * p.f.accumulators * wide * m.registers_fold;
  need += m.registers_unknown * static_cast<double>(std::count(p.f.known.begin(), p.f.known.end(), 0));
  if (s.residency.cached_tiles > 0) need += t.elements * wide * m.registers_resident;
  const double elements = static_cast<double>(s.tile.rows) * s.tile.columns;
  double shared = s.residency.cached_tiles * elements * p.rounds.kept_bytes;
  if (s.traversal.rows_in_flight > 1) shared += s.traversal.rows_in_flight * traffic.loaded * p.threads;
  if (traffic.exchanged > 0) shared += elements * 4;
  return occupancy(p, need, shared);
}

// Time of a block that has the multiprocessor to itself, its threads computing one instruction after another.
double chain(const Problem& p, const ThreadTile& t, const Grid& g, const Traffic& traffic) {
  const Schedule& s = p.s;
  const CostModel& m = p.m;
  const double loop_us = m.loop * p.device.memory_latency_us;
  double us = m.chain * p.device.memory_latency_us + m.element * (m.setup + traffic.slots);
  const double warps = std::max(1.0, t.across / 32), sharing = std::max(1.0, p.threads / t.across);
  const double barrier = p.columns.folds ? m.barrier * std::log2(warps)
                         : p.rows.folds  ? m.barrier * std::log2(sharing)
                                         : 0;
  const double folds = p.f.reduces ? std::max(1, p.rounds.folds) : 0;
  us += folds * (m.fold + barrier);
  if (traffic.exchanged > 0) us += m.exchange;
  const double later = g.tiles - 1, tile = m.element * traffic.slots;
  if (s.residency.async_copy) {
    us += (g.tiles * g.loops - 1) * (loop_us * m.async_tile + tile);
  } else {
    us += later * (loop_us * (s.traversal.num_stages > 1 ? m.prefetched : 1) + tile);
    us += (g.loops - 1) * g.tiles *
          (loop_us * (g.resident_part * m.shared_tile + (1 - g.resident_part) * m.again) + tile);
  }
  us += (s.traversal.rows_in_flight - 1) * (loop_us * m.shared_tile + tile);
  if (p.cooperative) {
    const double places = p.rows.folds ? p.blocks_per_row * s.tile.columns / p.threads : 0;
    us += p.rounds.read ? folds * (m.grid_barrier * p.device.grid_barrier_us + m.waiting_block * p.blocks_per_row +
                                   m.partial_result * places)
                        : m.last + m.waiting_block * p.blocks_per_row + m.partial_result * places;
  }
  return us;
}

// Part of the registers that are expected to be spilled to memory: of a need that is normally distributed about the
// predicted one, what lies beyond those that a thread may have.
double missing_registers(const CostModel& m, const Occupancy& o) {
  const double deviation = std::max(1e-3, m.registers_error) * o.registers, beyond = o.registers - o.most;
  const double z = beyond / deviation;
  const double density = std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi);
  return (deviation * density + beyond * std::erfc(-z / std::numbers::sqrt2) / 2) / o.most;
}

// `code`: instructions of the kernel. `chain_us`: time of a block that has the multiprocessor to itself.
Cost total(const Problem& p, const Grid& g, const Traffic& traffic, const Occupancy& o, double code, double chain_us) {
  const Schedule& s = p.s;
  const CostModel& m = p.m;
  const Target& device = p.device;
  const double processors = std::max(1, device.multiprocessors), blocks = g.blocks;
  auto busiest = [&](double places) {
    const double waves = blocks / places;
    return waves <= 1 ? 1 : waves + m.tail * (std::ceil(waves) - waves);
  };
  const double most = busiest(processors); // blocks of the busiest multiprocessor
  const double all_tiles = g.tiles * s.traversal.rows_in_flight * g.loops;
  Cost cost;
  cost.blocks = blocks;
  cost.resident = o.resident;
  cost.registers = o.registers;
  cost.most = o.most;
  cost.taken = o.taken;
  cost.code = code;
  cost.launch = device.kernel_us;
  // The data that concurrent blocks have read is in the level-2 cache when they read it again, as far as it fits.
  const double footprint = std::min(1.0, processors * o.resident / blocks) * traffic.reread / std::max(1, g.loops - 1);
  // A loop that runs back finds the tiles there that were read last; one that begins anew finds all of them, or none.
  const bool back = s.traversal.serpentine || s.traversal.num_stages > 1;
  const double lost = traffic.reread <= 0 ? 0
                      : back              ? std::clamp(1 - p.level2 / std::max(1.0, footprint), 0.0, 1.0)
                                          : std::clamp(footprint / p.level2 - 1, 0.0, 1.0);
  cost.bytes = traffic.bytes + traffic.reread * lost;
  cost.again = traffic.again + traffic.reread * (1 - lost);
  const double bandwidth = m.bandwidth * device.memory_peak_bytes_per_us;
  const double alone = m.alone * bandwidth / std::max(1, device.multiprocessors);
  const double dram = std::max(cost.bytes / bandwidth, most * cost.bytes / blocks / alone);
  cost.memory = std::hypot(dram, (cost.bytes + cost.again) / (m.cache * device.l2_bytes_per_us));
  cost.latency = busiest(processors * o.resident) * chain_us;
  const double folds = p.f.reduces && s.tile.taps == 0 ? std::max(1, p.rounds.folds) * m.shuffle : 0;
  cost.issue =
      most * s.tile.warps * (traffic.slots * all_tiles + m.setup + folds) / (device.schedulers * device.clock_mhz);
  cost.shared = most * p.threads * traffic.cycles * all_tiles / device.clock_mhz;
  const double others =
      std::max(0.0, std::min(o.resident, blocks / processors) - 1) + (s.traversal.num_stages > 1 ? m.prefetch : 0);
  const double e = 1 + m.q * others / (others + m.overlap);
  double sum = 0;
  for (double t : {cost.memory, cost.latency, cost.issue, cost.shared, blocks * device.block_us}) sum += std::pow(t, e);
  // Code beyond the instruction cache, as a part of it: each warp fetches it again from the level-2 cache.
  const double fetched =
      std::max(0.0, code * kInstructionBytes / static_cast<double>(device.instruction_cache_bytes) - 1);
  cost.us = device.kernel_us + std::pow(sum, 1 / e) * (1 + m.spill * missing_registers(m, o) + m.code * fetched);
  return cost;
}

// A thread folds the taps of its results one after another; nothing is exchanged.
Cost window_cost(const Problem& p) {
  const SizedFacts& f = p.f;
  const Schedule& s = p.s;
  const auto t = f.window ? f.window->thread(s.tile.outputs, s.tile.outer_outputs, s.tile.columns) : std::nullopt;
  if (!t) return total(p, {}, {}, {}, 0, 0);
  Grid g;
  for (size_t i = 0; i < f.extents.size(); ++i) {
    if (f.row_mask >> i & 1) continue;
    auto along = [&](int axis, int results) { return static_cast<int>(i) == axis ? results : 1; };
    const int results = along(s.placement.window_axis, s.tile.outputs) *
                        along(s.placement.outer_window_axis, s.tile.outer_outputs) *
                        along(s.placement.split_axis, s.tile.columns);
    g.blocks *= std::ceil(static_cast<double>(f.extents[i]) / results);
  }
  g.blocks = std::ceil(g.blocks / s.tile.rows);
  Traffic traffic;
  traffic.slots = t->operations * p.m.tap;
  traffic.cycles = t->loads * std::clamp(32 * t->load_bytes / 128, 1.0, 32.0) / 32;
  double read = 0;
  for (const SizedStream& stream : f.streams) {
    double n = stream.bytes;
    for (size_t i = 0; i < f.extents.size(); ++i)
      if ((stream.deps & ~f.row_mask) >> i & 1) n *= static_cast<double>(f.extents[i]);
    traffic.bytes += n;
    if (!stream.store) read += n;
  }
  traffic.again = std::max(0.0, g.blocks * p.threads * t->loads * t->load_bytes / 4 - read);
  const double registers = p.m.registers + t->registers + static_cast<double>(f.streams.size()) * p.m.registers_stream;
  const double chain_us = t->operations * p.m.tap_chain / p.device.clock_mhz +
                          std::max(static_cast<double>(t->loop_iterations), t->operations / kBetweenWaits) *
                              (p.device.l2_latency_us + p.device.memory_latency_us) / 2;
  return total(p, g, traffic, occupancy(p, registers, 0), t->operations / static_cast<double>(t->loop_iterations),
               chain_us);
}

Cost block_cost(const Problem& p) {
  if (p.s.tile.taps > 0) return window_cost(p);
  const ThreadTile t = thread_tile(p);
  const Grid g = grid(p);
  const Traffic moved = traffic(p, t, g);
  return total(p, g, moved, occupancy(p, t, moved), code(p, t, g, moved), chain(p, t, g, moved));
}

} // namespace

Cost cost(const SizedFacts& facts, const Schedule& schedule, int64_t blocks_per_row, const Target& device,
          const CostModel& model) {
  if (!device.is_gpu()) return host_cost(facts, schedule, device);
  if (schedule.kind == ScheduleKind::BlockContraction) return contraction_cost(facts, schedule, device);
  return block_cost({facts, schedule, blocks_per_row, device, model});
}

PredictedTime Cost::predicted() const {
  return {us,
          {{"memory", memory},
           {"latency", latency},
           {"instructions", issue},
           {"shared memory", shared},
           {"launch", launch}}};
}

} // namespace tessera
