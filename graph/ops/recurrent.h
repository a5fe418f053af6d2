// RNN, LSTM and GRU as their files share them: cells, activations, inference.
#pragma once
#include "graph/ops/parts.h"
#include <functional>

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
// Operands of a layer whose attributes are those of ONNX's operators, numbers in the type that is computed in.
struct Operands {
  ValueId x;         // [steps, batch, input]
  ValueId bias;      // [directions, 2 * gates * hidden]
  ValueId lengths;   // i64[batch]
  ValueId h, c;      // [directions, batch, hidden], or batch first where the attribute `layout` is 1
  ValueId peepholes; // [directions, 3 * hidden]
  SymExpr hidden;
  // A layer's products with its weights, [..., gates * hidden].
  struct Products {
    ValueId of_input; // of all steps, without biases
    // Multiplies a state [batch, hidden] by the weights, which are values of the builder's graph.
    std::vector<ValueId> weights;
    std::function<ValueId(B&, ValueId state, std::span<const ValueId> weights)> of_state;
  };
  std::function<Products(int64_t direction)> products;
  // Each sequence is reversed within its length, and states behind its end count as 0 in products: these depend on all
  // rows of a state.
  bool rows_meet = false;
};
// A scan over the steps. Results: Y, Y_h and, of an LSTM, Y_c.
[[nodiscard]] std::vector<ValueId> layer_of(B& b, Cell cell, const Operands& operands);
[[nodiscard]] Result<std::vector<ValueId>> decompose(Graph& graph, const Node& node, Cell cell);

} // namespace tessera::ops::recurrent
