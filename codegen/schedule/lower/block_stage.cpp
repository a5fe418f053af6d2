// Transposes with odd extents: operands that are contiguous along the tile's rows are staged through shared memory in
// their memory order. Example: f16, a tile of 64 rows, matrices z[c, r] with 4099 rows r:
//
//   column c of the tile begins at           m = z's offset there, any number
//   aligned accesses that contain it         m - m mod 8, ... : nine of them, for 64 elements at any alignment
//   its offset in shared memory              s = S0 + c * P,  P = 4099 modulo 8 and at least 72, S0 = m modulo 8 of
//                                            column 0
//
// As s and m are equal modulo 8, aligned accesses of memory are aligned accesses of shared memory. P is odd if the
// pitch is odd: then eight threads with eight columns each use different banks. If the pitch is even, every eight
// columns are followed by padding of one access, with the same effect. If the tile spans all rows of a z without gaps,
// its columns are contiguous and P is the pitch.
//
// If rows of x[r, c] are misaligned, too, each row of the tile begins at the aligned access at or before its first
// column (alignment peel, block_shift.cpp), so rows are not aligned with each other:
//
//   places of the tile     0 1 2 3 4 5 6 7 | 8 ...        column = place - by(r), by = start of the row modulo 8
//   row r                  - - - 0 1 2 3 4 | 5 ...        by 3
//   row r + 1              - - - - - - 0 1 | 2 ...        by 6
//
// Then all accesses of x are aligned, except at the ends of rows. Of z the tile needs the `halo` of 7 more columns
// before it.
#include "codegen/schedule/lower/block_stage.h"
#include "codegen/schedule/block_facts.h"
#include "codegen/schedule/shapes.h"
#include <algorithm>
#include <array>

namespace tessera {

std::optional<SymExpr> staged_pitch(const Domain& d, const Access& a, size_t along, size_t across) {
  if (!a.terms.empty() || a.predicate >= 0) return std::nullopt;
  auto inner = a.offset.linear_in(d.axes[along].var);
  if (!inner || !inner->first.is_const(1)) return std::nullopt;
  auto outer = inner->second.linear_in(d.axes[across].var);
  if (!outer || d.axes_in(outer->first) != 0) return std::nullopt;
  if (d.env.range(d.env.simplify(outer->first - d.axes[along].extent)).lo < 0) return std::nullopt;
  return outer->first;
}

namespace {

bool divides(const Domain& d, int64_t by, const SymExpr& e) {
  SymExpr simple = d.env.simplify(e);
  return simple.is_const(0) || d.env.divisor(simple) % by == 0;
}
int64_t above(int64_t n, int64_t by) { return (n + by - 1) / by * by; }

} // namespace

namespace block {

void StagedOperands::reserve() {
  const Side &rows = sides_[0], &columns = sides_[1];
  const SymExpr& extent = axis(rows).extent;
  for (ScalarId id = 0; id < nest_.dag.size(); ++id) {
    const auto i = static_cast<size_t>(id);
    if (!d_.live[i] || node(id).op != ScalarOp::Load) continue;
    const Access& a = d_.loads[i];
    const auto pitch = staged_pitch(d_, a, static_cast<size_t>(rows.axis), static_cast<size_t>(columns.axis));
    if (!pitch) continue;
    Operand s;
    s.id = id;
    s.pitch = d_.env.simplify(*pitch);
    const DType dtype = graph_.type(d_.buffers[static_cast<size_t>(a.buffer)]).dtype;
    s.vector = kAccessBytes / std::max(1, info(dtype).bits / 8);
    s.halo = schedule_.access.alignment_peel - 1;
    s.columns = columns.lanes + s.halo;
    const auto all = d_.env.simplify(extent).as_const();
    s.one_run = all && *all <= rows.lanes && *all % 2 == 1 && s.pitch.is_const(*all);
    s.gaps = !s.one_run && divides(d_, 2, s.pitch);
    const SymExpr first = a.offset.substitute(
        {{axis(rows).var.symbol_id(), 0}, {axis(columns).var.symbol_id(), 0}}); // of tiles: rows begin at multiples
    const bool aligned = divides(d_, s.vector, s.pitch) && divides(d_, s.vector, first) && rows.lanes % s.vector == 0;
    const int64_t run = s.one_run ? s.columns * *all : rows.lanes;
    s.accesses = above(run + (aligned ? 0 : s.vector - 1), s.vector) / s.vector;
    const int64_t widest = s.accesses * s.vector + s.vector - 1; // of a column's place
    const int64_t elements =
        s.one_run ? widest + rows.lanes : s.columns * widest + s.vector * (s.gaps ? s.columns / s.vector + 2 : 1);
    s.memory = b_.scratch(dtype, sizes_.constant(above(elements, s.vector)));
    staged_.push_back(s);
    out_.kernel.config["scratch_once"] = 1;
  }
}

// Distance of two columns in shared memory.
V StagedOperands::step(const Operand& s) {
  if (s.one_run) return sizes_.number(s.pitch);
  V rest = sizes_.op(ScalarOp::Mod, sizes_.number(s.pitch), sizes_.constant(s.vector));
  return sizes_.op(ScalarOp::Add, sizes_.constant(s.accesses * s.vector), rest);
}
// Offsets of columns in shared memory.
V StagedOperands::place(const Operand& s, V column) {
  V begin = sizes_.op(ScalarOp::Mul, column, step(s));
  if (!s.gaps) return begin;
  V vector = sizes_.constant(s.vector), before = sizes_.op(ScalarOp::Div, column, vector);
  return sizes_.op(ScalarOp::Add, begin, sizes_.op(ScalarOp::Mul, before, vector));
}

// All loads precede the first store to shared memory, and so do the loads of the tile's other values.
void StagedOperands::stage(bool whole, const std::function<void()>& overlapped) {
  struct Piece {
    V memory, place, tile, mask;
  };
  std::vector<Piece> pieces;
  const Side &rows = sides_[0], &columns = sides_[1];
  auto op = [&](ScalarOp o, V x, V y) { return sizes_.op(o, x, y); };
  auto less = [&](V x, V y) { return pointwise(b_, ScalarOp::Lt, std::array{x, y}); };
  const int64_t threads = int64_t{32} * schedule_.tile.warps;
  for (Operand& s : staged_) {
    const Access& a = d_.loads[static_cast<size_t>(s.id)];
    const SymExpr row = SymExpr::symbol("row"), column = SymExpr::symbol("column");
    sizes_.bind(row, rows.base);
    sizes_.bind(column, columns.base);
    const V corner = sizes_.number(
        a.offset.substitute({{axis(rows).var.symbol_id(), row}, {axis(columns).var.symbol_id(), column}}));
    const V pitch = sizes_.number(s.pitch), vector = sizes_.constant(s.vector);
    const V halo = sizes_.constant(s.halo);
    // Positions are counted from aligned accesses far enough before the halo that none is negative.
    const int64_t back = above(s.halo, s.vector);
    const V before = op(ScalarOp::Mul, sizes_.constant(back), pitch);
    const V origin = op(ScalarOp::Add, corner, op(ScalarOp::Mul, sizes_.constant(back - s.halo), pitch));
    s.first = op(ScalarOp::Mod, origin, vector);
    const SymExpr elements = d_.env.simplify(graph_.type(d_.buffers[static_cast<size_t>(a.buffer)]).count());
    const bool ends = !divides(d_, s.vector, elements) && !(whole && d_.env.range(s.pitch).lo >= s.vector);
    const int64_t all = (s.one_run ? 1 : s.columns) * s.accesses;
    for (int64_t from = 0, n = 0; from < all; from += n) {
      const int64_t left = all - from;
      n = std::max(power_below(left), threads);
      if (n < left && left - n < n / 8) n *= 2; // few are left: a separate tile would not pay
      const V number = op(ScalarOp::Add, b_.expand_dims(b_.range(static_cast<int>(n)), 1), sizes_.constant(from));
      const V at = s.one_run ? sizes_.constant(0) : op(ScalarOp::Div, number, sizes_.constant(s.accesses));
      const V within =
          op(ScalarOp::Mul, op(ScalarOp::Sub, number, op(ScalarOp::Mul, at, sizes_.constant(s.accesses))), vector);
      auto access = [&](V position) {
        return op(ScalarOp::Add, op(ScalarOp::Mul, op(ScalarOp::Div, position, vector), vector), within);
      };
      const V begin = op(ScalarOp::Add, origin, op(ScalarOp::Mul, at, pitch)), lifted = access(begin);
      V mask = from + n > all ? less(number, sizes_.constant(all)) : -1;
      V run = -1;
      if (s.one_run) {
        V last = op(ScalarOp::Add, columns.base, sizes_.constant(columns.lanes));
        if (!whole) last = op(ScalarOp::Min, last, sizes_.number(axis(columns).extent));
        run = op(ScalarOp::Mul, op(ScalarOp::Add, op(ScalarOp::Sub, last, columns.base), halo), pitch);
        if (!whole && s.halo > 0) mask = both(mask, pointwise(b_, ScalarOp::Ge, std::array{lifted, before}));
      } else {
        run = op(ScalarOp::Min, sizes_.constant(rows.lanes),
                 op(ScalarOp::Sub, sizes_.number(axis(rows).extent), rows.base));
        if (!whole) {
          V ahead = op(ScalarOp::Add, at, columns.base),
            end = op(ScalarOp::Add, sizes_.number(axis(columns).extent), halo);
          mask = both(mask, less(ahead, end));
          if (s.halo > 0) mask = both(mask, pointwise(b_, ScalarOp::Ge, std::array{ahead, halo}));
        }
      }
      mask = both(mask, less(lifted, op(ScalarOp::Add, begin, run)));
      const V inner = b_.expand_dims(b_.range(static_cast<int>(s.vector)), 0);
      const std::vector<int> shape{static_cast<int>(n), static_cast<int>(s.vector)};
      const V offset = splat(op(ScalarOp::Add, inner, op(ScalarOp::Sub, lifted, before)), shape);
      V there = mask;
      if (ends) there = both(there, less(offset, sizes_.number(elements)));
      const V tile = b_.load(c_.pointers[static_cast<size_t>(a.buffer)], offset, splat(there, shape), -1, caching(a));
      const V target = op(ScalarOp::Add, inner, access(op(ScalarOp::Add, s.first, place(s, at))));
      pieces.push_back({s.memory, splat(target, shape), tile, splat(mask, shape)});
    }
  }
  overlapped();
  for (const Piece& p : pieces) b_.store(p.memory, p.place, p.tile, p.mask);
}

const StagedOperands::Operand* StagedOperands::find(ScalarId id) const {
  auto it = std::find_if(staged_.begin(), staged_.end(), [&](const Operand& s) { return s.id == id; });
  return it == staged_.end() ? nullptr : &*it;
}

// Loads the tile of a staged operand from shared memory.
V StagedOperands::value(const Operand& s) {
  auto op = [&](ScalarOp o, V x, V y) { return sizes_.op(o, x, y); };
  V column = b_.expand_dims(b_.range(sides_[1].lanes), 0), row = b_.expand_dims(b_.range(sides_[0].lanes), 1);
  if (s.halo > 0)
    column = op(ScalarOp::Add, column, op(ScalarOp::Sub, sizes_.constant(s.halo), sizes_.number(shift_.by())));
  const std::vector<int> shape = full_shape();
  const V mask = inside(shape);
  return b_.load(s.memory, splat(op(ScalarOp::Add, place(s, column), op(ScalarOp::Add, row, s.first)), shape),
                 mask < 0 ? -1 : splat(mask, shape));
}

} // namespace block
} // namespace tessera
