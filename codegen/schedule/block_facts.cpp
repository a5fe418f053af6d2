#include "codegen/schedule/block_facts.h"
#include "codegen/schedule/cached_values.h"
#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

namespace tessera {

int values_alive(const LoopNest& nest, const Domain& domain) {
  std::vector<ScalarId> last_use(domain.live.size(), -1);
  for (ScalarId id = 0; id < nest.dag.size(); ++id)
    if (domain.live[static_cast<size_t>(id)])
      for (ScalarId a : nest.dag[id].args) last_use[static_cast<size_t>(a)] = id;
  for (const Store& s : nest.stores) last_use[static_cast<size_t>(s.scalar)] = nest.dag.size();
  int live = 0, most = 1;
  std::vector<int> ends(domain.live.size() + 1);
  for (ScalarId id = 0; id < nest.dag.size(); ++id) {
    live -= ends[static_cast<size_t>(id)];
    ScalarOp op = nest.dag[id].op;
    bool vector = domain.live[static_cast<size_t>(id)] && op != ScalarOp::Const && op != ScalarOp::Index &&
                  domain.deps[static_cast<size_t>(id)] != 0;
    if (!vector || last_use[static_cast<size_t>(id)] < 0) continue;
    most = std::max(most, ++live);
    ++ends[static_cast<size_t>(std::min<ScalarId>(last_use[static_cast<size_t>(id)], nest.dag.size()))];
  }
  return most;
}

int64_t power_above(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(1, n))));
}
int64_t power_below(int64_t n) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(1, n))));
}

BlockFacts::BlockFacts(const Graph& g, const LoopNest& n, const Domain& domain, const Target& target)
    : graph(g), nest(n), d(domain), device(target) {
  auto add = [&](const Access& a, uint64_t deps, bool store) {
    double count = 1;
    for (size_t i = 0; i < d.axes.size(); ++i)
      if (deps >> i & 1) count *= guess(extent(i));
    int bytes = info(graph.type(d.buffers[static_cast<size_t>(a.buffer)]).dtype).bits / 8;
    streams.push_back({&a, deps, bytes, count, store});
    largest = std::max(largest, count);
  };
  if (device.tensor_f16_per_cycle > 0) contraction = Contraction::find(graph, nest, d);
  if (contraction && is_float(contraction->dtype) && info(contraction->dtype).bits == 8 &&
      device.tensor_f8_per_cycle <= 0)
    contraction.reset();
  for (size_t i = 0; i < d.live.size(); ++i)
    if (d.live[i] && nest.dag[static_cast<ScalarId>(i)].op == ScalarOp::Load)
      add(d.loads[i], deps_of_load(static_cast<ScalarId>(i)), false);
  for (const Access& a : d.stores) add(a, d.axes_in(a.offset), true);
  narrow = kAccessBytes;
  int sum = 0, large = 0;
  for (const Stream& s : streams) {
    if (s.count < largest / 2) continue;
    narrow = std::min(narrow, s.bytes);
    sum += s.bytes;
    ++large;
  }
  vector = kAccessBytes / narrow;
  average_bytes = large ? static_cast<int>(power_below((sum + large / 2) / large)) : narrow;
  live = values_alive(nest, d);
  contiguous_axis = find_contiguous_axis();
}

bool BlockFacts::is_grouped(ScalarId factor) const {
  return contraction && contraction->groups && contraction->factors[contraction->groups->factor][0] == factor;
}

uint64_t BlockFacts::deps_of_load(ScalarId load) const {
  const Access& access = d.loads[static_cast<size_t>(load)];
  if (is_grouped(load)) return contraction->deps[contraction->groups->factor];
  const bool ranged =
      contraction && contraction->range && (contraction->factors[0][0] == load || contraction->factors[1][0] == load);
  return ranged ? d.axes_in(access.offset) : d.access_deps(access);
}

SymExpr BlockFacts::points(AxisRole role) const {
  SymExpr n = 1;
  for (const Axis& a : d.axes)
    if (a.role == role) n *= a.extent;
  return d.env.simplify(n);
}
std::optional<int64_t> BlockFacts::seen(const SymExpr& e) const {
  if (auto c = constant(e)) return *c;
  return graph.env().hint(e);
}
double BlockFacts::guess(const SymExpr& e) const {
  constexpr int64_t kUnknown = 512;
  if (auto n = seen(e)) return static_cast<double>(std::max<int64_t>(1, *n));
  return static_cast<double>(std::clamp<int64_t>(d.env.range(e).hi, 1, kUnknown));
}

bool BlockFacts::contiguous(const Stream& s, size_t axis) const {
  auto linear = s.access->offset.linear_in(d.axes[axis].var);
  if (!linear || !linear->first.is_const(1)) return false;
  return std::none_of(s.access->terms.begin(), s.access->terms.end(),
                      [&](const auto& t) { return d.deps[static_cast<size_t>(t.first)] >> axis & 1; });
}

// Written bytes count slightly more; later axes win ties. For reductions, an outer axis along which many bytes are
// contiguous is preferred to the row's axis: tiles of columns are long along both axes, rows along their own only.
int BlockFacts::find_contiguous_axis() const {
  auto most_along = [&](const auto& weight) {
    std::pair<int, double> best{-1, 0};
    for (size_t i = 0; i < d.axes.size(); ++i) {
      double bytes = 0;
      for (const Stream& s : streams) bytes += contiguous(s, i) ? weight(i, s) : 0;
      if (bytes > 0 && bytes >= best.second) best = {static_cast<int>(i), bytes};
    }
    return best;
  };
  auto bytes = [](const Stream& s) { return s.count * s.bytes; };
  const auto [axis, most] = most_along([&](size_t, const Stream& s) { return bytes(s) * (s.store ? 1.01 : 1); });
  if (axis < 0) return static_cast<int>(d.axes.size()) - 1;
  const size_t c = static_cast<size_t>(axis);
  if (!d.reduces || !is_row(c)) return axis;
  const auto [outer, crosswise] = most_along([&](size_t i, const Stream& s) {
    bool instead = (s.deps >> c & 1) && !contiguous(s, c) && s.count >= largest / 2;
    return instead && !is_row(i) && guess(extent(i)) * s.bytes >= static_cast<double>(device.sector_bytes) ? bytes(s)
                                                                                                           : 0;
  });
  return crosswise * 8 >= most ? outer : axis;
}

Multiple BlockFacts::multiple(const SymExpr& extent, int64_t k) const {
  SymExpr e = d.env.simplify(extent);
  int64_t divisor = d.env.divisor(e);
  if (divisor % k == 0) return {true, std::nullopt};
  if (e.is_const()) return {};
  if (e.op() == SymOp::Mul)
    for (size_t i = e.args().size(); i-- > 0;)
      if (e.args()[i].is_symbol()) {
        const SymExpr& s = e.args()[i];
        int64_t rest = std::max<int64_t>(1, divisor / std::max<int64_t>(1, d.env.divisor(s)));
        return {false, SizeCondition{s, k / std::gcd(k, rest)}};
      }
  return {false, SizeCondition{e, k}};
}

Multiple BlockFacts::row_multiple(int64_t k) const {
  const Multiple inner = multiple(extent(static_cast<size_t>(contiguous_axis)), k);
  return inner.known || !multiple(row_run(), k).known ? inner : Multiple{true, std::nullopt};
}

SymExpr BlockFacts::row_run() const {
  const auto inner = static_cast<size_t>(contiguous_axis);
  SymExpr run = extent(inner);
  for (size_t i = inner; i-- > 0 && is_row(i);) {
    const bool follows = std::all_of(streams.begin(), streams.end(), [&](const Stream& s) {
      if (s.count < largest / 2) return true;
      const auto linear = s.access->offset.linear_in(d.axes[i].var);
      return linear && contiguous(s, inner) && d.env.simplify(linear->first - run).is_const(0);
    });
    if (!follows) break;
    run = d.env.simplify(run * extent(i));
  }
  return run;
}

bool BlockFacts::divides() const {
  bool first = true;
  for (size_t i = 0; i < d.axes.size(); ++i)
    if (is_row(i) && !std::exchange(first, false) && !constant(extent(i))) return true;
  return false;
}

int64_t exchange_bytes(const BlockFacts& f, int64_t elements, size_t along) {
  constexpr int64_t kReductions = 2 << 10;
  int64_t bytes = 0; // double buffered, so that there are fewer barriers
  for (const Stream& s : f.streams)
    if (s.count >= f.largest / 2 && !f.contiguous(s, along)) {
      int each = s.bytes;
      for (const auto& term : s.access->terms) // the index is exchanged, too
        each = std::max(each, info(f.nest.dag[term.first].dtype).bits / 8);
      bytes = std::max(bytes, 2 * elements * each);
    }
  return bytes + kReductions;
}

int64_t BlockFacts::loaded_bytes() const {
  int64_t loaded = 0;
  for (const Stream& s : streams)
    if (!s.store && s.count >= largest / 2) loaded += s.bytes;
  return std::max<int64_t>(1, loaded);
}
bool BlockFacts::masks() const {
  return std::any_of(streams.begin(), streams.end(),
                     [&](const Stream& s) { return !s.store && s.count >= largest / 2 && s.bytes == 1; });
}
bool BlockFacts::strided_rows() const {
  const auto c = static_cast<size_t>(contiguous_axis);
  return is_row(c) && std::any_of(streams.begin(), streams.end(), [&](const Stream& s) {
           return !s.store && s.count >= largest / 2 && (s.deps >> c & 1) && !contiguous(s, c);
         });
}

int BlockFacts::compute_bytes() const {
  std::vector<char> value(d.live.size());
  int bytes = 1;
  for (const Store& s : nest.stores) value[static_cast<size_t>(s.scalar)] = 1;
  for (ScalarId id = nest.dag.size() - 1; id >= 0; --id) {
    if (!value[static_cast<size_t>(id)]) continue;
    const ScalarNode& n = nest.dag[id];
    if (n.op != ScalarOp::Index && n.op != ScalarOp::Const)
      bytes = std::max(bytes, info(compute_dtype(n.dtype)).bits / 8);
    if (n.op == ScalarOp::Load || n.op == ScalarOp::CheckBounds) continue;
    for (ScalarId a : n.args) value[static_cast<size_t>(a)] = 1;
  }
  return bytes;
}

int BlockFacts::accumulators() const {
  int n = 0;
  for (size_t i = 0; i < d.live.size(); ++i) {
    const ScalarNode& r = nest.dag[static_cast<ScalarId>(i)];
    if (!d.live[i] || r.op != ScalarOp::Reduce) continue;
    n = std::max(n, r.reduce == ReduceKind::ArgMax || r.reduce == ReduceKind::ArgMin ? 3 : 1);
  }
  return n;
}

// Results that this nest does not store, mostly views, give other readers access to the value.
bool BlockFacts::read_elsewhere(ValueId value) const {
  if (graph.constant(value)) return true;
  auto has = [](const auto& list, const auto& x) { return std::find(list.begin(), list.end(), x) != list.end(); };
  if (users_.empty()) users_ = graph.users();
  std::vector<ValueId> values{value};
  for (size_t v = 0; v < values.size(); ++v)
    for (NodeId user : users_[static_cast<size_t>(values[v].index)]) {
      if (!has(nest.sources, user)) return true;
      for (ValueId result : graph.node(user).results) {
        auto stored = [&](const Store& s) { return s.value == result; };
        if (std::none_of(nest.stores.begin(), nest.stores.end(), stored) && !has(values, result))
          values.push_back(result);
      }
    }
  return false;
}

// Measured on an H200 with an L2 full of modified lines. Data larger than the L2 should replace these lines rather than
// lines that are read, because reads and writes then are longer bursts. But results that stay in L2 until another
// kernel reads them should be kept, and dead values be evicted first. Reductions have no large results and are fastest
// with the fewest L1 allocations.
bool BlockFacts::stores_rows() const {
  for (size_t i = 0; i < d.stores.size(); ++i) {
    uint64_t deps = d.deps[static_cast<size_t>(nest.stores[i].scalar)] | d.axes_in(d.stores[i].offset);
    if (deps & d.row_mask) return true;
  }
  return false;
}
bool BlockFacts::one_pass() const {
  if (stores_rows()) return false;
  Domain own = d;
  (void)find_online(nest, own);
  for (size_t i = 0; i < own.live.size(); ++i)
    if (own.live[i] && own.stage[i] > 1) return false;
  return true;
}
Placement BlockFacts::row_placement() const {
  Placement p;
  for (size_t i = 0; i < d.axes.size(); ++i) (is_row(i) ? p.column_axes : p.row_axes) |= uint64_t{1} << i;
  return p;
}
int64_t BlockFacts::shared_room(int64_t blocks, int64_t exchange) const {
  return (device.shared_bytes + device.reserved_shared_bytes) / blocks - device.reserved_shared_bytes - exchange;
}
int64_t BlockFacts::tiles_in_shared(int64_t elements, int64_t bytes, int64_t blocks, int64_t exchange) const {
  return bytes > 0 ? std::max<int64_t>(0, shared_room(blocks, exchange) / (elements * bytes)) : 0;
}
std::vector<CachedValue> BlockFacts::cached_values(bool online) const {
  Domain own = d;
  OnlineSums sums;
  if (online) sums = find_online(nest, own);
  const Stages stages = plan_stages(nest, own);
  uint64_t row = 0, others = 0;
  for (size_t i = 0; i < d.axes.size(); ++i) (is_row(i) ? row : others) |= uint64_t{1} << i;
  const bool along = is_row(static_cast<size_t>(contiguous_axis)); // one row at a time
  return find_cached_values(graph, nest, own, stages, sums, along ? std::vector{row} : std::vector{row, others});
}
int64_t BlockFacts::cached_element_bytes(bool online) const {
  int64_t& known = cached_bytes_[online ? 0 : 1];
  if (known < 0) known = cached_bytes(cached_values(online));
  return known;
}
bool BlockFacts::keeps_stream(bool online) const {
  if (loaded_bytes() != average_bytes || masks() || strided_rows()) return false;
  const std::vector<CachedValue> values = cached_values(online);
  return values.size() == 1 && nest.dag[values.front().id].op == ScalarOp::Load;
}

tile::Caching BlockFacts::reads(bool again) const {
  constexpr double kSmallPart = 0.125; // of the level-2 cache: such tensors stay there whatever the hints
  constexpr double kFew = 0.125;       // stored bytes relative to read bytes
  const uint64_t all = (uint64_t{1} << d.axes.size()) - 1;
  double read = 0, stored = 0;
  bool dead = true;
  for (size_t i = 0; i < d.axes.size(); ++i)
    if (!seen(extent(i))) return tile::Caching::Normal;
  for (auto s = streams.begin(); s != streams.end(); ++s) {
    (s->store ? stored : read) += s->count * s->bytes;
    if (s->store || s->deps != all) continue;
    again |= std::any_of(streams.begin(), s, [&](const Stream& t) {
      return !t.store && t.deps == all && t.access->buffer == s->access->buffer;
    });
  }
  if (stored < kFew * read) return again ? tile::Caching::Normal : tile::Caching::NoAllocate;
  const bool awaited =
      stored < static_cast<double>(device.l2_bytes) &&
      std::any_of(nest.stores.begin(), nest.stores.end(), [&](const Store& s) { return read_elsewhere(s.value); });
  if (read + stored < kSmallPart * static_cast<double>(device.l2_bytes)) return tile::Caching::Normal;
  if (!awaited) return tile::Caching::EvictLast;
  if (again) return tile::Caching::Normal;
  for (const Stream& s : streams)
    dead = dead && (s.store || s.deps != all || !read_elsewhere(d.buffers[static_cast<size_t>(s.access->buffer)]));
  return dead ? tile::Caching::EvictFirst : tile::Caching::NoAllocate;
}

Schedule BlockFacts::schedule(ScheduleKind kind, int64_t rows, int64_t columns, int64_t warps) {
  Schedule s;
  s.kind = kind;
  s.tile.rows = static_cast<int>(rows);
  s.tile.columns = static_cast<int>(columns);
  s.tile.warps = static_cast<int>(std::clamp<int64_t>(warps, 1, 32));
  return s;
}
std::string BlockFacts::sizes(const Schedule& s) {
  const TileShape& t = s.tile;
  int64_t elements = int64_t{t.rows} * t.columns, threads = int64_t{32} * t.warps;
  return "tile [" + std::to_string(t.rows) + ", " + std::to_string(t.columns) + "] on " + std::to_string(t.warps) +
         (t.warps == 1 ? " warp, " : " warps, ") + std::to_string(std::max<int64_t>(1, elements / threads)) +
         " elements a thread";
}

int peel_access(const Schedule& s) {
  const bool walks = s.traversal.loop || s.kind == ScheduleKind::BlockCooperative;
  return s.tile.contiguous > 1 && walks ? std::min(s.tile.contiguous, s.access.alignment_peel)
                                        : s.access.alignment_peel;
}

} // namespace tessera
