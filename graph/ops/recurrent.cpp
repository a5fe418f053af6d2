// RNN, LSTM and GRU: one walk over the steps, three cells.
#include "graph/ops/recurrent.h"
#include <cmath>

namespace tessera {

namespace ops::recurrent {

namespace {
const Activation kActivations[] = {
    {"Relu", 0, 0, false, false, [](double x, double, double) { return std::max(x, 0.0); }},
    {"Tanh", 0, 0, false, false, [](double x, double, double) { return std::tanh(x); }},
    {"Sigmoid", 0, 0, false, false, [](double x, double, double) { return 1 / (1 + std::exp(-x)); }},
    {"Affine", 1, 0, true, true, [](double x, double a, double b) { return a * x + b; }},
    {"LeakyRelu", 0.01, 0, true, false, [](double x, double a, double) { return x >= 0 ? x : a * x; }},
    {"ThresholdedRelu", 1, 0, true, false, [](double x, double a, double) { return x > a ? x : 0; }},
    {"ScaledTanh", 1, 1, true, true, [](double x, double a, double b) { return a * std::tanh(b * x); }},
    {"HardSigmoid", 0.2, 0.5, true, true, [](double x, double a, double b) { return std::clamp(a * x + b, 0.0, 1.0); }},
    {"Elu", 1, 0, true, false, [](double x, double a, double) { return x >= 0 ? x : a * std::expm1(x); }},
    {"Softsign", 0, 0, false, false, [](double x, double, double) { return x / (1 + std::fabs(x)); }},
    {"Softplus", 0, 0, false, false,
     [](double x, double, double) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }},
};

bool same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return std::tolower(x) == std::tolower(y); });
}

} // namespace

Result<std::vector<Function>> functions_of(const Node& node, Cell cell, int64_t directions) {
  std::vector<std::string> names;
  if (auto* given = node.attributes.get<std::vector<std::string>>("activations")) names = *given;
  auto per = static_cast<size_t>(activations_of(cell)), all = per * static_cast<size_t>(directions);
  if (names.empty())
    for (size_t i = 0; i < all; ++i) names.emplace_back(cell == Cell::Rnn || i % per != 0 ? "Tanh" : "Sigmoid");
  if (names.size() < all)
    return Diagnostic(ErrorCode::BadAttribute, node.location,
                      "attribute 'activations' has " + std::to_string(names.size()) + " names, not " +
                          std::to_string(all));
  std::vector<double> alphas, betas;
  if (auto* v = node.attributes.get<std::vector<double>>("activation_alpha")) alphas = *v;
  if (auto* v = node.attributes.get<std::vector<double>>("activation_beta")) betas = *v;
  std::vector<Function> out;
  size_t next_alpha = 0, next_beta = 0;
  for (size_t i = 0; i < all; ++i) {
    Function f;
    for (const Activation& a : kActivations)
      if (same_name(a.name, names[i])) f.activation = &a;
    if (!f.activation)
      return Diagnostic(ErrorCode::BadAttribute, node.location,
                        "attribute 'activations' names an unknown function '" + names[i] + "'");
    f.alpha = f.activation->has_alpha && next_alpha < alphas.size() ? alphas[next_alpha++] : f.activation->alpha;
    f.beta = f.activation->has_beta && next_beta < betas.size() ? betas[next_beta++] : f.activation->beta;
    out.push_back(f);
  }
  return out;
}

Status infer(InferContext& c, Cell cell) {
  const SymShape x = c.shape(0), w = c.shape(1), r = c.shape(2);
  if (x.size() != 3 || w.size() != 3 || r.size() != 3)
    return c.error(ErrorCode::ShapeMismatch,
                   "a recurrent layer takes X, W and R of rank 3, not " + str(x) + ", " + str(w) + " and " + str(r));
  std::string direction = c.node.attributes.s("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
    return c.error(ErrorCode::BadAttribute, "attribute 'direction' has the unknown value '" + direction + "'");
  int64_t directions = direction == "bidirectional" ? 2 : 1, gates = gates_of(cell),
          layout = c.node.attributes.i("layout");
  if (layout != 0 && layout != 1)
    return c.error(ErrorCode::BadAttribute, "attribute 'layout' is " + std::to_string(layout));
  TESSERA_TRY(functions_of(c.node, cell, directions));
  SymExpr steps = x[layout == 0 ? 0 : 1], batch = x[layout == 0 ? 1 : 0], hidden = r[2];
  auto same = [&](const SymExpr& a, const SymExpr& b, const char* what) {
    return c.env().require_equal(a, b, what, c.node.location);
  };
  TESSERA_TRY(same(w[0], directions, "directions of W"));
  TESSERA_TRY(same(r[0], directions, "directions of R"));
  TESSERA_TRY(same(w[1], hidden * gates, "gates of W"));
  TESSERA_TRY(same(r[1], hidden * gates, "gates of R"));
  TESSERA_TRY(same(w[2], x[2], "columns of W and of X"));
  if (c.node.attributes.has("hidden_size"))
    TESSERA_TRY(same(hidden, c.node.attributes.i("hidden_size"), "hidden_size and R"));
  auto shaped = [&](int i, const SymShape& want, const char* what) -> Status {
    if (!c.has(i)) return {};
    const SymShape have = c.shape(i);
    if (have.size() != want.size())
      return c.error(ErrorCode::ShapeMismatch, std::string(what) + " must be " + str(want) + ", not " + str(have));
    for (size_t k = 0; k < want.size(); ++k) TESSERA_TRY(same(have[k], want[k], what));
    return {};
  };
  SymShape state = layout == 0 ? SymShape{directions, batch, hidden} : SymShape{batch, directions, hidden};
  TESSERA_TRY(shaped(3, {directions, hidden * (2 * gates)}, "operand 'B'"));
  TESSERA_TRY(shaped(4, {batch}, "operand 'sequence_lens'"));
  TESSERA_TRY(shaped(5, state, "operand 'initial_h'"));
  if (cell == Cell::Lstm) {
    TESSERA_TRY(shaped(6, state, "operand 'initial_c'"));
    TESSERA_TRY(shaped(7, {directions, hidden * 3}, "operand 'P'"));
  }
  DType d = c.type(0).dtype;
  TESSERA_TRY(set_result(
      c, d, layout == 0 ? SymShape{steps, directions, batch, hidden} : SymShape{batch, steps, directions, hidden}));
  for (int i = 1; i < c.result_count; ++i) TESSERA_TRY(set_result(c, d, state, i));
  return {};
}

} // namespace ops::recurrent

namespace {
using namespace ops;
using namespace ops::recurrent;

// ---- reference
struct Layer {
  Cell cell;
  int64_t input, hidden;
  double clip = 0; // 0: none
  bool linear_before_reset = false, input_forget = false;
  const double *w, *r, *b, *p; // of one direction; b and p may be null
  const Function* f;

  // W x (+ its bias) of hidden unit j of a gate, and R h (+ its bias).
  [[nodiscard]] double from_input(int64_t gate, int64_t j, const double* x) const {
    int64_t row = gate * hidden + j;
    double sum = b ? b[row] : 0;
    for (int64_t k = 0; k < input; ++k) sum += w[row * input + k] * x[k];
    return sum;
  }
  [[nodiscard]] double from_state(int64_t gate, int64_t j, const double* h) const {
    int64_t row = gate * hidden + j;
    double sum = b ? b[gates_of(cell) * hidden + row] : 0;
    for (int64_t k = 0; k < hidden; ++k) sum += r[row * hidden + k] * h[k];
    return sum;
  }
  [[nodiscard]] double clipped(double x) const { return clip > 0 ? std::clamp(x, -clip, clip) : x; }

  void step(const double* x, std::vector<double>& h, std::vector<double>& cell_state) const {
    auto n = static_cast<size_t>(hidden);
    std::vector<double> next(n);
    if (cell == Cell::Rnn) {
      for (size_t j = 0; j < n; ++j) {
        auto i = static_cast<int64_t>(j);
        next[j] = f[0](clipped(from_input(0, i, x) + from_state(0, i, h.data())));
      }
    } else if (cell == Cell::Gru) { // gates z, r, h
      std::vector<double> z(n), reset(n), masked(n);
      for (size_t j = 0; j < n; ++j) {
        auto i = static_cast<int64_t>(j);
        z[j] = f[0](clipped(from_input(0, i, x) + from_state(0, i, h.data())));
        reset[j] = f[0](clipped(from_input(1, i, x) + from_state(1, i, h.data())));
        masked[j] = reset[j] * h[j];
      }
      for (size_t j = 0; j < n; ++j) {
        auto i = static_cast<int64_t>(j);
        double past = linear_before_reset ? reset[j] * from_state(2, i, h.data()) : from_state(2, i, masked.data());
        next[j] = (1 - z[j]) * f[1](clipped(from_input(2, i, x) + past)) + z[j] * h[j];
      }
    } else { // gates i, o, f, c; peepholes i, o, f
      auto peep = [&](int64_t gate, size_t j, double c) {
        return p ? p[gate * hidden + static_cast<int64_t>(j)] * c : 0.0;
      };
      for (size_t j = 0; j < n; ++j) {
        auto u = static_cast<int64_t>(j);
        auto gate = [&](int64_t g) { return from_input(g, u, x) + from_state(g, u, h.data()); };
        double i = f[0](clipped(gate(0) + peep(0, j, cell_state[j])));
        double forget = input_forget ? 1 - i : f[0](clipped(gate(2) + peep(2, j, cell_state[j])));
        cell_state[j] = forget * cell_state[j] + i * f[1](clipped(gate(3)));
        double o = f[0](clipped(gate(1) + peep(1, j, cell_state[j])));
        next[j] = o * f[2](cell_state[j]);
      }
    }
    h = std::move(next);
  }
};

Status reference_recurrent(ReferenceContext& c, Cell cell) {
  const Attributes& at = c.node.attributes;
  auto values = [&](size_t i) { return given(c, i) ? to_f64(c.operands[i]) : std::vector<double>(); };
  const Tensor& x = c.operands[0];
  bool batch_first = at.i("layout") == 1;
  int64_t steps = x.dims()[batch_first ? 1 : 0], batch = x.dims()[batch_first ? 0 : 1], input = x.dims()[2];
  int64_t hidden = c.operands[2].dims()[2], gates = gates_of(cell);
  std::string direction = at.s("direction", "forward");
  int64_t directions = direction == "bidirectional" ? 2 : 1;
  TESSERA_ASSIGN(std::vector<Function> functions, functions_of(c.node, cell, directions));
  std::vector<double> vx = to_f64(x), w = values(1), r = values(2), b = values(3), h0 = values(5), c0, p;
  if (cell == Cell::Lstm) {
    c0 = values(6);
    p = values(7);
  }
  Dims state_dims = batch_first ? Dims{batch, directions, hidden} : Dims{directions, batch, hidden};
  Dims out_dims = batch_first ? Dims{batch, steps, directions, hidden} : Dims{steps, directions, batch, hidden};
  TESSERA_ASSIGN(Tensor y, Tensor::create(x.dtype(), out_dims, true));
  TESSERA_ASSIGN(Tensor last_h, Tensor::create(x.dtype(), state_dims));
  TESSERA_ASSIGN(Tensor last_c, Tensor::create(x.dtype(), state_dims));
  for (int64_t d = 0; d < directions; ++d) {
    Layer layer{cell,
                input,
                hidden,
                at.f("clip"),
                at.i("linear_before_reset") != 0,
                at.i("input_forget") != 0,
                w.data() + d * gates * hidden * input,
                r.data() + d * gates * hidden * hidden,
                b.empty() ? nullptr : b.data() + d * 2 * gates * hidden,
                p.empty() ? nullptr : p.data() + d * 3 * hidden,
                functions.data() + d * activations_of(cell)};
    bool reverse = direction == "reverse" || d == 1;
    for (int64_t n = 0; n < batch; ++n) {
      int64_t length = given(c, 4) ? c.operands[4].get_i64(n) : steps;
      if (length < 0 || length > steps)
        return c.error(ErrorCode::BadInput,
                       "a sequence of length " + std::to_string(length) + " in " + std::to_string(steps) + " steps");
      int64_t at_state = (batch_first ? n * directions + d : d * batch + n) * hidden;
      std::vector<double> h(static_cast<size_t>(hidden)), state(static_cast<size_t>(hidden));
      for (int64_t j = 0; j < hidden; ++j) {
        if (!h0.empty()) h[static_cast<size_t>(j)] = h0[static_cast<size_t>(at_state + j)];
        if (!c0.empty()) state[static_cast<size_t>(j)] = c0[static_cast<size_t>(at_state + j)];
      }
      for (int64_t s = 0; s < length; ++s) {
        int64_t t = reverse ? length - 1 - s : s;
        layer.step(vx.data() + (batch_first ? n * steps + t : t * batch + n) * input, h, state);
        int64_t to = (batch_first ? (n * steps + t) * directions + d : (t * directions + d) * batch + n) * hidden;
        for (int64_t j = 0; j < hidden; ++j) y.set_f64(to + j, h[static_cast<size_t>(j)]);
      }
      for (int64_t j = 0; j < hidden; ++j) {
        last_h.set_f64(at_state + j, h[static_cast<size_t>(j)]);
        last_c.set_f64(at_state + j, state[static_cast<size_t>(j)]);
      }
    }
  }
  c.results = {y, last_h};
  if (cell == Cell::Lstm) c.results.push_back(last_c);
  return {};
}

OpDef recurrent_record(std::string_view name, Cell cell, std::string_view summary) {
  OpDef def;
  def.name = name;
  def.summary = summary;
  def.onnx = {{name, "", 7}};
  def.operands = {{"X", TypeSet::Float},
                  {"W", TypeSet::SameAsFirst},
                  {"R", TypeSet::SameAsFirst},
                  {"B", TypeSet::SameAsFirst, true},
                  {"sequence_lens", TypeSet::Index, true},
                  {"initial_h", TypeSet::SameAsFirst, true}};
  def.attributes = {{"activation_alpha", AttrKind::Floats},
                    {"activation_beta", AttrKind::Floats},
                    {"activations", AttrKind::Strings},
                    {"clip", AttrKind::Float, false, 0.0},
                    {"direction", AttrKind::String, false, std::string("forward")},
                    {"hidden_size", AttrKind::Int},
                    {"layout", AttrKind::Int, false, int64_t{0}}};
  if (cell == Cell::Gru) def.attributes.push_back({"linear_before_reset", AttrKind::Int, false, int64_t{0}});
  if (cell == Cell::Lstm) {
    def.operands.push_back({"initial_c", TypeSet::SameAsFirst, true});
    def.operands.push_back({"P", TypeSet::SameAsFirst, true});
    def.attributes.push_back({"input_forget", AttrKind::Int, false, int64_t{0}});
  }
  def.max_results = cell == Cell::Lstm ? 3 : 2;
  def.infer = [cell](InferContext& c) { return infer(c, cell); };
  def.meaning = Decomposition{[cell](Graph& g, const Node& n, int) { return recurrent::decompose(g, n, cell); }};
  def.reference = [cell](ReferenceContext& c) { return reference_recurrent(c, cell); };
  def.samples = [cell] {
    int64_t g = gates_of(cell);
    auto t = [](Dims d, uint64_t seed) { return random(DType::F32, std::move(d), seed, -1, 1); };
    std::vector<Sample> out = {
        sample({t({3, 2, 4}, 1), t({1, g * 5, 4}, 2), t({1, g * 5, 5}, 3)}),
        sample({t({3, 2, 4}, 1), t({2, g * 5, 4}, 2), t({2, g * 5, 5}, 3), t({2, 2 * g * 5}, 4),
                integers(DType::I32, {2}, {3, 1}), t({2, 2, 5}, 5)},
               {{"direction", std::string("bidirectional")}, {"hidden_size", int64_t{5}}}),
        sample({t({2, 3, 4}, 1), t({1, g * 5, 4}, 2), t({1, g * 5, 5}, 3)},
               {{"layout", int64_t{1}}, {"direction", std::string("reverse")}, {"clip", 0.5}}),
        sample({t({40, 1, 2}, 1), t({1, g * 3, 2}, 2), t({1, g * 3, 3}, 3)}),
    };
    auto wide = [](Dims d, uint64_t seed) { return random(DType::F64, std::move(d), seed, -1, 1); };
    std::vector<Tensor> operands = {
        wide({2, 4, 3}, 1), wide({2, g * 2, 3}, 2), wide({2, g * 2, 2}, 3), wide({2, 2 * g * 2}, 4),
        vec({0, 4}),        wide({2, 2, 2}, 5)};
    Attributes all = {{"direction", std::string("bidirectional")}, {"layout", int64_t{1}}};
    if (cell == Cell::Gru) all.set("linear_before_reset", int64_t{1});
    if (cell == Cell::Lstm) {
      all.set("input_forget", int64_t{1});
      operands.push_back(wide({2, 2, 2}, 6));
      operands.push_back(wide({2, 6}, 7));
    }
    out.push_back(sample(operands, all));
    const std::vector<std::string> names = {"Relu",        "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh",
                                            "HardSigmoid", "Elu",    "Softsign",  "Softplus"};
    for (const std::string& name : names) {
      Attributes one = {{"activations", std::vector<std::string>(static_cast<size_t>(activations_of(cell)), name)}};
      out.push_back(sample({t({2, 1, 2}, 1), t({1, g * 2, 2}, 2), t({1, g * 2, 2}, 3)}, one));
    }
    Tensor half = random(DType::F16, {2, 2, 3}, 1, -1, 1);
    out.push_back(
        sample({half, random(DType::F16, {1, g * 2, 3}, 2, -1, 1), random(DType::F16, {1, g * 2, 2}, 3, -1, 1)}));
    out.back().tolerance = tolerance(DType::F16);
    for (Sample& s : out) s.result_count = cell == Cell::Lstm ? 3 : 2;
    return out;
  };
  def.error_samples = [cell] {
    int64_t g = gates_of(cell);
    auto t = [](Dims d) { return random(DType::F32, std::move(d)); };
    return std::vector<ErrorSample>{
        wrong({t({3, 2, 4}), t({1, g * 5, 3}), t({1, g * 5, 5})}, {}, ErrorCode::ShapeMismatch, ""),
        wrong({t({3, 2, 4}), t({1, g * 5, 4}), t({1, g * 5, 5})}, {{"direction", std::string("up")}},
              ErrorCode::BadAttribute, "direction"),
        wrong({t({3, 2, 4}), t({1, g * 5, 4}), t({1, g * 5, 5})},
              {{"activations", std::vector<std::string>{"Cube", "Cube", "Cube"}}}, ErrorCode::BadAttribute, "Cube"),
    };
  };
  return def;
}

} // namespace

void register_recurrent_ops(OpTable& table) {
  table.add(recurrent_record("RNN", Cell::Rnn, "a layer of simple recurrent units over a sequence"));
  table.add(recurrent_record("GRU", Cell::Gru, "a layer of gated recurrent units over a sequence"));
  table.add(recurrent_record("LSTM", Cell::Lstm, "a layer of long short-term memory units over a sequence"));
}

} // namespace tessera
