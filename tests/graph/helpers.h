// Shared by the tests of the Graph IR.
#pragma once
#include "graph/infer/infer.h"
#include <gtest/gtest.h>

namespace tessera {

inline Tensor ints(std::vector<int64_t> values) {
  Dims dims = {static_cast<int64_t>(values.size())};
  return Tensor::of<int64_t>(DType::I64, dims, values);
}
inline Tensor scalar_int(int64_t value) { return Tensor::of<int64_t>(DType::I64, {}, std::vector<int64_t>{value}); }
inline Tensor floats(Dims dims, std::vector<double> values, DType dtype = DType::F32) {
  return Tensor::of<double>(dtype, std::move(dims), values);
}

// Applies an operator; a failure is a failure of the test.
inline ValueId must(Graph& g, std::string_view op, std::vector<ValueId> operands, Attributes attributes = {},
                    int opset = 0) {
  const OpDef* def = OpTable::get().find(op);
  EXPECT_NE(def, nullptr) << op;
  auto node = g.add_node(*def, std::move(operands), std::move(attributes), {}, {""}, opset);
  EXPECT_TRUE(node.ok()) << node.error().str();
  return g.node(*node).results[0];
}

inline std::string contents_of(const Graph& g, ValueId v) {
  const auto& contents = g.value(v).contents;
  return contents ? str(*contents) : "unknown";
}

inline Graph parsed(const std::string& text) {
  auto g = parse_graph(text);
  EXPECT_TRUE(g.ok()) << g.error().str();
  return g.ok() ? std::move(g).value() : Graph();
}

} // namespace tessera
