// Quantisation: between real numbers and small integers or floats with scales, per tensor, per axis or per block.
#include "graph/ops/parts.h"
#include <cmath>

namespace tessera {

namespace {
using namespace ops;

bool is_quantized(DType d) { return is_integer(d) || (is_float(d) && info(d).bits <= 8); }

// A scale or zero point brought to where it broadcasts against x: a scalar, a vector along `axis`, or blocks of it.
ValueId spread(B& b, ValueId v, ValueId x, const char* what) {
  if (!b.ok()) return {};
  SymShape shape = b.shape(v), full = b.shape(x);
  int64_t block = b.attr().i("block_size");
  if (shape.empty()) return v;
  if (block == 0 && shape.size() == 1 && shape[0].is_const(1) && full.size() != 1) return reshape(b, v, {});
  // A vector on a vector is per tensor when it holds one element.
  int64_t axis = b.attr().i("axis", 1);
  if (block == 0 && shape.size() == 1 && full.size() <= 1) axis = 0;
  axis = b.axis(axis, static_cast<int>(full.size()));
  if (!b.ok()) return {};
  auto a = static_cast<size_t>(axis);
  if (block == 0) {
    if (shape.size() != 1)
      return b.fail(ErrorCode::ShapeMismatch, std::string(what) + " must be a scalar or a vector, not " + str(shape)),
             ValueId{};
    if (!shape[0].is_const(1))
      b.check(b.env().require_equal(shape[0], full[a], std::string(what) + " and its axis", b.node().location));
    SymShape dims(full.size(), SymExpr(1));
    dims[a] = shape[0];
    return reshape(b, v, dims);
  }
  if (block < 0 || block > (int64_t{1} << 40))
    return b.fail(ErrorCode::BadAttribute, "attribute 'block_size' is " + std::to_string(block)), ValueId{};
  if (shape.size() != full.size())
    return b.fail(ErrorCode::ShapeMismatch,
                  std::string(what) + " of blocks must have the rank of the input, not " + str(shape)),
           ValueId{};
  b.check(b.env().require_equal(shape[a], ceildiv(full[a], block), std::string("blocks along the axis of ") + what,
                                b.node().location));
  // Each element of it stands block_size times in a row; a last block may be shorter.
  SymShape repeated = shape;
  repeated.insert(repeated.begin() + axis + 1, SymExpr(block));
  SymShape joined = shape;
  joined[a] = shape[a] * block;
  ValueId r = reshape(b, expand(b, unsqueeze(b, v, {axis + 1}), repeated), joined);
  return slice(b, r, axis, 0, full[a]);
}

ValueId to_quantized(B& b, ValueId real, DType to) {
  if (!is_float(to)) return cast(b, real, to);
  if (b.attr().i("saturate", 1) != 0) return cast(b, real, to);
  return b.op("cast_special", {real}, {{"to", to}, {"saturate", int64_t{0}}});
}

Result<std::vector<ValueId>> decompose_quantize(Graph& g, const Node& n, int) {
  B b(g, n);
  ValueId x = b.in(0);
  DType fallback = b.has(2) ? b.dtype(b.in(2)) : DType::U8;
  TESSERA_ASSIGN(DType to, dtype_attribute(n, "output_dtype", fallback));
  if (b.has(2) && to != b.dtype(b.in(2)))
    b.fail(ErrorCode::TypeMismatch, "attribute 'output_dtype' and the zero point's type differ");
  if (!is_quantized(to)) b.fail(ErrorCode::UnsupportedType, "quantisation to " + std::string(name(to)));
  // Arithmetic is in the requested precision, else in f32.
  TESSERA_ASSIGN(DType precision, dtype_attribute(n, "precision", DType::F32));
  DType compute = precision == DType::F64 ? DType::F64 : DType::F32;
  ValueId real = cast(b, x, compute);
  ValueId scale = spread(b, cast(b, b.in(1), compute), x, "the scale");
  ValueId q = div(b, real, scale);
  if (precision != compute) q = cast(b, cast(b, q, precision), compute);
  if (!is_float(to)) q = b.op1("round", q);
  if (b.has(2)) q = add(b, q, spread(b, cast(b, b.in(2), compute), x, "the zero point"));
  return b.done(to_quantized(b, q, to));
}

std::vector<AttrDef> quantize_attributes() {
  return {{"axis", AttrKind::Int, false, int64_t{1}},
          {"block_size", AttrKind::Int, false, int64_t{0}},
          {"output_dtype", AttrKind::Int, false, int64_t{0}}};
}

OpDef quantize_record() {
  OpDef def;
  def.name = "QuantizeLinear";
  def.summary = "x / scale + zero point, rounded to even and saturated";
  def.onnx = {{"QuantizeLinear", "", 10}};
  def.operands = {{"x", TypeSet::Numeric}, {"y_scale", TypeSet::Float}, {"y_zero_point", TypeSet::Numeric, true}};
  def.attributes = quantize_attributes();
  def.attributes.push_back({"precision", AttrKind::Int, false, int64_t{0}});
  def.attributes.push_back({"saturate", AttrKind::Int, false, int64_t{1}});
  def.meaning = Decomposition{decompose_quantize};
  def.samples = [] {
    Tensor x = random(DType::F32, {2, 6, 3}, 1, -9, 9);
    std::vector<Sample> out = {
        sample({x, scalar(DType::F32, 0.1)}),
        sample({x, scalar(DType::F32, 0.05), scalar(DType::I8, -3)}),
        sample({x, random(DType::F32, {6}, 2, 0.02, 0.2), random(DType::U8, {6}, 3, 0, 255)}),
        sample({x, random(DType::F32, {3}, 2, 0.02, 0.2), random(DType::I16, {3}, 3, -5, 5)}, {{"axis", int64_t{-1}}}),
        sample({x, random(DType::F32, {2, 3, 3}, 2, 0.02, 0.2)},
               {{"block_size", int64_t{2}}, {"output_dtype", int64_t{info(DType::I8).onnx}}}),
        sample({x, random(DType::F32, {2, 2, 3}, 2, 0.02, 0.2)}, {{"block_size", int64_t{4}}}),
        sample({x, scalar(DType::F32, 1.5), scalar(DType::I4, 1)}),
        sample({random(DType::F16, {4}, 5), scalar(DType::F16, 0.125), scalar(DType::U8, 7)}),
    };
    return out;
  };
  def.error_samples = [] {
    Tensor x = random(DType::F32, {2, 6, 3});
    return std::vector<ErrorSample>{
        wrong({x, random(DType::F32, {5}, 1, 1, 2)}, {}, ErrorCode::ShapeMismatch, ""),
        wrong({x, random(DType::F32, {6}, 1, 1, 2)}, {{"axis", int64_t{3}}}, ErrorCode::BadAttribute, "axis"),
        wrong({x, scalar(DType::F32, 1)}, {{"output_dtype", int64_t{9999}}}, ErrorCode::BadAttribute, "output_dtype"),
        wrong({x, random(DType::F32, {2, 6, 3})}, {}, ErrorCode::ShapeMismatch, "vector"),
    };
  };
  return def;
}

Result<std::vector<ValueId>> decompose_dequantize(Graph& g, const Node& n, int) {
  B b(g, n);
  ValueId x = b.in(0);
  DType from = b.dtype(x);
  if (!is_quantized(from))
    b.fail(ErrorCode::TypeMismatch, "operand 'x' of DequantizeLinear is " + std::string(name(from)));
  DType fallback = b.dtype(b.in(1));
  if (is_float(fallback) && info(fallback).bits <= 8) fallback = DType::F32;
  TESSERA_ASSIGN(DType to, dtype_attribute(n, "output_dtype", fallback));
  if (!is_float(to)) b.fail(ErrorCode::BadAttribute, "attribute 'output_dtype' must be a floating-point type");
  // Differences of 8- and 16-bit integers are exact in i32; f32 is exact for what small floats can be.
  DType wide = is_float(from) ? DType::F32 : DType::I32;
  ValueId v = cast(b, x, wide);
  if (b.has(2)) v = sub(b, v, spread(b, cast(b, b.in(2), wide), x, "the zero point"));
  ValueId scale = spread(b, cast(b, b.in(1), DType::F32), x, "the scale");
  return b.done(cast(b, mul(b, cast(b, v, DType::F32), scale), to));
}

OpDef dequantize_record() {
  OpDef def;
  def.name = "DequantizeLinear";
  def.summary = "(x - zero point) * scale";
  def.onnx = {{"DequantizeLinear", "", 10}};
  def.operands = {{"x", TypeSet::Numeric}, {"x_scale", TypeSet::Float}, {"x_zero_point", TypeSet::SameAsFirst, true}};
  def.attributes = quantize_attributes();
  def.meaning = Decomposition{decompose_dequantize};
  def.samples = [] {
    Tensor x = random(DType::I8, {2, 6, 3}, 1, -128, 127);
    return std::vector<Sample>{
        sample({x, scalar(DType::F32, 0.1)}),
        sample({x, scalar(DType::F32, 0.1), scalar(DType::I8, 5)}),
        sample({x, random(DType::F32, {6}, 2, 0.02, 0.2), random(DType::I8, {6}, 3, -9, 9)}),
        sample({x, random(DType::F16, {2, 6, 1}, 2, 0.02, 0.2)}, {{"axis", int64_t{2}}, {"block_size", int64_t{3}}}),
        sample({random(DType::F8E4M3FN, {3, 4}, 2), scalar(DType::F32, 2)}),
        sample({random(DType::U4, {3, 4}, 2, 0, 15), scalar(DType::F32, 2), scalar(DType::U4, 8)}),
        sample({random(DType::I32, {3, 4}, 2, -1000, 1000), scalar(DType::F32, 0.25)}),
    };
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::I8, {2, 6}), random(DType::F32, {5})}, {}, ErrorCode::ShapeMismatch, ""),
        wrong({random(DType::F32, {2, 6}), scalar(DType::F32, 1)}, {}, ErrorCode::TypeMismatch, "f32"),
        wrong({random(DType::I8, {2, 6}), random(DType::F32, {2, 2})}, {{"block_size", int64_t{2}}},
              ErrorCode::ShapeMismatch, ""),
    };
  };
  return def;
}

Result<std::vector<ValueId>> decompose_dynamic(Graph& g, const Node& n, int) {
  B b(g, n);
  ValueId x = b.in(0);
  Ints axes;
  for (int i = 0; i < b.rank(x); ++i) axes.push_back(i);
  // The range always holds 0, so that 0 has an exact code.
  ValueId high = max(b, reduce(b, "reduce_max", x, axes, false), 0.0),
          low = min(b, reduce(b, "reduce_min", x, axes, false), 0.0);
  ValueId scale = div(b, sub(b, high, low), 255.0);
  ValueId safe = select(b, eq(b, scale, 0.0), 1.0, scale); // all zero: any scale will do, and 0 / 0 would not
  ValueId zero = b.op1("round", min(b, max(b, div(b, neg(b, low), safe), 0.0), 255.0));
  ValueId y = cast(b, add(b, b.op1("round", div(b, x, safe)), zero), DType::U8);
  return b.done({y, safe, cast(b, zero, DType::U8)});
}

OpDef dynamic_record() {
  OpDef def;
  def.name = "DynamicQuantizeLinear";
  def.summary = "x in u8 with scale and zero point chosen from its range";
  def.onnx = {{"DynamicQuantizeLinear", "", 11}};
  def.operands = {{"x", TypeSet::Float}};
  def.max_results = 3;
  def.meaning = Decomposition{decompose_dynamic};
  def.samples = [] {
    std::vector<Sample> out = {sample({random(DType::F32, {3, 4}, 1)}), sample({random(DType::F32, {7}, 2, 1, 3)}),
                               sample({random(DType::F32, {2, 2, 2}, 3, -5, -1)}),
                               sample({filled(DType::F32, {4}, 0)})};
    for (Sample& s : out) s.result_count = 3;
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{wrong({random(DType::I32, {3})}, {}, ErrorCode::TypeMismatch, "floating")};
  };
  return def;
}

} // namespace

void register_quant_ops(OpTable& table) {
  table.add(quantize_record());
  table.add(dequantize_record());
  table.add(dynamic_record());
}

} // namespace tessera
