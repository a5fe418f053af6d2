// Scans (running sums, products and extremes) by blocks of threads: a tile [R, C] is scanned along the axis, and the last value
// of each row (or column) is carried to the next tile, which is loaded meanwhile. Sums of f32 are carried in f64: their
// error is that of one tile.
//
// Few long rows (or columns) are divided among cooperative blocks (tile/cooperation.h). Each block has consecutive
// tiles and traverses them twice: backward to fold them to one partial result, which it stores to a workspace, and,
// after a grid barrier, forward from the combined results of the blocks before it, in the order of ranks: the same bits
// in every run. The tiles read first are cached in shared memory; of the others, those read last are read again first,
// because they are the likeliest to be in L2.
//
//   tiles of a block     0 .. count - keep - 1       count - keep .. count - 1
//   backward             2. read, last one first     1. read and cached, last one first
//   forward              3. read again               4. from shared memory
#include "codegen/schedule/fold.h"
#include "codegen/schedule/own_kernels.h"
#include "codegen/schedule/shapes.h"
#include <algorithm>
#include <array>
#include <bit>
#include <limits>

namespace tessera {
namespace {

using tile::Builder;
using V = tile::ValueId;

constexpr int64_t kElements = 2048;         // elements of a tile of short rows, or of columns
constexpr int64_t kThreads = 256;           // of a block
constexpr int64_t kThreadBytes = 64;        // bytes per thread of long rows of a single block, in the accumulator dtype
constexpr int64_t kShortRows = 16;          // most rows of a tile of short rows
constexpr int64_t kManyTiles = 4;           // tiles per multiprocessor above which tiles are full
constexpr int64_t kColumns = 64;            // columns of a tile if the inner dimension is contiguous
constexpr int64_t kAccess = 16;             // bytes of a vector access
constexpr int64_t kSharedThreads = 128;     // of a block
constexpr int64_t kSharedThreadBytes = 32;  // bytes per thread of its tile, in the accumulator dtype
constexpr int64_t kSharedBlocks = 8;        // resident blocks per multiprocessor
constexpr int64_t kSizeRegisters = 72;      // that a thread of them has where sizes are not known
constexpr int64_t kSharedColumnBytes = 128; // bytes of a row of a tile
constexpr int64_t kMaxPartials = 4096;      // of cooperative blocks, read by each of them
constexpr int64_t kLongTiles = 16;          // tiles of a row of unknown size from which blocks cooperate
constexpr int64_t kFewRows = 4;             // least blocks per row in that case
constexpr double kAlone = 0.3;  // fraction of a multiprocessor's bandwidth that a single block of a scan reaches
constexpr double kCached = 0.6; // fraction of L2 that still holds lines read before
constexpr double kBarriers = 3; // grid barriers of a scan

int64_t power_at_least(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(1, n))));
}
int64_t bytes_of(DType dtype) { return std::max(1, info(dtype).bits / 8); }

class ScanPlanner {
public:
  ScanPlanner(const ShapeEnv& env, const ScanShape& shape, const Target& device)
      : env_(env), s_(shape), device_(device), rows_(shape.inner.is_const(1)),
        computed_(bytes_of(compute_dtype(shape.dtype))) {}

  // In order of preference, the last one for every size.
  std::vector<ScanPlan> run() {
    if (auto p = shared()) plans_.push_back(std::move(*p));
    plans_.push_back(alone());
    return std::move(plans_);
  }

private:
  [[nodiscard]] std::optional<int64_t> seen(const SymExpr& e) const {
    if (auto n = env_.simplify(e).as_const()) return n;
    return env_.hint(e);
  }
  // A side of the tile, at most the extent of its axis.
  [[nodiscard]] int64_t side(const SymExpr& e, int64_t most) const {
    auto n = env_.simplify(e).as_const();
    return n ? std::min(most, power_at_least(*n)) : most;
  }
  // Alignment peel of misaligned rows; without vector accesses there is none.
  [[nodiscard]] int64_t shift(int64_t height) const {
    const int64_t vector = kAccess / bytes_of(s_.dtype);
    const bool whole = vector < 2 || env_.divisor(env_.simplify(s_.n)) % vector == 0 || s_.outer.is_const(1);
    return rows_ && height == 1 && !whole && !s_.reverse ? vector : 1;
  }

  [[nodiscard]] ScanPlan alone() const {
    ScanPlan p;
    p.warps = kThreads / 32;
    const int64_t long_row = kThreads * kThreadBytes / computed_;
    if (!rows_) {
      p.width = side(s_.inner, kColumns);
      p.height = side(s_.n, kElements / p.width);
    } else if (auto n = seen(s_.n); n && *n >= long_row) {
      p.width = long_row;
    } else {
      p.width = side(s_.n, kElements / 2);
      p.height = std::min<int64_t>(kElements / p.width, side(s_.outer, kShortRows));
      // Many short rows: full tiles.
      if (auto rows = seen(s_.outer); rows && *rows * p.width >= kManyTiles * kElements * device_.multiprocessors)
        p.height = kElements / p.width;
    }
    p.shift = shift(p.height);
    return p;
  }

  // Cooperative blocks for each row, or for each group of columns.
  [[nodiscard]] std::optional<ScanPlan> shared() const {
    ScanPlan p;
    const bool known = s_.outer.as_const() && s_.n.as_const() && s_.inner.as_const();
    const int64_t fit = device_.registers / (kSharedThreads * kSizeRegisters);
    const int64_t per_processor = known ? kSharedBlocks : std::clamp<int64_t>(fit, 1, kSharedBlocks);
    p.cooperative = true;
    p.warps = kSharedThreads / 32;
    p.min_blocks = per_processor;
    const int64_t elements = kSharedThreads * kSharedThreadBytes / computed_;
    const int64_t resident = per_processor * device_.multiprocessors;
    auto blocks = [&] { return env_.simplify(s_.outer * (rows_ ? SymExpr(1) : ceildiv(s_.inner, p.width))); };
    auto most = [&] { return std::min(resident, kMaxPartials / (rows_ ? 1 : p.width)); };
    p.width = rows_ ? elements : side(s_.inner, std::min(elements, kSharedColumnBytes / bytes_of(s_.dtype)));
    if (auto n = seen(blocks()); n && !rows_)
      while (p.width * bytes_of(s_.dtype) > device_.sector_bytes && *seen(blocks()) * most() < resident) p.width /= 2;
    p.height = elements / p.width;
    const SymExpr groups = blocks(), tiles = env_.simplify(ceildiv(s_.n, rows_ ? p.width : p.height));
    // Shared memory without layout conversions and partial results of warps.
    constexpr int64_t kExchange = 1 << 10;
    const int64_t system = device_.reserved_shared_bytes;
    const int64_t room = (device_.shared_bytes + system) / per_processor - system - kExchange -
                         kSharedThreads * kSharedThreadBytes * (rows_ ? 1 : 2);
    p.keep = std::max<int64_t>(0, room / (elements * bytes_of(s_.dtype)));
    p.shift = shift(p.height);
    auto count = groups.as_const(), all = tiles.as_const();
    if (count && all) {
      if (*count < 1) return std::nullopt;
      const int64_t per_group = std::min({resident / *count, *all, most()});
      if (!pays(*count, per_group, p.keep * elements)) return std::nullopt;
      p.blocks_per_row = per_group;
      p.max_blocks_per_row = *p.blocks_per_row.as_const();
      return p;
    }
    // If the number of rows grows with their length, long rows are not few.
    auto symbols = s_.n.symbols();
    if (std::any_of(symbols.begin(), symbols.end(), [&](const SymExpr& e) { return groups.contains(e); }))
      return std::nullopt;
    SymRange many = env_.range(groups), row = env_.range(tiles);
    if (many.lo > resident / kFewRows || row.hi < kLongTiles) return std::nullopt;
    if (many.lo < 1 || many.hi > resident / kFewRows) p.conditions.push_back({groups, 1, 1, resident / kFewRows});
    if (row.lo < kLongTiles) p.conditions.push_back({tiles, 1, kLongTiles});
    p.blocks_per_row = env_.simplify(sym_min(sym_min(floordiv(SymExpr(resident), groups), most()), tiles));
    p.max_blocks_per_row = most();
    return p;
  }
  // `cached`: elements per block that stay in shared memory.
  [[nodiscard]] bool pays(int64_t groups, int64_t per_group, int64_t cached) const {
    if (per_group < 2) return false;
    auto count = env_.simplify(s_.outer * s_.n * s_.inner).as_const();
    if (!count) return false;
    const double bytes = static_cast<double>(*count) * static_cast<double>(bytes_of(s_.dtype));
    const double again = std::max(0.0, bytes - static_cast<double>(groups * per_group * cached * bytes_of(s_.dtype)));
    const double near = std::min(again, kCached * static_cast<double>(device_.l2_bytes));
    const double alone = kAlone * device_.core_memory_bytes_per_us, all = device_.memory_bytes_per_us;
    const double rate = std::min(all, static_cast<double>(groups) * alone);
    const double shared = std::min(all, static_cast<double>(groups * per_group) * alone);
    return 2 * bytes / rate >
           (2 * bytes + again - near) / shared + near / device_.l2_bytes_per_us + kBarriers * device_.grid_barrier_us;
  }

  const ShapeEnv& env_;
  const ScanShape& s_;
  const Target& device_;
  const bool rows_;        // the axis is contiguous
  const int64_t computed_; // bytes of an element in the accumulator dtype
  std::vector<ScanPlan> plans_;
};

// The tile of a scan of rows has the axis as dimension 1 and outer rows as dimension 0. Otherwise dimension 0 runs
// along the axis and dimension 1 over the inner positions of one outer row.
class ScanLowering {
public:
  ScanLowering(const ShapeEnv& env, const ScanShape& shape, const ScanPlan& plan, const std::string& name)
      : env_(env), s_(shape), p_(plan), rows_(shape.inner.is_const(1)), axis_(rows_ ? 1 : 0), kind_(shape.kind),
        compute_(compute_dtype(shape.dtype)),
        carried_(compute_ == DType::F32 && is_sum() ? DType::F64 : compute_), full_{static_cast<int>(plan.height),
                                                                                    static_cast<int>(plan.width)},
        folded_(full_), b_(out_.kernel) {
    out_.kernel.name = name;
    out_.kernel.config["warps"] = p_.warps;
    if (p_.min_blocks > 0) out_.kernel.config["min_blocks"] = p_.min_blocks;
    if (p_.cooperative) out_.kernel.config["streaming"] = 1;
    folded_[static_cast<size_t>(axis_)] = 1;
  }

  ScheduledKernel run() {
    parameters();
    place();
    V zero = constant(0);
    if (!p_.cooperative) {
      walk(zero, tiles_, b_.cast(b_.broadcast(identity_, folded_), carried_));
    } else {
      V cached = op(ScalarOp::Min, constant(p_.keep), count_), rest = op(ScalarOp::Sub, count_, cached);
      V before = b_.cast(combined_before(cached), carried_);
      V carried = walk(zero, rest, before);
      if (p_.keep > 0) recall(rest, carried);
    }
    describe();
    return std::move(out_);
  }

private:
  V op(ScalarOp o, V x, V y) { return pointwise(b_, o, std::array{x, y}); }
  V constant(int64_t v) { return b_.const_i(DType::I64, v); }
  V both(V x, V y) { return x < 0 ? y : y < 0 ? x : op(ScalarOp::And, x, y); }
  V full(V v) { return b_.broadcast(v, full_); }
  [[nodiscard]] bool is_sum() const { return kind_ == ReduceKind::Sum; }
  V fold(V x, V y) { return op(fold_operator(kind_), x, y); }
  V size(const char* what, const SymExpr& given) {
    SymExpr e = env_.simplify(given);
    if (auto n = e.as_const()) return constant(*n);
    V v = b_.param(what, {tile::Type::Kind::Data, DType::I64, {}});
    int64_t divisor = env_.divisor(e);
    out_.kernel.params.back().multiple_of = std::max<int64_t>(1, divisor & -divisor);
    out_.sizes.push_back(e);
    return v;
  }

  void parameters() {
    x_ = b_.param("x", {tile::Type::Kind::Pointer, s_.dtype, {}});
    y_ = b_.param("y", {tile::Type::Kind::Pointer, s_.dtype, {}}, true);
    const SymExpr blocks = rows_ ? ceildiv(s_.outer, p_.height) : s_.outer * ceildiv(s_.inner, p_.width);
    out_.grid = env_.simplify(blocks * p_.blocks_per_row);
    if (p_.cooperative) {
      partial_ = b_.param("partial", {tile::Type::Kind::Pointer, compute_, {}}, true);
      counters_ = b_.param("counters", {tile::Type::Kind::Pointer, DType::I32, {}}, true);
      out_.workspaces.push_back({compute_, env_.simplify(out_.grid * SymExpr(folded_[0] * folded_[1]))});
      out_.counters = env_.simplify(blocks);
    }
    n_ = size("n", s_.n);
    if (!rows_) inner_ = size("inner", s_.inner);
    if (!rows_) others_ = size("inner_blocks", ceildiv(s_.inner, p_.width));
    if (rows_ && p_.height > 1) others_ = size("outer", s_.outer);
    if (p_.cooperative) {
      blocks_ = size("blocks_per_row", p_.blocks_per_row);
      if (!rows_) column_blocks_ = size("columns_of_blocks", blocks);
    }
    if (int64_t most = env_.range(out_.grid).hi; most <= std::numeric_limits<int32_t>::max())
      out_.kernel.config["programs"] = std::max<int64_t>(1, most);
    identity_ = is_float(compute_) ? b_.const_f(compute_, reduce_identity_f64(kind_, compute_))
                                   : b_.const_i(compute_, reduce_identity_i64(kind_, compute_));
  }

  // Start of this program's tiles: position along the other dimension, the offset of its element 0, and the mask of
  // existing positions.
  void place() {
    V program = b_.program_id(0), r = constant(p_.height), c = constant(p_.width);
    if (p_.cooperative) {
      // Blocks that run at the same time access adjacent memory.
      rank_ = op(rows_ ? ScalarOp::Mod : ScalarOp::Div, program, rows_ ? blocks_ : column_blocks_);
      program = op(rows_ ? ScalarOp::Div : ScalarOp::Mod, program, rows_ ? blocks_ : column_blocks_);
      row_ = program;
    }
    V down = b_.expand_dims(b_.range(full_[0]), 1), across = b_.expand_dims(b_.range(full_[1]), 0);
    along_ = rows_ ? across : down;
    if (!rows_) {
      V column = op(ScalarOp::Add, across, op(ScalarOp::Mul, op(ScalarOp::Mod, program, others_), c));
      V row = op(ScalarOp::Mul, op(ScalarOp::Mul, op(ScalarOp::Div, program, others_), n_), inner_);
      base_ = op(ScalarOp::Add, column, row);
      exists_ = op(ScalarOp::Lt, column, inner_);
    } else if (p_.height == 1) {
      base_ = op(ScalarOp::Mul, program, n_); // one program per row
    } else {
      V row = op(ScalarOp::Add, down, op(ScalarOp::Mul, program, r));
      base_ = op(ScalarOp::Mul, row, n_);
      exists_ = op(ScalarOp::Lt, row, others_);
    }
    V positions = n_;
    if (p_.shift > 1) {
      V vector = constant(p_.shift), aligned = op(ScalarOp::Mul, op(ScalarOp::Div, base_, vector), vector);
      by_ = op(ScalarOp::Sub, base_, aligned);
      base_ = aligned;
      positions = op(ScalarOp::Add, n_, by_);
    }
    V lanes = rows_ ? c : r, one = constant(1);
    auto up = [&](V x, V y) { return op(ScalarOp::Div, op(ScalarOp::Add, x, op(ScalarOp::Sub, y, one)), y); };
    tiles_ = up(positions, lanes);
    if (!p_.cooperative) return;
    V each = up(tiles_, blocks_);
    first_ = op(ScalarOp::Min, op(ScalarOp::Mul, rank_, each), tiles_);
    count_ = op(ScalarOp::Min, each, op(ScalarOp::Sub, tiles_, first_));
  }

  // A tile: its positions, offsets, and the mask of existing elements.
  struct Tile {
    V at, mask, source, read; // offsets and mask of results, and of the operand's elements
  };
  Tile tile(V number) {
    V place = op(ScalarOp::Add, along_, op(ScalarOp::Mul, number, constant(full_[static_cast<size_t>(axis_)])));
    V j = by_ < 0 ? place : op(ScalarOp::Sub, place, by_);
    V mask = by_ < 0
                 ? op(ScalarOp::Lt, place, n_)
                 : op(ScalarOp::And, op(ScalarOp::Ge, place, by_), op(ScalarOp::Lt, place, op(ScalarOp::Add, n_, by_)));
    auto offset = [&](V position) {
      if (s_.reverse) position = op(ScalarOp::Sub, op(ScalarOp::Sub, n_, constant(1)), position);
      return full(op(ScalarOp::Add, rows_ ? position : op(ScalarOp::Mul, position, inner_), base_));
    };
    Tile t;
    t.at = t.source = offset(place);
    t.mask = t.read = full(both(exists_, mask));
    if (s_.exclusive) { // the previous element
      t.source = offset(op(ScalarOp::Sub, place, constant(1)));
      t.read = full(both(t.mask, full(op(ScalarOp::Lt, constant(0), j))));
    }
    return t;
  }
  V load(V number, V guard = -1) {
    Tile t = tile(number);
    return b_.load(x_, t.source, guard < 0 ? t.read : both(t.read, full(guard)));
  }
  // Elements in the accumulator dtype; masked ones are the identity, which for sums is the masked load's 0.
  V added(V number, V loaded) {
    V v = b_.cast(loaded, compute_);
    return is_sum() ? v : b_.scalar(ScalarOp::Select, std::array{tile(number).read, v, identity_});
  }

  using Values = std::vector<V>;
  // Loops over tiles from..to with index `number`; each is loaded while the previous one is computed.
  V ahead(V from, V to, V state, const std::function<V(V)>& number, const std::function<V(V, V, V)>& work) {
    V one = constant(1);
    auto fetch = [&](V i) { return load(number(i), b_.scalar(ScalarOp::Lt, std::array{i, to})); };
    return b_.for_loop(from, to, one, {state, fetch(from)}, [&](V i, std::span<const V> now) -> Values {
      V next = fetch(op(ScalarOp::Add, i, one));
      return {work(number(i), now[1], now[0]), next};
    })[0];
  }
  V numbered(V i) { return p_.cooperative ? op(ScalarOp::Add, first_, i) : i; }
  V from_behind(V i) { return numbered(op(ScalarOp::Sub, op(ScalarOp::Sub, count_, constant(1)), i)); }

  // Stores the results of a tile and returns the carried value.
  V scanned(V number, V loaded, V carried) {
    Tile t = tile(number);
    V v = added(number, loaded);
    b_.store(y_, t.at, b_.cast(fold(b_.scan(kind_, v, axis_), b_.cast(carried, compute_)), s_.dtype), t.mask);
    return fold(b_.cast(b_.expand_dims(b_.reduce(kind_, v, axis_), axis_), carried_), carried);
  }
  V walk(V from, V to, V carried) {
    return ahead(
        from, to, carried, [&](V i) { return numbered(i); },
        [&](V number, V loaded, V state) { return scanned(number, loaded, state); });
  }

  // Shared memory offsets of cached tile `slot`, row-major.
  V cached_at(V slot) {
    V at = op(ScalarOp::Add, op(ScalarOp::Mul, b_.expand_dims(b_.range(full_[0]), 1), constant(p_.width)),
              b_.expand_dims(b_.range(full_[1]), 0));
    return op(ScalarOp::Add, at, op(ScalarOp::Mul, slot, constant(p_.width * p_.height)));
  }
  void recall(V from, V carried) {
    b_.for_loop(from, count_, constant(1), {carried}, [&](V i, std::span<const V> now) -> Values {
      V slot = op(ScalarOp::Sub, op(ScalarOp::Sub, count_, constant(1)), i);
      return {scanned(numbered(i), b_.load(memory_, cached_at(slot)), now[0])};
    });
  }

  // Folds this block's tiles backward; returns the combined result of the blocks before it.
  V combined_before(V cached) {
    if (p_.keep > 0) memory_ = b_.scratch(s_.dtype, constant(p_.keep * p_.width * p_.height));
    V zero = constant(0), sums = b_.broadcast(identity_, full_);
    const auto number = [&](V i) { return from_behind(i); };
    if (p_.keep > 0)
      sums = b_.for_loop(zero, cached, constant(1), {sums}, [&](V i, std::span<const V> now) -> Values {
        V v = load(number(i));
        b_.store(memory_, cached_at(i), v);
        return {fold(now[0], added(number(i), v))};
      })[0];
    sums = ahead(cached, count_, sums, number, [&](V at, V v, V state) { return fold(state, added(at, v)); });
    V total = b_.expand_dims(b_.reduce(kind_, sums, axis_), axis_);

    const int64_t side = folded_[0] * folded_[1];
    V lanes = b_.expand_dims(b_.range(static_cast<int>(side)), 0), first = op(ScalarOp::Mul, row_, blocks_);
    auto slots = [&](V rank) {
      return op(ScalarOp::Add, op(ScalarOp::Mul, op(ScalarOp::Add, first, rank), constant(side)), lanes);
    };
    b_.store(partial_, b_.broadcast(slots(rank_), folded_), total);
    b_.grid_barrier(counters_, row_, rank_, blocks_);
    out_.cooperative_blocks =
        rows_ ? env_.simplify(p_.blocks_per_row) : out_.grid; // blocks of one column are not consecutive
    std::vector<int> all = folded_;
    all[static_cast<size_t>(axis_)] = static_cast<int>(std::max<int64_t>(2, power_at_least(p_.max_blocks_per_row)));
    V rank = b_.expand_dims(b_.range(all[static_cast<size_t>(axis_)]), 1 - axis_);
    V v = b_.load(partial_, b_.broadcast(slots(rank), all), b_.broadcast(op(ScalarOp::Lt, rank, rank_), all),
                  b_.broadcast(identity_, all));
    return b_.expand_dims(b_.reduce(kind_, v, axis_), axis_);
  }

  void describe() {
    Schedule& s = out_.schedule;
    s.kind = p_.cooperative ? ScheduleKind::BlockCooperative
             : rows_        ? ScheduleKind::BlockLoop
                            : ScheduleKind::BlockColumns;
    s.tile.rows = static_cast<int>(p_.height);
    s.tile.columns = static_cast<int>(p_.width);
    s.tile.warps = static_cast<int>(p_.warps);
    std::string& why = out_.why;
    why = std::string(rows_ ? "running value along a contiguous axis" : "running value down an axis") +
          ", carried from tile to tile; tile [" + std::to_string(p_.height) + ", " + std::to_string(p_.width) +
          "] on " + std::to_string(p_.warps) + " warps";
    if (p_.shift > 1) why += ", aligned by a peel";
    if (p_.cooperative) why += ", " + env_.simplify(p_.blocks_per_row).str() + " cooperative blocks per row";
    out_.conditions = p_.conditions;
    out_.work_per_program = s_.n * (rows_ ? p_.height : p_.width);
    out_.scratch_bytes = 0;
  }

  const ShapeEnv& env_;
  const ScanShape& s_;
  const ScanPlan& p_;
  const bool rows_;
  const int axis_;
  const ReduceKind kind_;
  const DType compute_, carried_;
  std::vector<int> full_, folded_; // shape of the tile; its shape after the reduction
  ScheduledKernel out_;
  Builder b_;
  V x_ = -1, y_ = -1, partial_ = -1, counters_ = -1, memory_ = -1;
  V n_ = -1, inner_ = -1, others_ = -1, blocks_ = -1, column_blocks_ = -1, identity_ = -1;
  V along_ = -1, base_ = -1, exists_ = -1, by_ = -1, tiles_ = -1;
  V row_ = -1, rank_ = -1, first_ = -1, count_ = -1; // first_, count_: this block's first tile and number of tiles
};

} // namespace

std::vector<ScanPlan> scan_plans(const ShapeEnv& env, const ScanShape& shape, const Target& device) {
  return ScanPlanner(env, shape, device).run();
}
ScheduledKernel scan_kernel(const ShapeEnv& env, const ScanShape& shape, const ScanPlan& plan,
                            const std::string& name) {
  return ScanLowering(env, shape, plan, name).run();
}

} // namespace tessera
