// LinearAttention: a recurrence over time on a state of keys times values, per head.
//   state  <- state * exp(decay)                        gated rules
//   v      <- beta * (v - state^T k)                    delta rules
//   state  <- state + k v^T
//   output  = scale * state^T q
#include "graph/ops/parts.h"
#include "graph/ops/repeat.h"
#include <cmath>

namespace tessera {

namespace {
using namespace ops;

struct Rule {
  bool gated, delta;
};

Result<Rule> rule_of(const Node& n) {
  std::string r = n.attributes.s("update_rule", "gated_delta");
  if (r == "linear") return Rule{false, false};
  if (r == "gated") return Rule{true, false};
  if (r == "delta") return Rule{false, true};
  if (r == "gated_delta") return Rule{true, true};
  return Diagnostic(ErrorCode::BadAttribute, n.location, "attribute 'update_rule' has the unknown value '" + r + "'");
}

Status infer_linear_attention(InferContext& c) {
  TESSERA_ASSIGN(Rule rule, rule_of(c.node));
  int64_t qh = c.node.attributes.i("q_num_heads"), kh = c.node.attributes.i("kv_num_heads");
  if (qh < 1 || kh < 1 || qh % kh != 0)
    return c.error(ErrorCode::BadAttribute,
                   std::to_string(qh) + " heads of the query share " + std::to_string(kh) + " of the key");
  for (int i = 0; i < 3; ++i)
    if (c.type(i).rank() != 3)
      return c.error(ErrorCode::ShapeMismatch,
                     "LinearAttention takes [batch, time, heads * width], not " + str(c.shape(i)));
  if (rule.gated != c.has(4))
    return c.error(ErrorCode::MalformedModel,
                   rule.gated ? "this update rule needs operand 'decay'" : "this update rule takes no operand 'decay'");
  if (rule.delta != c.has(5))
    return c.error(ErrorCode::MalformedModel,
                   rule.delta ? "this update rule needs operand 'beta'" : "this update rule takes no operand 'beta'");
  const SymShape q = c.shape(0), k = c.shape(1), v = c.shape(2);
  auto divides = [&](const SymExpr& width, int64_t heads) {
    return c.env().require(sym_eq(mod(width, heads), 0), GuardClass::Required, "heads divide the width",
                           c.node.location);
  };
  TESSERA_TRY(divides(q[2], qh));
  TESSERA_TRY(divides(v[2], kh));
  SymExpr dk = floordiv(q[2], qh), dv = floordiv(v[2], kh);
  TESSERA_TRY(c.env().require_equal(k[2], dk * kh, "widths of query and key", c.node.location));
  for (int i = 1; i < 6; ++i) {
    if (i == 3 || !c.has(i)) continue;
    if (c.type(i).rank() != 3)
      return c.error(ErrorCode::ShapeMismatch, "LinearAttention takes [batch, time, width], not " + str(c.shape(i)));
    for (size_t d = 0; d < 2; ++d)
      TESSERA_TRY(c.env().require_equal(c.shape(i)[d], q[d], "batch and time", c.node.location));
  }
  auto one_of = [&](int i, std::initializer_list<SymExpr> widths) -> Status {
    if (!c.has(i)) return {};
    for (const SymExpr& w : widths)
      if (c.env().known_equal(c.shape(i)[2], w)) return {};
    return c.error(ErrorCode::ShapeMismatch, "operand '" +
                                                 std::string(c.node.op->operands[static_cast<size_t>(i)].name) +
                                                 "' is " + str(c.shape(i)));
  };
  TESSERA_TRY(one_of(4, {kh, dk * kh}));
  TESSERA_TRY(one_of(5, {kh, 1}));
  SymShape state = {q[0], kh, dk, dv};
  if (c.has(3)) {
    if (c.type(3).rank() != 4)
      return c.error(ErrorCode::ShapeMismatch,
                     "operand 'past_state' must be " + str(state) + ", not " + str(c.shape(3)));
    for (size_t d = 0; d < 4; ++d)
      TESSERA_TRY(c.env().require_equal(c.shape(3)[d], state[d], "past_state", c.node.location));
  }
  TESSERA_TRY(set_result(c, c.type(0).dtype, {q[0], q[1], dv * qh}));
  return c.result_count > 1 ? set_result(c, c.has(3) ? c.type(3).dtype : c.type(0).dtype, state, 1) : Status();
}

Status reference_linear_attention(ReferenceContext& c) {
  TESSERA_ASSIGN(Rule rule, rule_of(c.node));
  auto values = [&](size_t i) { return given(c, i) ? to_f64(c.operands[i]) : std::vector<double>(); };
  int64_t qh = c.node.attributes.i("q_num_heads"), kh = c.node.attributes.i("kv_num_heads"), group = qh / kh;
  const Dims& qd = c.operands[0].dims();
  int64_t batch = qd[0], steps = qd[1], dk = qd[2] / qh, dv = c.operands[2].dims()[2] / kh;
  std::vector<double> q = values(0), k = values(1), v = values(2), state = values(3), decay = values(4),
                      beta = values(5);
  double scale = c.node.attributes.f("scale");
  if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(dk));
  state.resize(static_cast<size_t>(batch * kh * dk * dv));
  int64_t decay_width = given(c, 4) ? c.operands[4].dims()[2] : 0,
          beta_width = given(c, 5) ? c.operands[5].dims()[2] : 0;
  TESSERA_ASSIGN(Tensor out, Tensor::create(c.operands[0].dtype(), {batch, steps, qh * dv}));
  for (int64_t n = 0; n < batch; ++n)
    for (int64_t h = 0; h < kh; ++h) {
      double* s = state.data() + (n * kh + h) * dk * dv;
      for (int64_t t = 0; t < steps; ++t) {
        int64_t at = n * steps + t;
        const double* key = k.data() + (at * kh + h) * dk;
        std::vector<double> value(v.begin() + (at * kh + h) * dv, v.begin() + (at * kh + h + 1) * dv);
        for (int64_t i = 0; i < dk && rule.gated; ++i) {
          double g = std::exp(decay[static_cast<size_t>(at * decay_width + (decay_width == kh ? h : h * dk + i))]);
          for (int64_t j = 0; j < dv; ++j) s[i * dv + j] *= g;
        }
        for (int64_t j = 0; j < dv && rule.delta; ++j) {
          double known = 0;
          for (int64_t i = 0; i < dk; ++i) known += s[i * dv + j] * key[i];
          double& target = value[static_cast<size_t>(j)];
          target = beta[static_cast<size_t>(at * beta_width + (beta_width == 1 ? 0 : h))] * (target - known);
        }
        for (int64_t i = 0; i < dk; ++i)
          for (int64_t j = 0; j < dv; ++j) s[i * dv + j] += key[i] * value[static_cast<size_t>(j)];
        for (int64_t g = 0; g < group; ++g) {
          int64_t head = h * group + g;
          for (int64_t j = 0; j < dv; ++j) {
            double sum = 0;
            for (int64_t i = 0; i < dk; ++i) sum += q[static_cast<size_t>((at * qh + head) * dk + i)] * s[i * dv + j];
            out.set_f64((at * qh + head) * dv + j, scale * sum);
          }
        }
      }
    }
  TESSERA_ASSIGN(Tensor last, from_f64(given(c, 3) ? c.operands[3].dtype() : out.dtype(), {batch, kh, dk, dv}, state));
  c.results = {out, last};
  return {};
}

// A scan over time on a state [batch, head of keys, 1, width of keys, width of values].
Result<std::vector<ValueId>> decompose_linear_attention(Graph& g, const Node& n, int) {
  B b(g, n);
  TESSERA_ASSIGN(Rule rule, rule_of(n));
  InferContext types{g, n, 2, {}, {}};
  types.results.resize(2);
  types.contents.resize(2);
  TESSERA_TRY(infer_linear_attention(types));
  const SymExpr batch = b.dim(b.in(0), 0);
  const int64_t qh = n.attributes.i("q_num_heads"), kh = n.attributes.i("kv_num_heads"), group = qh / kh;
  const SymExpr dk = floordiv(b.dim(b.in(0), 2), qh), dv = floordiv(b.dim(b.in(2), 2), kh);
  const SymShape state_shape = {batch, kh, 1, dk, dv};
  const DType type = compute_dtype(b.dtype(b.in(0)));
  ValueId state =
      b.has(3) ? cast(b, reshape(b, b.in(3), state_shape), type) : expand(b, b.scalar(type, 0), state_shape);

  Scan scan;
  scan.body = std::make_shared<Graph>("step", std::make_shared<ShapeEnv>(b.env().inner()));
  Node place;
  place.location = n.location;
  B s(*scan.body, place);
  auto input = [&](const char* name, ValueId given, std::vector<ValueId>& as) {
    TensorType step = b.type(given);
    if (&as == &scan.scanned) step.shape.erase(step.shape.begin());
    as.push_back(given);
    return scan.body->add_input(name, std::move(step));
  };
  const ValueId before = input("state", state, scan.carried);
  // Operand `i` of one step, [batch, heads of keys, queries of a head, dk, dv].
  auto step_of = [&](const char* name, int i, SymShape shape) {
    ValueId first = transpose(b, widen(b, b.in(i)), {1, 0, 2});
    shape.insert(shape.begin(), batch);
    return b.ok() ? reshape(s, input(name, first, scan.scanned), std::move(shape)) : ValueId{};
  };
  const ValueId query = step_of("query", 0, {kh, group, dk, 1}), key = step_of("key", 1, {kh, 1, dk, 1});
  ValueId value = step_of("value", 2, {kh, 1, 1, dv}), next = before;
  if (rule.gated) {
    const bool of_heads = b.env().known_equal(b.dim(b.in(4), 2), kh);
    next = mul(s, next, exp(s, step_of("decay", 4, {kh, 1, of_heads ? SymExpr(1) : dk, 1})));
  }
  if (rule.delta) {
    const ValueId beta = step_of("beta", 5, {b.dim(b.in(5), 2), 1, 1, 1});
    value = mul(s, beta, sub(s, value, sum(s, mul(s, next, key), {3}, true)));
  }
  next = add(s, next, mul(s, key, value));
  const double scale = n.attributes.f("scale");
  const ValueId factor = scale != 0 ? s.scalar(type, scale) : div(s, 1.0, sqrt(s, s.size(dk, type)));
  ValueId y = mul(s, sum(s, mul(s, query, next), {3}, false), factor); // [batch, kh, group, dv]
  y = reshape(s, y, {batch, dv * qh});
  if (!s.ok()) b.fail(s.failed().error());
  if (!b.ok()) return b.failed();
  scan.body->add_output("state", next);
  scan.body->add_output("y", y);
  scan.reverse_in.assign(scan.scanned.size(), false);
  scan.reverse_out.assign(1, false);
  const std::vector<ValueId> results = scan_slices(b, scan);
  if (!b.ok()) return b.failed();
  const ValueId last = reshape(b, results[0], {batch, kh, dk, dv}), all = transpose(b, results[1], {1, 0, 2});
  const DType d = b.dtype(b.in(0));
  return b.done({cast(b, all, d), cast(b, last, b.has(3) ? b.dtype(b.in(3)) : d)});
}

OpDef linear_attention_record() {
  OpDef def;
  def.name = "LinearAttention";
  def.summary = "attention without softmax, as a recurrence over time on a state per head";
  def.onnx = {{"LinearAttention", "", 27}};
  def.operands = {{"query", TypeSet::Float},
                  {"key", TypeSet::SameAsFirst},
                  {"value", TypeSet::SameAsFirst},
                  {"past_state", TypeSet::Float, true},
                  {"decay", TypeSet::SameAsFirst, true},
                  {"beta", TypeSet::SameAsFirst, true}};
  def.attributes = {{"chunk_size", AttrKind::Int, false, int64_t{64}},
                    {"kv_num_heads", AttrKind::Int, true},
                    {"q_num_heads", AttrKind::Int, true},
                    {"scale", AttrKind::Float, false, 0.0},
                    {"update_rule", AttrKind::String, false, std::string("gated_delta")}};
  def.max_results = 2;
  def.infer = infer_linear_attention;
  def.meaning = Decomposition{decompose_linear_attention};
  def.reference = reference_linear_attention;
  def.samples = [] {
    auto r = [](Dims d, uint64_t seed) { return random(DType::F32, std::move(d), seed, -1, 0.5); };
    Tensor none;
    auto a = [](const char* rule) {
      return Attributes{{"q_num_heads", int64_t{4}}, {"kv_num_heads", int64_t{2}}, {"update_rule", std::string(rule)}};
    };
    Tensor q = r({2, 3, 16}, 1), k = r({2, 3, 8}, 2), v = r({2, 3, 6}, 3);
    std::vector<Sample> out = {
        sample({q, k, v}, a("linear")),
        sample({q, k, v, r({2, 2, 4, 3}, 4), r({2, 3, 2}, 5)}, a("gated")),
        sample({q, k, v, none, none, r({2, 3, 1}, 6)}, a("delta")),
        sample({q, k, v, none, r({2, 3, 8}, 5), r({2, 3, 2}, 6)}, a("gated_delta")),
        sample({r({1, 40, 8}, 1), r({1, 40, 4}, 2), r({1, 40, 4}, 3)}, a("linear")),
    };
    auto wide = [](Dims d, uint64_t seed) { return random(DType::F64, std::move(d), seed, -1, 0.5); };
    out.push_back(sample({wide({1, 2, 8}, 1), wide({1, 2, 4}, 2), wide({1, 2, 2}, 3), wide({1, 2, 2, 1}, 4),
                          wide({1, 2, 2}, 5), wide({1, 2, 2}, 6)},
                         a("gated_delta")));
    auto half = [](Dims d, uint64_t seed) { return random(DType::F16, std::move(d), seed, -1, 0.5); };
    out.push_back(
        sample({half({1, 2, 8}, 1), half({1, 2, 4}, 2), half({1, 2, 2}, 3), r({1, 2, 2, 1}, 4)}, a("linear")));
    out.back().tolerance = tolerance(DType::F16);
    for (Sample& s : out) s.result_count = 2;
    return out;
  };
  def.error_samples = [] {
    Tensor q = random(DType::F32, {2, 3, 16}), k = random(DType::F32, {2, 3, 8});
    return std::vector<ErrorSample>{
        wrong({q, k, k}, {{"q_num_heads", int64_t{4}}, {"kv_num_heads", int64_t{2}}}, ErrorCode::MalformedModel,
              "decay"),
        wrong({q, k, k},
              {{"q_num_heads", int64_t{4}}, {"kv_num_heads", int64_t{3}}, {"update_rule", std::string("linear")}},
              ErrorCode::BadAttribute, "heads"),
        wrong({q, k, k},
              {{"q_num_heads", int64_t{4}}, {"kv_num_heads", int64_t{2}}, {"update_rule", std::string("none")}},
              ErrorCode::BadAttribute, "update_rule")};
  };
  return def;
}

} // namespace

void register_linear_attention_ops(OpTable& table) { table.add(linear_attention_record()); }

} // namespace tessera
