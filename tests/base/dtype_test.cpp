#include "base/tensor.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>

namespace tessera {
namespace {
constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

TEST(DType, TableIsConsistent) {
  for (int i = 0; i < kDTypeCount; ++i) {
    DType d = static_cast<DType>(i);
    EXPECT_EQ(dtype_from_name(name(d)), d);
    EXPECT_EQ(dtype_from_onnx(info(d).onnx), d);
  }
  EXPECT_FALSE(dtype_from_name("f33"));
  EXPECT_FALSE(dtype_from_onnx(0));
  EXPECT_EQ(byte_size(DType::U4, 3), 2);
  EXPECT_EQ(byte_size(DType::I2, 5), 2);
}

TEST(DType, HalfExpectations) {
  struct {
    float x;
    uint16_t bits;
  } cases[] = {
      {0.0f, 0},
      {-0.0f, 0x8000},
      {1.0f, 0x3c00},
      {-2.0f, 0xc000},
      {65504.0f, 0x7bff},
      {65519.996f, 0x7bff},
      {65520.0f, 0x7c00},
      {1e9f, 0x7c00},
      {-kInf, 0xfc00},
      {0x1p-24f, 1},
      {0x1p-25f, 0},
      {0x1.000002p-25f, 1},
      {0x1.8p-24f, 2},
      {0x1p-14f, 0x400},
      {0x1.ff8p-15f, 0x3ff},
      {0x1.ffcp-15f, 0x400},
      {0x1.ffep-15f, 0x400},
      {1.00048828125f, 0x3c00},
      {1.0004884f, 0x3c01},
      {1.00146484375f, 0x3c02},
      {0.1f, 0x2e66},
      {3.14159265f, 0x4248},
  };
  for (auto c : cases) EXPECT_EQ(f32_to_f16(c.x), c.bits) << c.x;
  EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(kNan))));
  // One rounding from f64: through f32 this would round up twice.
  EXPECT_EQ(f64_to_f16(1.0 + 0x1p-11 - 0x1p-40), 0x3c00);
  EXPECT_EQ(f64_to_f16(1.0 + 0x1p-11 + 0x1p-40), 0x3c01);
}

TEST(DType, HalfAndBrainAgreeWithTheGenericEncoding) {
  for (uint32_t b = 0; b < 0x10000; ++b) {
    uint16_t h = static_cast<uint16_t>(b);
    float f = f16_to_f32(h), g = bf16_to_f32(h);
    if (!std::isnan(f)) {
      EXPECT_EQ(f32_to_f16(f), h);
      EXPECT_EQ(f64_to_f16(f), h);
    }
    if (!std::isnan(g)) {
      EXPECT_EQ(f32_to_bf16(g), h);
      EXPECT_EQ(f64_to_bf16(g), h);
    }
  }
  std::mt19937 rng(1);
  for (int i = 0; i < 200000; ++i) {
    float x = std::bit_cast<float>(static_cast<uint32_t>(rng()));
    if (i % 2) x = std::ldexp(static_cast<float>(rng()), -16 - static_cast<int>(rng() % 46)); // near f16's range
    if (std::isnan(x)) continue;
    ASSERT_EQ(f32_to_f16(x), f64_to_f16(x)) << x;
    ASSERT_EQ(f32_to_bf16(x), f64_to_bf16(x)) << x;
  }
}

TEST(DType, SmallFloatValues) {
  EXPECT_EQ(small_float_to_f32(DType::F8E4M3FN, 0x7e), 448);
  EXPECT_EQ(small_float_to_f32(DType::F8E4M3FN, 0x01), 0x1p-9f);
  EXPECT_TRUE(std::isnan(small_float_to_f32(DType::F8E4M3FN, 0xff)));
  EXPECT_EQ(small_float_to_f32(DType::F8E4M3FNUZ, 0x7f), 240);
  EXPECT_TRUE(std::isnan(small_float_to_f32(DType::F8E4M3FNUZ, 0x80)));
  EXPECT_EQ(small_float_to_f32(DType::F8E5M2, 0x7b), 57344);
  EXPECT_EQ(small_float_to_f32(DType::F8E5M2, 0xfc), -kInf);
  EXPECT_TRUE(std::isnan(small_float_to_f32(DType::F8E5M2, 0x7d)));
  EXPECT_EQ(small_float_to_f32(DType::F8E5M2FNUZ, 0xff), -57344);
  EXPECT_EQ(small_float_to_f32(DType::F8E8M0, 127), 1);
  EXPECT_EQ(small_float_to_f32(DType::F8E8M0, 0), 0x1p-127f);
  const float e2m1[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (uint8_t i = 0; i < 8; ++i) {
    EXPECT_EQ(small_float_to_f32(DType::F4E2M1, i), e2m1[i]);
    EXPECT_EQ(small_float_to_f32(DType::F4E2M1, i | 8), -e2m1[i]);
  }
}

TEST(DType, SmallFloatRoundTripAndNearest) {
  for (DType d : {DType::F8E4M3FN, DType::F8E4M3FNUZ, DType::F8E5M2, DType::F8E5M2FNUZ, DType::F4E2M1, DType::F8E8M0}) {
    const int codes = d == DType::F4E2M1 ? 16 : 256;
    std::vector<float> values;
    for (int i = 0; i < codes; ++i) {
      float f = small_float_to_f32(d, static_cast<uint8_t>(i));
      if (std::isnan(f)) continue;
      EXPECT_EQ(f32_to_small_float(d, f, false), i) << name(d) << " " << i;
      if (std::isfinite(f)) values.push_back(f);
    }
    if (d == DType::F8E8M0) continue;
    std::sort(values.begin(), values.end());
    for (size_t i = 0; i + 1 < values.size(); ++i) { // between two neighbours the nearer one
      double a = values[i], b = values[i + 1], third = a + (b - a) / 3, two = a + (b - a) * 2 / 3;
      EXPECT_EQ(small_float_to_f32(d, f64_to_small_float(d, third)), values[i]) << name(d);
      EXPECT_EQ(small_float_to_f32(d, f64_to_small_float(d, two)), values[i + 1]) << name(d);
    }
  }
}

TEST(DType, SmallFloatSpecialValuesAsOnnxSays) {
  struct {
    DType d;
    bool saturate;
    float x;
    uint8_t bits;
  } cases[] = {
      {DType::F8E4M3FN, true, kInf, 0x7e},
      {DType::F8E4M3FN, true, 1e9f, 0x7e},
      {DType::F8E4M3FN, false, kInf, 0x7f},
      {DType::F8E4M3FN, false, 464, 0x7e},
      {DType::F8E4M3FN, false, 465, 0x7f},
      {DType::F8E4M3FN, true, -0.0f, 0x80},
      {DType::F8E4M3FNUZ, true, -kInf, 0xff},
      {DType::F8E4M3FNUZ, false, 1e9f, 0x80},
      {DType::F8E4M3FNUZ, true, -0.0f, 0},
      {DType::F8E4M3FNUZ, true, kNan, 0x80},
      {DType::F8E5M2, true, kInf, 0x7b},
      {DType::F8E5M2, false, kInf, 0x7c},
      {DType::F8E5M2, false, -1e9f, 0xfc},
      {DType::F8E5M2FNUZ, false, kInf, 0x80},
      {DType::F8E5M2FNUZ, true, -1e9f, 0xff},
      {DType::F4E2M1, true, 1e9f, 7},
      {DType::F4E2M1, false, -kInf, 15},
      {DType::F4E2M1, true, 2.5f, 4},
      {DType::F8E8M0, true, kInf, 0xfe},
      {DType::F8E8M0, false, kInf, 0xff},
      {DType::F8E8M0, true, 0, 0},
  };
  for (auto c : cases)
    EXPECT_EQ(f32_to_small_float(c.d, c.x, c.saturate), c.bits) << name(c.d) << " " << c.x << " " << c.saturate;
  EXPECT_EQ(f64_to_e8m0(3.0, E8M0Rounding::Up), 129);
  EXPECT_EQ(f64_to_e8m0(3.0, E8M0Rounding::Down), 128);
  EXPECT_EQ(f64_to_e8m0(2.9, E8M0Rounding::Nearest), 128);
  EXPECT_EQ(f64_to_e8m0(3.0, E8M0Rounding::Nearest), 129);
}

TEST(TensorElements, EveryDTypeStoresAndLoads) {
  for (int i = 0; i < kDTypeCount; ++i) {
    DType d = static_cast<DType>(i);
    DTypeKind kind = info(d).kind;
    if (kind == DTypeKind::Held || kind == DTypeKind::Complex) continue;
    Tensor t = Tensor::create(d, {9}).value();
    // Values that every type has: neighbours of packed elements must not disturb each other.
    const bool sign = kind == DTypeKind::Signed || (kind == DTypeKind::Float && d != DType::F8E8M0);
    auto value = [&](int64_t k) -> int64_t { return sign && k % 3 == 2 ? -1 : d == DType::F8E8M0 ? 1 + k % 2 : k % 2; };
    for (int64_t k = 8; k >= 0; --k) t.set_i64(k, value(k));
    for (int64_t k = 0; k < 9; ++k) {
      EXPECT_EQ(t.get_i64(k), value(k)) << name(d) << " " << k;
      EXPECT_EQ(t.get_f64(k), static_cast<double>(value(k))) << name(d) << " " << k;
    }
    for (int64_t k = 0; k < 9; ++k) t.set_f64(k, static_cast<double>(value(8 - k)));
    for (int64_t k = 0; k < 9; ++k) EXPECT_EQ(t.get_i64(k), value(8 - k)) << name(d) << " " << k;
  }
}

TEST(TensorElements, IntegersWrapAndFloatsRoundOnce) {
  auto one = [](DType d) { return Tensor::create(d, {1}).value(); };
  auto i = [&](DType d, int64_t v) {
    Tensor t = one(d);
    t.set_i64(0, v);
    return t.get_i64(0);
  };
  auto f = [&](DType d, double v) {
    Tensor t = one(d);
    t.set_f64(0, v);
    return t.get_f64(0);
  };
  EXPECT_EQ(i(DType::I8, 200), -56);
  EXPECT_EQ(i(DType::U8, -1), 255);
  EXPECT_EQ(i(DType::I4, 9), -7);
  EXPECT_EQ(i(DType::U4, -1), 15);
  EXPECT_EQ(i(DType::I2, 2), -2);
  EXPECT_EQ(i(DType::U2, 7), 3);
  EXPECT_EQ(i(DType::Bool, 256), 1);
  EXPECT_EQ(i(DType::I64, INT64_MIN), INT64_MIN);
  EXPECT_EQ(f(DType::U64, 0x1p63), 0x1p63);
  EXPECT_EQ(f(DType::I32, -2.9), -2);
  EXPECT_EQ(f(DType::Bool, 0.5), 1);
  EXPECT_EQ(f(DType::F32, 0.1), static_cast<double>(0.1f));
  EXPECT_EQ(f(DType::F16, 0.1), 0.0999755859375);
  EXPECT_EQ(f(DType::BF16, 0.1), 0.10009765625);
  EXPECT_EQ(f(DType::F4E2M1, -2.6), -3);
  EXPECT_EQ(f64_to_i64(1e300), INT64_MAX);
  EXPECT_EQ(f64_to_i64(-1e300), INT64_MIN);
  EXPECT_EQ(f64_to_i64(NAN), 0);
  // 2^24 + 1 + a little: straight from i64 to f32 it rounds up, through f64 it would too; 2^60 + 2^36 + 1 sets them
  // apart.
  Tensor t = one(DType::F32);
  t.set_i64(0, (int64_t{1} << 60) + (int64_t{1} << 36) + 1);
  EXPECT_EQ(t.get_f64(0), 0x1p60 + 0x1p37);
}

} // namespace
} // namespace tessera
