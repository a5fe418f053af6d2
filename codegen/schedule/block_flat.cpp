// Nests without reductions: one tile a program, placed so that the least is spent on indices. Transposes stand in
// block_transpose.cpp.
#include "codegen/schedule/block_facts.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

namespace tessera {
namespace {

constexpr int kSharingThreads = 128;    // where threads share operands
constexpr int kFlatThreads = 256;       // one access a thread and stream, many blocks
constexpr int64_t kUnknownColumns = 64; // of a tile across an inner extent that is not known
// Issue slots of a thread: an access, whatever its width, and taking a number apart by one that is not known, is a
// constant, or a power of two.
constexpr double kAccess = 4, kDivision = 25, kConstantDivision = 6, kShift = 1;
constexpr double kPartialStore = 8; // of one element of less than 4 bytes: the L2 takes parts of sectors, half as fast
constexpr double kNearAccess = 2, kStep = 2; // of what the L1 has; from one position of a run to the next
constexpr int kIndexRegisters = 6;           // of an element's position in memory and what it is computed of
constexpr int64_t kSharing = 2;              // positions of a thread that share an operand
constexpr double kNearBytes = 65536;         // of an operand that the L1 may keep
constexpr double kLargePart = 0.4;           // of what an element moves: reading it less often is worth larger tiles
constexpr double kMostWaste = 1.1;           // positions of a tile over those that there are
// Bytes that a piece of a row costs beside its own, and a part of those by which it may begin within a line.
constexpr double kPiece = 20, kWithinLine = 0.1, kLongPiece = 0.01; // a part that is nothing
constexpr double kMuchWork = 16;                                    // issue slots of an element
constexpr double kIdle = 8; // an element of a tile that is not there: threads that wait in vain

class FlatPlanner {
public:
  explicit FlatPlanner(const BlockFacts& facts) : f_(facts) {}

  std::vector<BlockPlan> run() {
    SymExpr all = f_.points(AxisRole::Outer);
    size_t c = static_cast<size_t>(f_.contiguous_axis);
    if (!transpose_plans(f_, plans_)) along(c, all);
    return std::move(plans_);
  }

private:
  void along(size_t c, const SymExpr& all) {
    // As many elements a thread as one access has, unless their values would not fit its registers.
    vector_ = f_.vector;
    while (vector_ > 1 && vector_ * f_.live > 2 * kRegisters) vector_ /= 2;
    // Positions that are computed for each element are as many 64-bit numbers. Vectors of bytes give way to them.
    int64_t computed =
        std::count_if(f_.streams.begin(), f_.streams.end(), [](const Stream& s) { return !s.access->terms.empty(); });
    while (vector_ > 8 && vector_ * (f_.live + kIndexRegisters * computed) > 2 * kRegisters) vector_ /= 2;
    // Few elements are spread over all multiprocessors by smaller blocks, before they are by narrower accesses.
    if (auto n = f_.seen(all)) {
      auto blocks = [&] { return *n / (threads_ * vector_); };
      while (threads_ > 128 && blocks() < 4 * f_.device.multiprocessors) threads_ /= 2;
      while (threads_ > 32 && blocks() < 2 * f_.device.multiprocessors) threads_ /= 2;
      // Where most of the GPU is idle a thread's own time counts: half of a wide access.
      if (threads_ == 32 && vector_ > 4 && 2 * blocks() < f_.device.multiprocessors) vector_ /= 2;
    }
    for (size_t i = 0; i < f_.d.axes.size(); ++i)
      if (i != c) order_.push_back(i);
    order_.push_back(c);
    for (size_t n = 0; n < f_.d.live.size(); ++n) {
      if (!f_.d.live[n]) continue;
      const int cost = std::max(0, info(f_.nest.dag[static_cast<ScalarId>(n)].op).cost);
      work_ += cost;
      if (f_.d.deps[n] != 0 && !(f_.d.deps[n] >> c & 1)) row_work_ += cost;
    }
    for (const Stream& s : f_.streams)
      memory_ += s.bytes / f_.device.bytes_per_instruction() * s.count / std::max(1.0, f_.guess(all));

    // Where a thread computes much on one stream, two accesses of it are under way.
    const auto loads = std::count_if(f_.streams.begin(), f_.streams.end(),
                                     [&](const Stream& s) { return !s.store && s.count >= f_.largest / 2; });
    busy_threads_ = loads == 1 && work_ >= kMuchWork && threads_ == kFlatThreads ? threads_ / 2 : threads_;

    const bool whole = f_.multiple(f_.extent(c), f_.vector).known;
    if (share_operands(all)) return read_whole(whole);
    std::vector<Candidate> all_sizes; // ties go to the first
    if (order_.size() > 1) {
      all_sizes = in_rows();
      if (auto v = in_known_vectors()) all_sizes.push_back(std::move(*v));
    }
    all_sizes.push_back(one_run(all));
    if (auto runs = in_runs(all)) all_sizes.push_back(std::move(*runs));
    Candidate best = *std::min_element(all_sizes.begin(), all_sizes.end(),
                                       [](const Candidate& a, const Candidate& b) { return a.cost < b.cost; });
    if (order_.size() > 1)
      if (auto aligned = in_whole_vectors(); aligned && aligned->cost < best.cost) add(std::move(*aligned));
    add(std::move(best));
    read_whole(whole);
  }
  // Hints for plans whose accesses are whole ones.
  void read_whole(bool whole) {
    for (BlockPlan& p : plans_)
      if (whole) p.reads = f_.reads(false);
  }
  struct Candidate {
    BlockPlan plan;
    double slots; // for an element's accesses and indices
    double cost;  // in slots
  };
  // `work`: slots of an element beside these; `spread`: what memory moves over what it would of long pieces.
  [[nodiscard]] Candidate timed(BlockPlan p, double slots, double work, double spread = 1) const {
    return {std::move(p), slots, slots + work + memory_ * spread};
  }
  void add(Candidate c) {
    if (order_.size() > 1) {
      int tenths = static_cast<int>(c.slots * 10);
      c.plan.schedule.why += "; " + std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) +
                             " issue slots an element for accesses and indices";
    }
    plans_.push_back(std::move(c.plan));
  }

  // ---- what indices cost
  [[nodiscard]] double division(const SymExpr& by) const {
    auto n = f_.constant(by);
    return !n                                                                     ? kDivision
           : std::has_single_bit(static_cast<uint64_t>(std::max<int64_t>(1, *n))) ? kShift
                                                                                  : kConstantDivision;
  }
  // The parts [first, last] of `axes`, taken as one number, that an access sees by themselves: all of it is no part.
  using Parts = std::set<std::pair<size_t, size_t>>;
  [[nodiscard]] Parts parts(const Stream& s, const std::vector<size_t>& axes) const {
    std::vector<SymExpr> strides;
    SymExpr rest = s.access->offset;
    Parts found;
    for (size_t a : axes) {
      auto linear = rest.linear_in(f_.d.axes[a].var);
      if (!linear) break;
      strides.push_back(linear->first);
      rest = linear->second;
    }
    if (strides.size() < axes.size()) {
      for (size_t i = 0; i < axes.size(); ++i)
        if (s.deps >> axes[i] & 1) found.emplace(i, i);
      return found;
    }
    for (size_t first = 0; first < axes.size();) {
      size_t last = first;
      auto as_one = [&](size_t i) {
        return f_.d.env.simplify(strides[i] - strides[i + 1] * f_.extent(axes[i + 1])).is_const(0);
      };
      while (last + 1 < axes.size() && as_one(last)) ++last;
      if (!strides[last].is_const(0)) found.emplace(first, last);
      first = last + 1;
    }
    return found;
  }
  [[nodiscard]] double decode(const std::vector<size_t>& axes) const {
    Parts all;
    for (const Stream& s : f_.streams) all.merge(parts(s, axes));
    double cost = 0;
    for (auto [first, last] : all) {
      SymExpr below = 1, count = 1;
      for (size_t i = last + 1; i < axes.size(); ++i) below *= f_.extent(axes[i]);
      for (size_t i = first; i <= last; ++i) count *= f_.extent(axes[i]);
      if (last + 1 < axes.size()) cost += division(below);
      if (first > 0) cost += division(count);
    }
    return cost;
  }
  // Of all streams, accesses of `width` elements where they are contiguous. Those that all rows share are made once for
  // `rows` that a thread has below each other.
  [[nodiscard]] double accesses(int64_t width, double rows = 1) const {
    size_t c = order_.back();
    double cost = 0;
    for (const Stream& s : f_.streams) {
      bool wide = f_.contiguous(s, c) || !(s.deps >> c & 1);
      double own = wide && width > 1 ? kAccess / static_cast<double>(width) : single(s);
      cost += s.deps == uint64_t{1} << c ? own / rows : own;
    }
    return cost;
  }
  [[nodiscard]] static double single(const Stream& s) { return s.store && s.bytes < 4 ? kPartialStore : kAccess; }

  // ---- the ways to place the axes
  // One number for everything: what sees it as a whole is contiguous whatever the extents are.
  [[nodiscard]] Candidate one_run(const SymExpr& all) const {
    BlockPlan p = BlockFacts::plan(ScheduleKind::BlockFlat, 1, threads_ * vector_, threads_ / 32);
    p.groups.columns = order_;
    p.whole_branch = f_.d.env.divisor(all) % vector_ != 0;
    p.schedule.why = "one run of " + all.str() + "; " + BlockFacts::sizes(p);
    if (p.whole_branch) p.schedule.why += ", blocks that are whole without masks";
    if (order_.size() > 1) p.schedule.why += "; axes are taken out of it by division";
    double cost = decode(order_);
    for (const Stream& s : f_.streams) {
      Parts seen = parts(s, order_);
      bool whole =
          seen.empty() || (seen.size() == 1 && *seen.begin() == std::pair<size_t, size_t>{0, order_.size() - 1});
      cost += whole && s.access->terms.empty() ? kAccess / static_cast<double>(vector_) : single(s);
    }
    return timed(std::move(p), cost, work_);
  }

  // The same in runs of a vector, of which none meets the ends of two rows: numbers are taken apart once a run. What
  // moves with the row or the column alone is read element by element, but is near: others read it, too.
  [[nodiscard]] std::optional<Candidate> in_runs(const SymExpr& all) const {
    if (order_.size() < 2 || vector_ < 2 || f_.d.env.range(f_.extent(order_.back())).lo < vector_) return std::nullopt;
    Candidate c = one_run(all);
    c.plan.run = static_cast<int>(vector_);
    c.plan.schedule.why += ", once for " + std::to_string(vector_);
    c.slots = decode(order_) / static_cast<double>(vector_);
    for (const Stream& s : f_.streams) {
      Parts seen = parts(s, order_);
      const bool all_of_it = seen.size() == 1 && *seen.begin() == std::pair<size_t, size_t>{0, order_.size() - 1};
      if ((all_of_it || seen.empty()) && s.access->terms.empty()) {
        c.slots += kAccess / static_cast<double>(vector_);
        continue;
      }
      c.slots += s.count * 8 <= f_.largest ? kNearAccess : single(s);
      c.slots += kStep * static_cast<double>(seen.size());
      // The quotient of a quotient is no run of numbers.
      for (auto [first, last] : seen)
        if (first > 0 && last + 1 < order_.size()) c.slots += division(f_.extent(order_[first]));
    }
    return timed(std::move(c.plan), c.slots, work_);
  }

  // Rows of the tile are single accesses, so that numbers are taken apart once per access: [threads, vector]. For the
  // widest vector that is known to divide the inner extent.
  [[nodiscard]] std::optional<Candidate> in_known_vectors() const {
    for (int64_t v = vector_; v > 1; v /= 2)
      if (f_.multiple(f_.extent(order_.back()), v).known) return in_vectors_of(v);
    return std::nullopt;
  }
  [[nodiscard]] Candidate in_vectors_of(int64_t v) const {
    size_t c = order_.back();
    BlockPlan p = BlockFacts::plan(ScheduleKind::BlockFlat, threads_, v, busy_threads_ / 32);
    p.split = static_cast<int>(c);
    for (size_t i : order_) p.groups.rows.push_back(i > c ? i + 1 : i); // c itself: the number of the vector
    p.groups.columns = {c + 1};
    p.schedule.why = "runs of " + std::to_string(v) + " along an axis of " + f_.extent_text(c) + "; " +
                     BlockFacts::sizes(p) + "; other axes taken apart once a run";
    const auto width = static_cast<double>(v);
    return timed(std::move(p), accesses(v) + decode(order_) / width, work_ - row_work_ * (1 - 1 / width));
  }
  // The same for sizes where the inner extent is a multiple of the vector, when that is not known.
  [[nodiscard]] std::optional<Candidate> in_whole_vectors() const {
    Multiple m = f_.multiple(f_.extent(order_.back()), vector_);
    if (vector_ == 1 || !m.condition) return std::nullopt;
    ShapeEnv env = f_.d.env;
    assume(env, *m.condition);
    if (env.divisor(f_.extent(order_.back())) % vector_ != 0) return std::nullopt; // the condition is on a sum of sizes
    Candidate c = in_vectors_of(vector_);
    c.plan.conditions.push_back(*m.condition);
    return c;
  }

  // [R, C]: pieces of rows. Nothing is taken apart along the columns, but those beyond the row are wasted.
  [[nodiscard]] std::vector<Candidate> in_rows() const {
    size_t c = order_.back();
    auto n = f_.constant(f_.extent(c));
    if (!n && f_.multiple(f_.extent(c), vector_).known) return {}; // in vectors, without waste
    int64_t tile = threads_ * vector_;
    std::vector<int64_t> widths{kUnknownColumns};
    if (n) {
      widths.clear();
      for (int64_t w = std::min(tile, power_above(*n)); w >= std::min<int64_t>(64, power_above(*n)); w /= 2)
        widths.push_back(w);
    }
    int64_t vector = vector_; // the widest access that is known to begin at its multiples
    while (vector > 1 && !f_.multiple(f_.extent(c), vector).known) vector /= 2;
    int64_t start = f_.device.line_bytes; // rows are known to begin at its multiples, in bytes
    while (start > f_.narrow && !f_.multiple(f_.extent(c), start / f_.narrow).known) start /= 2;
    std::vector<size_t> rows(order_.begin(), order_.end() - 1);
    SymExpr others = 1;
    for (size_t i : rows) others *= f_.extent(i);
    const auto down = f_.constant(others);
    // What is wasted costs as far as the GPU is busy.
    const double busy = n && down ? std::min(1.0, static_cast<double>(*n * *down) / static_cast<double>(tile) /
                                                      static_cast<double>(f_.device.multiprocessors))
                                  : 1;
    auto covered = [](int64_t extent, int64_t by) { // over what there is
      return static_cast<double>((extent + by - 1) / by * by) / static_cast<double>(std::max<int64_t>(1, extent));
    };
    std::vector<Candidate> list;
    for (int64_t w : widths) {
      const int64_t high = std::max<int64_t>(1, tile / w);
      double waste = n ? covered(*n, w) : 1.3; // of an extent that is not known
      if (down) waste *= covered(*down, high);
      waste = 1 + (waste - 1) * busy;
      int64_t width = std::min(w, vector);
      // Elements of one row that a thread has: rows are taken apart once for them.
      double each = static_cast<double>(std::clamp<int64_t>(w / 32, width, vector_));
      // Of narrower accesses a thread has more, that as much is under way.
      const int64_t threads = vector > 1 && vector < vector_ ? std::max<int64_t>(32, threads_ / 2) : busy_threads_;
      BlockPlan p = BlockFacts::plan(ScheduleKind::BlockFlat, high, w, threads / 32);
      p.groups.rows = rows;
      p.groups.columns = {c};
      p.schedule.why = std::to_string(p.rows) + (p.rows == 1 ? " row, " : " rows, ") + std::to_string(w) + " of " +
                       f_.extent_text(c) + " columns a block; " + BlockFacts::sizes(p);
      const double within = kPiece + kWithinLine * static_cast<double>(f_.device.line_bytes - start);
      const bool all_of_it = n && w >= *n; // whose rows follow each other
      const double part = all_of_it ? 0 : within / static_cast<double>(w * f_.narrow);
      const double spread = 1 + busy * std::max(0.0, part - kLongPiece);
      const double below = std::clamp(static_cast<double>(tile / threads) / each, 1.0, static_cast<double>(high));
      const double own = waste * (accesses(width, below) + decode(rows) / each) + (waste - 1) * kIdle;
      list.push_back(timed(std::move(p), own, waste * (work_ - row_work_ * (1 - 1 / each)), spread));
    }
    return list;
  }

  // ---- operands without some outer axes
  // Tables of angles, masks of all heads: what all positions along these axes read again, and what is too large to be
  // found in the L1. Each thread has several of these positions, one below the other, and reads the operand once for
  // them. True when no other plan is needed.
  bool share_operands(const SymExpr& all) {
    uint64_t along = shared_axes();
    if (!along) return false;
    BlockPlan p = BlockFacts::plan(ScheduleKind::BlockFlat, 1, 1, 1);
    size_t first = order_.size();
    while (first > 0 && !(along >> order_[first - 1] & 1)) --first;
    while (first < order_.size() && !one_run_from(first)) ++first;
    if (first == order_.size()) return false;
    p.groups.columns.assign(order_.begin() + static_cast<int64_t>(first), order_.end());
    SymExpr rows = 1, columns = 1;
    for (size_t i = 0; i < first; ++i) {
      bool shares = along >> order_[i] & 1;
      (shares ? p.groups.rows : p.groups.points).push_back(order_[i]);
      if (shares) rows *= f_.extent(order_[i]);
    }
    for (size_t i : p.groups.columns) columns *= f_.extent(i);
    const Multiple whole = f_.multiple(columns, vector_);
    if (!whole.known && !whole.condition) return false;

    int64_t each = kSharing;
    while (each > 1 && each * vector_ * f_.live > 2 * kRegisters) each /= 2;
    auto wide = [](double n, int64_t tile) { // positions of whole tiles, of each that there is
      return std::ceil(n / static_cast<double>(tile)) * static_cast<double>(tile) / n;
    };
    const int64_t threads = std::min<int64_t>(threads_, kSharingThreads);
    int64_t width = std::min(threads * vector_, power_above(static_cast<int64_t>(f_.guess(columns))));
    while (width > 32 * vector_ && wide(f_.guess(columns), width) > kMostWaste) width /= 2;
    auto height = [&] { return std::max<int64_t>(1, each * threads * vector_ / width); };
    while (each > 1 && wide(f_.guess(rows), height()) > kMostWaste) each /= 2;
    while (each > 1 && f_.guess(all) / static_cast<double>(height() * width) < 4.0 * f_.device.multiprocessors)
      each /= 2;
    if (each == 1 || wide(f_.guess(columns), width) > kMostWaste) return false;
    p.rows = static_cast<int>(height());
    p.columns = static_cast<int>(width);
    p.warps = static_cast<int>(threads / 32);
    p.schedule.why = "operands that all " + f_.d.env.simplify(rows).str() + " rows share are read once for " +
                     std::to_string(each) + "; " + BlockFacts::sizes(p);
    if (whole.condition) p.conditions.push_back(*whole.condition);
    plans_.push_back(std::move(p));
    return whole.known;
  }
  // Outer axes, as bits, without which most bytes of an element are read; none where that is little.
  [[nodiscard]] uint64_t shared_axes() const {
    const size_t c = order_.back();
    uint64_t outer = 0, best = 0;
    for (size_t i : order_)
      if (i != c) outer |= uint64_t{1} << i;
    auto shared = [&](const Stream& s) {
      return !s.store && f_.contiguous(s, c) && s.count * s.bytes > kNearBytes && (outer & ~s.deps);
    };
    // Bytes of an element from operands that do without `axes`. What several accesses read is in the L1 after the
    // first.
    auto bytes = [&](uint64_t axes) {
      std::set<std::pair<int, uint64_t>> met;
      int sum = 0;
      for (const Stream& s : f_.streams)
        if (axes ? shared(s) && !(s.deps & axes) : (s.deps >> c & 1) != 0)
          if (met.insert({s.access->buffer, s.deps}).second) sum += s.bytes;
      return sum;
    };
    int most = 0;
    for (const Stream& s : f_.streams)
      if (shared(s) && bytes(outer & ~s.deps) > most) most = bytes(best = outer & ~s.deps);
    return most >= kLargePart * bytes(0) ? best : 0;
  }
  // Whether the axes from `first` on in order_ are one contiguous run to every access that moves with them.
  [[nodiscard]] bool one_run_from(size_t first) const {
    const std::vector<size_t> axes(order_.begin() + static_cast<int64_t>(first), order_.end());
    uint64_t bits = 0;
    for (size_t i : axes) bits |= uint64_t{1} << i;
    return std::all_of(f_.streams.begin(), f_.streams.end(), [&](const Stream& s) {
      return !(s.deps & bits) || (f_.contiguous(s, order_.back()) && parts(s, axes) == Parts{{0, axes.size() - 1}});
    });
  }

  const BlockFacts& f_;
  int64_t threads_ = kFlatThreads, vector_ = 1; // of a block; elements of an access
  int64_t busy_threads_ = kFlatThreads;         // for as many elements, of rows of whole accesses
  double work_ = 0, row_work_ = 0; // instructions for an element beside accesses; of them for what a row shares
  double memory_ = 0;              // issue slots in the time that memory moves an element's bytes
  std::vector<size_t> order_;      // all axes, the contiguous one last
  std::vector<BlockPlan> plans_;
};

} // namespace

std::vector<BlockPlan> flat_plans(const BlockFacts& facts) { return FlatPlanner(facts).run(); }

} // namespace tessera
