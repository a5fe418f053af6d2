// Horizontal fusion: independent kernels whose iteration spaces have the same size become one where launches cost more
// than what they move.
//
// Fusion elsewhere saves bytes; here it saves launches, after everything that saves bytes has been done. Two kernels of
// 40 KB each take a GPU as long as one of 80 KB: their launches. Pointwise nests of equal size are written
// over the common refinement of their axes ([12, 64] and [768] over [12, 64]), nests with rows likewise, rows by rows.
#include "fusion/planner.h"
#include <algorithm>

namespace tessera::fusion {

namespace {

constexpr size_t kTried = 8; // kernels that one is tried with, the latest first

} // namespace

void Planner::merge_small() {
  const double worth = options_.launch_us * options_.bytes_per_us;
  if (!options_.enabled || worth <= 0) return;
  std::vector<int> small;
  for (int unit : units_.order()) {
    const Unit& u = units_[unit];
    if (u.kind != Group::Kind::Kernel || at_planned(moved(u.nest)) >= worth) continue;
    bool merged = false;
    for (size_t i = small.size(), tried = 0; i-- > 0 && tried < kTried && !merged; ++tried)
      merged = try_side_by_side(small[i], unit, worth);
    if (!merged) small.push_back(unit);
  }
}

// Pairs of different sizes, and pairs of which one needs the other, are not recorded.
bool Planner::try_side_by_side(int a, int b, double worth) {
  Unit &x = units_[a], &y = units_[b];
  for (AxisRole role : {AxisRole::Outer, AxisRole::Row})
    if (!graph_.env().known_equal(product(x.nest.extents(role)), product(y.nest.extents(role)))) return false;
  if (units_.edge(a, b) || units_.edge(b, a) || units_.path_between(a, b)) return false;
  PairEntry entry{x.nest.sources[0], y.nest.sources[0], FusionReason::HorizontalFusion, ""};
  const SizeSum left = moved(x.nest), right = moved(y.nest);
  SizeSum together = left, launch;
  together.add(right);
  launch.add(1, worth);
  entry.detail << left << " and " << right << ", a launch is worth " << launch;
  std::optional<Refusal> refusal;
  if (!completing_) {
    const bool more = at_planned(together) > worth;
    entry.detail.compared(more ? launch : together, more ? together : launch);
    if (more) refusal = Refusal{FusionReason::NoGain, "together they move more"};
  }
  if (!refusal) refusal = fits(x.nest, y.nest, a, b);
  const auto apart = kept_apart(a, b);
  LoopNest trial = apart ? x.nest : LoopNest{};
  const WorkInHand::Doing merging(work_, merge_of(x, y, work_));
  if (!refusal) refusal = failed_before(work_);
  if (!refusal) refusal = merger_.side_by_side(apart ? trial : x.nest, y.nest);
  if (!refusal) refusal = apart;
  if (refusal) {
    entry.reason = refusal->reason;
    entry.detail << ": " + refusal->detail;
  } else {
    units_.contract(a, b, a);
  }
  tried_.pairs.push_back(std::move(entry));
  return !refusal;
}

SizeSum Planner::moved(const LoopNest& nest) {
  SizeSum bytes;
  for (const SymExpr& read : bytes_read(graph_, nest, estimate_)) bytes.add(read);
  for (const auto& s : nest.stores)
    if (stored(s.value)) bytes.add(byte_count(graph_, s.value));
  return bytes;
}

double Planner::at_planned(const SizeSum& bytes) {
  return *bytes.at([&](const SymExpr& e) { return std::optional(estimate_(e)); });
}

std::optional<Refusal> Merger::side_by_side(LoopNest& a, const LoopNest& b) {
  auto axes_of = [](const LoopNest& nest, AxisRole role) {
    std::vector<int> out;
    for (size_t i = 0; i < nest.axes.size(); ++i)
      if (nest.axes[i].role == role) out.push_back(static_cast<int>(i));
    return out;
  };
  AxisMatcher matcher(pool_, a.axes, b.axes);
  bool same = a.has_reduction() == b.has_reduction();
  for (AxisRole role : {AxisRole::Outer, AxisRole::Row})
    same = same && matcher.pair(axes_of(a, role), axes_of(b, role));
  if (!same)
    return Refusal{FusionReason::DifferentIterationSpace,
                   "iteration spaces of different size: " + axes_text(a) + " and " + axes_text(b)};
  Joint joint{matcher.take(), {}};
  if (auto refusal = assign_roles(joint, a, b)) return refusal;
  append(a, b, std::move(joint), false);
  return std::nullopt;
}

} // namespace tessera::fusion
