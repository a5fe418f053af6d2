// `tessera triton`: the folder that it writes for Triton's server, and what it refuses. tests/servers starts the server.
#include "../onnx/model_maker.h"
#include "harness.h"
#include "serving/triton/config.h"

namespace tessera {
namespace {

using namespace command_test;
using namespace onnx_test;
using triton::Refusal;

class Triton : public Command {
protected:
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
  }
  // The first line of a configuration that begins so.
  [[nodiscard]] std::string line(const std::string& config, const std::string& begin) const {
    std::istringstream lines(read_text(path(config)));
    for (std::string l; std::getline(lines, l);)
      if (l.starts_with(begin)) return l;
    return "";
  }
};

// x: f32[batch, n, 4], w: f32[batch, 4] -> y = ReduceSum(x): f32[batch, n]
Maker sum_model() {
  Maker m;
  m.input("x", {"batch", "n", 4}).input("w", {"batch", 4});
  m.weight(int64_tensor("one", {1}, {1})).weight(int64_tensor("two", {1}, {2}));
  m.add("Unsqueeze", {"w", "one"}, {"column"});
  m.add("Mul", {"x", "column"}, {"product"});
  m.add("ReduceSum", {"product", "two"}, {"y"}, {int_attribute("keepdims", 0)});
  m.output("y");
  return m;
}

TEST_F(Triton, BatchIsDimensionZeroOfAll) {
  write("sum.onnx", sum_model().bytes());
  expect(0, "triton sum.onnx -o r --device cpu --instances 3 --threads 2", {"batches of up to 32 rows along 'batch'"});
  EXPECT_TRUE(fs::exists(path("r/sum/1/model.onnx")));
  const std::string text = read_text(path("r/sum/config.pbtxt"));
  for (const char* part :
       {"name: \"sum\"\n", "backend: \"tessera\"\n", "max_batch_size: 32\n", "dims: [-1, 4]\n", "dims: [4]\n",
        "dims: [-1]\n", "data_type: TYPE_FP32\n", "dynamic_batching {", "count: 3\n", "kind: KIND_CPU\n",
        "parameters {\n  key: \"threads\"\n  value {\n    string_value: \"2\"\n"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST_F(Triton, OptionsOfBatches) {
  write("sum.onnx", sum_model().bytes());
  expect(0, "triton sum.onnx -o r --name none --max-batch 0 --json none.json");
  EXPECT_EQ(line("r/none/config.pbtxt", "max_batch_size"), "max_batch_size: 0");
  EXPECT_EQ(line("r/none/config.pbtxt", "  dims"), "  dims: [-1, -1, 4]");
  EXPECT_EQ(line("r/none/config.pbtxt", "dynamic_batching"), "");
  EXPECT_EQ(json("none.json")["max_batch_size"], 0);
  expect(0, "triton sum.onnx -o r --name five --max-batch 5 --device cuda:1");
  EXPECT_EQ(line("r/five/config.pbtxt", "max_batch_size"), "max_batch_size: 5");
  EXPECT_EQ(line("r/five/config.pbtxt", "  gpus"), "  gpus: [1]");
}

TEST_F(Triton, VersionsOfOneModel) {
  write("sum.onnx", sum_model().bytes());
  expect(0, "triton sum.onnx -o r");
  expect(2, "triton sum.onnx -o r", {"r/sum/1' exists", "--version N"});
  expect(0, "triton sum.onnx -o r --version 2");
  EXPECT_TRUE(fs::exists(path("r/sum/2/model.onnx")));
  expect(2, "triton sum.onnx -o r --version 3 --max-batch 4",
         {"config.pbtxt' exists and says 'max_batch_size: 32'", "this version has 'max_batch_size: 4'"});
  EXPECT_FALSE(fs::exists(path("r/sum/3")));
  EXPECT_FALSE(fs::exists(path("r/sum/3.part")));
  expect(0, "triton sum.onnx -o r --version 3 --compile");
  EXPECT_TRUE(fs::exists(path("r/sum/3/model.tsr")));
}

TEST_F(Triton, FilesOfWeightsAreCopied) {
  Maker m;
  m.input("x", {"batch", 2});
  proto::TensorProto w;
  w.set_name("w");
  w.set_data_type(proto::TensorProto::FLOAT);
  w.add_dims(2);
  w.set_data_location(proto::TensorProto::EXTERNAL);
  auto& where = *w.add_external_data();
  where.set_key("location");
  where.set_value("data/w.bin");
  m.weight(w).add("Mul", {"x", "w"}, {"y"}).output("y");
  fs::create_directories(path("data"));
  write("data/w.bin", std::string(8, '\0'));
  write("m.onnx", m.bytes());
  expect(0, "triton m.onnx -o r");
  EXPECT_EQ(read_text(path("r/m/1/data/w.bin")), std::string(8, '\0'));
  expect(0, "run r/m/1/model.onnx --device cpu --shape batch=2");
  // A compiled file has them inside.
  expect(0, "triton m.onnx -o c --compile --device cpu");
  fs::remove_all(path("data"));
  EXPECT_FALSE(fs::exists(path("c/m/1/data")));
  expect(0, "run c/m/1/model.tsr --device cpu --shape batch=2");
  // So it stays when it is put into a repository itself.
  expect(0, "triton c/m/1/model.tsr -o d --name m --device cpu");
  expect(0, "run d/m/1/model.tsr --device cpu --shape batch=2");
}

TEST_F(Triton, RefusalsSayWhatToDo) {
  Maker fixed;
  fixed.input("x", {2, "n"}).add("Relu", {"x"}, {"y"}).output("y");
  write("fixed.onnx", fixed.bytes());
  expect(0, "triton fixed.onnx -o r", {"no batches: dimension 0 of input 'x' is 2"});
  expect(2, "triton fixed.onnx -o q --max-batch 4", {"has no batch dimension", "is 2, a fixed size", "--max-batch 0"});
  expect(2, "triton fixed.onnx -o q --no-fusion", {"--no-fusion decides how the model is compiled", "--compile"});
  expect(2, "triton fixed.onnx -o q --name a/b", {"'a/b' is no name of a model"});
  expect(4, "triton none.onnx -o q", {"none.onnx"});
  EXPECT_FALSE(fs::exists(path("q")));
}

std::string why(const std::variant<std::string, Refusal>& v) {
  return std::holds_alternative<Refusal>(v) ? std::get<Refusal>(v).message : "symbol " + std::get<std::string>(v);
}

TEST(TritonConfig, BatchSymbol) {
  using triton::batch_symbol;
  EXPECT_EQ(why(batch_symbol({{{"x", 1, {"b", "n"}}}, {{"y", 1, {"b"}}}})), "symbol b");
  EXPECT_NE(why(batch_symbol({{{"x", 1, {"b", "n"}}}, {{"y", 1, {"n", "b"}}}})).find("'n'"), std::string::npos);
  EXPECT_NE(why(batch_symbol({{{"x", 1, {"b", "2*b"}}}, {{"y", 1, {"b"}}}})).find("depends"), std::string::npos);
  EXPECT_NE(why(batch_symbol({{{"x", 1, {"b"}}}, {{"y", 1, {}}}})).find("no dimensions"), std::string::npos);
  EXPECT_NE(why(batch_symbol({{{"x", 1, {"2*b"}}}, {{"y", 1, {"2*b"}}}})).find("expression"), std::string::npos);
  EXPECT_NE(why(batch_symbol({{}, {{"y", 1, {"b"}}}})).find("no inputs"), std::string::npos);
  // A name that another one contains is another one.
  EXPECT_EQ(why(batch_symbol({{{"x", 1, {"b", "b1 + 1"}}}, {{"y", 1, {"b"}}}})), "symbol b");
}

TEST(TritonConfig, WhatTritonDoesNotHave) {
  auto refusal = [](const triton::Interface& model) {
    auto made = triton::make_config(model, {});
    return std::holds_alternative<Refusal>(made) ? std::get<Refusal>(made).message : "";
  };
  EXPECT_NE(refusal({{{"x", -1, {}}}, {{"y", 1, {}}}}).find("input 'x' is a list"), std::string::npos);
  EXPECT_NE(refusal({{{"x", 1, {}}}, {{"y", 17, {}}}}).find("output 'y' has the element type 17"), std::string::npos);
  EXPECT_NE(refusal({{{"x", 1, {}}}, {}}).find("no outputs"), std::string::npos);
}

TEST(TritonConfig, CompletedOneIsTheMadeOne) {
  const triton::Interface model{{{"x", 7, {"b", "n"}}}, {{"y", 1, {"b"}}, {"t", 8, {"b", "3"}}}};
  const auto made = std::get<triton::Json>(triton::make_config(model, {.name = "m"}));
  const auto completed = std::get<triton::Json>(triton::complete_config({{"name", "m"}}, model));
  for (const char* key : {"max_batch_size", "input", "output", "dynamic_batching"})
    EXPECT_EQ(made[key], completed[key]) << key;
  EXPECT_FALSE(triton::check_config(made, model));
  triton::Json wrong = made;
  wrong["input"][0]["data_type"] = "TYPE_INT32";
  ASSERT_TRUE(triton::check_config(wrong, model));
  EXPECT_NE(triton::check_config(wrong, model)->message.find("TYPE_INT64 in the model"), std::string::npos);
}

TEST(TritonConfig, NamesAreQuoted) {
  const auto made = std::get<triton::Json>(triton::make_config({{{"a\"\\\n", 1, {"n"}}}, {{"y", 1, {"n"}}}}, {}));
  EXPECT_NE(triton::config_text(made).find(R"(name: "a\"\\\n")"), std::string::npos);
}

} // namespace
} // namespace tessera
