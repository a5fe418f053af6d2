// tessera ops: the table of operators, its page, and what of a model is not supported.
#include "../onnx/model_maker.h"
#include "harness.h"
#include <set>

namespace tessera::command_test {
namespace {

using onnx_test::Maker;

TEST_F(Command, OperatorsPageIsWhatTheCommandWrites) {
  expect(0, "ops --markdown page.md");
  EXPECT_TRUE(read_text(path("page.md")) == read_text(TESSERA_SOURCE_DIR "/docs/operators.md"))
      << "docs/operators.md is stale: build/bin/tessera ops --markdown docs/operators.md";
}

TEST_F(Command, OpsListsRoutes) {
  expect(0, "ops --op Softmax --op com.microsoft.Gelu --json ops.json", {"Softmax", "com.microsoft", "generated"});
  const Json found = json("ops.json")["operators"];
  ASSERT_EQ(found.size(), 2u);
  std::set<std::string> devices;
  bool f16 = false;
  for (const auto& r : found[0]["routes"]) {
    devices.insert(r["device"]);
    f16 = f16 || r["dtype"] == "f16";
  }
  EXPECT_EQ(devices, (std::set<std::string>{"cpu", "cuda"}));
  EXPECT_TRUE(f16);
  EXPECT_TRUE(found[0]["versions"].back()["until"].is_null());

  expect(0, "ops --op MatMul --device cuda --dtype f16 --json ops.json", {"library"});
  const Json routes = json("ops.json")["operators"][0]["routes"];
  ASSERT_EQ(routes.size(), 1u);
  EXPECT_EQ(routes[0]["by"][0], "library");
  const std::string hosted = expect(0, "ops --domain ai.onnx --device cpu --dtype string --route host").out;
  EXPECT_NE(hosted.find("StringConcat"), std::string::npos) << hosted;
  EXPECT_EQ(hosted.find("Softmax"), std::string::npos) << hosted;
  expect(0, "ops --op Affine", {"1-9", "generated"});
}

TEST_F(Command, OpsSuggestsNames) {
  expect(2, "ops --op Sofmax", {"no operator 'Sofmax'", "did you mean 'Softmax'?"});
  expect(2, "ops --domain com.microsft", {"did you mean 'com.microsoft'?"});
  expect(2, "ops --dtype fp16", {"no element type 'fp16'", "did you mean"});
  expect(4, "ops Softmax", {"--op Softmax"});
}

TEST_F(Command, OpsReportsAllThatAModelLacks) {
  Maker m;
  m.import("com.example", 3);
  m.input("x", {"b", 4}).output("y", {"b", 4}).output("z", {});
  m.add("Relu", {"x"}, {"r"});
  m.add("Mystery", {"r"}, {"p"}, {}, "com.example"); // its type is declared
  onnx_test::set_value(*m.graph().add_value_info(), "p", {"b", 4});
  m.add("Sofmax", {"p"}, {"q"}); // its type is not
  m.add("Abs", {"q"}, {"a"});    // reads what is not known, and is fine
  m.add("Riddle", {"a"}, {"b"}, {}, "com.example");
  m.add("Add", {"a", "b"}, {"z"});
  m.add("Softmax", {"p"}, {"y"});
  m.add("Neg", {"x"}, {"unread"});
  std::ofstream(path("m.onnx"), std::ios::binary) << m.bytes();
  expect(3, "ops m.onnx --json m.json",
         {"com.example.Mystery", "n_p", "Sofmax", "did you mean 'Softmax'?", "com.example.Riddle", "3 of 8 nodes"});
  const Json j = json("m.json");
  EXPECT_FALSE(j["supported"]);
  ASSERT_EQ(j["refused"].size(), 3u);
  EXPECT_EQ(j["refused"][0]["operator"], "com.example.Mystery");
  EXPECT_EQ(j["refused"][0]["version"], 3);
  EXPECT_EQ(j["refused"][0]["dtype"], "f32");
  EXPECT_EQ(j["refused"][0]["error"]["location"]["node"], "n_p");
  EXPECT_TRUE(j["refused"][2]["dtype"].is_null());
  std::set<std::string> planned;
  for (const auto& o : j["operators"]) {
    planned.insert(o["operator"]);
    EXPECT_EQ(o["by"], "generated") << o;
  }
  EXPECT_EQ(planned, (std::set<std::string>{"Relu", "Softmax", "Neg"}));
}

TEST_F(Command, OpsLooksIntoFunctionsAndBodies) {
  Maker m;
  m.import("local", 1);
  m.input("x", {4}).input("c", {}, onnx_test::proto::TensorProto::BOOL).output("y", {4}).output("z", {4});
  auto& f = *m.model.add_functions();
  f.set_name("F");
  f.set_domain("local");
  f.add_input("a");
  f.add_output("o");
  auto& opset = *f.add_opset_import();
  opset.set_version(17);
  *f.add_node() = onnx_test::node("Inside", {"a"}, {"o"});
  m.add("F", {"x"}, {"y"}, {}, "local");
  onnx_test::proto::GraphProto then, otherwise;
  *then.add_node() = onnx_test::node("Lost", {"x"}, {"t"});
  onnx_test::set_value(*then.add_output(), "t", {4});
  *otherwise.add_node() = onnx_test::node("Neg", {"x"}, {"t"});
  onnx_test::set_value(*otherwise.add_output(), "t", {4});
  m.add("If", {"c"}, {"z"},
        {onnx_test::graph_attribute("then_branch", then), onnx_test::graph_attribute("else_branch", otherwise)});
  std::ofstream(path("m.onnx"), std::ios::binary) << m.bytes();
  expect(3, "ops m.onnx --json m.json", {"Inside", "Lost"});
  EXPECT_EQ(json("m.json")["refused"].size(), 2u);
}

TEST_F(Command, OpsOfASupportedModel) {
  expect(0, "ops '" + model("conv") + "' --device cpu --json m.json", {"Conv", "library"});
  EXPECT_TRUE(json("m.json")["supported"]);
  expect(4, "ops /dev/null");
}

} // namespace
} // namespace tessera::command_test
