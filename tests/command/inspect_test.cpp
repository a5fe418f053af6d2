// tessera inspect: what models say, also those that are not supported.
#include "harness.h"
#include "tests/onnx/model_maker.h"

namespace tessera::command_test {
namespace {

using onnx_test::Maker;
namespace proto = ::tessera::onnx_proto;

class Inspect : public Command {
protected:
  void write(const std::string& name, const Maker& maker) const {
    std::ofstream(path(name), std::ios::binary) << maker.bytes();
  }
  static Maker small() {
    Maker m;
    m.input("x", {"b", 8}).output("y", {"b", 4});
    m.weight(onnx_test::float_tensor("w", {8, 4}, std::vector<float>(32, 0.5F)));
    m.weight(onnx_test::int64_tensor("axes", {1}, {1}));
    m.add("MatMul", {"x", "w"}, {"h"});
    m.add("Softmax", {"h"}, {"y"}, {onnx_test::int_attribute("axis", -1)});
    return m;
  }
};

TEST_F(Inspect, SaysWhatAModelHas) {
  write("m.onnx", small());
  expect(0, "inspect m.onnx",
         {"ONNX", "opsets: ai.onnx", "x", "f32[b, 8]", "symbol b: from 0", "weights: 2, 136 B", "1 of f32", "1 of i64",
          "nodes: 2", "1 MatMul", "axis=-1", "h f32[b, 4]"});
  expect(0, "inspect m.onnx --format json --json j.json");
  const Outcome o = expect(0, "inspect m.onnx --format json");
  const Json j = Json::parse(o.out);
  EXPECT_EQ(j["format"], "ONNX");
  ASSERT_EQ(j["inputs"].size(), 1u);
  EXPECT_EQ(j["inputs"][0]["type"], "f32[b, 8]");
  EXPECT_EQ(j["symbols"][0]["name"], "b");
  EXPECT_TRUE(j["symbols"][0]["max"].is_null());
  EXPECT_EQ(j["weights"][0]["bytes"], 128);
  EXPECT_EQ(j["nodes"][1]["attributes"]["axis"], "-1");
  EXPECT_EQ(j["nodes"][0]["outputs"][0]["type"], "f32[b, 4]") << "inferred: the file declares no type of it";
  EXPECT_EQ(j["not_supported"], 0);
}

TEST_F(Inspect, MarksWhatIsNotSupportedAndShowsTheRest) {
  Maker m = small();
  m.add("NoSuchOperator", {"h"}, {"z"}).add("Relu", {"z"}, {"u"}).output("u");
  write("m.onnx", m);
  expect(0, "inspect m.onnx", {"NoSuchOperator", "1 nodes are not supported", "Relu"});
  const Json j = Json::parse(expect(0, "inspect m.onnx --format json").out);
  EXPECT_EQ(j["not_supported"], 1);
  for (const Json& n : j["nodes"]) EXPECT_EQ(n.contains("not_supported"), n["operator"] == "NoSuchOperator");
  expect(4, "inspect none.onnx", {"none.onnx"});
  std::ofstream(path("cut.onnx"), std::ios::binary) << read_text(path("m.onnx")).substr(0, 60);
  expect(4, "inspect cut.onnx", {"cut off at byte"});
  expect(0, "inspect '" + model("external") + "'", {"w.bin"});
}

TEST_F(Inspect, ShowsAsManyAsOneAsksFor) {
  Maker m;
  m.input("v0", {"b"});
  for (int i = 0; i < 60; ++i)
    m.add(i % 2 == 0 ? "Relu" : "Tanh", {"v" + std::to_string(i)}, {"v" + std::to_string(i + 1)});
  m.output("v60");
  write("m.onnx", m);
  auto rows = [&](const std::string& options) {
    const std::string out = expect(0, "inspect m.onnx" + options).out;
    size_t n = 0;
    for (size_t at = out.find("n_v"); at != std::string::npos; at = out.find("n_v", at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(rows(""), 40u);
  EXPECT_EQ(rows(" --all"), 60u);
  EXPECT_EQ(rows(" --op Tanh"), 30u);
  EXPECT_EQ(rows(" --op 'R*' --name 'n_v1?'"), 5u); // 11, 13 ... 19
  EXPECT_EQ(rows(" --name v60"), 1u);
  expect(0, "inspect m.onnx --op Conv", {"nodes: 0 of 60"});
}

TEST_F(Inspect, ReadsCompiledFiles) {
  write("m.onnx", small());
  expect(0, "compile m.onnx -o m.tsr --device cpu");
  expect(0, "inspect m.tsr", {"compiled file for", "x", "f32[b, 8]", "MatMul"});
  const Json j = Json::parse(expect(0, "inspect m.tsr --format json").out);
  EXPECT_EQ(j["format"], "compiled file");
  EXPECT_EQ(j["outputs"][0]["type"], "f32[b, 4]");
}

TEST_F(Inspect, ShowsBodiesAndNothingThatATerminalObeys) {
  expect(0, "inspect '" + model("if") + "'", {"If", "graph of"});
  expect(0, "inspect '" + model("loop") + "'", {"Loop"});
  expect(0, "inspect '" + model("function") + "'", {"nodes:"});
  Maker m;
  m.input("x\x1b[31m", {4}).add("Relu", {"x\x1b[31m"}, {"y\x1b"}).output("y\x1b");
  write("m.onnx", m);
  EXPECT_EQ(expect(0, "inspect m.onnx --all").out.find('\x1b'), std::string::npos);
}

} // namespace
} // namespace tessera::command_test
