// Random small graphs: chains of views, pointwise operators, reductions, products and concatenations with values used
// several times, over the symbols b and s.
#pragma once
#include "graph/ir/graph.h"
#include <algorithm>
#include <random>

namespace tessera {

class RandomGraph {
public:
  explicit RandomGraph(uint32_t seed) : random_(seed) {
    b_ = g_.env().named_symbol("b", {1, 64});
    s_ = g_.env().named_symbol("s", {1, 64});
  }

  Graph make(int nodes) {
    add(g_.add_input("x0", {DType::F32, {b_, s_, 4}}));
    add(g_.add_input("x1", {DType::F32, {b_, 1, 4}}));
    add(g_.add_input("x2", {DType::F32, {s_, 4}}));
    add(g_.add_input("x3", {DType::F32, {b_, s_, 6}}));
    index_ = g_.add_input("i", {DType::I64, {b_}});
    for (int n = 0; n < nodes; ++n) step();
    int outputs = 0;
    auto users = g_.users();
    for (ValueId v : values_)
      if (users[static_cast<size_t>(v.index)].empty() && g_.producer(v))
        g_.add_output("o" + std::to_string(outputs++), v);
    if (outputs == 0) g_.add_output("o", values_.back());
    return std::move(g_);
  }

private:
  int below(size_t n) { return static_cast<int>(random_() % n); }
  ValueId pick() { // later values more often
    size_t n = values_.size();
    size_t k = std::max(static_cast<size_t>(below(n)), static_cast<size_t>(below(n)));
    return values_[k];
  }
  void add(ValueId v) { values_.push_back(v); }
  void apply(std::string_view op, std::vector<ValueId> operands, Attributes attributes = {}) {
    if (auto v = g_.apply(op, std::move(operands), std::move(attributes))) add(*v);
  }
  // A value that broadcasts with v as it is, v itself when there is none.
  ValueId partner(ValueId v) {
    const SymShape shape = g_.type(v).shape;
    for (int t = 0; t < 12; ++t) {
      ValueId w = pick();
      const SymShape other = g_.type(w).shape;
      bool fits = true;
      for (size_t d = 0; fits && d < std::min(shape.size(), other.size()); ++d) {
        const SymExpr &x = shape[shape.size() - 1 - d], &y = other[other.size() - 1 - d];
        fits = x == y || x.is_const(1) || y.is_const(1);
      }
      if (fits) return w;
    }
    return v;
  }

  void step() {
    ValueId v = pick();
    SymShape shape = g_.type(v).shape;
    auto rank = static_cast<int>(shape.size());
    switch (below(14)) {
    case 0: apply("sigmoid", {v}); break;
    case 1: apply("abs", {v}); break;
    case 2: apply("neg", {v}); break;
    case 3:
    case 4: apply("add", {v, partner(v)}); break;
    case 5: apply("mul", {v, partner(v)}); break;
    case 6: apply("max", {v, partner(v)}); break;
    case 7: { // means, so that numbers stay in range
      if (rank == 0) break;
      Ints axes{below(static_cast<size_t>(rank))};
      if (rank > 1 && below(3) == 0) axes = {0, rank - 1};
      apply(below(2) ? "reduce_max" : "reduce_sum", {v}, {{"axes", axes}, {"keepdims", int64_t{below(4) != 0}}});
      apply("tanh", {values_.back()});
      break;
    }
    case 8: {
      Ints perm;
      for (int d = 0; d < rank; ++d) perm.push_back(d);
      std::shuffle(perm.begin(), perm.end(), random_);
      apply("transpose", {v}, {{"perm", perm}});
      break;
    }
    case 9: { // merge two neighbours, or split one that is a multiple of two
      if (rank == 0) break;
      auto d = static_cast<size_t>(below(shape.size()));
      SymShape to = shape;
      if (d + 1 < shape.size() && below(2)) {
        to[d] = shape[d] * shape[d + 1];
        to.erase(to.begin() + static_cast<std::ptrdiff_t>(d) + 1);
      } else if (shape[d].known_divisor() % 2 == 0) {
        to[d] = floordiv(shape[d], 2);
        to.insert(to.begin() + static_cast<std::ptrdiff_t>(d) + 1, SymExpr(2));
      } else {
        to.insert(to.begin() + static_cast<std::ptrdiff_t>(d), SymExpr(1));
      }
      if (to.size() <= 5) apply("reshape", {v}, {{"shape", to}});
      break;
    }
    case 10: {
      if (rank == 0) break;
      auto d = static_cast<size_t>(below(shape.size()));
      if (!shape[d].is_const() || shape[d].const_value() < 2) break;
      int64_t n = shape[d].const_value(), start = below(static_cast<size_t>(n));
      SymShape starts(shape.size(), SymExpr(0)), sizes = shape;
      Ints steps(shape.size(), 1);
      starts[d] = start;
      if (below(3) == 0)
        steps[d] = -1, sizes[d] = start + 1;
      else
        sizes[d] = n - start;
      apply("slice", {v}, {{"starts", starts}, {"steps", steps}, {"sizes", sizes}});
      break;
    }
    case 11: {
      if (rank == 0) break;
      int64_t axis = below(shape.size());
      ValueId w = v;
      for (int t = 0; t < 8; ++t) {
        ValueId c = pick();
        SymShape other = g_.type(c).shape, mine = shape;
        if (other.size() != mine.size()) continue;
        other[static_cast<size_t>(axis)] = mine[static_cast<size_t>(axis)] = 0;
        if (other == mine) w = c;
      }
      apply("concat", {v, w}, {{"axis", axis}});
      break;
    }
    case 12: {
      if (rank == 0 || !shape[0].is_const() || shape[0].const_value() < 2) break;
      apply("gather", {v, index_}, {{"axis", int64_t{0}}});
      break;
    }
    case 13: {
      if (rank < 2) break;
      Ints perm;
      for (int d = 0; d < rank; ++d) perm.push_back(d);
      std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
      apply("transpose", {v}, {{"perm", perm}});
      apply("matmul", {v, values_.back()});
      apply("tanh", {values_.back()});
      break;
    }
    }
  }

  std::mt19937 random_;
  Graph g_;
  SymExpr b_, s_;
  ValueId index_;
  std::vector<ValueId> values_;
};

} // namespace tessera
