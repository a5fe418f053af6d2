// Elements of 8 bits and less as generated code has them: codes in bytes. `reinterpret` names the bytes of a tensor,
// `unpack` and `pack` take elements out of bytes and put them there, `decode_float` and `encode_float` turn codes into
// numbers and back by integer arithmetic on their bits. The pass `narrow` writes graphs in terms of these.
#include "graph/ops/narrow.h"
#include "graph/ops/parts.h"
#include <bit>
#include <cmath>

namespace tessera {

namespace ops {

namespace {

// A small float: value = (-1)^s * 2^(e - bias) * 1.m, subnormal where e is 0.
struct Format {
  int exponent_bits, mantissa_bits, bias;
  int64_t max_finite; // code of the largest finite magnitude
  int64_t inf;        // code of infinity, -1: none
  int64_t nan;        // code of NaN, -1: none
  bool unsigned_zero; // no -0: its code is the NaN
  [[nodiscard]] int64_t sign_bit() const { return int64_t{1} << (exponent_bits + mantissa_bits); }
};

Format format_of(DType d) {
  switch (d) {
  case DType::F8E4M3FN: return {4, 3, 7, 0x7e, -1, 0x7f, false};
  case DType::F8E4M3FNUZ: return {4, 3, 8, 0x7f, -1, 0x80, true};
  case DType::F8E5M2: return {5, 2, 15, 0x7b, 0x7c, 0x7e, false};
  case DType::F8E5M2FNUZ: return {5, 2, 16, 0x7f, -1, 0x80, true};
  case DType::F4E2M1: return {2, 1, 1, 0x7, -1, -1, false};
  default: TESSERA_UNREACHABLE("no small float: " + std::string(name(d)));
  }
}

constexpr int64_t kF32Inf = 0x7f800000, kF32Magnitude = 0x7fffffff, kF32NaN = 0x7fc00000;

// u32 arithmetic with literals.
struct Bits {
  ScalarDag& d;
  [[nodiscard]] ScalarId of(int64_t v) const { return d.constant_i(DType::U32, v); }
  [[nodiscard]] ScalarId op(ScalarOp o, ScalarId a, int64_t v) const { return d.op(o, a, of(v)); }
  [[nodiscard]] ScalarId select(ScalarId c, ScalarId a, ScalarId b) const { return d.op(ScalarOp::Select, c, a, b); }
  [[nodiscard]] ScalarId literal(ScalarId c, int64_t a, ScalarId b) const { return select(c, of(a), b); }
};

} // namespace

ScalarId round_to_odd(ScalarDag& d, ScalarId x) {
  if (d[x].dtype != DType::F64) return d.cast(x, DType::F32);
  ScalarId near = d.cast(x, DType::F32), back = d.cast(near, DType::F64);
  Bits b{d};
  ScalarId bits = d.bitcast(near, DType::U32);
  ScalarId away = d.op(ScalarOp::Gt, d.op(ScalarOp::Abs, back), d.op(ScalarOp::Abs, x));
  ScalarId odd = b.op(ScalarOp::Or, b.select(away, b.op(ScalarOp::Sub, bits, 1), bits), 1);
  // Equal, NaN, and infinity, which also stands for what is beyond f32: as it is.
  ScalarId finite = b.op(ScalarOp::Lt, b.op(ScalarOp::And, bits, kF32Magnitude), kF32Inf);
  ScalarId inexact = d.op(ScalarOp::And, finite, d.op(ScalarOp::Ne, back, x));
  return d.bitcast(b.select(inexact, odd, bits), DType::F32);
}

ScalarId encode_float(ScalarDag& d, ScalarId x, DType to, bool saturate, E8M0Rounding rounding) {
  Bits b{d};
  ScalarId bits = d.bitcast(round_to_odd(d, x), DType::U32), magnitude = b.op(ScalarOp::And, bits, kF32Magnitude);
  ScalarId is_nan = b.op(ScalarOp::Gt, magnitude, kF32Inf);
  if (to == DType::F8E8M0) { // an exponent; below 2^-126 the bits of x hold no exponent
    int64_t carry = rounding == E8M0Rounding::Up ? 0x7fffff : rounding == E8M0Rounding::Nearest ? 0x400000 : 0;
    int64_t least = rounding == E8M0Rounding::Up ? 0x400001 : rounding == E8M0Rounding::Nearest ? 0x600000 : 0x800000;
    ScalarId code = b.op(ScalarOp::Shr, b.op(ScalarOp::Add, magnitude, carry), 23);
    ScalarId small = b.literal(b.op(ScalarOp::Ge, magnitude, least), 1, b.of(0));
    code = b.select(b.op(ScalarOp::Lt, magnitude, 0x800000), small, code);
    code = b.literal(b.op(ScalarOp::Gt, code, 254), saturate ? 254 : 255, code);
    return d.cast(b.literal(is_nan, 255, code), DType::U8);
  }
  const Format f = format_of(to);
  const int shift = 23 - f.mantissa_bits;
  // Normal numbers: the mantissa is rounded to even in the integer, a carry goes into the exponent.
  ScalarId odd = b.op(ScalarOp::And, b.op(ScalarOp::Shr, magnitude, shift), 1);
  ScalarId rounded = d.op(ScalarOp::Add, b.op(ScalarOp::Add, magnitude, (int64_t{1} << (shift - 1)) - 1), odd);
  ScalarId normal = b.op(ScalarOp::Sub, b.op(ScalarOp::Shr, rounded, shift), int64_t{127 - f.bias} << f.mantissa_bits);
  // Subnormal ones: adding a power of two aligns the last bit of the sum with theirs.
  const int lowest = 1 - f.bias;
  const float align = std::ldexp(1.0f, lowest - f.mantissa_bits + 23);
  ScalarId sum = d.op(ScalarOp::Add, d.bitcast(magnitude, DType::F32), d.constant_f(DType::F32, align));
  ScalarId subnormal = b.op(ScalarOp::Sub, d.bitcast(sum, DType::U32), std::bit_cast<uint32_t>(align));
  ScalarId code = b.select(b.op(ScalarOp::Lt, magnitude, int64_t{127 + lowest} << 23), subnormal, normal);
  const int64_t over = saturate || f.nan < 0 ? f.max_finite : f.inf >= 0 ? f.inf : f.nan;
  code = b.literal(b.op(ScalarOp::Gt, code, f.max_finite), over, code);
  ScalarId sign = b.op(ScalarOp::Shl, b.op(ScalarOp::Shr, bits, 31), f.exponent_bits + f.mantissa_bits);
  if (f.unsigned_zero) sign = b.literal(b.op(ScalarOp::Eq, code, 0), 0, sign);
  code = b.literal(is_nan, f.nan < 0 ? f.sign_bit() : f.nan, code);
  return d.cast(d.op(ScalarOp::Or, code, sign), DType::U8);
}

ScalarId decode_float(ScalarDag& d, ScalarId code, DType from) {
  Bits b{d};
  ScalarId c = d.cast(code, DType::U32);
  if (from == DType::F8E8M0) {
    ScalarId bits = b.literal(b.op(ScalarOp::Eq, c, 0), 0x400000, b.op(ScalarOp::Shl, c, 23)); // 2^-127
    return d.bitcast(b.literal(b.op(ScalarOp::Eq, c, 255), kF32NaN, bits), DType::F32);
  }
  const Format f = format_of(from);
  c = b.op(ScalarOp::And, c, 2 * f.sign_bit() - 1);
  ScalarId magnitude = b.op(ScalarOp::And, c, f.sign_bit() - 1);
  ScalarId normal =
      b.op(ScalarOp::Add, b.op(ScalarOp::Shl, magnitude, 23 - f.mantissa_bits), int64_t{127 - f.bias} << 23);
  const double unit = std::ldexp(1.0, 1 - f.bias - f.mantissa_bits);
  ScalarId subnormal =
      d.bitcast(d.op(ScalarOp::Mul, d.cast(magnitude, DType::F32), d.constant_f(DType::F32, unit)), DType::U32);
  ScalarId bits = b.select(b.op(ScalarOp::Lt, magnitude, int64_t{1} << f.mantissa_bits), subnormal, normal);
  if (f.inf >= 0)
    bits = b.literal(b.op(ScalarOp::Eq, magnitude, f.inf), kF32Inf,
                     b.literal(b.op(ScalarOp::Gt, magnitude, f.inf), kF32NaN, bits));
  else if (f.nan >= 0 && !f.unsigned_zero)
    bits = b.literal(b.op(ScalarOp::Gt, magnitude, f.max_finite), kF32NaN, bits);
  ScalarId sign = b.op(ScalarOp::Shl, b.op(ScalarOp::Shr, c, f.exponent_bits + f.mantissa_bits), 31);
  bits = d.op(ScalarOp::Or, bits, sign);
  if (f.unsigned_zero) bits = b.literal(b.op(ScalarOp::Eq, c, f.sign_bit()), kF32NaN, bits);
  return d.bitcast(bits, DType::F32);
}

} // namespace ops

namespace {
using namespace ops;

DType type_attribute(const Node& n, std::string_view name) { return std::get<DType>(*n.attributes.find(name)); }

SymExpr bytes_of(const SymExpr& elements, int64_t bits) { return ceildiv(elements * bits, 8); }

// The attribute `bits`, the width of a packed element: 2 or 4.
Result<int64_t> packed_bits(const Node& n) {
  const int64_t bits = n.attributes.i("bits");
  if (bits == 2 || bits == 4) return bits;
  return Diagnostic(ErrorCode::BadAttribute, "attribute 'bits' of '" + std::string(n.op->name) + "' is " +
                                                 std::to_string(bits) + ", expected one of 2, 4");
}

// ---- reinterpret
OpDef reinterpret_record() {
  OpDef def;
  def.name = "reinterpret";
  def.summary = "the bytes of x as another type: of the same shape, as a vector of bytes, or packed with shape `dims`";
  def.operands = {{"x", TypeSet::NumericOrBool}};
  def.attributes = {{"to", AttrKind::Type, true}, {"dims", AttrKind::Dims}};
  def.infer = [](InferContext& c) -> Status {
    const TensorType x = c.type(0);
    const DType to = type_attribute(c.node, "to");
    const int from_bits = info(x.dtype).bits, bits = info(to).bits;
    if (bits == 0 || info(to).kind == DTypeKind::Complex)
      return c.error(ErrorCode::TypeMismatch, "bytes are not read as " + std::string(name(to)));
    if (from_bits == bits) return set_result(c, to, x.shape);
    if (bits == 8 && from_bits < 8) return set_result(c, to, {bytes_of(x.count(), from_bits)});
    if (from_bits != 8 || bits > 8)
      return c.error(ErrorCode::TypeMismatch, "bits of " + std::string(name(x.dtype)) + " cannot be read as " +
                                                  std::string(name(to)) + ": the widths differ");
    SymShape dims = c.node.attributes.dims("dims");
    TESSERA_TRY(
        c.env().require_equal(bytes_of(product(dims), bits), x.count(), "bytes of packed elements", c.node.location));
    return set_result(c, to, std::move(dims));
  };
  def.meaning = StructuredOp{Structured::Alias};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    const DType to = c.result_types[0].dtype;
    const int from_bits = info(x.dtype()).bits, bits = info(to).bits;
    Dims dims = x.dims();
    if (from_bits != bits && bits == 8) dims = {static_cast<int64_t>(x.bytes())};
    if (from_bits != bits && bits < 8) {
      TESSERA_ASSIGN(dims, c.dims("dims"));
    }
    TESSERA_ASSIGN(Tensor y, Tensor::create(to, dims));
    if (y.bytes() != x.bytes())
      return c.error(ErrorCode::BadInput,
                     std::to_string(x.bytes()) + " bytes are read as " + std::to_string(y.bytes()));
    if (x.bytes() != 0) std::memcpy(y.mutable_data(), x.data(), x.bytes());
    c.results = {y};
    return {};
  };
  def.samples = [] {
    return std::vector<Sample>{
        sample({random(DType::F8E5M2, {3, 5}, 1)}, {{"to", DType::U8}}),
        sample({random(DType::U8, {7}, 2, 0, 126)}, {{"to", DType::F8E4M3FN}}),
        sample({random(DType::F16, {3, 4}, 3)}, {{"to", DType::I16}}),
        sample({random(DType::I4, {3, 5}, 4, -8, 7)}, {{"to", DType::U8}}),
        sample({random(DType::U8, {8}, 5, 0, 255)}, {{"to", DType::U4}, {"dims", SymShape{3, 5}}}),
    };
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {2})}, {{"to", DType::I64}}, ErrorCode::TypeMismatch, "widths differ"),
        wrong({random(DType::U8, {2}, 1, 0, 9)}, {{"to", DType::U4}, {"dims", SymShape{7}}}, ErrorCode::ShapeMismatch,
              "packed")};
  };
  return def;
}

// ---- elements in bytes: the first in the lowest bits
OpDef unpack_record() {
  OpDef def;
  def.name = "unpack";
  def.summary = "elements of `bits` bits of a vector of bytes, one in a byte each; signed where `signed` is 1";
  def.operands = {{"x", TypeSet::Integer}};
  def.attributes = {{"bits", AttrKind::Int, true}, {"signed", AttrKind::Int, true}, {"dims", AttrKind::Dims, true}};
  def.infer = [](InferContext& c) -> Status {
    if (c.type(0).dtype != DType::U8 || c.type(0).rank() != 1)
      return c.error(ErrorCode::TypeMismatch, "elements are unpacked from a vector of u8, not " + c.type(0).str());
    SymShape dims = c.node.attributes.dims("dims");
    TESSERA_ASSIGN(const int64_t bits, packed_bits(c.node));
    TESSERA_TRY(c.env().require_equal(bytes_of(product(dims), bits), c.shape(0)[0], "bytes of packed elements",
                                      c.node.location));
    return set_result(c, c.node.attributes.i("signed") != 0 ? DType::I8 : DType::U8, std::move(dims));
  };
  def.meaning = Indexing{[](ScalarDag& d, int, std::span<const ScalarId> at, const Node& n, const Graph& g) {
    const int64_t bits = n.attributes.i("bits");
    const SymExpr each(8 / bits);
    IndexMath m{d};
    ScalarId flat = m.linear(at, result_type(g, n).shape);
    ScalarId byte = load(d, g, n, 0, {m.div(flat, m.sym(each))});
    ScalarId place = d.cast(m.mul(m.mod(flat, m.sym(each)), m.sym(bits)), DType::U8);
    ScalarId top = d.op(ScalarOp::Shl, byte, d.op(ScalarOp::Sub, d.constant_i(DType::U8, 8 - bits), place));
    DType to = n.attributes.i("signed") != 0 ? DType::I8 : DType::U8;
    return Result<ScalarId>(d.op(ScalarOp::Shr, d.cast(top, to), d.constant_i(to, 8 - bits)));
  }};
  def.reference = [](ReferenceContext& c) -> Status {
    const int64_t bits = c.node.attributes.i("bits"), each = 8 / bits, mask = (1 << bits) - 1;
    const bool is_signed = c.node.attributes.i("signed") != 0;
    TESSERA_ASSIGN(Dims dims, c.dims("dims"));
    TESSERA_ASSIGN(Tensor y, Tensor::create(c.result_types[0].dtype, dims));
    for (int64_t i = 0; i < y.count(); ++i) {
      int64_t v = c.operands[0].get_i64(i / each) >> (i % each * bits) & mask;
      y.set_i64(i, is_signed && v > mask / 2 ? v - mask - 1 : v);
    }
    c.results = {y};
    return {};
  };
  def.samples = [] {
    std::vector<Sample> out;
    for (int64_t bits : {4, 2})
      for (int64_t is_signed : {0, 1}) {
        Attributes a = {{"bits", bits}, {"signed", is_signed}, {"dims", SymShape{3, 5}}};
        out.push_back(sample({random(DType::U8, {(15 * bits + 7) / 8}, 3, 0, 255)}, a));
      }
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{wrong({random(DType::U8, {2, 2}, 3, 0, 255)},
                                          {{"bits", int64_t{4}}, {"signed", int64_t{0}}, {"dims", SymShape{8}}},
                                          ErrorCode::TypeMismatch, "vector")};
  };
  return def;
}

OpDef pack_record() {
  OpDef def;
  def.name = "pack";
  def.summary = "the low `bits` bits of each element, row-major, in a vector of bytes";
  def.operands = {{"x", TypeSet::Integer}};
  def.attributes = {{"bits", AttrKind::Int, true}};
  def.infer = [](InferContext& c) -> Status {
    if (info(c.type(0).dtype).bits != 8)
      return c.error(ErrorCode::TypeMismatch, "elements of 8 bits are packed, not " + c.type(0).str());
    TESSERA_ASSIGN(const int64_t bits, packed_bits(c.node));
    return set_result(c, DType::U8, {bytes_of(c.type(0).count(), bits)});
  };
  def.meaning = Indexing{[](ScalarDag& d, int, std::span<const ScalarId> at, const Node& n, const Graph& g) {
    const int64_t bits = n.attributes.i("bits"), each = 8 / bits;
    const TensorType& x = operand_type(g, n, 0);
    IndexMath m{d};
    ScalarId byte = -1;
    for (int64_t k = 0; k < each; ++k) {
      ScalarId flat = m.add(m.mul(at[0], m.sym(each)), m.sym(k));
      ScalarId inside = k == 0 ? -1 : m.lt(flat, m.sym(x.count()));
      ScalarId v = d.cast(load(d, g, n, 0, m.delinear(flat, x.shape), inside), DType::U8);
      v = d.op(ScalarOp::Shl, d.op(ScalarOp::And, v, d.constant_i(DType::U8, (1 << bits) - 1)),
               d.constant_i(DType::U8, k * bits));
      byte = byte < 0 ? v : d.op(ScalarOp::Or, byte, v);
    }
    return Result<ScalarId>(byte);
  }};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    const int64_t bits = c.node.attributes.i("bits"), each = 8 / bits, mask = (1 << bits) - 1;
    TESSERA_ASSIGN(Tensor y, Tensor::create(DType::U8, {(x.count() * bits + 7) / 8}, true));
    for (int64_t i = 0; i < x.count(); ++i)
      y.set_i64(i / each, y.get_i64(i / each) | (x.get_i64(i) & mask) << (i % each * bits));
    c.results = {y};
    return {};
  };
  def.samples = [] {
    std::vector<Sample> out;
    for (int64_t bits : {4, 2})
      for (DType d : {DType::I8, DType::U8}) out.push_back(sample({random(d, {3, 5}, 3, -8, 8)}, {{"bits", bits}}));
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::I32, {3})}, {{"bits", int64_t{4}}}, ErrorCode::TypeMismatch, "8 bits"),
        wrong({random(DType::I8, {3})}, {{"bits", int64_t{0}}}, ErrorCode::BadAttribute, "is 0, expected one of 2, 4")};
  };
  return def;
}

OpDef wrap_bits_record() {
  OpDef def;
  def.name = "wrap_bits";
  def.summary = "what is left of x, 8 bits each, when it was packed to `bits` bits and unpacked";
  def.operands = {{"x", TypeSet::Integer}};
  def.attributes = {{"bits", AttrKind::Int, true}};
  def.meaning =
      Pointwise{[](ScalarDag& d, std::span<const ScalarId> a, const Node& n, const Graph&) -> Result<ScalarId> {
        TESSERA_ASSIGN(const int64_t bits, packed_bits(n));
        ScalarId by = d.constant_i(d[a[0]].dtype, 8 - bits);
        return d.op(ScalarOp::Shr, d.op(ScalarOp::Shl, a[0], by), by);
      }};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    const int64_t n = int64_t{1} << c.node.attributes.i("bits");
    const bool is_signed = info(x.dtype()).kind == DTypeKind::Signed;
    TESSERA_ASSIGN(Tensor y, Tensor::create(x.dtype(), x.dims()));
    for (int64_t i = 0; i < x.count(); ++i) {
      int64_t v = ((x.get_i64(i) % n) + n) % n;
      y.set_i64(i, is_signed && v >= n / 2 ? v - n : v);
    }
    c.results = {y};
    return {};
  };
  def.samples = [] {
    std::vector<Sample> out;
    for (DType d : {DType::I8, DType::U8})
      out.push_back(sample({random(d, {3, 5}, 3, -100, 100)}, {{"bits", int64_t{4}}}));
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {3})}, {{"bits", int64_t{4}}}, ErrorCode::TypeMismatch, "integer"),
        wrong({random(DType::I8, {3})}, {{"bits", int64_t{9}}}, ErrorCode::BadAttribute, "is 9, expected one of 2, 4")};
  };
  return def;
}

// ---- codes of small floats
Result<DType> small_float(const Node& n, std::string_view attribute) {
  DType d = type_attribute(n, attribute);
  if (!is_float(d) || info(d).bits > 8)
    return Diagnostic(ErrorCode::BadAttribute, n.location,
                      "'" + std::string(name(d)) + "' is no float of 8 bits or less");
  return d;
}

const DType kSmallFloats[] = {DType::F8E4M3FN,   DType::F8E4M3FNUZ, DType::F8E5M2,
                              DType::F8E5M2FNUZ, DType::F8E8M0,     DType::F4E2M1};

OpDef decode_float_record() {
  OpDef def;
  def.name = "decode_float";
  def.summary = "the numbers, in f32, whose codes in the type `from` are x";
  def.operands = {{"x", TypeSet::Integer}};
  def.attributes = {{"from", AttrKind::Type, true}};
  def.meaning =
      Pointwise{[](ScalarDag& d, std::span<const ScalarId> a, const Node& n, const Graph&) -> Result<ScalarId> {
        TESSERA_ASSIGN(DType from, small_float(n, "from"));
        return ops::decode_float(d, a[0], from);
      }};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    TESSERA_ASSIGN(Tensor y, Tensor::create(DType::F32, x.dims()));
    const DType from = type_attribute(c.node, "from");
    for (int64_t i = 0; i < x.count(); ++i)
      y.set_f64(i, static_cast<double>(small_float_to_f32(from, static_cast<uint8_t>(x.get_i64(i)))));
    c.results = {y};
    return {};
  };
  def.samples = [] {
    std::vector<Sample> out;
    for (DType d : kSmallFloats) {
      std::vector<int64_t> codes;
      for (int64_t i = 0; i < 1 << info(d).bits; ++i) codes.push_back(i);
      Tensor all = from_i64(DType::U8, {static_cast<int64_t>(codes.size())}, codes).value();
      Sample s = sample({all}, {{"from", d}});
      s.tolerance = 0;
      out.push_back(std::move(s));
    }
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::U8, {3}, 1, 0, 9)}, {{"from", DType::F32}}, ErrorCode::BadAttribute, "8 bits or less")};
  };
  return def;
}

Result<E8M0Rounding> rounding_of(const Node& n) {
  std::string mode = n.attributes.s("round_mode", "nearest");
  if (mode == "up") return E8M0Rounding::Up;
  if (mode == "down") return E8M0Rounding::Down;
  if (mode == "nearest") return E8M0Rounding::Nearest;
  return Diagnostic(ErrorCode::BadAttribute, n.location, "round_mode '" + mode + "' is none of up, down, nearest");
}

OpDef encode_float_record() {
  OpDef def;
  def.name = "encode_float";
  def.summary =
      "codes of x in the type `to`, rounded to even; what exceeds it becomes its largest number where saturate is "
      "1, or 2, as PyTorch's operators on x86 do and those on GPUs do not; else infinity or NaN";
  def.operands = {{"x", TypeSet::Float}};
  def.attributes = {{"to", AttrKind::Type, true},
                    {"saturate", AttrKind::Int, false, int64_t{1}},
                    {"round_mode", AttrKind::String, false, std::string("nearest")}};
  def.meaning =
      Pointwise{[](ScalarDag& d, std::span<const ScalarId> a, const Node& n, const Graph&) -> Result<ScalarId> {
        TESSERA_ASSIGN(DType to, small_float(n, "to"));
        TESSERA_ASSIGN(E8M0Rounding rounding, rounding_of(n));
        return ops::encode_float(d, a[0], to, n.attributes.i("saturate") != 0, rounding);
      }};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    TESSERA_ASSIGN(Tensor y, Tensor::create(DType::U8, x.dims()));
    TESSERA_ASSIGN(E8M0Rounding rounding, rounding_of(c.node));
    const DType to = type_attribute(c.node, "to");
    const bool saturate = c.node.attributes.i("saturate") != 0;
    for (int64_t i = 0; i < x.count(); ++i) {
      double v = x.get_f64(i);
      uint8_t code = 0;
      if (to != DType::F8E8M0)
        code = f64_to_small_float(to, v, saturate);
      else if (v != 0) // ONNX leaves signs out, and has the smallest number where there is no smaller one
        code = std::fabs(v) < 0x1p-127 ? 0 : f64_to_e8m0(std::fabs(v), rounding, saturate);
      y.set_i64(i, code);
    }
    c.results = {y};
    return {};
  };
  def.samples = [] {
    std::vector<Sample> out;
    uint64_t seed = 1;
    auto add = [&](Tensor x, DType to, int64_t saturate, const char* mode) {
      Sample s = sample({std::move(x)}, {{"to", to}, {"saturate", saturate}, {"round_mode", std::string(mode)}});
      s.tolerance = 0;
      out.push_back(std::move(s));
    };
    Tensor edges = floats({26}, {NAN,     INFINITY, -INFINITY, 0.0,     -0.0, 1e30, -1e30,    448,     464,
                                 465,     57344,    61440,     61441,   -480, 240,  248,      0x1p-9,  0x1p-10,
                                 0x3p-11, 0x1p-16,  0x1p-17,   0x3p-18, 6.0,  5.0,  0x3p-128, 0x1p-126});
    for (DType to : kSmallFloats)
      for (int64_t saturate : {1, 0}) {
        add(edges, to, saturate, "up");
        add(random(DType::F32, {40}, seed++, -600, 600), to, saturate, "nearest");
        add(random(DType::F32, {40}, seed++, -2, 2), to, saturate, "down");
        add(random(DType::F64, {40}, seed++, -0.1, 0.1), to, saturate, "up");
        add(random(DType::F16, {3, 7}, seed++, -9, 9), to, saturate, "up");
      }
    return out;
  };
  def.error_samples = [] {
    Tensor x = random(DType::F32, {3});
    return std::vector<ErrorSample>{
        wrong({x}, {{"to", DType::F16}}, ErrorCode::BadAttribute, "8 bits or less"),
        wrong({x}, {{"to", DType::F8E8M0}, {"round_mode", std::string("odd")}}, ErrorCode::BadAttribute, "odd")};
  };
  return def;
}

} // namespace

void register_narrow_ops(OpTable& table) {
  for (OpDef (*make)() :
       {reinterpret_record, unpack_record, pack_record, wrap_bits_record, decode_float_record, encode_float_record})
    table.add(make());
}

} // namespace tessera
