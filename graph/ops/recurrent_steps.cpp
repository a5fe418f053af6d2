// Recurrent layers: the products of the input with the weights of all steps at once, then a scan whose body is a product
// with the state and a cell.
#include "graph/ops/recurrent.h"
#include "graph/ops/repeat.h"
#include <algorithm>

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
  const Operands::Products& products;
  std::span<const ValueId> weights; // of the products; of a GRU one, [hidden, gates * hidden]
  ValueId state_bias;               // [gates * hidden], where it is not in the input's products already
  ValueId peepholes;                // [3 * hidden]
  const Function* f;

  struct State {
    ValueId h, c;
  };
  // The next state; `input` is the products of the step's input with all gates, [batch, gates * hidden], `product` that
  // of the state.
  [[nodiscard]] State step(ValueId input, State s, const std::function<ValueId()>& product) const {
    auto gate = [&](ValueId v, int64_t k) { return slice(b, v, 1, hidden * k, hidden); };
    auto clipped = [&](ValueId v) { return clip > 0 ? min(b, max(b, v, -clip), clip) : v; };
    if (cell == Cell::Rnn) return {apply(b, f[0], clipped(add(b, input, product()))), {}};
    if (cell == Cell::Gru) { // gates z, r, h
      ValueId past = linear_before_reset ? product() : matmul(b, s.h, slice(b, weights[0], 1, 0, hidden * 2));
      ValueId z = apply(b, f[0], clipped(add(b, gate(input, 0), gate(past, 0))));
      ValueId reset = apply(b, f[0], clipped(add(b, gate(input, 1), gate(past, 1))));
      ValueId kept;
      if (linear_before_reset) {
        kept = gate(past, 2);
        if (state_bias.valid()) kept = add(b, kept, slice(b, state_bias, 0, hidden * 2, hidden));
        kept = mul(b, reset, kept);
      } else {
        kept = matmul(b, mul(b, reset, s.h), slice(b, weights[0], 1, hidden * 2, hidden));
      }
      ValueId next = apply(b, f[1], clipped(add(b, gate(input, 2), kept)));
      return {add(b, mul(b, sub(b, 1.0, z), next), mul(b, z, s.h)), {}};
    }
    ValueId gates = add(b, input, product()); // i, o, f, c; peepholes i, o, f
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

// One direction of a layer: what its scan reads.
struct Layer {
  Cell cell;
  SymExpr batch, hidden;
  Operands::Products products; // of the input, with biases
  ValueId h, c;                // [batch, hidden]; c of an LSTM
  ValueId state_bias, peepholes;
  ValueId lengths; // i64[batch], where sequences end before the last step
  bool reverse, rows_meet;
  const Function* f;
};

// Results of each step [steps, batch, hidden], then the state at the end.
std::vector<ValueId> scan_of(B& b, const Layer& layer) {
  Scan scan;
  scan.body = std::make_shared<Graph>("step", std::make_shared<ShapeEnv>(b.env().inner()));
  Node place;
  place.location = b.node().location;
  B s(*scan.body, place);
  auto input = [&](const std::string& name, ValueId given, std::vector<ValueId>& as) {
    if (!given.valid()) return ValueId{};
    TensorType type = b.type(given);
    if (&as == &scan.scanned) type.shape.erase(type.shape.begin());
    as.push_back(given);
    return scan.body->add_input(name, std::move(type));
  };
  const ValueId h = input("h", layer.h, scan.carried), c = input("c", layer.c, scan.carried),
                products = input("products", layer.products.of_input, scan.scanned);
  ValueId t;
  if (layer.lengths.valid()) t = input("t", iota(b, {b.dim(layer.products.of_input, 0)}, 0), scan.scanned);
  std::vector<ValueId> weights;
  for (ValueId v : layer.products.weights)
    weights.push_back(input("weights" + std::to_string(weights.size()), v, scan.captured));
  const ValueId state_bias = input("state_bias", layer.state_bias, scan.captured),
                peepholes = input("peepholes", layer.peepholes, scan.captured),
                lengths = input("lengths", layer.lengths, scan.captured);
  const Attributes& a = b.attr();
  const Direction direction{s,
                            layer.cell,
                            layer.hidden,
                            a.f("clip"),
                            a.i("linear_before_reset") != 0,
                            a.i("input_forget") != 0,
                            layer.products,
                            weights,
                            state_bias,
                            peepholes,
                            layer.f};
  Direction::State next = direction.step(products, {h, c}, [&] {
    ValueId state = h;
    if (layer.rows_meet && t.valid()) state = select(s, reshape(s, ge(s, lengths, t), {layer.batch, 1}), state, 0.0);
    return layer.products.of_state(s, state, weights);
  });
  ValueId y = next.h;
  if (t.valid()) { // behind the end of a sequence its state stays, and results are 0
    const ValueId inside = reshape(s, gt(s, lengths, t), {layer.batch, 1});
    y = select(s, inside, next.h, 0.0);
    next.h = select(s, inside, next.h, h);
    if (c.valid()) next.c = select(s, inside, next.c, c);
  }
  if (!s.ok()) b.fail(s.failed().error());
  if (!b.ok()) return std::vector<ValueId>(c.valid() ? 3 : 2);
  scan.body->add_output("h", next.h);
  if (c.valid()) scan.body->add_output("c", next.c);
  scan.body->add_output("y", y);
  scan.reverse_in.assign(scan.scanned.size(), layer.reverse);
  scan.reverse_out.assign(1, layer.reverse);
  std::vector<ValueId> results = scan_slices(b, scan);
  std::rotate(results.begin(), results.end() - 1, results.end());
  return results;
}

} // namespace

std::vector<ValueId> layer_of(B& b, Cell cell, const Operands& operands) {
  const Attributes& a = b.attr();
  const bool batch_first = a.i("layout") == 1;
  const std::string direction = a.s("direction", "forward");
  const int64_t directions = direction == "bidirectional" ? 2 : 1, gates = gates_of(cell);
  const std::vector<ValueId> none(cell == Cell::Lstm ? 3 : 2);
  auto functions = functions_of(b.node(), cell, directions);
  if (!functions.ok()) return b.fail(functions.error()), none;
  const DType type = b.dtype(operands.x);
  const SymExpr batch = b.dim(operands.x, 1), hidden = operands.hidden, wide = hidden * gates;
  auto of_direction = [&](ValueId v, int64_t d, int64_t axis) { return squeeze(b, slice(b, v, axis, d, 1), {axis}); };
  auto initial = [&](ValueId v, int64_t d) {
    return v.valid() ? of_direction(v, d, batch_first ? 1 : 0) : expand(b, b.scalar(type, 0), {batch, hidden});
  };
  const bool reverses_rows = operands.rows_meet && operands.lengths.valid();
  auto turned = [&](ValueId v) { // [steps, batch, ...]
    return b.op("ReverseSequence", {v, operands.lengths}, {{"batch_axis", int64_t{1}}, {"time_axis", int64_t{0}}});
  };
  std::vector<ValueId> outputs, last_h, last_c; // of each direction
  for (int64_t d = 0; d < directions && b.ok(); ++d) {
    const bool reverse = direction == "reverse" || d == 1;
    Layer layer{cell,
                batch,
                hidden,
                operands.products(d),
                initial(operands.h, d),
                cell == Cell::Lstm ? initial(operands.c, d) : ValueId{},
                {},
                operands.peepholes.valid() ? of_direction(operands.peepholes, d, 0) : ValueId{},
                operands.lengths,
                reverse && !reverses_rows,
                operands.rows_meet,
                functions->data() + d * activations_of(cell)};
    ValueId& products = layer.products.of_input;
    if (operands.bias.valid()) {
      ValueId both = of_direction(operands.bias, d, 0), of_input = slice(b, both, 0, 0, wide),
              of_state = slice(b, both, 0, wide, wide);
      if (cell == Cell::Gru && a.i("linear_before_reset") != 0) { // of gate h: reset before it is added
        layer.state_bias = of_state;
        ValueId zeros = expand(b, b.scalar(type, 0), {hidden});
        of_state = concat(b, {slice(b, of_state, 0, 0, hidden * 2), zeros}, 0);
      }
      products = add(b, products, add(b, of_input, of_state));
    }
    if (reverse && reverses_rows) products = turned(products);
    std::vector<ValueId> results = b.ok() ? scan_of(b, layer) : none;
    if (!b.ok()) return none;
    if (reverse && reverses_rows) results[0] = turned(results[0]);
    outputs.push_back(unsqueeze(b, results[0], {1}));
    last_h.push_back(unsqueeze(b, results[1], {batch_first ? 1 : 0}));
    if (cell == Cell::Lstm) last_c.push_back(unsqueeze(b, results[2], {batch_first ? 1 : 0}));
  }
  if (!b.ok()) return none;
  ValueId y = concat(b, std::move(outputs), 1); // [steps, directions, batch, hidden]
  if (batch_first) y = transpose(b, y, {2, 0, 1, 3});
  const int64_t axis = batch_first ? 1 : 0;
  const DType d = b.dtype(b.in(0));
  std::vector<ValueId> results = {cast(b, y, d), cast(b, concat(b, std::move(last_h), axis), d)};
  if (cell == Cell::Lstm) results.push_back(cast(b, concat(b, std::move(last_c), axis), d));
  return results;
}

Result<std::vector<ValueId>> decompose(Graph& g, const Node& n, Cell cell) {
  B b(g, n);
  InferContext types{g, n, cell == Cell::Lstm ? 3 : 2, {}, {}};
  types.results.resize(static_cast<size_t>(types.result_count));
  types.contents.resize(types.results.size());
  TESSERA_TRY(infer(types, cell));
  auto input = [&](int i) { return b.has(i) ? widen(b, b.in(i)) : ValueId{}; };
  ValueId x = input(0);
  if (n.attributes.i("layout") == 1) x = transpose(b, x, {1, 0, 2});
  const ValueId w = input(1), r = input(2);
  Operands operands{x,
                    input(3),
                    b.has(4) ? cast(b, b.in(4), DType::I64) : ValueId{},
                    input(5),
                    cell == Cell::Lstm ? input(6) : ValueId{},
                    cell == Cell::Lstm ? input(7) : ValueId{},
                    b.dim(b.in(2), 2),
                    {}};
  operands.products = [&](int64_t d) {
    auto turned = [&](ValueId v) { return transpose(b, squeeze(b, slice(b, v, 0, d, 1), {0}), {1, 0}); };
    Operands::Products out;
    out.weights = {turned(r)};
    out.of_input = matmul(b, x, turned(w));
    out.of_state = [](B& s, ValueId state, std::span<const ValueId> weights) { return matmul(s, state, weights[0]); };
    return out;
  };
  std::vector<ValueId> results = layer_of(b, cell, operands);
  return b.done(std::move(results));
}

} // namespace tessera::ops::recurrent
