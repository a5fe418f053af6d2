#include "harness.h"
#include "base/log.h"
#include <cmath>

namespace tessera::api_test {

const onnx_test::TemporaryFolder& folder() {
  static const onnx_test::TemporaryFolder f;
  return f;
}

SessionOptions options() {
  SessionOptions o;
  o.compile.threads = 2;
  o.compile.cache_dir = folder().path() + "/cache";
  o.executor.poison = true;
  return o;
}

std::string write(const Maker& model) {
  static int count = 0;
  return folder().write("model" + std::to_string(count++) + ".onnx", model.bytes());
}

std::unique_ptr<Session> open(const Maker& model, SessionOptions options) {
  auto session = Session::open(write(model), std::move(options));
  if (!session.ok()) {
    ADD_FAILURE() << session.error().str();
    return nullptr;
  }
  return std::move(*session);
}

Tensor numbers(Dims dims, int seed) {
  Tensor t = Tensor::create(DType::F32, std::move(dims)).value();
  for (int64_t i = 0; i < t.count(); ++i) t.set_f64(i, static_cast<double>((i * 7 + seed * 13) % 23 - 11) / 4);
  return t;
}

Tensor integers(Dims dims, int64_t below, int seed) {
  Tensor t = Tensor::create(DType::I64, std::move(dims)).value();
  for (int64_t i = 0; i < t.count(); ++i) t.set_i64(i, (i * 5 + seed * 3) % below);
  return t;
}

void expect_right(const Maker& model, const Inputs& inputs, const Result<std::vector<Tensor>>& results) {
  ASSERT_TRUE(results.ok()) << results.error().str();
  ImportOptions import;
  for (const auto& [name, tensor] : inputs) import.input_shapes[name] = tensor.dims();
  auto static_model = model.import_it(import);
  ASSERT_TRUE(static_model.ok()) << static_model.error().str();
  auto expected = evaluate_graph(static_model->graph, inputs);
  ASSERT_TRUE(expected.ok()) << expected.error().str();
  ASSERT_EQ(results->size(), expected->size());
  for (size_t o = 0; o < expected->size(); ++o) {
    const Tensor &got = (*results)[o], &want = (*expected)[o];
    ASSERT_EQ(got.dtype(), want.dtype());
    ASSERT_EQ(got.dims(), want.dims());
    for (int64_t i = 0; i < want.count(); ++i)
      ASSERT_NEAR(got.get_f64(i), want.get_f64(i), 1e-5 + 1e-5 * std::abs(want.get_f64(i)))
          << "output " << o << ", element " << i;
  }
}

void expect_error(const Result<std::vector<Tensor>>& result, ErrorCode code, const std::vector<std::string>& texts) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(info(result.error().code).name, info(code).name) << result.error().str();
  for (const auto& text : texts)
    EXPECT_NE(result.error().str().find(text), std::string::npos) << "'" << text << "' in\n" << result.error().str();
}

LogCapture::LogCapture(std::string_view channels) {
  set_log_sink(
      [](void* user, std::string_view channel, std::string_view text) {
        static_cast<LogCapture*>(user)->text_ += std::string(channel) + ": " + std::string(text) + "\n";
      },
      this);
  EXPECT_EQ(set_log_channels(channels), "");
}
LogCapture::~LogCapture() {
  (void)set_log_channels("");
  set_log_sink(nullptr, nullptr);
}

} // namespace tessera::api_test
