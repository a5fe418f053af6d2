// Support vector machines: kernels between rows and support vectors, products with coefficients, votes of pairs of
// classes, and probabilities of pairs coupled into those of classes.
#include "graph/ops/ml.h"
#include <algorithm>
#include <numeric>

namespace tessera {

namespace {
using namespace ops;

constexpr std::initializer_list<DType> kInputs = {DType::F32, DType::F64, DType::I64, DType::I32};
constexpr int64_t kMaxElements = int64_t{1} << 28; // of a constant that is made of attributes

int64_t size(const std::vector<double>& values) { return static_cast<int64_t>(values.size()); }

enum class Kernel : uint8_t { Linear, Poly, Rbf, Sigmoid };

// Rows x support vectors: f32[rows, vectors] of vectors[count, features].
ValueId kernel(B& b, Kernel kind, const std::vector<double>& vectors, int64_t count) {
  const int64_t features = size(vectors) / count;
  if (features == 0 || features * count != size(vectors))
    b.fail(ErrorCode::BadAttribute, std::to_string(size(vectors)) + " numbers make no " + std::to_string(count) +
                                        " support vectors of one size");
  double gamma = 0, shift = 0, degree = 0;
  const auto numbers = ml_floats(b.node(), "kernel_params");
  if (numbers.size() >= 3)
    gamma = numbers[0], shift = numbers[1], degree = numbers[2];
  else if (!numbers.empty())
    b.fail(ErrorCode::BadAttribute,
           "'kernel_params' has " + std::to_string(numbers.size()) + " numbers; gamma, coef0 and degree are expected");
  if (!b.ok()) return {};
  ValueId x = ml_rows(b, DType::F32, features);
  if (kind == Kernel::Rbf) {
    ValueId apart = sub(b, unsqueeze(b, x, {1}), ml_constant(b, DType::F32, {1, count, features}, vectors));
    return exp(b, mul(b, sum(b, mul(b, apart, apart), {2}, false), -gamma));
  }
  std::vector<double> columns(vectors.size());
  for (int64_t v = 0; v < count; ++v)
    for (int64_t f = 0; f < features; ++f)
      columns[static_cast<size_t>(f * count + v)] = vectors[static_cast<size_t>(v * features + f)];
  ValueId dot = matmul(b, x, ml_constant(b, DType::F32, {features, count}, columns));
  if (kind == Kernel::Linear) return dot;
  dot = add(b, mul(b, dot, gamma), shift);
  if (kind == Kernel::Sigmoid) return tanh(b, dot);
  if (degree == 2) return mul(b, dot, dot);
  if (degree == 3) return mul(b, mul(b, dot, dot), dot);
  return pow(b, dot, degree);
}

Kernel kernel_of(B& b) {
  return static_cast<Kernel>(ml_choice(b, "kernel_type", {"LINEAR", "POLY", "RBF", "SIGMOID"}));
}

AttrDef numbers(std::string_view name) { return {name, AttrKind::Floats}; }

// ---- SVMRegressor
ValueId regress(B& b) {
  const auto coefficients = ml_floats(b.node(), "coefficients"), rho = ml_floats(b.node(), "rho");
  const int64_t count = b.attr().i("n_supports");
  const Kernel kind = kernel_of(b);
  (void)post_transform(b); // its name is checked, and no runtime applies it
  if (rho.empty() || coefficients.empty() || count < 0 || (count > 0 && size(coefficients) < count))
    b.fail(ErrorCode::BadAttribute, std::to_string(size(coefficients)) + " coefficients and " +
                                        std::to_string(rho.size()) + " of 'rho' are given for " +
                                        std::to_string(count) + " support vectors");
  if (!b.ok()) return {};
  ValueId y;
  if (count > 0) {
    ValueId k = kernel(b, kind, ml_floats(b.node(), "support_vectors"), count);
    y = matmul(b, k, ml_constant(b, DType::F32, {count, 1}, {coefficients.begin(), coefficients.begin() + count}));
  } else {
    y = kernel(b, Kernel::Linear, coefficients, 1);
  }
  y = add(b, y, rho[0]);
  if (b.attr().i("one_class") == 0 || !b.ok()) return y;
  return select(b, gt(b, y, 0.0), b.like(y, 1), b.like(y, -1));
}

OpDef regressor() {
  OpDef def = ml("ai.onnx.ml.SVMRegressor", "kernels of support vectors, weighted; or on which side of 0 that is",
                 {{"X", TypeSet::Numeric}}, regress);
  def.attributes = {numbers("coefficients"),  numbers("kernel_params"),  ml_text("kernel_type", "LINEAR"),
                    integer("n_supports", 0), integer("one_class", 0),   ml_text("post_transform", "NONE"),
                    numbers("rho"),           numbers("support_vectors")};
  const Attributes three = {{"coefficients", std::vector<double>{1, -0.5, 0.25}},
                            {"kernel_params", std::vector<double>{0.5, 0.25, 3}},
                            {"n_supports", int64_t{3}},
                            {"rho", std::vector<double>{0.125}},
                            {"support_vectors", std::vector<double>{1, 2, -1, 0.5, 0, 1}}};
  def.samples = [three] {
    std::vector<Sample> out;
    for (const char* kind : {"LINEAR", "POLY", "RBF", "SIGMOID"}) {
      Attributes a = three;
      a.set("kernel_type", std::string(kind));
      for (DType d : kInputs) out.push_back(sample({random(d, {5, 2}, 1)}, a));
      a.set("one_class", int64_t{1});
      out.push_back(sample({random(DType::F32, {2}, 2)}, a));
    }
    out.push_back(sample({random(DType::F32, {4, 3}, 3)},
                         {{"coefficients", std::vector<double>{1, -0.5, 0.25}}, {"rho", std::vector<double>{0.5}}}));
    return out;
  };
  def.error_samples = [three] {
    Attributes odd = three, named = three, few = three;
    odd.set("n_supports", int64_t{4});
    named.set("kernel_type", std::string("COSINE"));
    few.set("kernel_params", std::vector<double>{1});
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {5, 2})}, odd, ErrorCode::BadAttribute, "4 support vectors"),
        wrong({random(DType::F32, {5, 2})}, named, ErrorCode::BadAttribute, "LINEAR, POLY, RBF, SIGMOID"),
        wrong({random(DType::F32, {5, 2})}, few, ErrorCode::BadAttribute, "gamma, coef0 and degree"),
        wrong({random(DType::F32, {5, 3})}, three, ErrorCode::ShapeMismatch, "features")};
  };
  return def;
}

// ---- SVMClassifier
// of_pairs[rows, pairs], pairs (0, 1), (0, 2) ... as [rows, classes, classes]: that of the pair above the diagonal, one
// minus it below, 0 on it.
ValueId as_matrix(B& b, ValueId of_pairs, int64_t classes) {
  Ints from;
  std::vector<double> place;
  for (int64_t i = 0; i < classes; ++i)
    for (int64_t j = 0; j < classes; ++j) {
      const int64_t low = std::min(i, j), high = std::max(i, j);
      from.push_back(i == j ? 0 : low * classes - low * (low + 1) / 2 + high - low - 1);
      place.push_back(i < j ? 1 : i > j ? -1 : 0);
    }
  ValueId side = ml_constant(b, DType::F32, {classes * classes}, place);
  ValueId v = gather(b, of_pairs, b.ints(from), 1);
  v = select(b, gt(b, side, 0.0), v, select(b, lt(b, side, 0.0), sub(b, 1.0, v), 0.0));
  return reshape(b, v, {b.dim(of_pairs, 0), classes, classes});
}

// Probabilities of classes from those of pairs r[rows, classes, classes] (that it is i rather than j): the p of sum 1
// that minimizes sum over i and j of (r[j, i] p[i] - r[i, j] p[j])^2, by coordinate descent (Wu, Lin, Weng, 2004).
ValueId coupled(B& b, ValueId r, int64_t classes) {
  constexpr int64_t kSweeps = 100;
  constexpr int64_t kUnrolledClasses = 16; // a sweep of more classes is a loop: a step has about 20 nodes
  const double enough = 0.005 / static_cast<double>(classes);
  std::vector<double> on(static_cast<size_t>(classes * classes));
  for (int64_t i = 0; i < classes; ++i) on[static_cast<size_t>(i * classes + i)] = 1;
  ValueId diagonal = gt(b, ml_constant(b, DType::F32, {classes, classes}, on), 0.0);
  ValueId own = unsqueeze(b, sum(b, mul(b, r, r), {1}, false), {2});
  ValueId q = select(b, diagonal, own, neg(b, mul(b, r, transpose(b, r, {0, 2, 1}))));
  ValueId first = expand(b, b.scalar(DType::F32, 1 / static_cast<double>(classes)), {b.dim(r, 0), classes});
  ValueId none = expand(b, b.scalar_i(DType::Bool, 0), {b.dim(r, 0), 1});

  using Values = std::vector<ValueId>; // p, q p, and p q p
  auto descend = [&](B& s, ValueId i, const Values& v, ValueId matrix) -> Values {
    ValueId row = gather(s, matrix, i, 1);
    auto at_i = [&](ValueId x) { return unsqueeze(s, gather(s, x, i, 1), {1}); };
    ValueId qii = at_i(row), qpi = at_i(v[1]);
    ValueId by = div(s, sub(s, v[2], qpi), qii), scale = add(s, by, 1.0);
    ValueId here = eq(s, iota(s, {classes}, 0), i);
    ValueId p = select(s, here, add(s, v[0], by), v[0]);
    ValueId pqp = div(s, div(s, add(s, v[2], mul(s, by, add(s, mul(s, by, qii), mul(s, qpi, 2.0)))), scale), scale);
    return {div(s, p, scale), div(s, add(s, v[1], mul(s, by, row)), scale), pqp};
  };
  return ml_repeat(b, kSweeps, {first, none}, {q}, [&](B& s, ValueId, Values state, Values around) -> MlStep {
    ValueId p = state[0], matrix = around[0];
    ValueId qp = sum(s, mul(s, matrix, unsqueeze(s, p, {1})), {2}, false);
    ValueId pqp = sum(s, mul(s, p, qp), {1}, true);
    ValueId off = reduce(s, "reduce_max", abs(s, sub(s, qp, pqp)), {1}, true);
    ValueId done = logical_or(s, state[1], lt(s, off, enough));
    Values v = {p, qp, pqp};
    if (classes <= kUnrolledClasses)
      for (int64_t i = 0; i < classes; ++i) v = descend(s, s.scalar_i(DType::I64, i), v, matrix);
    else
      v = ml_repeat(s, classes, v, {matrix}, [&](B& t, ValueId i, Values inner, Values outer) -> MlStep {
        return {{}, descend(t, i, inner, outer[0])};
      });
    ValueId open = reduce(s, "reduce_any", logical_not(s, done), {0, 1}, false);
    return {open, {select(s, done, p, v[0]), done}};
  })[0];
}

struct Machine {
  std::vector<double> coefficients, rho, prob_a, prob_b;
  Ints per_class;
  int64_t classes = 0, pairs = 0, vectors = 0;
};

Machine machine_of(B& b, const MlLabels& labels) {
  Machine m{ml_floats(b.node(), "coefficients"), ml_floats(b.node(), "rho"), ml_floats(b.node(), "prob_a"),
            ml_floats(b.node(), "prob_b"), b.attr().ints("vectors_per_class")};
  m.classes = labels.size();
  auto fail = [&](const std::string& what) { b.fail(ErrorCode::BadAttribute, what); };
  if (m.classes == 0 || m.classes > 65535)
    fail(std::to_string(m.classes) + " classes have labels; 1 to 65535 are expected");
  if (m.coefficients.empty()) fail("'coefficients' is empty");
  m.pairs = m.classes * (m.classes - 1) / 2;
  for (int64_t n : m.per_class) {
    if (n < 0 || n > size(m.coefficients)) fail("a class has " + std::to_string(n) + " support vectors");
    if (!b.ok()) return m;
    m.vectors += n;
  }
  if (m.vectors == 0) {
    if (m.rho.empty()) fail("'rho' is empty");
    return m;
  }
  auto enough = [&](std::string_view what, int64_t given, int64_t expected) {
    if (given < expected)
      fail("'" + std::string(what) + "' has " + std::to_string(given) + " values; " + std::to_string(expected) +
           " are expected for " + std::to_string(m.classes) + " classes");
  };
  enough("vectors_per_class", static_cast<int64_t>(m.per_class.size()), m.classes);
  enough("coefficients", size(m.coefficients), (m.classes - 1) * m.vectors);
  enough("rho", size(m.rho), m.pairs);
  if (!m.prob_a.empty() || !m.prob_b.empty()) {
    enough("prob_a", size(m.prob_a), m.pairs);
    enough("prob_b", size(m.prob_b), m.pairs);
  }
  if (m.classes < 2) fail("one class has support vectors; two are expected");
  if (static_cast<int64_t>(m.per_class.size()) != m.classes)
    fail("'vectors_per_class' has " + std::to_string(m.per_class.size()) + " values for " + std::to_string(m.classes) +
         " classes");
  if (b.ok() && m.pairs * m.vectors > kMaxElements)
    b.fail(ErrorCode::UnsupportedFeature, std::to_string(m.pairs) + " pairs of classes of " +
                                              std::to_string(m.vectors) + " support vectors are too many");
  return m;
}

// Decisions of pairs, f32[rows, pairs]: what speaks for the first class of each is above 0.
ValueId decisions(B& b, const Machine& m) {
  ValueId k = kernel(b, kernel_of(b), ml_floats(b.node(), "support_vectors"), m.vectors);
  if (!b.ok()) return {};
  Ints start(m.per_class.size(), 0);
  std::partial_sum(m.per_class.begin(), m.per_class.end() - 1, start.begin() + 1);
  std::vector<double> weights(static_cast<size_t>(m.vectors * m.pairs));
  int64_t pair = 0;
  auto fill = [&](int64_t of, int64_t row) {
    const auto c = static_cast<size_t>(of);
    for (int64_t v = start[c]; v < start[c] + m.per_class[c]; ++v)
      weights[static_cast<size_t>(v * m.pairs + pair)] = m.coefficients[static_cast<size_t>(row * m.vectors + v)];
  };
  for (int64_t i = 0; i < m.classes; ++i)
    for (int64_t j = i + 1; j < m.classes; ++j, ++pair) {
      fill(i, j - 1);
      fill(j, i);
    }
  ValueId s = matmul(b, k, ml_constant(b, DType::F32, {m.vectors, m.pairs}, weights));
  return add(b, s, ml_constant(b, DType::F32, {m.pairs}, {m.rho.begin(), m.rho.begin() + m.pairs}));
}

// Without support vectors: rows of coefficients, one a class.
std::vector<ValueId> linear_machine(B& b, const Machine& m, const MlLabels& labels, PostTransform transform) {
  ValueId s = add(b, kernel(b, Kernel::Linear, m.coefficients, m.classes), m.rho.empty() ? 0.0 : m.rho[0]);
  ValueId best = ml_largest(b, s);
  if (m.classes == 2 && m.prob_a.empty() && b.ok()) { // the second class wins from a threshold on
    const bool positive = std::all_of(m.coefficients.begin(), m.coefficients.end(), [](double v) { return v >= 0; });
    ValueId largest = reduce(b, "reduce_max", s, {1}, false);
    ValueId wins = positive ? ge(b, largest, 0.5) : gt(b, largest, 0.0);
    best = select(b, wins, b.scalar_i(DType::I64, 1), best);
  }
  return {ml_labelled(b, labels, best), transformed(b, s, transform)};
}

Result<std::vector<ValueId>> classify(Graph& g, const Node& n, int) {
  B b(g, n);
  const PostTransform transform = post_transform(b);
  const MlLabels labels = ml_labels(b, "classlabels_ints");
  const Machine m = machine_of(b, labels);
  if (!b.ok()) return b.failed();
  if (m.vectors == 0) return b.done(linear_machine(b, m, labels, transform));
  ValueId s = decisions(b, m);
  ValueId votes = sum(b, as_matrix(b, cast(b, gt(b, s, 0.0), DType::F32), m.classes), {2}, false);
  ValueId label = ml_labelled(b, labels, ml_largest(b, votes));
  if (!m.prob_a.empty()) {
    auto of_pairs = [&](const std::vector<double>& v) {
      return ml_constant(b, DType::F32, {m.pairs}, {v.begin(), v.begin() + m.pairs});
    };
    ValueId p = sub(b, 1.0, sigmoid(b, add(b, mul(b, s, of_pairs(m.prob_a)), of_pairs(m.prob_b))));
    p = min(b, max(b, p, 1e-7), 1 - 1e-7);
    return b.done({label, transformed(b, coupled(b, as_matrix(b, p, m.classes), m.classes), transform)});
  }
  if (m.classes > 2) return b.done({label, transformed(b, s, transform)});
  if (transform == PostTransform::None || transform == PostTransform::Logistic)
    return b.done({label, transformed(b, concat(b, {neg(b, s), s}, 1), transform)});
  if (transform == PostTransform::Probit) s = transformed(b, s, transform);
  return b.done({label, concat(b, {sub(b, 1.0, s), s}, 1)});
}

OpDef classifier() {
  OpDef def = ml("ai.onnx.ml.SVMClassifier",
                 "the class that most pairs of classes vote for; decisions of pairs, or probabilities",
                 {{"X", TypeSet::Numeric}}, DecomposeFn(classify));
  def.attributes = {{"classlabels_ints", AttrKind::Ints},
                    {"classlabels_strings", AttrKind::Strings},
                    numbers("coefficients"),
                    numbers("kernel_params"),
                    ml_text("kernel_type", "LINEAR"),
                    ml_text("post_transform", "NONE"),
                    numbers("prob_a"),
                    numbers("prob_b"),
                    numbers("rho"),
                    numbers("support_vectors"),
                    {"vectors_per_class", AttrKind::Ints}};
  def.max_results = 2;
  const Attributes three = {{"classlabels_ints", Ints{5, 3, 8}},
                            {"coefficients", std::vector<double>{1, 0.5, -1, -0.5, 0.75, 1, -1, 0.25}},
                            {"kernel_params", std::vector<double>{0.5, 0.25, 2}},
                            {"rho", std::vector<double>{0.1, -0.2, 0.3}},
                            {"support_vectors", std::vector<double>{1, 2, -1, 0.5, 0, 1, -2, -1}},
                            {"vectors_per_class", Ints{2, 1, 1}}};
  def.samples = [three] {
    std::vector<Sample> out;
    for (const char* kind : {"LINEAR", "POLY", "RBF", "SIGMOID"}) {
      Attributes a = three;
      a.set("kernel_type", std::string(kind));
      for (DType d : kInputs) out.push_back(sample({random(d, {5, 2}, 1)}, a));
      a.set("prob_a", std::vector<double>{-1, -2, -1.5});
      a.set("prob_b", std::vector<double>{0.1, 0, -0.1});
      out.push_back(sample({random(DType::F32, {6, 2}, 2)}, a));
    }
    Attributes two = {{"classlabels_strings", std::vector<std::string>{"no", "yes"}},
                      {"coefficients", std::vector<double>{1, 0.5, -1}},
                      {"rho", std::vector<double>{0.1}},
                      {"support_vectors", std::vector<double>{1, 2, -1, 0.5, 0, 1}},
                      {"vectors_per_class", Ints{2, 1}}};
    out.push_back(sample({random(DType::F32, {4, 2}, 3)}, two));
    two.set("post_transform", std::string("LOGISTIC"));
    out.push_back(sample({random(DType::F32, {4, 2}, 3)}, two));
    two.set("prob_a", std::vector<double>{-1});
    two.set("prob_b", std::vector<double>{0.1});
    out.push_back(sample({random(DType::F32, {4, 2}, 3)}, two));
    const Attributes rows = {{"classlabels_ints", Ints{5, 3}},
                             {"coefficients", std::vector<double>{1, -0.5, -1, 0.25}},
                             {"rho", std::vector<double>{0.1}}};
    out.push_back(sample({random(DType::F32, {4, 2}, 3)}, rows));
    for (Sample& s : out) s.result_count = 2;
    return out;
  };
  def.error_samples = [three] {
    std::vector<ErrorSample> out;
    auto with = [&](std::string_view name, Attribute value, ErrorCode code, std::string_view part) {
      Attributes a = three;
      a.set(name, std::move(value));
      out.push_back(wrong({random(DType::F32, {2, 2})}, a, code, part));
    };
    with("rho", std::vector<double>{1}, ErrorCode::BadAttribute, "'rho' has 1 values");
    with("coefficients", std::vector<double>{1}, ErrorCode::BadAttribute, "support vectors");
    with("vectors_per_class", Ints{-1, 3, 2}, ErrorCode::BadAttribute, "-1 support vectors");
    with("vectors_per_class", Ints{2, 2}, ErrorCode::BadAttribute, "vectors_per_class");
    with("prob_a", std::vector<double>{1, 2, 3}, ErrorCode::BadAttribute, "prob_b");
    with("classlabels_ints", Ints{}, ErrorCode::BadAttribute, "0 classes");
    with("support_vectors", std::vector<double>{1, 2, 3}, ErrorCode::BadAttribute, "no 4 support vectors");
    return out;
  };
  return def;
}

} // namespace

void register_ml_svm_ops(OpTable& table) {
  table.add(regressor());
  table.add(classifier());
}

} // namespace tessera
