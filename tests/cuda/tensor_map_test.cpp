// Tensor maps of launches: encoded by the driver for the addresses and sizes of each call, and kept while they stay the
// same.
#include "executor_harness.h"

namespace tessera {
namespace {
using namespace test;

class TensorMaps : public OnGpu {
protected:
  TensorMaps() {
    // y[i] = x[i] + 1 of an n x 8 matrix, all through its maps.
    gpu.kernel(
        "mapped", 4,
        [this](const FakeGpu::Launch& l) {
          const auto &from = l.maps.at(0), &to = l.maps.at(1);
          EXPECT_EQ(from.rank, 2u);
          EXPECT_EQ(from.bits, 32u);
          EXPECT_EQ(from.swizzle, static_cast<uint32_t>(CU_TENSOR_MAP_SWIZZLE_32B));
          EXPECT_EQ(from.strides[0], 32u);
          EXPECT_EQ(from.box[0], 8u);
          EXPECT_EQ(from.box[1], 4u);
          EXPECT_EQ(from.address, l.args[0]);
          const auto n = static_cast<int64_t>(from.dims[0] * from.dims[1]);
          const auto* x = gpu.at<float>(from.address, n);
          auto* y = gpu.at<float>(to.address, n);
          for (int64_t i = 0; i < n; ++i) y[i] = x[i] + 1;
          return CUDA_SUCCESS;
        },
        2);
    options.gpu_context = gpu.context();
    options.wait_for_plans = true;
  }
  // x of [s, 8]; maps of `columns` columns.
  std::shared_ptr<const Executable> mapped(int64_t columns = 8, int buffer = 1) {
    auto b = builder();
    auto s = b.symbol("s");
    auto x = b.input("x", {s, 8}), y = b.output("y", {s, 8});
    auto k = launch(b, "mapped", x, y, s);
    const TensorMapOf<SymExpr> map{0, DType::F32, 0, {8, s}, {columns * 4}, {8, 4}, Swizzle::Bytes32};
    k.tensor_maps = {map, map};
    k.tensor_maps[1].buffer = buffer;
    b.exe->steps.emplace_back(std::move(k));
    return b.done();
  }
  static Tensor matrix(int64_t rows) {
    Tensor t = Tensor::create(DType::F32, {rows, 8}).value();
    float v = 0;
    for (auto& e : t.mutable_as<float>()) e = v++;
    return t;
  }
  void expect_right(Executor& e, int64_t rows) {
    auto x = matrix(rows);
    auto y = e.run({{"x", x}});
    ASSERT_TRUE(y.ok()) << y.error().str();
    for (size_t i = 0; i < values(x).size(); ++i) ASSERT_EQ(values((*y)[0])[i], values(x)[i] + 1);
  }
};

TEST_F(TensorMaps, FollowSizesAndAddresses) {
  auto e = executor(mapped());
  for (const int64_t rows : {4, 9, 4, 100, 9}) expect_right(*e, rows);
  EXPECT_GE(gpu.encoded_maps, 2 * 3);
}

TEST_F(TensorMaps, AreEncodedOnceForTheSameCall) {
  auto e = executor(mapped());
  for (int call = 0; call < 3; ++call) expect_right(*e, 16);
  const int encoded = gpu.encoded_maps;
  const auto launches = gpu.launches.size();
  for (int call = 0; call < 5; ++call) expect_right(*e, 16);
  EXPECT_EQ(gpu.launches.size(), launches + 5);
  EXPECT_EQ(gpu.encoded_maps, encoded);
}

TEST_F(TensorMaps, BeyondTheBufferAreRefused) {
  auto e = executor(mapped(12));
  auto y = e->run({{"x", matrix(4)}});
  ASSERT_FALSE(y.ok());
  EXPECT_NE(y.error().str().find("has a tensor map of 'x' that is not possible"), std::string::npos) << y.error().str();
  EXPECT_TRUE(gpu.launches.empty());
}

TEST_F(TensorMaps, OfOtherBuffersAreRefused) {
  for (const int buffer : {-1, 2}) {
    auto e = create({mapped(8, buffer)});
    ASSERT_FALSE(e.ok());
    EXPECT_NE(e.error().str().find("a buffer that it does not have"), std::string::npos) << e.error().str();
  }
}

TEST_F(TensorMaps, ADriverThatRefusesIsNamed) {
  gpu.fail("cuTensorMapEncodeTiled", 0, CUDA_ERROR_INVALID_VALUE);
  auto e = executor(mapped());
  auto y = e->run({{"x", matrix(4)}});
  ASSERT_FALSE(y.ok());
  EXPECT_NE(y.error().str().find("cuTensorMapEncodeTiled failed with"), std::string::npos) << y.error().str();
}

} // namespace
} // namespace tessera
