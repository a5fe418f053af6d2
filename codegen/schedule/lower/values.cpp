// Loads and stores with their masks, values cached in scratch.
#include "codegen/schedule/lower/values.h"
#include "codegen/schedule/shapes.h"
#include <algorithm>
#include <array>

namespace tessera::loops {

Scalars::Scalars(Context& context) : Part(context), NestValues(context, memo_), scratch_(d_.live.size(), -1) {}

void Scalars::reserve_cached() {
  find_homes();
  for (size_t i = 0; i < stages_.cached.size(); ++i) {
    if (!stages_.cached[i] || home_[i] >= 0) continue;
    DType dtype = node(static_cast<ScalarId>(i)).dtype;
    SymExpr count = d_.row_count() * (schedule_.kind == ScheduleKind::ColumnLoop ? c_.wide : 1);
    scratch_[i] = b_.scratch(dtype, sizes_.number(count));
    out_.scratch_bytes += floordiv(count * (info(dtype).bits / 8) + 63, 64) * 64;
  }
  out_.scratch_bytes = d_.env.simplify(out_.scratch_bytes);
}

// Memory of cached values: the output that stores the same value, or one that the last stage writes, whose memory is
// then fetched while values are computed instead of while they are stored; else scratch.
void Scalars::find_homes() {
  home_.assign(d_.live.size(), -1);
  if (!schedule_.residency.cache_in_output || stages_.stages.empty()) return;
  std::vector<char> taken(d_.stores.size());
  // A last stage that folds online reads its chunks again after it has stored them.
  const auto& last = stages_.stages.back().reduces;
  const bool read_again = std::any_of(last.begin(), last.end(), [&](ScalarId r) {
    return !online_.empty() && online_[static_cast<size_t>(r)].kind != OnlineSum::Kind::None;
  });
  auto fits = [&](ScalarId id, size_t i) {
    const Access& a = d_.stores[i];
    bool own = nest_.stores[i].scalar == id;
    auto along = a.offset.linear_in(tile_axis().var);
    if (taken[i] || graph_.type(d_.buffers[static_cast<size_t>(a.buffer)]).dtype != node(id).dtype) return false;
    if ((d_.axes_in(a.offset) & d_.row_mask) != d_.row_mask || !a.terms.empty() || !along || !along->first.is_const(1))
      return false;
    for (size_t other = 0; other < d_.stores.size(); ++other)
      if (other != i && d_.stores[other].buffer == a.buffer) return false;
    for (size_t n = 0; n < d_.live.size(); ++n)
      if (d_.live[n] && node(static_cast<ScalarId>(n)).op == ScalarOp::Load && d_.loads[n].buffer == a.buffer)
        return false;
    return own || (!read_again && d_.stage[static_cast<size_t>(nest_.stores[i].scalar)] + 1 ==
                                      static_cast<int>(stages_.stages.size()));
  };
  for (bool own : {true, false})
    for (ScalarId id = 0; id < nest_.dag.size(); ++id) {
      auto k = static_cast<size_t>(id);
      for (size_t i = 0; k < stages_.cached.size() && stages_.cached[k] && home_[k] < 0 && i < d_.stores.size(); ++i)
        if ((nest_.stores[i].scalar == id) == own && fits(id, i)) {
          home_[k] = static_cast<int>(i);
          taken[i] = 1;
        }
    }
}

V Scalars::compute(ScalarId id) { return is_cached_before(id) ? cached(id) : NestValues::compute(id); }

V Scalars::load(ScalarId id) {
  const ScalarNode& n = node(id);
  const Access& a = d_.loads[static_cast<size_t>(id)];
  V offset = offset_of(a), mask = may_read(id);
  if (is_tile(offset) || (mask >= 0 && is_tile(mask))) mask = both(c_.mask, mask);
  if (mask >= 0 && is_tile(mask)) offset = splat(offset, sizes_.lanes());
  V v = b_.load(c_.pointers[static_cast<size_t>(a.buffer)], offset, mask);
  auto stride = sizes_.tile_stride(a.offset);
  bool moving = std::any_of(a.terms.begin(), a.terms.end(), [&](const auto& t) { return is_tile(value(t.first)); });
  b_.kernel().op(b_.kernel().op_count() - 1).contiguous_hint =
      is_tile(offset) && stride && stride->is_const(1) && !moving && !c_.in_square;
  return b_.cast(v, n.dtype);
}

// Cached values are in row order with the tile axis last; if the tile runs across rows, one tile per row point.
V Scalars::scratch_offset() {
  SymExpr at = 0;
  for (size_t i : c_.row_axes) at = at * axis(i).extent + axis(i).var;
  if (is_row_loop()) return sizes_.number(at);
  return op(ScalarOp::Add, b_.range(sizes_.lanes()), op(ScalarOp::Mul, sizes_.number(at), sizes_.constant(c_.wide)));
}
V Scalars::cached(ScalarId id) {
  if (int home = home_[static_cast<size_t>(id)]; home >= 0) {
    const Access& a = d_.stores[static_cast<size_t>(home)];
    V v = b_.load(c_.pointers[static_cast<size_t>(a.buffer)], splat(offset_of(a), sizes_.lanes()), c_.mask);
    b_.kernel().op(b_.kernel().op_count() - 1).contiguous_hint = true;
    return v;
  }
  bool row = is_row_loop();
  V v = b_.load(scratch_[static_cast<size_t>(id)], scratch_offset(), row ? c_.mask : -1);
  b_.kernel().op(b_.kernel().op_count() - 1).contiguous_hint = true;
  return v;
}
void Scalars::cache(ScalarId id) {
  if (int home = home_[static_cast<size_t>(id)]; home >= 0) {
    if (nest_.stores[static_cast<size_t>(home)].scalar != id) store(static_cast<size_t>(home), value(id));
    return;
  }
  bool row = is_row_loop();
  b_.store(scratch_[static_cast<size_t>(id)], scratch_offset(), value(id), row ? c_.mask : -1);
  b_.kernel().op(b_.kernel().op_count() - 1).contiguous_hint = true;
}

void Scalars::store(size_t index, V v) {
  const Access& a = d_.stores[index];
  DType dtype = graph_.type(d_.buffers[static_cast<size_t>(a.buffer)]).dtype;
  v = in_full(b_.cast(v, dtype));
  V offset = in_full(offset_of(a));
  if (is_tile(v)) offset = splat(offset, sizes_.lanes());
  b_.store(c_.pointers[static_cast<size_t>(a.buffer)], offset, v, is_tile(offset) ? c_.mask : -1);
  auto stride = sizes_.tile_stride(a.offset);
  b_.kernel().op(b_.kernel().op_count() - 1).contiguous_hint =
      is_tile(offset) && stride && stride->is_const(1) && !c_.in_square;
}

} // namespace tessera::loops
