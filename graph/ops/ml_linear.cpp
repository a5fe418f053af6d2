// Linear models: products with constants.
#include "graph/ops/ml.h"

namespace tessera {

namespace {
using namespace ops;

constexpr std::initializer_list<DType> kInputs = {DType::F32, DType::F64, DType::I64, DType::I32};

// X @ coefficients + intercepts of `outputs` rows of coefficients; f32[rows, outputs].
ValueId linear(B& b, int64_t outputs, const std::vector<double>& intercepts) {
  const auto coefficients = ml_floats(b.node(), "coefficients");
  const auto n = static_cast<int64_t>(coefficients.size());
  if (outputs < 1 || n == 0 || n % outputs != 0)
    b.fail(ErrorCode::BadAttribute,
           std::to_string(n) + " coefficients are given for " + std::to_string(outputs) + " outputs");
  if (!b.ok()) return {};
  ValueId x = ml_rows(b, DType::F32, n / outputs);
  std::vector<double> columns(coefficients.size());
  for (int64_t o = 0; o < outputs; ++o)
    for (int64_t f = 0; f < n / outputs; ++f)
      columns[static_cast<size_t>(f * outputs + o)] = coefficients[static_cast<size_t>(o * (n / outputs) + f)];
  ValueId y = matmul(b, x, ml_constant(b, DType::F32, {n / outputs, outputs}, columns));
  if (static_cast<int64_t>(intercepts.size()) != outputs) return y;
  return add(b, y, ml_constant(b, DType::F32, {outputs}, intercepts));
}

// ---- LinearRegressor
OpDef regressor() {
  OpDef def =
      ml("ai.onnx.ml.LinearRegressor", "X @ coefficients + intercepts", {{"X", TypeSet::Numeric}}, [](B& b) -> ValueId {
        const PostTransform transform = post_transform(b);
        return transformed(b, linear(b, b.attr().i("targets"), ml_floats(b.node(), "intercepts")), transform);
      });
  def.attributes = {{"coefficients", AttrKind::Floats, true},
                    {"intercepts", AttrKind::Floats},
                    ml_text("post_transform", "NONE"),
                    integer("targets", 1)};
  def.samples = [] {
    std::vector<Sample> out;
    const std::vector<double> six = {0.5, -1, 2, 0.25, 1, -0.75};
    for (DType d : kInputs) {
      out.push_back(sample({random(d, {5, 6}, 1)}, {{"coefficients", six}}));
      out.push_back(
          sample({random(d, {5, 3}, 2)},
                 {{"coefficients", six}, {"intercepts", std::vector<double>{1, -1}}, {"targets", int64_t{2}}}));
    }
    out.push_back(sample({random(DType::F32, {6}, 1)}, {{"coefficients", six}}));
    for (const char* transform : {"SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"})
      out.push_back(
          sample({random(DType::F32, {4, 2}, 3)},
                 {{"coefficients", six}, {"targets", int64_t{3}}, {"post_transform", std::string(transform)}}));
    out.push_back(sample({random(DType::F32, {4, 2}, 3, 0.1, 0.4)},
                         {{"coefficients", std::vector<double>{1, 1}}, {"post_transform", std::string("PROBIT")}}));
    return out;
  };
  def.error_samples = [] {
    const std::vector<double> three = {1, 2, 3};
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {2, 3})}, {{"coefficients", three}, {"targets", int64_t{2}}}, ErrorCode::BadAttribute,
              "3 coefficients"),
        wrong({random(DType::F32, {2, 4})}, {{"coefficients", three}}, ErrorCode::ShapeMismatch, "features"),
        wrong({random(DType::F32, {2, 3})}, {{"coefficients", three}, {"post_transform", std::string("TANH")}},
              ErrorCode::BadAttribute, "PROBIT")};
  };
  return def;
}

// ---- LinearClassifier
Result<std::vector<ValueId>> classify(Graph& g, const Node& n, int) {
  B b(g, n);
  const PostTransform transform = post_transform(b);
  MlLabels labels = ml_labels(b, "classlabels_ints");
  const auto intercepts = ml_floats(n, "intercepts");
  const int64_t classes = intercepts.empty() ? labels.size() : static_cast<int64_t>(intercepts.size());
  ValueId scores = linear(b, classes, intercepts);
  if (!b.ok()) return b.failed();
  if (classes == 1) { // of the second class of two
    const bool two = labels.size() == 2;
    if (!two && labels.texts.empty()) labels.numbers = {0, 1};
    if (!two && !labels.texts.empty()) labels.texts = {"0", "1"};
    ValueId label = ml_labelled(b, labels, gt(b, squeeze(b, scores, {1}), 0.0), 1, 0);
    if (!two) return b.done({label, transformed(b, scores, transform)});
    if (transform == PostTransform::Logistic)
      return b.done({label, transformed(b, concat(b, {neg(b, scores), scores}, 1), transform)});
    if (transform == PostTransform::Probit) scores = transformed(b, scores, transform);
    return b.done({label, concat(b, {sub(b, 1.0, scores), scores}, 1)});
  }
  if (labels.size() < classes)
    b.fail(ErrorCode::BadAttribute,
           std::to_string(labels.size()) + " labels are given for " + std::to_string(classes) + " classes");
  return b.done({ml_labelled(b, labels, ml_largest(b, scores)), transformed(b, scores, transform)});
}

OpDef classifier() {
  OpDef def =
      ml("ai.onnx.ml.LinearClassifier", "the class with the largest of X @ coefficients + intercepts, and these",
         {{"X", TypeSet::Numeric}}, DecomposeFn(classify));
  def.attributes = {{"classlabels_ints", AttrKind::Ints},
                    {"classlabels_strings", AttrKind::Strings},
                    {"coefficients", AttrKind::Floats, true},
                    {"intercepts", AttrKind::Floats},
                    integer("multi_class", 0),
                    ml_text("post_transform", "NONE")};
  def.max_results = 2;
  const Attributes three = {{"classlabels_ints", Ints{4, 7, 9}},
                            {"coefficients", std::vector<double>{0.5, -1, 2, 0.25, 1, -0.75}},
                            {"intercepts", std::vector<double>{0.5, 0, -0.5}}};
  def.samples = [three] {
    std::vector<Sample> out;
    for (DType d : kInputs) out.push_back(sample({random(d, {5, 2}, 1)}, three));
    for (const char* transform : {"SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"}) {
      Attributes a = three;
      a.set("post_transform", std::string(transform));
      out.push_back(sample({random(DType::F32, {4, 2}, 2)}, a));
    }
    Attributes two = {{"classlabels_ints", Ints{4, 7}},
                      {"coefficients", std::vector<double>{0.5, -1}},
                      {"intercepts", std::vector<double>{0.5}}};
    out.push_back(sample({random(DType::F32, {4, 2}, 2)}, two));
    out.push_back(sample({random(DType::F32, {2}, 3)}, two));
    two.erase("classlabels_ints");
    out.push_back(sample({random(DType::F32, {4, 2}, 2)}, two));
    two.set("classlabels_strings", std::vector<std::string>{"no", "yes"});
    out.push_back(sample({random(DType::F32, {4, 2}, 2)}, two));
    for (Sample& s : out) s.result_count = 2;
    return out;
  };
  def.error_samples = [three] {
    Attributes few = three, both = three;
    few.set("classlabels_ints", Ints{1, 2});
    both.set("classlabels_strings", std::vector<std::string>{"a", "b", "c"});
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {2, 2})}, few, ErrorCode::BadAttribute, "2 labels"),
        wrong({random(DType::F32, {2, 2})}, both, ErrorCode::BadAttribute, "one of the two"),
        wrong({random(DType::F32, {2, 5})}, three, ErrorCode::ShapeMismatch, "features")};
  };
  return def;
}

} // namespace

void register_ml_linear_ops(OpTable& table) {
  table.add(regressor());
  table.add(classifier());
}

} // namespace tessera
