// UnitOrder: a topological order of the units of a plan that stays one while units are merged.
//
// Two units may be merged when no path leads from one to the other through a third. With every edge going upwards in
// the order, such a path lies between their positions, so only that window is searched (Pearce and Kelly, "A dynamic
// topological sort algorithm for directed acyclic graphs", 2006). After the merge the window is rearranged: what the
// first one does not reach, the merged unit, what the first one reaches.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

namespace tessera::fusion {

class UnitOrder {
public:
  // Calls f with each unit that reads what `unit` defines; merged units by their representative.
  using Successors = std::function<void(int unit, const std::function<void(int)>& f)>;
  explicit UnitOrder(Successors successors) : successors_(std::move(successors)) {}

  void append(int unit);
  [[nodiscard]] int position(int unit) const { return position_[static_cast<size_t>(unit)]; }
  enum class Path : uint8_t { None, Exists, TooFar };
  // Whether a path of two edges or more leads from the earlier to the later of the two; remembers what was found for
  // merge().
  [[nodiscard]] Path indirect_path(int a, int b);
  // Contracts the two units of the last query, which must have no such path; `kept` (one of them) represents both.
  void merge(int a, int b, int kept);
  [[nodiscard]] std::vector<int> order() const; // live units

private:
  static constexpr int kWindow = 4096; // positions searched at most, so that planning stays near-linear
  Successors successors_;
  std::vector<int> sequence_; // unit at a position, -1 where one was merged away
  std::vector<int> position_; // of a unit
  std::vector<int> mark_;     // generation in which a unit was reached
  int generation_ = 0;
};

} // namespace tessera::fusion
