// Products and convolutions of ONNX Runtime: fused with what stands around them, or of quantised weights.
#include "graph/ops/microsoft.h"
#include <numeric>

namespace tessera {

namespace {
using namespace ops;

// ---- FusedMatMul, TransposeMatMul
// Dimension 0 brought behind the other batch dimensions, and the last two exchanged.
ValueId arranged(B& b, ValueId x, bool batch, bool swapped) {
  const int rank = b.rank(x);
  if (!b.ok() || rank < 2) return x;
  Ints perm(static_cast<size_t>(rank));
  std::iota(perm.begin(), perm.end(), 0);
  if (batch) std::rotate(perm.begin(), perm.begin() + 1, perm.end() - 1);
  if (swapped) std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return transpose(b, x, perm);
}

ValueId fused_matmul(B& b) {
  const auto& a = b.attr();
  ValueId y = b.op("MatMul", {arranged(b, b.in(0), a.i("transBatchA") != 0, a.i("transA") != 0),
                              arranged(b, b.in(1), a.i("transBatchB") != 0, a.i("transB") != 0)});
  return a.f("alpha") == 1 ? y : mul(b, y, a.f("alpha"));
}

void add_fused_matmul(OpTable& table, std::string_view name, bool batches) {
  OpDef def = microsoft(name, "alpha * A @ B, either transposed", {{"A", TypeSet::Float}, {"B", TypeSet::SameAsFirst}},
                        formula(fused_matmul));
  def.attributes = {number("alpha", 1), integer("transA", 0), integer("transB", 0)};
  if (batches) def.attributes.insert(def.attributes.end(), {integer("transBatchA", 0), integer("transBatchB", 0)});
  def.samples = [batches] {
    const int64_t one = 1;
    auto r = [](Dims d, uint64_t seed) { return random(DType::F32, std::move(d), seed); };
    std::vector<Sample> out = {sample({r({2, 3, 4}, 1), r({2, 5, 4}, 2)}, {{"transB", one}, {"alpha", 0.5}}),
                               sample({r({4, 3}, 1), r({4, 5}, 2)}, {{"transA", one}}),
                               sample({r({3, 4}, 1), r({4}, 2)})};
    if (batches) out.push_back(sample({r({3, 2, 4}, 1), r({2, 4, 5}, 2)}, {{"transBatchA", one}}));
    return out;
  };
  table.add(std::move(def));
}

// ---- FusedGemm, FusedConv, NhwcConv: the default domain's with an activation, or in another layout
Attributes without(const Attributes& from, std::initializer_list<std::string_view> names) {
  Attributes out = from;
  for (std::string_view name : names) out.erase(name);
  return out;
}

std::vector<ValueId> first(B& b, int count) {
  std::vector<ValueId> out;
  for (int i = 0; i < count; ++i) out.push_back(b.in(i));
  while (!out.empty() && !out.back().valid()) out.pop_back();
  return out;
}

std::vector<AttrDef> conv_attributes() {
  return {{"auto_pad", AttrKind::String},   {"dilations", AttrKind::Ints}, {"group", AttrKind::Int},
          {"kernel_shape", AttrKind::Ints}, {"pads", AttrKind::Ints},      {"strides", AttrKind::Ints}};
}

void add_fused(OpTable& table) {
  OpDef gemm = microsoft(
      "com.microsoft.FusedGemm", "alpha * A @ B + beta * C and an activation",
      {{"A", TypeSet::Float}, {"B", TypeSet::SameAsFirst}, {"C", TypeSet::SameAsFirst, true}}, formula([](B& b) {
        std::vector<double> numbers;
        for (const char* name : {"activation_alpha", "activation_beta", "activation_gamma"})
          if (b.attr().has(name)) numbers.push_back(b.attr().f(name));
        ValueId y = b.op("Gemm", first(b, 3),
                         without(b.attr(), {"activation", "activation_alpha", "activation_beta", "activation_gamma"}));
        return activate(b, y, b.attr().s("activation"), numbers);
      }));
  gemm.attributes = {{"activation", AttrKind::String},
                     {"activation_alpha", AttrKind::Float},
                     {"activation_beta", AttrKind::Float},
                     {"activation_gamma", AttrKind::Float},
                     number("alpha", 1),
                     number("beta", 1),
                     integer("transA", 0),
                     integer("transB", 0)};
  gemm.samples = [] {
    auto r = [](Dims d, uint64_t seed) { return random(DType::F32, std::move(d), seed); };
    return std::vector<Sample>{
        sample({r({3, 4}, 1), r({4, 5}, 2), r({5}, 3)}, {{"activation", std::string("Relu")}, {"beta", 0.5}}),
        sample({r({3, 4}, 1), r({5, 4}, 2)},
               {{"activation", std::string("LeakyRelu")}, {"activation_alpha", 0.1}, {"transB", int64_t{1}}})};
  };
  gemm.error_samples = [] {
    Tensor x = random(DType::F32, {3, 3});
    return std::vector<ErrorSample>{
        wrong({x, x}, {{"activation", std::string("Frob")}}, ErrorCode::UnsupportedFeature, "activation 'Frob'")};
  };
  table.add(std::move(gemm));

  OpDef conv =
      microsoft("com.microsoft.FusedConv", "convolution, plus a tensor, and an activation",
                {{"X", TypeSet::Float},
                 {"W", TypeSet::SameAsFirst},
                 {"B", TypeSet::SameAsFirst, true},
                 {"Z", TypeSet::SameAsFirst, true}},
                formula([](B& b) {
                  const auto* numbers = b.attr().get<std::vector<double>>("activation_params");
                  ValueId y = b.op("Conv", first(b, 3), without(b.attr(), {"activation", "activation_params"}));
                  if (b.has(3)) y = add(b, y, b.in(3));
                  return activate(b, y, b.attr().s("activation"), numbers ? *numbers : std::vector<double>{});
                }));
  conv.attributes = conv_attributes();
  conv.attributes.insert(conv.attributes.end(),
                         {{"activation", AttrKind::String}, {"activation_params", AttrKind::Floats}});
  conv.samples = [] {
    auto r = [](Dims d, uint64_t seed) { return random(DType::F32, std::move(d), seed); };
    Tensor x = r({1, 2, 5, 5}, 1), w = r({3, 2, 3, 3}, 2), z = r({1, 3, 3, 3}, 4);
    return std::vector<Sample>{
        sample({x, w, r({3}, 3), z}, {{"activation", std::string("Relu")}}),
        sample({x, w}, {{"activation", std::string("Clip")}, {"activation_params", std::vector<double>{-1, 1}}}),
        sample({x, w},
               {{"activation", std::string("HardSigmoid")}, {"activation_params", std::vector<double>{0.1, 0.5}}})};
  };
  table.add(std::move(conv));

  // Channels last; weights [filters, height, width, channels].
  OpDef nhwc =
      microsoft("com.microsoft.NhwcConv", "convolution with the channels last",
                {{"X", TypeSet::Float}, {"W", TypeSet::SameAsFirst}, {"B", TypeSet::SameAsFirst, true}},
                formula([](B& b) -> ValueId {
                  const int rank = b.rank(b.in(0));
                  if (rank < 3 || b.rank(b.in(1)) != rank)
                    b.fail(ErrorCode::ShapeMismatch, "x and weights of one rank are needed, not " +
                                                         b.type(b.in(0)).str() + " and " + b.type(b.in(1)).str());
                  if (!b.ok()) return {};
                  Ints to_first = {0, rank - 1}, to_last = {0};
                  for (int64_t a = 1; a < rank - 1; ++a) to_first.push_back(a);
                  for (int64_t a = 2; a < rank; ++a) to_last.push_back(a);
                  to_last.push_back(1);
                  std::vector<ValueId> operands = {transpose(b, b.in(0), to_first), transpose(b, b.in(1), to_first)};
                  if (b.has(2)) operands.push_back(b.in(2));
                  return transpose(b, b.op("Conv", operands, b.attr()), to_last);
                }));
  nhwc.attributes = conv_attributes();
  nhwc.samples = [] {
    auto r = [](Dims d, uint64_t seed) { return random(DType::F32, std::move(d), seed); };
    return std::vector<Sample>{
        sample({r({1, 5, 5, 2}, 1), r({3, 3, 3, 2}, 2), r({3}, 3)}, {{"pads", Ints{1, 1, 1, 1}}})};
  };
  table.add(std::move(nhwc));
}

// ---- MatMulNBits: the right matrix as codes, B[n, k] = (code - zero) * scale of its block
ValueId matmul_bits(B& b) {
  const int64_t bits = b.attr().i("bits"), block = b.attr().i("block_size"), k = b.attr().i("K"), n = b.attr().i("N");
  if (bits != 2 && bits != 4 && bits != 8)
    b.fail(ErrorCode::UnsupportedFeature, "codes of " + std::to_string(bits) + " bits");
  if (block < 1 || k < 1 || n < 1) b.fail(ErrorCode::BadAttribute, "K, N and block_size are positive");
  if (b.attr().i("weight_prepacked") != 0) b.fail(ErrorCode::UnsupportedFeature, "prepacked weights are not supported");
  if (!b.ok()) return {};
  const int64_t blocks = (k + block - 1) / block, row = blocks * block;
  ValueId codes = cast(b, unpacked(b, reshape(b, b.in(1), {n, row * bits / 8}), bits), DType::F32);
  codes = reshape(b, codes, {n, blocks, block});
  ValueId scale = reshape(b, cast(b, b.in(2), DType::F32), {n, blocks, 1});
  ValueId zero;
  if (!b.has(3)) {
    zero = b.scalar(DType::F32, static_cast<double>(1 << (bits - 1)));
  } else if (is_float(b.dtype(b.in(3)))) {
    zero = reshape(b, cast(b, b.in(3), DType::F32), {n, blocks, 1});
  } else {
    const int64_t bytes = (blocks * bits + 7) / 8;
    zero = slice(b, unpacked(b, reshape(b, b.in(3), {n, bytes}), bits), 1, 0, blocks);
    zero = reshape(b, cast(b, zero, DType::F32), {n, blocks, 1});
  }
  ValueId weight = reshape(b, mul(b, sub(b, codes, zero), scale), {n, row});
  weight = cast(b, slice(b, weight, 1, 0, k), b.dtype(b.in(0)));
  if (b.has(4)) b.fail(ErrorCode::UnsupportedFeature, "g_idx is not supported");
  ValueId y = b.op("MatMul", {b.in(0), transpose(b, weight, {1, 0})});
  return b.has(5) ? add(b, y, b.in(5)) : y;
}

void add_matmul_bits(OpTable& table) {
  OpDef def =
      microsoft("com.microsoft.MatMulNBits", "A @ B^T + bias, B in codes of 2, 4 or 8 bits with scales of blocks",
                {{"A", TypeSet::Float},
                 {"B", TypeSet::Integer},
                 {"scales", TypeSet::Float},
                 {"zero_points", TypeSet::Numeric, true},
                 {"g_idx", TypeSet::Integer, true},
                 {"bias", TypeSet::SameAsFirst, true}},
                formula(matmul_bits));
  def.attributes = {integer("accuracy_level", 0), integer("bits", 4),         {"block_size", AttrKind::Int, true},
                    {"K", AttrKind::Int, true},   {"N", AttrKind::Int, true}, integer("weight_prepacked", 0)};
  def.samples = [] {
    auto bytes = [](Dims d, uint64_t seed) { return random(DType::U8, std::move(d), seed, 0, 255); };
    auto r = [](Dims d, uint64_t seed) { return random(DType::F32, std::move(d), seed, 0.1, 1); };
    Attributes a = {{"K", int64_t{40}}, {"N", int64_t{3}}, {"block_size", int64_t{16}}, {"bits", int64_t{4}}};
    Attributes two = a, eight = a;
    two.set("bits", int64_t{2}), eight.set("bits", int64_t{8});
    return std::vector<Sample>{
        sample({r({2, 5, 40}, 1), bytes({3, 3, 8}, 2), r({9}, 3)}, a),
        sample({r({5, 40}, 1), bytes({3, 3, 8}, 2), r({3, 3}, 3), bytes({3, 2}, 4)}, a),
        sample({r({5, 40}, 1), bytes({3, 3, 4}, 2), r({3, 3}, 3), bytes({3, 1}, 4)}, two),
        sample({r({5, 40}, 1), bytes({3, 3, 16}, 2), r({9}, 3), r({9}, 5), Tensor(), r({3}, 6)}, eight)};
  };
  def.error_samples = [] {
    Tensor x = random(DType::F32, {2, 16}), w = random(DType::U8, {3, 1, 8});
    Attributes a = {{"K", int64_t{16}}, {"N", int64_t{3}}, {"block_size", int64_t{16}}, {"bits", int64_t{5}}};
    return std::vector<ErrorSample>{wrong({x, w, random(DType::F32, {3})}, a, ErrorCode::UnsupportedFeature, "5 bits")};
  };
  table.add(std::move(def));
}

// ---- GatherBlockQuantized: rows of a table in codes; a position outside of it gives zeros
ValueId gather_quantized(B& b) {
  ValueId data = b.in(0);
  const int rank = b.rank(data);
  const int64_t axis = b.axis(b.attr().i("gather_axis"), rank), along = b.axis(b.attr().i("quantize_axis"), rank);
  const int64_t block = b.attr().i("block_size"), bits = b.attr().i("bits");
  const bool bytes = b.dtype(data) == DType::U8; // codes packed in the last dimension
  if (axis == along) b.fail(ErrorCode::UnsupportedFeature, "gather_axis and quantize_axis are the same");
  if (bytes && bits != 8 && along != rank - 1)
    b.fail(ErrorCode::UnsupportedFeature, "packed codes are quantised along the last dimension");
  if (!b.ok()) return {};
  ValueId index = cast(b, b.in(1), DType::I64), size = b.size(b.dim(data, axis), DType::I64),
          nothing = b.scalar_i(DType::I64, 0);
  ValueId inside = logical_and(b, ge(b, index, neg(b, size)), lt(b, index, size));
  ValueId at = select(b, inside, index, nothing);
  auto rows = [&](int operand) { return gather(b, b.in(operand), at, axis); };
  const int64_t more = b.rank(index) - 1; // dimensions that the gathered one became, less it
  const int64_t scaled = along > axis ? along + more : along;
  ValueId codes = rows(0), zeros;
  if (bytes) codes = unpacked(b, codes, bits);
  if (b.has(3)) {
    zeros = rows(3);
    if (bytes) {
      zeros = unpacked(b, zeros, bits);
      if (b.ok()) zeros = slice(b, zeros, scaled, 0, b.dim(rows(2), scaled));
    }
  }
  std::vector<ValueId> operands = {cast(b, codes, DType::F32), rows(2)};
  ValueId zero = zeros.valid() ? cast(b, zeros, DType::F32)
                               : b.scalar(DType::F32, bytes ? static_cast<double>(1 << (bits - 1)) : 0);
  if (!b.ok()) return {};
  // Each scale and zero point stands for a block along the axis.
  SymExpr width = b.dim(codes, scaled);
  auto spread = [&](ValueId v) {
    if (!b.ok() || b.rank(v) == 0) return v;
    SymShape shape = b.shape(v), repeated = shape;
    repeated.insert(repeated.begin() + scaled + 1, SymExpr(block));
    shape[static_cast<size_t>(scaled)] = shape[static_cast<size_t>(scaled)] * block;
    return slice(b, reshape(b, expand(b, unsqueeze(b, v, {scaled + 1}), repeated), shape), scaled, 0, width);
  };
  ValueId y = mul(b, sub(b, operands[0], spread(zero)), spread(cast(b, operands[1], DType::F32)));
  if (!b.ok()) return {};
  SymShape mask(static_cast<size_t>(b.rank(y)), SymExpr(1));
  for (int i = 0; i < b.rank(index); ++i) mask[static_cast<size_t>(axis + i)] = b.dim(index, i);
  return cast(b, select(b, reshape(b, inside, mask), y, 0.0), b.dtype(b.in(2)));
}

void add_gather(OpTable& table) {
  OpDef def = microsoft("com.microsoft.GatherBlockQuantized", "entries of a table in codes with scales of blocks",
                        {{"data", TypeSet::Numeric},
                         {"indices", TypeSet::Index},
                         {"scales", TypeSet::Float},
                         {"zero_points", TypeSet::SameAsFirst, true}},
                        formula(gather_quantized));
  def.attributes = {integer("bits", 4), integer("block_size", 128), integer("gather_axis", 0),
                    integer("quantize_axis", 1)};
  def.samples = [] {
    Tensor at = integers(DType::I64, {2, 2}, {1, 3, -1, 0});
    Attributes a = {{"block_size", int64_t{16}}, {"bits", int64_t{4}}};
    return std::vector<Sample>{sample({random(DType::U8, {4, 16}, 1, 0, 255), at, random(DType::F32, {4, 2}, 2)}, a),
                               sample({random(DType::U8, {4, 16}, 1, 0, 255), at, random(DType::F32, {4, 2}, 2),
                                       random(DType::U8, {4, 1}, 3, 0, 255)},
                                      a),
                               sample({random(DType::U4, {4, 24}, 1, 0, 15), at, random(DType::F32, {4, 2}, 2)}, a)};
  };
  table.add(std::move(def));
}

// ---- products of integers with scales: QGemm, MatMulIntegerToFloat, DynamicQuantizeMatMul
void add_integer(OpTable& table) {
  OpDef to_float = microsoft("com.microsoft.MatMulIntegerToFloat", "product of 8-bit matrices, scaled, plus bias",
                             {{"A", TypeSet::Integer},
                              {"B", TypeSet::Integer},
                              {"a_scale", TypeSet::Float},
                              {"b_scale", TypeSet::Float},
                              {"a_zero_point", TypeSet::Integer, true},
                              {"b_zero_point", TypeSet::Integer, true},
                              {"bias", TypeSet::Float, true}},
                             formula([](B& b) {
                               ValueId y = scaled_product(b, b.in(0), b.in(2), b.in(4), b.in(1), b.in(3), b.in(5));
                               return b.has(6) ? add(b, y, cast(b, b.in(6), DType::F32)) : y;
                             }));
  to_float.samples = [] {
    Tensor a = random(DType::U8, {2, 3, 4}, 1, 0, 255), w = random(DType::I8, {4, 5}, 2, -128, 127),
           s = scalar(DType::F32, 0.01);
    return std::vector<Sample>{sample({a, w, s, s}),
                               sample({a, w, s, random(DType::F32, {5}, 3, 0.01, 0.1), scalar(DType::U8, 100),
                                       random(DType::I8, {5}, 4, -9, 9), random(DType::F32, {5}, 5)})};
  };
  table.add(std::move(to_float));

  OpDef dynamic = microsoft("com.microsoft.DynamicQuantizeMatMul", "A quantised by its range, times 8-bit B, plus bias",
                            {{"A", TypeSet::Float},
                             {"B", TypeSet::Integer},
                             {"b_scale", TypeSet::Float},
                             {"b_zero_point", TypeSet::Integer, true},
                             {"bias", TypeSet::Float, true}},
                            formula([](B& b) {
                              auto a = b.ops("DynamicQuantizeLinear", {b.in(0)}, {}, 3);
                              ValueId y = scaled_product(b, a[0], a[1], a[2], b.in(1), b.in(2), b.in(3));
                              return b.has(4) ? add(b, y, b.in(4)) : y;
                            }));
  dynamic.samples = [] {
    Tensor a = random(DType::F32, {2, 3, 4}, 1), w = random(DType::I8, {4, 5}, 2, -128, 127),
           s = scalar(DType::F32, 0.01);
    return std::vector<Sample>{sample({a, w, s}),
                               sample({a, w, random(DType::F32, {5}, 3, 0.01, 0.1), random(DType::I8, {5}, 4, -9, 9),
                                       random(DType::F32, {5}, 5)})};
  };
  table.add(std::move(dynamic));

  OpDef gemm = microsoft(
      "com.microsoft.QGemm", "alpha * A @ B + C of quantised matrices, in f32 or quantised again",
      {{"A", TypeSet::Integer},
       {"a_scale", TypeSet::Float},
       {"a_zero_point", TypeSet::Integer},
       {"B", TypeSet::Integer},
       {"b_scale", TypeSet::Float},
       {"b_zero_point", TypeSet::Integer},
       {"C", TypeSet::Integer, true},
       {"y_scale", TypeSet::Float, true},
       {"y_zero_point", TypeSet::Integer, true}},
      formula([](B& b) {
        auto turned = [&](int operand, const char* name) {
          return b.attr().i(name) != 0 ? transpose(b, b.in(operand), {1, 0}) : b.in(operand);
        };
        auto flat = [&](ValueId v) { return b.rank(v) == 1 && b.dim(v, 0).is_const(1) ? reshape(b, v, {}) : v; };
        ValueId sum = b.op("MatMulInteger", {turned(0, "transA"), turned(3, "transB"), flat(b.in(2)), flat(b.in(5))});
        if (b.has(6)) sum = add(b, sum, b.in(6));
        ValueId scale = mul(b, mul(b, flat(b.in(1)), flat(b.in(4))), b.attr().f("alpha"));
        ValueId y = mul(b, cast(b, sum, DType::F32), scale);
        return b.has(7) ? quantize(b, y, 7, 8, b.dtype(b.in(0))) : y;
      }));
  gemm.attributes = {number("alpha", 1), integer("transA", 0), integer("transB", 0)};
  gemm.samples = [] {
    Tensor a = random(DType::U8, {3, 4}, 1, 0, 255), w = random(DType::I8, {5, 4}, 2, -128, 127),
           s = scalar(DType::F32, 0.02);
    Tensor c = random(DType::I32, {5}, 3, -100, 100), z = scalar(DType::U8, 120), zw = scalar(DType::I8, 2);
    return std::vector<Sample>{sample({a, s, z, w, s, zw, c}, {{"transB", int64_t{1}}}),
                               sample({a, s, z, w, s, zw, c, scalar(DType::F32, 0.5), z}, {{"transB", int64_t{1}}})};
  };
  table.add(std::move(gemm));
}

} // namespace

void register_microsoft_matmul_ops(OpTable& table) {
  add_fused_matmul(table, "com.microsoft.FusedMatMul", true);
  add_fused_matmul(table, "com.microsoft.TransposeMatMul", false);
  add_fused(table);
  add_matmul_bits(table);
  add_gather(table);
  add_integer(table);
}

} // namespace tessera
