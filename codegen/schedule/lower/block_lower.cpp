// The program of a block: coordinates of its tile, masks, loops over long rows, stores.
#include "codegen/schedule/block_facts.h"
#include "codegen/schedule/lower/block_lowering.h"
#include <algorithm>
#include <array>
#include <limits>

namespace tessera {
namespace block {

ScheduledKernel BlockLowering::run() {
  parameters();
  program();
  finish_sizes();
  overwritable();
  return std::move(out_);
}

void BlockLowering::parameters() {
  c_.add_buffers();
  // `once`: each point has a separate element; unknown for data-dependent offsets.
  const bool loops = schedule_.traversal.loop || schedule_.traversal.rows_in_flight > 1 || schedule_.tile.taps > 0 ||
                     schedule_.kind == ScheduleKind::BlockContraction;
  for (size_t i = 0; loops && i < d_.buffers.size(); ++i) {
    auto here = [&](const Access& a) { return a.buffer == static_cast<int>(i); };
    if (auto w = std::find_if(d_.stores.begin(), d_.stores.end(), here); w != d_.stores.end())
      out_.kernel.params[i].once =
          w->terms.empty() && std::find_if(std::next(w), d_.stores.end(), here) == d_.stores.end();
  }
  if (legal_.blocks_per_row) cooperation_.add_parameters();
  if (schedule_.cooperation.split_k > 1) product_.add_parameters();
}

// Decomposes the program index, column blocks or row blocks fastest, and places the tile. A contraction's programs may
// take every grid-th tile, or segment of one; those of a cluster, each grid-th cluster of tiles along the rows.
void BlockLowering::program() {
  const int cluster = schedule_.cooperation.cluster;
  V program = b_.program_id(0);
  if (cluster > 1) {
    rank_ = sizes_.op(ScalarOp::Mod, program, sizes_.constant(cluster));
    program = sizes_.op(ScalarOp::Div, program, sizes_.constant(cluster));
  }
  SymExpr point = c_.point >= 0 ? d_.axes[static_cast<size_t>(c_.point)].extent : SymExpr(1);
  std::vector<std::pair<Side*, SymExpr>> parts;
  out_.grid = point;
  for (size_t n : {size_t{0}, size_t{1}}) {
    const size_t i = schedule_.placement.rows_fastest ? n : 1 - n;
    Side& s = sides_[i];
    if (s.axis < 0 || static_cast<int>(i) == fold_) continue;
    const SymExpr positions = axis(s).extent + (shift_.is_shifted(s) ? schedule_.access.alignment_peel - 1 : 0);
    const int64_t turns = i == 0 ? schedule_.traversal.rows_in_flight : 1;
    SymExpr blocks = s.box.empty() ? d_.env.simplify(ceildiv(positions, s.lanes * turns)) : placement_.blocks(s);
    if (i == 0 && schedule_.kind == ScheduleKind::BlockContraction)
      blocks = d_.env.simplify(ceildiv(blocks + product_.groups(), cluster));
    out_.grid *= blocks;
    if (blocks.is_const(1))
      s.blocks = sizes_.constant(0);
    else
      parts.emplace_back(&s, blocks);
  }
  const bool points = !d_.env.simplify(point).is_const(1);
  if (schedule_.cooperation.split_k > 1) out_.grid = product_.share(d_.env.simplify(out_.grid));
  if (schedule_.kind != ScheduleKind::BlockContraction || schedule_.cooperation.max_blocks == 0) {
    tile(program, parts, points);
    out_.grid = d_.env.simplify(out_.grid * cluster);
    return;
  }
  const SymExpr all = d_.env.simplify(out_.grid);
  const SymExpr clusters = d_.env.simplify(sym_min(all, schedule_.cooperation.max_blocks / cluster));
  out_.grid = d_.env.simplify(clusters * cluster);
  const V step = sizes_.number(clusters);
  b_.for_loop(program, sizes_.number(all), step, {}, [&](V number, std::span<const V>) {
    memo_.scoped([&] { tile(number, parts, points); });
    return Values{};
  });
}

// The tile of this number.
void BlockLowering::tile(V number, const std::vector<std::pair<Side*, SymExpr>>& parts, bool points) {
  if (legal_.blocks_per_row) number = cooperation_.take_rank(number, d_.env.simplify(out_.grid));
  if (schedule_.cooperation.split_k > 1) number = product_.take_segment(number);
  const bool groups = schedule_.traversal.group_rows > 1 && parts.size() == 2; // columns, rows
  if (groups) number = product_.take_blocks(number, parts[1].second, parts[0].second, points);
  for (size_t i = 0; i < parts.size() && !groups; ++i) {
    auto [side, blocks] = parts[i];
    if (i + 1 == parts.size() && !points) {
      side->blocks = number;
      continue;
    }
    V n = sizes_.number(blocks);
    side->blocks = sizes_.op(ScalarOp::Mod, number, n);
    number = sizes_.op(ScalarOp::Div, number, n);
  }
  if (Side& rows = sides_[0]; rows.cluster > 1)
    rows.blocks = sizes_.op(ScalarOp::Add, sizes_.op(ScalarOp::Mul, rows.blocks, sizes_.constant(rows.cluster)), rank_);
  if (c_.point >= 0) sizes_.bind(d_.axes[static_cast<size_t>(c_.point)].var, points ? number : sizes_.constant(0));
  if (schedule_.kind == ScheduleKind::BlockContraction) product_.take_group();

  scalars_.hoist(c_.point >= 0 ? uint64_t{1} << c_.point : 0);
  if (schedule_.access.staged) staged_.reserve();
  auto placed = [&](bool masks) {
    for (size_t i : {size_t{0}, size_t{1}}) {
      Side& s = sides_[i];
      if (s.axis < 0) continue;
      if (shift_.is_shifted(s)) fold_ < 0 ? shift_.shift_tile_rows() : shift_.shift_row();
      if (static_cast<int>(i) != fold_)
        placement_.place(s, s.first >= 0 ? s.first : sizes_.op(ScalarOp::Mul, s.blocks, sizes_.constant(s.lanes)),
                         masks || placement_.stands_alone(s));
      else if (!schedule_.traversal.loop)
        placement_.place(s,
                         legal_.blocks_per_row ? sizes_.op(ScalarOp::Mul, cooperation_.rank(), sizes_.constant(s.lanes))
                                               : sizes_.constant(0),
                         masks);
    }
  };
  if (schedule_.traversal.rows_in_flight > 1) return in_turns();
  if (!schedule_.traversal.unmasked_branch) {
    placed(true);
    return body(false);
  }
  auto branch = [&](bool masks) {
    return [&, masks]() -> Values {
      memo_.scoped([&] {
        placed(masks);
        body(!masks && !placement_.stands_alone(sides_[1]));
      });
      return {};
    };
  };
  const V whole = placement_.whole_block();
  if (whole < 0) {
    placed(true);
    return body(false);
  }
  b_.if_else(whole, branch(false), branch(true));
}

// Loops over the program's tiles of rows. Common values are computed before the loop.
void BlockLowering::in_turns() {
  Side &rows = sides_[0], &columns = sides_[1];
  placement_.place(columns, sizes_.constant(0), true);
  const V turns = sizes_.constant(schedule_.traversal.rows_in_flight),
          first = sizes_.op(ScalarOp::Mul, rows.blocks, turns);
  V end = sizes_.op(ScalarOp::Add, first, turns);
  if (d_.env.divisor(axis(rows).extent) % (int64_t{rows.lanes} * schedule_.traversal.rows_in_flight) != 0) {
    const V tiles = sizes_.number(d_.env.simplify(ceildiv(axis(rows).extent, rows.lanes)));
    end = sizes_.op(ScalarOp::Min, end, tiles);
  }
  b_.for_loop(
      first, end, sizes_.constant(1), {},
      [&](V i, std::span<const V>) {
        memo_.scoped([&] {
          placement_.place(rows, sizes_.op(ScalarOp::Mul, i, sizes_.constant(rows.lanes)), true);
          body(false);
        });
        return Values{};
      },
      schedule_.traversal.rows_in_flight);
}

// All values before the first store: an output may alias an input that is read at the same index.
void BlockLowering::body(bool whole) {
  if (unrolled_.window()) return window_.body();
  if (schedule_.kind == ScheduleKind::BlockContraction) return product_.body();
  if (schedule_.access.staged) staged_.stage(whole, [&] { scalars_.load_overlapped(); });
  if (d_.reduces && !schedule_.traversal.loop) scalars_.load_ahead();
  if (schedule_.traversal.loop || legal_.blocks_per_row) return rounds();
  scalars_.store_all();
}

void BlockLowering::rounds() {
  Side& s = *fold_side();
  // Loop-invariant parts of offsets; the builder reuses them inside the loops.
  for (ScalarId id = 0; schedule_.traversal.loop && id < nest_.dag.size(); ++id)
    if (d_.live[static_cast<size_t>(id)] && node(id).op == ScalarOp::Load && d_.row_varying(id))
      sizes_.number(d_.loads[static_cast<size_t>(id)].offset.substitute({{axis(s).var.symbol_id(), 0}}));
  for (const Access& a : d_.stores)
    if (schedule_.traversal.loop && (d_.axes_in(a.offset) & d_.row_mask))
      sizes_.number(a.offset.substitute({{axis(s).var.symbol_id(), 0}}));
  for (size_t k = 0; k < stages_.stages.size(); ++k)
    if (!stages_.stages[k].reduces.empty() || !stages_.stages[k].stores.empty()) c_.last_round = static_cast<int>(k);
  share_.begin();
  for (size_t k = 0; k < stages_.stages.size(); ++k) {
    const Stage& stage = stages_.stages[k];
    c_.known = static_cast<int>(k);
    if (stage.reduces.empty() && stage.stores.empty()) continue;
    scalars_.hoist(~d_.row_mask);
    c_.round = c_.reading = c_.known;
    Fold fold(b_, nest_, online_, fold_state(nest_, stage.reduces, online_, d_.position_dtype()));
    Values state = accumulators_.merged(fold, row_loop_.walk(k, fold));
    c_.round = -1;
    if (legal_.blocks_per_row) {
      cooperation_.combine(k, fold, state);
    } else {
      c_.known = static_cast<int>(k) + 1;
      accumulators_.finish(fold, state);
    }
  }
  legal_.blocks_per_row ? cooperation_.finish() : scalars_.store_rows();
}

void BlockLowering::finish_sizes() {
  out_.sizes = sizes_.sizes();
  SymExpr work = 1;
  for (const Side& s : sides_) {
    if (s.axis >= 0 && s.box.empty()) work *= fold_side() == &s ? axis(s).extent : sym_min(axis(s).extent, s.lanes);
    for (const BlockSpace::BoxAxis& a : s.box) work *= sym_min(d_.axes[static_cast<size_t>(a.axis)].extent, a.lanes);
  }
  out_.work_per_program = d_.env.simplify(work);
  out_.scratch_bytes = 0;
  // Allows index arithmetic in 32 bits (layout/bounds.h).
  if (int64_t most = d_.env.range(out_.grid).hi; most <= std::numeric_limits<int32_t>::max())
    out_.kernel.config["programs"] = std::max<int64_t>(1, most);
  // Only the power of two in a known divisor of a size is useful.
  const size_t first = out_.kernel.params.size() - out_.sizes.size();
  for (size_t i = 0; i < out_.sizes.size(); ++i) {
    TESSERA_CHECK(d_.axes_in(out_.sizes[i]) == 0, "a size parameter with an axis: " + out_.sizes[i].str());
    int64_t divisor = d_.env.divisor(out_.sizes[i]);
    out_.kernel.params[first + i].multiple_of = std::max<int64_t>(1, divisor & -divisor);
  }
}

// Inputs whose memory an output may reuse. All programs, and all threads of a program, run at once: an element may be
// overwritten by the only thread that reads it, after the read. Load and store of one offset have one layout, and one
// thread per element, if the offset depends on every dimension of the tile and the tile has at least as many elements
// as the block has threads. With loops only the last stage may write.
void BlockLowering::overwritable() {
  out_.may_overwrite.resize(d_.buffers.size());
  int64_t elements = int64_t{sides_[0].lanes} * sides_[1].lanes;
  if (elements < int64_t{32} * schedule_.tile.warps) return;
  for (size_t s = 0; s < d_.stores.size(); ++s) {
    const Access& w = d_.stores[s];
    uint64_t along = d_.axes_in(w.offset);
    bool moves = true;
    for (const Side& side : sides_)
      moves = moves && (side.lanes == 1 || (side.axis >= 0 && (along & side.axes()) == side.axes()));
    bool last = !schedule_.traversal.loop ||
                d_.stage[static_cast<size_t>(nest_.stores[s].scalar)] + 1 == static_cast<int>(stages_.stages.size());
    if (!moves || !last) continue;
    for (int b : read_only_where(graph_, nest_, d_, w)) {
      out_.may_overwrite[static_cast<size_t>(w.buffer)].push_back(b);
      // With prefetched tiles, or unmasked branches, the order of offsets is not sufficient.
      if (schedule_.traversal.num_stages > 1 || schedule_.residency.async_copy || schedule_.access.alignment_peel > 1 ||
          schedule_.traversal.rows_in_flight > 1)
        out_.kernel.params[static_cast<size_t>(b)].in_place = true;
    }
  }
}

} // namespace block

Result<ScheduledKernel> lower_block(const Graph& graph, const LoopNest& nest, const Domain& domain, const Legal& legal,
                                    const std::string& name, const LoweringOptions& options) {
  const Schedule& s = legal.schedule;
  auto unfit = [&](const std::string& why) {
    return Diagnostic(ErrorCode::CodegenError, "schedule '" + std::string(tessera::name(s.kind)) + "' [" +
                                                   std::to_string(s.tile.rows) + ", " + std::to_string(s.tile.columns) +
                                                   "] does not fit kernel '" + name + "': " + why);
  };
  auto power = [](int64_t n) { return n >= 1 && (n & (n - 1)) == 0; };
  if (!power(s.tile.rows) || !power(s.tile.columns) || !power(s.tile.warps) || !power(s.traversal.fold_steps) ||
      !power(s.tile.contiguous) || s.tile.warps > 32)
    return unfit("tile, warps and their parts must be powers of two");
  Domain d = domain;
  for (const SizeCondition& c : legal.conditions) assume(d.env, c);
  std::optional<WindowAxes> window;
  if (s.tile.taps > 0) {
    if (!d.reduces || s.traversal.loop || legal.blocks_per_row || s.traversal.rows_in_flight > 1 || s.access.staged ||
        s.access.alignment_peel > 1 || s.traversal.fold_steps > 1 || s.tile.contiguous > 1)
      return unfit("a window has no loop over the row, no cooperative blocks and no rows in flight");
    TESSERA_ASSIGN(window, spread_window(nest, d, s));
  }
  if (s.placement.split_axis >= 0) {
    if (d.env.divisor(d.axes[static_cast<size_t>(s.placement.split_axis)].extent) % s.tile.columns != 0)
      return unfit("the split axis is not a multiple of the vector");
    split_axis(nest, d, static_cast<size_t>(s.placement.split_axis), s.tile.columns);
  }
  if (legal.groups.members() != d.axes.size()) return unfit("each axis belongs to one group");
  BlockSpace space = group_axes(nest, std::move(d), legal.groups);
  if ((s.tile.rows > 1 && space.row < 0) || (s.tile.columns > 1 && space.column < 0))
    return unfit("a dimension of the tile has no axis");
  if (window) {
    if (space.point < 0 || space.domain.axes[static_cast<size_t>(space.point)].role != AxisRole::Row)
      return unfit("the row axes of a window must not lie along the tile");
    window->fold = space.domain.axes[static_cast<size_t>(space.point)].var;
  }
  if (s.kind == ScheduleKind::BlockContraction) {
    const auto contraction = Contraction::find(graph, nest, space.domain);
    if (!contraction || space.depth < 0 || space.row < 0 || space.column < 0 ||
        contraction->left(space.row_bits(), uint64_t{1} << space.column) < 0)
      return unfit("it is for a sum of products of two factors");
    block::Context context(graph, nest, space, legal, name, {}, false);
    context.exact_division = options.exact_division;
    return block::BlockLowering(context, std::nullopt).run();
  }
  bool rows_folded = space.row >= 0 && space.domain.axes[static_cast<size_t>(space.row)].role == AxisRole::Row;
  const int each = s.traversal.fold_steps * s.tile.contiguous;
  const bool flat = !space.domain.reduces;
  if (each > 1 && ((flat ? s.traversal.fold_steps > 1 : !s.traversal.loop && !legal.blocks_per_row) ||
                   (rows_folded ? s.tile.rows : s.tile.columns) <= each))
    return unfit("fold steps and contiguous segments need a wider tile, and a loop if there are reductions");
  if (s.access.staged && (!flat || s.tile.rows < 2 || s.tile.columns < 2 || legal.groups.rows.size() != 1 ||
                          legal.groups.columns.size() != 1))
    return unfit("staged operands need a tile of two axes without reductions");
  if (s.access.alignment_peel > 1 &&
      (!power(s.access.alignment_peel) || rows_folded || s.tile.columns < 2 || legal.groups.columns.size() != 1 ||
       (!s.access.staged && (s.tile.rows > 1 || flat)) ||
       !shifted_start(graph, nest, space.domain, static_cast<size_t>(space.column), peel_access(s),
                      s.access.alignment_peel)))
    return unfit("an alignment peel needs tiles of one row along one axis that is contiguous in some operand");
  if (s.traversal.rows_in_flight > 1 && (s.traversal.loop || legal.blocks_per_row || s.access.alignment_peel > 1 ||
                                         rows_folded || !space.domain.reduces || space.row < 0))
    return unfit("rows in flight need whole, aligned rows in the tile");
  if ((s.traversal.num_stages > 1 || s.residency.cached_tiles > 0) && !s.traversal.loop)
    return unfit("prefetched and cached tiles need a loop over the row");
  OnlineSums online;
  if (s.traversal.online) online = find_online(nest, space.domain);
  block::Context context(graph, nest, space, legal, name, std::move(online), window.has_value());
  context.exact_division = options.exact_division;
  return block::BlockLowering(context, std::move(window)).run();
}

} // namespace tessera
