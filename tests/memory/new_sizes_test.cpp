// Calls of ever new sizes: what a size costs is counted, bounded and given back.
#include "runtime/memory_account.h"
#include "symbols/node.h"
#include "tests/api/harness.h"
#include <fstream>
#include <unistd.h>

namespace tessera {
namespace {

using onnx_test::float_attribute;
using onnx_test::float_tensor;
using onnx_test::int64_tensor;
using onnx_test::ints_attribute;
using onnx_test::Maker;

constexpr double kMB = 1e6;

double resident_mb() {
  int64_t mapped = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> mapped >> resident;
  return static_cast<double>(resident * ::getpagesize()) / kMB;
}

std::vector<float> small_numbers(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = 0.02F * (static_cast<float>(i * 37 % 101) / 50 - 1);
  return values;
}

// A length that is read from data, then convolutions along it, as in a model that makes speech.
Maker convolutions_over_a_length_from_data() {
  constexpr int64_t kChannels = 64, kKernel = 7;
  Maker m;
  m.input("count", {}, onnx_test::proto::TensorProto::INT64).output("y");
  m.weight(int64_tensor("zero", {}, {0})).weight(int64_tensor("one", {}, {1}));
  m.weight(int64_tensor("axes", {2}, {0, 1}));
  m.add("Range", {"zero", "count", "one"}, {"r"});
  m.add("Cast", {"r"}, {"f"}, {onnx_test::int_attribute("to", 1)});
  m.add("Unsqueeze", {"f", "axes"}, {"u"}).add("Sin", {"u"}, {"h0"});
  std::string from = "h0";
  int64_t channels = 1;
  for (int layer = 0; layer < 6; ++layer) {
    const std::string n = std::to_string(layer);
    const int64_t dilation = 1 + layer % 3 * 2, pad = dilation * (kKernel / 2);
    m.weight(float_tensor("w" + n, {kChannels, channels, kKernel}, small_numbers(kChannels * channels * kKernel)));
    m.add("Conv", {from, "w" + n}, {"c" + n},
          {ints_attribute("pads", {pad, pad}), ints_attribute("dilations", {dilation})});
    m.add("LeakyRelu", {"c" + n}, {"l" + n}, {float_attribute("alpha", 0.1F)});
    from = "l" + n;
    channels = kChannels;
  }
  m.weight(float_tensor("wt", {kChannels, 8, 4}, small_numbers(kChannels * 8 * 4)));
  m.add("ConvTranspose", {from, "wt"}, {"y"}, {ints_attribute("strides", {2}), ints_attribute("pads", {1, 1})});
  return m;
}

Tensor scalar(int64_t value) {
  Tensor t = Tensor::create(DType::I64, {}).value();
  std::memcpy(t.mutable_data(), &value, sizeof value);
  return t;
}

TEST(NewSizes, LengthsThatAreReadFromDataAreBoundedAndCounted) {
  SessionOptions options = api_test::options();
  const auto account = options.executor.memory = std::make_shared<MemoryAccount>(0);
  const Maker model = convolutions_over_a_length_from_data();
  auto session = api_test::open(model, options);
  ASSERT_TRUE(session);
  const double start = resident_mb();
  const auto call = [&](int64_t length) {
    auto result = session->run({{"count", scalar(length)}});
    ASSERT_TRUE(result.ok()) << result.error().str();
    ASSERT_EQ((*result)[0].dims(), (Dims{1, 8, 2 * length}));
  };
  for (int64_t length : {1, 2, 15, 16, 17, 63, 64, 65, 300})
    api_test::expect_right(model, {{"count", scalar(length)}}, session->run({{"count", scalar(length)}}));
  for (int64_t i = 0; i < 50; ++i) call(200 + i * 37 % 500);
  const double after_some = resident_mb();
  for (int64_t i = 50; i < 200; ++i) call(200 + i * 37 % 500);
  const double growth = resident_mb() - start;
  const double counted = static_cast<double>(account->held(MemoryAccount::Where::Host)) / kMB;
  EXPECT_EQ(session->compile_totals().variants, 1);
  EXPECT_LT(growth + start - after_some, 24);
  EXPECT_NEAR(counted, growth, 0.1 * growth + 16);
  ASSERT_TRUE(session->trim().ok());
  EXPECT_LT(static_cast<double>(account->held(MemoryAccount::Where::Host)) / kMB, counted / 4);
  session.reset();
  EXPECT_EQ(account->held(MemoryAccount::Where::Host), 0);
}

TEST(NewSizes, PrimitivesCountForTheMemoryLimit) {
  SessionOptions options = api_test::options();
  const auto account = options.executor.memory = std::make_shared<MemoryAccount>(int64_t{8} << 20);
  auto session = api_test::open(convolutions_over_a_length_from_data(), options);
  ASSERT_TRUE(session);
  for (int64_t i = 0; i < 40; ++i) {
    auto result = session->run({{"count", scalar(20 + i * 11)}});
    ASSERT_TRUE(result.ok()) << result.error().str();
  }
  EXPECT_LE(account->peak(), account->limit());
}

// Blocks of memory that grow from call to call leave no holes that nothing fits.
TEST(NewSizes, GrowingSizesDoNotFillTheHeap) {
  Maker m;
  m.input("x", {"n", 64}).output("y");
  m.weight(float_tensor("w", {64, 256}, small_numbers(64 * 256)));
  m.add("MatMul", {"x", "w"}, {"h"}).add("Softmax", {"h"}, {"s"}).add("Relu", {"s"}, {"y"});
  SessionOptions options = api_test::options();
  options.executor.memory = std::make_shared<MemoryAccount>(int64_t{64} << 20);
  auto session = api_test::open(m, options);
  ASSERT_TRUE(session);
  const double start = resident_mb();
  constexpr int64_t kCalls = 400;
  for (int64_t i = 1; i <= kCalls; ++i) {
    auto result = session->run({{"x", Tensor::create(DType::F32, {i * 24, 64}, true).value()}});
    ASSERT_TRUE(result.ok()) << result.error().str();
  }
  EXPECT_LT(resident_mb() - start, 120); // the last call takes 23 MB
  ASSERT_TRUE(session->trim().ok());
  EXPECT_LT(resident_mb() - start, 24);
}

TEST(NewSizes, OpensAndVariantsLeaveNoExpressions) {
  Maker m;
  m.input("x", {"n", "k"}).output("y");
  m.weight(int64_tensor("flat", {1}, {-1}));
  m.add("Softmax", {"x"}, {"s"})
      .add("Concat", {"s", "x"}, {"c"}, {onnx_test::int_attribute("axis", 1)})
      .add("Reshape", {"c", "flat"}, {"y"});
  const auto open_call_close = [&](int64_t i) {
    SessionOptions options = api_test::options();
    options.policy = VariantPolicy::Exact;
    auto session = api_test::open(m, options);
    ASSERT_TRUE(session);
    for (int64_t n = 1; n < 4; ++n) {
      auto result = session->run({{"x", Tensor::create(DType::F32, {n + i, 3}, true).value()}});
      ASSERT_TRUE(result.ok()) << result.error().str();
    }
  };
  open_call_close(0); // tables that live as long as the process
  const size_t before = sym::interned();
  for (int64_t i = 1; i < 6; ++i) open_call_close(i);
  EXPECT_EQ(sym::interned(), before);
}

} // namespace
} // namespace tessera
