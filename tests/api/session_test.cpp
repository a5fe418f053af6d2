// A session as an embedder sees it: shapes that change, inputs that are wrong, outputs that are given, several threads.
#include "harness.h"
#include <thread>

namespace tessera::api_test {
namespace {

// y = softmax(2 * x + bias) over the last axis, z = sum over the first one.
Maker rows() {
  Maker m;
  m.input("x", {"b", "s"})
      .weight(onnx_test::float_tensor("two", {}, {2}))
      .add("Mul", {"x", "two"}, {"t"})
      .add("Softmax", {"t"}, {"y"}, {onnx_test::int_attribute("axis", -1)})
      .add("ReduceSum", {"t"}, {"z"}, {onnx_test::int_attribute("keepdims", 1)})
      .output("y")
      .output("z");
  return m;
}

TEST(Session, OneCompileServesEveryShape) {
  auto model = rows();
  auto session = open(model);
  ASSERT_TRUE(session);
  for (Dims dims :
       {Dims{1, 1}, Dims{3, 7}, Dims{0, 5}, Dims{4, 0}, Dims{0, 0}, Dims{17, 33}, Dims{2, 1000}, Dims{3, 7}}) {
    Inputs in{{"x", numbers(dims)}};
    RunStats stats;
    auto out = session->run(in, &stats);
    SCOPED_TRACE(std::to_string(dims[0]) + " x " + std::to_string(dims[1]));
    expect_right(model, in, out);
    EXPECT_EQ(stats.recompiles, 0);
    EXPECT_EQ(stats.variant, 0);
    out = session->run(in, &stats);
    EXPECT_FALSE(stats.new_shape) << "the plan of this shape is kept";
  }
  EXPECT_EQ(session->variants().size(), 1u);
  EXPECT_EQ(session->variants()[0]->label, "generic");
}

TEST(Session, SaysWhatTheModelDeclares) {
  auto session = open(rows());
  ASSERT_TRUE(session);
  ASSERT_EQ(session->inputs().size(), 1u);
  EXPECT_EQ(session->inputs()[0].name, "x");
  EXPECT_EQ(session->inputs()[0].dtype, DType::F32);
  EXPECT_EQ(str(session->inputs()[0].shape), "[b, s]");
  ASSERT_EQ(session->outputs().size(), 2u);
  EXPECT_EQ(session->outputs()[1].name, "z");
  EXPECT_EQ(str(session->outputs()[1].shape), "[1, 1]");
  EXPECT_EQ(session->model_info().opsets.at("ai.onnx"), 17);
}

TEST(Session, WrongInputsAreErrorsAndTheSessionGoesOn) {
  Maker model;
  model.input("x", {"n", 4}).input("y", {"n", 4}).add("Add", {"x", "y"}, {"z"}).output("z");
  auto session = open(model);
  ASSERT_TRUE(session);
  Inputs good{{"x", numbers({3, 4})}, {"y", numbers({3, 4}, 1)}};
  auto with = [&](const std::string& name, Tensor t) {
    Inputs in = good;
    in[name] = std::move(t);
    return in;
  };
  struct Case {
    Inputs inputs;
    ErrorCode code;
    std::vector<std::string> texts;
  };
  for (const Case& c : {
           Case{{{"x", numbers({3, 4})}}, ErrorCode::MissingInput, {"'y' was not given", "f32[n, 4]"}},
           Case{with("w", numbers({1})), ErrorCode::UnknownInput, {"no input 'w'", "'x', 'y'"}},
           Case{with("y", integers({3, 4}, 5)), ErrorCode::BadInput, {"'y'", "type", "f32[n, 4]", "i64[3, 4]"}},
           Case{with("y", numbers({3, 4, 1})), ErrorCode::BadInput, {"'y'", "number of dimensions", "f32[3, 4, 1]"}},
           Case{with("y", numbers({3, 5})), ErrorCode::BadInput, {"'y'", "dimension 1 must be 4", "f32[3, 5]"}},
           Case{with("y", numbers({2, 4})), ErrorCode::BadInput, {"'y'", "dimension 0", "n is 3"}},
           Case{with("y", Tensor()), ErrorCode::BadInput, {"'y'", "undefined"}},
       }) {
    expect_error(session->run(c.inputs), c.code, c.texts);
    expect_right(model, good, session->run(good));
  }
  EXPECT_EQ(session->variants().size(), 1u) << "an error is no reason to compile";
}

TEST(Session, ErrorsOfOpening) {
  auto missing = Session::open(folder().path() + "/none.onnx", options());
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::FileError);
  auto broken = Session::open(folder().write("broken.onnx", "not a model"), options());
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(broken.error().code, ErrorCode::MalformedModel) << broken.error().str();
}

TEST(Session, WritesOutputsThatAreGiven) {
  auto model = rows();
  auto session = open(model);
  ASSERT_TRUE(session);
  Inputs in{{"x", numbers({3, 5})}};
  std::vector<Tensor> given{Tensor::create(DType::F32, {3, 5}).value(), Tensor::create(DType::F32, {1, 1}).value()};
  const auto* memory = given[0].data();
  auto out = session->run(in, nullptr, &given);
  expect_right(model, in, out);
  EXPECT_EQ((*out)[0].data(), memory);

  std::vector<Tensor> small{Tensor::create(DType::F32, {3, 4}).value(), given[1]};
  expect_error(session->run(in, nullptr, &small), ErrorCode::BadInput, {"output 'y'", "f32[b, s]"});
  std::vector<Tensor> few{given[0]};
  expect_error(session->run(in, nullptr, &few), ErrorCode::BadInput, {"1 output tensors", "has 2"});
  std::vector<Tensor> overlapping{in.at("x"), given[1]};
  expect_error(session->run(in, nullptr, &overlapping), ErrorCode::BadInput, {"overlaps that of input"});
  expect_right(model, in, session->run(in));
}

TEST(Session, ResultsStayWhenTheNextCallRuns) {
  auto model = rows();
  auto session = open(model);
  ASSERT_TRUE(session);
  Inputs a{{"x", numbers({64, 400})}}, b{{"x", numbers({64, 400}, 5)}};
  auto first = session->run(a), second = session->run(b);
  expect_right(model, a, first);
  expect_right(model, b, second);
}

TEST(Session, ExecutorsOfOtherThreadsShareCodeAndRecompiles) {
  Maker model;
  model.input("x", {"n", "d"})
      .input("m", {"k", "d"})
      .add("Add", {"x", "m"}, {"t"})
      .add("Relu", {"t"}, {"y"})
      .output("y");
  auto session = open(model);
  ASSERT_TRUE(session);
  constexpr int kThreads = 2;
  std::vector<std::vector<std::pair<Inputs, Result<std::vector<Tensor>>>>> done(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    auto made = session->new_executor();
    ASSERT_TRUE(made.ok()) << made.error().str();
    threads.emplace_back([&done, t, executor = std::shared_ptr<Executor>(std::move(*made))] {
      for (int64_t i = 0; i < 12; ++i) {
        // Every third call broadcasts, which open() did not assume.
        const int64_t n = 2 + i + t, k = i % 3 == 2 ? 1 : n;
        Inputs in{{"x", numbers({n, 9}, t)}, {"m", numbers({k, 9}, static_cast<int>(i))}};
        auto out = executor->run(in);
        done[static_cast<size_t>(t)].emplace_back(std::move(in), std::move(out));
      }
    });
  }
  for (auto& t : threads) t.join();
  for (const auto& calls : done)
    for (const auto& [in, out] : calls) expect_right(model, in, out);
  EXPECT_EQ(session->variants().size(), 2u) << "what one thread compiled, the other one takes";
}

TEST(Session, AnExecutorOutlivesItsSession) {
  Maker model;
  model.input("x", {"n"}).input("m", {"k"}).add("Add", {"x", "m"}, {"y"}).output("y");
  auto session = open(model);
  ASSERT_TRUE(session);
  auto executor = session->new_executor();
  ASSERT_TRUE(executor.ok()) << executor.error().str();
  session.reset();
  Inputs in{{"x", numbers({5})}, {"m", numbers({5}, 1)}};
  expect_right(model, in, (*executor)->run(in));
  expect_error((*executor)->run({{"x", numbers({5})}, {"m", numbers({1})}}), ErrorCode::GuardFailed,
               {"k", "the session was closed"});
  expect_right(model, in, (*executor)->run(in));
}

} // namespace
} // namespace tessera::api_test
