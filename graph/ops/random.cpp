// Random numbers, from a counter: the bits of an element are a function of its position and a seed (Philox 4x32 of 10
// rounds: Salmon, Moraes, Dror, Shaw, 2011). So elements are independent of each other, and code of any device draws the
// same ones. A seed gives the same numbers everywhere; without one each call has a seed of its own, which `call_seed`
// makes.
#include "graph/ops/parts.h"
#include "graph/ops/sampling.h"
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <numbers>
#include <random>

namespace tessera {

namespace {
using namespace ops;

constexpr uint32_t kMultiplier[] = {0xD2511F53u, 0xCD9E8D57u}, kWeyl[] = {0x9E3779B9u, 0xBB67AE85u};
constexpr int kRounds = 10;

// ---- reference
std::array<uint32_t, 4> philox(uint64_t seed, uint64_t position) {
  std::array<uint32_t, 4> c = {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, 0};
  std::array<uint32_t, 2> k = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t p = uint64_t{kMultiplier[0]} * c[0], q = uint64_t{kMultiplier[1]} * c[2];
    c = {static_cast<uint32_t>(q >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(q),
         static_cast<uint32_t>(p >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(p)};
    for (size_t i : {0, 1}) k[i] += kWeyl[i];
  }
  return c;
}

// A number that no other call of the process gets, and another process hardly: splitmix64 (Steele, Lea, Flood, 2014) of
// a counter that starts at random.
uint64_t next_seed() {
  static std::atomic<uint64_t> counter = [] {
    std::random_device device;
    return (uint64_t{device()} << 32) | device();
  }();
  uint64_t z = counter += 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

std::optional<uint64_t> seed_attribute(const Node& node) {
  constexpr uint64_t kStart = 0x9e3779b97f4a7c15ull;
  if (const auto* number = node.attributes.get<int64_t>("seed")) return kStart ^ static_cast<uint64_t>(*number);
  if (!node.attributes.has("seed")) return std::nullopt;
  return kStart ^ std::bit_cast<uint64_t>(node.attributes.f("seed"));
}

class Generator {
public:
  explicit Generator(const Node& node, bool wide) : seed_(seed_attribute(node).value_or(0)), wide_(wide) {
    if (!seed_attribute(node)) seed_ = next_seed();
  }
  // Uniform in [0, 1), of 24 or 53 bits.
  [[nodiscard]] double uniform(int64_t i, size_t pair = 0) const {
    auto w = philox(seed_, static_cast<uint64_t>(i));
    const uint32_t high = w[2 * pair], low = w[2 * pair + 1];
    if (!wide_) return (high >> 8) * 0x1p-24;
    return static_cast<double>((uint64_t{high >> 5} << 26) | (low >> 6)) * 0x1p-53;
  }
  // Standard normal: Box and Muller.
  [[nodiscard]] double normal(int64_t i) const {
    return std::sqrt(-2 * std::log(1 - uniform(i))) * std::cos(2 * std::numbers::pi * uniform(i, 1));
  }

private:
  uint64_t seed_;
  bool wide_;
};

bool is_wide(DType d) { return d == DType::F64; }

// ---- primitives
OpDef call_seed_record() {
  OpDef def;
  def.name = "call_seed";
  def.summary = "an i64 that starts the draws of a call: `seed`, or without it one that differs in every call";
  def.attributes = {{"seed", AttrKind::Int}};
  def.infer = [](InferContext& c) { return set_result(c, DType::I64, {}); };
  def.meaning = StructuredOp{Structured::Seed};
  def.reference = [](ReferenceContext& c) -> Status {
    TESSERA_ASSIGN(Tensor y, Tensor::create(DType::I64, {}));
    y.set_i64(0, c.node.attributes.i("seed", static_cast<int64_t>(next_seed())));
    c.results = {y};
    return {};
  };
  def.side_effect = true;
  def.samples = [] { return std::vector<Sample>{sample({}), sample({}, {{"seed", int64_t{7}}})}; };
  def.error_samples = [] { return std::vector<ErrorSample>{wrong({vec({1})}, {}, ErrorCode::MalformedModel, "")}; };
  return def;
}

OpDef random_bits_record() {
  OpDef def;
  def.name = "random_bits";
  def.summary = "32 random bits for each element, which its position and the seed decide; `word` 0 to 3 gives others";
  def.operands = {{"seed", TypeSet::Index}};
  def.attributes = {{"shape", AttrKind::Dims, true}, {"word", AttrKind::Int, false, int64_t{0}}};
  def.infer = [](InferContext& c) -> Status {
    const int64_t word = c.node.attributes.i("word");
    if (c.type(0).rank() != 0 || c.type(0).dtype != DType::I64)
      return c.error(ErrorCode::ShapeMismatch, "a seed is one i64, not " + c.type(0).str());
    if (word < 0 || word > 3) return c.error(ErrorCode::BadAttribute, "attribute 'word' is " + std::to_string(word));
    return set_result(c, DType::U32, c.node.attributes.dims("shape"));
  };
  def.meaning = Indexing{[](ScalarDag& d, int, std::span<const ScalarId> at, const Node& n, const Graph& g) {
    auto number = [&](DType t, uint32_t v) { return d.constant_i(t, v); };
    auto low = [&](ScalarId v) { return d.cast(v, DType::U32); };
    auto high = [&](ScalarId v) {
      return low(d.op(ScalarOp::Shr, d.cast(v, DType::U64), d.constant_i(DType::U64, 32)));
    };
    auto either = [&](ScalarId a, ScalarId b, ScalarId c) { return d.op(ScalarOp::Xor, d.op(ScalarOp::Xor, a, b), c); };
    auto product = [&](uint32_t m, ScalarId v) {
      return d.op(ScalarOp::Mul, d.cast(v, DType::U64), number(DType::U64, m));
    };
    ScalarId position = IndexMath{d}.linear(at, result_type(g, n).shape), seed = load(d, g, n, 0, {});
    std::array<ScalarId, 4> c = {low(position), high(position), number(DType::U32, 0), number(DType::U32, 0)};
    std::array<ScalarId, 2> k = {low(seed), high(seed)};
    for (int round = 0; round < kRounds; ++round) {
      ScalarId p = product(kMultiplier[0], c[0]), q = product(kMultiplier[1], c[2]);
      c = {either(high(q), c[1], k[0]), low(q), either(high(p), c[3], k[1]), low(p)};
      for (size_t i : {0, 1}) k[i] = d.op(ScalarOp::Add, k[i], number(DType::U32, kWeyl[i]));
    }
    return Result<ScalarId>(c[static_cast<size_t>(n.attributes.i("word"))]);
  }};
  def.reference = [](ReferenceContext& c) -> Status {
    TESSERA_ASSIGN(Dims dims, c.dims("shape"));
    TESSERA_ASSIGN(Tensor y, Tensor::create(DType::U32, dims));
    const auto seed = static_cast<uint64_t>(c.operands[0].get_i64(0));
    for (int64_t i = 0; i < y.count(); ++i)
      y.set_i64(i, philox(seed, static_cast<uint64_t>(i))[static_cast<size_t>(c.node.attributes.i("word"))]);
    c.results = {y};
    return {};
  };
  def.samples = [] {
    std::vector<Sample> out;
    for (int64_t word = 0; word < 4; ++word) {
      out.push_back(
          sample({integers(DType::I64, {}, {0x1234567890abcdef})}, {{"shape", SymShape{3, 5}}, {"word", word}}));
      out.back().tolerance = 0;
    }
    return out;
  };
  def.error_samples = [] {
    Tensor seed = integers(DType::I64, {}, {1});
    return std::vector<ErrorSample>{
        wrong({vec({1})}, {{"shape", SymShape{3}}}, ErrorCode::ShapeMismatch, "seed"),
        wrong({seed}, {{"shape", SymShape{3}}, {"word", int64_t{4}}}, ErrorCode::BadAttribute, "word")};
  };
  return def;
}

// ---- decompositions
// Draws from one seed: the attribute's, or the call's.
class Draws {
public:
  Draws(B& b, DType type) : b_(b), type_(is_wide(type) ? DType::F64 : DType::F32) {
    Attributes a;
    if (const auto seed = seed_attribute(b.node())) a.set("seed", static_cast<int64_t>(*seed));
    seed_ = b.op("call_seed", {}, std::move(a));
  }
  [[nodiscard]] DType type() const { return type_; }
  ValueId bits(const SymShape& shape, int64_t word) {
    return b_.op("random_bits", {seed_}, {{"shape", shape}, {"word", word}});
  }
  // Uniform in [0, 1), of 24 or 53 bits.
  ValueId uniform(const SymShape& shape, int64_t pair = 0) {
    auto shifted = [&](int64_t word, int64_t by) {
      return cast(b_, b_.op2("shr", bits(shape, word), b_.scalar_i(DType::U32, by)), type_);
    };
    if (type_ == DType::F32) return mul(b_, shifted(2 * pair, 8), 0x1p-24);
    return mul(b_, add(b_, mul(b_, shifted(2 * pair, 5), 0x1p26), shifted(2 * pair + 1, 6)), 0x1p-53);
  }
  ValueId normal(const SymShape& shape) {
    ValueId radius = sqrt(b_, mul(b_, log(b_, sub(b_, 1.0, uniform(shape))), -2.0));
    return mul(b_, radius, b_.op1("cos", mul(b_, uniform(shape, 1), 2 * std::numbers::pi)));
  }

private:
  B& b_;
  DType type_;
  ValueId seed_;
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
  const Attributes& a = c.node.attributes;
  TESSERA_ASSIGN(Tensor out, Tensor::create(c.result_types[0].dtype, dims));
  Generator g(c.node, is_wide(out.dtype()));
  for (int64_t i = 0; i < out.count(); ++i)
    out.set_f64(i, kind == Kind::Uniform ? a.f("low") + g.uniform(i) * (a.f("high", 1) - a.f("low"))
                                         : a.f("mean") + g.normal(i) * a.f("scale", 1));
  c.results = {out};
  return {};
}

Result<std::vector<ValueId>> decompose_random(Graph& g, const Node& n, Kind kind, bool like) {
  B b(g, n);
  TESSERA_ASSIGN(DType d, dtype_attribute(n, "dtype", like ? b.dtype(b.in(0)) : DType::F32));
  const SymShape shape = like ? b.shape(b.in(0)) : n.attributes.dims("shape");
  Draws draws(b, d);
  const Attributes& a = n.attributes;
  ValueId y = kind == Kind::Uniform ? add(b, mul(b, draws.uniform(shape), a.f("high", 1) - a.f("low")), a.f("low"))
                                    : add(b, mul(b, draws.normal(shape), a.f("scale", 1)), a.f("mean"));
  return b.done(cast(b, y, d));
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
  def.meaning =
      Decomposition{[kind, like](Graph& g, const Node& n, int) { return decompose_random(g, n, kind, like); }};
  def.reference = [kind, like](ReferenceContext& c) { return reference_random(c, kind, like); };
  def.samples = [like] {
    std::vector<Sample> out;
    for (DType d : {DType::F32, DType::F64, DType::F16}) {
      Attributes a = {{"seed", 7.0}, {"dtype", int64_t{info(d).onnx}}};
      if (!like) a.set("shape", Ints{3, 4});
      out.push_back(sample(like ? std::vector<Tensor>{random(DType::F32, {3, 4})} : std::vector<Tensor>{}, a));
      out.back().tolerance = tolerance(d);
    }
    return out;
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
  def.name = "Bernoulli";
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
  def.meaning = Decomposition{[](Graph& g, const Node& n, int) -> Result<std::vector<ValueId>> {
    B b(g, n);
    ValueId p = widen(b, b.in(0));
    TESSERA_ASSIGN(DType d, dtype_attribute(n, "dtype", b.dtype(b.in(0))));
    Draws draws(b, b.dtype(p));
    return b.done(cast(b, lt(b, draws.uniform(b.shape(p)), p), d));
  }};
  def.reference = [](ReferenceContext& c) -> Status {
    Generator g(c.node, is_wide(c.operands[0].dtype()));
    TESSERA_ASSIGN(Tensor out, Tensor::create(c.result_types[0].dtype, c.operands[0].dims()));
    for (int64_t i = 0; i < out.count(); ++i) {
      bool one = g.uniform(i) < c.operands[0].get_f64(i);
      if (is_float(out.dtype()))
        out.set_f64(i, one ? 1 : 0);
      else
        out.set_i64(i, one ? 1 : 0);
    }
    c.results = {out};
    return {};
  };
  def.samples = [] {
    return std::vector<Sample>{
        sample({random(DType::F32, {3, 4}, 1, 0, 1)}, {{"seed", 3.0}}),
        sample({random(DType::F64, {3, 4}, 1, 0, 1)}, {{"seed", 3.0}}),
        sample({random(DType::F16, {9}, 1, 0, 1)}, {{"dtype", int64_t{info(DType::Bool).onnx}}, {"seed", 4.0}})};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {2})}, {{"dtype", int64_t{8}}}, ErrorCode::UnsupportedType, "string")};
  };
  return def;
}

OpDef multinomial_record() {
  OpDef def;
  def.name = "Multinomial";
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
  // The class with the greatest sum of its log-probability and Gumbel noise has the class's probability.
  def.meaning = Decomposition{[](Graph& g, const Node& n, int) -> Result<std::vector<ValueId>> {
    B b(g, n);
    ValueId x = widen(b, b.in(0));
    TESSERA_ASSIGN(DType d, dtype_attribute(n, "dtype", DType::I32));
    const SymShape shape = {b.dim(x, 0), n.attributes.i("sample_size", 1), b.dim(x, 1)};
    Draws draws(b, b.dtype(x));
    const double half = draws.type() == DType::F64 ? 0x1p-54 : 0x1p-25; // neither 0 nor 1
    ValueId noise = neg(b, log(b, neg(b, log(b, add(b, draws.uniform(shape), half)))));
    ValueId best = b.op("argmax", {add(b, unsqueeze(b, x, {1}), noise)}, {{"axes", Ints{2}}, {"keepdims", int64_t{0}}});
    return b.done(cast(b, best, d));
  }};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    int64_t rows = x.dims()[0], classes = x.dims()[1], n = c.node.attributes.i("sample_size", 1);
    if (classes == 0) return c.error(ErrorCode::BadInput, "Multinomial has no class to draw");
    Generator g(c.node, is_wide(x.dtype()));
    const double half = is_wide(x.dtype()) ? 0x1p-54 : 0x1p-25;
    TESSERA_ASSIGN(Tensor out, Tensor::create(c.result_types[0].dtype, {rows, n}));
    for (int64_t i = 0; i < rows * n; ++i) {
      double best = 0;
      for (int64_t k = 0; k < classes; ++k) {
        double v = x.get_f64(i / n * classes + k) - std::log(-std::log(g.uniform(i * classes + k) + half));
        if (k > 0 && !(v > best)) continue;
        best = v;
        out.set_i64(i, k);
      }
    }
    c.results = {out};
    return {};
  };
  def.samples = [] {
    return std::vector<Sample>{
        sample({random(DType::F32, {2, 4}, 1)}, {{"sample_size", int64_t{5}}, {"seed", 2.0}}),
        sample({random(DType::F64, {3, 2}, 1)}, {{"sample_size", int64_t{3}}, {"seed", 5.0}, {"dtype", int64_t{7}}})};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {4})}, {}, ErrorCode::ShapeMismatch, "classes"),
        wrong({random(DType::F32, {2, 4})}, {{"dtype", int64_t{1}}}, ErrorCode::BadAttribute, "dtype")};
  };
  return def;
}

// ---- Dropout: nothing, when not training
Result<std::vector<ValueId>> decompose_dropout(Graph& g, const Node& n, int results) {
  B b(g, n);
  ValueId x = b.in(0);
  const DType mask = b.opset() != 0 && b.opset() < 10 ? b.dtype(x) : DType::Bool;
  const Tensor* mode = b.has(2) ? g.constant(b.in(2)) : nullptr;
  if (!b.has(2) || (mode && mode->count() == 1 && mode->get_i64(0) == 0)) {
    std::vector<ValueId> out = {x};
    if (results > 1) out.push_back(expand(b, b.scalar(mask, 1), b.shape(x)));
    return b.done(out);
  }
  auto number = [&](int i, DType d) {
    b.check(b.env().require_equal(b.type(b.in(i)).count(), 1, "a number of Dropout", n.location));
    return cast(b, reshape(b, b.in(i), {}), d);
  };
  ValueId wide = widen(b, x), training = number(2, DType::Bool);
  const DType type = b.dtype(wide);
  ValueId ratio = b.has(1) ? number(1, type) : b.scalar(type, 0.5);
  Draws draws(b, type);
  ValueId kept = ge(b, draws.uniform(b.shape(x)), ratio);
  kept = logical_or(b, kept, logical_not(b, training));
  ValueId scale = select(b, training, div(b, 1.0, sub(b, 1.0, ratio)), 1.0);
  std::vector<ValueId> out = {cast(b, select(b, kept, mul(b, wide, scale), 0.0), b.dtype(x))};
  if (results > 1) out.push_back(cast(b, kept, mask));
  return b.done(out);
}

OpDef dropout_record() {
  OpDef def =
      composite("Dropout", "elements of x left out at random and the others scaled, when training",
                {{"x", TypeSet::Float}, {"ratio", TypeSet::Float, true}, {"training_mode", TypeSet::Bool, true}},
                decompose_dropout);
  def.aten = {"dropout"};
  def.attributes = {{"seed", AttrKind::Int}, {"ratio", AttrKind::Float}};
  def.max_results = 2;
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    const bool training = given(c, 2) && c.operands[2].get_i64(0) != 0;
    const double ratio = given(c, 1) ? c.operands[1].get_f64(0) : 0.5;
    Generator g(c.node, is_wide(x.dtype()));
    TESSERA_ASSIGN(Tensor y, Tensor::create(x.dtype(), x.dims()));
    TESSERA_ASSIGN(Tensor mask, Tensor::create(c.result_types.back().dtype, x.dims()));
    for (int64_t i = 0; i < x.count(); ++i) {
      const bool kept = !training || g.uniform(i) >= ratio;
      y.set_f64(i, kept ? x.get_f64(i) * (training ? 1 / (1 - ratio) : 1) : 0);
      if (is_float(mask.dtype()))
        mask.set_f64(i, kept ? 1 : 0);
      else
        mask.set_i64(i, kept ? 1 : 0);
    }
    c.results = {y, mask};
    return {};
  };
  def.samples = [] {
    std::vector<Sample> out = {
        sample({random(DType::F32, {2, 3}, 1)}, {{"ratio", 0.5}}, 7),
        sample({random(DType::F16, {2, 3}, 1), scalar(DType::F32, 0.5)}, {}, 13),
        sample({random(DType::F32, {2, 3}, 1), scalar(DType::F32, 0.5), scalar(DType::Bool, 0)}, {}, 13)};
    for (DType d : {DType::F32, DType::F64, DType::F16}) {
      out.push_back(
          sample({random(d, {4, 9}, 1), scalar(DType::F32, 0.25), scalar(DType::Bool, 1)}, {{"seed", int64_t{3}}}, 13));
      out.back().tolerance = tolerance(d);
    }
    for (Sample& s : out) s.result_count = 2;
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {2}), vec({1}), scalar(DType::Bool, 1)}, {}, ErrorCode::TypeMismatch, "ratio", 13)};
  };
  return def;
}

} // namespace

void register_random_ops(OpTable& table) {
  table.add(call_seed_record());
  table.add(random_bits_record());
  for (OpDef def : {dropout_record(), random_record("RandomNormal", "RandomNormal", Kind::Normal, false),
                    random_record("RandomNormalLike", "RandomNormalLike", Kind::Normal, true),
                    random_record("RandomUniform", "RandomUniform", Kind::Uniform, false),
                    random_record("RandomUniformLike", "RandomUniformLike", Kind::Uniform, true), bernoulli_record(),
                    multinomial_record()}) {
    def.side_effect = true; // each draws
    table.add(std::move(def));
  }
}

} // namespace tessera
