// RNN, LSTM and GRU as their files share them: cells, activations, inference.
#pragma once
#include "graph/ops/parts.h"

namespace tessera::ops::recurrent {

enum class Cell { Rnn, Gru, Lstm };
inline int64_t gates_of(Cell cell) { return cell == Cell::Rnn ? 1 : cell == Cell::Gru ? 3 : 4; }
inline int activations_of(Cell cell) { return cell == Cell::Rnn ? 1 : cell == Cell::Gru ? 2 : 3; }

// ---- activations, by the names that attributes use
struct Activation {
  std::string_view name;
  double alpha, beta; // defaults
  bool has_alpha, has_beta;
  double (*f)(double x, double alpha, double beta);
};
struct Function {
  const Activation* activation = nullptr;
  double alpha = 0, beta = 0;
  double operator()(double x) const { return activation->f(x, alpha, beta); }
};

// The functions of every direction, in order. Lists of alpha and beta hold values for the activations that take one.
[[nodiscard]] Result<std::vector<Function>> functions_of(const Node& node, Cell cell, int64_t directions);
[[nodiscard]] Status infer(InferContext& c, Cell cell);
// A scan over the steps.
[[nodiscard]] Result<std::vector<ValueId>> decompose(Graph& graph, const Node& node, Cell cell);

} // namespace tessera::ops::recurrent
