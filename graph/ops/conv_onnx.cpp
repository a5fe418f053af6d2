// ONNX's convolutions in terms of conv and conv_transpose: padding decided, kernels checked, bias added, integers
// centred.
#include "graph/ops/parts.h"

namespace tessera {

namespace {
using namespace ops;

const std::vector<AttrDef>& onnx_attributes() {
  static const std::vector<AttrDef> attributes = {{"auto_pad", AttrKind::String, false, std::string("NOTSET")},
                                                  {"dilations", AttrKind::Ints},
                                                  {"group", AttrKind::Int, false, int64_t{1}},
                                                  {"kernel_shape", AttrKind::Ints},
                                                  {"pads", AttrKind::Ints},
                                                  {"strides", AttrKind::Ints}};
  return attributes;
}

bool check_ranks(B& b, ValueId x, ValueId w) {
  if (b.ok() && (b.rank(x) < 3 || b.rank(w) != b.rank(x)))
    b.fail(ErrorCode::ShapeMismatch,
           "a convolution takes an input [N, C, spatial...] and a weight of the same rank, not " + str(b.shape(x)) +
               " and " + str(b.shape(w)));
  return b.ok();
}

// The product part of a convolution as the node's attributes require; x and w are already what is to be multiplied.
ValueId convolution(B& b, ValueId x, ValueId w) {
  if (!check_ranks(b, x, w)) return {};
  SymShape xs = b.shape(x), ws = b.shape(w);
  b.check(check_kernel_shape(b, ws));
  auto window = onnx_window(b.node(), b.rank(x) - 2);
  if (!window.ok()) return b.fail(std::move(window).take_error()), ValueId{};
  SymShape begin, end;
  b.check(apply_auto_pad(b.node(), std::span(xs).subspan(2), std::span(ws).subspan(2), *window, begin, end));
  if (!b.ok()) return {};
  begin.insert(begin.begin(), 2, SymExpr(0));
  end.insert(end.begin(), 2, SymExpr(0));
  Attributes a = window_attributes(*window);
  a.set("groups", b.attr().i("group", 1));
  return b.op("conv", {pad(b, x, begin, end), w}, std::move(a));
}

// A per-channel vector along dimension 1 of a value of this rank.
ValueId along_channels(B& b, ValueId v, int rank) {
  if (!b.ok() || b.rank(v) != 1) return v;
  SymShape dims(static_cast<size_t>(rank), SymExpr(1));
  dims[1] = b.dim(v, 0);
  return reshape(b, v, dims);
}

ValueId add_bias(B& b, ValueId y, ValueId bias) {
  if (!b.ok()) return {};
  if (b.rank(bias) != 1)
    return b.fail(ErrorCode::ShapeMismatch, "the bias of a convolution is a vector, not " + str(b.shape(bias))),
           ValueId{};
  b.check(b.env().require_equal(b.dim(bias, 0), b.dim(y, 1), "bias and channels of the result", b.node().location));
  return add(b, y, along_channels(b, bias, b.rank(y)));
}

OpDef conv_onnx_record() {
  OpDef def;
  def.name = "Conv";
  def.summary = "convolution with bias and padding as ONNX says it";
  def.onnx = {{"Conv"}};
  def.operands = {{"X", TypeSet::Float}, {"W", TypeSet::SameAsFirst}, {"B", TypeSet::SameAsFirst, true}};
  def.attributes = onnx_attributes();
  def.meaning = Decomposition{[](Graph& g, const Node& n, int) {
    B b(g, n);
    ValueId y = convolution(b, b.in(0), b.in(1));
    return b.done(b.has(2) ? add_bias(b, y, b.in(2)) : y);
  }};
  def.samples = [] {
    auto r = [](Dims d, uint64_t seed) { return random(DType::F32, std::move(d), seed); };
    return std::vector<Sample>{
        sample({r({1, 2, 5, 5}, 1), r({3, 2, 3, 3}, 2), r({3}, 3)}, {{"pads", Ints{1, 1, 1, 1}}}),
        sample({r({1, 2, 5, 6}, 1), r({3, 2, 3, 3}, 2)},
               {{"auto_pad", std::string("SAME_UPPER")}, {"strides", Ints{2, 2}}}),
        sample({r({1, 2, 5, 6}, 1), r({3, 2, 2, 2}, 2)}, {{"auto_pad", std::string("SAME_LOWER")}}),
        sample({r({1, 2, 5, 6}, 1), r({3, 2, 3, 3}, 2)},
               {{"auto_pad", std::string("VALID")}, {"kernel_shape", Ints{3, 3}}}),
        sample({r({2, 2, 9}, 1), r({4, 1, 3}, 2), r({4}, 3)}, {{"group", int64_t{2}}, {"dilations", Ints{2}}}),
    };
  };
  def.error_samples = [] {
    auto r = [](Dims d) { return random(DType::F32, std::move(d)); };
    return std::vector<ErrorSample>{
        wrong({r({1, 2, 5, 5}), r({3, 2, 3, 3}), r({2})}, {}, ErrorCode::ShapeMismatch, ""),
        wrong({r({1, 2, 5, 5}), r({3, 2, 3, 3})}, {{"kernel_shape", Ints{2, 3}}}, ErrorCode::ShapeMismatch, ""),
        wrong({r({1, 2, 5, 5}), r({3, 2, 3, 3})}, {{"pads", Ints{1, 1}}}, ErrorCode::BadAttribute, "pads"),
        wrong({r({1, 2, 5, 5}), r({3, 2, 3, 3})}, {{"auto_pad", std::string("SAME")}}, ErrorCode::BadAttribute,
              "auto_pad"),
        wrong({r({1, 2}), r({3, 2})}, {}, ErrorCode::ShapeMismatch, "spatial"),
    };
  };
  return def;
}

// Both operands in i32 less their zero points (the weight's may be one per filter).
ValueId integer_convolution(B& b, int x, int xz, int w, int wz) {
  ValueId vx = cast(b, b.in(x), DType::I32), vw = cast(b, b.in(w), DType::I32);
  if (!check_ranks(b, vx, vw)) return {};
  if (b.has(xz)) vx = sub(b, vx, cast(b, b.in(xz), DType::I32));
  if (b.has(wz)) {
    ValueId zero = cast(b, b.in(wz), DType::I32);
    if (b.ok() && b.rank(zero) == 1) {
      SymShape dims(static_cast<size_t>(b.rank(vw)), SymExpr(1));
      dims[0] = b.dim(zero, 0);
      zero = reshape(b, zero, dims);
    }
    vw = sub(b, vw, zero);
  }
  return convolution(b, vx, vw);
}

OpDef conv_integer_record() {
  OpDef def;
  def.name = "ConvInteger";
  def.summary = "convolution of 8-bit integers in i32, zero points taken off";
  def.onnx = {{"ConvInteger", "", 10}};
  def.operands = {{"x", TypeSet::Integer},
                  {"w", TypeSet::Integer},
                  {"x_zero_point", TypeSet::SameAsFirst, true},
                  {"w_zero_point", TypeSet::Integer, true}};
  def.attributes = onnx_attributes();
  def.meaning = Decomposition{[](Graph& g, const Node& n, int) {
    B b(g, n);
    return b.done(integer_convolution(b, 0, 2, 1, 3));
  }};
  def.samples = [] {
    Tensor x = random(DType::U8, {1, 2, 4, 4}, 1, 0, 255), w = random(DType::U8, {2, 2, 2, 2}, 2, 0, 255);
    return std::vector<Sample>{sample({x, w}), sample({x, w, scalar(DType::U8, 7)}, {{"pads", Ints{1, 1, 1, 1}}}),
                               sample({x, w, scalar(DType::U8, 7), integers(DType::U8, {2}, {3, 9})})};
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{
        wrong({random(DType::U8, {1, 2, 4, 4}), random(DType::U8, {2, 1, 2, 2})}, {}, ErrorCode::ShapeMismatch, "")};
  };
  return def;
}

OpDef qlinear_conv_record() {
  OpDef def;
  def.name = "QLinearConv";
  def.summary = "convolution of quantised tensors, quantised again";
  def.onnx = {{"QLinearConv", "", 10}};
  def.operands = {
      {"x", TypeSet::Integer},     {"x_scale", TypeSet::Float},        {"x_zero_point", TypeSet::SameAsFirst},
      {"w", TypeSet::Integer},     {"w_scale", TypeSet::Float},        {"w_zero_point", TypeSet::Integer},
      {"y_scale", TypeSet::Float}, {"y_zero_point", TypeSet::Integer}, {"B", TypeSet::Integer, true}};
  def.attributes = onnx_attributes();
  def.meaning = Decomposition{[](Graph& g, const Node& n, int) {
    B b(g, n);
    ValueId sum = integer_convolution(b, 0, 2, 3, 5);
    if (b.has(8)) sum = add_bias(b, sum, cast(b, b.in(8), DType::I32));
    ValueId factor = div(b, mul(b, b.in(1), b.in(4)), b.in(6));
    int rank = b.rank(sum);
    ValueId real =
        b.op1("round", mul(b, cast(b, sum, DType::F32), along_channels(b, cast(b, factor, DType::F32), rank)));
    ValueId zero = cast(b, b.in(7), DType::F32);
    return b.done(cast(b, add(b, real, along_channels(b, zero, rank)), b.dtype(b.in(7))));
  }};
  def.samples = [] {
    Tensor x = random(DType::U8, {1, 2, 4, 4}, 1, 0, 255), w = random(DType::I8, {2, 2, 2, 2}, 2, -128, 127);
    auto f = [](double v) { return scalar(DType::F32, v); };
    return std::vector<Sample>{
        sample({x, f(0.02), scalar(DType::U8, 100), w, f(0.05), scalar(DType::I8, 0), f(0.2), scalar(DType::U8, 128)}),
        sample({x, f(0.02), scalar(DType::U8, 100), w, floats({2}, {0.05, 0.02}), integers(DType::I8, {2}, {0, 0}),
                f(0.2), scalar(DType::U8, 128), integers(DType::I32, {2}, {100, -700})}),
    };
  };
  def.error_samples = [] {
    auto f = [](double v) { return scalar(DType::F32, v); };
    return std::vector<ErrorSample>{
        wrong({random(DType::U8, {1, 3, 4, 4}), f(1), scalar(DType::U8, 0), random(DType::U8, {2, 2, 2, 2}), f(1),
               scalar(DType::U8, 0), f(1), scalar(DType::U8, 0)},
              {}, ErrorCode::ShapeMismatch, "")};
  };
  return def;
}

// A size that decides the structure: the number that it is, or that the call's sizes make it, which is assumed then.
// Error MissingValues where no call is known.
Result<int64_t> assumed_size(B& b, const SymExpr& size, const std::string& what) {
  if (auto known = b.env().simplify(size).as_const()) return *known;
  const auto n = b.env().hint(size);
  if (!n)
    return Diagnostic(ErrorCode::MissingValues, b.node().location,
                      what + " of this " + std::string(b.node().op->name) +
                          " depends on a symbolic size: " + size.str())
        .note("give the sizes of the inputs: --shape NAME=...");
  TESSERA_TRY(b.env().require(sym_eq(size, *n), GuardClass::Assumed, what, b.node().location));
  return *n;
}

// Pads of ONNX's ConvTranspose: given, or from the output's size.
Status transpose_pads(B& b, const SymShape& x, const SymShape& w, Window& window, Ints& extra) {
  std::string mode = b.attr().s("auto_pad", "NOTSET");
  Ints wanted = b.attr().ints("output_shape");
  size_t n = x.size() - 2;
  bool same = mode == "SAME_UPPER" || mode == "SAME_LOWER";
  if (!same && mode != "NOTSET" && mode != "VALID" && !mode.empty())
    return Diagnostic(ErrorCode::BadAttribute, "attribute 'auto_pad' has the unknown value '" + mode + "'");
  if (wanted.size() == n + 2) wanted.erase(wanted.begin(), wanted.begin() + 2); // some exporters give N and C as well
  if (!wanted.empty() && wanted.size() != n)
    return Diagnostic(ErrorCode::BadAttribute, "attribute 'output_shape' has a wrong number of elements");
  if (wanted.empty() && !same) return {};
  for (size_t i = 0; i < n; ++i) {
    SymExpr out = wanted.empty() ? x[i + 2] * window.strides[i] : SymExpr(wanted[i]);
    SymExpr total = (x[i + 2] - 1) * window.strides[i] + extra[i] + reach(w[i + 2], window.dilations[i]) - out;
    TESSERA_ASSIGN(const int64_t sum, assumed_size(b, total, "the sum of pads"));
    const int64_t pads = std::max<int64_t>(sum, 0);
    if (sum < 0) extra[i] -= sum; // a larger output than the kernels reach: the rest is zero
    window.pads_begin[i] = mode == "SAME_UPPER" ? pads / 2 : pads - pads / 2;
    window.pads_end[i] = pads - window.pads_begin[i];
  }
  return {};
}

Result<std::vector<ValueId>> decompose_conv_transpose(Graph& g, const Node& n, int) {
  B b(g, n);
  ValueId x = b.in(0), w = b.in(1);
  if (!check_ranks(b, x, w)) return b.done(ValueId{});
  SymShape xs = b.shape(x), ws = b.shape(w);
  b.check(check_kernel_shape(b, ws));
  TESSERA_ASSIGN(Window window, onnx_window(b.node(), b.rank(x) - 2));
  Ints extra = b.attr().ints("output_padding", Ints(xs.size() - 2, 0));
  if (extra.size() != xs.size() - 2)
    b.fail(ErrorCode::BadAttribute, "attribute 'output_padding' has a wrong number of elements");
  for (int64_t e : extra)
    if (e < 0 || e > (int64_t{1} << 40))
      b.fail(ErrorCode::BadAttribute, "attribute 'output_padding' has the value " + std::to_string(e));
  if (!b.ok()) return b.done(ValueId{});
  b.check(transpose_pads(b, xs, ws, window, extra));
  Attributes a = window_attributes(window);
  a.set("groups", b.attr().i("group", 1));
  a.set("output_padding", extra);
  ValueId y = b.op("conv_transpose", {x, w}, std::move(a));
  return b.done(b.has(2) ? add_bias(b, y, b.in(2)) : y);
}

OpDef conv_transpose_onnx_record() {
  OpDef def;
  def.name = "ConvTranspose";
  def.summary = "transposed convolution with bias and padding as ONNX says it";
  def.onnx = {{"ConvTranspose"}};
  def.operands = {{"X", TypeSet::Float}, {"W", TypeSet::SameAsFirst}, {"B", TypeSet::SameAsFirst, true}};
  def.attributes = onnx_attributes();
  def.attributes.push_back({"output_padding", AttrKind::Ints});
  def.attributes.push_back({"output_shape", AttrKind::Ints});
  def.meaning = Decomposition{decompose_conv_transpose};
  def.samples = [] {
    auto r = [](Dims d, uint64_t seed) { return random(DType::F32, std::move(d), seed); };
    return std::vector<Sample>{
        sample({r({1, 2, 3, 3}, 1), r({2, 3, 3, 3}, 2), r({3}, 3)},
               {{"pads", Ints{1, 1, 1, 1}}, {"strides", Ints{2, 2}}}),
        sample({r({1, 1, 3, 3}, 1), r({1, 2, 3, 3}, 2)}, {{"output_shape", Ints{10, 8}}, {"strides", Ints{3, 2}}}),
        sample({r({1, 1, 3, 3}, 1), r({1, 2, 3, 3}, 2)},
               {{"auto_pad", std::string("SAME_LOWER")}, {"strides", Ints{2, 2}}}),
        sample({r({1, 2, 4}, 1), r({2, 1, 3}, 2)}, {{"output_padding", Ints{1}}, {"strides", Ints{2}}}),
    };
  };
  def.error_samples = [] {
    auto r = [](Dims d) { return random(DType::F32, std::move(d)); };
    return std::vector<ErrorSample>{
        wrong({r({1, 2, 5, 5}), r({3, 2, 3, 3})}, {}, ErrorCode::ShapeMismatch, ""),
        wrong({r({1, 2, 5, 5}), r({2, 2, 3, 3})}, {{"output_padding", Ints{1}}}, ErrorCode::BadAttribute,
              "output_padding"),
        wrong({r({1, 2, 5, 5}), r({2, 2, 3, 3})}, {{"output_shape", Ints{9}}}, ErrorCode::BadAttribute, "output_shape"),
    };
  };
  return def;
}

// ---- CausalConvWithState: a depthwise convolution over time that carries the last steps of its input
Result<std::vector<ValueId>> decompose_causal_conv(Graph& g, const Node& n, int) {
  B b(g, n);
  ValueId x = b.in(0), w = b.in(1);
  if (b.rank(x) != 3 || b.rank(w) != 3)
    b.fail(ErrorCode::ShapeMismatch, "CausalConvWithState takes [N, C, L] and [C, 1, K]");
  std::string activation = b.attr().s("activation", "none");
  if (activation != "none" && activation != "silu" && activation != "swish")
    b.fail(ErrorCode::BadAttribute, "attribute 'activation' has the unknown value '" + activation + "'");
  if (!b.ok()) return b.done(ValueId{});
  TESSERA_ASSIGN(const int64_t channels, assumed_size(b, b.dim(w, 0), "the number of channels"));
  const SymExpr kernel = b.dim(w, 2);
  ValueId padded = b.has(3) ? concat(b, {b.in(3), x}, 2) : pad(b, x, {0, 0, kernel - 1}, {0, 0, 0});
  ValueId y = b.op("conv", {padded, w},
                   {{"strides", Ints{1}},
                    {"pads_begin", Ints{0}},
                    {"pads_end", Ints{0}},
                    {"dilations", Ints{1}},
                    {"groups", std::max<int64_t>(1, channels)}});
  if (b.has(2)) y = add_bias(b, y, b.in(2));
  if (activation != "none") y = mul(b, y, sigmoid(b, y));
  ValueId state = slice(b, padded, 2, b.dim(padded, 2) - (kernel - 1), kernel - 1);
  return b.done({y, state});
}

OpDef causal_conv_record() {
  OpDef def;
  def.name = "CausalConvWithState";
  def.summary = "depthwise convolution over the past, with the state that the next call continues from";
  def.onnx = {{"CausalConvWithState", "", 27}};
  def.operands = {{"input", TypeSet::Float},
                  {"weight", TypeSet::SameAsFirst},
                  {"bias", TypeSet::SameAsFirst, true},
                  {"past_state", TypeSet::SameAsFirst, true}};
  def.attributes = {{"activation", AttrKind::String, false, std::string("none")}};
  def.max_results = 2;
  def.meaning = Decomposition{decompose_causal_conv};
  def.samples = [] {
    auto r = [](Dims d, uint64_t seed) { return random(DType::F32, std::move(d), seed); };
    std::vector<Sample> out = {
        sample({r({2, 3, 5}, 1), r({3, 1, 4}, 2)}),
        sample({r({2, 3, 5}, 1), r({3, 1, 4}, 2), r({3}, 3), r({2, 3, 3}, 4)}, {{"activation", std::string("silu")}})};
    for (Sample& s : out) s.result_count = 2;
    return out;
  };
  def.error_samples = [] {
    auto r = [](Dims d) { return random(DType::F32, std::move(d)); };
    return std::vector<ErrorSample>{
        wrong({r({2, 3, 5}), r({3, 4})}, {}, ErrorCode::ShapeMismatch, "[N, C, L]"),
        wrong({r({2, 3, 5}), r({3, 1, 4})}, {{"activation", std::string("relu")}}, ErrorCode::BadAttribute,
              "activation"),
    };
  };
  return def;
}

} // namespace

void register_conv_onnx_ops(OpTable& table) {
  table.add(conv_onnx_record());
  table.add(conv_integer_record());
  table.add(qlinear_conv_record());
  table.add(conv_transpose_onnx_record());
  table.add(causal_conv_record());
}

} // namespace tessera
