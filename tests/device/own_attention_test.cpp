// Attention without a library for it: one kernel on a GPU (tests/gpu/attention_test.cpp runs it on the emulator),
// compiled for the device and held against the reference evaluator in f32.
#include "graph/ir/graph.h"
#include "graph/reference/evaluator.h"
#include "tests/device/device.h"
#include <gtest/gtest.h>

namespace tessera {
namespace {

// W and S stand for the width of a head and the sequence's length, DT for the element type.
std::string attention(const std::string& dtype, int64_t length, int64_t width, bool capped) {
  std::string text = R"(graph @main(%q: DT[2, 3, S, W], %k: DT[2, 3, S, W], %v: DT[2, 3, S, W], %b: f32[2, 1, 1, S]) ->
 (%y: DT[2, 3, S, W]) {
  %kt = transpose(%k) perm=[0, 1, 3, 2] : DT[2, 3, W, S]
  %p = matmul(%q, %kt) : DT[2, 3, S, S]
  %f = cast(%p) to=f32 : f32[2, 3, S, S]
  %t = CAP(%f) : f32[2, 3, S, S]
  %x = add(%t, %b) : f32[2, 3, S, S]
  %m = reduce_max(%x) axes=[3] keepdims=1 : f32[2, 3, S, 1]
  %z = sub(%x, %m) : f32[2, 3, S, S]
  %e = exp(%z) : f32[2, 3, S, S]
  %n = reduce_sum(%e) axes=[3] keepdims=1 : f32[2, 3, S, 1]
  %d = div(%e, %n) : f32[2, 3, S, S]
  %w = cast(%d) to=DT : DT[2, 3, S, S]
  %y = matmul(%w, %v) : DT[2, 3, S, W] })";
  auto put = [&](const std::string& what, const std::string& with) {
    for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size())
      text.replace(at, what.size(), with);
  };
  put("DT", dtype);
  put("CAP", capped ? "tanh" : "neg");
  put("S", std::to_string(length));
  put("W", std::to_string(width));
  return text;
}

TEST(OwnAttention, AgreesWithTheReference) {
  for (const char* dtype : {"f16", "bf16"})
    for (auto [length, width] :
         {std::pair<int64_t, int64_t>{1, 64}, {17, 64}, {64, 128}, {200, 64}, {129, 40}, {70, 12}, {33, 256}})
      for (bool capped : {false, true}) {
        SCOPED_TRACE(std::string(dtype) + " " + std::to_string(length) + " " + std::to_string(width));
        auto g = parse_graph(attention(dtype, length, width, capped)),
             plain = parse_graph(attention("f32", length, width, capped));
        ASSERT_TRUE(g.ok() && plain.ok()) << (g.ok() ? plain.error().str() : g.error().str());
        std::map<std::string, Tensor> inputs, in_f32;
        for (ValueId v : g->inputs()) {
          Dims dims;
          for (const auto& e : g->type(v).shape) dims.push_back(*e.as_const());
          Tensor t = Tensor::create(g->type(v).dtype, dims).value(), f = Tensor::create(DType::F32, dims).value();
          for (int64_t i = 0; i < t.count(); ++i) {
            t.set_f64(i, static_cast<double>((i * 7919 + v.index * 31) % 61 - 30) / 40);
            f.set_f64(i, t.get_f64(i));
          }
          inputs[g->value(v).name] = t;
          in_f32[g->value(v).name] = f;
        }
        auto expected = evaluate_graph(*plain, in_f32);
        ASSERT_TRUE(expected.ok()) << expected.error().str();
        auto options = device_test::options();
        options.cudnn = false;
        auto compiled = compile(std::move(*g), options);
        ASSERT_TRUE(compiled.ok()) << compiled.error().str();
        ExecutorOptions o;
        o.pool = ThreadPool::create(2);
        o.poison = true;
        auto executor = Executor::create({compiled->executable}, o);
        ASSERT_TRUE(executor.ok()) << executor.error().str();
        auto actual = (*executor)->run(inputs);
        ASSERT_TRUE(actual.ok()) << actual.error().str();
        double tolerance = std::string(dtype) == "f16" ? 1e-2 : 6e-2; // scores are rounded where they go through memory
        for (int64_t i = 0; i < (*expected)[0].count(); ++i)
          ASSERT_NEAR((*actual)[0].get_f64(i), (*expected)[0].get_f64(i), tolerance) << i;
      }
}

} // namespace
} // namespace tessera
