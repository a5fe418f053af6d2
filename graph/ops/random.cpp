// Random numbers. A seed gives the same numbers everywhere; without one a fixed seed is used, so that a run can be
// repeated.
#include "graph/ops/parts.h"
#include <bit>
#include <cmath>
#include <numbers>

namespace tessera {

namespace {
using namespace ops;

class Generator {
public:
  explicit Generator(const Node& node) {
    auto seed = node.attributes.f("seed", 0.0);
    state_ = 0x9e3779b97f4a7c15ull ^ std::bit_cast<uint64_t>(seed);
  }
  // Uniform in [0, 1): splitmix64 (Steele, Lea, Flood, 2014).
  double uniform() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
  }
  // Standard normal: Box and Muller.
  double normal() {
    double r = std::sqrt(-2 * std::log(1 - uniform())), angle = 2 * std::numbers::pi * uniform();
    return r * std::cos(angle);
  }

private:
  uint64_t state_;
};

enum class Kind { Uniform, Normal };

Status infer_random(InferContext& c, bool like) {
  TESSERA_ASSIGN(DType d, dtype_attribute(c.node, "dtype", like ? c.type(0).dtype : DType::F32));
  if (!is_float(d)) return c.error(ErrorCode::UnsupportedType, "random numbers of type " + std::string(name(d)));
  if (like) return set_result(c, d, c.shape(0));
  SymShape shape = c.node.attributes.dims("shape");
  return set_result(c, d, std::move(shape));
}

Status reference_random(ReferenceContext& c, Kind kind, bool like) {
  Dims dims;
  if (like) {
    dims = c.operands[0].dims();
  } else {
    TESSERA_ASSIGN(dims, c.dims("shape"));
  }
  Generator g(c.node);
  const Attributes& a = c.node.attributes;
  TESSERA_ASSIGN(Tensor out, Tensor::create(c.result_types[0].dtype, dims));
  for (int64_t i = 0; i < out.count(); ++i)
    out.set_f64(i, kind == Kind::Uniform ? a.f("low") + g.uniform() * (a.f("high", 1) - a.f("low"))
                                         : a.f("mean") + g.normal() * a.f("scale", 1));
  c.results = {out};
  return {};
}

OpDef random_record(std::string_view name, std::string_view onnx, Kind kind, bool like) {
  OpDef def;
  def.name = name;
  def.summary =
      kind == Kind::Uniform ? "numbers drawn from a uniform distribution" : "numbers drawn from a normal distribution";
  def.onnx = {{onnx}};
  if (like) def.operands = {{"input", TypeSet::NumericOrBool}};
  def.attributes = {{"dtype", AttrKind::Int, false, int64_t{0}}, {"seed", AttrKind::Float}};
  if (!like) def.attributes.push_back({"shape", AttrKind::Dims, true});
  if (kind == Kind::Uniform) {
    def.attributes.push_back({"high", AttrKind::Float, false, 1.0});
    def.attributes.push_back({"low", AttrKind::Float, false, 0.0});
  } else {
    def.attributes.push_back({"mean", AttrKind::Float, false, 0.0});
    def.attributes.push_back({"scale", AttrKind::Float, false, 1.0});
  }
  def.infer = [like](InferContext& c) { return infer_random(c, like); };
  def.meaning = StructuredOp{};
  def.reference = [kind, like](ReferenceContext& c) { return reference_random(c, kind, like); };
  def.side_effect = true;
  def.samples = [like] {
    Attributes a = {{"seed", 7.0}};
    if (like) return std::vector<Sample>{sample({random(DType::F32, {3, 4})}, a)};
    a.set("shape", Ints{3, 4});
    return std::vector<Sample>{sample({}, a)};
  };
  def.error_samples = [like] {
    Attributes a = {{"dtype", int64_t{info(DType::I32).onnx}}};
    if (!like) a.set("shape", Ints{2});
    return std::vector<ErrorSample>{wrong(like ? std::vector<Tensor>{random(DType::F32, {2})} : std::vector<Tensor>{},
                                          a, ErrorCode::UnsupportedType, "i32")};
  };
  return def;
}

OpDef bernoulli_record() {
  OpDef def;
  def.name = "bernoulli";
  def.summary = "1 with the probability that the input gives, else 0";
  def.onnx = {{"Bernoulli", "", 15}};
  def.aten = {"bernoulli"};
  def.operands = {{"input", TypeSet::Float}};
  def.attributes = {{"dtype", AttrKind::Int, false, int64_t{0}}, {"seed", AttrKind::Float}};
  def.infer = [](InferContext& c) -> Status {
    TESSERA_ASSIGN(DType d, dtype_attribute(c.node, "dtype", c.type(0).dtype));
    if (!is_float(d) && !is_integer(d) && d != DType::Bool)
      return c.error(ErrorCode::UnsupportedType, "random numbers of type " + std::string(name(d)));
    return set_result(c, d, c.shape(0));
  };
  def.meaning = StructuredOp{};
  def.reference = [](ReferenceContext& c) -> Status {
    Generator g(c.node);
    TESSERA_ASSIGN(Tensor out, Tensor::create(c.result_types[0].dtype, c.operands[0].dims()));
    for (int64_t i = 0; i < out.count(); ++i) {
      bool one = g.uniform() < c.operands[0].get_f64(i);
      if (is_float(out.dtype()))
        out.set_f64(i, one ? 1 : 0);
      else
        out.set_i64(i, one ? 1 : 0);
    }
    c.results = {out};
    return {};
  };
  def.side_effect = true;
  def.samples = [] {
    return std::vector<Sample>{
        sample({random(DType::F32, {3, 4}, 1, 0, 1)}, {{"seed", 3.0}}),
        sample({random(DType::F32, {9}, 1, 0, 1)}, {{"dtype", int64_t{info(DType::Bool).onnx}}})};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {2})}, {{"dtype", int64_t{8}}}, ErrorCode::UnsupportedType, "string")};
  };
  return def;
}

OpDef multinomial_record() {
  OpDef def;
  def.name = "multinomial";
  def.summary = "classes drawn with the unnormalised log-probabilities of each row";
  def.onnx = {{"Multinomial", "", 7}};
  def.operands = {{"input", TypeSet::Float}};
  def.attributes = {{"dtype", AttrKind::Int, false, int64_t{6}},
                    {"sample_size", AttrKind::Int, false, int64_t{1}},
                    {"seed", AttrKind::Float}};
  def.infer = [](InferContext& c) -> Status {
    TESSERA_ASSIGN(DType d, dtype_attribute(c.node, "dtype", DType::I32));
    if (d != DType::I32 && d != DType::I64)
      return c.error(ErrorCode::BadAttribute, "attribute 'dtype' must be i32 or i64");
    if (c.type(0).rank() != 2)
      return c.error(ErrorCode::ShapeMismatch, "Multinomial takes [batch, classes], not " + str(c.shape(0)));
    int64_t n = c.node.attributes.i("sample_size", 1);
    if (n < 0) return c.error(ErrorCode::BadAttribute, "attribute 'sample_size' is " + std::to_string(n));
    return set_result(c, d, {c.shape(0)[0], n});
  };
  def.meaning = StructuredOp{};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    int64_t rows = x.dims()[0], classes = x.dims()[1], n = c.node.attributes.i("sample_size", 1);
    if (classes == 0) return c.error(ErrorCode::BadInput, "Multinomial has no class to draw");
    Generator g(c.node);
    TESSERA_ASSIGN(Tensor out, Tensor::create(c.result_types[0].dtype, {rows, n}));
    for (int64_t r = 0; r < rows; ++r) {
      double high = x.get_f64(r * classes), total = 0;
      for (int64_t k = 1; k < classes; ++k) high = std::max(high, x.get_f64(r * classes + k));
      for (int64_t k = 0; k < classes; ++k) total += std::exp(x.get_f64(r * classes + k) - high);
      for (int64_t i = 0; i < n; ++i) {
        double rest = g.uniform() * total;
        int64_t k = 0;
        while (k + 1 < classes && (rest -= std::exp(x.get_f64(r * classes + k) - high)) >= 0) ++k;
        out.set_i64(r * n + i, k);
      }
    }
    c.results = {out};
    return {};
  };
  def.side_effect = true;
  def.samples = [] {
    return std::vector<Sample>{sample({random(DType::F32, {2, 4}, 1)}, {{"sample_size", int64_t{5}}, {"seed", 2.0}})};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {4})}, {}, ErrorCode::ShapeMismatch, "classes"),
        wrong({random(DType::F32, {2, 4})}, {{"dtype", int64_t{1}}}, ErrorCode::BadAttribute, "dtype")};
  };
  return def;
}

} // namespace

void register_random_ops(OpTable& table) {
  table.add(random_record("random_normal", "RandomNormal", Kind::Normal, false));
  table.add(random_record("random_normal_like", "RandomNormalLike", Kind::Normal, true));
  table.add(random_record("random_uniform", "RandomUniform", Kind::Uniform, false));
  table.add(random_record("random_uniform_like", "RandomUniformLike", Kind::Uniform, true));
  table.add(bernoulli_record());
  table.add(multinomial_record());
}

} // namespace tessera
