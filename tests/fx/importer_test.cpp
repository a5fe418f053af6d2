// The importer of programs: promotion, views, writes in place, symbols and their ranges, and what it says of what it
// cannot read. Values are those that PyTorch computes.
#include "frontend/fx/program.h"
#include "frontend/fx/symbols.h"
#include "graph/reference/evaluator.h"
#include "program_maker.h"
#include <gtest/gtest.h>

namespace tessera::fx_test {
namespace {

using Inputs = std::map<std::string, Tensor>;

std::string error_of(std::string_view text, const ImportOptions& options = {}) {
  auto model = fx::import_program(program(text), options);
  return model.ok() ? "no error" : model.error().str();
}

// Types of operands, an operator, and the result's type by torch.result_type: the importer compares it with its own.
TEST(Importer, PromotesAsPyTorch) {
  struct Case {
    const char *a, *b, *op, *result; // b: a type, or a number
  };
  const Case cases[] = {
      {"f16[2]", "f32[2]", "add.Tensor", "f32[2]"},    {"f16[2]", "bf16[2]", "add.Tensor", "f32[2]"},
      {"f16[2]", "f32[]", "add.Tensor", "f16[2]"},     {"i64[2]", "f16[]", "mul.Tensor", "f16[2]"},
      {"i8[2]", "u8[2]", "add.Tensor", "i16[2]"},      {"i32[2]", "i64[]", "sub.Tensor", "i32[2]"},
      {"i64[]", "i32[2]", "add.Tensor", "i32[2]"},     {"bool[2]", "i32[]", "add.Tensor", "i32[2]"},
      {"bool[2]", "1", "add.Tensor", "i64[2]"},        {"i32[2]", "1.5", "add.Tensor", "f32[2]"},
      {"f16[2]", "2", "mul.Tensor", "f16[2]"},         {"u8[2]", "-1", "add.Tensor", "u8[2]"},
      {"i32[2]", "i32[2]", "div.Tensor", "f32[2]"},    {"i64[2]", "2", "div.Tensor", "f32[2]"},
      {"f64[]", "f32[2]", "div.Tensor", "f32[2]"},     {"i32[2]", "2.0", "gt.Scalar", "bool[2]"},
      {"i64[2]", "2", "bitwise_and.Scalar", "i64[2]"}, {"i32[2]", "f32[2]", "pow.Tensor_Tensor", "f32[2]"},
  };
  for (const Case& c : cases) {
    const bool number = std::string_view(c.b).find('[') == std::string_view::npos;
    const std::string op(c.op);
    const bool exponent = op.starts_with("pow");
    std::string text = std::string("input a: ") + c.a + "\n";
    if (!number) text += std::string("input b: ") + c.b + "\n";
    text += std::string("y: ") + c.result + " = " + op + "(self=a, " + (exponent ? "exponent=" : "other=") +
            (number ? c.b : "b") + ")\nreturn y\n";
    EXPECT_EQ(error_of(text), "no error") << text;
  }
}

TEST(Importer, ComputesAsPyTorch) {
  struct Case {
    const char* text;
    Inputs inputs;
    const char* expected;
  };
  const Tensor x23 = range({2, 3}), x4 = range({4});
  const Case cases[] = {
      // arguments that are left out take the schema's default
      {"input x: f32[2, 3]\ny: f32[2] = sum.dim_IntList(self=x, dim=[1])\nreturn y",
       {{"x", x23}},
       "y=f32[2]{3.0, 12.0}"},
      {"input x: f32[4]\ny: f32[4] = add.Tensor(self=x, other=1, alpha=3)\nreturn y",
       {{"x", x4}},
       "y=f32[4]{3.0, 4.0, 5.0, 6.0}"},
      // results that nobody reads, and lists of results
      {"input x: f32[4]\na: f32[2], b: f32[2] = split.Tensor(self=x, split_size=2)\nreturn b",
       {{"x", x4}},
       "b=f32[2]{2.0, 3.0}"},
  };
  for (const Case& c : cases) EXPECT_EQ(results(c.text, c.inputs), c.expected) << c.text;
}

// Products of 8-bit floats with a scale of each row and column, or of the tensors.
TEST(Importer, ScaledProducts) {
  auto text = [](const std::string& s, const std::string& t, const std::string& right = "f8e4m3fn") {
    return "input a: f8e4m3fn[2, 3]\ninput b: " + right + "[3, 2]\ninput s: f32" + s + "\ninput t: f32" + t +
           "\ninput c: bf16[2]\ny: bf16[2, 2] = _scaled_mm.default(self=a, mat2=b, scale_a=s, scale_b=t, bias=c, "
           "out_dtype=bf16)\nreturn y";
  };
  auto inputs = [](Dims s, Dims t, DType right = DType::F8E4M3FN) {
    return Inputs{{"a", range({2, 3}, 0, DType::F8E4M3FN)},
                  {"b", range({3, 2}, 0, right)},
                  {"s", range(std::move(s), 1)},
                  {"t", range(std::move(t), 1)},
                  {"c", range({2}, 0, DType::BF16)}};
  };
  EXPECT_EQ(results(text("[2, 1]", "[1, 2]"), inputs({2, 1}, {1, 2})), "y=bf16[2, 2]{10.0, 27.0, 56.0, 161.0}");
  EXPECT_EQ(results(text("[]", "[1, 1]", "f8e5m2"), inputs({}, {1, 1}, DType::F8E5M2)),
            "y=bf16[2, 2]{10.0, 14.0, 28.0, 41.0}");
  EXPECT_NE(error_of(text("[2, 3]", "[1, 2]")).find("a scale of blocks"), std::string::npos);
}

TEST(Importer, ViewsAndStrides) {
  struct Case {
    const char *type, *call, *expected; // the result's type, the call on x: f32[2, 3] = 0 .. 5
  };
  const Case cases[] = {
      {"f32[3, 2] strides [1, 3]", "t.default(self=x)", "y=f32[3, 2]{0.0, 3.0, 1.0, 4.0, 2.0, 5.0}"},
      {"f32[2]", "select.int(self=x, dim=1, index=-1)", "y=f32[2]{2.0, 5.0}"},
      {"f32[2, 2]", "slice.Tensor(self=x, dim=1, start=0, end=9223372036854775807, step=2)",
       "y=f32[2, 2]{0.0, 2.0, 3.0, 5.0}"},
      {"f32[2, 2]", "as_strided.default(self=x, size=[2, 2], stride=[1, 2], storage_offset=1)",
       "y=f32[2, 2]{1.0, 3.0, 2.0, 4.0}"},
      {"f32[2]", "diagonal.default(self=x, offset=1)", "y=f32[2]{1.0, 5.0}"},
      {"f32[2, 2, 2]", "unfold.default(self=x, dimension=1, size=2, step=1)",
       "y=f32[2, 2, 2]{0.0, 1.0, 1.0, 2.0, 3.0, 4.0, 4.0, 5.0}"},
      {"f32[2, 2, 3]", "expand.default(self=x, size=[2, -1, -1])",
       "y=f32[2, 2, 3]{0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0}"},
      {"f32[3, 2]", "view.default(self=x, size=[-1, 2])", "y=f32[3, 2]{0.0, 1.0, 2.0, 3.0, 4.0, 5.0}"},
      {"f32[2, 1, 3]", "unsqueeze.default(self=x, dim=-2)", "y=f32[2, 1, 3]{0.0, 1.0, 2.0, 3.0, 4.0, 5.0}"},
  };
  for (const Case& c : cases) {
    const std::string text = std::string("input x: f32[2, 3]\ny: ") + c.type + " = " + c.call + "\nreturn y";
    EXPECT_EQ(results(text, {{"x", range({2, 3})}}), c.expected) << text;
  }
}

// The graph's inputs and outputs have their dimensions in the order of memory where the program's are `strided`.
TEST(Importer, StridedInputsAreTransposes) {
  ProgramSource source = program("s in [2, 64]\n"
                                 "input x: f32[s, 8, 4] strides [32, 1, 8]\n"
                                 "input gap: f32[2, 3] strides [4, 1]\n"
                                 "y: f32[s, 8, 4] strides [32, 1, 8] = relu.default(self=x)\n"
                                 "z: f32[2, 3] = neg.default(self=gap)\n"
                                 "return y, z");
  for (const bool strided : {false, true}) {
    source.strided = strided;
    auto model = fx::import_program(source);
    ASSERT_TRUE(model.ok()) << model.error().str();
    const Graph& g = model->graph;
    const char* expected = strided ? "f32[s, 4, 8]" : "f32[s, 8, 4]";
    EXPECT_EQ(g.type(g.inputs()[0]).str(), expected);
    EXPECT_EQ(g.type(g.outputs()[0].value).str(), expected);
    EXPECT_EQ(g.type(g.inputs()[1]).str(), "f32[2, 3]"); // no permutation of contiguous strides
  }
}

TEST(Importer, WritesInPlace) {
  struct Case {
    const char *text, *expected; // x: f32[2, 3] = 0 .. 5
  };
  const Case cases[] = {
      // Through a view; another view of the same memory shows it, a copy does not.
      {"row: f32[3] = select.int(self=x, dim=0, index=1)\n"
       "kept: f32[2, 3] = clone.default(self=x)\n"
       "other: f32[2] = select.int(self=x, dim=1, index=0)\n"
       "w: f32[3] = add_.Tensor(self=row, other=10)\n"
       "y: f32[2] = neg.default(self=other)\n"
       "return y, kept",
       "y=f32[2]{-0.0, -13.0} kept=f32[2, 3]{0.0, 1.0, 2.0, 3.0, 4.0, 5.0} x=f32[2, 3]{0.0, 1.0, 2.0, 13.0, 14.0, "
       "15.0}"},
      // A view of a view, read by the name of what the write returned.
      {"part: f32[2, 2] = slice.Tensor(self=x, dim=1, start=1)\n"
       "turned: f32[2, 2] strides [1, 3] offset 1 = t.default(self=part)\n"
       "w: f32[2, 2] strides [1, 3] offset 1 = zero_.default(self=turned)\n"
       "y: f32[2, 2] = add.Tensor(self=w, other=1)\n"
       "return y",
       "y=f32[2, 2]{1.0, 1.0, 1.0, 1.0} x=f32[2, 3]{0.0, 0.0, 0.0, 3.0, 0.0, 0.0}"},
      // Memory keeps its element type; a scalar fills.
      {"c: f32[2, 3] = clone.default(self=x)\n"
       "w: f32[2, 3] = fill_.Scalar(self=c, value=7)\n"
       "y: f32[2, 3] = add.Tensor(self=w, other=x)\n"
       "return y",
       "y=f32[2, 3]{7.0, 8.0, 9.0, 10.0, 11.0, 12.0}"},
      // A slice of a buffer takes values; the signature says it.
      {"buffer b: f32[2, 3]\n"
       "head: f32[1, 3] = slice.Tensor(self=b, dim=0, start=0, end=1)\n"
       "from: f32[1, 3] offset 3 = slice.Tensor(self=x, dim=0, start=1, end=2)\n"
       "w: f32[1, 3] = copy_.default(self=head, src=from)\n"
       "y: f32[2, 3] = neg.default(self=b)\n"
       "return y\nmutates b = b",
       "y=f32[2, 3]{-3.0, -4.0, -5.0, -2.0, -3.0, -4.0} b=f32[2, 3]{3.0, 4.0, 5.0, 2.0, 3.0, 4.0}"},
      // Functionalised: the new value of an input is a result of its own.
      {"y: f32[2, 3] = mul.Tensor(self=x, other=2)\nz: f32[2, 3] = neg.default(self=y)\nreturn z\nmutates x = y",
       "z=f32[2, 3]{-0.0, -2.0, -4.0, -6.0, -8.0, -10.0} x=f32[2, 3]{0.0, 2.0, 4.0, 6.0, 8.0, 10.0}"},
  };
  for (const Case& c : cases) {
    const std::string text = std::string("input x: f32[2, 3]\n") + c.text;
    EXPECT_EQ(results(text, {{"x", range({2, 3})}}), c.expected) << text;
  }
}

// Operators whose schemas say nothing of their writes, and in-place ones whose arguments have other names.
TEST(Importer, WritesThatNoSchemaTells) {
  const std::string text =
      "input x: f32[2, 1]\nbuffer m: f32[1]\nbuffer v: f32[1]\nweight w: f32[1]\n"
      "y: f32[2, 1] = batch_norm.default(input=x, weight=None, bias=None, running_mean=m, running_var=v, "
      "training=True, momentum=0.5, eps=0.0, cudnn_enabled=False)\n"
      "d: f32[2, 1] = dropout_.default(self=y, p=0.5, train=False)\n"
      "return d";
  // The batch's mean is 3, its unbiased variance 2; both statistics were -1.
  EXPECT_EQ(results(text, {{"x", Tensor::of<double>(DType::F32, {2, 1}, std::vector<double>{2, 4})}}),
            "d=f32[2, 1]{-1.0, 1.0} m=f32[1]{1.0} v=f32[1]{0.5}");
  auto model = fx::import_program(program(text));
  EXPECT_TRUE(model->warnings.empty());
  ASSERT_EQ(model->states.size(), 2u);
  EXPECT_EQ(model->states[0].name, "m");
  EXPECT_EQ(show(model->states[1].first), "f32[1]{-1.0}");
}

// A tensor that is changed in place is no constant for the nodes before the write: the graph is made with it as an
// input.
TEST(Importer, StatesAreTheLastInputsAndOutputs) {
  const std::string text = "buffer at: i64[1]\nbuffer table: f32[4]\nbuffer fixed: f32[4]\ninput x: f32[1]\n"
                           "t: f32[1] = index_select.default(self=fixed, dim=0, index=at)\n"
                           "w: f32[4] = index_copy_.default(self=table, dim=0, index=at, source=x)\n"
                           "n: i64[1] = add_.Tensor(self=at, other=1)\n"
                           "y: f32[4] = mul.Tensor(self=table, other=2)\n"
                           "return t, y";
  auto model = fx::import_program(program(text));
  ASSERT_TRUE(model.ok()) << model.error().str();
  const Graph& g = model->graph;
  std::string names;
  for (const ValueId v : g.inputs()) names += g.value(v).name + " ";
  for (const auto& o : g.outputs()) names += "-> " + o.name + " ";
  EXPECT_EQ(names, "x at table -> t -> y -> at -> table ");
  EXPECT_EQ(g.type(g.inputs()[1]).str(), "i64[1]");
}

// A call of a region with a graph of its own: {mul = x * 2; return mul} under `target`, whose first argument is `mode`.
ProgramSource with_region(const std::string& target, const std::vector<nlohmann::ordered_json>& mode) {
  using Json = nlohmann::ordered_json;
  ProgramSource source = program("input x: f32[2]\nmul: f32[2] = mul.Tensor(self=x, other=3)\n"
                                 "out: f32[2] = alias.default(self=mul)\nreturn out, mul");
  Json p = Json::parse(source.json);
  Json& graph = p["graph_module"]["graph"];
  Json region = graph;
  region["nodes"].erase(1);
  region["nodes"][0]["inputs"][1]["arg"] = {{"as_int", 2}};
  region["outputs"] = Json::array({{{"as_tensor", {{"name", "mul"}}}}});
  Json inputs = Json::array();
  auto add = [&](const Json& arg) { inputs.push_back({{"name", ""}, {"arg", arg}, {"kind", 1}}); };
  for (const Json& m : mode) add(m);
  add({{"as_graph", {{"name", "region"}, {"graph", region}}}});
  add({{"as_tensor", {{"name", "mul"}}}});
  graph["nodes"][1]["target"] = "torch.ops.higher_order." + target;
  graph["nodes"][1]["inputs"] = inputs;
  graph["nodes"][1]["metadata"] = Json::object();
  source.json = p.dump();
  return source;
}

TEST(Importer, RegionsWithoutGradientsAreInlined) {
  const nlohmann::ordered_json off = {{"as_bool", false}}, on = {{"as_bool", true}}, cpu = {{"as_string", "cpu"}},
                               bf16 = {{"as_scalar_type", 13}};
  for (const auto& source :
       {with_region("wrap_with_set_grad_enabled", {off}), with_region("wrap_with_autocast", {cpu, bf16, off, off})}) {
    auto model = fx::import_program(source);
    ASSERT_TRUE(model.ok()) << model.error().str();
    auto out = evaluate_graph(model->graph, {{"x", range({2}, 1)}});
    ASSERT_TRUE(out.ok()) << out.error().str();
    EXPECT_EQ(show((*out)[0]), "f32[2]{6.0, 12.0}"); // both values named 'mul' are there
    EXPECT_EQ(show((*out)[1]), "f32[2]{3.0, 6.0}");
    EXPECT_EQ(model->graph.outputs()[0].name, "out");
  }
  auto error = [](const ProgramSource& source) { return fx::import_program(source).error().str(); };
  const std::string autocast = error(with_region("wrap_with_autocast", {cpu, bf16, on, off}));
  EXPECT_NE(autocast.find("(higher_order.wrap_with_autocast, output 'out', net.py:10)"), std::string::npos) << autocast;
  EXPECT_NE(autocast.find("run_decompositions()"), std::string::npos) << autocast;
  EXPECT_NE(error(with_region("associative_scan", {off})).find("run under a condition"), std::string::npos);
}

// A call of a control operator on `x` f32[2] in the place of the program's one node, which yields `out`. Each graph is
// the text of a program; behind them stand lists of values.
ProgramSource with_control(std::string_view text, const std::string& target, std::optional<bool> condition,
                           std::initializer_list<std::string_view> graphs,
                           const std::vector<std::vector<std::string>>& lists) {
  using Json = nlohmann::json;
  ProgramSource source = program(text);
  Json p = Json::parse(source.json);
  Json inputs = Json::array();
  auto add = [&](const char* kind, const Json& value) {
    const Json arg = Json::object({{kind, value}});
    inputs.push_back({{"name", ""}, {"arg", arg}, {"kind", 1}});
  };
  if (condition) add("as_bool", *condition);
  for (std::string_view graph : graphs) {
    const Json inner = Json::parse(program(graph).json);
    add("as_graph", Json::object({{"name", "g"}, {"graph", inner["graph_module"]["graph"]}}));
  }
  for (const auto& list : lists) {
    Json tensors = Json::array();
    for (const std::string& name : list) tensors.push_back(Json::object({{"name", name}}));
    add("as_tensors", tensors);
  }
  Json& node = p["graph_module"]["graph"]["nodes"].back();
  node["target"] = "torch.ops.higher_order." + target;
  node["inputs"] = inputs;
  source.json = p.dump();
  return source;
}

std::string results_of(const ProgramSource& source, const std::map<std::string, Tensor>& inputs) {
  auto model = fx::import_program(source);
  if (!model.ok()) return model.error().str();
  auto out = evaluate_graph(model->graph, inputs);
  if (!out.ok()) return out.error().str();
  std::string text;
  for (const Tensor& t : *out) text += (text.empty() ? "" : " ") + show(t);
  return text;
}

TEST(Importer, ControlOperators) {
  constexpr std::string_view kText = "s in [1, 8]\ninput x: f32[s, 2]\nweight w: f32[2]\n";
  const std::string yields_one = std::string(kText) + "out: f32[s, 2] = alias.default(self=x)\nreturn out";
  // Both branches take x and w; names within them are their own.
  constexpr std::string_view kTwice = "s in [1, 8]\ninput x: f32[s, 2]\ninput w: f32[2]\n"
                                      "out: f32[s, 2] = mul.Tensor(self=x, other=2)\nreturn out",
                             kPlus = "s in [1, 8]\ninput x: f32[s, 2]\ninput w: f32[2]\n"
                                     "out: f32[s, 2] = add.Tensor(self=x, other=w)\nreturn out";
  const std::vector<std::vector<std::string>> both = {{"x", "w"}};
  auto branch = [&](bool condition) {
    return results_of(with_control(yields_one, "cond", condition, {kTwice, kPlus}, both), {{"x", range({1, 2}, 1)}});
  };
  EXPECT_EQ(branch(true), "f32[1, 2]{2.0, 4.0}");
  EXPECT_EQ(branch(false), "f32[1, 2]{0.0, 2.0}");

  constexpr std::string_view kSmall =
      "s in [1, 8]\ninput x: f32[s, 2]\ninput w: f32[2]\ny: f32[] = sum.default(self=x)\n"
      "out: bool[] = lt.Scalar(self=y, other=20)\nreturn out";
  auto loop = with_control(yields_one, "while_loop", {}, {kSmall, kTwice}, {{"x"}, {"w"}});
  EXPECT_EQ(results_of(loop, {{"x", range({1, 2}, 1)}}), "f32[1, 2]{8.0, 16.0}");
  EXPECT_EQ(results_of(loop, {{"x", range({1, 2}, 50)}}), "f32[1, 2]{50.0, 51.0}"); // not once

  constexpr std::string_view kStep = "input h: f32[2]\ninput x: f32[2]\nnext: f32[2] = add.Tensor(self=h, other=x)\n"
                                     "row: f32[2] = mul.Tensor(self=next, other=10)\nreturn next, row";
  auto scan = with_control(std::string(kText) + "h: f32[2], rows: f32[s, 2] = alias.default(self=x)\nreturn h, rows",
                           "scan", {}, {kStep}, {{"w"}, {"x"}, {}});
  EXPECT_EQ(results_of(scan, {{"x", range({2, 2}, 1)}}), "f32[2]{3.0, 6.0} f32[2, 2]{0.0, 20.0, 30.0, 60.0}");

  // An error names the call, or the node within the graph.
  auto error = [](const ProgramSource& source) { return fx::import_program(source).error().str(); };
  const std::string few = error(with_control(yields_one, "while_loop", {}, {kSmall, kTwice}, {{"x"}}));
  EXPECT_NE(few.find("gives 1 values to a graph that takes 2"), std::string::npos) << few;
  const std::string one = error(with_control(yields_one, "cond", true, {kTwice}, both));
  EXPECT_NE(one.find("of which 1 are graphs in their place"), std::string::npos) << one;
  constexpr std::string_view kWrites = "s in [1, 8]\ninput x: f32[s, 2]\ninput w: f32[2]\n"
                                       "out: f32[s, 2] = add_.Tensor(self=x, other=1)\nreturn out";
  const std::string writes = error(with_control(yields_one, "cond", true, {kTwice, kWrites}, both));
  EXPECT_NE(writes.find("writes to its operand 'x' in place"), std::string::npos) << writes;
  constexpr std::string_view kRandom = "s in [1, 8]\ninput x: f32[s, 2]\ninput w: f32[2]\n"
                                       "out: f32[s, 2] = rand_like.default(self=x)\nreturn out";
  const std::string random = error(with_control(yields_one, "cond", true, {kTwice, kRandom}, both));
  EXPECT_NE(random.find("operator 'aten.rand_like.default' is not supported"), std::string::npos) << random;
}

// Damaged programs: lists that are too short for the operator are errors, whatever reads them.
TEST(Importer, ArgumentsThatAreTooShort) {
  const char* const calls[] = {
      "y: f32[2] = adaptive_avg_pool2d.default(self=x, output_size=[2, 2])",
      "y: f32[2] = conv2d.default(input=x, weight=x)",
      "y: f32[2] = softmax.int(self=x, dim=4)",
      "y: f32[2] = pixel_shuffle.default(self=x, upscale_factor=2)",
      "y: f32[2] = avg_pool2d.default(self=x, kernel_size=[0, 0])",
      "y: f32[2] = permute.default(self=x, dims=[])",
  };
  for (const char* call : calls) {
    const std::string said = error_of(std::string("input x: f32[2]\n") + call + "\nreturn y");
    EXPECT_EQ(said.find("error TES-"), 0u) << call << "\n" << said;
    EXPECT_NE(said.find("body.0.y"), std::string::npos) << said;
  }
}

TEST(Importer, WritesThatCannotBeFollowed) {
  EXPECT_NE(error_of("input x: f32[2, 3]\n"
                     "t: f32[3, 2] strides [1, 3] = t.default(self=x)\n"
                     "r: f32[6] = reshape.default(self=t, shape=[6])\n"
                     "w: f32[6] = add_.Tensor(self=r, other=1)\nreturn w")
                .find("whether it shares memory with 't' is not known"),
            std::string::npos);
  EXPECT_NE(error_of("input x: f32[2, 3]\nw: f32[3, 2] = t_.default(self=x)\nreturn w")
                .find("changes the shape of a tensor in place"),
            std::string::npos);
}

TEST(Importer, RangesOfSymbolsBindInputs) {
  constexpr std::string_view text =
      "s in [2, 64]\nt in [0, ?]\n"
      "input x: f32[s, 4]\ninput k: f32[8*t]\n"
      "y: f32[s, 4] = relu.default(self=x)\nz: f32[8*t] = neg.default(self=k)\nreturn y, z";
  const Graph g = imported(text);
  EXPECT_EQ(g.env().range(g.type(g.inputs()[0]).shape[0]), (SymRange{2, 64}));
  EXPECT_EQ(g.env().divisor(g.type(g.inputs()[1]).shape[0]), 8);
  auto said = [&](Dims x, Dims k) { return results(text, {{"x", range(std::move(x))}, {"k", range(std::move(k))}}); };
  EXPECT_EQ(said({2, 4}, {8}).find("error"), std::string::npos) << said({2, 4}, {8});
  EXPECT_NE(said({65, 4}, {8}).find("65"), std::string::npos) << said({65, 4}, {8});
  EXPECT_NE(said({1, 4}, {8}).find("error"), std::string::npos);
  EXPECT_NE(said({2, 4}, {9}).find("error"), std::string::npos);
  EXPECT_NE(said({2, 5}, {8}).find("dimension 1 of input 'x' must be 4, not 5"), std::string::npos);
  // Sizes that are given become constants; a contradiction is an error.
  ImportOptions options;
  options.dim_values["s"] = 3;
  auto fixed = fx::import_program(program(text), options);
  ASSERT_TRUE(fixed.ok()) << fixed.error().str();
  EXPECT_EQ(fixed->graph.type(fixed->graph.inputs()[0]).str(), "f32[3, 4]");
  options.dim_values.clear();
  options.input_shapes["x"] = {3, 5};
  EXPECT_NE(error_of(text, options).find("'x'"), std::string::npos);
  options.input_shapes["x"] = {3};
  EXPECT_NE(error_of(text, options).find("input 'x' has rank 2, and the rank given is 1"), std::string::npos);
  EXPECT_NE(
      error_of("s in [9, 3]\ninput x: f32[s]\ny: f32[s] = relu.default(self=x)\nreturn y").find("empty range [9, 3]"),
      std::string::npos);
}

// A dimension of size 1 that squeeze leaves, because it was another one when the program was captured, would be gone in
// PyTorch.
TEST(Importer, SqueezeRefusesSizesOfAnotherRank) {
  constexpr std::string_view text = "s in [0, ?]\ninput x: f32[s, 1, 3]\n"
                                    "y: f32[s, 3] = squeeze.dims(self=x, dim=[0, 1])\nreturn y";
  EXPECT_EQ(results(text, {{"x", range({2, 1, 3})}}), "y=f32[2, 3]{0.0, 1.0, 2.0, 3.0, 4.0, 5.0}");
  EXPECT_EQ(results(text, {{"x", range({0, 1, 3})}}), "y=f32[0, 3]{}");
  const std::string said = results(text, {{"x", range({1, 1, 3})}});
  EXPECT_NE(said.find("squeeze keeps a dimension that is not 1"), std::string::npos) << said;
}

TEST(Importer, SizesAreValues) {
  EXPECT_EQ(results("s in [1, ?]\ninput x: f32[s, 2]\n"
                    "n = sym_size.int(self=x, dim=0) : s\n"
                    "twice = _operator.mul(a=n, b=2) : 2*s\n"
                    "half = _operator.floordiv(a=n, b=2) : s//2\n"
                    "flat: f32[2*s] = view.default(self=x, size=[twice])\n"
                    "y: f32[s] = arange.default(end=n, dtype=f32)\n"
                    "return flat, y, twice, half",
                    {{"x", range({3, 2})}}),
            "flat=f32[6]{0.0, 1.0, 2.0, 3.0, 4.0, 5.0} y=f32[3]{0.0, 1.0, 2.0} twice=i64[]{6} half=i64[]{1}");
  // A size that is an input.
  EXPECT_EQ(results("s in [1, 9]\ninput n = s\ninput x: f32[s]\ny: f32[s] = mul.Tensor(self=x, other=n)\nreturn y",
                    {{"x", range({3})}, {"n", range({3}, 0, DType::Bool)}}),
            "y=f32[3]{0.0, 3.0, 6.0}");
  // A size that values decide.
  EXPECT_EQ(results("u in [0, ?]\ninput x: f32[4]\n"
                    "i: i64[u, 1] = nonzero.default(self=x)\n"
                    "y: f32[u, 1] = index.Tensor(self=x, indices=[i])\nreturn y",
                    {{"x", range({4}, -1)}}),
            "y=f32[3, 1]{-1.0, 1.0, 2.0}");
}

TEST(Importer, ExpressionsOfSympy) {
  struct Case {
    const char *text, *expected; // expected: the size, or a part of the error
  };
  const Case cases[] = {
      {"Mul(Integer(2), Symbol('a', positive=True, integer=True))", "2*a"},
      {"Add(Integer(-1), Symbol('a'), Mul(Integer(3), Symbol('b')))", "a + 3*b - 1"},
      {"Add(Mul(Integer(-1), Symbol('a')), Integer(7))", "-a + 7"},
      {"FloorDiv(Add(Symbol('a'), Integer(1)), Integer(2))", "floordiv(a + 1, 2)"},
      {"torch.utils._sympy.functions.FloorDiv(Symbol('a'), Integer(2))", "floordiv(a, 2)"},
      {"Mod(Symbol('a'), Integer(8))", "mod(a, 8)"},
      {"Pow(Symbol('a'), Integer(2))", "a*a"},
      {"Max(Integer(1), Symbol('a'))", "max(a, 1)"},
      {"Min(Symbol('a'), Symbol('b'), Integer(4))", "min"},
      {"CeilToInt(IntTrueDiv(Symbol('a'), Integer(2)))", "floordiv(a + 1, 2)"},
      {"TruncToInt(Mul(Float('0.5', precision=53), ToFloat(Symbol('a'))))", "floordiv(a, 2)"},
      {"42", "42"},
      {"Rational(1, 3)", "calls 'Rational' of 2 arguments"},
      {"FloorDiv(Symbol('a'), Integer(0))", "divides by 0"},
      {"Pow(Symbol('a'), Symbol('b'))", "a power that is no constant"},
      {"sin(Symbol('a'))", "calls 'sin' of 1 arguments"},
      {"Integer(99999999999999999999)", "where a 64-bit integer is expected"},
      {"Symbol('a", "whose name does not end"},
      {"Add(Integer(1)", "misses a closing parenthesis"},
      {"Add(Integer(1)) x", "has more after its end"},
      {"", "is no expression of sympy"},
  };
  ShapeEnv env;
  fx::Program program;
  ImportOptions options;
  fx::SymbolTable table(env, program, options, "model.pt2");
  for (const Case& c : cases) {
    auto e = table.read_expression(c.text);
    const std::string said = e.ok() ? e->str() : e.error().str();
    EXPECT_NE(said.find(c.expected), std::string::npos) << c.text << ": " << said;
    EXPECT_TRUE(e.ok() || said.find("model.pt2") != std::string::npos) << said;
  }
}

// One error: file, node by its module, operator, the user's line; what is wrong, and what to do where it is known.
TEST(Importer, ErrorsNamePlaces) {
  EXPECT_EQ(error_of("input x: f32[2]\ny: f32[2] = my.op.default(x=x)\nreturn y"),
            "error TES-2001 unsupported-op: program: node 'body.0.y' (my.op.default, output 'y', net.py:10): operator "
            "'my.op.default' is not supported\n");
  struct Case {
    const char *text, *part;
  };
  const Case cases[] = {
      {"y: f32[3] = relu.default(self=x)\nreturn y", "'y' is f32[2] here, and the program says dimension 0 is 3"},
      {"y: f16[2] = alias.default(self=x)\nreturn y",
       "'y' is f32[2] here, and the program says its element type is float16"},
      {"y: f32[2, 1] = relu.default(self=x)\nreturn y", "the program says its rank is 2"},
      {"y: f32[2] = relu.default(self=nothing)\nreturn y", "reads 'nothing', which nothing defines"},
      {"y: f32[2] = neg.default(self=None)\nreturn y", "argument 'self' is None, expected a number"},
      {"y: f32[2] = softmax.int(self=x, dim=x)\nreturn y", "argument 'dim' is a tensor, expected an integer"},
      {"y: f32[2] = softmax.int(self=x, dim=4)\nreturn y", "axis 4 is not in [-1, 1)"},
      {"y: f32[2] = add.Tensor(self=x)\nreturn y", "argument 'other' is None, expected a number"},
      {"a: f32[2, 1] = unsqueeze.default(self=x, dim=1)\ny: f32[2, 2] = mm.default(self=a, mat2=a)\nreturn y",
       "net.py:11"},
      {"y: complex32[2] = relu.default(self=x)\nreturn y", "complex32"},
      {"return x, None", "no error"},
      {"y: f32[2] = relu.default(self=x)\nreturn None", "the program has no output that is a tensor"},
      {"input q: complex32[2]\ny: f32[2] = relu.default(self=x)\nreturn y",
       "'q' has element type complex32, which is not supported"},
  };
  for (const Case& c : cases) {
    const std::string text = std::string("input x: f32[2]\n") + c.text;
    const std::string said = error_of(text);
    EXPECT_NE(said.find(c.part), std::string::npos) << text << "\n" << said;
  }
}

// Nodes have the module and the line; the graph is as short as the program.
TEST(Importer, GraphOfASmallProgram) {
  EXPECT_EQ(print(imported("s in [1, 64]\n"
                           "input x: f32[s, 4]\nweight w: f32[3, 4]\nweight b: f32[3]\n"
                           "h: f32[s, 3] = linear.default(input=x, weight=w, bias=b)\n"
                           "y: f32[s, 3] = relu.default(self=h)\nreturn y")),
            R"(graph @main(%x: f32[s, 4]) -> (%y: f32[s, 3]) where s in [1, 64] {
  %w = constant {-1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0} : f32[3, 4]
  %b = constant {-1.0, 0.0, 1.0} : f32[3]
  %0 = transpose(%w) perm=[1, 0] : f32[4, 3]   // body.0.h
  %1 = MatMul(%x, %0) : f32[s, 3]   // body.0.h
  %h = add(%1, %b) : f32[s, 3]   // body.0.h
  %y = Relu(%h) : f32[s, 3]   // body.0.y
}
)");
}

} // namespace
} // namespace tessera::fx_test
