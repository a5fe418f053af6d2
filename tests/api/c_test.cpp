// The C interface: results as the C++ one has them, in memory of the caller's; every wrong argument is an error text.
#include "api/c.h"
#include "harness.h"

namespace tessera::api_test {
namespace {

struct Opened {
  tessera_session* session = nullptr;
  explicit Opened(const std::string& path) {
    const char* error = tessera_open(path.c_str(), "cpu", 2, &session);
    EXPECT_EQ(error, nullptr) << error;
  }
  ~Opened() { tessera_close(session); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
};

Maker model() {
  Maker m;
  m.input("x", {"n", 4}).input("y", {"n", 4}).add("Add", {"x", "y"}, {"z"}).output("z");
  return m;
}

constexpr int32_t kFloat = 1;

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
  much.device = "cpu";
  much.tune_share = 2;
  says(tessera_open_with(write(model()).c_str(), &much, &none), "share");
  says(tessera_open("m.onnx", "cpu", 1, nullptr), "session");
  EXPECT_EQ(none, nullptr);
  tessera_close(nullptr);

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
  says(with({"q", kFloat, 2, dims, x}), "'y' was not given");
  says(with({"y", kFloat, 2, wrong, x}), "y");
  says(with({"y", kFloat, 2, negative, x}), "");
  says(with({"y", 8, 2, dims, x}), "type 8");
  says(with({"y", 4711, 2, dims, x}), "4711");
  says(with({"y", kFloat, 2, nullptr, x}), "dimensions");
  says(with({"y", kFloat, 2, dims, nullptr}), "no memory");
  says(with({nullptr, kFloat, 2, dims, x}), "name");
  says(tessera_run(s.session, good, 2, nullptr, 1), "output");
  says(tessera_run(s.session, good, 2, &result, 0), "output");
  says(tessera_run_on_device(s.session, good, 2, &result, 1, nullptr), "device memory");
  const char* error = with(good[1]);
  EXPECT_EQ(error, nullptr) << error;
  EXPECT_EQ(z[3], 8);
}

} // namespace
} // namespace tessera::api_test
