// Recurrent layers written out: the products of the input with the weights of all steps at once, then a product with the
// state and a cell for each step.
#include "graph/ops/recurrent.h"

namespace tessera::ops::recurrent {

namespace {

ValueId apply(B& b, const Function& f, ValueId x) {
  const std::string_view name = f.activation->name;
  auto scaled = [&](ValueId v) { return add(b, mul(b, v, f.alpha), f.beta); };
  auto negative = [&](ValueId below) { return select(b, ge(b, x, 0.0), x, below); };
  if (name == "Relu") return max(b, x, 0.0);
  if (name == "Tanh") return tanh(b, x);
  if (name == "Sigmoid") return sigmoid(b, x);
  if (name == "Affine") return scaled(x);
  if (name == "LeakyRelu") return negative(mul(b, x, f.alpha));
  if (name == "ThresholdedRelu") return select(b, gt(b, x, f.alpha), x, 0.0);
  if (name == "ScaledTanh") return mul(b, tanh(b, mul(b, x, f.beta)), f.alpha);
  if (name == "HardSigmoid") return min(b, max(b, scaled(x), 0.0), 1.0);
  if (name == "Elu") return negative(mul(b, b.op1("expm1", x), f.alpha));
  if (name == "Softsign") return div(b, x, add(b, abs(b, x), 1.0));
  if (name == "Softplus") return add(b, max(b, x, 0.0), b.op1("log1p", exp(b, neg(b, abs(b, x)))));
  TESSERA_UNREACHABLE("activation " + std::string(name));
}

// One direction of a layer, on tensors [batch, ...]; numbers are f32 or f64.
struct Direction {
  B& b;
  Cell cell;
  SymExpr hidden;
  double clip;
  bool linear_before_reset, input_forget;
  ValueId weights;    // [hidden, gates * hidden], of the state
  ValueId state_bias; // [gates * hidden], where it is not in the input's products already
  ValueId peepholes;  // [3 * hidden]
  const Function* f;

  struct State {
    ValueId h, c;
  };
  // The next state; `input` is the products of the step's input with all gates, [batch, gates * hidden].
  [[nodiscard]] State step(ValueId input, State s) const {
    auto gate = [&](ValueId v, int64_t k) { return slice(b, v, 1, hidden * k, hidden); };
    auto clipped = [&](ValueId v) { return clip > 0 ? min(b, max(b, v, -clip), clip) : v; };
    if (cell == Cell::Rnn) return {apply(b, f[0], clipped(add(b, input, matmul(b, s.h, weights)))), {}};
    if (cell == Cell::Gru) { // gates z, r, h
      ValueId past = matmul(b, s.h, linear_before_reset ? weights : slice(b, weights, 1, 0, hidden * 2));
      ValueId z = apply(b, f[0], clipped(add(b, gate(input, 0), gate(past, 0))));
      ValueId reset = apply(b, f[0], clipped(add(b, gate(input, 1), gate(past, 1))));
      ValueId kept;
      if (linear_before_reset) {
        kept = gate(past, 2);
        if (state_bias.valid()) kept = add(b, kept, slice(b, state_bias, 0, hidden * 2, hidden));
        kept = mul(b, reset, kept);
      } else {
        kept = matmul(b, mul(b, reset, s.h), slice(b, weights, 1, hidden * 2, hidden));
      }
      ValueId next = apply(b, f[1], clipped(add(b, gate(input, 2), kept)));
      return {add(b, mul(b, sub(b, 1.0, z), next), mul(b, z, s.h)), {}};
    }
    ValueId gates = add(b, input, matmul(b, s.h, weights)); // i, o, f, c; peepholes i, o, f
    auto peep = [&](ValueId v, int64_t k, ValueId c) {
      return peepholes.valid() ? add(b, v, mul(b, slice(b, peepholes, 0, hidden * k, hidden), c)) : v;
    };
    ValueId i = apply(b, f[0], clipped(peep(gate(gates, 0), 0, s.c)));
    ValueId forget = input_forget ? sub(b, 1.0, i) : apply(b, f[0], clipped(peep(gate(gates, 2), 2, s.c)));
    ValueId c = add(b, mul(b, forget, s.c), mul(b, i, apply(b, f[1], clipped(gate(gates, 3)))));
    ValueId o = apply(b, f[0], clipped(peep(gate(gates, 1), 1, c)));
    return {mul(b, o, apply(b, f[2], c)), c};
  }
};

// Steps that are written out, each a product with the state and one kernel for the cell. Longer sequences are left to the
// primitive.
constexpr int64_t kWrittenOut = 32;

} // namespace

Result<std::vector<ValueId>> decompose(Graph& g, const Node& n, Cell cell, int result_count,
                                       std::string_view primitive) {
  B b(g, n);
  InferContext types{g, n, cell == Cell::Lstm ? 3 : 2, {}, {}};
  types.results.resize(static_cast<size_t>(types.result_count));
  types.contents.resize(types.results.size());
  TESSERA_TRY(infer(types, cell));
  const Attributes& a = n.attributes;
  const bool batch_first = a.i("layout") == 1;
  const std::string direction = a.s("direction", "forward");
  const int64_t directions = direction == "bidirectional" ? 2 : 1, gates = gates_of(cell);
  const auto steps = b.env().simplify(b.dim(b.in(0), batch_first ? 1 : 0)).as_const();
  if (!steps || *steps < 1 || *steps > kWrittenOut) return b.done(b.ops(primitive, n.operands, a, result_count));
  TESSERA_ASSIGN(std::vector<Function> functions, functions_of(n, cell, directions));
  auto input = [&](int i) { return b.has(i) ? widen(b, b.in(i)) : ValueId{}; };
  ValueId x = input(0);
  if (batch_first) x = transpose(b, x, {1, 0, 2});
  const DType type = b.dtype(x);
  const SymExpr batch = b.dim(x, 1), hidden = b.dim(b.in(2), 2), wide = hidden * gates;
  ValueId w = input(1), r = input(2), bias = input(3), h0 = input(5), c0, peepholes;
  if (cell == Cell::Lstm) {
    c0 = input(6);
    peepholes = input(7);
  }
  auto of_direction = [&](ValueId v, int64_t d, int64_t axis) { return squeeze(b, slice(b, v, axis, d, 1), {axis}); };
  auto initial = [&](ValueId v, int64_t d) {
    return v.valid() ? of_direction(v, d, batch_first ? 1 : 0) : expand(b, b.scalar(type, 0), {batch, hidden});
  };
  std::vector<ValueId> outputs, last_h, last_c; // of each direction
  for (int64_t d = 0; d < directions && b.ok(); ++d) {
    Direction layer{b,
                    cell,
                    hidden,
                    a.f("clip"),
                    a.i("linear_before_reset") != 0,
                    a.i("input_forget") != 0,
                    {},
                    {},
                    {},
                    functions.data() + d * activations_of(cell)};
    layer.weights = transpose(b, of_direction(r, d, 0), {1, 0});
    if (peepholes.valid()) layer.peepholes = of_direction(peepholes, d, 0);
    // Products of all steps at once.
    ValueId products = matmul(b, x, transpose(b, of_direction(w, d, 0), {1, 0}));
    if (bias.valid()) {
      ValueId both = of_direction(bias, d, 0), of_input = slice(b, both, 0, 0, wide),
              of_state = slice(b, both, 0, wide, wide);
      const bool apart = cell == Cell::Gru && layer.linear_before_reset; // of gate h: reset before it is added
      if (apart) {
        layer.state_bias = of_state;
        ValueId none = expand(b, b.scalar(type, 0), {hidden});
        of_state = concat(b, {slice(b, of_state, 0, 0, hidden * 2), none}, 0);
      }
      products = add(b, products, add(b, of_input, of_state));
    }
    const bool reverse = direction == "reverse" || d == 1;
    Direction::State state{initial(h0, d), cell == Cell::Lstm ? initial(c0, d) : ValueId{}};
    std::vector<ValueId> all(static_cast<size_t>(*steps));
    for (int64_t s = 0; s < *steps && b.ok(); ++s) {
      const int64_t t = reverse ? *steps - 1 - s : s;
      Direction::State next = layer.step(of_direction(products, t, 0), state);
      ValueId y = next.h;
      if (b.has(4)) { // behind the end of a sequence its state stays, and results are 0
        ValueId inside = reshape(b, gt(b, b.in(4), b.scalar_i(b.dtype(b.in(4)), t)), {batch, 1});
        y = select(b, inside, next.h, 0.0);
        next.h = select(b, inside, next.h, state.h);
        if (next.c.valid()) next.c = select(b, inside, next.c, state.c);
      }
      all[static_cast<size_t>(t)] = unsqueeze(b, y, {batch_first ? 1 : 0});
      state = next;
    }
    const int64_t time = batch_first ? 1 : 0;
    outputs.push_back(unsqueeze(b, concat(b, std::move(all), time), {time + 1}));
    last_h.push_back(unsqueeze(b, state.h, {time}));
    if (state.c.valid()) last_c.push_back(unsqueeze(b, state.c, {time}));
  }
  if (!b.ok()) return b.failed();
  const int64_t axis = batch_first ? 1 : 0;
  const DType d = b.dtype(b.in(0));
  std::vector<ValueId> results = {cast(b, concat(b, std::move(outputs), axis + 1), d),
                                  cast(b, concat(b, std::move(last_h), axis), d)};
  if (cell == Cell::Lstm) results.push_back(cast(b, concat(b, std::move(last_c), axis), d));
  return b.done(std::move(results));
}

} // namespace tessera::ops::recurrent
