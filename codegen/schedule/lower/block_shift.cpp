// Misaligned rows: for example f16 rows of 999 elements, of which one in eight is aligned to 16 bytes. With `vector`
// elements in an access of 16 bytes, a row's tiles begin at the multiple of `vector` at or below the row's start
// (alignment peel):
//
//   element    ... 7 | 8 ....... 15 | 16 ...       a row that starts at 11: aligned = 8, by = 3
//   place              0 1 2 3 ... 7   8 ...       along the tile
//   position           - - - 0 ... 4   5 ...       of the row: place - by; masked below 0 and from the row's end on
//
// Accesses whose rows start equally modulo `vector` (inputs and outputs of one shape) are then aligned vectors, except
// for the first and last one of a row, which layouts split (layout/assign.h). All others use place - by.
#include "codegen/schedule/lower/block_shift.h"
#include "codegen/schedule/block_facts.h"
#include "codegen/schedule/shapes.h"
#include <array>

namespace tessera {
namespace {

// Start of the row in an access that is contiguous along it.
std::optional<SymExpr> start_along(const Domain& d, const Access& a, size_t axis) {
  auto linear = a.offset.linear_in(d.axes[axis].var);
  if (!linear || !linear->first.is_const(1)) return std::nullopt;
  for (const auto& term : a.terms)
    if (d.deps[static_cast<size_t>(term.first)] >> axis & 1) return std::nullopt;
  return linear->second;
}
bool divides(const Domain& d, int64_t vector, const SymExpr& e) {
  SymExpr simple = d.env.simplify(e);
  return simple.is_const(0) || d.env.divisor(simple) % vector == 0;
}

} // namespace

std::optional<SymExpr> shifted_start(const Graph& graph, const LoopNest& nest, const Domain& d, size_t axis,
                                     int64_t vector, int64_t shift) {
  struct Class {
    SymExpr start;
    int64_t bytes;
  };
  std::vector<Class> classes;
  auto add = [&](const Access& a, uint64_t deps) {
    auto start = start_along(d, a, axis);
    // Operands that all rows share are small.
    if (!start || !a.terms.empty() || (deps & ~d.row_mask) == 0) return;
    int64_t bytes = info(graph.type(d.buffers[static_cast<size_t>(a.buffer)]).dtype).bits / 8;
    for (Class& c : classes)
      if (divides(d, vector, *start - c.start)) {
        c.bytes += bytes;
        return;
      }
    classes.push_back({*start, bytes});
  };
  for (const Access& a : d.stores) add(a, d.axes_in(a.offset)); // stores win ties
  for (size_t i = 0; i < d.live.size(); ++i)
    if (d.live[i] && nest.dag[static_cast<ScalarId>(i)].op == ScalarOp::Load)
      add(d.loads[i], d.access_deps(d.loads[i]));
  const Class* most = nullptr;
  for (const Class& c : classes)
    if (!most || c.bytes > most->bytes) most = &c;
  if (!most || divides(d, shift, most->start)) return std::nullopt;
  return most->start;
}

int row_shift(const BlockFacts& f, bool several_tiles) {
  const int64_t vector = kAccessBytes / f.average_bytes;
  int axis = -1, axes = 0;
  for (size_t i = 0; i < f.d.axes.size(); ++i)
    if (f.is_row(i)) axis = static_cast<int>(i), ++axes;
  if (axes != 1 || axis != f.contiguous_axis || vector < 2) return 1;
  if (!shifted_start(f.graph, f.nest, f.d, static_cast<size_t>(axis), vector, vector)) return 1;
  return static_cast<int>(several_tiles ? f.device.line_bytes / f.average_bytes : vector);
}

namespace block {

// Called when the program's row is known.
void Shift::shift_row() {
  const Axis& a = axis(*fold_side());
  shift_ = {*shifted_start(graph_, nest_, d_, static_cast<size_t>(fold_side()->axis), peel_access(schedule_),
                           schedule_.access.alignment_peel),
            SymExpr::symbol("aligned"), SymExpr::symbol("by"), SymExpr::symbol("place")};
  // Rounded down by the bits: a row that a condition keeps from being read may begin before its buffer. The product says
  // what it is a multiple of.
  V start = sizes_.number(shift_.start), vector = sizes_.constant(schedule_.access.alignment_peel);
  V below = sizes_.op(ScalarOp::And, start, sizes_.constant(schedule_.access.alignment_peel - 1));
  V aligned = sizes_.op(ScalarOp::Div, sizes_.op(ScalarOp::Sub, start, below), vector);
  aligned = sizes_.op(ScalarOp::Mul, aligned, vector);
  sizes_.bind(shift_.aligned, aligned);
  sizes_.bind(shift_.by, sizes_.op(ScalarOp::Sub, start, aligned));
  sizes_.shift(a.var, shift_.place, shift_.by);
}

// Shifts each row of the tile; the tiles of its columns begin equally.
void Shift::shift_tile_rows() {
  const Axis& a = axis(sides_[1]);
  const SymExpr start = *shifted_start(graph_, nest_, d_, static_cast<size_t>(sides_[1].axis),
                                       schedule_.access.alignment_peel, schedule_.access.alignment_peel);
  const SymExpr vector = schedule_.access.alignment_peel;
  shift_ = {start, floordiv(start, vector) * vector, mod(start, vector), SymExpr::symbol("place")};
  sizes_.shift(a.var, shift_.place, shift_.by);
}

// The offset from `start` of the row of an access that is aligned with the tiles; nothing for other accesses.
std::optional<SymExpr> Shift::in_step(const Access& a) const {
  if (schedule_.access.alignment_peel == 1) return std::nullopt;
  auto start = start_along(d_, a, static_cast<size_t>(sides_[1].axis));
  if (!start) return std::nullopt;
  SymExpr behind = d_.env.simplify(*start - shift_.start);
  return divides(d_, peel_access(schedule_), behind) ? std::optional(behind) : std::nullopt;
}

std::optional<SymExpr> Shift::aligned_offset(const Access& a) const {
  auto start = in_step(a);
  if (!start) return std::nullopt;
  return shift_.aligned + shift_.place + *start;
}

// Unaligned contiguous elements are loaded by aligned accesses if the end of the memory is known (windows,
// layout/assign.h). An unknown size is passed for this only if rows are misaligned: there threads have contiguous
// elements. Rows that fit one tile are faster without: under their masks windows take registers, and the branch at
// their ends serialises the operands' loads (docs/schedules.md).
void Shift::tell_end(const Access& a) {
  const auto buffer = static_cast<size_t>(a.buffer);
  tile::Param& p = out_.kernel.params[buffer];
  if (sides_[1].axis < 0 || (d_.reduces && !schedule_.traversal.loop) || p.written || p.elements > 0 ||
      p.elements_value >= 0)
    return;
  const auto start = start_along(d_, a, static_cast<size_t>(sides_[1].axis));
  if (!start || in_step(a)) return;
  if (schedule_.access.alignment_peel == 1 && divides(d_, kAccessBytes * 8 / info(p.type.dtype).bits, *start)) return;
  const SymExpr count = d_.env.simplify(graph_.type(d_.buffers[buffer]).count());
  if (auto n = count.as_const()) {
    p.elements = *n;
  } else if (schedule_.access.alignment_peel > 1) {
    const V value = sizes_.number(count); // adds a parameter
    out_.kernel.params[buffer].elements_value = value;
  }
}

void Shift::mask(Side& s) {
  V place = sizes_.number(shift_.place);
  s.mask =
      pointwise(b_, ScalarOp::And,
                std::array{pointwise(b_, ScalarOp::Ge, std::array{place, sizes_.number(shift_.by)}),
                           pointwise(b_, ScalarOp::Lt, std::array{place, sizes_.number(axis(s).extent + shift_.by)})});
}

// i1: all of the tile at `at` lies within the row; equal for all threads.
V Shift::whole_tile(V at) {
  const Side& s = *fold_side();
  V end = sizes_.op(ScalarOp::Add, at, sizes_.constant(s.lanes));
  return b_.scalar(ScalarOp::And,
                   std::array{b_.scalar(ScalarOp::Ge, std::array{at, sizes_.number(shift_.by)}),
                              b_.scalar(ScalarOp::Le, std::array{end, sizes_.number(axis(s).extent + shift_.by)})});
}

// Number of tiles that cover the row.
V Shift::tiles() {
  const Side& s = *fold_side();
  V end = sizes_.op(ScalarOp::Add, sizes_.number(axis(s).extent + shift_.by), sizes_.constant(s.lanes - 1));
  return sizes_.op(ScalarOp::Div, end, sizes_.constant(s.lanes));
}

SymExpr Shift::positions_of_row() const {
  return d_.env.simplify(axis(sides_[static_cast<size_t>(fold_)]).extent +
                         SymExpr(schedule_.access.alignment_peel - 1));
}

} // namespace block
} // namespace tessera
