#include "codegen/schedule/lower/lowering.h"
#include <algorithm>
#include <array>

namespace tessera {

namespace loops {

ScheduledKernel Lowering::run() {
  c_.add_buffers();
  if (c_.parts > 1) split_.add_parameters();
  program();
  overwritable();
  out_.sizes = sizes_.sizes();
  for (const SymExpr& s : out_.sizes) TESSERA_CHECK(d_.axes_in(s) == 0, "a size parameter with an axis: " + s.str());
  return std::move(out_);
}

// The part of each loop that a program takes, so that it moves about program_bytes.
void Lowering::program_sizes() {
  int64_t bytes = 0;
  auto count = [&](const Access& a) {
    if (d_.access_deps(a)) bytes += info(graph_.type(d_.buffers[static_cast<size_t>(a.buffer)]).dtype).bits / 8;
  };
  for (size_t i = 0; i < d_.live.size(); ++i)
    if (d_.live[i] && node(static_cast<ScalarId>(i)).op == ScalarOp::Load) count(d_.loads[i]);
  for (const Access& a : d_.stores) count(a);
  int64_t target = std::max<int64_t>(c_.wide, schedule_.traversal.program_bytes / std::max<int64_t>(1, bytes));

  SymExpr row = d_.reduces ? d_.row_count() : SymExpr(1), width = 1, taken = 1;
  columns_ = 1;
  if (!is_row_loop() && c_.tile_axis >= 0) {
    width = tile_axis().extent;
    // Each cache line of a transposed operand serves many points of the cross axis: a block is narrow, so that the
    // lines of its tile are still cached for the next points.
    columns_ = d_.reduces ? sym_max(1, floordiv(target, sym_max(1, ceildiv(row, c_.parts) * c_.wide))) * c_.wide
               : c_.cross_axis >= 0 ? SymExpr(c_.wide)
                                    : SymExpr((target + c_.wide - 1) / c_.wide * c_.wide);
    taken = sym_min(columns_, width);
  }
  auto simple = [&](const SymExpr& e) { return d_.env.simplify(e); };
  column_blocks_ = simple(ceildiv(width, columns_));
  SymExpr middle = c_.middle >= 0 ? axis(static_cast<size_t>(c_.middle)).extent : SymExpr(1), prefix = 1;
  for (size_t i : c_.prefix) prefix *= axis(i).extent;
  middle_rows_ = c_.middle < 0 || c_.parts > 1 // one row per step
                     ? SymExpr(1)
                     : simple(sym_max(1, sym_min(middle, floordiv(target, sym_max(1, taken * row)))));
  if (c_.square > 1) middle_rows_ = simple(sym_max(c_.square, floordiv(middle_rows_, c_.square) * c_.square));
  middle_blocks_ = simple(ceildiv(middle, middle_rows_));
  points_ = c_.prefix.empty() || c_.parts > 1 ? SymExpr(1)
                                              : simple(sym_max(1, floordiv(target, sym_max(1, width * row * middle))));
  point_blocks_ = simple(ceildiv(prefix, points_));
  columns_ = simple(columns_);
  out_.grid = simple(point_blocks_ * middle_blocks_ * column_blocks_);
  out_.work_per_program = simple(points_ * middle_rows_ * taken * ceildiv(row, c_.parts));
  if (c_.parts > 1) split_.add_sizes();
}

void Lowering::program() {
  program_sizes();
  prefetches_.plan();

  scalars_.reserve_cached();
  scalars_.hoist(0);
  const V number = b_.program_id(0);
  outer_points(c_.parts > 1 ? split_.take_part(number) : number);
}

// Decomposes the program index and loops over the program's outer points.
void Lowering::outer_points(V block) {
  V column_block = -1, middle_block = -1;
  auto take = [&](const SymExpr& blocks, bool last) {
    if (blocks.is_const(1)) return sizes_.number(0);
    if (last) return block;
    V n = sizes_.number(blocks), part = op(ScalarOp::Mod, block, n);
    block = op(ScalarOp::Div, block, n);
    return part;
  };
  bool points_last = point_blocks_.is_const(1), middle_last = points_last && middle_blocks_.is_const(1);
  column_block = take(column_blocks_, middle_last);
  middle_block = take(middle_blocks_, points_last);

  auto middle_rows = [&] {
    if (c_.middle < 0) return inner(column_block);
    const Axis& m = axis(static_cast<size_t>(c_.middle));
    V rows = sizes_.number(middle_rows_), from = op(ScalarOp::Mul, middle_block, rows);
    auto row = [&](V i, const Values&) -> Values {
      sizes_.bind(m.var, i);
      scalars_.hoist(outer_axes() | uint64_t{1} << c_.middle);
      inner(column_block);
      return {};
    };
    if (middle_rows_.is_const(1)) {
      memo_.scoped([&] { return row(from, {}); });
      return;
    }
    V end = sizes_.number(m.extent);
    V to = middle_blocks_.is_const(1) ? end : op(ScalarOp::Min, op(ScalarOp::Add, from, rows), end);
    if (c_.square > 1) from = squares(column_block, from, to);
    if (c_.square == 1 || !in_squares(m)) row_loop_.loop(from, to, 1, {}, row);
  };
  if (c_.prefix.empty()) return middle_rows();
  SymExpr all = 1;
  for (size_t p : c_.prefix) all *= axis(p).extent;
  V points = sizes_.number(points_), from = points_last ? sizes_.number(0) : op(ScalarOp::Mul, block, points);
  auto point = [&](V i, const Values&) -> Values {
    decode(i);
    scalars_.hoist(outer_axes());
    middle_rows();
    return {};
  };
  if (points_.is_const(1)) {
    memo_.scoped([&] { return point(from, {}); });
    return;
  }
  V end = sizes_.number(all);
  row_loop_.loop(from, points_last ? end : op(ScalarOp::Min, op(ScalarOp::Add, from, points), end), 1, {}, point);
}

// The axes of a flattened outer point, the last one fastest.
void Lowering::decode(V point) {
  for (size_t i = c_.prefix.size(); i-- > 0;) {
    const Axis& a = axis(c_.prefix[i]);
    if (i == 0) {
      sizes_.bind(a.var, point);
      continue;
    }
    V n = sizes_.number(a.extent);
    sizes_.bind(a.var, op(ScalarOp::Mod, point, n));
    point = op(ScalarOp::Div, point, n);
  }
}

Range Lowering::tile_range(V column_block) {
  const Axis& a = tile_axis();
  Range range{sizes_.number(0), sizes_.number(a.extent), a.extent, column_blocks_.is_const(1)};
  if (range.whole) return range;
  V columns = sizes_.number(columns_);
  range.from = op(ScalarOp::Mul, column_block, columns);
  range.to = op(ScalarOp::Min, op(ScalarOp::Add, range.from, columns), range.to);
  return range;
}

uint64_t Lowering::outer_axes() const {
  uint64_t axes = 0;
  for (size_t p : c_.prefix) axes |= uint64_t{1} << p;
  return axes;
}
bool Lowering::in_squares(const Axis& a) const { return d_.env.divisor(d_.env.simplify(a.extent)) % c_.square == 0; }

// Rows of the cross axis from `from` on, one square's rows per step, with square tiles: operands that are contiguous
// along either axis are read in vectors. Tiles behind the last square of these rows are masked, one row at a time.
// Returns the first remaining row.
V Lowering::squares(V column_block, V from, V to) {
  const Axis &m = axis(static_cast<size_t>(c_.middle)), &a = tile_axis();
  const uint64_t bound = outer_axes() | uint64_t{1} << c_.middle;
  auto whole = [&](const Axis& x, V begin, V end) {
    if (in_squares(x)) return end;
    V length = op(ScalarOp::Sub, end, begin);
    return op(ScalarOp::Add, begin, op(ScalarOp::And, length, sizes_.constant(-c_.square)));
  };
  V last = whole(m, from, to);
  row_loop_.loop(from, last, c_.square, {}, [&](V i, const Values&) -> Values {
    const Range range = tile_range(column_block);
    V end = whole(a, range.from, range.to);
    memo_.scoped([&] {
      sizes_.bind_tile(m.var, i, c_.square, 0, 2);
      c_.in_square = true;
      scalars_.hoist(bound);
      row_loop_.loop(range.from, end, c_.square, {}, [&](V j, const Values&) -> Values {
        sizes_.bind_tile(a.var, j, c_.square, 1, 2);
        scalars_.store_all();
        return {};
      });
      sizes_.unbind_tile();
      c_.in_square = false;
    });
    if (in_squares(a)) return {};
    V rows_end = op(ScalarOp::Add, i, sizes_.constant(c_.square));
    row_loop_.loop(i, rows_end, 1, {}, [&](V row, const Values&) -> Values {
      sizes_.bind(m.var, row);
      scalars_.hoist(bound);
      row_loop_.walk({c_.vector, end, range.to, std::nullopt, true}, a.var, range.to, {}, [&](const Values&) -> Values {
        scalars_.store_all();
        return {};
      });
      return {};
    });
    return {};
  });
  return last;
}

void Lowering::inner(V column_block) {
  if (is_row_loop()) return c_.parts > 1 ? split_.round() : rounds_.rounds();
  if (c_.tile_axis < 0) return scalars_.store_all();
  const Axis& a = tile_axis();
  const Range range = tile_range(column_block);
  auto each_tile = [&](const std::function<void()>& body) {
    for (const Phase& p : row_loop_.phases(range))
      row_loop_.walk(p, a.var, range.to, {}, [&](const Values&) -> Values {
        body();
        return {};
      });
  };
  if (c_.parts > 1) return split_.columns(each_tile);
  each_tile([&] { d_.reduces ? rounds_.rounds() : scalars_.store_all(); });
}

// Inputs whose memory an output may reuse: read only at the offset that the output writes, and by no later stage.
void Lowering::overwritable() {
  out_.may_overwrite.resize(d_.buffers.size());
  for (size_t s = 0; s < d_.stores.size(); ++s) {
    const Access& w = d_.stores[s];
    bool row = (d_.axes_in(w.offset) & d_.row_mask) != 0;
    bool last = !row ||
                d_.stage[static_cast<size_t>(nest_.stores[s].scalar)] + 1 == static_cast<int>(stages_.stages.size()) ||
                !d_.reduces;
    if (!last) continue;
    // Values that an earlier stage cached in it overwrite the input from then on.
    int first = static_cast<int>(stages_.stages.size()) - 1;
    for (size_t k = 0; k < scalars_.homes().size(); ++k)
      if (scalars_.homes()[k] == static_cast<int>(s)) first = d_.stage[k];
    auto read_later = [&](int b) {
      for (size_t round = static_cast<size_t>(first + 1); row && round < stages_.stages.size(); ++round)
        for (ScalarId id : loads_of_round(round))
          if (d_.loads[static_cast<size_t>(id)].buffer == b) return true;
      return false;
    };
    for (int b : read_only_where(graph_, nest_, d_, w))
      if (!read_later(b)) out_.may_overwrite[static_cast<size_t>(w.buffer)].push_back(b);
  }
}

} // namespace loops

Result<ScheduledKernel> lower_to_tiles(const Graph& graph, const LoopNest& nest, const Schedule& s,
                                       const std::string& name, const LoweringOptions& options) {
  CheckContext context("schedule of " + name);
  TESSERA_ASSIGN(Domain domain, make_domain(graph, nest));
  const int axis = s.placement.axis, cross = s.placement.cross_axis, square = s.tile.square;
  auto power = [](int64_t n) { return n >= 1 && n <= 4096 && (n & (n - 1)) == 0; };
  const auto axes = static_cast<int>(domain.axes.size());
  bool in_range = axis >= 0 && axis < axes;
  bool row = in_range && domain.axes[static_cast<size_t>(axis)].role == AxisRole::Row;
  bool crossed = s.kind == ScheduleKind::Tiled2D && in_range && cross >= 0 && cross != axis && cross < axes;
  const bool squares = square == 1 || (power(square) && (!crossed || squares_fit(nest, domain)));
  ScheduleKind want = domain.reduces ? (row ? ScheduleKind::RowLoop : ScheduleKind::ColumnLoop)
                      : crossed      ? ScheduleKind::Tiled2D
                                     : ScheduleKind::Flat;
  const bool tiles = power(s.tile.vector) && power(s.tile.unroll);
  const int64_t chunk = s.traversal.chunk;
  const bool chunks = !s.traversal.online || (tiles && chunk > 0 && row && online_fits(nest, domain) &&
                                              chunk % (int64_t{s.tile.vector} * s.tile.unroll) == 0);
  if ((!in_range && !(axis == -1 && domain.axes.empty())) || !tiles || !squares || !chunks || s.kind != want)
    return Diagnostic(ErrorCode::CodegenError, "schedule '" + print(s) + "' does not fit kernel '" + name + "'");
  OnlineSums online;
  if (s.traversal.online) online = find_online(nest, domain);
  const int parts = s.cooperation.programs_per_row;
  if (!power(parts) || (parts > 1 && !splits(nest, domain, s.kind)))
    return Diagnostic(ErrorCode::CodegenError,
                      "rows of kernel '" + name + "' cannot be shared by " + std::to_string(parts) + " programs");
  loops::Context kernel(graph, nest, domain, std::move(online), s, name);
  kernel.exact_division = options.exact_division;
  return loops::Lowering(kernel).run();
}

} // namespace tessera
