#include "codegen/schedule/cost.h"
#include "codegen/schedule/host_cost.h"
#include "codegen/schedule/online.h"
#include "codegen/schedule/stages.h"
#include <algorithm>
#include <array>
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
constexpr double kWideCode = 6;       // times the code of an elementary function of f32: the same in f64
constexpr int kElementary = 8;        // ScalarInfo::cost of functions that are made of many instructions

// Counted instructions of the code of a scalar operator.
double code_of(const ScalarNode& node) {
  const int cost = std::max(0, info(node.op).cost);
  return cost >= kElementary && node.dtype == DType::F64 ? cost * kWideCode : cost;
}

// Steps of an access along all axes as numbers.
Result<SizedStream> sized_stream(const BlockFacts& f, const Stream& s, const CallSizes& sizes,
                                 const std::vector<int64_t>& extents) {
  SizedStream out;
  out.bytes = s.bytes;
  out.store = s.store;
  out.deps = s.deps;
  out.step.resize(extents.size());
  for (const auto& [value, stride] : s.access->terms) {
    out.unknown |= f.d.deps[static_cast<size_t>(value)];
    const auto step = stride.eval(sizes);
    out.data_step = std::gcd(out.data_step, step.ok() ? *step : 1);
  }
  SymExpr rest = s.access->offset;
  for (size_t i = 0; i < extents.size(); ++i) {
    if (!(s.deps >> i & 1)) continue;
    out.count *= static_cast<double>(extents[i]);
    auto linear = rest.linear_in(f.d.axes[i].var);
    auto step = linear ? linear->first.eval(sizes) : Result<int64_t>(Diagnostic(ErrorCode::Usage, ""));
    if (!step.ok()) {
      out.unknown |= uint64_t{1} << i;
      rest = rest.substitute({{f.d.axes[i].var.symbol_id(), 0}});
      continue;
    }
    out.step[i] = *step;
    rest = linear->second;
  }
  if (auto start = rest.eval(sizes); start.ok()) out.start = *start;
  return out;
}

// Whether two loads of one buffer meet the same elements: one is the other, shifted along an axis by less than it.
bool overlap(const SizedStream& a, const SizedStream& b, const std::vector<int64_t>& extents) {
  if (a.store || b.store || !a.affine() || !b.affine() || a.step != b.step) return false;
  const int64_t shift = std::abs(a.start - b.start);
  if (shift == 0) return true;
  for (size_t i = 0; i < extents.size(); ++i) {
    const int64_t step = std::abs(a.step[i]);
    if (step > 0 && shift % step == 0 && shift / step < extents[i]) return true;
  }
  return false;
}

// A dimension of the tile, or the points of the grid, with the axes that lie along it.
struct Side {
  double extent = 1;         // positions
  uint64_t axes = 0;         // of the domain, as bits
  std::vector<size_t> order; // the same, the fastest one last
  bool folds = false;        // they are the row's
  int64_t part = 1;          // the last axis has only its remainder by it here, or, negative, the quotient
  [[nodiscard]] int inner() const { return order.empty() ? -1 : static_cast<int>(order.back()); }
};

class Predictor {
public:
  Predictor(const SizedFacts& f, const Schedule& s, int64_t blocks_per_row, const Target& device, const CostModel& m)
      : f_(f), p_(s), m_(m), device_(device), members_(static_cast<double>(std::max<int64_t>(1, blocks_per_row))),
        groups_(axis_groups(s.placement, f.extents.size(), f.column, f.row_mask)), points_(side(groups_.points)),
        rows_(side(groups_.rows)), columns_(side(groups_.columns)), threads_(32 * s.tile.warps),
        team_(s.kind == ScheduleKind::BlockTeam), walks_(s.traversal.loop || team_),
        online_(!walks_ || s.traversal.online) {}

  Cost run() {
    if (p_.tile.taps > 0) {
      window();
      return total();
    }
    threads_of_tile();
    grid();
    traffic();
    code();
    registers();
    chain();
    return total();
  }

private:
  [[nodiscard]] Side side(const std::vector<size_t>& axes) const {
    Side s;
    const auto split = static_cast<size_t>(std::max(0, p_.placement.split_axis));
    for (size_t a : axes) {
      size_t axis = p_.placement.split_axis >= 0 && a > split ? a - 1 : a;
      auto n = static_cast<double>(f_.extents[axis]);
      if (p_.placement.split_axis >= 0 && axis == split) {
        s.part = a == split ? -p_.tile.columns : p_.tile.columns;
        n = a == split ? std::ceil(n / p_.tile.columns) : p_.tile.columns;
      }
      s.extent *= n;
      s.axes |= uint64_t{1} << axis;
      s.order.push_back(axis);
    }
    s.folds = f_.reduces && s.axes != 0 && (s.axes & f_.row_mask) == s.axes;
    return s;
  }
  // Whether an access meets the axes of a side as one contiguous segment, or as one number at least.
  [[nodiscard]] static bool one_number(const SizedStream& s, const Side& side, const std::vector<int64_t>& extents) {
    if (s.unknown & side.axes) return false;
    for (size_t i = 0; i + 1 < side.order.size(); ++i)
      if (s.step[side.order[i]] != s.step[side.order[i + 1]] * extents[side.order[i + 1]]) return false;
    return true;
  }

  void threads_of_tile() {
    const double all = static_cast<double>(p_.tile.rows) * p_.tile.columns;
    each_ = std::max(1.0, all / threads_);
    const double wide = f_.reduces && walks_ ? (columns_.folds ? p_.tile.contiguous : static_cast<double>(f_.vector))
                                             : static_cast<double>(f_.vector);
    const double vt = std::clamp(wide, 1.0, std::max(1.0, std::min<double>(p_.tile.columns, each_)));
    across_ = std::clamp(p_.tile.columns / vt, 1.0, static_cast<double>(threads_));
    each_columns_ = p_.tile.columns / across_;
    each_rows_ = std::max(1.0, p_.tile.rows / (threads_ / across_));
    access_ = vt;
    // Of a row that stands in the tile the accesses beyond its end do not exist.
    if (columns_.folds && !walks_) {
      const double accesses = std::ceil((columns_.extent + p_.access.alignment_peel - 1) / (across_ * vt));
      each_columns_ = std::min(each_columns_, accesses * vt);
    }
    if (rows_.folds && !walks_)
      each_rows_ = std::min(each_rows_, std::max(1.0, std::ceil(rows_.extent * across_ / threads_)));
    each_ = each_rows_ * each_columns_;
  }

  void grid() {
    cost_.blocks = points_.extent;
    tiles_ = 1;
    const double row = std::ceil(rows_.extent / (static_cast<double>(p_.tile.rows) * p_.traversal.rows_in_flight));
    const double column = std::ceil(
        (columns_.extent + (p_.access.alignment_peel > 1 ? p_.access.alignment_peel - 1 : 0)) / p_.tile.columns);
    (rows_.folds ? tiles_ : cost_.blocks) *= row;
    (columns_.folds ? tiles_ : cost_.blocks) *= column;
    cost_.blocks *= members_;
    if (members_ > 1) tiles_ = std::ceil(tiles_ / members_);
    rounds_ = f_.rounds[online_ ? 1 : 0];
    loops_ = p_.traversal.loop ? std::max(1, rounds_.rounds) : 1;
    resident_part_ = 1;
    if (loops_ > 1) {
      const double kept = columns_.folds
                              ? (team_ || p_.residency.cached_tiles > 0 ? p_.residency.cached_tiles + 1.0 : 0.0)
                              : p_.residency.cached_tiles;
      resident_part_ = std::min(1.0, kept / tiles_);
    }
  }

  // Issue slots and cycles of shared memory of one thread for one tile, and what memory moves for all of them.
  void traffic() {
    const double blocks_tiles = cost_.blocks * tiles_ * p_.traversal.rows_in_flight;
    double read = 0;
    for (const SizedStream& s : f_.streams) {
      const bool down = (s.deps & rows_.axes) != 0, along = (s.deps & columns_.axes) != 0;
      const double elements = (down ? each_rows_ : 1) * (along ? each_columns_ : 1);
      double width = 1, segment = s.bytes, extra = 0, step = 1;
      const int inner = columns_.inner(), inner_row = rows_.inner();
      const double column_step = along && inner >= 0 && s.affine(static_cast<size_t>(inner)) ? step_of(s, inner) : 0;
      const double row_step = down && inner_row >= 0 && s.affine(static_cast<size_t>(inner_row)) && rows_.part == 1
                                  ? step_of(s, inner_row)
                                  : 0;
      const bool unit = column_step == 1, unit_rows = !unit && row_step == 1;
      double apart = 128; // bytes from one lane's access to the next one's
      bool next_far = false;
      if (unit) {
        const bool whole = one_number(s, columns_, f_.extents);
        const auto inner_extent = static_cast<double>(f_.extents[static_cast<size_t>(inner)]);
        const double run = columns_.part > 1 ? rows_run(s) : whole ? columns_.extent : inner_extent;
        segment = s.bytes * (columns_.part > 1 ? run : std::min<double>(p_.tile.columns, run));
        if (columns_.part <= 1 && p_.tile.rows > 1 && down && p_.tile.columns >= columns_.extent && whole &&
            rows_follow(s))
          segment = s.bytes * std::min<double>(p_.tile.rows, rows_.extent) * columns_.extent;
        width = std::min<double>(whole || columns_.part > 1 ? aligned(s) : 1, std::max(1.0, access_));
        if (p_.access.alignment_peel > 1 && !in_step(s)) {
          const bool windows = p_.traversal.loop || team_ || p_.access.staged;
          width = windows ? access_ : 1;
          extra = windows ? m_.split_access : 0;
        }
        apart = width * s.bytes;
        next_far = p_.placement.rows_fastest && far(rows_.extent / p_.tile.rows);
        if (s.store && aligned(s) * s.bytes < 32)
          cost_.again += s.count * s.bytes * 2 * m_.partial / std::max(1.0, std::min(segment, 32 * apart));
      } else if (unit_rows) {
        segment = s.bytes * std::min<double>(p_.tile.rows, rows_.extent);
        width = p_.access.staged ? 16.0 / s.bytes : std::min<double>(aligned(s), 16.0 / s.bytes);
        apart = width * s.bytes;
        exchanged_ += elements;
        next_far = !p_.placement.rows_fastest && far(columns_.extent / p_.tile.columns);
      } else if (column_step > 0 || row_step > 0) {
        step = column_step > 0 ? column_step : row_step;
        const double lanes = column_step > 0 ? std::min<double>(p_.tile.columns, columns_.extent)
                                             : std::min<double>(p_.tile.rows, rows_.extent);
        segment = step * s.bytes <= 128 ? lanes * step * s.bytes : 32;
        apart = std::min(128.0, step * s.bytes);
      } else if (along && inner >= 0 && s.affine(static_cast<size_t>(inner))) { // constant along the fastest axis
        width = std::max(1.0, access_);
        apart = 0;
        segment = 128;
      } else if (!along) {
        apart = 0;
        segment = 128;
      }
      const double accesses = elements / std::max(1.0, width);
      slots_ += accesses * (m_.access + extra) + (s.bytes < 4 ? elements * m_.convert : 0);
      const double code = accesses * kAccessCode + (s.bytes < 4 ? elements : 0);
      access_code_ += code;
      if (!s.store) load_code_ = std::max(load_code_, code);
      mask_code_ += elements * kMaskCode;
      cycles_ += accesses * std::clamp(32 * apart / 128, 1.0, 32.0) / 32;
      const double wasted = std::clamp(step, 1.0, std::max(1.0, 32.0 / s.bytes));
      double moved = s.count * s.bytes * wasted * (1 + m_.segment / std::max(1.0, segment));
      if (next_far) { // each end of a segment that begins within a burst takes all of it
        const double ends = aligned(s) * s.bytes < kBurst || segment < kBurst ? kBurst : 0;
        moved *= std::max(1.0, (std::ceil(segment / kBurst) * kBurst + ends) / segment);
      }
      if (!s.store && p_.access.load_hint == tile::Caching::Normal) moved *= 1 + m_.unhinted;
      if (s.shared) { // the first of them has it from memory
        cost_.again += s.count * s.bytes;
        if (along || down) loaded_ += static_cast<double>(s.bytes) * elements;
        continue;
      }
      cost_.bytes += moved;
      if (s.store) continue;
      read += moved;
      // What several blocks read, the level-2 cache yields to each of them.
      const double each_block = (down ? std::min<double>(p_.tile.rows, rows_.extent) : 1.0) *
                                (along ? std::min<double>(p_.tile.columns, columns_.extent) : 1.0);
      if (s.affine()) cost_.again += std::max(0.0, blocks_tiles * each_block * s.bytes - s.count * s.bytes);
      if (along || down) loaded_ += static_cast<double>(s.bytes) * elements;
    }
    reread_ = (loops_ - 1) * read * (1 - resident_part_);
    slots_ += exchanged_ * 2;
    cycles_ += exchanged_ / 16;
    for (const SizedFacts::Work& w : f_.work) {
      const double n = ((w.deps & rows_.axes) ? each_rows_ : 1) * ((w.deps & columns_.axes) ? each_columns_ : 1);
      slots_ += n * (w.simple * m_.simple + w.elementary * m_.elementary);
    }
    if (f_.reduces) slots_ += each_ * f_.accumulators * m_.simple;
    slots_ +=
        index_slots(rows_, p_.tile.rows > 1 ? each_rows_ : 0) +
        index_slots(columns_, p_.tile.columns > 1
                                  ? each_columns_ / (p_.tile.contiguous > 1 && !f_.reduces ? p_.tile.contiguous : 1)
                                  : 0);
  }
  // Code of the kernel. A tile is written out, its loops are not, and each of these parts has a copy of all rounds:
  // tiles with masks, tiles without; those that are resident, others, and the last one (lower/block_share.cpp).
  void code() {
    double tile = access_code_;
    for (const SizedFacts::Work& w : f_.work) tile += tile_elements(w.deps) * w.code;
    const bool peel = p_.access.alignment_peel > 1;
    double copies = p_.traversal.unmasked_branch ? 2 : 1, again = 0;
    if (walks_) {
      const double placed = peel ? 2 : 1;
      const bool resident = p_.residency.cached_tiles > 0 && loops_ > 1;
      const bool last = team_ || resident || p_.traversal.num_stages > 1;
      // Asynchronous copies keep what is loaded, not what is computed of it.
      const double cached =
          !resident ? 0 : each_ * (p_.residency.async_copy ? rounds_.uncached_code : rounds_.cached_code);
      tile += load_code_ * rounds_.loads;
      copies = placed + (resident ? placed : 0) + (last ? 1 : 0);
      again = each_ * rounds_.uncached_code * (placed + (last ? 1 : 0)) + cached * placed;
    }
    cost_.code = tile * copies + again + (peel || walks_ ? mask_code_ : 0);
  }
  [[nodiscard]] double tile_elements(uint64_t deps) const {
    return ((deps & rows_.axes) ? each_rows_ : 1) * ((deps & columns_.axes) ? each_columns_ : 1);
  }
  // Whether the level-2 cache loses what a tile has left of a line until the block comes that reads the rest of it,
  // `blocks` later.
  [[nodiscard]] bool far(double blocks) const {
    double bytes = 0;
    for (const SizedStream& s : f_.streams)
      if (s.deps & (rows_.axes | columns_.axes)) bytes += static_cast<double>(p_.tile.rows) * p_.tile.columns * s.bytes;
    return blocks * bytes > level2_;
  }
  [[nodiscard]] static double step_of(const SizedStream& s, int axis) {
    return static_cast<double>(std::abs(s.step[static_cast<size_t>(axis)]));
  }
  // Elements that follow each other from row to row of a split tile.
  [[nodiscard]] double rows_run(const SizedStream& s) const {
    double run = static_cast<double>(f_.extents[static_cast<size_t>(columns_.inner())]);
    for (size_t i = rows_.order.size(); i-- > 1;) {
      const size_t outer = rows_.order[i - 1], here = rows_.order[i];
      if (s.step[outer] != s.step[here] * f_.extents[here]) break;
      run *= static_cast<double>(f_.extents[outer]);
    }
    return std::min(run, static_cast<double>(p_.tile.rows) * p_.tile.columns);
  }
  [[nodiscard]] bool rows_follow(const SizedStream& s) const {
    const int row = rows_.inner();
    if (row < 0 || columns_.order.empty()) return false;
    const size_t first = columns_.order.front();
    return s.step[static_cast<size_t>(row)] == s.step[first] * f_.extents[first] && one_number(s, rows_, f_.extents);
  }
  // Elements of an access at whose multiples all rows begin, at most 16 bytes.
  [[nodiscard]] double aligned(const SizedStream& s) const {
    int64_t g = 16 / s.bytes;
    uint64_t inside = 0; // axes of the segment
    for (const Side* side : {&columns_, &rows_})
      if (side->inner() >= 0 && s.step[static_cast<size_t>(side->inner())] == 1) {
        if (one_number(s, *side, f_.extents))
          inside |= side->axes;
        else
          inside |= uint64_t{1} << side->inner();
      }
    for (size_t i = 0; i < s.step.size(); ++i)
      if ((s.deps >> i & 1) && !(inside >> i & 1)) g = std::gcd(g, s.step[i]);
    g = std::gcd(std::gcd(g, s.start), s.data_step);
    if (p_.access.alignment_peel > 1 && in_step(s)) g = 16 / s.bytes;
    return static_cast<double>(std::max<int64_t>(1, g));
  }
  // Whether rows of an access begin where those of the accesses do that the alignment is made for.
  [[nodiscard]] bool in_step(const SizedStream& s) const { return (s.deps & ~columns_.axes) != 0; }

  // Of taking positions along a side apart, for each of `count`.
  [[nodiscard]] double index_slots(const Side& side, double count) const {
    if (side.order.size() < 2 || count <= 0) return 0;
    std::set<std::pair<size_t, size_t>> parts; // of the side's axes, that an access meets as one number
    for (const SizedStream& s : f_.streams) {
      if (!(s.deps & side.axes)) continue;
      for (size_t first = 0; first < side.order.size();) {
        size_t last = first;
        while (last + 1 < side.order.size() && s.affine(side.order[last]) && s.affine(side.order[last + 1]) &&
               s.step[side.order[last]] == s.step[side.order[last + 1]] * f_.extents[side.order[last + 1]])
          ++last;
        if (s.deps >> side.order[last] & 1) parts.emplace(first, last);
        first = last + 1;
      }
    }
    double slots = 0;
    for (auto [first, last] : parts) {
      if (last + 1 < side.order.size()) slots += division(side, last + 1);
      if (first > 0) slots += division(side, first);
    }
    return slots * count;
  }
  [[nodiscard]] double division(const Side& side, size_t from) const {
    bool known = true, power = true;
    for (size_t i = from; i < side.order.size(); ++i) {
      known &= f_.known[side.order[i]] != 0;
      power &= std::has_single_bit(static_cast<uint64_t>(std::max<int64_t>(1, f_.extents[side.order[i]])));
    }
    return !known ? m_.divide : power ? m_.simple : m_.divide_constant;
  }

  void registers() {
    const double words = loaded_ / 4;
    const double wide = std::max(1, f_.compute_bytes / 4); // registers of a value
    double need = m_.registers + each_ * f_.live * wide * m_.registers_live + words * m_.registers_loaded +
                  static_cast<double>(f_.streams.size()) * m_.registers_stream + each_rows_ * m_.registers_row;
    if (p_.traversal.loop)
      need += m_.registers_loop + (p_.traversal.num_stages > 1 ? words * m_.registers_prefetched : 0);
    if (p_.access.alignment_peel > 1) need += m_.registers_peel + each_ * m_.registers_mask;
    if (f_.reduces && p_.traversal.loop) {
      const double accumulators = each_ / p_.traversal.fold_steps * f_.accumulators * wide;
      need += accumulators / p_.tile.contiguous * m_.registers_fold;
      if (sums_by_blocks()) need += accumulators;
    }
    if (f_.reduces && !p_.traversal.loop && rows_.folds)
      need += each_columns_ * f_.accumulators * wide * m_.registers_fold;
    need += m_.registers_unknown * static_cast<double>(std::count(f_.known.begin(), f_.known.end(), 0));
    if (p_.residency.cached_tiles > 0) need += each_ * wide * m_.registers_resident;
    const double elements = static_cast<double>(p_.tile.rows) * p_.tile.columns;
    double shared = p_.residency.cached_tiles * elements * rounds_.kept_bytes;
    if (p_.traversal.rows_in_flight > 1) shared += p_.traversal.rows_in_flight * loaded_ * threads_;
    if (exchanged_ > 0) shared += elements * 4;
    resident(need, shared);
  }
  // Whether a loop over the row has the totals of blocks of tiles as well as the sums of one block.
  [[nodiscard]] bool sums_by_blocks() const {
    if (!f_.sums) return false;
    double row = 1;
    for (size_t i = 0; i < f_.extents.size(); ++i) {
      if (!(f_.row_mask >> i & 1)) continue;
      if (!f_.known[i]) return true;
      row *= static_cast<double>(f_.extents[i]);
    }
    return row > static_cast<double>(kFoldBlock * (rows_.folds ? p_.tile.rows : p_.tile.columns));
  }
  // How many blocks are resident, whose threads need so many registers, and which have so much shared memory in bytes.
  void resident(double need, double shared) {
    cost_.registers = std::clamp(need, 16.0, 1000.0);
    const auto file = static_cast<double>(device_.registers), resident = static_cast<double>(device_.resident_threads);
    const double asked = static_cast<double>(threads_) * std::max(1, p_.access.min_blocks);
    cost_.most = std::min(static_cast<double>(device_.thread_registers), std::floor(file / asked / 8) * 8);
    cost_.taken =
        std::min(cost_.registers + m_.registers_free * std::max(0.0, cost_.most - cost_.registers), cost_.most);
    const double taken = std::min(std::ceil(cost_.taken / 8) * 8, cost_.most);
    shared += static_cast<double>(BlockFacts::kExchangeBytes + device_.reserved_shared_bytes);
    const double room = static_cast<double>(device_.shared_bytes + device_.reserved_shared_bytes);
    cost_.resident = std::min({std::floor(file / (threads_ * taken)), std::floor(resident / threads_),
                               static_cast<double>(device_.resident_blocks), std::floor(room / shared)});
    cost_.resident = std::max(1.0, cost_.resident);
  }

  // A thread folds the taps of its results one after another; nothing is exchanged.
  void window() {
    const auto t =
        f_.window ? f_.window->thread(p_.tile.outputs, p_.tile.outer_outputs, p_.tile.columns) : std::nullopt;
    if (!t) return;
    cost_.blocks = 1;
    for (size_t i = 0; i < f_.extents.size(); ++i) {
      if (f_.row_mask >> i & 1) continue;
      auto along = [&](bool here, int results) { return here ? results : 1; };
      const int results = along(static_cast<int>(i) == p_.placement.window_axis, p_.tile.outputs) *
                          along(static_cast<int>(i) == p_.placement.outer_window_axis, p_.tile.outer_outputs) *
                          along(static_cast<int>(i) == p_.placement.split_axis, p_.tile.columns);
      cost_.blocks *= std::ceil(static_cast<double>(f_.extents[i]) / results);
    }
    cost_.blocks = std::ceil(cost_.blocks / p_.tile.rows);
    slots_ = t->operations * m_.tap;
    cost_.code = t->operations / static_cast<double>(t->loop_iterations);
    cycles_ = t->loads * std::clamp(32 * t->load_bytes / 128, 1.0, 32.0) / 32;
    double read = 0;
    for (const SizedStream& s : f_.streams) {
      double n = s.bytes;
      for (size_t i = 0; i < f_.extents.size(); ++i)
        if ((s.deps & ~f_.row_mask) >> i & 1) n *= static_cast<double>(f_.extents[i]);
      cost_.bytes += n;
      if (!s.store) read += n;
    }
    cost_.again = std::max(0.0, cost_.blocks * threads_ * t->loads * t->load_bytes / 4 - read);
    resident(m_.registers + t->registers + static_cast<double>(f_.streams.size()) * m_.registers_stream, 0);
    chain_ = t->operations * m_.tap_chain / device_.clock_mhz +
             std::max(static_cast<double>(t->loop_iterations), t->operations / kBetweenWaits) *
                 (device_.l2_latency_us + device_.memory_latency_us) / 2;
  }

  // What a block takes that has the multiprocessor to itself, its threads computing one instruction after another.
  void chain() {
    double us = chain_us_ + m_.element * (m_.setup + slots_);
    const double warps = std::max(1.0, across_ / 32), sharing = std::max(1.0, threads_ / across_);
    const double barrier = columns_.folds ? m_.barrier * std::log2(warps)
                           : rows_.folds  ? m_.barrier * std::log2(sharing)
                                          : 0;
    const double folds = f_.reduces ? std::max(1, rounds_.folds) : 0;
    us += folds * (m_.fold + barrier);
    if (exchanged_ > 0) us += m_.exchange;
    const double later = tiles_ - 1, tile = m_.element * slots_;
    if (p_.residency.async_copy) {
      us += (tiles_ * loops_ - 1) * (loop_us_ * m_.async_tile + tile);
    } else {
      us += later * (loop_us_ * (p_.traversal.num_stages > 1 ? m_.prefetched : 1) + tile);
      us += (loops_ - 1) * tiles_ *
            (loop_us_ * (resident_part_ * m_.shared_tile + (1 - resident_part_) * m_.again) + tile);
    }
    us += (p_.traversal.rows_in_flight - 1) * (loop_us_ * m_.shared_tile + tile);
    if (team_) {
      const double places = rows_.folds ? members_ * p_.tile.columns / threads_ : 0;
      us += rounds_.read ? folds * (grid_barrier_us_ + m_.waiting_block * members_ + m_.partial_result * places)
                         : m_.last + m_.waiting_block * members_ + m_.partial_result * places;
    }
    chain_ = us;
  }

  Cost total() {
    const double processors = std::max(1, device_.multiprocessors), blocks = cost_.blocks;
    auto busiest = [&](double places) {
      const double waves = blocks / places;
      return waves <= 1 ? 1 : waves + m_.tail * (std::ceil(waves) - waves);
    };
    const double most = busiest(processors); // blocks of the busiest multiprocessor
    const double all_tiles = tiles_ * p_.traversal.rows_in_flight * loops_;
    cost_.launch = device_.kernel_us;
    // What the blocks that run at a time have read is in the level-2 cache when they read it again, as far as it fits.
    const double footprint = std::min(1.0, processors * cost_.resident / blocks) * reread_ / std::max(1, loops_ - 1);
    // A loop that runs back finds the tiles there that were read last; one that begins anew finds all of them, or none.
    const bool back = p_.traversal.serpentine || p_.traversal.num_stages > 1;
    const double lost = reread_ <= 0 ? 0
                        : back       ? std::clamp(1 - level2_ / std::max(1.0, footprint), 0.0, 1.0)
                                     : std::clamp(footprint / level2_ - 1, 0.0, 1.0);
    cost_.bytes += reread_ * lost;
    cost_.again += reread_ * (1 - lost);
    const double dram = std::max(cost_.bytes / bandwidth_, most * cost_.bytes / blocks / alone_);
    cost_.memory = std::hypot(dram, (cost_.bytes + cost_.again) / cache_);
    cost_.latency = busiest(processors * cost_.resident) * chain_;
    const double folds = f_.reduces && p_.tile.taps == 0 ? std::max(1, rounds_.folds) * m_.shuffle : 0;
    cost_.issue =
        most * p_.tile.warps * (slots_ * all_tiles + m_.setup + folds) / (device_.schedulers * device_.clock_mhz);
    cost_.shared = most * threads_ * cycles_ * all_tiles / device_.clock_mhz;
    const double others = std::max(0.0, std::min(cost_.resident, blocks / processors) - 1) +
                          (p_.traversal.num_stages > 1 ? m_.prefetch : 0);
    const double e = 1 + m_.q * others / (others + m_.overlap);
    double sum = 0;
    for (double t : {cost_.memory, cost_.latency, cost_.issue, cost_.shared, blocks * device_.block_us})
      sum += std::pow(t, e);
    cost_.us =
        device_.kernel_us + std::pow(sum, 1 / e) * (1 + m_.spill * missing_registers() + m_.code * fetched_code());
    return cost_;
  }
  // Code beyond the instruction cache, as a part of it: each warp fetches it again from the level-2 cache.
  [[nodiscard]] double fetched_code() const {
    return std::max(0.0, cost_.code * kInstructionBytes / static_cast<double>(device_.instruction_cache_bytes) - 1);
  }
  // Part of the registers that are expected to be spilled to memory: of a need that is normally distributed about the
  // predicted one, what lies beyond those that a thread may have.
  [[nodiscard]] double missing_registers() const {
    const double deviation = std::max(1e-3, m_.registers_error) * cost_.registers,
                 beyond = cost_.registers - cost_.most;
    const double z = beyond / deviation;
    const double density = std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi);
    return (deviation * density + beyond * std::erfc(-z / std::numbers::sqrt2) / 2) / cost_.most;
  }

  const SizedFacts& f_;
  const Schedule& p_;
  const CostModel& m_;
  const Target& device_;
  // Of the target, in microseconds and bytes.
  const double bandwidth_ = m_.bandwidth * device_.memory_peak_bytes_per_us,
               alone_ = m_.alone * bandwidth_ / std::max(1, device_.multiprocessors),
               cache_ = m_.cache * device_.l2_bytes_per_us, level2_ = m_.level2 * static_cast<double>(device_.l2_bytes),
               chain_us_ = m_.chain * device_.memory_latency_us, loop_us_ = m_.loop * device_.memory_latency_us,
               grid_barrier_us_ = m_.grid_barrier * device_.grid_barrier_us;
  const double members_;
  const AxisGroups groups_;
  const Side points_, rows_, columns_;
  const int threads_;       // of a block
  const bool team_, walks_; // several share a row; it is not held in the tile
  const bool online_;
  Cost cost_;
  double each_ = 1, each_rows_ = 1, each_columns_ = 1; // elements of a thread's tile; of them down and along it
  double across_ = 1;                                  // neighbouring threads along the columns
  double access_ = 1;                                  // elements of a thread that follow each other
  double tiles_ = 1;                                   // of a block, along the row
  int loops_ = 1;                                      // over them
  double reread_ = 0;                                  // bytes of all loops after the first, of what is not resident
  double resident_part_ = 1;                           // of the row, that later loops find on the multiprocessor
  double slots_ = 0, cycles_ = 0;                      // of a thread and tile
  double access_code_ = 0, load_code_ = 0;             // instructions of all accesses of a tile, of its greatest load
  double mask_code_ = 0;                               // of the masks of all elements
  double exchanged_ = 0;                               // elements of a thread that change threads
  double loaded_ = 0;                                  // bytes of a thread's loads of a tile
  double chain_ = 0;
  SizedFacts::Rounds rounds_;
};

// What rounds after the first compute, load and find kept.
void later_rounds(const LoopNest& nest, const Domain& d, const Stages& stages, SizedFacts::Rounds& r) {
  Stages uncached = stages;
  std::fill(uncached.cached.begin(), uncached.cached.end(), false);
  std::vector<char> met(d.live.size()), computed(d.live.size());
  for (size_t k = 0; k < stages.stages.size(); ++k) {
    for (ScalarId id : computed_in(nest, d, uncached, k))
      if (std::exchange(computed[static_cast<size_t>(id)], 1)) r.uncached_code += code_of(nest.dag[id]);
    std::set<ScalarId> kept;
    auto use = [&](ScalarId id) {
      const auto i = static_cast<size_t>(id);
      if (id >= 0 && stages.cached[i] && d.stage[i] < static_cast<int>(k)) kept.insert(id);
    };
    for (ScalarId id : computed_in(nest, d, stages, k)) {
      for (ScalarId a : nest.dag[id].args) use(a);
      if (!std::exchange(met[static_cast<size_t>(id)], 1)) continue;
      if (nest.dag[id].op == ScalarOp::Load) ++r.loads;
      r.again += std::max(0, info(nest.dag[id].op).cost);
      r.cached_code += code_of(nest.dag[id]);
    }
    for (ScalarId fold : stages.stages[k].reduces) use(nest.dag[fold].args[0]);
    for (size_t store : stages.stages[k].stores) use(nest.stores[store].scalar);
    for (ScalarId id : kept) {
      ++r.kept_reads;
      r.kept_read_bytes += info(nest.dag[id].dtype).bits / 8;
    }
  }
}

} // namespace

Result<SizedFacts> sized_facts(const BlockFacts& facts, const CallSizes& sizes) {
  SizedFacts f;
  for (size_t i = 0; i < facts.d.axes.size(); ++i) {
    TESSERA_ASSIGN(int64_t n, facts.extent(i).eval(sizes));
    f.extents.push_back(std::max<int64_t>(1, n));
    f.known.push_back(facts.constant(facts.extent(i)).has_value());
    f.points *= static_cast<double>(f.extents.back());
  }
  for (const Stream& s : facts.streams) {
    TESSERA_ASSIGN(SizedStream stream, sized_stream(facts, s, sizes, f.extents));
    for (size_t n = 0; n < f.streams.size() && !stream.shared; ++n)
      stream.shared = facts.streams[n].access->buffer == s.access->buffer && overlap(f.streams[n], stream, f.extents);
    f.streams.push_back(std::move(stream));
  }
  std::map<uint64_t, SizedFacts::Work> work;
  for (size_t n = 0; n < facts.d.live.size(); ++n) {
    if (!facts.d.live[n]) continue;
    const int slots = std::max(0, info(facts.nest.dag[static_cast<ScalarId>(n)].op).cost);
    SizedFacts::Work& w = work[facts.d.deps[n]];
    w.deps = facts.d.deps[n];
    (slots >= kElementary ? w.elementary : w.simple) += slots;
    w.code += code_of(facts.nest.dag[static_cast<ScalarId>(n)]);
  }
  for (const auto& [deps, w] : work) f.work.push_back(w);
  f.row_mask = facts.d.row_mask;
  f.reduces = facts.d.reduces;
  for (size_t n = 0; n < facts.d.live.size(); ++n) {
    const ScalarNode& node = facts.nest.dag[static_cast<ScalarId>(n)];
    f.sums = f.sums ||
             (facts.d.live[n] && node.op == ScalarOp::Reduce && node.reduce == ReduceKind::Sum && is_float(node.dtype));
  }
  f.live = facts.live;
  f.compute_bytes = facts.compute_bytes();
  f.accumulators = facts.accumulators();
  f.vector = facts.vector;
  f.column = facts.contiguous_axis;
  if (auto window = WindowFacts::find(facts)) f.window = std::make_shared<const WindowFacts>(std::move(*window));
  if (f.reduces)
    for (const bool online : {false, true}) {
      Domain d = facts.d;
      if (online) static_cast<void>(find_online(facts.nest, d));
      SizedFacts::Rounds& r = f.rounds[online ? 1 : 0];
      const Stages stages = plan_stages(facts.nest, d);
      r = {0, 0, static_cast<int>(facts.cached_element_bytes(online)), stages.folds_are_read()};
      for (const Stage& s : stages.stages) {
        r.rounds += !s.reduces.empty() || !s.stores.empty();
        r.folds += !s.reduces.empty();
      }
      later_rounds(facts.nest, d, stages, r);
      r.rounds = std::max(1, r.rounds);
    }
  return f;
}

Cost cost(const SizedFacts& facts, const Schedule& schedule, int64_t blocks_per_row, const Target& device,
          const CostModel& model) {
  if (!device.is_gpu()) return host_cost(facts, schedule, device);
  return Predictor(facts, schedule, blocks_per_row, device, model).run();
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
