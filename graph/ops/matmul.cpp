// Matrix products: the primitive matmul (batched, two matrices at the end of each operand), the same of numbers that are
// sums of narrower ones, and ONNX's products in terms of matmul: MatMul with its vectors, Gemm, and the integer and
// quantised ones.
#include "graph/ops/grouped.h"
#include "graph/ops/parts.h"
#include "graph/ops/questions.h"
#include <bit>
#include <cmath>

namespace tessera {

DType ops::product_dtype(DType operands, const Node& node) {
  const bool narrow = is_float(operands) && info(operands).bits <= 16;
  return narrow && node.attributes.i("wide", 0) != 0 ? DType::F32 : operands;
}

namespace {
using namespace ops;

// ---- the primitive

Status infer_product(InferContext& c, const SymShape& a, const SymShape& b, DType dtype) {
  if (a.size() < 2 || b.size() < 2)
    return c.error(ErrorCode::ShapeMismatch, "a matrix product takes matrices, not " + str(a) + " and " + str(b));
  TESSERA_TRY(c.env().require_equal(a.back(), b[b.size() - 2], "columns of the first matrix and rows of the second",
                                    c.node.location));
  SymShape lead_a(a.begin(), a.end() - 2), lead_b(b.begin(), b.end() - 2);
  TESSERA_ASSIGN(SymShape out, c.env().broadcast(lead_a, lead_b, c.node.location));
  out.push_back(a[a.size() - 2]);
  out.push_back(b.back());
  return set_result(c, dtype, std::move(out));
}

Status infer_matmul(InferContext& c) {
  const DType a = c.type(0).dtype, b = c.type(1).dtype;
  const bool bytes = is_float(a) && is_float(b) && info(a).bits == 8 && info(b).bits == 8;
  if (a != b && !(bytes && c.node.attributes.i("wide", 0) != 0))
    return c.error(ErrorCode::TypeMismatch, "operand 'b' is " + std::string(name(b)) +
                                                ", expected the dtype of the first operand, " + std::string(name(a)));
  return infer_product(c, c.shape(0), c.shape(1), product_dtype(c.type(0).dtype, c.node));
}

Result<Dims> broadcast_lead(const Dims& a, const Dims& b) {
  Dims out(std::max(a.size(), b.size()), 1);
  for (const Dims* d : {&a, &b})
    for (size_t i = 0; i < d->size(); ++i) {
      int64_t& o = out[out.size() - d->size() + i];
      if ((*d)[i] == o || (*d)[i] == 1) continue;
      if (o != 1) return Diagnostic(ErrorCode::ShapeMismatch, "batches of the two matrices do not broadcast");
      o = (*d)[i];
    }
  return out;
}

template <class V>
Status multiply(ReferenceContext& c, const Tensor& a, const Tensor& b) {
  auto rows_of = [](const Tensor& t) { return t.dims()[t.dims().size() - 2]; };
  Dims lead_a(a.dims().begin(), a.dims().end() - 2), lead_b(b.dims().begin(), b.dims().end() - 2);
  int64_t m = rows_of(a), k = a.dims().back(), n = b.dims().back();
  if (rows_of(b) != k) return c.error(ErrorCode::ShapeMismatch, "inner sizes of the product differ");
  TESSERA_ASSIGN(Dims lead, broadcast_lead(lead_a, lead_b));
  Dims sa = broadcast_strides(lead_a, lead), sb = broadcast_strides(lead_b, lead);
  Dims dims = lead;
  dims.push_back(m);
  dims.push_back(n);
  TESSERA_ASSIGN(Tensor out, Tensor::create(product_dtype(a.dtype(), c.node), dims));
  // Elements are converted once: the products are where the time goes.
  std::vector<V> va(static_cast<size_t>(a.count())), vb(static_cast<size_t>(b.count())), row(static_cast<size_t>(n));
  for (int64_t i = 0; i < a.count(); ++i) va[static_cast<size_t>(i)] = get<V>(a, i);
  for (int64_t i = 0; i < b.count(); ++i) vb[static_cast<size_t>(i)] = get<V>(b, i);
  for (MultiIndex w(lead); !w.done(); w.next()) {
    const V* pa = va.data() + offset(w.at(), sa) * m * k;
    const V* pb = vb.data() + offset(w.at(), sb) * k * n;
    for (int64_t i = 0; i < m; ++i) {
      std::fill(row.begin(), row.end(), V(0));
      for (int64_t p = 0; p < k; ++p)
        for (int64_t j = 0; j < n; ++j) row[static_cast<size_t>(j)] += pa[i * k + p] * pb[p * n + j];
      for (int64_t j = 0; j < n; ++j) set(out, (w.i() * m + i) * n + j, row[static_cast<size_t>(j)]);
    }
  }
  c.results = {out};
  return {};
}

Status reference_matmul(ReferenceContext& c) {
  const Tensor &a = c.operands[0], &b = c.operands[1];
  if (a.dims().size() < 2 || b.dims().size() < 2)
    return c.error(ErrorCode::ShapeMismatch, "a matrix product takes matrices");
  // Unsigned arithmetic wraps, and its low bits are those of the signed product.
  return is_float(a.dtype()) ? multiply<double>(c, a, b) : multiply<uint64_t>(c, a, b);
}

OpDef matmul_record() {
  OpDef def;
  def.name = "matmul";
  def.summary = "product of the matrices in the last two dimensions, the others broadcast";
  def.aten = {"mm", "bmm"};
  def.operands = {{"a", TypeSet::Numeric}, {"b", TypeSet::Numeric}};
  // tf32 1: a device may round f32 operands to TF32. wide 1: the result of f16, bf16 and 8-bit floats is f32, and two
  // types of 8-bit floats may be multiplied.
  def.attributes = {{"tf32", AttrKind::Int, false}, {"wide", AttrKind::Int, false}};
  def.infer = infer_matmul;
  def.meaning = StructuredOp{Structured::Matmul};
  def.reference = reference_matmul;
  def.samples = [] {
    std::vector<Sample> out;
    const std::pair<Dims, Dims> shapes[] = {
        {{3, 4}, {4, 5}},          {{1, 1}, {1, 1}}, {{2, 3, 4}, {4, 5}}, {{2, 3, 4}, {2, 4, 1}}, {{3, 4}, {2, 4, 5}},
        {{2, 1, 3, 4}, {5, 4, 2}}, {{0, 4}, {4, 5}}, {{3, 0}, {0, 5}},    {{17, 33}, {33, 9}},
    };
    uint64_t seed = 1;
    for (DType d : {DType::F32, DType::F64, DType::F16, DType::BF16, DType::I32, DType::I64})
      for (const auto& [a, b] : shapes) {
        Tensor x = random(d, a, seed++), y = random(d, b, seed++);
        out.push_back(sample({x, y}));
        if (d == DType::F16 || d == DType::BF16) out.push_back(sample({x, y}, {{"wide", int64_t{1}}}));
      }
    for (const auto& [left, right] : {std::pair{DType::F8E4M3FN, DType::F8E4M3FN}, {DType::F8E5M2, DType::F8E4M3FN}})
      out.push_back(sample({random(left, {17, 33}, seed++), random(right, {33, 9}, seed++)}, {{"wide", int64_t{1}}}));
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {3, 4}), random(DType::F32, {5, 2})}, {}, ErrorCode::ShapeMismatch, ""),
        wrong({random(DType::F32, {4}), random(DType::F32, {4, 2})}, {}, ErrorCode::ShapeMismatch, "matrices"),
        wrong({random(DType::F32, {3, 4}), random(DType::F64, {4, 2})}, {}, ErrorCode::TypeMismatch, "first operand"),
        wrong({random(DType::F8E5M2, {3, 4}), random(DType::F8E4M3FN, {4, 2})}, {}, ErrorCode::TypeMismatch, "f8e5m2"),
        wrong({random(DType::F32, {2, 3, 4}), random(DType::F32, {3, 4, 2})}, {}, ErrorCode::ShapeMismatch, ""),
    };
  };
  return def;
}

// ---- products of f32 by numbers of 16 bits
//
// x is exactly p0 + p1 + p2 where p0 is x rounded to bf16, p1 what that leaves out, rounded, and p2 the rest: three times
// 8 bits. Each part is less than 2^-7 of the one before. Of infinity and NaN the other parts are 0.
constexpr int64_t kUpperHalf = 0xffff0000; // the bits of a bf16 in an f32

float to_bf16(float x) {
  const float near = bf16_to_f32(f32_to_bf16(x));
  if (!std::isinf(near)) return near;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & static_cast<uint32_t>(kUpperHalf)); // of the largest numbers
}

OpDef float_part_record() {
  OpDef def;
  def.name = "float_part";
  def.summary = "one of three bf16 numbers whose sum is x: the largest, what that leaves out, and the rest";
  def.operands = {{"x", TypeSet::Float}};
  def.attributes = {{"part", AttrKind::Int, true}};
  def.infer = [](InferContext& c) -> Status {
    if (c.type(0).dtype != DType::F32)
      return c.error(ErrorCode::UnsupportedType, "numbers of " + std::string(name(c.type(0).dtype)) + " have no parts");
    const int64_t part = c.node.attributes.i("part");
    if (part < 0 || part >= kFloatParts)
      return c.error(ErrorCode::BadAttribute, "attribute 'part' is " + std::to_string(part) + ", expected 0, 1 or 2");
    return set_result(c, DType::BF16, c.shape(0));
  };
  def.meaning = Pointwise{[](ScalarDag& d, std::span<const ScalarId> a, const Node& n, const Graph&) {
    // By bits: kernels need not round where a value goes on in f32.
    auto bits_of = [&](ScalarId x) { return d.bitcast(x, DType::U32); };
    auto bits = [&](int64_t v) { return d.constant_i(DType::U32, v); };
    auto upper = [&](ScalarId b) { return d.bitcast(d.op(ScalarOp::And, b, bits(kUpperHalf)), DType::F32); };
    auto rounded = [&](ScalarId x) { // to even
      const ScalarId b = bits_of(x), odd = d.op(ScalarOp::And, d.op(ScalarOp::Shr, b, bits(16)), bits(1));
      return upper(d.op(ScalarOp::Add, b, d.op(ScalarOp::Add, odd, bits(0x7fff))));
    };
    const ScalarId x = a[0], near = rounded(x);
    const ScalarId finite =
        d.op(ScalarOp::Lt, d.op(ScalarOp::Abs, x), d.constant_f(DType::F32, std::numeric_limits<float>::infinity()));
    // The largest numbers are cut off instead, infinity is what it is, and a NaN of any bits is one.
    ScalarId part = d.op(ScalarOp::Select, d.op(ScalarOp::IsInf, near), upper(bits_of(x)), near);
    part = d.op(ScalarOp::Select, d.op(ScalarOp::IsNan, x), x, part);
    ScalarId rest = x;
    for (int64_t p = 0; p < n.attributes.i("part"); ++p) {
      rest = d.op(ScalarOp::Sub, rest, part);
      if (p == 0) rest = d.op(ScalarOp::Select, finite, rest, d.constant_f(DType::F32, 0));
      part = rounded(rest);
    }
    return Result<ScalarId>(part);
  }};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    TESSERA_ASSIGN(Tensor y, Tensor::create(DType::BF16, x.dims()));
    for (int64_t i = 0; i < x.count(); ++i) {
      const auto v = static_cast<float>(x.get_f64(i));
      float rest = v, part = to_bf16(v);
      for (int64_t p = 0; p < c.node.attributes.i("part"); ++p) {
        rest = std::isfinite(v) ? rest - part : 0;
        part = to_bf16(rest);
      }
      y.set_f64(i, part);
    }
    c.results = {y};
    return {};
  };
  def.samples = [] {
    std::vector<Sample> out;
    const Tensor edges =
        floats({10}, {0, -0.0, INFINITY, -INFINITY, NAN, 3.4028234e38, -3.4028234e38, 1.0000001, 1e-30, 5});
    for (int64_t part = 0; part < kFloatParts; ++part)
      for (const Tensor& x : {random(DType::F32, {3, 37}, 5), random(DType::F32, {0, 2}), edges})
        out.push_back(sample({x}, {{"part", part}}));
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {2})}, {{"part", int64_t{3}}}, ErrorCode::BadAttribute, "part"),
        wrong({random(DType::F16, {2})}, {{"part", int64_t{0}}}, ErrorCode::UnsupportedType, "f16"),
    };
  };
  return def;
}

Tensor sum_of(std::span<const Tensor> parts) {
  Tensor out = *Tensor::create(DType::F32, parts[0].dims());
  for (int64_t i = 0; i < out.count(); ++i) {
    double sum = 0;
    for (const Tensor& part : parts) sum += part.get_f64(i);
    out.set_f64(i, sum);
  }
  return out;
}

OpDef matmul_of_parts_record() {
  OpDef def;
  def.name = "matmul_of_parts";
  def.summary = "matmul of two f32 tensors, each given by its float_parts: those of the first one, then the other's";
  def.operands = {{"parts", TypeSet::Float, false, true}};
  def.infer = [](InferContext& c) -> Status {
    const size_t count = c.node.operands.size(), half = count / 2;
    if (count == 0 || count % 2 != 0)
      return c.error(ErrorCode::BadAttribute, std::to_string(count) + " operands are not the parts of two matrices");
    for (size_t i = 0; i < count; ++i) {
      const auto operand = static_cast<int>(i);
      const DType dtype = c.type(operand).dtype;
      if (dtype != DType::BF16 && dtype != DType::F32) // a host has bf16 as f32
        return c.error(ErrorCode::UnsupportedType,
                       "part " + std::to_string(i) + " is " + std::string(name(dtype)) + ", expected bf16 or f32");
      if (c.shape(operand) != c.shape(static_cast<int>(i / half * half)))
        return c.error(ErrorCode::ShapeMismatch, "parts of a matrix have shapes " + str(c.shape(operand)) + " and " +
                                                     str(c.shape(static_cast<int>(i / half * half))));
    }
    return infer_product(c, c.shape(0), c.shape(static_cast<int>(half)), DType::F32);
  };
  def.meaning = StructuredOp{Structured::MatmulOfParts};
  def.reference = [](ReferenceContext& c) -> Status {
    const std::span<const Tensor> parts = c.operands;
    return multiply<double>(c, sum_of(parts.first(parts.size() / 2)), sum_of(parts.subspan(parts.size() / 2)));
  };
  def.samples = [] {
    std::vector<Sample> out;
    const std::pair<Dims, Dims> shapes[] = {
        {{3, 4}, {4, 5}}, {{2, 3, 4}, {4, 5}}, {{2, 1, 3, 4}, {5, 4, 2}},
        {{0, 4}, {4, 5}}, {{3, 0}, {0, 5}},    {{17, 33}, {33, 9}},
    };
    uint64_t seed = 1;
    for (int parts : {1, 2, 3})
      for (const auto& [a, b] : shapes) {
        std::vector<Tensor> all;
        for (const Dims& dims : {a, b})
          for (int p = 0; p < parts; ++p)
            all.push_back(random(DType::BF16, dims, seed++, -std::ldexp(1, -8 * p), std::ldexp(1, -8 * p)));
        out.push_back(sample(std::move(all)));
      }
    return out;
  };
  def.error_samples = [] {
    const Tensor a = random(DType::BF16, {3, 4}), b = random(DType::BF16, {4, 3});
    return std::vector<ErrorSample>{
        wrong({a, b, b}, {}, ErrorCode::BadAttribute, "parts"),
        wrong({a, b, b, a}, {}, ErrorCode::ShapeMismatch, "parts"),
        wrong({a, a, a, a}, {}, ErrorCode::ShapeMismatch, ""),
        wrong({random(DType::F16, {3, 4}), random(DType::F16, {4, 3})}, {}, ErrorCode::UnsupportedType, "f16"),
    };
  };
  return def;
}

// ---- MatMul: a vector is a row on the left, a column on the right
ValueId product(B& b, ValueId x, ValueId y) {
  int rx = b.rank(x), ry = b.rank(y);
  if (b.ok() && (rx == 0 || ry == 0)) b.fail(ErrorCode::ShapeMismatch, "a matrix product does not take scalars");
  if (!b.ok()) return {};
  if (rx == 1) x = unsqueeze(b, x, {0});
  if (ry == 1) y = unsqueeze(b, y, {1});
  ValueId z = matmul(b, x, y);
  Ints gone;
  int rank = b.rank(z);
  if (rx == 1) gone.push_back(rank - 2);
  if (ry == 1) gone.push_back(rank - 1);
  return gone.empty() ? z : squeeze(b, z, gone);
}

std::vector<Sample> vector_samples(DType d) {
  return {sample({random(d, {4}, 1), random(d, {4}, 2)}), sample({random(d, {4}, 3), random(d, {4, 5}, 4)}),
          sample({random(d, {2, 3, 4}, 5), random(d, {4}, 6)}), sample({random(d, {4}, 7), random(d, {2, 4, 3}, 8)}),
          sample({random(d, {2, 3, 4}, 9), random(d, {4, 6}, 10)})};
}

OpDef matmul_onnx_record() {
  OpDef def;
  def.name = "MatMul";
  def.summary = "matrix product as numpy's matmul, vectors included";
  def.onnx = {{"MatMul"}};
  def.aten = {"matmul"};
  def.operands = {{"a", TypeSet::Numeric}, {"b", TypeSet::SameAsFirst}};
  def.meaning = Decomposition{[](Graph& g, const Node& n, int) {
    B b(g, n);
    return b.done(product(b, b.in(0), b.in(1)));
  }};
  def.samples = [] { return vector_samples(DType::F32); };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {}), random(DType::F32, {4})}, {}, ErrorCode::ShapeMismatch, "scalars"),
        wrong({random(DType::F32, {3}), random(DType::F32, {4})}, {}, ErrorCode::ShapeMismatch, ""),
    };
  };
  return def;
}

// ---- Gemm
Result<std::vector<ValueId>> decompose_gemm(Graph& g, const Node& n, int) {
  B b(g, n);
  ValueId x = b.in(0), y = b.in(1);
  if (b.rank(x) != 2 || b.rank(y) != 2)
    b.fail(ErrorCode::ShapeMismatch, "Gemm takes matrices, not " + str(b.shape(x)) + " and " + str(b.shape(y)));
  if (!b.ok()) return b.done(ValueId{});
  if (b.attr().i("transA")) x = transpose(b, x, {1, 0});
  if (b.attr().i("transB")) y = transpose(b, y, {1, 0});
  ValueId z = matmul(b, x, y);
  if (double alpha = b.attr().f("alpha", 1); alpha != 1) z = mul(b, z, alpha);
  double beta = b.attr().f("beta", 1);
  if (b.has(2) && beta != 0 && b.ok()) {
    ValueId bias = b.in(2);
    SymShape to = b.shape(z), from = b.shape(bias);
    bool fits = from.size() <= 2;
    for (size_t i = 0; fits && i < from.size(); ++i) {
      auto have = from[from.size() - 1 - i].as_const(), want = to[1 - i].as_const();
      fits = !have || !want || *have == 1 || *have == *want;
    }
    if (!fits)
      b.fail(ErrorCode::ShapeMismatch, "operand C of Gemm, " + str(from) + ", does not broadcast to " + str(to));
    if (beta != 1) bias = mul(b, bias, beta);
    z = add(b, z, bias);
  }
  return b.done(z);
}

Status reference_gemm(ReferenceContext& c) {
  const Tensor &a = c.operands[0], &b = c.operands[1];
  const Attributes& at = c.node.attributes;
  bool ta = at.i("transA") != 0, tb = at.i("transB") != 0;
  int64_t m = a.dims()[ta ? 1 : 0], k = a.dims()[ta ? 0 : 1], n = b.dims()[tb ? 0 : 1];
  TESSERA_ASSIGN(Tensor out, Tensor::create(a.dtype(), {m, n}));
  const Tensor* bias = given(c, 2) ? &c.operands[2] : nullptr;
  Dims sc = bias ? broadcast_strides(bias->dims(), {m, n}) : Dims{0, 0};
  by_kind(a.dtype(), [&](auto zero) {
    using V = decltype(zero);
    if constexpr (!std::is_same_v<V, bool>) {
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          V sum = 0;
          for (int64_t p = 0; p < k; ++p)
            sum += get<V>(a, ta ? p * m + i : i * k + p) * get<V>(b, tb ? j * k + p : p * n + j);
          sum *= static_cast<V>(at.f("alpha", 1));
          if (bias) sum += static_cast<V>(at.f("beta", 1)) * get<V>(*bias, i * sc[0] + j * sc[1]);
          set(out, i * n + j, sum);
        }
    }
  });
  c.results = {out};
  return {};
}

OpDef gemm_record() {
  OpDef def;
  def.name = "Gemm";
  def.summary = "alpha * A @ B + beta * C, either matrix transposed";
  def.onnx = {{"Gemm", "", 7}};
  def.operands = {{"A", TypeSet::Numeric}, {"B", TypeSet::SameAsFirst}, {"C", TypeSet::SameAsFirst, true}};
  def.attributes = {{"alpha", AttrKind::Float, false, 1.0},
                    {"beta", AttrKind::Float, false, 1.0},
                    {"transA", AttrKind::Int, false, int64_t{0}},
                    {"transB", AttrKind::Int, false, int64_t{0}}};
  def.meaning = Decomposition{decompose_gemm};
  def.reference = reference_gemm;
  def.samples = [] {
    auto r = [](Dims d, uint64_t seed) { return random(DType::F32, std::move(d), seed); };
    int64_t one = 1;
    return std::vector<Sample>{
        sample({r({3, 4}, 1), r({4, 5}, 2)}),
        sample({r({3, 4}, 1), r({4, 5}, 2), r({5}, 3)}),
        sample({r({4, 3}, 1), r({5, 4}, 2), r({3, 1}, 3)}, {{"transA", one}, {"transB", one}}),
        sample({r({3, 4}, 1), r({5, 4}, 2), r({}, 3)}, {{"transB", one}, {"alpha", 0.5}, {"beta", 0.25}}),
        sample({random(DType::I32, {3, 4}, 4), random(DType::I32, {4, 2}, 5), random(DType::I32, {1, 2}, 6)}),
        sample({random(DType::F16, {3, 4}, 4), random(DType::F16, {4, 2}, 5), random(DType::F16, {2}, 6)},
               {{"alpha", 2.0}}),
    };
  };
  def.error_samples = [] {
    auto r = [](Dims d) { return random(DType::F32, std::move(d)); };
    return std::vector<ErrorSample>{
        wrong({r({2, 3, 4}), r({4, 5})}, {}, ErrorCode::ShapeMismatch, "matrices"),
        wrong({r({3, 4}), r({4, 5}), r({4})}, {}, ErrorCode::ShapeMismatch, "broadcast"),
    };
  };
  return def;
}

// ---- integer products: zero points leave before the product, which is exact in i32
ValueId centred(B& b, int x, int zero, bool rows) {
  ValueId v = b.in(x);
  if (!b.ok()) return v;
  DType wide = is_float(b.dtype(v)) ? DType::F32 : DType::I32;
  ValueId w = cast(b, v, wide);
  if (!b.has(zero)) return w;
  ValueId z = cast(b, b.in(zero), wide);
  // One zero point per row of the left matrix stands along the last dimension.
  if (rows && b.rank(z) == 1 && b.rank(v) > 1) z = unsqueeze(b, z, {1});
  return sub(b, w, z);
}

OpDef matmul_integer_record() {
  OpDef def;
  def.name = "MatMulInteger";
  def.summary = "product of 8-bit integer matrices in i32, zero points taken off";
  def.onnx = {{"MatMulInteger", "", 10}};
  def.operands = {{"A", TypeSet::Integer},
                  {"B", TypeSet::Integer},
                  {"a_zero_point", TypeSet::SameAsFirst, true},
                  {"b_zero_point", TypeSet::Integer, true}};
  def.meaning = Decomposition{[](Graph& g, const Node& n, int) {
    B b(g, n);
    ValueId x = centred(b, 0, 2, true), y = centred(b, 1, 3, false);
    return b.done(product(b, x, y));
  }};
  def.samples = [] {
    Tensor a = random(DType::U8, {4, 3}, 1, 0, 255), b = random(DType::I8, {3, 2}, 2, -128, 127);
    return std::vector<Sample>{sample({a, b}), sample({a, b, scalar(DType::U8, 12), scalar(DType::I8, -3)}),
                               sample({a, b, random(DType::U8, {4}, 3, 0, 255), random(DType::I8, {2}, 4, -9, 9)})};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::F32, {4, 3}), random(DType::I8, {3, 2})}, {}, ErrorCode::TypeMismatch, "integer")};
  };
  return def;
}

// y = round(sum * (a_scale * b_scale / y_scale)) + y_zero, saturated. Scales stand along rows of a and columns of b.
Result<std::vector<ValueId>> decompose_qlinear(Graph& g, const Node& n, int) {
  B b(g, n);
  ValueId x = centred(b, 0, 2, true), y = centred(b, 3, 5, false);
  ValueId sum = cast(b, product(b, x, y), DType::F32);
  auto scale = [&](int i, bool rows) {
    ValueId s = cast(b, b.in(i), DType::F32);
    return rows && b.ok() && b.rank(s) == 1 && b.rank(sum) > 1 ? unsqueeze(b, s, {1}) : s;
  };
  ValueId factor = div(b, mul(b, scale(1, true), scale(4, false)), scale(6, true));
  ValueId real = mul(b, sum, factor);
  DType to = b.dtype(b.in(7));
  ValueId zero = cast(b, b.in(7), DType::F32);
  if (b.ok() && b.rank(zero) == 1 && b.rank(sum) > 1) zero = unsqueeze(b, zero, {1});
  if (!is_float(to)) real = b.op1("round", real);
  return b.done(cast(b, add(b, real, zero), to));
}

OpDef qlinear_matmul_record() {
  OpDef def;
  def.name = "QLinearMatMul";
  def.summary = "product of quantised matrices, quantised again";
  def.onnx = {{"QLinearMatMul", "", 10}};
  def.operands = {{"a", TypeSet::Numeric},     {"a_scale", TypeSet::Float},       {"a_zero_point", TypeSet::Numeric},
                  {"b", TypeSet::Numeric},     {"b_scale", TypeSet::Float},       {"b_zero_point", TypeSet::Numeric},
                  {"y_scale", TypeSet::Float}, {"y_zero_point", TypeSet::Numeric}};
  def.meaning = Decomposition{decompose_qlinear};
  def.samples = [] {
    Tensor a = random(DType::U8, {3, 4}, 1, 0, 255), b = random(DType::I8, {4, 2}, 2, -128, 127);
    auto f = [](double v) { return scalar(DType::F32, v); };
    return std::vector<Sample>{
        sample({a, f(0.02), scalar(DType::U8, 113), b, f(0.03), scalar(DType::I8, 4), f(0.1), scalar(DType::U8, 118)}),
        sample({a, f(0.02), scalar(DType::U8, 113), b, floats({2}, {0.03, 0.05}), integers(DType::I8, {2}, {4, -4}),
                f(0.1), scalar(DType::I8, 3)}),
    };
  };
  def.error_samples = [] {
    auto f = [](double v) { return scalar(DType::F32, v); };
    return std::vector<ErrorSample>{
        wrong({random(DType::U8, {3, 4}), f(1), scalar(DType::U8, 0), random(DType::U8, {3, 4}), f(1),
               scalar(DType::U8, 0), f(1), scalar(DType::U8, 0)},
              {}, ErrorCode::ShapeMismatch, "")};
  };
  return def;
}

} // namespace

void register_matmul_ops(OpTable& table) {
  table.add(matmul_record());
  table.add(float_part_record());
  table.add(matmul_of_parts_record());
  table.add(matmul_onnx_record());
  table.add(gemm_record());
  table.add(matmul_integer_record());
  table.add(qlinear_matmul_record());
  register_grouped_ops(table);
  register_einsum_ops(table);
  register_attention_ops(table);
  register_linear_attention_ops(table);
}

} // namespace tessera
