#include "codegen/schedule/block_choose.h"
#include "codegen/schedule/choose.h"
#include <algorithm>
#include <bit>
#include <numeric>

namespace tessera {
namespace {

constexpr int kAccessBytes = 16;            // of a thread: the widest access there is
constexpr int kFlatThreads = 256;           // one access a thread and stream, many blocks
constexpr int kTransposeElements = 64 * 64; // of a tile that is contiguous along one side and then the other
constexpr int kColumnBytes = 128;           // of a row of a column tile: whole lines
constexpr int kRegisters = 64;              // of a thread, for values of the tile
constexpr int64_t kRowBytes = 32 << 10;     // longer rows are read twice rather than kept
// Rows of unknown length: kernels for rows up to so many elements, and whether only for rows of whole 16-byte accesses.
// Two loops over the row, for whole accesses and for any length, come after them.
struct RowBound {
  int64_t elements;
  bool aligned;
};
constexpr RowBound kRowBounds[] = {{256, true}, {1024, true}, {4096, true}, {1024, false}};

int64_t power_above(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(1, n))));
}
int64_t power_below(int64_t n) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(1, n))));
}
std::string text(int64_t n) { return std::to_string(n); }

class BlockPlanner {
public:
  BlockPlanner(const Graph& graph, const LoopNest& nest, const Domain& d, const DeviceTraits& device,
               const Schedule& wanted)
      : graph_(graph), nest_(nest), d_(d), device_(device) {
    if (auto it = wanted.config.find("exact_division"); it != wanted.config.end()) exact_ = it->second;
  }

  std::vector<BlockPlan> run() {
    find_streams();
    contiguous_ = contiguous_axis();
    live_ = values_alive(nest_, d_);
    if (d_.axes.empty())
      single_point();
    else if (!d_.reduces)
      flat();
    else if (is_row(static_cast<size_t>(contiguous_)))
      rows();
    else
      columns();
    for (BlockPlan& p : plans_) {
      p.schedule.config["rows"] = p.rows;
      p.schedule.config["columns"] = p.columns;
      p.schedule.config["warps"] = p.warps;
      p.schedule.config["exact_division"] = exact_;
    }
    return std::move(plans_);
  }

private:
  // An access and how much it moves.
  struct Stream {
    const Access* access;
    uint64_t deps;
    int bytes;    // of an element
    double count; // distinct elements, roughly
    bool store;
  };

  [[nodiscard]] bool is_row(size_t axis) const { return d_.axes[axis].role == AxisRole::Row; }
  [[nodiscard]] const SymExpr& extent(size_t axis) const { return d_.axes[axis].extent; }
  // What is known, or was seen by the call that leads to this compilation.
  [[nodiscard]] std::optional<int64_t> seen(const SymExpr& e) const {
    if (auto c = d_.env.simplify(e).as_const()) return *c;
    return graph_.env().hint(e);
  }
  [[nodiscard]] double guess(const SymExpr& e) const {
    constexpr int64_t kUnknown = 512;
    if (auto n = seen(e)) return static_cast<double>(std::max<int64_t>(1, *n));
    return static_cast<double>(std::clamp<int64_t>(d_.env.range(e).hi, 1, kUnknown));
  }
  [[nodiscard]] std::optional<int64_t> constant(const SymExpr& e) const { return d_.env.simplify(e).as_const(); }

  void find_streams() {
    auto add = [&](const Access& a, uint64_t deps, bool store) {
      double count = 1;
      for (size_t i = 0; i < d_.axes.size(); ++i)
        if (deps >> i & 1) count *= guess(extent(i));
      int bytes = info(graph_.type(d_.buffers[static_cast<size_t>(a.buffer)]).dtype).bits / 8;
      streams_.push_back({&a, deps, bytes, count, store});
      largest_ = std::max(largest_, count);
    };
    for (size_t i = 0; i < d_.live.size(); ++i)
      if (d_.live[i] && nest_.dag[static_cast<ScalarId>(i)].op == ScalarOp::Load)
        add(d_.loads[i], d_.access_deps(d_.loads[i]), false);
    for (const Access& a : d_.stores) add(a, d_.axes_in(a.offset), true);
    narrow_ = kAccessBytes;
    for (const Stream& s : streams_)
      if (s.count >= largest_ / 2) narrow_ = std::min(narrow_, s.bytes);
    vector_ = kAccessBytes / narrow_;
  }

  [[nodiscard]] bool contiguous(const Stream& s, size_t axis) const {
    auto linear = s.access->offset.linear_in(d_.axes[axis].var);
    if (!linear || !linear->first.is_const(1)) return false;
    return std::none_of(s.access->terms.begin(), s.access->terms.end(),
                        [&](const auto& t) { return d_.deps[static_cast<size_t>(t.first)] >> axis & 1; });
  }
  // The axis along which most bytes are contiguous; written ones count a little more, later axes win ties.
  [[nodiscard]] int contiguous_axis() const {
    int best = static_cast<int>(d_.axes.size()) - 1;
    double most = 0;
    for (size_t i = 0; i < d_.axes.size(); ++i) {
      double bytes = 0;
      for (const Stream& s : streams_)
        if (contiguous(s, i)) bytes += s.count * s.bytes * (s.store ? 1.01 : 1);
      if (bytes > 0 && bytes >= most) {
        most = bytes;
        best = static_cast<int>(i);
      }
    }
    return best;
  }

  // What makes `e` a multiple of k: nothing, or a condition on a size. Of products a factor is asked for, which then
  // divides every other product with it.
  struct Multiple {
    bool known = false;
    std::optional<SizeCondition> condition;
  };
  [[nodiscard]] Multiple multiple(const SymExpr& extent, int64_t k) const {
    SymExpr e = d_.env.simplify(extent);
    int64_t d = d_.env.divisor(e);
    if (d % k == 0) return {true, std::nullopt};
    if (e.is_const()) return {};
    if (e.is_symbol()) return {false, SizeCondition{e, k}};
    if (e.op() == SymOp::Mul)
      for (size_t i = e.args().size(); i-- > 0;)
        if (e.args()[i].is_symbol()) {
          const SymExpr& s = e.args()[i];
          int64_t rest = d / std::max<int64_t>(1, std::min(d, d_.env.divisor(s)));
          return {false, SizeCondition{s, k / std::gcd(k, rest)}};
        }
    return {false, SizeCondition{e, k}};
  }

  BlockPlan plan(ScheduleKind kind, int64_t rows, int64_t columns, int64_t warps) const {
    BlockPlan p;
    p.schedule.kind = kind;
    p.rows = static_cast<int>(rows);
    p.columns = static_cast<int>(columns);
    p.warps = static_cast<int>(std::clamp<int64_t>(warps, 1, 32));
    return p;
  }
  [[nodiscard]] std::string sizes(const BlockPlan& p) const {
    int64_t elements = int64_t{p.rows} * p.columns, threads = int64_t{32} * p.warps;
    return "tile [" + text(p.rows) + ", " + text(p.columns) + "] on " + text(p.warps) + " warps, " +
           text(std::max<int64_t>(1, elements / threads)) + " elements a thread";
  }
  [[nodiscard]] SymExpr points(AxisRole role) const {
    SymExpr n = 1;
    for (const Axis& a : d_.axes)
      if (a.role == role) n *= a.extent;
    return d_.env.simplify(n);
  }

  // ---- no axes at all
  void single_point() {
    plans_.push_back(plan(ScheduleKind::BlockFlat, 1, 1, 1));
    plans_.back().schedule.why = "a single point: scalars";
  }

  // ---- no reductions
  void flat() {
    SymExpr all = points(AxisRole::Outer);
    size_t c = static_cast<size_t>(contiguous_);
    if (int d = transposed_axis(); d >= 0) return transposes(static_cast<size_t>(d), c, all);
    // Few elements are spread over all multiprocessors before each thread gets a whole access.
    int64_t threads = kFlatThreads, vector = vector_;
    if (auto n = seen(all)) {
      auto blocks = [&] { return *n / (threads * vector); };
      while (threads > 128 && blocks() < 4 * device_.multiprocessors) threads /= 2;
      while (vector > 1 && vector * narrow_ > 4 && blocks() < 2 * device_.multiprocessors) vector /= 2;
    }
    // One number for everything, c fastest.
    std::vector<size_t> order;
    for (size_t i = 0; i < d_.axes.size(); ++i)
      if (i != c) order.push_back(i);
    order.push_back(c);
    BlockPlan flat = plan(ScheduleKind::BlockFlat, 1, threads * vector, threads / 32);
    flat.groups.columns = order;
    flat.whole_branch = d_.env.divisor(all) % vector != 0;
    flat.schedule.why = "one run of " + all.str() + "; " + sizes(flat);
    if (flat.whole_branch) flat.schedule.why += ", blocks that are whole without masks";
    if (d_.axes.size() == 1) {
      plans_.push_back(std::move(flat));
      return;
    }
    flat.schedule.why += "; " + text(static_cast<int64_t>(d_.axes.size())) + " axes taken out of it by division";

    Multiple whole = multiple(extent(c), vector);
    if (vector > 1 && (whole.known || whole.condition)) {
      BlockPlan best = in_vectors(order, threads, vector);
      BlockPlan grid = in_rows(order, threads, vector);
      if (grid.columns > 1 && row_cost(grid) <= vector_cost(best)) best = std::move(grid);
      bool fits = whole.known;
      if (whole.condition) {
        best.conditions.push_back(*whole.condition);
        ShapeEnv env = d_.env;
        assume(env, *whole.condition);
        fits = best.split < 0 || env.divisor(extent(c)) % best.columns == 0;
      }
      if (fits) plans_.push_back(std::move(best));
      if (fits && whole.known) return;
    }
    plans_.push_back(std::move(flat));
  }

  // Rows of the tile are single accesses, so that divisions are per access: [threads, vector].
  [[nodiscard]] BlockPlan in_vectors(const std::vector<size_t>& order, int64_t threads, int64_t vector) const {
    BlockPlan p = plan(ScheduleKind::BlockFlat, threads, vector, threads / 32);
    size_t c = order.back();
    p.split = static_cast<int>(c);
    for (size_t i : order) p.groups.rows.push_back(i > c ? i + 1 : i); // c itself: the number of the vector
    p.groups.columns = {c + 1};
    p.schedule.why = "runs of " + text(vector) + " along an axis of " + d_.env.simplify(extent(c)).str() + "; " +
                     sizes(p) + "; other axes taken apart once a run";
    return p;
  }
  // A piece of some rows; columns divide the row.
  [[nodiscard]] BlockPlan in_rows(const std::vector<size_t>& order, int64_t threads, int64_t vector) const {
    size_t c = order.back();
    int64_t n = constant(extent(c)).value_or(0);
    int64_t columns = n > 0 ? std::min<int64_t>(n & -n, threads * vector) : 1;
    if (columns < 64) columns = 1;
    BlockPlan p = plan(ScheduleKind::BlockFlat, threads * vector / columns, columns, threads / 32);
    p.groups.rows.assign(order.begin(), order.end() - 1);
    p.groups.columns = {c};
    p.schedule.why = text(p.rows) + " rows, " + text(columns) + " of " + text(n) + " columns a block; " + sizes(p);
    return p;
  }
  // Instructions of a thread for indices, per access of 16 bytes: what taking numbers apart costs.
  static constexpr double kDivision = 25, kConstantDivision = 6;
  [[nodiscard]] double division(const SymExpr& by) const {
    auto n = constant(by);
    return !n                                                                     ? kDivision
           : std::has_single_bit(static_cast<uint64_t>(std::max<int64_t>(1, *n))) ? 1
                                                                                  : kConstantDivision;
  }
  // Of the rows' axes, as far as some access does not see them as one.
  [[nodiscard]] double decode_cost(size_t axes_from, const std::vector<size_t>& order) const {
    double cost = 0;
    for (size_t k = axes_from; k + 1 < order.size(); ++k) cost += division(extent(order[k]));
    return cost;
  }
  [[nodiscard]] double vector_cost(const BlockPlan& p) const {
    std::vector<size_t> order;
    for (size_t i = 0; i < d_.axes.size(); ++i)
      if (i != static_cast<size_t>(contiguous_)) order.push_back(i);
    return decode_cost(1, order) + division(extent(static_cast<size_t>(contiguous_)) * p.columns);
  }
  [[nodiscard]] double row_cost(const BlockPlan& p) const {
    double blocks = guess(extent(static_cast<size_t>(contiguous_))) / p.columns;
    return decode_cost(1, p.groups.rows) + (blocks > 1 ? 2 : 0);
  }

  // An axis other than the contiguous one along which a good part of the bytes is contiguous instead.
  [[nodiscard]] int transposed_axis() const {
    size_t c = static_cast<size_t>(contiguous_);
    double total = 0, most = 0;
    int axis = -1;
    for (const Stream& s : streams_) total += s.count * s.bytes;
    for (size_t i = 0; i < d_.axes.size(); ++i) {
      if (i == c) continue;
      double bytes = 0;
      for (const Stream& s : streams_)
        if ((s.deps >> c & 1) && s.count >= largest_ / 2 && contiguous(s, i) && !contiguous(s, c))
          bytes += s.count * s.bytes;
      if (bytes > most) {
        most = bytes;
        axis = static_cast<int>(i);
      }
    }
    return most * 8 >= total && guess(extent(c)) > 1 && axis >= 0 && guess(extent(static_cast<size_t>(axis))) > 1 ? axis
                                                                                                                  : -1;
  }
  void transposes(size_t d, size_t c, const SymExpr& all) {
    int64_t elements = kTransposeElements, warps = 8;
    while (elements > 1024 && elements / (32 * warps) * live_ > kRegisters) elements /= 2;
    if (auto n = seen(all); n && *n < elements * device_.multiprocessors) {
      elements = 1024;
      warps = 4;
    }
    int64_t side = 1;
    while (side * side < elements) side *= 2;
    auto most = [&](size_t axis) {
      auto n = constant(extent(axis));
      return n ? power_above(*n) : elements;
    };
    int64_t columns = std::min(side, most(c)), rows = std::min(elements / columns, most(d));
    columns = std::min(elements / rows, most(c));
    warps = std::clamp<int64_t>(rows * columns / 128, 1, warps);
    BlockPlan p = plan(ScheduleKind::BlockFlat, rows, columns, power_below(warps));
    p.groups.columns = {c};
    p.groups.rows = {d};
    for (size_t i = 0; i < d_.axes.size(); ++i)
      if (i != c && i != d) p.groups.points.push_back(i);
    p.schedule.why = "operands contiguous along " + d_.env.simplify(extent(c)).str() + " and along " +
                     d_.env.simplify(extent(d)).str() + ": transposed within the block; " + sizes(p);
    // Whole accesses along both.
    BlockPlan aligned = p;
    bool possible = true;
    for (size_t axis : {c, d}) {
      Multiple m = multiple(extent(axis), vector_);
      possible = possible && (m.known || m.condition);
      if (m.condition) aligned.conditions.push_back(*m.condition);
    }
    if (possible && !aligned.conditions.empty()) plans_.push_back(std::move(aligned));
    plans_.push_back(std::move(p));
  }

  // ---- reductions along a contiguous row
  [[nodiscard]] AxisGroups row_groups() const {
    AxisGroups g;
    for (size_t i = 0; i < d_.axes.size(); ++i) (is_row(i) ? g.columns : g.rows).push_back(i);
    return g;
  }
  // Registers of accumulators, in f32, per element of the tile.
  [[nodiscard]] int accumulators() const {
    int n = 0;
    for (size_t i = 0; i < d_.live.size(); ++i) {
      const ScalarNode& r = nest_.dag[static_cast<ScalarId>(i)];
      if (!d_.live[i] || r.op != ScalarOp::Reduce) continue;
      n = std::max(n, r.reduce == ReduceKind::ArgMax || r.reduce == ReduceKind::ArgMin ? 3 : 1);
    }
    return n;
  }

  // The row of up to `longest` elements in one tile; nothing when it would not fit the registers.
  [[nodiscard]] std::optional<BlockPlan> whole_rows(int64_t longest) const {
    int64_t columns = power_above(longest), bytes = columns * narrow_;
    if (bytes > kRowBytes) return std::nullopt;
    int64_t threads = 128, each = vector_;
    if (bytes <= 512)
      each = 4 * vector_;
    else if (bytes <= 4096)
      each = bytes <= 2048 ? vector_ : 2 * vector_;
    else
      each = columns / std::clamp<int64_t>(bytes / 32, 128, 512);
    each = std::min(each, columns);
    while (each > 1 && each * live_ > kRegisters) each /= 2;
    int64_t lanes = columns / each; // threads of a row
    if (lanes > 1024) return std::nullopt;
    int64_t rows = std::max<int64_t>(1, threads / lanes);
    if (auto n = seen(points(AxisRole::Outer)))
      while (rows > 1 && *n < rows * device_.multiprocessors) rows /= 2;
    BlockPlan p = plan(ScheduleKind::BlockRows, rows, columns, power_above(rows * lanes) / 32);
    p.groups = row_groups();
    return p;
  }
  [[nodiscard]] BlockPlan row_loop(const SymExpr& row) const {
    double length = seen(row) ? guess(row) : 1e9;
    auto n = seen(points(AxisRole::Outer));
    int64_t threads = n && *n < device_.multiprocessors && length >= 65536 ? 1024 : length >= 4096 ? 512 : 256;
    int64_t each = vector_ * 4;
    while (each > 1 && each * (live_ + accumulators()) > (threads > 512 ? kRegisters / 2 : kRegisters)) each /= 2;
    int64_t columns = threads * each;
    while (columns > 64 && static_cast<double>(columns / 2) >= length) columns /= 2;
    BlockPlan p = plan(ScheduleKind::BlockLoop, 1, columns, std::min<int64_t>(threads, columns) / 32);
    p.groups = row_groups();
    p.loop = true;
    return p;
  }

  void rows() {
    SymExpr row = d_.env.simplify(d_.row_count());
    size_t inner = static_cast<size_t>(contiguous_);
    auto add = [&](BlockPlan p, const std::string& why) {
      p.schedule.why = why + "; " + sizes(p);
      if (!p.loop) p.schedule.why += ", " + text(p.rows) + (p.rows == 1 ? " row" : " rows") + " a block, read once";
      plans_.push_back(std::move(p));
    };
    if (auto n = constant(row)) {
      if (auto p = whole_rows(*n)) {
        std::string waste = p->columns > *n ? ", " + text(100 * (p->columns - *n) / p->columns) + " % of it idle" : "";
        return add(std::move(*p), "rows of " + text(*n) + " in registers" + waste);
      }
      return add(row_loop(row), "rows of " + text(*n) + " in a loop, each round of reductions reads again");
    }
    SymRange range = d_.env.range(row);
    Multiple whole = multiple(extent(inner), vector_);
    // Whether there is no need of further kernels: for aligned rows, and for others.
    bool covered[2] = {!whole.known && !whole.condition, whole.known};
    for (const RowBound& b : kRowBounds) {
      if (covered[b.aligned ? 0 : 1] || range.lo > b.elements) continue;
      bool all = range.hi <= b.elements;
      auto p = whole_rows(all ? range.hi : b.elements);
      if (!p) continue;
      if (!all) p->conditions.push_back({row, 1, 0, b.elements});
      if (b.aligned && !whole.known) p->conditions.push_back(*whole.condition);
      bool last = p->conditions.empty();
      add(std::move(*p), "rows of " + row.str() + " in registers");
      if (last) return;
      covered[b.aligned ? 0 : 1] = all;
    }
    for (bool aligned : {true, false}) {
      BlockPlan p = row_loop(row);
      if (aligned && (covered[0] || whole.known)) continue;
      if (aligned) p.conditions.push_back(*whole.condition);
      add(std::move(p), "rows of " + row.str() + " in a loop, each round of reductions reads again");
    }
  }

  // ---- reductions while an outer axis is the contiguous one
  void columns() {
    size_t c = static_cast<size_t>(contiguous_);
    SymExpr row = d_.env.simplify(d_.row_count());
    AxisGroups groups;
    bool narrow = guess(extent(c)) < 32; // short columns of several points side by side
    SymExpr width = 1, others = 1;
    for (size_t i = 0; i < d_.axes.size(); ++i) {
      if (is_row(i))
        groups.rows.push_back(i);
      else if (i != c && narrow)
        groups.columns.push_back(i);
      else if (i != c) {
        groups.points.push_back(i);
        others *= extent(i);
      }
      if (!is_row(i) && (i == c || narrow)) width *= extent(i);
    }
    groups.columns.push_back(c);

    int64_t threads = 256, each = 4 * vector_;
    while (each > 1 && each * (live_ + accumulators()) > kRegisters) each /= 2;
    int64_t columns = std::max<int64_t>(32, kColumnBytes / narrow_);
    if (auto n = constant(width)) columns = std::min(columns, power_above(*n));
    if (auto n = seen(width * others))
      while (columns > 16 && *n < columns * device_.multiprocessors) columns /= 2;
    int64_t rows = std::max<int64_t>(1, threads * each / columns);
    auto length = constant(row);
    bool once = length && *length <= rows;
    if (length) rows = std::min(rows, power_above(*length));
    int64_t elements = rows * columns;
    threads = std::clamp<int64_t>(elements / std::min<int64_t>(each, vector_), 32, threads);
    BlockPlan p = plan(ScheduleKind::BlockColumns, rows, columns, threads / 32);
    p.groups = groups;
    p.loop = !once;
    p.schedule.why = "the row of " + row.str() + " is not contiguous, an outer axis of " +
                     d_.env.simplify(extent(c)).str() + " is; " + sizes(p) +
                     (once ? ", the whole row in registers" : ", a loop down the row");
    Multiple whole = multiple(extent(c), vector_);
    if (whole.condition) {
      plans_.push_back(p);
      plans_.back().conditions.push_back(*whole.condition);
    }
    plans_.push_back(std::move(p));
  }

  const Graph& graph_;
  const LoopNest& nest_;
  const Domain& d_;
  const DeviceTraits& device_;
  int64_t exact_ = 0;
  std::vector<Stream> streams_;
  double largest_ = 1;
  int narrow_ = kAccessBytes; // bytes of the narrowest element among the large streams
  int64_t vector_ = 1;        // elements of one access to it
  int contiguous_ = -1;
  int live_ = 1; // tile values alive at a time
  std::vector<BlockPlan> plans_;
};

} // namespace

void assume(ShapeEnv& env, const SizeCondition& c) {
  if (c.value.is_symbol()) {
    env.set_divisor(c.value, c.multiple_of);
    SymRange r = env.range(c.value);
    env.set_range(c.value, {std::max(r.lo, c.min), std::min(r.hi, c.max)});
  }
}

std::vector<BlockPlan> plan_blocks(const Graph& graph, const LoopNest& nest, const Domain& domain,
                                   const DeviceTraits& device, const Schedule& wanted) {
  return BlockPlanner(graph, nest, domain, device, wanted).run();
}

Result<std::vector<ScheduledKernel>> lower_for_gpu(const Graph& graph, const LoopNest& nest, const DeviceTraits& device,
                                                   const std::string& name, const Schedule& wanted) {
  CheckContext context("schedule of " + name);
  TESSERA_ASSIGN(Domain domain, make_domain(graph, nest));
  std::vector<ScheduledKernel> kernels;
  for (const BlockPlan& plan : plan_blocks(graph, nest, domain, device, wanted)) {
    TESSERA_ASSIGN(ScheduledKernel k, lower_block(graph, nest, domain, plan, name));
    kernels.push_back(std::move(k));
  }
  // One plan of memory holds for all of them: what one kernel may not take over, none does.
  for (ScheduledKernel& k : kernels)
    for (size_t b = 0; b < k.may_overwrite.size(); ++b)
      std::erase_if(k.may_overwrite[b], [&](int from) {
        return std::any_of(kernels.begin(), kernels.end(), [&](const ScheduledKernel& other) {
          const std::vector<int>& v = other.may_overwrite[b];
          return std::find(v.begin(), v.end(), from) == v.end();
        });
      });
  for (ScheduledKernel& k : kernels) {
    for (size_t b = 0; b < k.buffers.size(); ++b) k.kernel.params[b].invariant = !k.buffer_written[b];
    for (const auto& taken : k.may_overwrite)
      for (int b : taken) k.kernel.params[static_cast<size_t>(b)].invariant = false;
  }
  return kernels;
}

} // namespace tessera
