// Memory for the outputs of tessera_call(): requested once, with the sizes that the results have.
#include "c_harness.h"
#include <algorithm>

namespace tessera::api_test {
namespace {

using onnx_test::graph_attribute;
using onnx_test::int64_tensor;
using onnx_test::int_attribute;

Tensor floats(Dims dims, const std::vector<float>& values) {
  Tensor t = Tensor::create(DType::F32, std::move(dims)).value();
  for (size_t i = 0; i < values.size(); ++i) t.set_f64(static_cast<int64_t>(i), values[i]);
  return t;
}
Tensor ints(Dims dims, const Ints& values, DType dtype = DType::I64) {
  Tensor t = Tensor::create(dtype, std::move(dims)).value();
  for (size_t i = 0; i < values.size(); ++i) t.set_i64(static_cast<int64_t>(i), values[i]);
  return t;
}

// Answers each question with memory of its own.
struct Outputs {
  struct Requested {
    int32_t output;
    Dims dims;
    Tensor memory;
  };
  std::vector<Requested> requested;
  static void* give(void* self, int32_t output, int32_t dtype, int32_t rank, const int64_t* dims) {
    auto& a = static_cast<Outputs*>(self)->requested;
    const Dims sizes(dims, dims + rank);
    a.push_back({output, sizes, Tensor::create(*dtype_from_onnx(dtype), sizes).value()});
    return a.back().memory.mutable_data();
  }
};

struct Arguments {
  std::vector<tessera_tensor> tensors;
  explicit Arguments(std::vector<Tensor>& inputs) {
    for (Tensor& t : inputs)
      tensors.push_back(
          {nullptr, info(t.dtype()).onnx, static_cast<int32_t>(t.dims().size()), t.dims().data(), t.mutable_data()});
  }
  [[nodiscard]] int32_t count() const { return static_cast<int32_t>(tensors.size()); }
};

// Each set of inputs, by a session that has computed those before: one question for each output, with the sizes of the
// reference's result, and its values.
void expect_requested_once(const std::string& what, const Maker& model, const std::vector<std::vector<Tensor>>& calls) {
  SCOPED_TRACE(what);
  Opened s(model);
  for (std::vector<Tensor> inputs : calls) {
    Outputs outputs;
    const Arguments in(inputs);
    const char* error = tessera_call(s.session, in.tensors.data(), in.count(), Outputs::give, &outputs, nullptr);
    ASSERT_EQ(error, nullptr) << error;
    Inputs named;
    for (size_t i = 0; i < inputs.size(); ++i)
      named.emplace(model.model.graph().input(static_cast<int>(i)).name(), inputs[i]);
    std::vector<Tensor> results(outputs.requested.size());
    for (auto& request : outputs.requested) {
      ASSERT_LT(static_cast<size_t>(request.output), results.size()) << "an output is requested twice";
      ASSERT_FALSE(results[static_cast<size_t>(request.output)].defined())
          << "output " << request.output << ", requested twice";
      results[static_cast<size_t>(request.output)] = request.memory;
    }
    expect_right(model, named, results);
  }
}

constexpr int kI64 = onnx_test::proto::TensorProto::INT64, kBool = onnx_test::proto::TensorProto::BOOL;

TEST(COutputs, AreRequestedOnceWhereTheirSizesAreData) {
  Maker expand;
  expand.input("x", {"n", 2}).input("s", {2}, kI64).add("Expand", {"x", "s"}, {"y"}).output("y");
  const Tensor x = floats({1, 2}, {1, 2});
  expect_requested_once("Expand", expand,
                        {{x, ints({2}, {1, 2})},
                         {x, ints({2}, {3, 2})},
                         {x, ints({2}, {3, 2})},
                         {x, ints({2}, {5, 2})},
                         {x, ints({2}, {1, 2})}});
  expect_requested_once("Expand, larger first", expand, {{x, ints({2}, {3, 2})}, {x, ints({2}, {1, 2})}});

  Maker early; // an output that is written before the values are read that decide the sizes of the other
  early.input("x", {"n", 2}).input("s", {2}, kI64).add("Relu", {"x"}, {"r"}).add("ReduceMax", {"s"}, {"m"});
  early.add("Add", {"s", "m"}, {"t"}).add("Sub", {"t", "m"}, {"u"});
  early.add("Expand", {"r", "u"}, {"y"}).output("y").output("r");
  expect_requested_once("an early output", early,
                        {{x, ints({2}, {1, 2})}, {x, ints({2}, {3, 2})}, {x, ints({2}, {4, 1})}});

  Maker nonzero;
  nonzero.input("x", {"n"}).add("NonZero", {"x"}, {"z"}).add("Relu", {"x"}, {"r"}).output("z").output("r");
  expect_requested_once("NonZero", nonzero,
                        {{floats({3}, {1, 0, 2})}, {floats({3}, {0, 0, 0})}, {floats({2}, {1, 2})}});

  Maker compress;
  compress.input("x", {"n", 2}).input("c", {"n"}, kBool);
  compress.add("Compress", {"x", "c"}, {"y"}, {int_attribute("axis", 0)}).output("y");
  const Tensor rows = floats({3, 2}, {1, 2, 3, 4, 5, 6});
  expect_requested_once("Compress", compress,
                        {{rows, ints({3}, {1, 0, 1}, DType::Bool)},
                         {rows, ints({3}, {0, 0, 0}, DType::Bool)},
                         {rows, ints({3}, {1, 1, 1}, DType::Bool)}});

  Maker range;
  range.input("n", {}, kI64).weight(int64_tensor("zero", {}, {0})).weight(int64_tensor("one", {}, {1}));
  range.add("Range", {"zero", "n", "one"}, {"y"}).output("y");
  expect_requested_once("Range", range, {{ints({}, {3})}, {ints({}, {0})}, {ints({}, {1})}, {ints({}, {70})}});

  Maker nms;
  nms.input("boxes", {1, "n", 4}).input("scores", {1, 1, "n"}).input("most", {1}, kI64);
  nms.add("NonMaxSuppression", {"boxes", "scores", "most"}, {"y"}).output("y");
  const Tensor boxes = floats({1, 3, 4}, {0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5}), scores = floats({1, 1, 3}, {1, 3, 2});
  expect_requested_once(
      "NonMaxSuppression", nms,
      {{boxes, scores, ints({1}, {2})}, {boxes, scores, ints({1}, {0})}, {boxes, scores, ints({1}, {3})}});
}

// w = -k, which needs nothing that is read, y = NonZero(x) + k: their sizes are equal, or one of them is 1. What is missed
// in the middle of a call is known when w is written.
TEST(COutputs, AreRequestedOnceWhereACallMissesAGuardOnTheWay) {
  Maker sum;
  sum.input("x", {"n"}).input("k", {"m"}).add("NonZero", {"x"}, {"z"});
  sum.add("Cast", {"z"}, {"f"}, {int_attribute("to", onnx_test::proto::TensorProto::FLOAT)});
  sum.add("Add", {"f", "k"}, {"y"}).add("Neg", {"k"}, {"w"}).output("w").output("y");
  Opened s(sum);
  struct Call {
    std::vector<float> x, k, y;
  };
  const Call calls[] = {{{1, 0, 2}, {5, 6}, {5, 8}}, {{1, 0, 2}, {5}, {5, 7}},    {{0, 0, 2}, {5, 6}, {7, 8}},
                        {{1, 1, 2}, {5}, {5, 6, 7}}, {{1, 0, 2}, {5, 6}, {5, 8}}, {{0, 0, 0}, {5}, {}}};
  for (const Call& c : calls) {
    std::vector<Tensor> inputs{floats({static_cast<int64_t>(c.x.size())}, c.x),
                               floats({static_cast<int64_t>(c.k.size())}, c.k)};
    const Arguments in(inputs);
    Outputs outputs;
    const char* error = tessera_call(s.session, in.tensors.data(), 2, Outputs::give, &outputs, nullptr);
    ASSERT_EQ(error, nullptr) << error;
    ASSERT_EQ(outputs.requested.size(), 2u);
    std::sort(outputs.requested.begin(), outputs.requested.end(),
              [](const auto& a, const auto& b) { return a.output < b.output; });
    EXPECT_EQ(outputs.requested[0].dims, (Dims{static_cast<int64_t>(c.k.size())}));
    EXPECT_EQ(outputs.requested[1].dims, (Dims{1, static_cast<int64_t>(c.y.size())}));
    for (size_t i = 0; i < c.k.size(); ++i)
      EXPECT_EQ(outputs.requested[0].memory.get_f64(static_cast<int64_t>(i)), -c.k[i]);
    for (size_t i = 0; i < c.y.size(); ++i)
      EXPECT_EQ(outputs.requested[1].memory.get_f64(static_cast<int64_t>(i)), c.y[i]);
  }
  EXPECT_GT(tessera_variants(s.session), 1);
}

// v = Concat(v, v) in each of `trips` iterations; another output has a fixed size, a third stacks the counts.
TEST(COutputs, AreRequestedOnceByLoops) {
  for (const bool grows : {false, true}) {
    Maker body;
    body.input("i", {}, kI64).input("c", {}, kBool).input("v", {"k", 2}).add("Identity", {"c"}, {"more"});
    if (grows)
      body.add("Concat", {"v", "v"}, {"next"}, {int_attribute("axis", 0)});
    else
      body.add("Add", {"v", "v"}, {"next"});
    body.add("ReduceSum", {"next"}, {"slice"}).output("more", {}, kBool).output("next").output("slice");
    Maker loop;
    loop.input("x", {"n", 2}).input("trips", {}, kI64);
    loop.add("Loop", {"trips", "", "x"}, {"y", "sums"}, {graph_attribute("body", body.graph())});
    loop.add("Relu", {"x"}, {"r"}).output("r").output("y").output("sums");
    const Tensor x = floats({1, 2}, {1, -2}), larger = floats({3, 2}, {1, 2, 3, 4, 5, 6});
    expect_requested_once(grows ? "a loop that grows" : "a loop", loop,
                          {{x, ints({}, {1})}, {x, ints({}, {3})}, {x, ints({}, {0})}, {larger, ints({}, {2})}});
  }
}

TEST(COutputs, AreRequestedOnceByBranches) {
  const auto branch = [](const char* axis) {
    Maker m;
    m.weight(int64_tensor("a", {1}, {axis[0] - '0'}))
        .add("Concat", {"x", "x"}, {"t"}, {int_attribute("axis", axis[0] - '0')});
    m.output("t");
    return m;
  };
  Maker model;
  model.input("x", {"n", "m"}).input("c", {}, kBool).add("Relu", {"x"}, {"r"});
  model.add("If", {"c"}, {"y"},
            {graph_attribute("then_branch", branch("0").graph()), graph_attribute("else_branch", branch("1").graph())});
  model.output("r").output("y");
  const Tensor x = floats({1, 2}, {1, -2}), square = floats({2, 2}, {1, 2, 3, 4});
  const Tensor yes = ints({}, {1}, DType::Bool), no = ints({}, {0}, DType::Bool);
  expect_requested_once("If", model, {{x, yes}, {x, no}, {square, no}, {square, yes}, {x, yes}});
}

// Room that other sizes have left is given back first, and the call begins anew.
TEST(COutputs, AreRequestedOnceAtTheMemoryLimit) {
  Maker m;
  m.input("x", {"n", 64}).weight(onnx_test::float_tensor("w", {64, 64}, std::vector<float>(64 * 64, 0.125F)));
  m.add("MatMul", {"x", "w"}, {"p"}).add("MatMul", {"p", "w"}, {"q"}).add("Softmax", {"q"}, {"y"}).output("y");
  m.add("NonZero", {"q"}, {"z"}).output("z");
  tessera_options options = on_cpu();
  options.memory_limit = 3 << 20;
  Opened s(m, options);
  for (const int64_t n : {1, 300, 700, 1000, 1500, 2000, 1, 700}) {
    std::vector<Tensor> inputs{numbers({n, 64})};
    const Arguments in(inputs);
    Outputs outputs;
    const char* error = tessera_call(s.session, in.tensors.data(), 1, Outputs::give, &outputs, nullptr);
    EXPECT_LE(outputs.requested.size(), 2u);
    EXPECT_EQ(error == nullptr, outputs.requested.size() == 2) << n;
    if (n <= 1000) {
      EXPECT_EQ(error, nullptr) << n << ": " << error;
    }
  }
}

TEST(COutputs, LieWhereNothingElseDoes) {
  Maker m;
  m.input("x", {"n", "m"}).add("Transpose", {"x"}, {"y"}).add("Relu", {"x"}, {"z"}).output("y").output("z");
  Opened s(m);
  struct Places {
    float* at[2];
    static void* give(void* self, int32_t output, int32_t, int32_t, const int64_t*) {
      return static_cast<Places*>(self)->at[output];
    }
  };
  constexpr int64_t n = 8;
  std::vector<float> data(static_cast<size_t>(n * n) * 4);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i);
  const auto before = data;
  float* const x = data.data();
  const int64_t dims[] = {n, n};
  const tessera_tensor in{nullptr, TESSERA_F32, 2, dims, x};
  const auto call = [&](float* y, float* z) {
    Places places{{y, z}};
    return tessera_call(s.session, &in, 1, Places::give, &places, nullptr);
  };
  const int64_t e = n * n;
  says(call(x, x + e), "the memory given for output 'y' overlaps that of input 'x'");
  says(call(x + 2 * e, x + e - 1), "the memory given for output 'z' overlaps that of input 'x'");
  says(call(x + e, x + e), "the memory given for output 'z' overlaps that of output 'y'");
  says(call(x + e, x + 2 * e - 1), "overlaps that of output");
  auto* const odd = reinterpret_cast<float*>(reinterpret_cast<std::byte*>(x + e) + 1);
  says(call(odd, x + 2 * e + 2), "output 'y' was given memory at an address that is no multiple of 4");
  says(call(x + e, nullptr), "the caller has no memory for output 'z'");
  EXPECT_EQ(data, before) << "nothing was written";
  ASSERT_EQ(call(x + e, x + 2 * e), nullptr);
  EXPECT_EQ(data[static_cast<size_t>(e + 1)], static_cast<float>(n));
}

} // namespace
} // namespace tessera::api_test
