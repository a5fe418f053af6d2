// Library calls are refused with reasons that name the cause.
#include "runtime/library/support.h"
#include "build_executable.h"

namespace tessera {
namespace {
using namespace test;

StridedOperand operand(SymShape shape) { return {0, shape, contiguous_strides(shape), 0}; }
constexpr DType kF32[] = {DType::F32, DType::F32, DType::F32};

TEST(Support, ProductsOfF32MatricesWithAnyStrides) {
  auto s = SymExpr::symbol("s");
  MatmulCall call{operand({s, 4, 8}), operand({8, 16}), operand({s, 4, 16}), std::nullopt};
  EXPECT_EQ(matmul_refusal(call, kF32), "");
  DType half[] = {DType::F16, DType::F32, DType::F32};
  EXPECT_NE(matmul_refusal(call, half).find("f16"), std::string::npos);
  auto vector = call;
  vector.a = operand({8});
  EXPECT_NE(matmul_refusal(vector, kF32), "");
  auto overlapping = call;
  overlapping.c.strides[1] = 0;
  EXPECT_NE(matmul_refusal(overlapping, kF32).find("stride of 0"), std::string::npos);
  auto backwards = call;
  backwards.a.strides[2] = -1;
  EXPECT_NE(matmul_refusal(backwards, kF32).find("negative"), std::string::npos);
}

TEST(Support, WindowsOfOneToThreeSpatialDimensions) {
  ConvCall conv{
      operand({1, 4, 9, 9}), operand({8, 4, 3, 3}), operand({1, 8, 9, 9}), {1, 1}, {1, 1}, {1, 1}, {1, 1}, 1, false, {},
      std::nullopt};
  EXPECT_EQ(conv_refusal(conv, kF32), "");
  auto short_strides = conv;
  short_strides.strides = {1};
  EXPECT_NE(conv_refusal(short_strides, kF32), "");
  auto zero = conv;
  zero.dilations = {0, 1};
  EXPECT_NE(conv_refusal(zero, kF32), "");
  auto four = conv;
  four.x = operand({1, 4, 2, 2, 2, 2});
  EXPECT_NE(conv_refusal(four, kF32).find("rank 6"), std::string::npos);
  PoolCall pool{PoolCall::Kind::Max, operand({1, 4, 9}), operand({1, 4, 4}), {2}, {2}, {0}, {0}, {1}, std::nullopt};
  EXPECT_EQ(pool_refusal(pool, kF32), "");
  pool.pads_begin = {-1};
  EXPECT_NE(pool_refusal(pool, kF32), "");
}

} // namespace
} // namespace tessera
