#include "fusion/order.h"
#include "base/check.h"
#include <algorithm>

namespace tessera::fusion {

void UnitOrder::append(int unit) {
  if (static_cast<size_t>(unit) >= position_.size()) {
    position_.resize(static_cast<size_t>(unit) + 1, -1);
    mark_.resize(static_cast<size_t>(unit) + 1, 0);
  }
  position_[static_cast<size_t>(unit)] = static_cast<int>(sequence_.size());
  sequence_.push_back(unit);
}

UnitOrder::Path UnitOrder::indirect_path(int a, int b) {
  int first = position(a) < position(b) ? a : b, last = first == a ? b : a;
  int end = position(last);
  if (end - position(first) > kWindow) return Path::TooFar;
  ++generation_;
  std::vector<int> stack;
  bool found = false;
  auto visit = [&](int from) {
    successors_(from, [&](int to) {
      if (to == last)
        found = found || from != first;
      else if (to != first && position(to) < end && mark_[static_cast<size_t>(to)] != generation_) {
        mark_[static_cast<size_t>(to)] = generation_;
        stack.push_back(to);
      }
    });
  };
  visit(first);
  while (!stack.empty() && !found) {
    int unit = stack.back();
    stack.pop_back();
    visit(unit);
  }
  return found ? Path::Exists : Path::None;
}

void UnitOrder::merge(int a, int b, int kept) {
  int begin = std::min(position(a), position(b)), end = std::max(position(a), position(b));
  std::vector<int> before, after;
  for (int p = begin; p <= end; ++p) {
    int unit = sequence_[static_cast<size_t>(p)];
    if (unit < 0 || unit == a || unit == b) continue;
    (mark_[static_cast<size_t>(unit)] == generation_ ? after : before).push_back(unit);
  }
  int p = begin;
  auto place = [&](int unit) {
    sequence_[static_cast<size_t>(p)] = unit;
    position_[static_cast<size_t>(unit)] = p++;
  };
  for (int unit : before) place(unit);
  place(kept);
  for (int unit : after) place(unit);
  while (p <= end) sequence_[static_cast<size_t>(p++)] = -1;
}

std::vector<int> UnitOrder::order() const {
  std::vector<int> out;
  for (int unit : sequence_)
    if (unit >= 0) out.push_back(unit);
  return out;
}

} // namespace tessera::fusion
