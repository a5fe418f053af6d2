// Operators on quantised tensors of ONNX Runtime: dequantised, computed in f32, quantised again, which fuses into one
// kernel.
#include "graph/ops/microsoft.h"

namespace tessera {

namespace {
using namespace ops;

OperandDef number_of(std::string_view name, bool optional = false) { return {name, TypeSet::Float, optional}; }
OperandDef codes(std::string_view name, bool optional = false) { return {name, TypeSet::Integer, optional}; }

// x with scale and zero point, and those of the result: the operands of most.
std::vector<OperandDef> unary_operands(bool zeros_required) {
  return {codes("X"), number_of("X_scale"), codes("X_zero_point", true), number_of("Y_scale"),
          codes("Y_zero_point", !zeros_required)};
}
// Quantizes as quantize() does, but adds the zero point before rounding: an odd zero point rounds ties to the other
// neighbour.
ValueId quantize_shifted(B& b, ValueId y, int scale, int zero, DType to) {
  auto number = [&](int i) {
    ValueId v = cast(b, b.in(i), DType::F32);
    return b.rank(v) == 0 ? v : reshape(b, v, {});
  };
  ValueId v = div(b, y, number(scale));
  if (b.has(zero)) v = add(b, v, number(zero));
  const double low = to == DType::U8 ? 0 : -128;
  return cast(b, min(b, max(b, b.op1("round", v), low), low + 255), to);
}
// compute(x) between dequantised and quantised.
DecomposeFn unary(std::function<ValueId(B&, ValueId)> compute) {
  return formula([compute = std::move(compute)](B& b) {
    return quantize(b, compute(b, dequantize(b, 0, 1, 2)), 3, 4, b.dtype(b.in(0)));
  });
}

Tensor u8(Dims d, uint64_t seed) { return random(DType::U8, std::move(d), seed, 0, 255); }
Tensor f(double v) { return scalar(DType::F32, v); }
Tensor zero(int64_t v) { return scalar(DType::U8, static_cast<double>(v)); }

// f of x, whose channels are last, with them in dimension 1; and back.
ValueId on_channels_last(B& b, ValueId x, const std::function<ValueId(ValueId)>& f) {
  const int rank = b.rank(x);
  if (rank < 3) b.fail(ErrorCode::ShapeMismatch, "images are needed, not " + b.type(x).str());
  if (!b.ok()) return {};
  Ints to_first = {0, rank - 1}, to_last = {0};
  for (int64_t a = 1; a < rank - 1; ++a) to_first.push_back(a);
  for (int64_t a = 2; a < rank; ++a) to_last.push_back(a);
  to_last.push_back(1);
  return transpose(b, f(transpose(b, x, to_first)), to_last);
}

void add_binary(OpTable& table) {
  auto add = [&](std::string_view name, std::string_view summary,
                 std::function<ValueId(B&, ValueId, ValueId)> compute) {
    OpDef def =
        microsoft(name, summary,
                  {codes("A"), number_of("A_scale"), codes("A_zero_point", true), codes("B"), number_of("B_scale"),
                   codes("B_zero_point", true), number_of("C_scale"), codes("C_zero_point", true)},
                  formula([compute = std::move(compute)](B& b) {
                    return quantize_shifted(b, compute(b, dequantize(b, 0, 1, 2), dequantize(b, 3, 4, 5)), 6, 7,
                                            b.dtype(b.in(0)));
                  }));
    def.samples = [] {
      return std::vector<Sample>{
          sample({u8({2, 3, 4}, 1), f(0.02), zero(100), u8({3, 4}, 2), f(0.03), zero(140), f(0.07), zero(120)}),
          sample({u8({5}, 1), f(0.02), Tensor(), u8({1}, 2), f(0.03), Tensor(), f(0.07)})};
    };
    table.add(std::move(def));
  };
  add("com.microsoft.QLinearAdd", "sum of quantised tensors, quantised again",
      [](B& b, ValueId x, ValueId y) { return ops::add(b, x, y); });
  add("com.microsoft.QLinearMul", "product of quantised tensors, quantised again",
      [](B& b, ValueId x, ValueId y) { return mul(b, x, y); });
}

// Scales are powers of two: sums of any order are the same, so that none lands on the other side of a tie.
void add_unary(OpTable& table) {
  auto samples = [](Attributes attributes, Dims dims) {
    return [attributes = std::move(attributes), dims = std::move(dims)] {
      return std::vector<Sample>{sample({u8(dims, 1), f(0.03125), zero(120), f(0.015625), zero(3)}, attributes),
                                 sample({random(DType::I8, dims, 1, -128, 127), f(0.03125), scalar(DType::I8, 5),
                                         f(0.015625), scalar(DType::I8, -3)},
                                        attributes)};
    };
  };
  OpDef logistic = microsoft("com.microsoft.QLinearSigmoid", "sigmoid of a quantised tensor, quantised again",
                             unary_operands(false), unary([](B& b, ValueId x) { return sigmoid(b, x); }));
  logistic.samples = samples({}, {2, 3, 4});
  table.add(std::move(logistic));

  OpDef leaky = microsoft("com.microsoft.QLinearLeakyRelu", "LeakyRelu of a quantised tensor, quantised again",
                          unary_operands(false), unary([](B& b, ValueId x) {
                            return b.op("LeakyRelu", {x}, {{"alpha", b.attr().f("alpha")}});
                          }));
  leaky.attributes = {number("alpha", 0.01)};
  leaky.samples = samples({{"alpha", 0.25}}, {2, 3, 4});
  table.add(std::move(leaky));

  // Over one axis as Softmax since opset 13, or over all dimensions from it on as before.
  OpDef softmax = microsoft("com.microsoft.QLinearSoftmax", "softmax of a quantised tensor, quantised again",
                            unary_operands(true), unary([](B& b, ValueId x) -> ValueId {
                              const bool flattens = b.attr().i("opset") < 13;
                              const int rank = b.rank(x);
                              const int64_t axis = b.axis(b.attr().i("axis", flattens ? 1 : -1), rank);
                              if (!b.ok()) return {};
                              Ints axes;
                              for (int64_t a = axis; a < (flattens ? rank : axis + 1); ++a) axes.push_back(a);
                              ValueId e = exp(b, sub(b, x, reduce(b, "reduce_max", x, axes, true)));
                              return div(b, e, ops::sum(b, e, axes, true));
                            }));
  softmax.attributes = {{"axis", AttrKind::Int}, {"opset", AttrKind::Int, true}};
  softmax.samples = samples({{"opset", int64_t{13}}, {"axis", int64_t{-1}}}, {2, 3, 4});
  table.add(std::move(softmax));

  // ---- pooling: [N, C, ...], or [N, ..., C] with channels_last
  auto pooled = [](B& b, ValueId x, const std::function<ValueId(ValueId)>& pool) {
    return b.attr().i("channels_last") == 0 ? pool(x) : on_channels_last(b, x, pool);
  };
  OpDef global = microsoft("com.microsoft.QLinearGlobalAveragePool", "mean of a quantised image, quantised again",
                           unary_operands(true), unary([pooled](B& b, ValueId x) {
                             return pooled(b, x, [&](ValueId v) { return b.op("GlobalAveragePool", {v}); });
                           }));
  global.attributes = {integer("channels_last", 0)};
  global.samples = samples({}, {2, 3, 4, 5});
  table.add(std::move(global));

  OpDef average = microsoft(
      "com.microsoft.QLinearAveragePool", "means of windows of a quantised image, quantised again",
      unary_operands(false), formula([pooled](B& b) {
        Attributes attributes = b.attr();
        attributes.erase("channels_last");
        ValueId y = pooled(b, dequantize(b, 0, 1, 2), [&](ValueId v) { return b.op("AveragePool", {v}, attributes); });
        return quantize_shifted(b, y, 3, 4, b.dtype(b.in(0)));
      }));
  average.attributes = {
      {"auto_pad", AttrKind::String},       {"ceil_mode", AttrKind::Int},           integer("channels_last", 0),
      {"count_include_pad", AttrKind::Int}, {"kernel_shape", AttrKind::Ints, true}, {"pads", AttrKind::Ints},
      {"strides", AttrKind::Ints}};
  average.samples =
      samples({{"kernel_shape", Ints{2, 2}}, {"channels_last", int64_t{1}}, {"pads", Ints{1, 0, 0, 0}}}, {2, 4, 5, 3});
  table.add(std::move(average));
}

void add_concat(OpTable& table) {
  OpDef def = microsoft("com.microsoft.QLinearConcat", "quantised tensors one after another, with one scale",
                        {number_of("Y_scale"), codes("Y_zero_point"), {"inputs", TypeSet::Numeric, false, true}},
                        formula([](B& b) -> ValueId {
                          if (b.operands() < 5 || (b.operands() - 2) % 3 != 0)
                            b.fail(ErrorCode::MalformedModel, "each tensor comes with its scale and its zero point");
                          if (!b.ok()) return {};
                          std::vector<ValueId> parts;
                          for (int i = 2; i < b.operands(); i += 3) parts.push_back(dequantize(b, i, i + 1, i + 2));
                          int64_t axis = b.axis(b.attr().i("axis"), b.rank(parts[0]));
                          return b.op("QuantizeLinear", {concat(b, parts, axis), b.in(0), b.in(1)});
                        }));
  def.attributes = {{"axis", AttrKind::Int, true}};
  def.samples = [] {
    return std::vector<Sample>{
        sample({f(0.05), zero(100), u8({2, 3}, 1), f(0.02), zero(90), u8({2, 4}, 2), f(0.03), zero(110)},
               {{"axis", int64_t{1}}})};
  };
  table.add(std::move(def));

  OpDef where = microsoft("com.microsoft.QLinearWhere", "elements of one of two quantised tensors, quantised again",
                          {{"condition", TypeSet::Bool},
                           codes("X"),
                           number_of("x_scale"),
                           codes("x_zero_point"),
                           codes("Y"),
                           number_of("y_scale"),
                           codes("y_zero_point"),
                           number_of("z_scale"),
                           codes("z_zero_point")},
                          formula([](B& b) {
                            ValueId z = select(b, b.in(0), dequantize(b, 1, 2, 3), dequantize(b, 4, 5, 6));
                            return quantize(b, z, 7, 8, b.dtype(b.in(1)));
                          }));
  where.samples = [] {
    return std::vector<Sample>{sample({random(DType::Bool, {2, 3}, 1), u8({2, 3}, 2), f(0.02), zero(90), u8({3}, 3),
                                       f(0.03), zero(110), f(0.05), zero(100)})};
  };
  table.add(std::move(where));
}

void add_images(OpTable& table) {
  const std::vector<AttrDef> window = {{"auto_pad", AttrKind::String},
                                       {"dilations", AttrKind::Ints},
                                       {"kernel_shape", AttrKind::Ints},
                                       {"pads", AttrKind::Ints},
                                       {"strides", AttrKind::Ints}};
  OpDef conv = microsoft("com.microsoft.QLinearConv", "convolution of a quantised image, quantised again",
                         {codes("x"), number_of("x_scale"), codes("x_zero_point"), codes("w"), number_of("w_scale"),
                          codes("w_zero_point"), number_of("y_scale"), codes("y_zero_point"), codes("B", true)},
                         formula([](B& b) -> ValueId {
                           Attributes attributes = b.attr();
                           attributes.erase("channels_last");
                           auto convolved = [&](ValueId x) {
                             std::vector<ValueId> operands = b.node().operands;
                             operands[0] = x;
                             return b.op("QLinearConv", operands, attributes);
                           };
                           if (b.attr().i("channels_last") == 0) return convolved(b.in(0));
                           return on_channels_last(b, b.in(0), convolved);
                         }));
  conv.attributes = window;
  conv.attributes.insert(conv.attributes.end(), {integer("channels_last", 0), {"group", AttrKind::Int}});
  conv.samples = [] {
    Tensor w = random(DType::I8, {4, 3, 3, 3}, 2, -128, 127), zw = scalar(DType::I8, 0);
    return std::vector<Sample>{sample({u8({1, 3, 6, 5}, 1), f(0.02), zero(120), w, f(0.01), zw, f(0.2), zero(128)}),
                               sample({u8({1, 6, 5, 3}, 1), f(0.02), zero(120), w, f(0.01), zw, f(0.2), zero(128),
                                       random(DType::I32, {4}, 3, -99, 99)},
                                      {{"channels_last", int64_t{1}}, {"pads", Ints{1, 1, 1, 1}}})};
  };
  table.add(std::move(conv));

  OpDef pool =
      microsoft("com.microsoft.NhwcMaxPool", "greatest elements of windows of an image with the channels last",
                {codes("x")}, formula([](B& b) {
                  return on_channels_last(b, b.in(0), [&](ValueId x) { return b.op("MaxPool", {x}, b.attr()); });
                }));
  pool.attributes = window;
  pool.attributes.push_back({"ceil_mode", AttrKind::Int});
  pool.samples = [] {
    return std::vector<Sample>{sample({u8({1, 6, 5, 3}, 1)}, {{"kernel_shape", Ints{2, 3}}, {"strides", Ints{2, 1}}})};
  };
  table.add(std::move(pool));
}

} // namespace

void register_microsoft_quant_ops(OpTable& table) {
  add_images(table);
  add_binary(table);
  add_unary(table);
  add_concat(table);
}

} // namespace tessera
