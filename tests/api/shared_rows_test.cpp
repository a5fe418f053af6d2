// Few long rows on a host: programs share them, and what comes out does not depend on how many threads run these.
#include "harness.h"
#include <cstring>

namespace tessera::api_test {
namespace {

Maker few_rows() {
  Maker m;
  m.input("x", {3, 300000})
      .add("Softmax", {"x"}, {"y"}, {onnx_test::int_attribute("axis", -1)})
      .add("ArgMax", {"x"}, {"first"}, {onnx_test::int_attribute("axis", -1)})
      .add("Mul", {"x", "x"}, {"squares"})
      .add("ReduceSum", {"squares"}, {"sum"}, {onnx_test::int_attribute("keepdims", 0)})
      .output("y")
      .output("first")
      .output("sum");
  return m;
}

TEST(SharedRows, AreTheSameWithAnyNumberOfThreads) {
  const Maker model = few_rows();
  Tensor x = Tensor::create(DType::F32, {3, 300000}).value();
  for (int64_t i = 0; i < x.count(); ++i) x.set_f64(i, static_cast<double>((i * 7919) % 10007 - 5000) / 700);
  const Inputs in{{"x", x}};
  std::vector<Tensor> before;
  for (int threads : {1, 2, 5}) {
    SessionOptions o = options();
    o.compile.threads = threads;
    auto session = open(model, o);
    ASSERT_TRUE(session);
    int64_t shared = 0;
    for (const auto& step : session->variants()[0]->compiled->executable->steps)
      if (const auto* k = std::get_if<KernelLaunch>(&step)) shared += k->counters.as_const().value_or(0) > 0;
    EXPECT_GT(shared, 0) << "no kernel has cooperative blocks";
    for (int run = 0; run < 10; ++run) {
      auto out = session->run(in);
      if (run == 0) expect_right(model, in, out);
      ASSERT_TRUE(out.ok());
      for (size_t i = 0; i < before.size(); ++i)
        ASSERT_EQ(std::memcmp((*out)[i].data(), before[i].data(), before[i].bytes()), 0)
            << "output " << i << ", " << threads << " threads, run " << run;
      if (before.empty())
        for (const Tensor& t : *out) {
          before.push_back(Tensor::create(t.dtype(), t.dims()).value());
          std::memcpy(before.back().mutable_data(), t.data(), t.bytes());
        }
    }
  }
}

} // namespace
} // namespace tessera::api_test
