// The graphs of models/: all import without their weights, with batch and length as symbols.
#include "model_maker.h"
#include <filesystem>
#include <gtest/gtest.h>

namespace tessera::onnx_test {
namespace {

std::vector<std::string> model_files() {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(TESSERA_SOURCE_DIR "/models"))
    if (entry.path().extension() == ".onnx") out.push_back(entry.path().string());
  std::sort(out.begin(), out.end());
  return out;
}

ImportOptions without_weights() {
  ImportOptions options;
  options.missing_weights = ImportOptions::MissingWeights::Empty;
  return options;
}

class Models : public testing::TestWithParam<std::string> {};

TEST_P(Models, ImportsWithSymbolicSizes) {
  auto m = onnx::import_file(GetParam(), without_weights());
  ASSERT_TRUE(m.ok()) << m.error().str();
  EXPECT_TRUE(m->warnings.empty()) << m->warnings[0];
  const Graph& g = m->graph;
  ASSERT_EQ(g.outputs().size(), 1u);
  ASSERT_FALSE(g.inputs().empty());
  const SymShape &in = g.type(g.inputs()[0]).shape, &out = g.type(g.outputs()[0].value).shape;
  EXPECT_EQ(out[0], g.env().simplify(in[0])) << str(out);
  EXPECT_FALSE(out[0].is_const());
  if (in.size() == 2) {
    EXPECT_EQ(out[1], g.env().simplify(in[1])) << str(out); // length
  }
  EXPECT_TRUE(out.back().is_const()) << str(out);
  EXPECT_TRUE(verify(g).ok()) << verify(g).error().str();
}

TEST_P(Models, IsTheSameEveryTime) {
  auto a = onnx::import_file(GetParam(), without_weights()), b = onnx::import_file(GetParam(), without_weights());
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(print(a->graph), print(b->graph));
}

INSTANTIATE_TEST_SUITE_P(All, Models, testing::ValuesIn(model_files()), [](const auto& info) {
  std::string name = std::filesystem::path(info.param).stem().string();
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '.' || c == '-'; }, '_');
  return name;
});

} // namespace
} // namespace tessera::onnx_test
