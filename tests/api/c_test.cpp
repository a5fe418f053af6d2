// The C interface: results as the C++ one has them, in memory of the caller's; every wrong argument is an error text.
#include "base/log.h"
#include "c_harness.h"
#include <cmath>
#include <functional>
#include <thread>
#include <unistd.h>

namespace tessera::api_test {
namespace {

Maker model() {
  Maker m;
  m.input("x", {"n", 4}).input("y", {"n", 4}).add("Add", {"x", "y"}, {"z"}).output("z");
  return m;
}

constexpr int32_t kFloat = TESSERA_F32;

TEST(C, RunsInMemoryOfTheCallers) {
  Opened s(write(model()));
  ASSERT_TRUE(s.session);
  EXPECT_STREQ(tessera_device(s.session), "cpu");
  for (int64_t rows : {3, 0, 5}) {
    auto n = static_cast<size_t>(rows * 4);
    std::vector<float> x(n), y(n), z(n, -1);
    for (size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i), y[i] = 0.5f;
    int64_t dims[] = {rows, 4};
    tessera_tensor in[] = {{"y", kFloat, 2, dims, y.data()}, {"x", kFloat, 2, dims, x.data()}};
    tessera_tensor out[] = {{nullptr, kFloat, 2, dims, z.data()}};
    const char* error = tessera_run(s.session, in, 2, out, 1);
    ASSERT_EQ(error, nullptr) << error;
    for (size_t i = 0; i < n; ++i) EXPECT_EQ(z[i], x[i] + 0.5f);
  }
}

TEST(C, TellsTheSizesOfOutputsBeforeTheyAreMade) {
  Maker m;
  m.input("x", {"n", 4})
      .input("y", {"n", 4})
      .add("Add", {"x", "y"}, {"s"})
      .add("Concat", {"s", "x"}, {"z"}, {onnx_test::int_attribute("axis", 0)});
  m.output("s").output("z");
  Opened s(write(m));
  ASSERT_TRUE(s.session);
  for (int64_t rows : {3, 0, 70000}) {
    int64_t dims[] = {rows, 4};
    tessera_tensor in[] = {{"y", kFloat, 2, dims, nullptr}, {"x", kFloat, 2, dims, nullptr}};
    const tessera_tensor* out = nullptr;
    int32_t count = 0;
    const char* error = tessera_output_sizes(s.session, in, 2, &out, &count);
    ASSERT_EQ(error, nullptr) << error;
    ASSERT_EQ(count, 2);
    EXPECT_STREQ(out[0].name, "s");
    EXPECT_STREQ(out[1].name, "z");
    for (int i : {0, 1}) {
      EXPECT_EQ(out[i].dtype, kFloat);
      EXPECT_EQ(out[i].data, nullptr);
      ASSERT_EQ(out[i].rank, 2);
      EXPECT_EQ(out[i].dims[0], rows * (1 + i));
      EXPECT_EQ(out[i].dims[1], 4);
    }
  }
  int64_t dims[] = {2, 4}, wrong[] = {2, 5};
  tessera_tensor in[] = {{"y", kFloat, 2, dims, nullptr}, {"x", kFloat, 2, wrong, nullptr}};
  const tessera_tensor* out = nullptr;
  int32_t count = 0;
  const char* error = tessera_output_sizes(s.session, in, 2, &out, &count);
  ASSERT_NE(error, nullptr);
  EXPECT_NE(std::string(error).find("'x'"), std::string::npos) << error;
  EXPECT_NE(tessera_output_sizes(s.session, in, 2, nullptr, &count), nullptr);
}

TEST(C, SizesThatDependOnValuesAreNotKnownBefore) {
  Maker m;
  m.input("x", {"n"}).add("NonZero", {"x"}, {"z"}).output("z");
  Opened s(write(m));
  ASSERT_TRUE(s.session);
  int64_t dims[] = {5};
  tessera_tensor in[] = {{"x", kFloat, 1, dims, nullptr}};
  const tessera_tensor* out = nullptr;
  int32_t count = 0;
  const char* error = tessera_output_sizes(s.session, in, 1, &out, &count);
  ASSERT_NE(error, nullptr);
  EXPECT_NE(std::string(error).find("depend on values"), std::string::npos) << error;
}

TEST(C, OpensWithOptions) {
  for (double share : {-1.0, 0.0, 0.1}) {
    tessera_options options{};
    options.struct_size = sizeof options;
    options.tf32 = "off";
    options.device = "cpu";
    options.threads = 1;
    options.tune_share = share;
    tessera_session* session = nullptr;
    const char* error = tessera_open_with(write(model()).c_str(), &options, &session);
    ASSERT_EQ(error, nullptr) << error;
    EXPECT_STREQ(tessera_device(session), "cpu");
    tessera_close(session);
  }
}

TEST(C, WrongArgumentsAreErrorsAndTheSessionGoesOn) {
  tessera_session* none = nullptr;
  auto says = [](const char* error, const std::string& text) {
    ASSERT_NE(error, nullptr) << text;
    EXPECT_NE(std::string(error).find(text), std::string::npos) << error;
  };
  says(tessera_open("/nowhere/model.onnx", "cpu", 1, &none), "/nowhere/model.onnx");
  says(tessera_open("m.onnx", "abacus", 1, &none), "abacus");
  says(tessera_open("m.onnx", "cpu", -1, &none), "threads");
  says(tessera_open(nullptr, "cpu", 1, &none), "model");
  tessera_options much{};
  much.struct_size = sizeof much;
  much.device = "cpu";
  for (double share : {2.0, std::nan("")}) {
    much.tune_share = share;
    says(tessera_open_with(write(model()).c_str(), &much, &none), "share");
  }
  says(tessera_open("m.onnx", "cpu", 1, nullptr), "session");
  EXPECT_EQ(none, nullptr);
  tessera_close(nullptr);
  tessera_memory* memory = nullptr;
  void* data = nullptr;
  says(tessera_memory_create(nullptr, 8, nullptr, &memory, &data), "session");
  says(tessera_memory_wait(nullptr, nullptr), "null");
  tessera_memory_free(nullptr);

  Opened s(write(model()));
  ASSERT_TRUE(s.session);
  float x[4] = {1, 2, 3, 4}, z[4];
  int64_t dims[] = {1, 4}, wrong[] = {1, 3}, negative[] = {-1, 4};
  tessera_tensor good[] = {{"x", kFloat, 2, dims, x}, {"y", kFloat, 2, dims, x}};
  tessera_tensor result{nullptr, kFloat, 2, dims, z};
  auto with = [&](tessera_tensor second) {
    tessera_tensor in[] = {good[0], second};
    return tessera_run(s.session, in, 2, &result, 1);
  };
  says(tessera_memory_create(s.session, 8, nullptr, &memory, &data), "the session runs on the CPU");
  says(tessera_memory_create(s.session, 8, nullptr, nullptr, &data), "places");
  says(with({"q", kFloat, 2, dims, x}), "no input 'q'");
  says(with({"y", kFloat, 2, wrong, x}), "y");
  says(with({"y", kFloat, 2, negative, x}), "");
  says(with({"y", 8, 2, dims, x}), "type 8");
  says(with({"y", 4711, 2, dims, x}), "4711");
  says(with({"y", kFloat, 2, nullptr, x}), "dimensions");
  says(with({"y", kFloat, 2, dims, nullptr}), "no memory");
  EXPECT_EQ(with({nullptr, kFloat, 2, dims, x}), nullptr) << "the input at this place";
  says(tessera_run(s.session, good, 2, nullptr, 1), "output");
  says(tessera_run(s.session, good, 2, &result, 0), "output");
  says(tessera_run_on_device(s.session, good, 2, &result, 1, nullptr), "device memory");
  const char* error = with(good[1]);
  EXPECT_EQ(error, nullptr) << error;
  EXPECT_EQ(z[3], 8);
}

void expect_says(const char* error, const std::string& text) {
  ASSERT_NE(error, nullptr) << text;
  EXPECT_NE(std::string(error).find(text), std::string::npos) << error;
}

// x and y to z = x + y and w = x - y
Maker two_outputs() {
  Maker m;
  m.input("x", {"n", 4}).input("y", {"n", 4});
  m.add("Add", {"x", "y"}, {"z"}).add("Sub", {"x", "y"}, {"w"});
  m.output("z").output("w");
  return m;
}

TEST(C, CountsKernelsAndVariants) {
  const std::string path = write(model());
  for (int32_t expected : {0, 1}) { // of the kernel, in the folder of these tests
    Opened s(path);
    ASSERT_TRUE(s.session);
    int32_t needed = -1, cached = -1;
    tessera_kernels(s.session, &needed, &cached);
    EXPECT_EQ(needed, 1);
    EXPECT_GE(cached, expected); // another test may have made it
    EXPECT_EQ(tessera_variants(s.session), 1);
  }
  int32_t untouched = 7;
  tessera_kernels(nullptr, &untouched, &untouched);
  EXPECT_EQ(untouched, 7);
  EXPECT_EQ(tessera_variants(nullptr), 0);
}

TEST(C, NullSessionsAndPointersAreErrors) {
  float x[4] = {1, 2, 3, 4}, z[4];
  int64_t dims[] = {1, 4};
  tessera_tensor in[] = {{"x", kFloat, 2, dims, x}, {"y", kFloat, 2, dims, x}}, out{nullptr, kFloat, 2, dims, z};
  const tessera_tensor* sizes = nullptr;
  int32_t count = 0;
  expect_says(tessera_run(nullptr, in, 2, &out, 1), "the session is null");
  expect_says(tessera_run_on_device(nullptr, in, 2, &out, 1, nullptr), "the session is null");
  expect_says(tessera_output_sizes(nullptr, in, 2, &sizes, &count), "the session is null");
  EXPECT_EQ(tessera_device(nullptr), nullptr);
  Opened s(write(model()));
  ASSERT_TRUE(s.session);
  expect_says(tessera_run(s.session, nullptr, 2, &out, 1), "the inputs are null");
  expect_says(tessera_run(s.session, in, 2, nullptr, 1), "the outputs are null");
  expect_says(tessera_run(s.session, nullptr, 0, &out, 1), "'x' was not given");
  expect_says(tessera_output_sizes(s.session, nullptr, 2, &sizes, &count), "the inputs are null");
  expect_says(tessera_output_sizes(s.session, in, 2, &sizes, nullptr), "nowhere");
  EXPECT_EQ(tessera_run(s.session, in, 2, &out, 1), nullptr);
}

TEST(C, ElementTypesAreThoseOfTheTable) {
  const std::pair<tessera_dtype, DType> types[] = {
      {TESSERA_F32, DType::F32},
      {TESSERA_U8, DType::U8},
      {TESSERA_I8, DType::I8},
      {TESSERA_U16, DType::U16},
      {TESSERA_I16, DType::I16},
      {TESSERA_I32, DType::I32},
      {TESSERA_I64, DType::I64},
      {TESSERA_STRING, DType::String},
      {TESSERA_BOOL, DType::Bool},
      {TESSERA_F16, DType::F16},
      {TESSERA_F64, DType::F64},
      {TESSERA_U32, DType::U32},
      {TESSERA_U64, DType::U64},
      {TESSERA_C64, DType::C64},
      {TESSERA_C128, DType::C128},
      {TESSERA_BF16, DType::BF16},
      {TESSERA_F8E4M3FN, DType::F8E4M3FN},
      {TESSERA_F8E4M3FNUZ, DType::F8E4M3FNUZ},
      {TESSERA_F8E5M2, DType::F8E5M2},
      {TESSERA_F8E5M2FNUZ, DType::F8E5M2FNUZ},
      {TESSERA_U4, DType::U4},
      {TESSERA_I4, DType::I4},
      {TESSERA_F4E2M1, DType::F4E2M1},
      {TESSERA_F8E8M0, DType::F8E8M0},
      {TESSERA_U2, DType::U2},
      {TESSERA_I2, DType::I2},
  };
  EXPECT_EQ(std::size(types), static_cast<size_t>(kDTypeCount) - 1); // lists are no tensors
  for (const auto& [number, dtype] : types) EXPECT_EQ(number, info(dtype).onnx) << name(dtype);
}

// Reads of a tensor are bounded by the model's declaration, so that a wrong number reads nothing.
TEST(C, NumbersThatAreNotTheModelsAreErrors) {
  Opened s(write(model()));
  ASSERT_TRUE(s.session);
  alignas(8) char bytes[32] = {};
  float z[4];
  int64_t dims[] = {1, 4};
  const tessera_tensor good[] = {{"x", kFloat, 2, dims, bytes}, {"y", kFloat, 2, dims, bytes}},
                       result{nullptr, kFloat, 2, dims, z};
  const tessera_tensor* sizes = nullptr;
  int32_t known = 0;
  for (int32_t count : {INT32_MIN, -1, 3, 1 << 30, INT32_MAX}) {
    expect_says(tessera_run(s.session, good, count, &result, 1), "the model has 2 inputs");
    expect_says(tessera_run(s.session, good, 2, &result, count), "the model has 1 outputs");
    expect_says(tessera_output_sizes(s.session, good, count, &sizes, &known), "the model has 2 inputs");
  }
  auto with = [&](const std::function<void(tessera_tensor&)>& change, const std::string& text) {
    tessera_tensor in[] = {good[0], good[1]}, out = result;
    change(in[1]);
    change(out);
    expect_says(tessera_run(s.session, in, 2, &result, 1), text);
    expect_says(tessera_run(s.session, good, 2, &out, 1), text);
  };
  for (int32_t rank : {INT32_MIN, -1, 0, 1, 3, 1 << 30, INT32_MAX})
    with([&](tessera_tensor& t) { t.rank = rank; }, "rank " + std::to_string(rank) + ", the model declares rank 2");
  for (int32_t type : {INT32_MIN, -1, 0, 8, 4711, INT32_MAX})
    with([&](tessera_tensor& t) { t.dtype = type; }, "type " + std::to_string(type));
  int64_t negative[] = {-1, 4}, huge[] = {int64_t{1} << 40, int64_t{1} << 40}, all[] = {INT64_MAX, INT64_MAX},
          beyond[] = {int64_t{1} << 50, 16};
  with([&](tessera_tensor& t) { t.dims = nullptr; }, "no dimensions");
  with([&](tessera_tensor& t) { t.dims = negative; }, "dimension 0 of -1");
  with([&](tessera_tensor& t) { t.dims = huge; }, "size-overflow");
  with([&](tessera_tensor& t) { t.dims = all; }, "size-overflow");
  with(
      [&](tessera_tensor& t) {
        t.dims = beyond;
        t.data = reinterpret_cast<void*>(UINTPTR_MAX - 7);
      },
      "end of the address space");
  with([&](tessera_tensor& t) { t.data = nullptr; }, "no memory");
  for (int off : {1, 2, 3}) with([&](tessera_tensor& t) { t.data = bytes + off; }, "no multiple of 4");
  EXPECT_EQ(tessera_run(s.session, good, 2, &result, 1), nullptr);
}

TEST(C, NumbersOfAProgramAreLookedAtFirst) {
  float x = 0;
  int64_t dims[] = {1, 1};
  tessera_tensor weight{"w", kFloat, 2, dims, &x};
  tessera_program program{};
  program.struct_size = sizeof program;
  program.json = "{}";
  program.json_bytes = 2;
  program.weights = &weight;
  program.weight_count = 1;
  tessera_session* session = nullptr;
  const char* refusals = nullptr;
  const auto both = [&](const std::string& text) {
    expect_says(tessera_open_program(&program, nullptr, &session), text);
    expect_says(tessera_survey_program(&program, &refusals), text);
  };
  for (int32_t rank : {INT32_MIN, -1, 65, 1 << 30, INT32_MAX}) {
    weight.rank = rank;
    both("weight 'w' has rank " + std::to_string(rank) + "; 0 to 64 are possible");
  }
  weight.rank = 2;
  program.json_bytes = SIZE_MAX;
  both("reaches beyond the end of the address space");
  program.json_bytes = 2;
  for (int32_t count : {INT32_MIN, -1}) {
    program.weight_count = count;
    both("the program's weights are null");
  }
}

TEST(C, RanksOfItemsAreLookedAtFirst) {
  Opened s(write(model()));
  float x[4] = {};
  int64_t dims[] = {1, 4};
  tessera_item items[2] = {};
  for (tessera_item& item : items) {
    item.struct_size = sizeof item;
    item.tensor = {nullptr, kFloat, 2, dims, x};
  }
  const tessera_item* out = nullptr;
  int32_t count = 0;
  ASSERT_EQ(tessera_run_items(s.session, items, 2, &out, &count), nullptr);
  for (int32_t rank : {INT32_MIN, -1, 65, 1 << 30, INT32_MAX}) {
    items[1].tensor.rank = rank;
    expect_says(tessera_run_items(s.session, items, 2, &out, &count), "rank " + std::to_string(rank) + "; 0 to 64");
  }
}

TEST(C, InputsAreGivenOnceAndOutputsHaveMemoryOfTheirOwn) {
  Opened s(write(two_outputs()));
  ASSERT_TRUE(s.session);
  float data[16] = {1, 2, 3, 4, 5, 6, 7, 8};
  int64_t dims[] = {1, 4};
  tessera_tensor in[] = {{"x", kFloat, 2, dims, data}, {"y", kFloat, 2, dims, data + 4}};
  auto run = [&](float* z, float* w) {
    tessera_tensor out[] = {{nullptr, kFloat, 2, dims, z}, {nullptr, kFloat, 2, dims, w}};
    return tessera_run(s.session, in, 2, out, 2);
  };
  expect_says(run(data + 8, data + 8), "output 'w' overlaps that of output 'z'");
  expect_says(run(data + 8, data + 11), "overlaps that of output");
  expect_says(run(data + 11, data + 8), "overlaps that of output");
  expect_says(run(data, data + 8), "output 'z' overlaps that of input 'x'");
  expect_says(run(data + 12, data + 5), "output 'w' overlaps that of input 'y'");
  EXPECT_EQ(data[0], 1) << "nothing was written";
  in[1].name = "x";
  expect_says(run(data + 8, data + 12), "input 'x' is given twice");
  in[1].name = "y";
  in[1].data = data; // two inputs may share memory
  EXPECT_EQ(run(data + 8, data + 12), nullptr);
  EXPECT_EQ(data[11], 8);
  EXPECT_EQ(data[15], 0);
}

// A call that comes in the middle of another one, from the log of that.
struct SecondCall {
  std::function<std::string()> call;
  std::string error;
  static void write(void* self, std::string_view, std::string_view) {
    auto& s = *static_cast<SecondCall*>(self);
    if (s.error.empty()) std::thread([&] { s.error = s.call(); }).join();
  }
  explicit SecondCall(std::function<std::string()> c) : call(std::move(c)) {
    ::alarm(60); // a call that gets in would wait for the log
    set_log_sink(write, this);
    EXPECT_EQ(set_log_channels("memory"), "");
  }
  ~SecondCall() {
    (void)set_log_channels("");
    set_log_sink(nullptr, nullptr);
    ::alarm(0);
  }
};

TEST(C, ASecondThreadIsAnError) {
  Opened s(write(model()));
  ASSERT_TRUE(s.session);
  float x[8] = {}, z[8], other[8];
  int64_t dims[] = {2, 4};
  tessera_tensor in[] = {{"x", kFloat, 2, dims, x}, {"y", kFloat, 2, dims, x}};
  tessera_tensor out{nullptr, kFloat, 2, dims, z}, second{nullptr, kFloat, 2, dims, other};
  for (bool run : {true, false}) {
    dims[0] = run ? 2 : 1; // the log reports a new shape
    SecondCall within([&] {
      const tessera_tensor* sizes = nullptr;
      int32_t count = 0;
      const char* error =
          run ? tessera_run(s.session, in, 2, &second, 1) : tessera_output_sizes(s.session, in, 2, &sizes, &count);
      return std::string(error ? error : "no error");
    });
    EXPECT_EQ(tessera_run(s.session, in, 2, &out, 1), nullptr);
    EXPECT_NE(within.error.find("the session is in use by another thread"), std::string::npos) << within.error;
  }
  EXPECT_EQ(tessera_run(s.session, in, 2, &out, 1), nullptr);
}

TEST(C, ASecondThreadIsAnErrorOfTheSessionAndOfItsExecutors) {
  auto session = open(model());
  ASSERT_TRUE(session);
  auto executor = session->new_executor();
  ASSERT_TRUE(executor.ok());
  int64_t rows = 1;
  auto check = [&](const auto& run, const std::string& text) {
    Inputs in = {{"x", numbers({++rows, 4})}, {"y", numbers({rows, 4}, 1)}};
    SecondCall within([&] {
      auto result = run(in);
      return result.ok() ? "no error" : result.error().str();
    });
    expect_right(model(), in, run(in));
    EXPECT_NE(within.error.find(text), std::string::npos) << within.error;
  };
  check([&](const Inputs& in) { return session->run(in); }, "the session is in use by another thread");
  check([&](const Inputs& in) { return (*executor)->run(in); }, "the executor is in use by another thread");
}

} // namespace
} // namespace tessera::api_test
