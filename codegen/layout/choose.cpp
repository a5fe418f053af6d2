#include "codegen/layout/choose.h"
#include <algorithm>
#include <limits>

namespace tessera::layout {

using tile::Op;
using tile::OpKind;

namespace {

constexpr double kLineBytes = 128;

} // namespace

double Access::cost(int axis, int side) const {
  size_t i = static_cast<size_t>(axis);
  double at_once = std::min(width[i], side);
  if (int w = windows(axis, side)) at_once = static_cast<double>(side) / (side / w + 1);
  double elements = static_cast<double>(kLanes) * side; // elements from the first to the last lane of the warp
  double lines = kLanes;
  if (scratch) // banks, not lines
    lines = kLanes * at_once * element_bytes / kLineBytes;
  else if (stride[i] || contiguity[i] > 1)
    lines = elements * static_cast<double>(stride[i] ? std::abs(*stride[i]) : 1) * element_bytes / kLineBytes;
  else if (constancy[i] > 1)
    lines = elements / static_cast<double>(constancy[i]);
  if (span && !scratch) lines = std::min(lines, static_cast<double>(*span) * element_bytes / kLineBytes + 1);
  return (std::clamp(lines, 1.0, static_cast<double>(kLanes)) + 1) / (kLanes * at_once);
}

int Access::windows(int axis, int side) const {
  const size_t i = static_cast<size_t>(axis);
  const int w = std::min(window[i], side);
  return 2 * (side / w + 1) < side / std::min(width[i], side) ? w : 0;
}

int Access::better_axis(int axis) const {
  constexpr int64_t kFew = 4;
  size_t i = static_cast<size_t>(axis);
  if (scratch) return -1; // a conversion would use shared memory, too
  if (shape[i] == 1 || contiguity[i] >= kFew || constancy[i] >= kFew) return -1;
  if (stride[i] && std::abs(*stride[i]) * element_bytes <= kAccessBytes) return -1; // lanes share lines
  int best = -1;
  for (size_t other = 0; other < shape.size(); ++other)
    if (contiguity[other] >= kFew && (best < 0 || contiguity[other] > contiguity[static_cast<size_t>(best)]))
      best = static_cast<int>(other);
  return best;
}

Access access_of(const tile::Kernel& k, tile::OpId id, const std::vector<AxisInfo>& info) {
  const Op& op = k.op(id);
  const tile::Type& pointer = k.type(op.operands[0]);
  const AxisInfo& offset = info[static_cast<size_t>(op.operands[1])];
  size_t mask_at = op.kind == OpKind::Load ? 2 : 3;
  const AxisInfo* mask = nullptr;
  if (op.operands.size() > mask_at && k.type(op.operands[mask_at]).is_tile())
    mask = &info[static_cast<size_t>(op.operands[mask_at])];
  int64_t alignment = kAccessBytes; // of scratch
  bool is_parameter = false, known_end = false;
  for (const tile::Param& p : k.params)
    if (p.value == op.operands[0]) {
      alignment = p.alignment;
      is_parameter = true;
      known_end = p.invariant && (p.elements > 0 || p.elements_value >= 0);
    }

  // A partially masked access of global memory is made element by element; scratch does not need this.
  const bool splits = is_parameter;

  Access a;
  a.op = id;
  a.shape = k.type(op.operands[1]).shape;
  a.scratch = !is_parameter;
  a.element_bytes = static_cast<int>(byte_size(pointer.dtype, 1));
  a.contiguity = offset.contiguity;
  a.constancy = offset.constancy;
  a.stride = offset.stride;
  a.span = offset.span;
  for (size_t i = 0; i < a.shape.size(); ++i) {
    int axis = static_cast<int>(i);
    auto neighbours = [&](int64_t w) {
      int64_t bytes = w * a.element_bytes;
      return w <= a.shape[i] && bytes <= kAccessBytes && alignment % bytes == 0 && w <= offset.contiguity[i] &&
             (!mask || w <= (splits ? mask->interval : mask->constancy)[i]);
    };
    int w = 1, window = 1;
    while (neighbours(2 * w) && offset.divisor(axis, 2 * w) >= 2 * w) w *= 2;
    while (neighbours(2 * window)) window *= 2;
    // Only sums of f32 have instructions for vectors among atomic updates.
    const bool by_element = op.kind == OpKind::Atomic && (op.reduce != ReduceKind::Sum || pointer.dtype != DType::F32);
    a.width.push_back(by_element ? 1 : w);
    a.window.push_back(op.kind == OpKind::Load && known_end && window > w ? window : 1);
    a.same.push_back(mask ? mask->constancy[i] : a.shape[i]);
  }
  return a;
}

Preference vote(const std::vector<int>& shape, const std::vector<Access>& accesses, int widest) {
  constexpr double kConversion = 0.25; // cost per element: a store to shared memory and a load
  constexpr double kLittleMore = 1.5;  // the number of lines seldom bounds an access
  auto total = [&](int axis, int side) {
    double sum = 0;
    for (const Access& a : accesses) {
      double cost = a.cost(axis, side);
      if (int other = a.better_axis(axis); other >= 0) {
        int wide = a.width[static_cast<size_t>(other)];
        cost = std::min(cost, a.cost(other, wide) + kConversion);
      }
      sum += cost;
    }
    return sum;
  };
  struct Candidate {
    int axis = 0, width = 1;
    double cost = 0;
  };
  bool single = std::all_of(shape.begin(), shape.end(), [](int d) { return d == 1; });
  std::optional<Candidate> best;
  for (size_t i = shape.size(); i-- > 0;) { // the last axis if costs are equal
    int most = 1, axis = static_cast<int>(i);
    if (shape[i] == 1 && !single) continue; // an axis of one element has no work for threads
    for (const Access& a : accesses) most = std::max(most, a.width[i]);
    most = std::min(most, widest);
    double least = total(axis, 1);
    for (int w = 2; w <= most; w *= 2) least = std::min(least, total(axis, w));
    if (best && best->cost <= least) continue;
    while (most > 1 && total(axis, most) > kLittleMore * least) most /= 2;
    best = Candidate{axis, most, least};
  }

  Preference p;
  p.width = best->width;
  p.order.push_back(best->axis);
  for (size_t i = shape.size(); i-- > 0;)
    if (static_cast<int>(i) != best->axis) p.order.push_back(static_cast<int>(i));
  return p;
}

LinearLayout layout_for(const std::vector<int>& shape, const Preference& preference, int warps,
                        const std::vector<bool>& reduced) {
  Blocked b{shape, preference.order, std::vector<int>(shape.size(), 1), std::vector<int>(shape.size(), 1),
            std::vector<int>(shape.size(), 1)};
  int64_t elements = 1;
  for (int d : shape) elements *= d;
  size_t inner = static_cast<size_t>(preference.order[0]);
  int width = std::min(preference.width, shape[inner]);
  while (width > 1 && elements < int64_t{width} * kLanes * warps) width /= 2;
  b.elements[inner] = width;

  auto spread = [&](std::vector<int>& places, int count, const std::vector<int>& axes) {
    for (int axis : axes) {
      size_t i = static_cast<size_t>(axis);
      places[i] = std::min(count, shape[i] / (b.elements[i] * b.lanes[i]));
      count /= places[i];
    }
  };
  spread(b.lanes, kLanes, preference.order);
  std::vector<int> axes = preference.order;
  std::stable_partition(axes.begin(), axes.end(), [&](int a) { return !reduced[static_cast<size_t>(a)]; });
  spread(b.warps, warps, axes);
  return LinearLayout::blocked(b, warps);
}

LinearLayout warp_layout(const std::vector<int>& shape, int warps) {
  return LinearLayout::blocked({shape, {0}, {1}, {std::min(shape[0], kLanes)}, {1}}, warps);
}

LinearLayout scan_layout(const std::vector<int>& shape, int scanned, int warps) {
  Blocked b{shape,
            {},
            std::vector<int>(shape.size(), 1),
            std::vector<int>(shape.size(), 1),
            std::vector<int>(shape.size(), 1)};
  b.order.push_back(scanned);
  for (size_t i = shape.size(); i-- > 0;)
    if (static_cast<int>(i) != scanned) b.order.push_back(static_cast<int>(i));
  // Warps along other axes before warps along the reduced axis: only the latter communicate.
  int lanes = kLanes, left = warps;
  std::vector<size_t> axes(b.order.begin(), b.order.end());
  for (size_t i : axes) {
    b.lanes[i] = std::min(lanes, shape[i]);
    lanes /= b.lanes[i];
  }
  for (size_t n = axes.size(); n-- > 0;) {
    size_t i = axes[n];
    b.warps[i] = std::min(left, shape[i] / b.lanes[i]);
    left /= b.warps[i];
  }
  size_t s = static_cast<size_t>(scanned);
  b.elements[s] = shape[s] / (b.lanes[s] * b.warps[s]);
  return LinearLayout::blocked(b, warps);
}

bool is_scannable(const LinearLayout& layout, int scanned) {
  if (!layout.is_permutation()) return false;
  int last = 0; // last basis along the axis
  for (Dim d : {Dim::Register, Dim::Lane, Dim::Warp})
    for (int i = 0; i < layout.in_bits(d); ++i) {
      int b = layout.basis(d, i, axis(scanned));
      if (b == 0) continue;
      if (b <= last) return false;
      last = b;
    }
  return true;
}

} // namespace tessera::layout
