// Features made ready: scaled, normalised, imputed, chosen, joined, encoded.
#include "graph/ops/ml.h"
#include <cmath>
#include <limits>
#include <map>
#include <set>

namespace tessera {

namespace {
using namespace ops;

constexpr std::initializer_list<DType> kInputs = {DType::F32, DType::F64, DType::I64, DType::I32};

// One sample of each dtype of features [5, 3] and one row [3].
std::vector<Sample> feature_samples(const std::vector<Attributes>& all, std::vector<DType> dtypes = kInputs) {
  std::vector<Sample> out;
  uint64_t seed = 1;
  for (const Attributes& a : all)
    for (DType d : dtypes)
      for (const Dims& dims : {Dims{5, 3}, Dims{3}, Dims{0, 3}})
        out.push_back(sample({random(d, dims, seed++, -3, 3)}, a));
  return out;
}

// Values of an attribute as [n], or [1] for all features; error where there are neither one nor as many as features.
ValueId per_feature(B& b, const std::vector<double>& values, std::string_view name, DType dtype) {
  const auto n = static_cast<int64_t>(values.size());
  const int rank = b.rank(b.in(0));
  if (rank == 0 || rank > 2)
    b.fail(ErrorCode::ShapeMismatch, "takes features [F] or [N, F], not " + str(b.shape(b.in(0))));
  if (n == 0) b.fail(ErrorCode::BadAttribute, "attribute '" + std::string(name) + "' has no values");
  if (b.ok() && n != 1)
    b.check(b.env().require_equal(b.dim(b.in(0), rank - 1), n, "values of attribute '" + std::string(name) + "'",
                                  b.node().location));
  return ml_constant(b, dtype, {n}, values);
}

// ---- Scaler
OpDef scaler() {
  OpDef def =
      ml("ai.onnx.ml.Scaler", "(x - offset) * scale, of each feature", {{"X", TypeSet::Numeric}}, [](B& b) -> ValueId {
        const auto scale = ml_floats(b.node(), "scale"), offset = ml_floats(b.node(), "offset");
        if (scale.size() != offset.size())
          b.fail(ErrorCode::BadAttribute,
                 std::to_string(scale.size()) + " scales and " + std::to_string(offset.size()) + " offsets are given");
        const DType dtype = ml_dtype(b.dtype(b.in(0)));
        ValueId by = per_feature(b, scale, "scale", dtype), from = per_feature(b, offset, "offset", dtype);
        return cast(b, mul(b, sub(b, cast(b, b.in(0), dtype), from), by), DType::F32);
      });
  def.attributes = {{"offset", AttrKind::Floats}, {"scale", AttrKind::Floats}};
  const Attributes each = {{"offset", std::vector<double>{1, -2, 0.5}}, {"scale", std::vector<double>{2, 0.25, -1}}};
  def.samples = [each] {
    return feature_samples({each, {{"offset", std::vector<double>{1}}, {"scale", std::vector<double>{0.5}}}});
  };
  def.error_samples = [each] {
    Attributes odd = each;
    odd.set("scale", std::vector<double>{1});
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {2, 4})}, each, ErrorCode::ShapeMismatch, "3"),
        wrong({random(DType::F32, {2, 3})}, odd, ErrorCode::BadAttribute, "1 scales and 3 offsets"),
        wrong({random(DType::F32, {2, 3, 3})}, each, ErrorCode::ShapeMismatch, "[N, F]"),
        wrong({random(DType::F32, {2, 3})}, {}, ErrorCode::BadAttribute, "no values")};
  };
  return def;
}

// ---- Normalizer
ValueId normalize(B& b) {
  const size_t norm = ml_choice(b, "norm", {"MAX", "L1", "L2"});
  ValueId x = ml_rows(b, b.dtype(b.in(0)));
  if (!b.ok()) return {};
  const SymShape shape = b.shape(b.in(0));
  // The norm is taken of elements in their own type, and it is f32.
  ValueId f = cast(b, x, DType::F32), y, by;
  if (norm == 0) {
    by = reduce(b, "reduce_max", f, {1}, true);
    y = div(b, f, by);
  } else if (norm == 1) {
    by = sum(b, cast(b, abs(b, x), DType::F32), {1}, true);
    y = div(b, f, by);
  } else {
    ValueId square = cast(b, mul(b, x, x), DType::F32);
    by = sum(b, square, {1}, true);
    ValueId root = sqrt(b, div(b, square, by));
    y = select(b, lt(b, f, 0.0), neg(b, root), root);
  }
  return reshape(b, select(b, ne(b, by, 0.0), y, f), shape);
}

OpDef normalizer() {
  OpDef def = ml("ai.onnx.ml.Normalizer", "rows divided by their norm", {{"X", TypeSet::Numeric}}, normalize);
  def.attributes = {ml_text("norm", "MAX")};
  def.samples = [] {
    std::vector<Attributes> norms;
    for (const char* norm : {"MAX", "L1", "L2"}) norms.push_back({{"norm", std::string(norm)}});
    std::vector<Sample> out = feature_samples(norms);
    for (const Attributes& a : norms) out.push_back(sample({floats({2, 3}, {0, 0, 0, -1, 0, 2})}, a));
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {2, 3})}, {{"norm", std::string("L3")}}, ErrorCode::BadAttribute, "MAX, L1, L2"),
        wrong({random(DType::F32, {1, 2, 3})}, {}, ErrorCode::ShapeMismatch, "[N, F]")};
  };
  return def;
}

// ---- Imputer
ValueId impute(B& b) {
  ValueId x = b.in(0);
  const DType dtype = b.dtype(x);
  const auto real = ml_floats(b.node(), "imputed_value_floats");
  const Ints whole = b.attr().ints("imputed_value_int64s");
  if (real.empty() == whole.empty()) {
    b.fail(ErrorCode::BadAttribute, "values are given in 'imputed_value_floats' or in 'imputed_value_int64s': one of "
                                    "the two is expected");
    return {};
  }
  if (is_float(dtype) == real.empty()) {
    b.fail(ErrorCode::TypeMismatch, std::string("values of ") + (real.empty() ? "integers" : "floats") +
                                        " are given for features of type " + std::string(name(dtype)));
    return {};
  }
  if (is_float(dtype)) {
    const double missing = b.attr().f("replaced_value_float");
    ValueId value = per_feature(b, real, "imputed_value_floats", dtype);
    ValueId is = std::isnan(missing) ? ne(b, x, x) : eq(b, x, missing);
    return select(b, is, value, x);
  }
  (void)per_feature(b, std::vector<double>(whole.size()), "imputed_value_int64s", DType::F32); // its checks
  if (!b.ok()) return {};
  ValueId value = cast(b, b.ints(whole), dtype);
  return select(b, eq(b, x, b.scalar_i(dtype, b.attr().i("replaced_value_int64"))), value, x);
}

OpDef imputer() {
  OpDef def = ml("ai.onnx.ml.Imputer", "a value of each feature instead of what stands for a missing one",
                 {{"X", TypeSet::Numeric}}, impute);
  def.attributes = {{"imputed_value_floats", AttrKind::Floats},
                    {"imputed_value_int64s", AttrKind::Ints},
                    number("replaced_value_float", 0),
                    integer("replaced_value_int64", 0)};
  const Attributes mean = {{"imputed_value_floats", std::vector<double>{1, 2, 3}},
                           {"replaced_value_float", std::numeric_limits<double>::quiet_NaN()}};
  def.samples = [mean] {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    std::vector<Sample> out;
    for (DType d : {DType::F32, DType::F64}) {
      out.push_back(sample({floats(d, {2, 3}, {nan, 1, 2, 3, nan, nan})}, mean));
      out.push_back(sample({floats(d, {2, 2}, {0, 1, -0.0, nan})}, {{"imputed_value_floats", std::vector<double>{7}}}));
    }
    for (DType d : {DType::I64, DType::I32})
      out.push_back(sample({integers(d, {2, 3}, {-1, 1, 2, -1, 3, -1})},
                           {{"imputed_value_int64s", Ints{4, 5, 6}}, {"replaced_value_int64", int64_t{-1}}}));
    return out;
  };
  def.error_samples = [mean] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {2, 3})}, {}, ErrorCode::BadAttribute, "one of the two"),
        wrong({random(DType::F32, {2, 2})}, mean, ErrorCode::ShapeMismatch, "3"),
        wrong({random(DType::I64, {2, 3})}, mean, ErrorCode::TypeMismatch, "floats are given")};
  };
  return def;
}

// ---- Binarizer
OpDef binarizer() {
  OpDef def = ml("ai.onnx.ml.Binarizer", "1 above a threshold, else 0", {{"X", TypeSet::Numeric}}, [](B& b) -> ValueId {
    ValueId x = b.in(0);
    // Compared as floats: the threshold need not be an integer where x is.
    ValueId real = is_float(b.dtype(x)) ? x : cast(b, x, DType::F64);
    return cast(b, gt(b, real, b.attr().f("threshold")), b.dtype(x));
  });
  def.attributes = {number("threshold", 0)};
  def.samples = [] { return feature_samples({{}, {{"threshold", 0.5}}}); };
  def.error_samples = [] {
    return std::vector<ErrorSample>{wrong({random(DType::Bool, {3})}, {}, ErrorCode::TypeMismatch, "")};
  };
  return def;
}

// ---- ArrayFeatureExtractor
OpDef extractor() {
  OpDef def = ml("ai.onnx.ml.ArrayFeatureExtractor", "elements of the last dimension at the given positions",
                 {{"X", TypeSet::Any}, {"Y", TypeSet::Index}}, [](B& b) -> ValueId {
                   ValueId x = b.in(0), at = b.in(1);
                   const int rank = b.rank(x);
                   if (rank == 0) b.fail(ErrorCode::ShapeMismatch, "takes features, not a scalar");
                   if (!b.ok()) return {};
                   if (rank == 1) x = unsqueeze(b, x, {0});
                   at = reshape(b, at, {product(b.shape(at))});
                   return gather(b, x, at, std::max(rank - 1, 1));
                 });
  def.samples = [] {
    std::vector<Sample> out;
    for (DType d : kInputs) {
      out.push_back(sample({random(d, {4, 5}, 1), vec({3, 0, 3})}));
      out.push_back(sample({random(d, {5}, 2), integers(DType::I64, {1, 2}, {4, 1})}));
      out.push_back(sample({random(d, {2, 3, 5}, 3), vec({2})}));
    }
    out.push_back(sample({Tensor::strings({2, 2}, {"a", "b", "c", "d"}), vec({1})}));
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {2, 3}), vec({3})}, {}, ErrorCode::BadInput, "index 3 is outside"),
        wrong({random(DType::F32, {}), vec({0})}, {}, ErrorCode::ShapeMismatch, "scalar")};
  };
  return def;
}

// ---- FeatureVectorizer: the sizes of what is joined are attributes; a shorter operand is filled up with 0
constexpr int64_t kMaxFeatures = int64_t{1} << 24; // of an operand: the file says how many, and they are made here

ValueId join_features(B& b) {
  Ints sizes = b.attr().ints("inputdimensions");
  if (sizes.size() != static_cast<size_t>(b.operands()))
    b.fail(ErrorCode::BadAttribute, std::to_string(b.operands()) + " operands and " + std::to_string(sizes.size()) +
                                        " sizes in 'inputdimensions'");
  std::vector<ValueId> parts;
  for (int i = 0; i < b.operands() && b.ok(); ++i) {
    const int64_t size = sizes[static_cast<size_t>(i)];
    ValueId x = b.in(i);
    SymShape shape = b.shape(x);
    if (size < 0 || size > kMaxFeatures)
      b.fail(ErrorCode::BadAttribute, "'inputdimensions' holds " + std::to_string(size) + "; 0 to " +
                                          std::to_string(kMaxFeatures) + " are expected");
    if (shape.empty()) b.fail(ErrorCode::ShapeMismatch, "takes features, not a scalar");
    if (!b.ok()) return {};
    SymExpr rows = 1;
    if (shape.size() > 1) rows = shape[0], shape.erase(shape.begin());
    const SymExpr given = product(shape);
    x = reshape(b, cast(b, x, DType::F32), {rows, given});
    if (b.decide(sym_le(size, given), true, "the size of what FeatureVectorizer joins"))
      x = slice(b, x, 1, 0, size);
    else
      x = pad(b, x, {0, 0}, {0, SymExpr(size) - given});
    if (i > 0)
      b.check(b.env().require_equal(b.dim(parts[0], 0), rows, "rows that FeatureVectorizer joins", b.node().location));
    parts.push_back(x);
  }
  if (parts.empty()) b.fail(ErrorCode::MalformedModel, "joins nothing");
  return concat(b, parts, 1);
}

OpDef vectorizer() {
  OpDef def = ml("ai.onnx.ml.FeatureVectorizer", "features of several operands in one row",
                 {{"X", TypeSet::Numeric, false, true}}, join_features);
  def.attributes = {{"inputdimensions", AttrKind::Ints}};
  def.samples = [] {
    return std::vector<Sample>{
        sample({random(DType::F32, {3, 2}, 1), random(DType::I64, {3, 4}, 2)}, {{"inputdimensions", Ints{2, 4}}}),
        sample({random(DType::F64, {3, 2}, 1), random(DType::I32, {3, 4}, 2)}, {{"inputdimensions", Ints{3, 2}}}),
        sample({random(DType::F32, {2}, 1)}, {{"inputdimensions", Ints{2}}})};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {3, 2})}, {}, ErrorCode::BadAttribute, "inputdimensions"),
        wrong({random(DType::F32, {3, 2})}, {{"inputdimensions", Ints{-1}}}, ErrorCode::BadAttribute, "holds -1")};
  };
  return def;
}

// ---- OneHotEncoder
// 1 where the element is the category. Of equal categories the last one counts.
ValueId one_hot(B& b) {
  const Ints numbers = b.attr().ints("cats_int64s");
  const std::vector<std::string> texts = ml_strings(b.node(), "cats_strings");
  ValueId x = b.in(0);
  const bool strings = b.dtype(x) == DType::String;
  if (numbers.empty() == texts.empty()) {
    b.fail(ErrorCode::BadAttribute,
           "categories are given in 'cats_int64s' or in 'cats_strings': one of the two is expected");
    return {};
  }
  if (strings == texts.empty()) {
    b.fail(ErrorCode::TypeMismatch, std::string("categories are ") + (texts.empty() ? "integers" : "strings") +
                                        ", and the features are of type " + std::string(name(b.dtype(x))));
    return {};
  }
  const auto n = static_cast<int64_t>(strings ? texts.size() : numbers.size());
  // The category's position; n for an element that is none.
  ValueId at;
  if (strings) {
    at = b.op("label_positions", {x}, {{"keys", texts}, {"missing", n}, {"last", int64_t{1}}});
  } else {
    std::map<int64_t, int64_t> last;
    for (int64_t i = 0; i < n; ++i) last[numbers[static_cast<size_t>(i)]] = i;
    Ints keys, positions;
    for (auto [key, position] : last) keys.push_back(key), positions.push_back(position);
    at = b.op("ai.onnx.ml.LabelEncoder", {cast(b, x, DType::I64)},
              {{"keys_int64s", keys}, {"values_int64s", positions}, {"default_int64", n}});
  }
  if (!b.ok()) return {};
  const int64_t rank = b.rank(x);
  ValueId columns = iota(b, {n}, 0);
  ValueId hot = cast(b, eq(b, unsqueeze(b, at, {rank}), columns), DType::F32);
  if (b.attr().i("zeros", 1) != 0) return hot;
  // An element of no category is an error of the input, which reading behind the last one reports.
  ValueId known =
      gather(b, b.constant(Tensor::of<double>(DType::F32, {n}, std::vector<double>(static_cast<size_t>(n), 1))), at, 0);
  return mul(b, hot, unsqueeze(b, known, {rank}));
}

OpDef one_hot_encoder() {
  OpDef def = ml("ai.onnx.ml.OneHotEncoder", "1 in the place of an element's category, else 0, in a new last dimension",
                 {{"X", TypeSet::Any}}, one_hot);
  def.attributes = {{"cats_int64s", AttrKind::Ints}, {"cats_strings", AttrKind::Strings}, integer("zeros", 1)};
  def.samples = [] {
    std::vector<Sample> out;
    for (DType d : kInputs)
      for (const Dims& dims : {Dims{4, 3}, Dims{5}, Dims{}})
        out.push_back(sample({random(d, dims, 5, 0, 5)}, {{"cats_int64s", Ints{4, 0, 2, 3}}}));
    out.push_back(
        sample({integers(DType::I64, {3}, {1, 2, 1})}, {{"cats_int64s", Ints{1, 2, 1}}, {"zeros", int64_t{0}}}));
    out.push_back(sample({Tensor::strings({2, 2}, {"a", "b", "c", "a"})},
                         {{"cats_strings", std::vector<std::string>{"b", "a"}}}));
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::I64, {2})}, {}, ErrorCode::BadAttribute, "one of the two"),
        wrong({Tensor::strings({1}, {"a"})}, {{"cats_int64s", Ints{1}}}, ErrorCode::TypeMismatch, "are integers"),
        wrong({vec({1, 7})}, {{"cats_int64s", Ints{1}}, {"zeros", int64_t{0}}}, ErrorCode::BadInput, "outside")};
  };
  return def;
}

} // namespace

void register_ml_feature_ops(OpTable& table) {
  for (OpDef (*make)() : {scaler, normalizer, imputer, binarizer, extractor, vectorizer, one_hot_encoder})
    table.add(make());
}

} // namespace tessera
