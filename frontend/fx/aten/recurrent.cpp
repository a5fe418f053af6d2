// Recurrent layers as torch.export leaves them. PyTorch orders the gates of an LSTM input, forget, cell, output and
// those of a GRU reset, update, new; the records have ONNX's orders.
#include "frontend/fx/aten/parts.h"

namespace tessera::fx {
namespace {

struct Cell {
  std::string_view record;
  Ints order; // the record's gate k is PyTorch's gate order[k]
  Attributes attributes;
  bool lstm = false;
};

// [gates * H, ...] with the gates in the record's order, as [1, gates * H, ...].
ValueId reordered(Call& c, ValueId v, const Cell& cell) {
  if (!c.b.ok()) return {};
  if (cell.order.size() > 1) {
    const SymExpr hidden = c.b.env().simplify(floordiv(c.b.dim(v, 0), static_cast<int64_t>(cell.order.size())));
    std::vector<ValueId> parts;
    for (int64_t gate : cell.order) parts.push_back(slice(c.b, v, 0, hidden * gate, hidden));
    v = concat(c.b, parts, 0);
  }
  return unsqueeze(c.b, v, {0});
}

ValueId joined(Call& c, const std::vector<ValueId>& parts) {
  return parts.size() == 1 ? parts[0] : concat(c.b, parts, 0);
}

void recurrent(Call& c, const Cell& cell) {
  ValueId x = c.in.tensor("input");
  std::vector<ValueId> states = cell.lstm ? c.in.tensors("hx") : std::vector<ValueId>{c.in.tensor("hx")};
  const std::vector<ValueId> params = c.in.tensors("params");
  const bool biased = c.in.flag("has_biases"), both = c.in.flag("bidirectional"),
             batch_first = c.in.flag("batch_first");
  const int64_t layers = c.in.integer("num_layers"), directions = both ? 2 : 1;
  if (c.b.ok() && c.in.flag("train") && c.in.number("dropout") != 0 && layers > 1)
    c.unsupported("a recurrent layer with dropout in training");
  if (!c.b.ok()) return;
  const auto each = static_cast<size_t>(biased ? 4 : 2);
  if (params.size() != each * static_cast<size_t>(layers * directions))
    return c.unsupported("a recurrent layer with " + std::to_string(params.size()) +
                         " parameters (projections of the state have no translation)");
  const bool unbatched = c.b.rank(x) == 2;
  const int64_t batch_axis = batch_first ? 0 : 1;
  if (unbatched) {
    x = unsqueeze(c.b, x, {batch_axis});
    for (ValueId& s : states) s = unsqueeze(c.b, s, {1});
  }
  if (batch_first) x = transpose(c.b, x, {1, 0, 2});
  std::vector<ValueId> last_h, last_c;
  for (int64_t layer = 0; layer < layers && c.b.ok(); ++layer) {
    std::vector<ValueId> w, r, bias;
    for (int64_t d = 0; d < directions; ++d) {
      const size_t at = static_cast<size_t>(layer * directions + d) * each;
      w.push_back(reordered(c, params[at], cell));
      r.push_back(reordered(c, params[at + 1], cell));
      if (biased)
        bias.push_back(concat(c.b, {reordered(c, params[at + 2], cell), reordered(c, params[at + 3], cell)}, 1));
    }
    auto state = [&](size_t i) { return slice(c.b, states.at(i), 0, layer * directions, directions); };
    std::vector<ValueId> operands = {x,         joined(c, w), joined(c, r), biased ? joined(c, bias) : ValueId(),
                                     ValueId(), state(0)};
    if (cell.lstm) operands.push_back(state(1));
    Attributes a = cell.attributes;
    a.set("direction", std::string(both ? "bidirectional" : "forward"));
    if (both)
      if (const auto* names = a.get<std::vector<std::string>>("activations")) {
        std::vector<std::string> twice = *names;
        twice.insert(twice.end(), names->begin(), names->end());
        a.set("activations", twice);
      }
    std::vector<ValueId> out = c.b.ops(cell.record, operands, std::move(a), cell.lstm ? 3 : 2);
    if (!c.b.ok()) return;
    last_h.push_back(out[1]);
    if (cell.lstm) last_c.push_back(out[2]);
    const SymShape s = c.b.shape(out[0]); // [T, directions, N, H]
    x = reshape(c.b, transpose(c.b, out[0], {0, 2, 1, 3}), {s[0], s[2], s[1] * s[3]});
  }
  if (batch_first) x = transpose(c.b, x, {1, 0, 2});
  auto state_result = [&](const std::vector<ValueId>& parts) {
    ValueId v = joined(c, parts);
    c.result(unbatched ? squeeze(c.b, v, {1}) : v);
  };
  c.result(unbatched ? squeeze(c.b, x, {batch_axis}) : x);
  state_result(last_h);
  if (cell.lstm) state_result(last_c);
}

void translate_lstm(Call& c) { recurrent(c, {"LSTM", {0, 3, 1, 2}, {}, true}); }
void translate_gru(Call& c) { recurrent(c, {"GRU", {1, 0, 2}, {{"linear_before_reset", int64_t{1}}}, false}); }
void translate_rnn_tanh(Call& c) {
  recurrent(c, {"RNN", {0}, {{"activations", std::vector<std::string>{"Tanh"}}}, false});
}
void translate_rnn_relu(Call& c) {
  recurrent(c, {"RNN", {0}, {{"activations", std::vector<std::string>{"Relu"}}}, false});
}

// ---- single steps
ValueId gates(Call& c, ValueId x, const char* weight, const char* bias) {
  return linear(c, x, c.in.tensor(weight), c.in.maybe(bias));
}
std::vector<ValueId> split(Call& c, ValueId v, int64_t count) {
  std::vector<ValueId> out;
  if (!c.b.ok()) return std::vector<ValueId>(static_cast<size_t>(count));
  const int64_t axis = c.b.rank(v) - 1;
  const SymExpr size = c.b.env().simplify(floordiv(c.b.dim(v, axis), count));
  for (int64_t i = 0; i < count; ++i) out.push_back(slice(c.b, v, axis, size * i, size));
  return out;
}

void translate_lstm_cell(Call& c) {
  ValueId x = c.in.tensor("input");
  std::vector<ValueId> hx = c.in.tensors("hx");
  if (!c.b.ok()) return;
  ValueId sum = add(c.b, gates(c, x, "w_ih", "b_ih"), gates(c, hx.at(0), "w_hh", "b_hh"));
  std::vector<ValueId> g = split(c, sum, 4);
  ValueId state = add(c.b, mul(c.b, sigmoid(c.b, g[1]), hx.at(1)), mul(c.b, sigmoid(c.b, g[0]), tanh(c.b, g[2])));
  c.result(mul(c.b, sigmoid(c.b, g[3]), tanh(c.b, state)));
  c.result(state);
}
void translate_gru_cell(Call& c) {
  ValueId x = c.in.tensor("input"), h = c.in.tensor("hx");
  std::vector<ValueId> i = split(c, gates(c, x, "w_ih", "b_ih"), 3), r = split(c, gates(c, h, "w_hh", "b_hh"), 3);
  ValueId reset = sigmoid(c.b, add(c.b, i[0], r[0])), update = sigmoid(c.b, add(c.b, i[1], r[1]));
  ValueId fresh = tanh(c.b, add(c.b, i[2], mul(c.b, reset, r[2])));
  c.result(add(c.b, mul(c.b, sub(c.b, h, fresh), update), fresh));
}
template <bool kRelu>
void translate_rnn_cell(Call& c) {
  ValueId sum = add(c.b, gates(c, c.in.tensor("input"), "w_ih", "b_ih"), gates(c, c.in.tensor("hx"), "w_hh", "b_hh"));
  c.result(kRelu ? c.b.op1("Relu", sum) : tanh(c.b, sum));
}

} // namespace

void register_recurrent(AtenTable& t) {
  t.add({"lstm.input"}, translate_lstm);
  t.add({"gru.input"}, translate_gru);
  t.add({"rnn_tanh.input"}, translate_rnn_tanh);
  t.add({"rnn_relu.input"}, translate_rnn_relu);
  t.add({"lstm_cell.default"}, translate_lstm_cell);
  t.add({"gru_cell.default"}, translate_gru_cell);
  t.add({"rnn_tanh_cell.default"}, translate_rnn_cell<false>);
  t.add({"rnn_relu_cell.default"}, translate_rnn_cell<true>);
}

} // namespace tessera::fx
