#include "codegen/schedule/lower/lowering.h"
#include <algorithm>
#include <array>

namespace tessera {
namespace {

std::string identifier(const std::string& name) {
  std::string s;
  for (char c : name) s += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return s.empty() ? "kernel" : s;
}

} // namespace

// Rows of one axis, and nothing that reports: chunks are read twice.
bool online_fits(const LoopNest& nest, const Domain& d) {
  const auto rows = std::count_if(d.axes.begin(), d.axes.end(), [](const Axis& a) { return a.role == AxisRole::Row; });
  for (ScalarId id = 0; id < nest.dag.size(); ++id)
    if (d.live[static_cast<size_t>(id)] && nest.dag[id].op == ScalarOp::CheckBounds && d.row_varying(id)) return false;
  return rows == 1;
}

// Nothing is gathered or masked: the rest yields numbers, rows, columns and squares, whatever it computes.
bool squares_fit(const LoopNest& nest, const Domain& d) {
  for (size_t n = 0; n < d.live.size(); ++n) {
    if (!d.live[n]) continue;
    const ScalarOp op = nest.dag[static_cast<ScalarId>(n)].op;
    if (op == ScalarOp::CheckBounds) return false;
    if (op == ScalarOp::Load && (!d.loads[n].terms.empty() || d.loads[n].predicate >= 0)) return false;
  }
  return std::all_of(d.stores.begin(), d.stores.end(), [](const Access& a) { return a.terms.empty(); });
}

Lowering::Lowering(const Graph& graph, const LoopNest& nest, const Domain& domain, OnlineSums online,
                   const Schedule& schedule, const std::string& name)
    : graph_(graph), nest_(nest), d_(domain), online_(std::move(online)), schedule_(schedule), b_(out_.kernel),
      sizes_(b_, d_) {
  out_.kernel.name = identifier(name);
  out_.schedule = schedule;
  size_t n = d_.live.size();
  memo_.assign(2 * n, -1);
  scratch_.assign(n, -1);
  sites_.assign(n, -1);
  reported_.assign(n, -2);
  tile_axis_ = static_cast<int>(setting(schedule, "axis", -1));
  if (schedule.kind == ScheduleKind::Tiled2D) cross_axis_ = static_cast<int>(setting(schedule, "cross", -1));
  vector_ = static_cast<int>(setting(schedule, "vector", 1));
  if (cross_axis_ >= 0) square_ = static_cast<int>(setting(schedule, "square", 1));
  wide_ = vector_ * static_cast<int>(setting(schedule, "unroll", 1));
  chunk_ = setting(schedule, "online", 0);
  parts_ = setting(schedule, "split", 1);
  exact_division_ = setting(schedule, "exact_division", 0) != 0;
}

ScheduledKernel Lowering::run() {
  for (size_t i = 0; i < d_.buffers.size(); ++i) {
    const Value& v = graph_.value(d_.buffers[i]);
    std::string name = v.name.empty() ? "b" + std::to_string(i) : v.name;
    pointers_.push_back(b_.param(name, {tile::Type::Kind::Pointer, v.type.dtype, {}}, d_.written[i]));
  }
  if (d_.reduces) stages_ = plan_stages(nest_, d_);
  if (parts_ > 1) split_parameters();
  needs_ = find_needs(nest_, d_);
  program();
  overwritable();
  out_.buffers = d_.buffers;
  out_.buffer_written = d_.written;
  out_.sizes = sizes_.sizes();
  for (const SymExpr& s : out_.sizes) TESSERA_CHECK(d_.axes_in(s) == 0, "a size parameter with an axis: " + s.str());
  return std::move(out_);
}

// How much of each loop a program takes, so that it moves about config "program_bytes".
void Lowering::program_sizes() {
  int64_t bytes = 0;
  auto count = [&](const Access& a) {
    if (d_.access_deps(a)) bytes += info(graph_.type(d_.buffers[static_cast<size_t>(a.buffer)]).dtype).bits / 8;
  };
  for (size_t i = 0; i < d_.live.size(); ++i)
    if (d_.live[i] && node(static_cast<ScalarId>(i)).op == ScalarOp::Load) count(d_.loads[i]);
  for (const Access& a : d_.stores) count(a);
  int64_t target =
      std::max<int64_t>(wide_, setting(schedule_, "program_bytes", 64 << 10) / std::max<int64_t>(1, bytes));

  SymExpr row = d_.reduces ? d_.row_count() : SymExpr(1), width = 1, taken = 1;
  columns_ = 1;
  if (schedule_.kind != ScheduleKind::RowLoop && tile_axis_ >= 0) {
    width = axis(static_cast<size_t>(tile_axis_)).extent;
    // Of a transposed operand each cache line serves many points of the cross axis: a block is narrow, so that the
    // lines under its tile are still there for the next ones.
    columns_ = d_.reduces         ? sym_max(1, floordiv(target, sym_max(1, ceildiv(row, parts_) * wide_))) * wide_
               : cross_axis_ >= 0 ? SymExpr(wide_)
                                  : SymExpr((target + wide_ - 1) / wide_ * wide_);
    taken = sym_min(columns_, width);
  }
  auto simple = [&](const SymExpr& e) { return d_.env.simplify(e); };
  column_blocks_ = simple(ceildiv(width, columns_));
  SymExpr middle = middle_ >= 0 ? axis(static_cast<size_t>(middle_)).extent : SymExpr(1), prefix = 1;
  for (size_t i : prefix_) prefix *= axis(i).extent;
  middle_rows_ = middle_ < 0 || parts_ > 1 // one row at a time
                     ? SymExpr(1)
                     : simple(sym_max(1, sym_min(middle, floordiv(target, sym_max(1, taken * row)))));
  if (square_ > 1) middle_rows_ = simple(sym_max(square_, floordiv(middle_rows_, square_) * square_));
  middle_blocks_ = simple(ceildiv(middle, middle_rows_));
  points_ = prefix_.empty() || parts_ > 1 ? SymExpr(1)
                                          : simple(sym_max(1, floordiv(target, sym_max(1, width * row * middle))));
  point_blocks_ = simple(ceildiv(prefix, points_));
  columns_ = simple(columns_);
  out_.grid = simple(point_blocks_ * middle_blocks_ * column_blocks_);
  out_.work_per_program = simple(points_ * middle_rows_ * taken * ceildiv(row, parts_));
  if (parts_ > 1) split_sizes();
}

void Lowering::program() {
  for (size_t i = 0; i < d_.axes.size(); ++i) {
    bool row = axis(i).role == AxisRole::Row;
    if (static_cast<int>(i) == tile_axis_ || static_cast<int>(i) == cross_axis_) continue;
    (row ? row_axes_ : prefix_).push_back(i);
  }
  if (schedule_.kind == ScheduleKind::RowLoop) row_axes_.push_back(static_cast<size_t>(tile_axis_));
  if (cross_axis_ >= 0) {
    middle_ = cross_axis_;
  } else if (!prefix_.empty()) {
    middle_ = static_cast<int>(prefix_.back());
    prefix_.pop_back();
  }
  program_sizes();
  plan_prefetch();

  row_may_be_empty_ = d_.reduces && d_.env.range(d_.row_count()).lo < 1;
  find_homes();
  for (size_t i = 0; i < stages_.kept.size(); ++i) {
    if (!stages_.kept[i] || home_[i] >= 0) continue;
    DType dtype = node(static_cast<ScalarId>(i)).dtype;
    SymExpr count = d_.row_count() * (schedule_.kind == ScheduleKind::ColumnLoop ? wide_ : 1);
    scratch_[i] = b_.scratch(dtype, sizes_.number(count));
    out_.scratch_bytes += floordiv(count * (info(dtype).bits / 8) + 63, 64) * 64;
  }
  out_.scratch_bytes = d_.env.simplify(out_.scratch_bytes);

  hoist(0);
  row_number_ = b_.program_id(0);
  if (parts_ > 1) {
    part_ = op(ScalarOp::Mod, row_number_, sizes_.constant(parts_));
    row_number_ = op(ScalarOp::Div, row_number_, sizes_.constant(parts_));
  }
  outer_points(row_number_);
}

// Takes the program's number apart, walks its outer points.
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
    if (middle_ < 0) return inner(column_block);
    const Axis& m = axis(static_cast<size_t>(middle_));
    V rows = sizes_.number(middle_rows_), from = op(ScalarOp::Mul, middle_block, rows);
    auto row = [&](V i, const Values&) -> Values {
      sizes_.bind(m.var, i);
      hoist(outer_axes() | uint64_t{1} << middle_);
      inner(column_block);
      return {};
    };
    if (middle_rows_.is_const(1)) {
      scoped([&] { return row(from, {}); });
      return;
    }
    V end = sizes_.number(m.extent);
    V to = middle_blocks_.is_const(1) ? end : op(ScalarOp::Min, op(ScalarOp::Add, from, rows), end);
    if (square_ > 1) from = squares(column_block, from, to);
    if (square_ == 1 || !in_squares(m)) loop(from, to, 1, {}, row);
  };
  if (prefix_.empty()) return middle_rows();
  SymExpr all = 1;
  for (size_t p : prefix_) all *= axis(p).extent;
  V points = sizes_.number(points_), from = points_last ? sizes_.number(0) : op(ScalarOp::Mul, block, points);
  auto point = [&](V i, const Values&) -> Values {
    decode(i);
    hoist(outer_axes());
    middle_rows();
    return {};
  };
  if (points_.is_const(1)) {
    scoped([&] { return point(from, {}); });
    return;
  }
  V end = sizes_.number(all);
  loop(from, points_last ? end : op(ScalarOp::Min, op(ScalarOp::Add, from, points), end), 1, {}, point);
}

// The axes of a flattened outer point, the last one fastest.
void Lowering::decode(V point) {
  for (size_t i = prefix_.size(); i-- > 0;) {
    const Axis& a = axis(prefix_[i]);
    if (i == 0) {
      sizes_.bind(a.var, point);
      continue;
    }
    V n = sizes_.number(a.extent);
    sizes_.bind(a.var, op(ScalarOp::Mod, point, n));
    point = op(ScalarOp::Div, point, n);
  }
}

Lowering::Range Lowering::tile_range(V column_block) {
  const Axis& a = axis(static_cast<size_t>(tile_axis_));
  Range range{sizes_.number(0), sizes_.number(a.extent), a.extent, column_blocks_.is_const(1)};
  if (range.whole) return range;
  V columns = sizes_.number(columns_);
  range.from = op(ScalarOp::Mul, column_block, columns);
  range.to = op(ScalarOp::Min, op(ScalarOp::Add, range.from, columns), range.to);
  return range;
}

uint64_t Lowering::outer_axes() const {
  uint64_t axes = 0;
  for (size_t p : prefix_) axes |= uint64_t{1} << p;
  return axes;
}
bool Lowering::in_squares(const Axis& a) const { return d_.env.divisor(d_.env.simplify(a.extent)) % square_ == 0; }

// Rows of the cross axis from `from` on, as many at a time as a square has, and tiles of as many: what is contiguous
// along either axis is read in vectors. Behind the last square of these rows tiles are masked ones, a row at a time.
// The first row that is left.
Lowering::V Lowering::squares(V column_block, V from, V to) {
  const Axis &m = axis(static_cast<size_t>(middle_)), &a = axis(static_cast<size_t>(tile_axis_));
  const uint64_t bound = outer_axes() | uint64_t{1} << middle_;
  auto whole = [&](const Axis& x, V begin, V end) {
    if (in_squares(x)) return end;
    V length = op(ScalarOp::Sub, end, begin);
    return op(ScalarOp::Add, begin, op(ScalarOp::And, length, sizes_.constant(-square_)));
  };
  V last = whole(m, from, to);
  loop(from, last, square_, {}, [&](V i, const Values&) -> Values {
    const Range range = tile_range(column_block);
    V end = whole(a, range.from, range.to);
    scoped([&] {
      sizes_.bind_tile(m.var, i, square_, 0, 2);
      in_square_ = true;
      hoist(bound);
      loop(range.from, end, square_, {}, [&](V j, const Values&) -> Values {
        sizes_.bind_tile(a.var, j, square_, 1, 2);
        flat_body();
        return {};
      });
      sizes_.unbind_tile();
      in_square_ = false;
    });
    if (in_squares(a)) return {};
    V rows_end = op(ScalarOp::Add, i, sizes_.constant(square_));
    loop(i, rows_end, 1, {}, [&](V row, const Values&) -> Values {
      sizes_.bind(m.var, row);
      hoist(bound);
      walk({vector_, end, range.to, std::nullopt, true}, a.var, range.to, {}, [&](const Values&) -> Values {
        flat_body();
        return {};
      });
      return {};
    });
    return {};
  });
  return last;
}

void Lowering::inner(V column_block) {
  if (schedule_.kind == ScheduleKind::RowLoop) return rounds();
  if (tile_axis_ < 0) return flat_body();
  const Axis& a = axis(static_cast<size_t>(tile_axis_));
  const Range range = tile_range(column_block);
  auto each_tile = [&](const std::function<void()>& body) {
    for (const Phase& p : phases(range))
      walk(p, a.var, range.to, {}, [&](const Values&) -> Values {
        body();
        return {};
      });
  };
  if (parts_ > 1) return split_columns(each_tile);
  each_tile([&] { d_.reduces ? rounds() : flat_body(); });
}

// All values before the first store: an output may lie on top of an input that is read at the same place.
void Lowering::flat_body() {
  Values values;
  for (const Store& s : nest_.stores) values.push_back(value(s.scalar));
  for (size_t i = 0; i < values.size(); ++i) store(i, values[i]);
}

// The rounds over the row of one outer point (RowLoop) or of a tile of them (ColumnLoop), then what is stored once.
void Lowering::rounds() {
  if (parts_ > 1) return split_round();
  uint64_t outer = ~d_.row_mask;
  int before = known_;
  for (size_t s = 0; s < stages_.stages.size(); ++s) {
    known_ = static_cast<int>(s);
    hoist(outer);
    round_ = known_;
    if (schedule_.kind == ScheduleKind::RowLoop)
      is_online(s) ? online_round(s) : row_round(s);
    else
      column_round(s);
    round_ = -1;
    known_ = static_cast<int>(s) + 1;
  }
  store_rows();
  known_ = before;
}

void Lowering::store_rows() {
  Values values;
  for (size_t i : stages_.row_stores) values.push_back(value(nest_.stores[i].scalar));
  for (size_t i = 0; i < values.size(); ++i) store(stages_.row_stores[i], values[i]);
}

// Loops over all row axes but the last one of row_axes_ (RowLoop) or over all of them (ColumnLoop).
Lowering::Values Lowering::row_axes_loop(size_t k, Values carried, const std::function<Values(Values)>& innermost) {
  size_t count = row_axes_.size() - (schedule_.kind == ScheduleKind::RowLoop ? 1 : 0);
  if (k == count) return innermost(std::move(carried));
  const Axis& a = axis(row_axes_[k]);
  const bool shared = k == 0 && share_;
  V from = shared ? share_->first : sizes_.number(0), to = shared ? share_->second : sizes_.number(a.extent);
  return loop(from, to, 1, std::move(carried), [&](V i, Values c) {
    sizes_.bind(a.var, i);
    return row_axes_loop(k + 1, std::move(c), innermost);
  });
}

void Lowering::row_round(size_t s) {
  const Stage& stage = stages_.stages[s];
  const Axis& a = axis(static_cast<size_t>(tile_axis_));
  Range range{sizes_.number(0), sizes_.number(a.extent), a.extent, true};
  // One set of accumulators per tile width; all of them travel through the outer row loops.
  std::vector<int> widths;
  std::vector<Phase> plan = phases(range);
  for (const Phase& p : plan)
    if (std::find(widths.begin(), widths.end(), p.lanes) == widths.end()) widths.push_back(p.lanes);
  Values carried;
  for (int w : widths) {
    Values id = identities(stage, w);
    carried.insert(carried.end(), id.begin(), id.end());
  }
  size_t each = widths.empty() ? 0 : carried.size() / widths.size();
  carried = row_axes_loop(0, std::move(carried), [&](Values c) {
    // Bounds are emitted anew: the first ones may stand in a scope that this one is not in.
    for (const Phase& p : phases(range)) {
      size_t group = static_cast<size_t>(std::find(widths.begin(), widths.end(), p.lanes) - widths.begin()) * each;
      Values part(c.begin() + static_cast<int64_t>(group), c.begin() + static_cast<int64_t>(group + each));
      part = walk(p, a.var, range.to, std::move(part), [&](Values acc) { return round_body(s, std::move(acc)); });
      std::copy(part.begin(), part.end(), c.begin() + static_cast<int64_t>(group));
    }
    return c;
  });
  std::vector<Values> groups;
  for (size_t g = 0; g < widths.size(); ++g)
    groups.emplace_back(carried.begin() + static_cast<int64_t>(g * each),
                        carried.begin() + static_cast<int64_t>((g + 1) * each));
  finish(stage, groups);
}

Lowering::Values Lowering::column_points(size_t s) {
  return row_axes_loop(0, identities(stages_.stages[s], sizes_.lanes()),
                       [&](Values acc) { return scoped([&] { return round_body(s, std::move(acc)); }); });
}
void Lowering::column_round(size_t s) { finish(stages_.stages[s], {column_points(s)}); }

Lowering::Values Lowering::round_body(size_t s, Values accumulators) {
  const Stage& stage = stages_.stages[s];
  Values stored;
  for (ScalarId r : stage.reduces) value(node(r).args[0]);
  for (ScalarId k : stage.keeps) value(k);
  for (size_t i : stage.stores) stored.push_back(value(nest_.stores[i].scalar));
  Values next;
  size_t at = 0;
  for (ScalarId r : stage.reduces) {
    size_t n = is_arg(r) ? 2 : 1;
    for (V v : accumulate(r, std::span<const V>(accumulators).subspan(at, n))) next.push_back(v);
    at += n;
  }
  for (ScalarId k : stage.keeps) keep(k);
  for (size_t i = 0; i < stored.size(); ++i) store(stage.stores[i], stored[i]);
  if (schedule_.kind == ScheduleKind::ColumnLoop) prefetch_next_points(s);
  if (static_cast<int>(s) == prefetch_round_) prefetch_next_row();
  return next;
}

// Full tiles, then vectors, then the masked rest; what an extent that is known leaves out is not emitted.
std::vector<Lowering::Phase> Lowering::phases(const Range& range) {
  std::vector<Phase> list;
  SymExpr extent = d_.env.simplify(range.extent);
  if (auto n = extent.as_const(); n && range.whole) {
    int64_t at = 0;
    for (int lanes : {wide_, vector_}) {
      int64_t end = at + (*n - at) / lanes * lanes;
      if (end == at) continue;
      list.push_back({lanes, sizes_.constant(at), sizes_.constant(end),
                      end - at == lanes ? std::optional(at) : std::nullopt, false});
      at = end;
    }
    if (at < *n) list.push_back({vector_, sizes_.constant(at), sizes_.constant(*n), at, true});
    return list;
  }
  // Blocks of a range start and, but for the last, end at multiples of the full tile.
  int64_t divisor = d_.env.divisor(extent);
  V from = range.from, length = op(ScalarOp::Sub, range.to, range.from);
  auto whole_steps = [&](int lanes) { // both widths are powers of two
    return divisor % lanes == 0 ? range.to
                                : op(ScalarOp::Add, range.from, op(ScalarOp::And, length, sizes_.constant(-lanes)));
  };
  for (int lanes : {wide_, vector_}) {
    V to = whole_steps(lanes);
    list.push_back({lanes, from, to, std::nullopt, false});
    if (divisor % lanes == 0) return list;
    from = to;
    if (wide_ == vector_) break;
  }
  list.push_back({vector_, from, range.to, std::nullopt, true});
  return list;
}

Lowering::Values Lowering::walk(const Phase& phase, const SymExpr& axis, V end, Values carried,
                                const std::function<Values(Values)>& body) {
  auto step = [&](V base, Values c) {
    sizes_.bind_tile(axis, base, phase.lanes);
    mask_ = phase.masked ? b_.scalar(ScalarOp::Lt, std::array{sizes_.number(axis), end}) : -1;
    Values next = body(std::move(c));
    sizes_.unbind_tile();
    mask_ = -1;
    return next;
  };
  if (phase.only) return scoped([&] { return step(sizes_.number(*phase.only), std::move(carried)); });
  return loop(phase.from, phase.to, phase.lanes, std::move(carried), step);
}

Lowering::Values Lowering::loop(V from, V to, int64_t step, Values carried,
                                const std::function<Values(V, Values)>& body) {
  return b_.for_loop(from, to, sizes_.constant(step), std::move(carried), [&](V i, std::span<const V> c) {
    return scoped([&] { return body(i, Values(c.begin(), c.end())); });
  });
}

// Which inputs an output may take the memory of: read only at the offset that the output writes, and by no round after
// it.
void Lowering::overwritable() {
  out_.may_overwrite.resize(d_.buffers.size());
  for (size_t s = 0; s < d_.stores.size(); ++s) {
    const Access& w = d_.stores[s];
    bool row = (d_.axes_in(w.offset) & d_.row_mask) != 0;
    bool last = !row ||
                d_.stage[static_cast<size_t>(nest_.stores[s].scalar)] + 1 == static_cast<int>(stages_.stages.size()) ||
                !d_.reduces;
    if (!last) continue;
    // What it holds of an earlier round lies on top of the input from then on.
    int first = static_cast<int>(stages_.stages.size()) - 1;
    for (size_t k = 0; k < home_.size(); ++k)
      if (home_[k] == static_cast<int>(s)) first = d_.stage[k];
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

Result<ScheduledKernel> lower_to_tiles(const Graph& graph, const LoopNest& nest, const Schedule& schedule,
                                       const Target& device, const std::string& name) {
  CheckContext context("schedule of " + name);
  TESSERA_ASSIGN(Domain domain, make_domain(graph, nest));
  Schedule chosen = schedule.config.contains("axis") ? schedule : choose_for(graph, nest, domain, device);
  int64_t axis = setting(chosen, "axis", -1), vector = setting(chosen, "vector", 1),
          unroll = setting(chosen, "unroll", 1);
  auto power = [](int64_t n) { return n >= 1 && n <= 4096 && (n & (n - 1)) == 0; };
  bool in_range = axis >= 0 && axis < static_cast<int64_t>(domain.axes.size());
  bool row = in_range && domain.axes[static_cast<size_t>(axis)].role == AxisRole::Row;
  int64_t cross = setting(chosen, "cross", -1);
  bool crossed = chosen.kind == ScheduleKind::Tiled2D && in_range && cross >= 0 && cross != axis &&
                 cross < static_cast<int64_t>(domain.axes.size());
  const int64_t square = setting(chosen, "square", 1);
  const bool squares = square == 1 || (power(square) && (!crossed || squares_fit(nest, domain)));
  ScheduleKind want = domain.reduces ? (row ? ScheduleKind::RowLoop : ScheduleKind::ColumnLoop)
                      : crossed      ? ScheduleKind::Tiled2D
                                     : ScheduleKind::Flat;
  const int64_t chunk = setting(chosen, "online", 0);
  const bool chunks = chunk == 0 || (chunk > 0 && row && online_fits(nest, domain) && chunk % (vector * unroll) == 0);
  if ((!in_range && !(axis == -1 && domain.axes.empty())) || !power(vector) || !power(unroll) || !squares || !chunks ||
      chosen.kind != want)
    return Diagnostic(ErrorCode::CodegenError, "schedule '" + std::string(tessera::name(chosen.kind)) + "' with axis " +
                                                   std::to_string(axis) + ", vector " + std::to_string(vector) +
                                                   ", unroll " + std::to_string(unroll) + " does not fit kernel '" +
                                                   name + "'");
  OnlineSums online;
  if (chunk > 0) online = find_online(nest, domain);
  const int64_t parts = setting(chosen, "split", 1);
  if (!power(parts) || (parts > 1 && !splits(nest, domain, chosen.kind)))
    return Diagnostic(ErrorCode::CodegenError,
                      "rows of kernel '" + name + "' cannot be shared by " + std::to_string(parts) + " programs");
  return Lowering(graph, nest, domain, std::move(online), chosen, name).run();
}

} // namespace tessera
