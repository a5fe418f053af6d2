// One step of an optimiser: Adagrad, Adam, Momentum. Operands are the rate, the step count, then all tensors, all
// gradients, and all accumulators of each kind; results are new tensors, then new accumulators.
#include "graph/ops/parts.h"

namespace tessera {

namespace {
using namespace ops;

// Updates one tensor: x, its gradient (regularised) and its accumulators to the new x and accumulators.
using Step = std::function<std::vector<ValueId>(B&, ValueId rate, ValueId count, ValueId x, ValueId gradient,
                                                std::span<const ValueId> state)>;

OpDef optimizer_record(std::string_view name, std::string_view summary, int accumulators,
                       std::vector<AttrDef> attributes, Step step) {
  OpDef def;
  def.name = name;
  def.summary = summary;
  def.onnx = {{name, "ai.onnx.preview.training", 1}};
  def.operands = {{"R", TypeSet::Float}, {"T", TypeSet::Index}, {"inputs", TypeSet::Float, false, true}};
  def.attributes = std::move(attributes);
  def.max_results = 1 << 16;
  def.meaning = Decomposition{[accumulators, step](Graph& g, const Node& n, int) {
    B b(g, n);
    int kinds = 2 + accumulators, tensors = b.operands() - 2;
    if (tensors % kinds != 0 || tensors == 0)
      b.fail(ErrorCode::MalformedModel,
             std::to_string(tensors) + " tensors are not groups of " + std::to_string(kinds));
    if (!b.ok()) return b.done(ValueId{});
    int count = tensors / kinds;
    std::vector<ValueId> results(static_cast<size_t>(count * (1 + accumulators)));
    for (int i = 0; i < count; ++i) {
      ValueId x = b.in(2 + i);
      DType d = b.dtype(x);
      ValueId gradient = add(b, mul(b, x, b.attr().f("norm_coefficient")), b.in(2 + count + i));
      std::vector<ValueId> state;
      for (int k = 0; k < accumulators; ++k) state.push_back(b.in(2 + (2 + k) * count + i));
      std::vector<ValueId> next = step(b, cast(b, b.in(0), d), cast(b, b.in(1), d), x, gradient, state);
      for (int k = 0; k <= accumulators; ++k)
        results[static_cast<size_t>(k * count + i)] = next[static_cast<size_t>(k)];
    }
    return b.done(std::move(results));
  }};
  return def;
}

// Two tensors of a group each, at the first step and later.
std::vector<Sample> optimizer_samples(int accumulators, const Attributes& a) {
  std::vector<Sample> out;
  for (int64_t step : {0, 3}) {
    std::vector<Tensor> t = {scalar(DType::F32, 0.1), scalar(DType::I64, static_cast<double>(step))};
    for (int k = 0; k < 2 + accumulators; ++k) {
      t.push_back(random(DType::F32, {3}, static_cast<uint64_t>(2 * k + 1), 0.1, 1));
      t.push_back(random(DType::F32, {2, 2}, static_cast<uint64_t>(2 * k + 2), 0.1, 1));
    }
    Sample s = sample(std::move(t), a);
    s.result_count = 2 * (1 + accumulators);
    out.push_back(std::move(s));
  }
  return out;
}

std::vector<ErrorSample> optimizer_errors(const Attributes& a) {
  return {wrong({scalar(DType::F32, 0.1), scalar(DType::I64, 0), random(DType::F32, {2})}, a, ErrorCode::MalformedModel,
                "groups")};
}

// base ^ count for a constant base.
ValueId to_power(B& b, double base, ValueId count) { return pow(b, b.like(count, base), count); }

OpDef adagrad_record() {
  OpDef def = optimizer_record(
      "Adagrad", "one step of Adagrad", 1,
      {{"decay_factor", AttrKind::Float, false, 0.0},
       {"epsilon", AttrKind::Float, false, 1e-6},
       {"norm_coefficient", AttrKind::Float, false, 0.0}},
      [](B& b, ValueId rate, ValueId count, ValueId x, ValueId gradient, std::span<const ValueId> state) {
        ValueId r = div(b, rate, add(b, mul(b, count, b.attr().f("decay_factor")), 1.0));
        ValueId h = add(b, state[0], mul(b, gradient, gradient));
        ValueId scaled = div(b, mul(b, r, gradient), add(b, sqrt(b, h), b.attr().f("epsilon", 1e-6)));
        return std::vector<ValueId>{sub(b, x, scaled), h};
      });
  Attributes a = {{"norm_coefficient", 0.01}, {"decay_factor", 0.1}};
  def.samples = [a] { return optimizer_samples(1, a); };
  def.error_samples = [a] { return optimizer_errors(a); };
  return def;
}

OpDef adam_record() {
  OpDef def = optimizer_record(
      "Adam", "one step of Adam", 2,
      {{"alpha", AttrKind::Float, false, 0.9},
       {"beta", AttrKind::Float, false, 0.999},
       {"epsilon", AttrKind::Float, false, 1e-6},
       {"norm_coefficient", AttrKind::Float, false, 0.0},
       {"norm_coefficient_post", AttrKind::Float, false, 0.0}},
      [](B& b, ValueId rate, ValueId count, ValueId x, ValueId gradient, std::span<const ValueId> state) {
        double alpha = b.attr().f("alpha", 0.9), beta = b.attr().f("beta", 0.999);
        ValueId v = add(b, mul(b, state[0], alpha), mul(b, gradient, 1 - alpha));
        ValueId h = add(b, mul(b, state[1], beta), mul(b, mul(b, gradient, gradient), 1 - beta));
        // The first steps lack history: their moments are too small, by a factor that is known. Not at step 0.
        ValueId later = gt(b, count, 0.0), steps = max(b, count, 1.0);
        ValueId correction =
            div(b, sqrt(b, sub(b, 1.0, to_power(b, beta, steps))), sub(b, 1.0, to_power(b, alpha, steps)));
        ValueId r = mul(b, rate, select(b, later, correction, 1.0));
        ValueId moved = sub(b, x, mul(b, r, div(b, v, add(b, sqrt(b, h), b.attr().f("epsilon", 1e-6)))));
        double post = b.attr().f("norm_coefficient_post");
        if (post != 0) moved = mul(b, moved, 1 - post);
        return std::vector<ValueId>{moved, v, h};
      });
  Attributes a = {{"norm_coefficient", 0.01}, {"norm_coefficient_post", 0.02}};
  def.samples = [a] { return optimizer_samples(2, a); };
  def.error_samples = [a] { return optimizer_errors(a); };
  return def;
}

OpDef momentum_record() {
  OpDef def = optimizer_record(
      "Momentum", "one step of gradient descent with momentum, standard or Nesterov's", 1,
      {{"alpha", AttrKind::Float, true},
       {"beta", AttrKind::Float, true},
       {"mode", AttrKind::String, true},
       {"norm_coefficient", AttrKind::Float, true}},
      [](B& b, ValueId rate, ValueId count, ValueId x, ValueId gradient, std::span<const ValueId> state) {
        std::string mode = b.attr().s("mode");
        if (mode != "standard" && mode != "nesterov")
          b.fail(ErrorCode::BadAttribute, "attribute 'mode' has the unknown value '" + mode + "'");
        double alpha = b.attr().f("alpha"), beta = b.attr().f("beta");
        ValueId share = select(b, gt(b, count, 0.0), b.like(count, beta), 1.0);
        ValueId v = add(b, mul(b, state[0], alpha), mul(b, share, gradient));
        ValueId direction = mode == "nesterov" ? add(b, gradient, mul(b, v, alpha)) : v;
        return std::vector<ValueId>{sub(b, x, mul(b, rate, direction)), v};
      });
  Attributes a = {{"alpha", 0.9}, {"beta", 0.5}, {"mode", std::string("nesterov")}, {"norm_coefficient", 0.01}};
  def.samples = [a] { return optimizer_samples(1, a); };
  def.error_samples = [a] { return optimizer_errors(a); };
  return def;
}

} // namespace

void register_training_ops(OpTable& table) {
  table.add(adagrad_record());
  table.add(adam_record());
  table.add(momentum_record());
}

} // namespace tessera
