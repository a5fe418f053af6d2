// Conversions between dtypes: cast (a scalar operator), conversions that do not saturate or that round scales in a chosen
// direction, and reinterpretation of bits.
#include "graph/ops/parts.h"
#include <cmath>

namespace tessera {

namespace {
using namespace ops;

bool is_number(DType d) { return is_float(d) || is_integer(d) || d == DType::Bool; }

Status infer_cast(InferContext& c) {
  DType to = std::get<DType>(*c.node.attributes.find("to"));
  if (!is_number(to))
    return c.error(ErrorCode::UnsupportedType, "conversion to " + std::string(name(to)) + " is not supported");
  return set_result(c, to, c.shape(0));
}

// Float to integer: truncated, saturated, NaN is 0.
int64_t to_integer(double x, DType d) {
  const DTypeInfo& t = info(d);
  if (std::isnan(x)) return 0;
  x = std::trunc(x);
  bool is_signed = t.kind == DTypeKind::Signed;
  double lo = is_signed ? -std::ldexp(1.0, t.bits - 1) : 0.0;
  double over = std::ldexp(1.0, is_signed ? t.bits - 1 : t.bits); // first value above the range
  if (x <= lo) return is_signed ? static_cast<int64_t>(lo) : 0;
  if (x >= over) {
    if (t.bits == 64) return is_signed ? std::numeric_limits<int64_t>::max() : -1;
    return static_cast<int64_t>(over) - 1;
  }
  if (d == DType::U64) return static_cast<int64_t>(static_cast<uint64_t>(x));
  return static_cast<int64_t>(x);
}

// Integers through which processors convert a float to `to`, whose low bits are kept.
DType through(DType to) {
  const DTypeInfo& t = info(to);
  const bool narrow = t.kind == DTypeKind::Signed ? t.bits <= 32 : t.bits == 16;
  return narrow ? DType::I32 : DType::I64;
}

// Float to integer as PyTorch's operators on x86 have it: truncated in 32 or 64 bits, of which the low ones are kept. What
// these do not hold, NaN too, is their least number. Of U64 the upper half is converted by itself.
int64_t to_integer_wrapped(double x, DType d) {
  const bool narrow = through(d) == DType::I32;
  const double limit = std::ldexp(1.0, narrow ? 31 : 63);
  if (d == DType::U64 && x >= limit) return x < 2 * limit ? static_cast<int64_t>(static_cast<uint64_t>(x)) : 0;
  if (x >= -limit && x < limit) return static_cast<int64_t>(x);
  return narrow ? std::numeric_limits<int32_t>::min() : std::numeric_limits<int64_t>::min();
}
// The same of a scalar; x is in the dtype that kernels compute in.
ScalarId wrapped(ScalarDag& d, ScalarId x, DType to) {
  const DType from = d[x].dtype, wide = through(to);
  const double limit = std::ldexp(1.0, wide == DType::I32 ? 31 : 63);
  auto within = [&](double low, double end) {
    return d.op(ScalarOp::And, d.op(ScalarOp::Ge, x, d.constant_f(from, low)),
                d.op(ScalarOp::Lt, x, d.constant_f(from, end)));
  };
  const ScalarId least = d.constant_i(wide, wide == DType::I32 ? std::numeric_limits<int32_t>::min()
                                                               : std::numeric_limits<int64_t>::min());
  const ScalarId y = d.cast(d.op(ScalarOp::Select, within(-limit, limit), d.cast(x, wide), least), to);
  if (to != DType::U64) return y;
  const ScalarId upper = d.op(ScalarOp::Select, within(limit, 2 * limit), d.cast(x, to), d.constant_i(to, 0));
  return d.op(ScalarOp::Select, d.op(ScalarOp::Ge, x, d.constant_f(from, limit)), upper, y);
}

// The same of operators on NVIDIA GPUs: saturated to 32 or 64 bits, signed ones for results that are signed or U8, of which
// the low bits are kept. NaN is 0, or the sign bit alone of 64 bits, and of 32 bits where x is f64.
DType saturated_through(DType to) {
  if (to == DType::U8) return DType::I64;
  if (info(to).bits == 64) return to;
  return info(to).kind == DTypeKind::Signed ? DType::I32 : DType::U32;
}
int64_t nan_on_gpu(DType from, DType through) {
  if (info(through).bits == 64) return std::numeric_limits<int64_t>::min();
  if (from != DType::F64) return 0;
  return through == DType::I32 ? std::numeric_limits<int32_t>::min() : int64_t{1} << 31;
}
int64_t to_integer_on_gpu(double x, DType from, DType to) {
  const DType through = saturated_through(to);
  return std::isnan(x) ? nan_on_gpu(from, through) : to_integer(x, through);
}
ScalarId on_gpu(ScalarDag& d, ScalarId x, DType to) {
  const DType from = d[x].dtype, through = saturated_through(to);
  ScalarId y = d.cast(x, through);
  if (const int64_t nan = nan_on_gpu(from, through); nan != 0)
    y = d.op(ScalarOp::Select, d.op(ScalarOp::Ne, x, x), d.constant_i(through, nan), y);
  return d.cast(y, to);
}

enum class Outside : uint8_t { Saturates, Wraps, AsOnGpu }; // as the attribute `wraps` of cast counts
Outside outside_of(const Node& n) {
  return static_cast<Outside>(std::clamp<int64_t>(n.attributes.i("wraps", 0), 0, 2));
}

Result<Tensor> convert(const Tensor& x, DType to, Outside outside = Outside::Saturates) {
  TESSERA_ASSIGN(Tensor y, Tensor::create(to, x.dims()));
  DTypeKind from = info(x.dtype()).kind;
  for (int64_t i = 0; i < x.count(); ++i) {
    if (from == DTypeKind::Float) {
      double v = x.get_f64(i);
      if (to == DType::Bool)
        y.set_i64(i, v != 0);
      else if (is_float(to))
        y.set_f64(i, v);
      else
        y.set_i64(i, outside == Outside::Wraps     ? to_integer_wrapped(v, to)
                     : outside == Outside::AsOnGpu ? to_integer_on_gpu(v, x.dtype(), to)
                                                   : to_integer(v, to));
    } else {
      int64_t v = x.get_i64(i);
      if (to == DType::Bool)
        y.set_i64(i, v != 0);
      else if (!is_float(to))
        y.set_i64(i, v);
      else if (from == DTypeKind::Unsigned)
        y.set_f64(i, static_cast<double>(static_cast<uint64_t>(v)));
      else
        y.set_f64(i, static_cast<double>(v));
    }
  }
  return y;
}

// The E8M0 code (an exponent, 255 is NaN) of a scale, rounded as requested: "up" away from 0, "down" towards 0,
// "nearest".
uint8_t to_e8m0(double x, const std::string& mode, bool saturate) {
  if (std::isnan(x)) return 255;
  x = std::fabs(x);
  if (std::isinf(x)) return saturate ? 254 : 255;
  if (x == 0) return 0;
  int e = 0;
  double m = std::frexp(x, &e); // x = m * 2^e, m in [0.5, 1)
  int code = e - 1 + 127;
  bool up = mode == "up" ? m > 0.5 : mode == "nearest" ? m >= 0.75 : false;
  code += up ? 1 : 0;
  if (code > 254) return saturate ? 254 : 255;
  return static_cast<uint8_t>(std::max(code, 0));
}

OpDef cast_record() {
  OpDef def;
  def.name = "cast";
  def.summary =
      "x in another dtype: floats to integers truncate and saturate, or with `wraps` keep the low bits; integers "
      "wrap, floats round to even";
  def.aten = {"_to_copy"};
  def.operands = {{"x", TypeSet::NumericOrBool}};
  // rounds: the model requests it, so a kernel rounds x and the result to their dtypes. Other casts are between the dtypes
  // that values have in memory and those that kernels compute in. wraps: floats beyond an integer type become what
  // PyTorch's operators make of them, on x86 if it is 1, on NVIDIA GPUs if it is 2.
  def.attributes = {{"to", AttrKind::Type, true}, {"rounds", AttrKind::Int}, {"wraps", AttrKind::Int}};
  def.infer = infer_cast;
  def.meaning = Pointwise{[](ScalarDag& d, std::span<const ScalarId> a, const Node& n, const Graph&) {
    DType to = std::get<DType>(*n.attributes.find("to"));
    const Outside outside = outside_of(n);
    if (outside != Outside::Saturates && is_float(d[a[0]].dtype) && is_integer(to))
      return Result<ScalarId>(outside == Outside::Wraps ? wrapped(d, a[0], to) : on_gpu(d, a[0], to));
    // Eight bits and less round visibly wherever the value goes next.
    if (is_float(to) && info(to).bits <= 8) return Result<ScalarId>(d.cast(d.cast(a[0], to), DType::F32));
    return Result<ScalarId>(d.cast(a[0], compute_dtype(to)));
  }};
  def.reference = [](ReferenceContext& c) -> Status {
    TESSERA_ASSIGN(Tensor y, convert(c.operands[0], c.result_types[0].dtype, outside_of(c.node)));
    c.results = {y};
    return {};
  };
  def.samples = [] {
    std::vector<Sample> out;
    std::initializer_list<DType> types = {DType::F32, DType::F64, DType::F16, DType::BF16, DType::I64, DType::I32,
                                          DType::I16, DType::I8,  DType::U8,  DType::U32,  DType::U64, DType::Bool};
    uint64_t seed = 1;
    for (DType from : types)
      for (DType to : types) {
        Sample s = sample({random(from, {3, 7}, seed++, -300, 300)}, {{"to", to}});
        s.tolerance = std::max(s.tolerance, tolerance(to));
        out.push_back(std::move(s));
      }
    Tensor edges = floats({8}, {NAN, INFINITY, -INFINITY, 1e30, -1e30, -0.5, 255.5, 2147483648.0});
    for (DType to : {DType::I8, DType::U8, DType::I32, DType::I64, DType::U64, DType::Bool})
      out.push_back(sample({edges}, {{"to", to}}));
    for (DType from : {DType::F32, DType::F64, DType::F16, DType::BF16})
      for (DType to : {DType::I8, DType::U8, DType::I16, DType::U16, DType::I32, DType::U32, DType::I64, DType::U64}) {
        const Tensor beyond = floats(
            from, {16},
            {NAN, INFINITY, -INFINITY, -2.2, -1, 300, 40000, -40000, 70000, 3e9, -3e9, 5e9, 1e19, 1.5e19, 1e20, -1e20});
        for (int64_t wraps : {1, 2}) out.push_back(sample({beyond}, {{"to", to}, {"wraps", wraps}}));
      }
    for (DType small : {DType::F8E4M3FN, DType::F8E5M2, DType::F8E4M3FNUZ, DType::F8E5M2FNUZ}) {
      out.push_back(sample({floats(small, {4}, {-2.2, 300, -100, 0.5})}, {{"to", DType::I8}, {"wraps", int64_t{1}}}));
      out.push_back(sample({random(DType::F32, {4, 9}, seed++, -20, 20)}, {{"to", small}}));
      out.push_back(sample({random(small, {4, 9}, seed++, -20, 20)}, {{"to", DType::F32}}));
    }
    out.push_back(sample({random(DType::F32, {}, 9)}, {{"to", DType::F16}}));
    out.push_back(sample({random(DType::F32, {0, 2}, 9)}, {{"to", DType::I32}}));
    for (Sample& s : out) s.tolerance = std::max(s.tolerance, tolerance(std::get<DType>(*s.attributes.find("to"))));
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {2})}, {}, ErrorCode::BadAttribute, "to"),
        wrong({random(DType::F32, {2})}, {{"to", DType::C64}}, ErrorCode::UnsupportedType, "c64"),
    };
  };
  return def;
}

OpDef cast_special_record() {
  OpDef def;
  def.name = "cast_special";
  def.summary = "conversion to an 8-bit or smaller float that does not saturate, or rounds a scale in a direction";
  def.operands = {{"x", TypeSet::NumericOrBool}};
  def.attributes = {{"to", AttrKind::Type, true},
                    {"saturate", AttrKind::Int, false, int64_t{1}},
                    {"round_mode", AttrKind::String, false, std::string("up")}};
  def.meaning = Decomposition{[](Graph& g, const Node& n, int) {
    B b(g, n);
    DType to = std::get<DType>(*n.attributes.find("to"));
    if (!is_float(to) || info(to).bits != 8) return b.done(b.op("cast", {b.in(0)}, {{"to", to}}));
    ValueId x = is_float(b.dtype(b.in(0))) ? b.in(0) : cast(b, b.in(0), DType::F64);
    ValueId code =
        b.op("encode_float", {x},
             {{"to", to}, {"saturate", b.attr().i("saturate", 1)}, {"round_mode", b.attr().s("round_mode", "up")}});
    return b.done(b.op("reinterpret", {code}, {{"to", to}}));
  }};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    DType to = c.result_types[0].dtype;
    bool saturate = c.node.attributes.i("saturate", 1) != 0;
    std::string mode = c.node.attributes.s("round_mode", "up");
    if (!is_float(to) || info(to).bits != 8) {
      TESSERA_ASSIGN(Tensor y, convert(x, to));
      c.results = {y};
      return {};
    }
    TESSERA_ASSIGN(Tensor y, Tensor::create(to, x.dims()));
    for (int64_t i = 0; i < x.count(); ++i) {
      const int64_t whole = is_float(x.dtype()) ? 0 : x.get_i64(i);
      const double v = is_float(x.dtype())                           ? x.get_f64(i)
                       : info(x.dtype()).kind == DTypeKind::Unsigned ? static_cast<double>(static_cast<uint64_t>(whole))
                                                                     : static_cast<double>(whole);
      uint8_t bits = to == DType::F8E8M0 ? to_e8m0(v, mode, saturate) : f64_to_small_float(to, v, saturate);
      y.mutable_as<uint8_t>()[static_cast<size_t>(i)] = bits;
    }
    c.results = {y};
    return {};
  };
  def.samples = [] {
    std::vector<Sample> out;
    for (DType d : {DType::F8E4M3FN, DType::F8E5M2, DType::F8E4M3FNUZ, DType::F8E5M2FNUZ, DType::F8E8M0}) {
      for (DType from : {DType::F32, DType::F64, DType::F16, DType::BF16})
        out.push_back(sample({random(from, {3, 4}, 5, 0.1, 600)}, {{"to", d}, {"saturate", int64_t{0}}}));
      out.push_back(sample({random(DType::I32, {3, 4}, 5, 1, 1 << 26)}, {{"to", d}}));
    }
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{wrong({random(DType::F32, {2})}, {}, ErrorCode::BadAttribute, "to")};
  };
  return def;
}

OpDef bitcast_record() {
  OpDef def;
  def.name = "bitcast";
  def.summary = "the same 32 or 64 bits read as another dtype";
  def.operands = {{"x", TypeSet::Numeric}};
  def.attributes = {{"to", AttrKind::Type, true}};
  def.meaning =
      Pointwise{[](ScalarDag& d, std::span<const ScalarId> a, const Node& n, const Graph& g) -> Result<ScalarId> {
        DType to = std::get<DType>(*n.attributes.find("to")), from = operand_type(g, n, 0).dtype;
        if (!is_number(to) || info(from).bits != info(to).bits || info(to).bits < 32)
          return Diagnostic(ErrorCode::TypeMismatch, n.location,
                            "bits of " + std::string(name(from)) + " are not read as " + std::string(name(to)));
        return d.bitcast(a[0], to);
      }};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    TESSERA_ASSIGN(Tensor y, Tensor::create(c.result_types[0].dtype, x.dims()));
    if (x.bytes() != 0) std::memcpy(y.mutable_data(), x.data(), x.bytes());
    c.results = {y};
    return {};
  };
  def.samples = [] {
    return std::vector<Sample>{sample({random(DType::F32, {3, 4})}, {{"to", DType::U32}}),
                               sample({random(DType::F64, {3, 4})}, {{"to", DType::I64}}),
                               sample({random(DType::I32, {3, 4}, 1, 1, 1 << 30)}, {{"to", DType::F32}}),
                               sample({random(DType::U64, {3, 4}, 1, 1, 1e18)}, {{"to", DType::F64}})};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {2})}, {{"to", DType::I64}}, ErrorCode::TypeMismatch, "not read as")};
  };
  return def;
}

// ONNX Cast and CastLike, the dtype found: `cast` unless an attribute requests what `cast` does not do.
Result<std::vector<ValueId>> cast_onnx(B& b, DType to) {
  bool small = is_float(to) && info(to).bits == 8;
  bool special = small && (b.attr().i("saturate", 1) == 0 || to == DType::F8E8M0);
  std::string mode = b.attr().s("round_mode", "up");
  if (mode != "up" && mode != "down" && mode != "nearest")
    b.fail(ErrorCode::BadAttribute, "round_mode '" + mode + "' is none of up, down, nearest");
  if (special)
    return b.done(
        b.op("cast_special", {b.in(0)}, {{"to", to}, {"saturate", b.attr().i("saturate", 1)}, {"round_mode", mode}}));
  // ONNX keeps the low bits of an integer that does not fit four or two; `cast` would saturate.
  bool wraps = is_float(b.dtype(b.in(0))) && is_integer(to) && info(to).bits < 8;
  ValueId x = wraps ? cast(b, b.in(0), DType::I32) : b.in(0);
  return b.done(model_cast(b, x, to));
}

void register_onnx_casts(OpTable& table) {
  std::vector<AttrDef> options = {{"saturate", AttrKind::Int, false, int64_t{1}},
                                  {"round_mode", AttrKind::String, false, std::string("up")}};
  OpDef cast;
  cast.name = "Cast";
  cast.summary = "conversion to the dtype of attribute `to`";
  cast.onnx = {{"Cast"}};
  cast.operands = {{"x", TypeSet::NumericOrBool}};
  cast.attributes = options;
  cast.attributes.push_back({"to", AttrKind::Type, true});
  cast.meaning = Decomposition{[](Graph& g, const Node& n, int) {
    B b(g, n);
    return cast_onnx(b, std::get<DType>(*n.attributes.find("to")));
  }};
  cast.samples = [] {
    return std::vector<Sample>{sample({random(DType::F32, {3, 4}, 1, -9, 9)}, {{"to", DType::I32}}, 13),
                               sample({random(DType::I64, {5}, 1, -9, 9)}, {{"to", DType::Bool}}, 13),
                               sample({random(DType::F16, {2, 3}, 1)}, {{"to", DType::F8E4M3FN}}, 19)};
  };
  cast.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {2})}, {{"to", DType::String}}, ErrorCode::UnsupportedType, "string", 13)};
  };
  table.add(std::move(cast));

  OpDef like;
  like.name = "CastLike";
  like.summary = "conversion to the second operand's dtype";
  like.onnx = {{"CastLike"}};
  like.operands = {{"x", TypeSet::NumericOrBool}, {"target_type", TypeSet::Any}};
  like.attributes = options;
  like.meaning = Decomposition{[](Graph& g, const Node& n, int) {
    B b(g, n);
    return cast_onnx(b, b.dtype(b.in(1)));
  }};
  like.samples = [] {
    return std::vector<Sample>{sample({random(DType::F32, {3, 4}, 1, -9, 9), vec({1})}, {}, 15),
                               sample({random(DType::I64, {5}, 1, -9, 9), random(DType::F32, {0})}, {}, 15)};
  };
  table.add(std::move(like));

  OpDef bits;
  bits.name = "BitCast";
  bits.summary = "the same bits read as another dtype of the same width";
  bits.onnx = {{"BitCast"}};
  bits.aten = {"view.dtype"};
  bits.operands = {{"x", TypeSet::NumericOrBool}};
  bits.attributes = {{"to", AttrKind::Type, true}};
  // Numbers of 32 and 64 bits change in registers; the bytes of others are read as another type where they are.
  bits.meaning = Decomposition{[](Graph& g, const Node& n, int) {
    B b(g, n);
    DType from = b.dtype(b.in(0)), to = std::get<DType>(*n.attributes.find("to"));
    if (!is_number(to) || info(from).bits != info(to).bits)
      b.fail(ErrorCode::TypeMismatch, "bits of " + std::string(name(from)) + " cannot be read as " +
                                          std::string(name(to)) + ": the widths differ");
    if (!b.ok()) return b.failed();
    if (from == DType::Bool || to == DType::Bool || (is_integer(from) && is_integer(to)))
      return b.done(ops::cast(b, b.in(0), to));
    return b.done(b.op(info(to).bits >= 32 ? "bitcast" : "reinterpret", {b.in(0)}, {{"to", to}}));
  }};
  bits.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    TESSERA_ASSIGN(Tensor y, Tensor::create(std::get<DType>(*c.node.attributes.find("to")), x.dims()));
    if (x.bytes() != 0) std::memcpy(y.mutable_data(), x.data(), x.bytes());
    c.results = {y};
    return {};
  };
  bits.samples = [] {
    std::vector<Sample> out;
    const std::pair<DType, DType> pairs[] = {
        {DType::F32, DType::I32},  {DType::U32, DType::F32},     {DType::F64, DType::U64},
        {DType::I64, DType::F64},  {DType::F16, DType::I16},     {DType::I16, DType::BF16},
        {DType::F16, DType::BF16}, {DType::U8, DType::I8},       {DType::Bool, DType::U8},
        {DType::U64, DType::I64},  {DType::F8E4M3FN, DType::U8}, {DType::I8, DType::F8E5M2FNUZ},
        {DType::I4, DType::U4},    {DType::U2, DType::I2},       {DType::F4E2M1, DType::U4}};
    for (auto [from, to] : pairs) {
      double high = from == DType::I16 || from == DType::I64 ? 9 : 100; // small ones are no NaN as floats
      out.push_back(sample({random(from, {3, 5}, 2, 0, high)}, {{"to", to}}, 26));
    }
    return out;
  };
  bits.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {2})}, {{"to", DType::I64}}, ErrorCode::TypeMismatch, "widths differ", 26)};
  };
  table.add(std::move(bits));
}

} // namespace

void register_cast_ops(OpTable& table);
void register_cast_ops(OpTable& table) {
  register_narrow_ops(table);
  table.add(bitcast_record());
  table.add(cast_record());
  table.add(cast_special_record());
  register_onnx_casts(table);
}

} // namespace tessera
