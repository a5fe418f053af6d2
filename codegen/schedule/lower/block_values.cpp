// The scalar DAG as tile operations, each value in the shape of the axes on which it depends.
#include "codegen/schedule/lower/block_values.h"
#include "codegen/schedule/shapes.h"
#include <algorithm>
#include <array>

namespace tessera::block {

Scalars::Scalars(Context& context, Shift& shift, Unrolled& unrolled, StagedOperands& staged)
    : Part(context), NestValues(context, memo_), shift_(shift), unrolled_(unrolled), staged_(staged) {}

// If the tile holds the row, loads for values after a reduction are issued before it, as long as they take few
// registers, so that memory is not idle during the reduction.
void Scalars::load_ahead() {
  constexpr int64_t kAheadBytes = 64; // of a thread
  int64_t elements = int64_t{sides_[0].lanes} * sides_[1].lanes / (int64_t{32} * schedule_.tile.warps);
  int64_t bytes = 0;
  for (ScalarId id = 0; id < nest_.dag.size(); ++id) {
    size_t i = static_cast<size_t>(id);
    if (!d_.live[i] || node(id).op != ScalarOp::Load || d_.stage[i] > 0 || !d_.row_varying(id)) continue;
    bytes += std::max<int64_t>(1, elements) *
             (info(graph_.type(d_.buffers[static_cast<size_t>(d_.loads[i].buffer)]).dtype).bits / 8);
    if (bytes > kAheadBytes) return;
    value(id);
  }
}

V Scalars::compute(ScalarId id) {
  const ScalarNode& n = node(id);
  if (n.op == ScalarOp::Select) {
    // select(p, f(load if p), f(0)) is f(load if p).
    auto other = value_of_zeros(nest_, n.args[2], [](ScalarId) { return false; });
    auto there = other ? value_of_zeros(nest_, n.args[1],
                                        [&](ScalarId l) { return node(l).masked && node(l).args.back() == n.args[0]; })
                       : std::nullopt;
    if (there && same_value(n.dtype, *there, *other)) return value(n.args[1]);
  }
  return NestValues::compute(id);
}

V Scalars::offset_of(const Access& a) {
  auto aligned = shift_.aligned_offset(a);
  return offset_of(a, aligned ? *aligned : here(a.offset));
}

V Scalars::stored_value(ScalarId id) {
  if (V v = memo_.loaded[static_cast<size_t>(id)]; v >= 0) return memo_.raw[static_cast<size_t>(id)] = v;
  if (const StagedOperands::Operand* s = staged_.find(id))
    return memo_.raw[static_cast<size_t>(id)] = staged_.value(*s);
  auto tap = unrolled_.tap_load(id);
  if (tap && (*tap)->value >= 0) return (*tap)->value;
  const Access& a = d_.loads[static_cast<size_t>(id)];
  V offset = offset_of(a), mask = may_read(id);
  std::vector<int> shape =
      mask < 0 ? b_.kernel().type(offset).shape : common_shape(b_.kernel(), std::array{offset, mask});
  mask = both(inside(shape), mask);
  mask = both(c_.guard, mask);
  if (mask >= 0 && is_tile(mask)) {
    shape = common_shape(b_.kernel(), std::array{offset, mask}); // of one element, where some read it and some do not
    mask = splat(mask, shape);
  }
  shift_.tell_end(a);
  V v = b_.load(c_.pointers[static_cast<size_t>(a.buffer)], splat(offset, shape), mask, -1, caching(a));
  memo_.raw[static_cast<size_t>(id)] = v;
  if (tap) (*tap)->value = v;
  return v;
}

void Scalars::store(size_t index, V v) {
  const Access& a = d_.stores[index];
  v = b_.cast(v, graph_.type(d_.buffers[static_cast<size_t>(a.buffer)]).dtype);
  V offset = offset_of(a);
  std::vector<int> shape = common_shape(b_.kernel(), std::array{offset, v});
  V mask = inside(shape);
  if (unrolled_.window()) mask = both(mask, c_.guard); // the result exists
  if (mask >= 0 && is_tile(mask)) mask = splat(mask, shape);
  b_.store(c_.pointers[static_cast<size_t>(a.buffer)], splat(offset, shape), is_tile(v) ? splat(v, shape) : v, mask);
}

// Loads in the tile's own order are issued before the block waits, as long as they take few registers.
void Scalars::load_overlapped() {
  constexpr int64_t kOverlappedBytes = 128; // of a thread
  const int64_t elements = int64_t{sides_[0].lanes} * sides_[1].lanes / (int64_t{32} * schedule_.tile.warps);
  const uint64_t all = (uint64_t{1} << d_.axes.size()) - 1;
  int64_t bytes = 0;
  for (ScalarId id = 0; id < nest_.dag.size(); ++id) {
    const auto i = static_cast<size_t>(id);
    if (!d_.live[i] || node(id).op != ScalarOp::Load || staged_.find(id)) continue;
    const Access& a = d_.loads[i];
    if (!a.terms.empty() || a.predicate >= 0 || d_.access_deps(a) != all) continue;
    bytes +=
        std::max<int64_t>(1, elements) * (info(graph_.type(d_.buffers[static_cast<size_t>(a.buffer)]).dtype).bits / 8);
    if (bytes > kOverlappedBytes) return;
    value(id);
  }
}

} // namespace tessera::block
