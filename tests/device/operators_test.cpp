// Every sample of every operator's record, compiled for the device and held against the record's reference: with static
// sizes and with a symbol for each size.
#include "tests/device/device.h"
#include "tests/ops/samples_run.h"
#include <gtest/gtest.h>

namespace tessera {
namespace {

class Operators : public testing::TestWithParam<const OpDef*> {};

// The device may refuse these: strings, packed and complex elements have no kernels and no reference on some routes.
bool has_strings(const Sample& s) {
  for (const auto& t : s.operands)
    if (t.defined() && t.dtype() == DType::String) return true;
  return false;
}

TEST_P(Operators, AgreesWithItsReference) {
  const OpDef& op = *GetParam();
  auto samples = op.samples();
  int ran = 0, on_host = 0;
  test::Share share;
  for (size_t i = 0; i < samples.size(); ++i) {
    const Sample& sample = samples[i];
    if (has_strings(sample) || !device_test::is_wanted(i, samples.size())) continue;
    for (auto sizes : {test::Sizes::Static, test::Sizes::Symbolic}) {
      if (!test::takes(share, sample, sizes)) continue;
      SCOPED_TRACE(test::describe(sample, i) + (sizes == test::Sizes::Symbolic ? ", symbolic" : ""));
      auto g = test::build(op, sample, sizes);
      // One symbol for equal sizes can contradict what an operator asks of them; the batch alone may do then.
      if (!g.ok() && sizes == test::Sizes::Symbolic) g = test::build(op, sample, test::Sizes::SymbolicBatch);
      if (!g.ok() && sizes == test::Sizes::Symbolic) continue;
      ASSERT_TRUE(g.ok()) << g.error().str();
      auto expected = evaluate_node(g->graph, g->get(), sample.operands, g->symbols);
      ASSERT_TRUE(expected.ok()) << expected.error().str();
      std::map<std::string, Tensor> inputs;
      for (auto v : g->graph.inputs()) {
        const std::string& name = g->graph.value(v).name;
        inputs[name] = sample.operands[std::stoul(name.substr(1))];
      }
      std::vector<Tensor> wanted;
      const auto& results = g->get().results;
      for (size_t r = 0; r < results.size() && r < expected->size(); ++r)
        if (results[r].valid()) {
          g->graph.add_output("y" + std::to_string(r), results[r]);
          wanted.push_back((*expected)[r]);
        }
      int host_steps = 0;
      auto got = device_test::compile_and_run(std::move(g->graph), inputs, &host_steps);
      ASSERT_TRUE(got.ok()) << got.error().str();
      EXPECT_EQ(test::difference(*got, wanted, sample.tolerance), "");
      ++ran;
      on_host += host_steps > 0 ? 1 : 0;
    }
  }
  RecordProperty("samples", ran);
  RecordProperty("on_host", on_host);
  std::printf("  %s: %d samples, %d by reference on the host\n", std::string(op.name).c_str(), ran, on_host);
}

std::vector<const OpDef*> operators() {
  std::vector<const OpDef*> out;
  for (const auto& op : OpTable::get().all())
    if (op->samples && !op->side_effect && op->name != std::string_view("constant")) out.push_back(op.get());
  return out;
}
INSTANTIATE_TEST_SUITE_P(All, Operators, testing::ValuesIn(operators()), [](const auto& info) {
  std::string name;
  for (char c : info.param->name) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

} // namespace
} // namespace tessera
