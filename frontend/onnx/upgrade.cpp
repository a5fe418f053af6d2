#include "frontend/onnx/upgrade.h"
#include "frontend/onnx/model_proto.h"
#include "frontend/onnx/weights.h"
#include "graph/ops/formulas.h"
#include <algorithm>
#include <cmath>

namespace tessera::onnx {

namespace {
using namespace ops;

struct Upgrade {
  B& b;
  OperatorForm& form;
  std::vector<std::string>& warnings;

  [[nodiscard]] ValueId in(size_t i) const { return i < form.operands.size() ? form.operands[i] : ValueId{}; }
  [[nodiscard]] const Attributes& attr() const { return form.attributes; }
  void drop(std::string_view attribute) const { form.attributes.erase(attribute); }
  void warn(const std::string& text) const { warnings.push_back(form.where.str() + ": " + text); }
  // An attribute that has another name today.
  void rename(std::string_view from, std::string_view to) const {
    if (const Attribute* a = form.attributes.find(from)) {
      Attribute copy = *a;
      form.attributes.erase(from);
      form.attributes.set(to, std::move(copy));
    }
  }
  // The operators that stand for the node.
  void becomes(ValueId value) const { form.value = value; }
};

// ---- broadcasting before opset 7: the second operand's dimensions stand at `axis` of the first one's
void broadcast(const Upgrade& u) {
  bool wanted = u.attr().i("broadcast") != 0;
  std::optional<int64_t> axis;
  if (u.attr().has("axis")) axis = u.attr().i("axis");
  u.drop("broadcast");
  u.drop("axis");
  if (!wanted || !axis || u.form.operands.size() != 2) return;
  int left = u.b.rank(u.in(0)), right = u.b.rank(u.in(1));
  if (right >= left) return;
  int64_t at = u.b.axis(*axis, left);
  int64_t missing = left - at - right;
  if (missing < 0)
    u.b.fail(ErrorCode::BadAttribute, "the second operand, " + u.b.type(u.in(1)).str() + ", does not fit into " +
                                          u.b.type(u.in(0)).str() + " at axis " + std::to_string(at));
  Ints trailing;
  for (int64_t i = 0; i < missing; ++i) trailing.push_back(right + i);
  u.form.operands[1] = unsqueeze(u.b, u.in(1), trailing);
}

// A slope for each channel, dimension 1, whatever the rank of x.
void channel_slope(const Upgrade& u) {
  if (u.form.operands.size() != 2 || u.b.rank(u.in(1)) != 1) return;
  Ints trailing;
  for (int64_t i = 2; i < u.b.rank(u.in(0)); ++i) trailing.push_back(i - 1);
  u.form.operands[1] = unsqueeze(u.b, u.in(1), trailing);
}

// ---- BatchNormalization: is_test before opset 7, spatial before 9, the saved statistics before 14
void batch_results(const Upgrade& u) {
  u.drop("is_test");
  for (int i = 1; i < u.form.results; ++i)
    if (u.form.is_read && u.form.is_read(i)) return; // the record says that it cannot be trained
  u.form.results = 1;
}
void batch_spatial(const Upgrade& u) {
  bool spatial = u.attr().i("spatial", 1) != 0;
  u.drop("spatial");
  if (spatial || u.form.operands.size() != 5 || !u.in(0).valid() || u.form.results != 1) return;
  // A statistic for each element of an instance: all of them are channels of one matrix.
  SymShape shape = u.b.shape(u.in(0));
  if (shape.empty()) return;
  SymExpr rest = 1;
  for (size_t i = 1; i < shape.size(); ++i) rest *= shape[i];
  std::vector<ValueId> operands = {reshape(u.b, u.in(0), {shape[0], rest})};
  for (size_t i = 1; i < 5; ++i) operands.push_back(reshape(u.b, u.in(i), {rest}));
  u.becomes(reshape(u.b, u.b.op("BatchNormalization", std::move(operands), u.attr()), shape));
}

// ---- Cast before opset 6: the type by its name
void cast_by_name(const Upgrade& u) {
  const auto* to = u.attr().get<std::string>("to");
  proto::TensorProto_DataType type = proto::TensorProto_DataType_UNDEFINED;
  if (to == nullptr || !proto::TensorProto_DataType_Parse(*to, &type))
    return u.b.fail(ErrorCode::BadAttribute, to == nullptr
                                                 ? "attribute 'to' before opset 6 is the name of an element type"
                                                 : "attribute 'to' is '" + *to + "', which is no element type");
  auto dtype = element_type(type, u.form.where, "attribute 'to'");
  if (!dtype.ok()) return u.b.fail(dtype.error());
  u.form.attributes.set("to", *dtype);
}

void dropout(const Upgrade& u) {
  if (u.attr().i("is_test") == 0)
    u.warn("is_test is 0: the model drops elements at random, and here nothing is dropped");
  u.drop("is_test");
}

void reshape_by_attribute(const Upgrade& u) {
  if (!u.attr().has("shape")) return u.b.fail(ErrorCode::BadAttribute, "attribute 'shape' (ints) is missing");
  u.form.operands.push_back(u.b.ints(u.attr().ints("shape")));
  u.drop("shape");
}

// Tile before opset 6 repeats one axis; both numbers are operands.
void tile_one_axis(const Upgrade& u) {
  std::optional<int64_t> numbers[2];
  for (size_t i = 0; i < 2; ++i)
    if (const Tensor* t = u.in(i + 1).valid() ? u.b.graph().constant(u.in(i + 1)) : nullptr; t && t->count() == 1)
      numbers[i] = static_cast<int64_t>(t->get_f64(0));
  if (!numbers[0] || !numbers[1])
    return u.b.fail(ErrorCode::UnsupportedFeature,
                    "operands 'tiles' and 'axis' must be constant numbers before opset 6");
  int rank = u.b.rank(u.in(0));
  Ints repeats(static_cast<size_t>(rank), 1);
  int64_t axis = u.b.axis(*numbers[1], rank);
  if (!u.b.ok()) return;
  repeats[static_cast<size_t>(axis)] = *numbers[0];
  u.form.operands = {u.in(0), u.b.ints(repeats)};
}

void upsample_images(const Upgrade& u) {
  if (!u.attr().has("height_scale") || !u.attr().has("width_scale"))
    return u.b.fail(ErrorCode::BadAttribute, "attributes 'height_scale' and 'width_scale' are required before opset 7");
  u.form.attributes.set("scales", std::vector<double>{1, 1, u.attr().f("height_scale"), u.attr().f("width_scale")});
  u.drop("height_scale");
  u.drop("width_scale");
  if (u.attr().s("mode") == "bilinear") u.form.attributes.set("mode", std::string("linear"));
}

void whole_norm(const Upgrade& u) { // LpPool, GlobalLpPool: p was a float
  if (!u.attr().has("p")) return;
  double p = u.attr().f("p");
  if (p != std::floor(p))
    u.b.fail(ErrorCode::UnsupportedFeature, "attribute 'p' is " + std::to_string(p) + ", not whole");
  u.form.attributes.set("p", static_cast<int64_t>(p));
}

void mean_variance(const Upgrade& u) {
  bool all = u.attr().i("across_channels") != 0, scaled = u.attr().i("normalize_variance", 1) != 0;
  u.drop("across_channels");
  u.drop("normalize_variance");
  int rank = u.b.rank(u.in(0));
  Ints axes;
  for (int64_t a = 0; a < rank; ++a)
    if (all || a != 1) axes.push_back(a);
  if (scaled)
    u.form.attributes.set("axes", axes);
  else
    u.becomes(sub(u.b, u.in(0), mean(u.b, u.in(0), axes, true)));
}

// ---- experimental operators
void affine(const Upgrade& u) { u.becomes(add(u.b, mul(u.b, u.in(0), u.attr().f("alpha", 1)), u.attr().f("beta", 0))); }
void scale(const Upgrade& u) { u.becomes(mul(u.b, u.in(0), u.attr().f("scale", 1))); }
void scaled_tanh(const Upgrade& u) {
  u.becomes(mul(u.b, tanh(u.b, mul(u.b, u.in(0), u.attr().f("beta", 1))), u.attr().f("alpha", 1)));
}
void parametric_softplus(const Upgrade& u) { // alpha * log(1 + exp(beta * x)), without overflow
  ValueId x = mul(u.b, u.in(0), u.attr().f("beta", 1));
  u.becomes(mul(u.b, u.b.op("Softplus", {x}), u.attr().f("alpha", 1)));
}
void image_scaler(const Upgrade& u) {
  ValueId y = mul(u.b, u.in(0), u.attr().f("scale", 1));
  if (const auto* bias = u.attr().get<std::vector<double>>("bias")) {
    auto count = static_cast<int64_t>(bias->size());
    Tensor t = Tensor::of<float>(DType::F32, {count, 1, 1}, std::vector<float>(bias->begin(), bias->end()));
    y = add(u.b, y, cast(u.b, u.b.constant(std::move(t)), u.b.dtype(u.in(0))));
  }
  u.becomes(y);
}
void crop(const Upgrade& u) { // border: left, top, right, bottom; scale: height and width of the result
  Ints border = u.attr().ints("border"), size = u.attr().ints("scale");
  SymShape shape = u.b.shape(u.in(0));
  if (border.size() != 4 || (!size.empty() && size.size() != 2) || shape.size() != 4)
    return u.b.fail(ErrorCode::BadAttribute, "Crop takes images [N, C, H, W], four borders, and no or two sizes");
  SymExpr height = size.empty() ? shape[2] - border[1] - border[3] : SymExpr(size[0]);
  SymExpr width = size.empty() ? shape[3] - border[0] - border[2] : SymExpr(size[1]);
  u.becomes(slice(u.b, slice(u.b, u.in(0), 2, border[1], height), 3, border[0], width));
}

struct Row {
  std::vector<std::string_view> op_types; // none: every operator
  int since, until;                       // versions that have the old form
  int becomes;                            // version of the form made; 0: as it was
  std::function<void(const Upgrade&)> apply;
  std::string_view op_type = ""; // name of the form made, where that differs
  Attributes example = {};       // that an operator without a record needs
};
auto without(std::string_view attribute) {
  return [attribute](const Upgrade& u) { u.drop(attribute); };
}
auto renamed(std::string_view from, std::string_view to) {
  return [from, to](const Upgrade& u) { u.rename(from, to); };
}
auto with_default(std::string_view attribute, int64_t value) {
  return [attribute, value](const Upgrade& u) {
    if (!u.attr().has(attribute)) u.form.attributes.set(attribute, value);
  };
}
void same(const Upgrade&) {}

const std::vector<Row>& table() {
  static const std::vector<Row> rows = {
      {{}, 1, 5, 0, without("consumed_inputs")},
      {{"Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less"}, 1, 6, 7, broadcast},
      {{"BatchNormalization"}, 1, 13, 0, batch_results},
      {{"BatchNormalization"}, 1, 8, 9, batch_spatial},
      {{"Cast"}, 1, 5, 6, cast_by_name},
      {{"Concat"}, 1, 3, 4, with_default("axis", 1)},
      {{"Dropout"}, 1, 6, 7, dropout},
      {{"Gemm"}, 1, 6, 7, without("broadcast")},
      {{"GlobalLpPool", "LpPool"}, 1, 1, 2, whole_norm},
      {{"MeanVarianceNormalization"}, 1, 8, 9, mean_variance},
      {{"PRelu"}, 1, 6, 7, channel_slope},
      {{"Pad"}, 1, 1, 2, renamed("paddings", "pads")},
      {{"RNN", "GRU", "LSTM"}, 1, 6, 7, without("output_sequence")},
      {{"Reshape"}, 1, 4, 5, reshape_by_attribute},
      {{"Split"}, 1, 1, 2, same},
      {{"Tile"}, 1, 5, 6, tile_one_axis},
      {{"Upsample"}, 1, 6, 7, upsample_images},
      // Experimental ones, which left the standard with opset 10.
      {{"ThresholdedRelu"}, 1, 9, 10, same},
      {{"Affine"}, 1, 9, 0, affine},
      {{"Crop"}, 1, 9, 0, crop, "", {{"border", Ints{1, 1, 1, 1}}}},
      {{"DynamicSlice"}, 1, 9, 10, same, "Slice"},
      {{"ImageScaler"}, 1, 9, 0, image_scaler},
      {{"ParametricSoftplus"}, 1, 9, 0, parametric_softplus},
      {{"Scale"}, 1, 9, 0, scale},
      {{"ScaledTanh"}, 1, 9, 0, scaled_tanh},
  };
  return rows;
}

bool is_for(const Row& row, std::string_view op_type, int opset) {
  return row.since <= opset && opset <= row.until &&
         (row.op_types.empty() || std::find(row.op_types.begin(), row.op_types.end(), op_type) != row.op_types.end());
}

} // namespace

bool has_old_form(std::string_view op_type, int opset) {
  return std::any_of(table().begin(), table().end(), [&](const Row& row) { return is_for(row, op_type, opset); });
}

Status upgrade(Graph& graph, OperatorForm& form, std::vector<std::string>& warnings) {
  const int written = form.opset;
  const std::string op_type = form.op_type;
  Node node; // for places of errors and of what is made
  node.location = form.where;
  B b(graph, node);
  for (const Row& row : table()) {
    if (!is_for(row, op_type, written) || form.value) continue;
    row.apply(Upgrade{b, form, warnings});
    if (!b.ok()) return b.failed().error();
    if (row.becomes != 0) form.opset = row.becomes;
    if (!row.op_type.empty()) form.op_type = row.op_type;
  }
  return {};
}

std::vector<OldForm> old_forms() {
  std::vector<OldForm> out;
  for (const Row& row : table())
    for (std::string_view op_type : row.op_types)
      out.push_back({op_type, row.since, row.until, row.op_type.empty() ? op_type : row.op_type, row.becomes});
  return out;
}

Result<Graph> old_form_example(std::string_view op_type) {
  for (const Row& row : table()) {
    if (row.becomes != 0 || !is_for(row, op_type, row.since) || row.op_types.empty()) continue;
    Graph graph("example");
    const ValueId image = graph.add_input("x", {DType::F32, {1, 3, 4, 6}});
    OperatorForm form{std::string(op_type), row.until, {image}, row.example, {}};
    std::vector<std::string> warnings;
    TESSERA_TRY(upgrade(graph, form, warnings));
    if (!form.value) break;
    graph.add_output("y", *form.value);
    return graph;
  }
  return Diagnostic(ErrorCode::UnsupportedOp, "'" + std::string(op_type) + "' has no form without a record");
}

} // namespace tessera::onnx
