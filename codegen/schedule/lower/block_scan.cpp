// Running sums and products by blocks of threads: a tile [R, C] is scanned along the axis at once, the last value of
// each row (or column) is carried to the next tile, which is loaded meanwhile.
//
// Few long rows (or columns) are shared by teams (tile/cooperation.h). Each member has neighbouring tiles of its own, and goes
// through them twice: backward for what they fold to, which it leaves in a workspace, and, when all have come, forward
// from what the members before it fold to, in the order of their numbers: the same bits in every run. The tiles that it
// meets first are kept in shared memory, of the others those that it met last are the first that it reads again, and
// the likeliest to be in the L2.
//
//   tiles of a member    0 .. count - keep - 1      count - keep .. count - 1
//   backward             2. read, last one first    1. read and kept, last one first
//   forward              3. read again              4. from shared memory
#include "codegen/schedule/lower/shapes.h"
#include "codegen/schedule/own_kernels.h"
#include <algorithm>
#include <array>
#include <bit>
#include <limits>

namespace tessera {
namespace {

using tile::Builder;
using V = tile::ValueId;

constexpr int64_t kElements = 2048;       // of a tile of short rows, or of columns
constexpr int64_t kThreads = 256;         // of a block
constexpr int64_t kThreadBytes = 64;      // of long rows that a block has to itself, as they are added
constexpr int64_t kFewHigh = 16;          // rows of a tile
constexpr int64_t kManyTiles = 4;         // of a multiprocessor
constexpr int64_t kColumns = 64;          // where the inner dimension is contiguous
constexpr int64_t kAccess = 16;           // bytes
constexpr int64_t kTeamThreads = 128;     // of a block
constexpr int64_t kTeamThreadBytes = 32;  // of its tile, as they are added
constexpr int64_t kTeamBlocks = 8;        // resident on a multiprocessor
constexpr int64_t kTeamColumnBytes = 128; // of a row of a tile
constexpr int64_t kMostPartials = 4096;   // of a team, which each member reads
constexpr int64_t kLongTiles = 16;        // where sizes are not known, rows are shared from here on
constexpr int64_t kFewRows = 4;           // and where each would have so many members or more
constexpr double kAlone = 0.3;            // of the bandwidth of a multiprocessor, that one block of a scan has
constexpr double kCached = 0.6;           // of the L2, that it still has of what was read before
constexpr double kMeetings = 3;           // grid barriers of a scan

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
  // A side of the tile: no longer than what it is for.
  [[nodiscard]] int64_t side(const SymExpr& e, int64_t most) const {
    auto n = env_.simplify(e).as_const();
    return n ? std::min(most, power_at_least(*n)) : most;
  }
  // Rows of vectors that begin anywhere; where elements are read one by one anyhow there is nothing to gain.
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
      p.height = std::min<int64_t>(kElements / p.width, side(s_.outer, kFewHigh));
      // Of many short rows full tiles.
      if (auto rows = seen(s_.outer); rows && *rows * p.width >= kManyTiles * kElements * device_.multiprocessors)
        p.height = kElements / p.width;
    }
    p.shift = shift(p.height);
    return p;
  }

  // Several programs for each row, or for each block of columns.
  [[nodiscard]] std::optional<ScanPlan> shared() const {
    ScanPlan p;
    p.team = true;
    p.warps = kTeamThreads / 32;
    p.min_blocks = kTeamBlocks;
    const int64_t elements = kTeamThreads * kTeamThreadBytes / computed_;
    const int64_t resident = kTeamBlocks * device_.multiprocessors;
    auto blocks = [&] { return env_.simplify(s_.outer * (rows_ ? SymExpr(1) : ceildiv(s_.inner, p.width))); };
    auto most = [&] { return std::min(resident, kMostPartials / (rows_ ? 1 : p.width)); };
    p.width = rows_ ? elements : side(s_.inner, std::min(elements, kTeamColumnBytes / bytes_of(s_.dtype)));
    if (auto n = seen(blocks()); n && !rows_)
      while (p.width * bytes_of(s_.dtype) > device_.sector_bytes && *seen(blocks()) * most() < resident) p.width /= 2;
    p.height = elements / p.width;
    const SymExpr teams = blocks(), tiles = env_.simplify(ceildiv(s_.n, rows_ ? p.width : p.height));
    // Shared memory beside the conversions of tiles and what warps exchange.
    constexpr int64_t kExchange = 1 << 10;
    const int64_t system = device_.reserved_shared_bytes;
    const int64_t room = (device_.shared_bytes + system) / kTeamBlocks - system - kExchange -
                         kTeamThreads * kTeamThreadBytes * (rows_ ? 1 : 2);
    p.keep = std::max<int64_t>(0, room / (elements * bytes_of(s_.dtype)));
    p.shift = shift(p.height);
    auto count = teams.as_const(), all = tiles.as_const();
    if (count && all) {
      if (*count < 1) return std::nullopt;
      const int64_t members = std::min({resident / *count, *all, most()});
      if (!pays(*count, members, p.keep * elements)) return std::nullopt;
      p.members = members;
      p.most_members = *p.members.as_const();
      return p;
    }
    // Where the number of rows grows with their length, long ones are not few.
    auto symbols = s_.n.symbols();
    if (std::any_of(symbols.begin(), symbols.end(), [&](const SymExpr& e) { return teams.contains(e); }))
      return std::nullopt;
    SymRange many = env_.range(teams), row = env_.range(tiles);
    if (many.lo > resident / kFewRows || row.hi < kLongTiles) return std::nullopt;
    if (many.lo < 1 || many.hi > resident / kFewRows) p.conditions.push_back({teams, 1, 1, resident / kFewRows});
    if (row.lo < kLongTiles) p.conditions.push_back({tiles, 1, kLongTiles});
    p.members = env_.simplify(sym_min(sym_min(floordiv(SymExpr(resident), teams), most()), tiles));
    p.most_members = most();
    return p;
  }
  // `kept`: elements of a member that stay in shared memory.
  [[nodiscard]] bool pays(int64_t teams, int64_t members, int64_t kept) const {
    if (members < 2) return false;
    auto count = env_.simplify(s_.outer * s_.n * s_.inner).as_const();
    if (!count) return false;
    const double bytes = static_cast<double>(*count) * static_cast<double>(bytes_of(s_.dtype));
    const double again = std::max(0.0, bytes - static_cast<double>(teams * members * kept * bytes_of(s_.dtype)));
    const double near = std::min(again, kCached * static_cast<double>(device_.l2_bytes));
    const double alone = kAlone * device_.core_memory_bytes_per_us, all = device_.memory_bytes_per_us;
    const double rate = std::min(all, static_cast<double>(teams) * alone);
    const double team = std::min(all, static_cast<double>(teams * members) * alone);
    return 2 * bytes / rate >
           (2 * bytes + again - near) / team + near / device_.l2_bytes_per_us + kMeetings * device_.grid_barrier_us;
  }

  const ShapeEnv& env_;
  const ScanShape& s_;
  const Target& device_;
  const bool rows_;        // the axis is contiguous
  const int64_t computed_; // bytes of an element as it is added
  std::vector<ScanPlan> plans_;
};

// Rows: dimension 1 of the tile runs along the axis, dimension 0 over outer rows. Otherwise dimension 0 runs along the
// axis and dimension 1 over the inner positions of one outer row.
class ScanLowering {
public:
  ScanLowering(const ShapeEnv& env, const ScanShape& shape, const ScanPlan& plan, const std::string& name)
      : env_(env), s_(shape), p_(plan), rows_(shape.inner.is_const(1)), axis_(rows_ ? 1 : 0),
        kind_(shape.product ? ReduceKind::Prod : ReduceKind::Sum),
        compute_(compute_dtype(shape.dtype)), full_{static_cast<int>(plan.height), static_cast<int>(plan.width)},
        folded_(full_), b_(out_.kernel) {
    out_.kernel.name = name;
    out_.kernel.config["warps"] = p_.warps;
    if (p_.min_blocks > 0) out_.kernel.config["min_blocks"] = p_.min_blocks;
    if (p_.team) out_.kernel.config["streaming"] = 1;
    folded_[static_cast<size_t>(axis_)] = 1;
  }

  ScheduledKernel run() {
    parameters();
    place();
    V zero = constant(0);
    if (!p_.team) {
      walk(zero, tiles_, b_.broadcast(identity_, folded_));
    } else {
      V kept = op(ScalarOp::Min, constant(p_.keep), count_), rest = op(ScalarOp::Sub, count_, kept);
      V before = meet(kept);
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
  V fold(V x, V y) { return op(s_.product ? ScalarOp::Mul : ScalarOp::Add, x, y); }
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
    out_.grid = env_.simplify(blocks * p_.members);
    if (p_.team) {
      partial_ = b_.param("partial", {tile::Type::Kind::Pointer, compute_, {}}, true);
      counters_ = b_.param("counters", {tile::Type::Kind::Pointer, DType::I32, {}}, true);
      out_.workspaces.push_back({compute_, env_.simplify(out_.grid * SymExpr(folded_[0] * folded_[1]))});
      out_.counters = env_.simplify(blocks);
    }
    n_ = size("n", s_.n);
    if (!rows_) inner_ = size("inner", s_.inner);
    if (!rows_) others_ = size("inner_blocks", ceildiv(s_.inner, p_.width));
    if (rows_ && p_.height > 1) others_ = size("outer", s_.outer);
    if (p_.team) {
      members_ = size("members", p_.members);
      if (!rows_) teams_ = size("teams", blocks);
    }
    if (int64_t most = env_.range(out_.grid).hi; most <= std::numeric_limits<int32_t>::max())
      out_.kernel.config["programs"] = std::max<int64_t>(1, most);
    identity_ =
        is_float(compute_) ? b_.const_f(compute_, s_.product ? 1 : 0) : b_.const_i(compute_, s_.product ? 1 : 0);
  }

  // Where this program's tiles begin: the other dimension's position, the offset of its element 0, and which exist.
  void place() {
    V program = b_.program_id(0), r = constant(p_.height), c = constant(p_.width);
    if (p_.team) {
      // Neighbours in memory run at the same time.
      member_ = op(rows_ ? ScalarOp::Mod : ScalarOp::Div, program, rows_ ? members_ : teams_);
      program = op(rows_ ? ScalarOp::Div : ScalarOp::Mod, program, rows_ ? members_ : teams_);
      team_ = program;
    }
    V down = b_.expand_dims(b_.range(full_[0]), 1), across = b_.expand_dims(b_.range(full_[1]), 0);
    along_ = rows_ ? across : down;
    if (!rows_) {
      V column = op(ScalarOp::Add, across, op(ScalarOp::Mul, op(ScalarOp::Mod, program, others_), c));
      V row = op(ScalarOp::Mul, op(ScalarOp::Mul, op(ScalarOp::Div, program, others_), n_), inner_);
      base_ = op(ScalarOp::Add, column, row);
      exists_ = op(ScalarOp::Lt, column, inner_);
    } else if (p_.height == 1) {
      base_ = op(ScalarOp::Mul, program, n_); // as many programs as rows
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
    if (!p_.team) return;
    V each = up(tiles_, members_);
    first_ = op(ScalarOp::Min, op(ScalarOp::Mul, member_, each), tiles_);
    count_ = op(ScalarOp::Min, each, op(ScalarOp::Sub, tiles_, first_));
  }

  // A tile: its positions, offsets, and the mask of those that exist.
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
    if (s_.exclusive) { // what stands before
      t.source = offset(op(ScalarOp::Sub, place, constant(1)));
      t.read = full(both(t.mask, full(op(ScalarOp::Lt, constant(0), j))));
    }
    return t;
  }
  V load(V number, V guard = -1) {
    Tile t = tile(number);
    return b_.load(x_, t.source, guard < 0 ? t.read : both(t.read, full(guard)));
  }
  // As it is added; where there is nothing, the identity, which masked loads yield for sums.
  V added(V number, V loaded) {
    V v = b_.cast(loaded, compute_);
    return s_.product ? b_.scalar(ScalarOp::Select, std::array{tile(number).read, v, identity_}) : v;
  }

  using Values = std::vector<V>;
  // Tiles from..to, `number` of each; each is loaded while the one before it is worked on.
  V ahead(V from, V to, V state, const std::function<V(V)>& number, const std::function<V(V, V, V)>& work) {
    V one = constant(1);
    auto fetch = [&](V i) { return load(number(i), b_.scalar(ScalarOp::Lt, std::array{i, to})); };
    return b_.for_loop(from, to, one, {state, fetch(from)}, [&](V i, std::span<const V> now) -> Values {
      V next = fetch(op(ScalarOp::Add, i, one));
      return {work(number(i), now[1], now[0]), next};
    })[0];
  }
  V numbered(V i) { return p_.team ? op(ScalarOp::Add, first_, i) : i; }
  V from_behind(V i) { return numbered(op(ScalarOp::Sub, op(ScalarOp::Sub, count_, constant(1)), i)); }

  // The results of a tile, and what is carried on.
  V scanned(V number, V loaded, V carried) {
    Tile t = tile(number);
    V v = added(number, loaded);
    b_.store(y_, t.at, b_.cast(fold(b_.scan(kind_, v, axis_), carried), s_.dtype), t.mask);
    return fold(b_.expand_dims(b_.reduce(kind_, v, axis_), axis_), carried);
  }
  V walk(V from, V to, V carried) {
    return ahead(
        from, to, carried, [&](V i) { return numbered(i); },
        [&](V number, V loaded, V state) { return scanned(number, loaded, state); });
  }

  // Shared memory: tile `slot` of those kept, row-major.
  V kept_at(V slot) {
    V at = op(ScalarOp::Add, op(ScalarOp::Mul, b_.expand_dims(b_.range(full_[0]), 1), constant(p_.width)),
              b_.expand_dims(b_.range(full_[1]), 0));
    return op(ScalarOp::Add, at, op(ScalarOp::Mul, slot, constant(p_.width * p_.height)));
  }
  void recall(V from, V carried) {
    b_.for_loop(from, count_, constant(1), {carried}, [&](V i, std::span<const V> now) -> Values {
      V slot = op(ScalarOp::Sub, op(ScalarOp::Sub, count_, constant(1)), i);
      return {scanned(numbered(i), b_.load(memory_, kept_at(slot)), now[0])};
    });
  }

  // Backward over the member's tiles; then what the members before it fold to.
  V meet(V kept) {
    if (p_.keep > 0) memory_ = b_.scratch(s_.dtype, constant(p_.keep * p_.width * p_.height));
    V zero = constant(0), sums = b_.broadcast(identity_, full_);
    const auto number = [&](V i) { return from_behind(i); };
    if (p_.keep > 0)
      sums = b_.for_loop(zero, kept, constant(1), {sums}, [&](V i, std::span<const V> now) -> Values {
        V v = load(number(i));
        b_.store(memory_, kept_at(i), v);
        return {fold(now[0], added(number(i), v))};
      })[0];
    sums = ahead(kept, count_, sums, number, [&](V at, V v, V state) { return fold(state, added(at, v)); });
    V total = b_.expand_dims(b_.reduce(kind_, sums, axis_), axis_);

    const int64_t side = folded_[0] * folded_[1];
    V beside = b_.expand_dims(b_.range(static_cast<int>(side)), 0), first = op(ScalarOp::Mul, team_, members_);
    auto slots = [&](V member) {
      return op(ScalarOp::Add, op(ScalarOp::Mul, op(ScalarOp::Add, first, member), constant(side)), beside);
    };
    b_.store(partial_, b_.broadcast(slots(member_), folded_), total);
    b_.grid_barrier(counters_, team_, member_, members_);
    std::vector<int> all = folded_;
    all[static_cast<size_t>(axis_)] = static_cast<int>(std::max<int64_t>(2, power_at_least(p_.most_members)));
    V member = b_.expand_dims(b_.range(all[static_cast<size_t>(axis_)]), 1 - axis_);
    V v = b_.load(partial_, b_.broadcast(slots(member), all), b_.broadcast(op(ScalarOp::Lt, member, member_), all),
                  b_.broadcast(identity_, all));
    return b_.expand_dims(b_.reduce(kind_, v, axis_), axis_);
  }

  void describe() {
    Schedule& s = out_.schedule;
    s.kind = p_.team ? ScheduleKind::BlockTeam : rows_ ? ScheduleKind::BlockLoop : ScheduleKind::BlockColumns;
    s.tile.rows = static_cast<int>(p_.height);
    s.tile.columns = static_cast<int>(p_.width);
    s.tile.warps = static_cast<int>(p_.warps);
    std::string& why = out_.why;
    why = std::string(rows_ ? "running value along a contiguous axis" : "running value down an axis") +
          ", carried from tile to tile; tile [" + std::to_string(p_.height) + ", " + std::to_string(p_.width) +
          "] on " + std::to_string(p_.warps) + " warps";
    if (p_.shift > 1) why += ", from whole accesses on";
    if (p_.team) why += ", " + env_.simplify(p_.members).str() + " programs a row, which wait for each other";
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
  const DType compute_;
  std::vector<int> full_, folded_; // the tile; what is left of it
  ScheduledKernel out_;
  Builder b_;
  V x_ = -1, y_ = -1, partial_ = -1, counters_ = -1, memory_ = -1;
  V n_ = -1, inner_ = -1, others_ = -1, members_ = -1, teams_ = -1, identity_ = -1;
  V along_ = -1, base_ = -1, exists_ = -1, by_ = -1, tiles_ = -1;
  V team_ = -1, member_ = -1, first_ = -1, count_ = -1; // of tiles: the member's first one, and how many it has
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
