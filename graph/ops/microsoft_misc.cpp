// The remaining operators of com.microsoft: those that the default domain has as well, crops, n-grams, inverses, and an
// LSTM of quantised weights.
#include "graph/ops/microsoft.h"
#include "graph/ops/recurrent.h"
#include <algorithm>
#include <cmath>

namespace tessera {

namespace {
using namespace ops;

// ---- operators of the default domain under the same or another form
Attributes only(const Attributes& from, std::initializer_list<std::string_view> names) {
  Attributes out;
  for (std::string_view name : names)
    if (const Attribute* a = from.find(name)) out.set(name, *a);
  return out;
}

// The node as one of the default domain, with these of its attributes.
std::vector<ValueId> as_default(B& b, std::string_view op_type, std::initializer_list<std::string_view> names,
                                int results) {
  const OpDef* op = OpTable::get().find_onnx(op_type, "", 1 << 20);
  TESSERA_CHECK(op != nullptr, "no operator " + std::string(op_type) + " in the default domain");
  return b.ops(op->name, b.node().operands, only(b.attr(), names), results);
}

void add_same(OpTable& table) {
  OpDef trilu = microsoft("com.microsoft.Trilu", "the upper or lower triangle of matrices",
                          {{"X", TypeSet::NumericOrBool}, {"k", TypeSet::Index, true}},
                          formula([](B& b) { return as_default(b, "Trilu", {"upper"}, 1)[0]; }));
  trilu.attributes = {integer("upper", 1)};
  trilu.samples = [] {
    Tensor x = random(DType::F32, {2, 3, 4}, 1);
    return std::vector<Sample>{sample({x}), sample({x, scalar(DType::I64, 1)}, {{"upper", int64_t{0}}})};
  };
  table.add(std::move(trilu));

  OpDef quantize = microsoft(
      "com.microsoft.QuantizeLinear", "x / scale + zero point, rounded to even and saturated",
      {{"x", TypeSet::Float}, {"y_scale", TypeSet::Float}, {"y_zero_point", TypeSet::Numeric, true}}, formula([](B& b) {
        return as_default(b, "QuantizeLinear", {"axis", "block_size"}, 1)[0];
      }));
  quantize.attributes = {integer("axis", 1), {"block_size", AttrKind::Int}};
  quantize.samples = [] {
    return std::vector<Sample>{
        sample({random(DType::F32, {2, 3}, 1), scalar(DType::F32, 0.001), scalar(DType::U16, 32768)}),
        sample({random(DType::F32, {2, 3}, 1), random(DType::F32, {3}, 2, 0.01, 0.1),
                integers(DType::I8, {3}, {1, 2, 3})})};
  };
  table.add(std::move(quantize));

  OpDef dequantize =
      microsoft("com.microsoft.DequantizeLinear", "(x - zero point) * scale",
                {{"x", TypeSet::Numeric}, {"x_scale", TypeSet::Float}, {"x_zero_point", TypeSet::SameAsFirst, true}},
                formula([](B& b) {
                  return as_default(b, "DequantizeLinear", {"axis", "block_size"}, 1)[0];
                }));
  dequantize.attributes = {integer("axis", 1), {"block_size", AttrKind::Int}};
  dequantize.samples = [] {
    return std::vector<Sample>{
        sample({random(DType::U16, {2, 3}, 1, 0, 60000), scalar(DType::F32, 0.001), scalar(DType::U16, 32768)}),
        sample({random(DType::I8, {2, 3}, 1, -128, 127), random(DType::F32, {3}, 2, 0.01, 0.1)})};
  };
  table.add(std::move(dequantize));

  OpDef linear = microsoft(
      "com.microsoft.LinearAttention", "attention without softmax, as a recurrence over time on a state per head",
      {{"query", TypeSet::Float},
       {"key", TypeSet::SameAsFirst},
       {"value", TypeSet::SameAsFirst},
       {"past_state", TypeSet::Float, true},
       {"decay", TypeSet::SameAsFirst, true},
       {"beta", TypeSet::SameAsFirst, true}},
      [](Graph& g, const Node& n, int results) {
        B b(g, n);
        if (b.attr().i("state_window") != 0) b.fail(ErrorCode::UnsupportedFeature, "state_window is not supported");
        return b.done(as_default(b, "LinearAttention",
                                 {"chunk_size", "kv_num_heads", "q_num_heads", "scale", "update_rule"}, results));
      });
  linear.attributes = {{"chunk_size", AttrKind::Int},        {"kv_num_heads", AttrKind::Int, true},
                       {"q_num_heads", AttrKind::Int, true}, {"scale", AttrKind::Float},
                       integer("state_window", 0),           {"update_rule", AttrKind::String}};
  linear.max_results = 2;
  linear.samples = [] {
    auto r = [](Dims d, uint64_t seed) { return random(DType::F32, std::move(d), seed, -1, 0.5); };
    std::vector<Sample> out = {
        sample({r({2, 3, 16}, 1), r({2, 3, 8}, 2), r({2, 3, 6}, 3), Tensor(), r({2, 3, 8}, 5), r({2, 3, 2}, 6)},
               {{"q_num_heads", int64_t{4}}, {"kv_num_heads", int64_t{2}}})};
    out[0].result_count = 2;
    return out;
  };
  table.add(std::move(linear));

  OpDef causal = microsoft("com.microsoft.CausalConvWithState",
                           "depthwise convolution over the past, with the state that the next call continues from",
                           {{"input", TypeSet::Float},
                            {"weight", TypeSet::SameAsFirst},
                            {"bias", TypeSet::SameAsFirst, true},
                            {"past_state", TypeSet::SameAsFirst, true}},
                           [](Graph& g, const Node& n, int results) {
                             B b(g, n);
                             const auto& a = b.attr();
                             if (a.i("ndim", 1) != 1 || a.i("dilation", 1) != 1 || a.i("state_window") != 0)
                               b.fail(ErrorCode::UnsupportedFeature,
                                      "ndim, dilation and state_window of CausalConvWithState are not supported");
                             if (!b.ok()) return b.failed();
                             Attributes attributes;
                             const std::string activation = a.s("activation", "none");
                             attributes.set("activation", activation == "swish" ? std::string("silu") : activation);
                             std::vector<ValueId> operands = n.operands;
                             const bool last = a.i("channels_last") != 0;
                             if (last) {
                               operands[0] = transpose(b, operands[0], {0, 2, 1});
                               if (b.has(3)) operands[3] = transpose(b, operands[3], {0, 2, 1});
                             }
                             auto out = b.ops("CausalConvWithState", operands, attributes, results);
                             if (last)
                               for (ValueId& v : out) v = transpose(b, v, {0, 2, 1});
                             return b.done(out);
                           });
  causal.attributes = {{"activation", AttrKind::String},
                       integer("channels_last", 0),
                       {"dilation", AttrKind::Int},
                       {"ndim", AttrKind::Int},
                       integer("state_window", 0)};
  causal.max_results = 2;
  causal.samples = [] {
    auto r = [](Dims d, uint64_t seed) { return random(DType::F32, std::move(d), seed); };
    std::vector<Sample> out = {
        sample({r({2, 3, 5}, 1), r({3, 1, 4}, 2)}, {{"activation", std::string("swish")}}),
        sample({r({2, 5, 3}, 1), r({3, 1, 4}, 2), r({3}, 3), r({2, 3, 3}, 4)}, {{"channels_last", int64_t{1}}})};
    for (Sample& s : out) s.result_count = 2;
    return out;
  };
  table.add(std::move(causal));

  OpDef unique =
      microsoft("com.microsoft.Unique", "distinct elements in the order they come, which each is, and how often",
                {{"x", TypeSet::NumericOrBool}}, [](Graph& g, const Node& n, int results) {
                  B b(g, n);
                  const OpDef* op = OpTable::get().find_onnx("Unique", "", 1 << 20);
                  auto all = b.ops(op->name, {b.in(0)}, {{"sorted", int64_t{0}}}, 4);
                  std::vector<ValueId> out = {all[0], all[2], all[3]};
                  out.resize(static_cast<size_t>(results));
                  return b.done(out);
                });
  unique.max_results = 3;
  unique.data_dependent_shape = true;
  unique.samples = [] {
    std::vector<Sample> out = {sample({floats({6}, {2, 1, 1, 3, 4, 3})})};
    out[0].result_count = 3;
    return out;
  };
  table.add(std::move(unique));
}

// ---- ConvTransposeWithDynamicPads: the pads are an operand
void add_conv_transpose(OpTable& table) {
  OpDef def =
      microsoft("com.microsoft.ConvTransposeWithDynamicPads", "transposed convolution whose pads are an operand",
                {{"X", TypeSet::Float},
                 {"W", TypeSet::SameAsFirst},
                 {"Pads", TypeSet::Index, true},
                 {"B", TypeSet::SameAsFirst, true}},
                formula([](B& b) -> ValueId {
                  Attributes attributes = b.attr();
                  if (b.has(2)) attributes.set("pads", b.known_ints(2));
                  if (!b.ok()) return {};
                  std::vector<ValueId> operands = {b.in(0), b.in(1)};
                  if (b.has(3)) operands.push_back(b.in(3));
                  return b.op("ConvTranspose", operands, attributes);
                }));
  def.attributes = {{"auto_pad", AttrKind::String},   {"dilations", AttrKind::Ints},      {"group", AttrKind::Int},
                    {"kernel_shape", AttrKind::Ints}, {"output_padding", AttrKind::Ints}, {"strides", AttrKind::Ints}};
  def.samples = [] {
    auto r = [](Dims d, uint64_t seed) { return random(DType::F32, std::move(d), seed); };
    return std::vector<Sample>{
        sample({r({1, 2, 4, 4}, 1), r({2, 3, 3, 3}, 2), vec({1, 0, 1, 1}), r({3}, 3)}, {{"strides", Ints{2, 2}}}),
        sample({r({1, 2, 4, 4}, 1), r({2, 3, 3, 3}, 2)})};
  };
  table.add(std::move(def));
}

// ---- CropAndResize: boxes (y1, x1, y2, x2) of images, as fractions of height - 1 and width - 1
ValueId crop(B& b) {
  ValueId x = b.in(0), boxes = b.in(1);
  std::vector<SymExpr> size = b.sizes(3);
  const std::string mode = b.attr().s("mode");
  if (b.rank(x) != 4 || b.rank(boxes) != 2 || size.size() != 2)
    b.fail(ErrorCode::ShapeMismatch, "CropAndResize takes images [N, C, H, W], boxes [R, 4] and two sizes");
  if (mode != "bilinear" && mode != "nearest")
    b.fail(ErrorCode::BadAttribute, "mode '" + mode + "' is neither bilinear nor nearest");
  if (!b.ok()) return {};
  const SymShape shape = b.shape(x);
  const SymExpr count = b.dim(boxes, 0);
  // The samples along axis 0 (y) or 1 (x), as [R, size, 1] or [R, 1, size]: their coordinates, and whether these are in
  // the image.
  struct Axis {
    ValueId at, inside, low, high;
  };
  auto axis_of = [&](int axis) {
    const SymExpr extent = shape[static_cast<size_t>(2 + axis)], n = size[static_cast<size_t>(axis)];
    auto column = [&](int64_t c) { return reshape(b, slice(b, widen(b, boxes), 1, c, 1), {count, 1, 1}); };
    ValueId first = column(axis), last = column(axis + 2), most = b.size(extent - 1, DType::F32);
    SymShape ramp = {1, 1, 1};
    ramp[static_cast<size_t>(1 + axis)] = n;
    Axis out;
    if (b.decide(sym_eq(n, 1), false, "a crop of one sample"))
      out.at = mul(b, mul(b, add(b, first, last), 0.5), most);
    else
      out.at = add(b, mul(b, first, most),
                   mul(b, cast(b, iota(b, ramp, 1 + axis), DType::F32),
                       div(b, mul(b, sub(b, last, first), most), b.size(n - 1, DType::F32))));
    out.inside = logical_and(b, ge(b, out.at, 0.0), le(b, out.at, most));
    auto index = [&](ValueId v) { return cast(b, min(b, max(b, v, 0.0), most), DType::I64); };
    if (mode == "nearest") {
      out.low = index(floor(b, add(b, out.at, 0.5)));
    } else {
      out.low = index(floor(b, out.at));
      out.high = index(b.op1("ceil", out.at));
    }
    return out;
  };
  Axis y = axis_of(0), w = axis_of(1);
  ValueId rows = transpose(b, x, {0, 2, 3, 1}); // [N, H, W, C]
  SymShape at = {count, size[0], size[1], 1};
  ValueId image = expand(b, reshape(b, cast(b, b.in(2), DType::I64), {count, 1, 1, 1}), at);
  auto sampled = [&](ValueId row, ValueId column) {
    ValueId index =
        concat(b, {image, expand(b, unsqueeze(b, row, {3}), at), expand(b, unsqueeze(b, column, {3}), at)}, 3);
    return b.op("gather_nd", {rows, index});
  };
  ValueId out;
  if (mode == "nearest") {
    out = sampled(y.low, w.low);
  } else {
    ValueId dy = unsqueeze(b, sub(b, y.at, floor(b, y.at)), {3}), dx = unsqueeze(b, sub(b, w.at, floor(b, w.at)), {3});
    auto between = [&](ValueId p, ValueId q, ValueId d) { return add(b, p, mul(b, sub(b, q, p), d)); };
    out = between(between(sampled(y.low, w.low), sampled(y.low, w.high), dx),
                  between(sampled(y.high, w.low), sampled(y.high, w.high), dx), dy);
  }
  ValueId inside = unsqueeze(b, logical_and(b, y.inside, w.inside), {3});
  return transpose(b, select(b, inside, out, b.attr().f("extrapolation_value")), {0, 3, 1, 2});
}

void add_crop(OpTable& table) {
  OpDef def = microsoft("com.microsoft.CropAndResize", "boxes of images, sampled at one size",
                        {{"X", TypeSet::Float},
                         {"rois", TypeSet::SameAsFirst},
                         {"batch_indices", TypeSet::Index},
                         {"crop_size", TypeSet::Index}},
                        formula(crop));
  def.attributes = {number("extrapolation_value", 0), {"mode", AttrKind::String, false, std::string("bilinear")}};
  def.samples = [] {
    std::vector<Sample> out;
    for (const char* mode : {"bilinear", "nearest"})
      for (const Tensor& size : {integers(DType::I32, {2}, {3, 4}), integers(DType::I32, {2}, {1, 2})})
        out.push_back(sample({random(DType::F32, {2, 3, 6, 5}, 1), random(DType::F32, {3, 4}, 2, -0.1, 1.1),
                              integers(DType::I32, {3}, {0, 1, 1}), size},
                             {{"mode", std::string(mode)}, {"extrapolation_value", 0.5}}));
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{wrong({random(DType::F32, {2, 3, 6, 5}), random(DType::F32, {3, 4}),
                                           integers(DType::I32, {3}, {0, 1, 1}), integers(DType::I32, {2}, {3, 4})},
                                          {{"mode", std::string("cubic")}}, ErrorCode::BadAttribute,
                                          "neither bilinear nor nearest")};
  };
  table.add(std::move(def));
}

// ---- NGramRepeatBlock: -inf for tokens that would repeat an n-gram of the sequence
ValueId block_repeats(B& b) {
  ValueId ids = b.in(0), scores = b.in(1);
  const int64_t size = b.attr().i("ngram_size");
  if (size < 1 || b.rank(ids) != 2 || b.rank(scores) != 2)
    b.fail(ErrorCode::BadAttribute, "n-grams of " + std::to_string(size) + " tokens of sequences [batch, length]");
  if (!b.ok()) return {};
  const SymExpr length = b.dim(ids, 1);
  if (b.decide(sym_lt(length, size), false, "sequences that are shorter than an n-gram")) return scores;
  const SymExpr starts = length - size + 1; // of n-grams
  ValueId same;
  for (int64_t k = 0; k + 1 < size; ++k) {
    ValueId one = eq(b, slice(b, ids, 1, k, starts), slice(b, ids, 1, starts + k, 1));
    same = same.valid() ? logical_and(b, same, one) : one;
  }
  ValueId next = unsqueeze(b, slice(b, ids, 1, size - 1, starts), {2}); // [batch, starts, 1]
  ValueId token = cast(b, iota(b, {1, 1, b.dim(scores, 1)}, 2), b.dtype(ids));
  ValueId repeats = eq(b, next, token);
  if (same.valid()) repeats = logical_and(b, repeats, unsqueeze(b, same, {2}));
  return select(b, reduce(b, "reduce_any", repeats, {1}, false), -std::numeric_limits<double>::infinity(), scores);
}

void add_ngrams(OpTable& table) {
  OpDef def = microsoft("com.microsoft.NGramRepeatBlock", "scores without the tokens that would repeat an n-gram",
                        {{"input_ids", TypeSet::Index}, {"scores", TypeSet::Float}}, formula(block_repeats));
  def.attributes = {{"ngram_size", AttrKind::Int, true}};
  def.samples = [] {
    std::vector<Sample> out;
    for (int64_t size : {1, 2, 3, 9})
      out.push_back(
          sample({random(DType::I64, {3, 7}, 4, 0, 2), random(DType::F32, {3, 5}, 2)}, {{"ngram_size", size}}));
    return out;
  };
  table.add(std::move(def));
}

// ---- DynamicQuantizeLSTM: an LSTM whose weights are 8-bit, [directions, in, gates]. Inputs of all steps are quantised
// together by their range, states of all rows of a step by theirs; products are sums of integers, scaled.
Result<std::vector<ValueId>> quantised_lstm(Graph& g, const Node& n, int results) {
  B b(g, n);
  for (int i : {0, 1, 2})
    if (b.rank(b.in(i)) != 3)
      b.fail(ErrorCode::ShapeMismatch, "DynamicQuantizeLSTM takes X, W and R of rank 3, not " + b.type(b.in(i)).str());
  if (!b.ok()) return b.failed();
  const ValueId x = b.in(0), w = b.in(1), r = b.in(2);
  const SymExpr hidden = b.dim(r, 1);
  const int64_t directions = b.attr().s("direction", "forward") == "bidirectional" ? 2 : 1;
  auto same = [&](const SymExpr& have, const SymExpr& want, const char* what) {
    b.check(b.env().require_equal(have, want, what, n.location));
  };
  same(b.dim(w, 0), directions, "directions of W");
  same(b.dim(r, 0), directions, "directions of R");
  same(b.dim(w, 1), b.dim(x, 2), "rows of W and columns of X");
  same(b.dim(w, 2), hidden * 4, "gates of W");
  same(b.dim(r, 2), hidden * 4, "gates of R");
  if (b.attr().has("hidden_size")) same(hidden, b.attr().i("hidden_size"), "hidden_size and R");
  const SymShape state = {directions, b.dim(x, 1), hidden};
  auto shaped = [&](int i, const SymShape& want, const char* what) {
    if (!b.has(i) || !b.ok()) return ValueId{};
    const SymShape have = b.shape(b.in(i));
    if (have.size() != want.size())
      b.fail(ErrorCode::ShapeMismatch, std::string(what) + " must be " + str(want) + ", not " + str(have));
    for (size_t k = 0; k < want.size() && b.ok(); ++k) same(have[k], want[k], what);
    return b.in(i);
  };
  using namespace ops::recurrent;
  Operands operands;
  operands.x = x;
  operands.bias = shaped(3, {directions, hidden * 8}, "operand 'B'");
  operands.lengths = shaped(4, {b.dim(x, 1)}, "operand 'sequence_lens'");
  operands.h = shaped(5, state, "operand 'initial_h'");
  operands.c = shaped(6, state, "operand 'initial_c'");
  operands.peepholes = shaped(7, {directions, hidden * 3}, "operand 'P'");
  operands.hidden = hidden;
  operands.rows_meet = true;
  if (!b.ok()) return b.failed();
  ValueId inputs = x;
  if (operands.lengths.valid()) { // steps behind the end of all sequences have no part in the range
    operands.lengths = cast(b, operands.lengths, DType::I64);
    ValueId most = reduce(b, "reduce_max", operands.lengths, {0}, false);
    inputs = select(b, lt(b, iota(b, {b.dim(x, 0), 1, 1}, 0), most), inputs, 0.0);
  }
  const std::vector<ValueId> codes = b.ops("DynamicQuantizeLinear", {inputs}, {}, 3);
  operands.products = [&](int64_t d) {
    auto of_direction = [&](ValueId v) { return squeeze(b, slice(b, v, 0, d, 1), {0}); };
    // Zero points are the same in all columns.
    auto zero_of = [&](int i) {
      ValueId v = of_direction(b.in(i));
      return b.rank(v) == 0 ? v : squeeze(b, slice(b, v, 0, 0, 1), {0});
    };
    Operands::Products out;
    out.weights = {of_direction(r), of_direction(b.in(10)), zero_of(11)};
    out.of_input = scaled_product(b, codes[0], codes[1], codes[2], of_direction(w), of_direction(b.in(8)), zero_of(9));
    out.of_state = [](B& s, ValueId h, std::span<const ValueId> weights) {
      const std::vector<ValueId> q = s.ops("DynamicQuantizeLinear", {h}, {}, 3);
      return scaled_product(s, q[0], q[1], q[2], weights[0], weights[1], weights[2]);
    };
    return out;
  };
  std::vector<ValueId> all = layer_of(b, Cell::Lstm, operands);
  all.resize(static_cast<size_t>(std::min(results, 3)));
  return b.done(std::move(all));
}

void add_lstm(OpTable& table) {
  OpDef def = microsoft("com.microsoft.DynamicQuantizeLSTM", "long short-term memory with quantised weights",
                        {{"X", TypeSet::Float},
                         {"W", TypeSet::Integer},
                         {"R", TypeSet::Integer},
                         {"B", TypeSet::Float, true},
                         {"sequence_lens", TypeSet::Index, true},
                         {"initial_h", TypeSet::Float, true},
                         {"initial_c", TypeSet::Float, true},
                         {"P", TypeSet::Float, true},
                         {"W_scale", TypeSet::Float},
                         {"W_zero_point", TypeSet::Integer},
                         {"R_scale", TypeSet::Float},
                         {"R_zero_point", TypeSet::Integer}},
                        quantised_lstm);
  def.attributes = {{"activation_alpha", AttrKind::Floats}, {"activation_beta", AttrKind::Floats},
                    {"activations", AttrKind::Strings},     {"clip", AttrKind::Float},
                    {"direction", AttrKind::String},        {"hidden_size", AttrKind::Int},
                    {"input_forget", AttrKind::Int}};
  def.max_results = 3;
  def.samples = [] {
    auto w = [](Dims d, uint64_t seed) { return random(DType::I8, std::move(d), seed, -128, 127); };
    Tensor none;
    std::vector<Sample> out = {
        sample({random(DType::F32, {3, 2, 4}, 1), w({1, 4, 20}, 2), w({1, 5, 20}, 3), random(DType::F32, {1, 40}, 4),
                none, none, none, none, floats({1}, {0.01}), integers(DType::I8, {1}, {3}),
                random(DType::F32, {1, 20}, 5, 0.001, 0.01), random(DType::I8, {1, 20}, 6, -4, 4)},
               {{"hidden_size", int64_t{5}}})};
    out[0].result_count = 3;
    return out;
  };
  table.add(std::move(def));
}

// ---- Inverse
OpDef inverse_record() {
  OpDef def;
  def.name = "matrix_inverse";
  def.summary = "inverse of each matrix in the last two dimensions";
  def.onnx = {{"Inverse", "com.microsoft"}};
  def.operands = {{"X", TypeSet::Float}};
  def.infer = [](InferContext& c) -> Status {
    const SymShape x = c.shape(0);
    if (x.size() < 2) return c.error(ErrorCode::ShapeMismatch, "Inverse takes matrices, not " + str(x));
    TESSERA_TRY(
        c.env().require_equal(x.back(), x[x.size() - 2], "rows and columns of a matrix to invert", c.node.location));
    return infer_same(c);
  };
  def.meaning = StructuredOp{};
  def.reference = [](ReferenceContext& c) -> Status {
    const Tensor& x = c.operands[0];
    const int64_t n = x.dims().back();
    TESSERA_ASSIGN(Tensor out, Tensor::create(x.dtype(), x.dims()));
    for (int64_t base = 0; base < x.count(); base += n * n) { // Gauss and Jordan, with the largest pivot
      std::vector<double> a(static_cast<size_t>(2 * n * n));
      auto at = [&](int64_t i, int64_t j) -> double& { return a[static_cast<size_t>(i * 2 * n + j)]; };
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = 0; j < n; ++j) at(i, j) = x.get_f64(base + i * n + j);
        at(i, n + i) = 1;
      }
      for (int64_t k = 0; k < n; ++k) {
        int64_t pivot = k;
        for (int64_t i = k + 1; i < n; ++i)
          if (std::fabs(at(i, k)) > std::fabs(at(pivot, k))) pivot = i;
        for (int64_t j = 0; j < 2 * n; ++j) std::swap(at(k, j), at(pivot, j));
        const double scale = 1 / at(k, k);
        for (int64_t j = 0; j < 2 * n; ++j) at(k, j) *= scale;
        for (int64_t i = 0; i < n; ++i) {
          if (i == k) continue;
          const double factor = at(i, k);
          for (int64_t j = 0; j < 2 * n; ++j) at(i, j) -= factor * at(k, j);
        }
      }
      for (int64_t i = 0; i < n * n; ++i) out.set_f64(base + i, at(i / n, n + i % n));
    }
    c.results = {out};
    return {};
  };
  def.samples = [] {
    std::vector<Sample> out = {sample({floats({2, 2}, {4, 7, 2, 6})}), sample({random(DType::F64, {2, 3, 4, 4}, 1)}),
                               sample({random(DType::F32, {0, 2, 2}, 1)})};
    return out;
  };
  def.error_samples = [] {
    return std::vector<ErrorSample>{wrong({random(DType::F32, {3})}, {}, ErrorCode::ShapeMismatch, "matrices")};
  };
  return def;
}

// ---- BifurcationDetector: predicted tokens up to the first that is not the source's, and where the end of all tokens
// stands in the source
Status bifurcate(ReferenceContext& c) {
  const std::vector<int64_t> source = to_i64(c.operands[0]);
  std::vector<int64_t> tokens = to_i64(c.operands[1]);
  const int64_t start = c.operands[2].get_i64(0), length = static_cast<int64_t>(source.size());
  if (given(c, 3)) {
    const std::vector<int64_t> predicted = to_i64(c.operands[3]);
    if (start < 0 || start > length || static_cast<int64_t>(predicted.size()) != length + 1 - start)
      return c.error(ErrorCode::BadInput, std::to_string(predicted.size()) + " predicted tokens follow " +
                                              std::to_string(length) + " source tokens from " + std::to_string(start) +
                                              " on");
    size_t same = 0;
    while (same + 1 < predicted.size() && predicted[same] == source[static_cast<size_t>(start) + same]) ++same;
    tokens.insert(tokens.end(), predicted.begin(), predicted.begin() + static_cast<std::ptrdiff_t>(same) + 1);
  }
  int64_t found = -1;
  for (int64_t n = c.node.attributes.i("min_ngram_size"); n <= c.node.attributes.i("max_ngram_size"); ++n) {
    if (n > static_cast<int64_t>(tokens.size())) break;
    auto first = std::search(source.begin(), source.end(), tokens.end() - n, tokens.end());
    if (first == source.end()) break;
    found = first - source.begin() + n;
    if (found >= length) break;
    if (std::search(first + 1, source.end(), tokens.end() - n, tokens.end()) == source.end()) break;
    found = -1; // more than one
  }
  const Dims count = {static_cast<int64_t>(tokens.size())};
  TESSERA_ASSIGN(Tensor all, from_i64(DType::I64, count, tokens));
  TESSERA_ASSIGN(Tensor index, from_i64(DType::I64, {}, std::vector<int64_t>{found}));
  c.results = {all, index};
  return {};
}

OpDef bifurcation_record() {
  OpDef def;
  def.name = "bifurcation_detector";
  def.summary = "tokens of aggressive decoding: those that agree with the source, and where they go on in it";
  def.onnx = {{"BifurcationDetector", "com.microsoft"}};
  def.operands = {{"src_tokens", TypeSet::Index},
                  {"cur_tokens", TypeSet::Index},
                  {"prev_suffix_match_idx", TypeSet::Index},
                  {"pred_tokens", TypeSet::Index, true}};
  def.attributes = {integer("max_ngram_size", 3), integer("min_ngram_size", 1)};
  def.min_results = def.max_results = 2;
  def.infer = [](InferContext& c) -> Status {
    for (int i : {0, 1})
      if (c.type(i).rank() != 1)
        return c.error(ErrorCode::ShapeMismatch, "tokens are a vector, not " + c.type(i).str());
    SymExpr count = c.shape(1)[0];
    if (c.has(3)) count = c.env().create_symbol("tokens", {0, kSymMax});
    TESSERA_TRY(set_result(c, DType::I64, {count}));
    return set_result(c, DType::I64, {}, 1);
  };
  def.meaning = StructuredOp{};
  def.reference = bifurcate;
  def.data_dependent_shape = true;
  def.samples = [] {
    std::vector<Sample> out = {
        sample({vec({1, 2, 3, 4, 2, 5}), vec({7, 2}), scalar(DType::I64, 0)}),
        sample({vec({1, 2, 3, 4, 2, 5}), vec({7, 1}), scalar(DType::I64, 1), vec({2, 3, 9, 9, 9, 9})})};
    for (Sample& s : out) s.result_count = 2;
    return out;
  };
  return def;
}

} // namespace

void register_microsoft_misc_ops(OpTable& table) {
  add_same(table);
  add_conv_transpose(table);
  add_crop(table);
  add_ngrams(table);
  add_lstm(table);
  table.add(inverse_record());
  table.add(bifurcation_record());
}

} // namespace tessera
