// Axes: symbols that nests loop over, and how the iteration spaces of two nests relate.
//
// The idea. Two nests can become one when there is a bijection between their iteration spaces under which what one
// stores is what the other loads. Such bijections come from indices: a value stored at [i0, i1, i2] and loaded at [j0,
// j1*64 + j2, j3] pairs the axes dimension by dimension. An index that enumerates its dimension exactly once is a mixed
// radix number over axes ("j1*64 + j2", extents 12 and 64, of a dimension of 768). Two such numbers over one dimension
// have a common refinement into atoms, axes that neither splits further, and both nests are rewritten over the atoms:
//
//   stored at   i1                 extents 768          i1 := a0*64 + a1
//   loaded at   j1*64 + j2         extents 12, 64       j1 := a0, j2 := a1       atoms a0: 12, a1: 64
#pragma once
#include "fusion/loop_nest.h"
#include <map>
#include <unordered_set>

namespace tessera::fusion {

using Substitution = std::unordered_map<uint64_t, SymExpr>;

// Axis symbols are shared: the axis of slot 2 with extent 768 is one symbol in every nest of a plan, so nests of equal
// shape need no renaming when they merge, and the environment stays small.
class AxisPool {
public:
  explicit AxisPool(ShapeEnv& env) : env_(env) {}
  [[nodiscard]] SymExpr axis(int slot, const SymExpr& extent);
  // One that is in none of `taken`, for an axis that comes about by splitting.
  [[nodiscard]] SymExpr fresh(const SymExpr& extent, const std::unordered_set<uint64_t>& taken);
  [[nodiscard]] ShapeEnv& env() { return env_; }

private:
  ShapeEnv& env_;
  std::map<std::pair<int, SymExpr>, SymExpr> axes_;
};

// e with axes replaced, simplified.
[[nodiscard]] SymExpr rewrite(const SymExpr& e, const Substitution& axes, const ShapeEnv& env);

// The axes (indices into `axes`, outermost first) of which `index` is a mixed radix number that takes each value of [0,
// dim) once; empty for the index 0 of a dimension of 1; nullopt for any other index.
[[nodiscard]] std::optional<std::vector<int>> radix_of(const SymExpr& index, const std::vector<Axis>& axes,
                                                       const SymExpr& dim, const ShapeEnv& env);

// Common refinement of two iteration spaces.
struct AxisMatch {
  struct Atom {
    SymExpr var, extent;
    int a = -1, b = -1; // the axis of either side that it is (a part of)
  };
  std::vector<Atom> atoms;
  Substitution a, b;       // axes of either side over the atoms
  bool a_unchanged = true; // no axis of `a` was split
};
class AxisMatcher {
public:
  AxisMatcher(AxisPool& pool, const std::vector<Axis>& a, const std::vector<Axis>& b);
  // Pairs a dimension that `a` enumerates by axes xs with the same dimension that `b` enumerates by ys.
  [[nodiscard]] bool pair(std::span<const int> xs, std::span<const int> ys);
  // Takes over an axis of one side as it is: the other side does not depend on it.
  void keep_a(int axis);
  void keep_b(int axis);
  [[nodiscard]] bool used_a(int axis) const { return used_a_[static_cast<size_t>(axis)]; }
  [[nodiscard]] bool used_b(int axis) const { return used_b_[static_cast<size_t>(axis)]; }
  [[nodiscard]] AxisMatch take() { return std::move(match_); }

private:
  AxisPool& pool_;
  const std::vector<Axis>&a_, &b_;
  std::vector<bool> used_a_, used_b_;
  std::unordered_set<uint64_t> taken_;
  AxisMatch match_;
};

// An axis and a divisor of its extent such that some index in `indices` contains axis div or mod divisor; nullopt when
// there is none. Replacing the axis by outer*divisor + inner makes those plain.
struct AxisSplit {
  int axis = -1;
  SymExpr divisor;
};
[[nodiscard]] std::optional<AxisSplit> find_split(std::span<const SymExpr> indices, const std::vector<Axis>& axes,
                                                  const ShapeEnv& env);
// The exact quotient where `b` is known to divide `a`.
[[nodiscard]] std::optional<SymExpr> exact_quotient(const SymExpr& a, const SymExpr& b, const ShapeEnv& env);

} // namespace tessera::fusion
