// Losses of classification. The loss of an element is picked by comparing the class with an iota, not by an index: a
// target that is to be ignored may lie outside of the classes.
#include "graph/ops/parts.h"

namespace tessera {

namespace {
using namespace ops;

// -weight[target] * log_prob[target], reduced. log_prob is [N, C, d...], target [N, d...].
ValueId pick(B& b, ValueId log_prob, ValueId target, ValueId weight) {
  int rank = b.rank(log_prob);
  if (b.ok() && (rank < 2 || b.rank(target) != rank - 1))
    b.fail(ErrorCode::ShapeMismatch, "a loss takes scores [N, C, d...] and targets [N, d...], not " +
                                         str(b.shape(log_prob)) + " and " + str(b.shape(target)));
  std::string reduction = b.attr().s("reduction", "mean");
  if (reduction != "none" && reduction != "mean" && reduction != "sum")
    b.fail(ErrorCode::BadAttribute, "attribute 'reduction' has the unknown value '" + reduction + "'");
  if (!b.ok()) return {};
  SymShape shape = b.shape(log_prob), along(shape.size(), SymExpr(1));
  for (size_t i = 0, k = 0; i < shape.size(); ++i)
    if (i != 1)
      b.check(b.env().require_equal(b.dim(target, static_cast<int64_t>(k++)), shape[i], "scores and targets",
                                    b.node().location));
  along[1] = shape[1];
  ValueId classes = iota(b, along, 1), wanted = unsqueeze(b, cast(b, target, DType::I64), {1});
  ValueId hit = eq(b, wanted, classes);
  ValueId loss = neg(b, sum(b, select(b, hit, log_prob, 0.0), {1}, false));
  ValueId weights; // of each target; 1 without them
  if (weight.valid()) {
    if (b.rank(weight) != 1)
      return b.fail(ErrorCode::ShapeMismatch, "weights of a loss are a vector, not " + str(b.shape(weight))), ValueId{};
    b.check(b.env().require_equal(b.dim(weight, 0), shape[1], "weights and classes", b.node().location));
    weights = sum(b, select(b, hit, reshape(b, cast(b, weight, b.dtype(log_prob)), along), 0.0), {1}, false);
  }
  if (b.attr().has("ignore_index")) {
    ValueId counts = ne(b, cast(b, target, DType::I64), b.scalar_i(DType::I64, b.attr().i("ignore_index")));
    if (weights.valid())
      weights = select(b, counts, weights, 0.0);
    else
      weights = cast(b, counts, b.dtype(log_prob));
    loss = select(b, counts, loss, 0.0);
  }
  if (weights.valid()) loss = mul(b, loss, weights);
  if (reduction == "none") return loss;
  Ints axes;
  for (int i = 0; i < b.rank(loss); ++i) axes.push_back(i);
  if (reduction == "sum") return sum(b, loss, axes, false);
  return weights.valid() ? div(b, sum(b, loss, axes, false), sum(b, weights, axes, false)) : mean(b, loss, axes, false);
}

std::vector<AttrDef> loss_attributes() {
  return {{"ignore_index", AttrKind::Int}, {"reduction", AttrKind::String, false, std::string("mean")}};
}

std::vector<Sample> loss_samples(int result_count) {
  std::vector<Sample> out;
  Tensor scores = random(DType::F32, {3, 5}, 1, -3, 0), target = integers(DType::I64, {3}, {4, 0, 2});
  Tensor deep = random(DType::F32, {2, 4, 3}, 2, -3, 0), deep_target = integers(DType::I32, {2, 3}, {0, 3, 1, 2, 2, 0});
  for (const char* r : {"none", "mean", "sum"}) {
    Attributes a = {{"reduction", std::string(r)}};
    out.push_back(sample({scores, target}, a));
    out.push_back(sample({deep, deep_target, random(DType::F32, {4}, 3, 0.1, 1)}, a));
    a.set("ignore_index", int64_t{2});
    out.push_back(sample({scores, target}, a));
    out.push_back(sample({deep, deep_target, random(DType::F32, {4}, 3, 0.1, 1)}, a));
  }
  out.push_back(sample({scores, integers(DType::I64, {3}, {4, -7, 2})}, {{"ignore_index", int64_t{-7}}}));
  for (Sample& s : out) s.result_count = result_count;
  return out;
}

std::vector<ErrorSample> loss_errors() {
  Tensor scores = random(DType::F32, {3, 5});
  return {wrong({scores, integers(DType::I64, {3, 1}, {0, 0, 0})}, {}, ErrorCode::ShapeMismatch, "targets"),
          wrong({scores, vec({0, 1})}, {}, ErrorCode::ShapeMismatch, ""),
          wrong({scores, vec({0, 1, 2}), random(DType::F32, {4})}, {}, ErrorCode::ShapeMismatch, ""),
          wrong({scores, vec({0, 1, 2})}, {{"reduction", std::string("max")}}, ErrorCode::BadAttribute, "reduction")};
}

OpDef nll_record() {
  OpDef def;
  def.name = "NegativeLogLikelihoodLoss";
  def.summary = "minus the log-probability of each target";
  def.onnx = {{"NegativeLogLikelihoodLoss", "", 12}};
  def.operands = {{"input", TypeSet::Float}, {"target", TypeSet::Index}, {"weight", TypeSet::SameAsFirst, true}};
  def.attributes = loss_attributes();
  def.meaning = Decomposition{[](Graph& g, const Node& n, int) {
    B b(g, n);
    return b.done(cast(b, pick(b, widen(b, b.in(0)), b.in(1), b.in(2)), b.dtype(b.in(0))));
  }};
  def.samples = [] { return loss_samples(1); };
  def.error_samples = loss_errors;
  return def;
}

OpDef cross_entropy_record() {
  OpDef def;
  def.name = "SoftmaxCrossEntropyLoss";
  def.summary = "minus the log-softmax of each target's score";
  def.onnx = {{"SoftmaxCrossEntropyLoss", "", 12}};
  def.operands = {{"scores", TypeSet::Float}, {"labels", TypeSet::Index}, {"weights", TypeSet::SameAsFirst, true}};
  def.attributes = loss_attributes();
  def.max_results = 2;
  def.meaning = Decomposition{[](Graph& g, const Node& n, int) {
    B b(g, n);
    ValueId x = widen(b, b.in(0));
    if (b.rank(x) < 2)
      b.fail(ErrorCode::ShapeMismatch,
             "a loss takes scores [N, C, d...] and targets [N, d...], not " + str(b.shape(x)));
    if (!b.ok()) return b.done(ValueId{});
    ValueId centred = sub(b, x, reduce(b, "reduce_max", x, {1}, true));
    ValueId log_prob = sub(b, centred, log(b, sum(b, exp(b, centred), {1}, true)));
    DType d = b.dtype(b.in(0));
    return b.done({cast(b, pick(b, log_prob, b.in(1), b.in(2)), d), cast(b, log_prob, d)});
  }};
  def.samples = [] { return loss_samples(2); };
  def.error_samples = loss_errors;
  return def;
}

} // namespace

void register_loss_ops(OpTable& table) {
  table.add(nll_record());
  table.add(cross_entropy_record());
}

} // namespace tessera
