// The analytic choice: which axis the tile runs along, how wide, how much a program takes.
#include "codegen/schedule/choose.h"
#include "codegen/schedule/lower/fold.h"
#include "codegen/schedule/lower/lowering.h"
#include <algorithm>
#include <bit>

namespace tessera {
namespace {

constexpr int64_t kUnknownExtent = 256;  // an extent of which nothing is known
constexpr int64_t kPrograms = 64;        // that shared rows are divided into
constexpr int64_t kPartBytes = 64 << 10; // of each, at least
constexpr int64_t kPartPoints = 32;      // down columns, at least
constexpr int64_t kChunk = 4096;         // elements of a row that fit the first-level cache, of two streams as well
constexpr double kGatherShare = 0.7;     // cost of a gathered lane, in contiguous vector loads

class Chooser {
public:
  Chooser(const Graph& graph, const LoopNest& nest, const Domain& d, const Target& device)
      : graph_(graph), nest_(nest), d_(d), device_(device) {}

  HostChoice run() {
    Schedule s;
    int vector = std::max(1, std::min(64, device_.vector_bytes / element_bytes()));
    int best = -1, strided = 0;
    double best_cost = 0;
    for (size_t i = 0; i < d_.axes.size(); ++i) {
      int off = 0;
      double cost = axis_cost(i, vector, &off);
      // Later axes win ties: they are inner in the buffers.
      if (best < 0 || cost <= best_cost) {
        best = static_cast<int>(i);
        best_cost = cost;
        strided = off;
      }
    }
    bool row = best >= 0 && d_.axes[static_cast<size_t>(best)].role == AxisRole::Row;
    s.kind = !d_.reduces ? ScheduleKind::Flat : row ? ScheduleKind::RowLoop : ScheduleKind::ColumnLoop;
    int unroll = pick_unroll();
    // A short axis is one tile, narrower where it must be.
    int64_t lanes = int64_t{vector} * unroll;
    std::optional<int64_t> extent;
    if (best >= 0) extent = d_.env.simplify(d_.axes[static_cast<size_t>(best)].extent).as_const();
    if (s.kind == ScheduleKind::ColumnLoop && extent) unroll = std::max(unroll, column_unroll());
    if (extent && *extent >= 1) {
      while (unroll > 1 && int64_t{vector} * unroll > *extent) unroll /= 2;
      while (vector > 1 && vector / 2 >= *extent) vector /= 2;
      lanes = int64_t{vector} * unroll;
    }
    if (int cross = s.kind == ScheduleKind::Flat && best >= 0 ? crossing(static_cast<size_t>(best)) : -1; cross >= 0) {
      s.kind = ScheduleKind::Tiled2D;
      s.placement.cross_axis = cross;
      constexpr int kLaneBytes = 4; // of host code's vectors, llvm/emit.h
      const bool vectors = vector > 1 && vector * kLaneBytes == device_.vector_bytes;
      s.tile.square = vectors && squares_fit(nest_, d_) ? vector : 1;
    }
    s.placement.axis = best;
    s.tile.vector = vector;
    s.tile.unroll = unroll;
    s.traversal.program_bytes = dear() ? 16 << 10 : 64 << 10;
    s.traversal.prefetch_bytes = std::max<int64_t>(32 << 10, device_.l2_bytes / 8);
    const bool cached = extent_guess(d_.row_count()) * element_bytes() <= device_.l2_bytes / 2;
    // A longer row would go to memory twice.
    s.residency.cache_in_output = cached;
    if (s.kind == ScheduleKind::RowLoop && !cached && folds_online())
      s.traversal.online = true, s.traversal.chunk = std::max<int64_t>(lanes, kChunk);
    if (s.kind == ScheduleKind::RowLoop || s.kind == ScheduleKind::ColumnLoop) split(s, lanes, cached);
    // Where a point is dear, few of them are under way at a time, and each would wait for memory.
    if (s.kind == ScheduleKind::ColumnLoop) s.traversal.prefetch_points = dear() ? 8 : 0;
    return {s, explain(s, best, lanes, strided), ""};
  }

private:
  int64_t extent_guess(const SymExpr& e) const {
    if (auto c = d_.env.simplify(e).as_const()) return std::max<int64_t>(1, *c);
    if (auto h = graph_.env().hint(e)) return std::max<int64_t>(1, *h);
    return std::min(kUnknownExtent, std::max<int64_t>(1, d_.env.range(e).hi));
  }

  // Bytes of the widest element that is computed with; indices of gathers do not count.
  int element_bytes() const {
    std::vector<char> value(d_.live.size());
    int bytes = 1;
    for (const Store& s : nest_.stores) value[static_cast<size_t>(s.scalar)] = 1;
    for (ScalarId id = nest_.dag.size() - 1; id >= 0; --id) {
      if (!value[static_cast<size_t>(id)]) continue;
      const ScalarNode& n = nest_.dag[id];
      if (n.op != ScalarOp::Index && n.op != ScalarOp::Const)
        bytes = std::max(bytes, info(compute_dtype(n.dtype)).bits / 8);
      if (n.op == ScalarOp::Load || n.op == ScalarOp::CheckBounds) continue;
      for (ScalarId a : n.args) value[static_cast<size_t>(a)] = 1;
    }
    return bytes;
  }

  // Cycles for one vector of points with the tile along axis i, per useful lane.
  double axis_cost(size_t i, int vector, int* strided) const {
    const Axis& axis = d_.axes[i];
    uint64_t bit = uint64_t{1} << i;
    double cost = 0.5;
    auto add = [&](const Access& a) {
      double one = 0.1; // the same for all lanes
      if (d_.access_deps(a) & bit) {
        auto linear = a.offset.linear_in(axis.var);
        bool contiguous = linear && linear->first.is_const(1);
        for (const auto& [node, stride] : a.terms)
          contiguous = contiguous && !(d_.deps[static_cast<size_t>(node)] & bit);
        bool uniform = linear && linear->first.is_const(0) && !contiguous && a.terms.empty();
        one = contiguous ? 1 : uniform ? 0.5 : kGatherShare * vector;
        *strided += !contiguous && !uniform;
      }
      cost += one;
    };
    for (size_t n = 0; n < d_.live.size(); ++n)
      if (d_.live[n] && nest_.dag[static_cast<ScalarId>(n)].op == ScalarOp::Load) add(d_.loads[n]);
    for (const Access& a : d_.stores) add(a);
    int64_t extent = extent_guess(axis.extent), width = vector;
    while (width > 1 && width / 2 >= extent) width /= 2; // narrow tiles cost what a full one does
    int64_t rounds = (extent + width - 1) / width;
    cost *= static_cast<double>(rounds * vector) / static_cast<double>(extent);
    if (axis.role == AxisRole::Row) { // each row ends with folds over the lanes
      int folds = 0;
      for (size_t n = 0; n < d_.live.size(); ++n)
        folds += d_.live[n] && nest_.dag[static_cast<ScalarId>(n)].op == ScalarOp::Reduce;
      cost += (20 + 15.0 * folds) * vector / static_cast<double>(extent_guess(d_.row_count()));
    } else { // indices of the other axes are computed once a row; down columns once for all of their points
      cost += 10.0 * vector / static_cast<double>(extent) / static_cast<double>(extent_guess(d_.row_count()));
    }
    return cost;
  }

  // The axis along which an access is contiguous that strides along the tile's axis: a transposed operand. -1: none.
  int crossing(size_t tile) const {
    int found = -1;
    auto look = [&](const Access& a) {
      if (found >= 0 || !a.terms.empty() || (d_.access_deps(a) & (uint64_t{1} << tile)) == 0) return;
      if (auto along = a.offset.linear_in(d_.axes[tile].var); along && along->first.is_const(1)) return;
      for (size_t i = 0; i < d_.axes.size(); ++i) {
        auto linear = a.offset.linear_in(d_.axes[i].var);
        if (i != tile && linear && linear->first.is_const(1)) found = static_cast<int>(i);
      }
    };
    for (size_t n = 0; n < d_.live.size(); ++n)
      if (d_.live[n] && nest_.dag[static_cast<ScalarId>(n)].op == ScalarOp::Load) look(d_.loads[n]);
    for (const Access& a : d_.stores) look(a);
    return found;
  }

  // Few long rows and few columns are shared by programs, as many whatever the threads: then results are the same.
  void split(Schedule& s, int64_t lanes, bool cached) const {
    const bool rows = s.kind == ScheduleKind::RowLoop;
    SymExpr outer = 1, first = -1; // points; and down columns those of the axis that is divided
    for (const Axis& a : d_.axes) {
      if (a.role != AxisRole::Row) outer *= a.extent;
      if (a.role == AxisRole::Row && first.is_const(-1)) first = a.extent;
    }
    const auto count = d_.env.simplify(outer).as_const(), length = d_.env.simplify(d_.row_count()).as_const(),
               divided = d_.env.simplify(first).as_const();
    if (!count || !length || !divided) return; // memory for parts of any number of rows
    const int64_t side = rows ? 1 : std::min(lanes, std::max<int64_t>(1, *count)); // of columns at a time
    const int64_t programs = std::max<int64_t>(1, *count / side), bytes = *length * side * element_bytes();
    const int64_t parts =
        std::min({kPrograms / programs, bytes / kPartBytes, rows ? kPrograms : *divided / kPartPoints});
    if (parts < 2) return;
    Domain own = d_;
    if (rows && !cached) (void)find_online(nest_, own); // as the schedule folds
    if (splits(nest_, own, s.kind))
      s.cooperation.programs_per_row = 1 << (std::bit_width(static_cast<uint64_t>(parts)) - 1);
  }

  bool folds_online() const {
    Domain own = d_;
    const OnlineSums sums = find_online(nest_, own);
    return online_fits(nest_, d_) &&
           std::any_of(sums.begin(), sums.end(), [](const OnlineSum& s) { return s.kind != OnlineSum::Kind::None; });
  }

  bool dear() const {
    int cost = 0;
    for (size_t n = 0; n < d_.live.size(); ++n)
      if (d_.live[n]) cost += std::max(0, info(nest_.dag[static_cast<ScalarId>(n)].op).cost);
    return cost >= 16;
  }

  // As many vectors a step as leave the values alive at a time, and the temporaries of the dearest function, in 32
  // registers.
  int pick_unroll() const {
    int dearest = 0;
    for (ScalarId id = 0; id < nest_.dag.size(); ++id)
      if (d_.live[static_cast<size_t>(id)]) dearest = std::max(dearest, info(nest_.dag[id].op).cost);
    int fit = std::clamp(32 / (values_alive(nest_, d_) + (dearest >= 8 ? 4 : 1)), 1, std::max(1, device_.unroll));
    return static_cast<int>(std::bit_floor(static_cast<unsigned>(fit)));
  }

  // Points down a column lie on other pages: where they cost little but memory's time, as many neighbours are taken at
  // a time as half of the registers have room for.
  int column_unroll() const {
    if (dear() || device_.unroll < 4) return 1;
    int numbers = 0;
    for (ScalarId id = 0; id < nest_.dag.size(); ++id) {
      if (!d_.live[static_cast<size_t>(id)] || nest_.dag[id].op != ScalarOp::Reduce) continue;
      if (d_.stage[static_cast<size_t>(id)] > 1) return 1; // several rounds
      numbers += is_arg_fold(nest_.dag[id]) ? 3 : 1;
    }
    const int registers = device_.vector_bytes >= 64 ? 16 : 8;
    return static_cast<int>(std::bit_floor(static_cast<unsigned>(std::max(1, registers / std::max(1, numbers)))));
  }

  [[nodiscard]] std::string explain(const Schedule& s, int axis, int64_t lanes, int strided) const {
    if (axis < 0) return "a single point: scalars";
    const Axis& a = d_.axes[static_cast<size_t>(axis)];
    std::string why = "tiles of " + std::to_string(lanes) + " along an axis of " + d_.env.simplify(a.extent).str();
    if (s.kind == ScheduleKind::RowLoop) why = "row of " + d_.env.simplify(d_.row_count()).str() + "; " + why;
    if (s.kind == ScheduleKind::ColumnLoop) why = "the row is not contiguous, an outer axis is; " + why;
    if (s.kind == ScheduleKind::Tiled2D)
      why += ", in blocks along an axis of " +
             d_.env.simplify(d_.axes[static_cast<size_t>(s.placement.cross_axis)].extent).str() +
             " on which a transposed operand is contiguous";
    if (const int64_t chunk = s.traversal.chunk; chunk > 0)
      why += "; longer than the cache: sums are folded with what they depend on, " + std::to_string(chunk) +
             " elements at a time";
    if (const int64_t parts = s.cooperation.programs_per_row; parts > 1)
      why += "; shared by " + std::to_string(parts) + " programs, the last one folds what they found";
    if (strided)
      why += "; " + std::to_string(strided) + (strided == 1 ? " access is" : " accesses are") + " strided or gathered";
    return why;
  }

  const Graph& graph_;
  const LoopNest& nest_;
  const Domain& d_;
  const Target& device_;
};

} // namespace

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

HostChoice choose_for(const Graph& graph, const LoopNest& nest, const Domain& domain, const Target& device) {
  return Chooser(graph, nest, domain, device).run();
}
HostChoice choose_schedule(const Graph& graph, const LoopNest& nest, const Target& device) {
  Result<Domain> domain = make_domain(graph, nest);
  if (domain.ok()) return choose_for(graph, nest, *domain, device);
  return {{}, domain.error().message, ""}; // lower_to_tiles reports the same error
}

} // namespace tessera
