// Arguments: every dtype of a scalar parameter, and what each refuses; texts and grids that are errors.
#include "base/tensor.h"
#include "harness.h"
#include <cstring>

namespace tessera {
namespace {
using namespace kernel_test;

constexpr DType kScalars[] = {DType::Bool, DType::I8,  DType::I16, DType::I32,      DType::I64,
                              DType::U8,   DType::U16, DType::U32, DType::U64,      DType::F16,
                              DType::BF16, DType::F32, DType::F64, DType::F8E4M3FN, DType::F8E5M2};

std::string store_of(DType dtype) {
  const std::string d(name(dtype));
  return "tile.kernel @put(%a: i64, %v: " + d + ", %y: ptr<" + d + "> written, %b: f64, %z: ptr<f64> written) {\n" +
         "  store %y[%a] = %v\n  store %z[0] = %b\n}\n";
}

TEST(KernelArguments, ScalarsOfEveryDtype) {
  for (const DType dtype : kScalars) {
    auto kernel = make(store_of(dtype));
    double z = 0;
    auto put = [&](KernelArgument value) {
      Tensor y = Tensor::create(dtype, {2}).value();
      std::memset(y.mutable_data(), 0, y.bytes());
      const auto status = launch(*kernel, 1, 1, value, y.mutable_data(), -0.1, &z);
      EXPECT_TRUE(status.ok()) << status.error().str();
      EXPECT_EQ(z, -0.1) << "what stands behind it";
      return y;
    };
    const DTypeInfo& d = info(dtype);
    SCOPED_TRACE(d.name);
    if (is_float(dtype)) {
      for (double v : {0.0, 1.0, -1.5, 0.1, 240.0, -0.0}) {
        Tensor expected = Tensor::create(dtype, {1}).value();
        expected.set_f64(0, v);
        EXPECT_EQ(put(v).get_f64(1), expected.get_f64(0)) << v;
      }
      EXPECT_EQ(put(-3).get_f64(1), -3) << "an integer";
      EXPECT_EQ(put(7U).get_f64(1), 7);
      EXPECT_TRUE(std::isnan(put(NAN).get_f64(1)));
      continue;
    }
    if (dtype == DType::U64) {
      Tensor most = put(UINT64_MAX);
      EXPECT_EQ(reinterpret_cast<const uint64_t*>(most.data())[1], UINT64_MAX);
      EXPECT_EQ(put(5).get_i64(1), 5);
      EXPECT_NE(message(launch(*kernel, 1, 0, -1, &z, 1.0, &z)), "");
      continue;
    }
    const int bits = dtype == DType::Bool ? 1 : d.bits;
    const bool is_signed = d.kind == DTypeKind::Signed;
    const int64_t most = is_signed ? INT64_MAX >> (64 - bits) : (int64_t{1} << bits) - 1;
    for (int64_t v : {int64_t{0}, int64_t{1}, most, is_signed ? -most - 1 : int64_t{0}})
      EXPECT_EQ(put(v).get_i64(1), v);
    if (bits == 64) continue;
    for (int64_t v : {most + 1, is_signed ? -most - 2 : int64_t{-1}}) {
      const std::string said = message(launch(*kernel, 1, 0, v, &z, 1.0, &z));
      EXPECT_NE(said.find("argument 2, 'v' of kernel 'put' (" + std::string(d.name) + "), is " + std::to_string(v) +
                          ", expected an integer from"),
                std::string::npos)
          << said;
    }
  }
}

TEST(KernelArguments, EachWrongOneIsNamed) {
  auto kernel =
      make("tile.kernel @k(%x: ptr<f32> elements=%n, %n: i64 multiple=8, %f: f32, %y: ptr<f64> written) {\n}\n");
  alignas(64) float x[8] = {};
  double y = 0;
  const float* none = nullptr;
  auto said = [&](auto... values) { return message(launch(*kernel, 1, values...)); };
  EXPECT_EQ(said(x, 8, 1.5, &y), "");
  EXPECT_EQ(said(reinterpret_cast<uintptr_t>(x), 8, 1, reinterpret_cast<intptr_t>(&y)), "") << "integers as addresses";
  EXPECT_EQ(said(none, 0, 1.5, &y), "") << "no elements are promised";
  EXPECT_EQ(said(x, 8, 1.5), "kernel 'k' takes 4 arguments, got 3");
  EXPECT_EQ(said(), "kernel 'k' takes 4 arguments, got 0");
  EXPECT_EQ(said(x, 8, 1.5, &y, 1), "kernel 'k' takes 4 arguments, got 5");
  EXPECT_EQ(said(x, 8.0, 1.5, &y), "argument 2, 'n' of kernel 'k' (i64), is the float 8.0, expected an integer from "
                                   "-9223372036854775808 to 9223372036854775807 that is a multiple of 8");
  EXPECT_EQ(said(x, 12, 1.5, &y), "argument 2, 'n' of kernel 'k' (i64), is 12, expected an integer from "
                                  "-9223372036854775808 to 9223372036854775807 that is a multiple of 8");
  EXPECT_EQ(said(x, x, 1.5, &y), "argument 2, 'n' of kernel 'k' (i64), is a pointer, expected an integer from "
                                 "-9223372036854775808 to 9223372036854775807 that is a multiple of 8");
  EXPECT_EQ(said(x, 8, x, &y), "argument 3, 'f' of kernel 'k' (f32), is a pointer, expected a number");
  EXPECT_EQ(said(1.5, 8, 1.5, &y), "argument 1, 'x' of kernel 'k' (ptr<f32>), is the float 1.5, expected an address");
  EXPECT_EQ(said(-8, 8, 1.5, &y), "argument 1, 'x' of kernel 'k' (ptr<f32>), is -8, expected an address");
  EXPECT_EQ(said(x, 8, 1.5, 4100),
            "argument 4, 'y' of kernel 'k' (ptr<f64>), is the address 0x1004, expected an address "
            "that is a multiple of 8");
  EXPECT_EQ(said(none, 8, 1.5, &y),
            "argument 1, 'x' of kernel 'k' (ptr<f32>), is a null pointer, expected the address of "
            "8 elements, which the parameter promises");
}

TEST(KernelArguments, MoreThanAFew) {
  std::string text = "tile.kernel @sum(%y: ptr<i64> written";
  for (int i = 0; i < 200; ++i) text += ", %v" + std::to_string(i) + ": i64";
  text += ") {\n  %s0 = const 0 : i64\n";
  for (int i = 0; i < 200; ++i)
    text += "  %s" + std::to_string(i + 1) + " = add(%s" + std::to_string(i) + ", %v" + std::to_string(i) + ") : i64\n";
  auto kernel = make(text + "  store %y[0] = %s200\n}\n");
  int64_t y = 0;
  std::vector<KernelArgument> arguments{&y};
  for (int i = 0; i < 200; ++i) arguments.emplace_back(i);
  ASSERT_TRUE(kernel->launch(1, arguments).ok());
  EXPECT_EQ(y, 199 * 100);
}

TEST(KernelArguments, GridsOutOfRange) {
  auto kernel = make("tile.kernel @k() {\n}\n");
  EXPECT_TRUE(launch(*kernel, 1).ok());
  EXPECT_EQ(message(launch(*kernel, -1)),
            "the grid of kernel 'k' has -1 programs along axis 0, expected 0 to 2147483647");
  EXPECT_EQ(message(launch(*kernel, {1, 1, 65536})),
            "the grid of kernel 'k' has 65536 programs along axis 2, expected 0 to 65535");
  EXPECT_EQ(message(launch(*kernel, {0, -2})),
            "the grid of kernel 'k' has -2 programs along axis 1, expected 0 to 65535");
}

TEST(KernelTexts, ErrorsHaveLineAndColumn) {
  struct Bad {
    const char* text;
    int line, column;
    const char* message;
  };
  for (const Bad& bad :
       {Bad{"", 1, 1, "expected 'tile.kernel'"},
        Bad{"tile.kernel @k(%x: ptr<f32>) {\n  %v = load %x[0] : f16\n}", 2, 8, "a load here yields 'f32'"},
        Bad{"tile.kernel @k(%x: ptr<f32>) {\n  store %x[0] = 1\n}", 2, 9, "not marked written"},
        Bad{"tile.kernel @k(%n: i64,\n  %m: i64 written) {\n}", 2, 3, "is written but is not a pointer"},
        Bad{"tile.kernel @k(%c: ptr<i32> written, %n: i64) {\n  for %i = 0 to %n step 1 {\n"
            "    grid_barrier %c[0] rank=%i of=%n\n  }\n}",
            3, 5, "may not be inside a region"}}) {
    auto made = TileKernel::create(bad.text, on_host());
    ASSERT_FALSE(made.ok()) << bad.text;
    const Diagnostic& error = made.error();
    EXPECT_EQ(error.code, ErrorCode::ParseError) << error.str();
    EXPECT_EQ(error.location.file, "test.tile");
    EXPECT_EQ(error.location.line, bad.line) << error.str();
    EXPECT_EQ(error.location.column, bad.column) << error.str();
    EXPECT_NE(error.message.find(bad.message), std::string::npos) << error.str();
  }
}

TEST(KernelTexts, WhatTheHostHasNoCodeFor) {
  auto said = [](const std::string& text) {
    auto made = TileKernel::create(text, on_host());
    EXPECT_FALSE(made.ok());
    if (made.ok()) return std::string();
    EXPECT_EQ(made.error().code, ErrorCode::CodegenError);
    EXPECT_EQ(made.error().location.file, "test.tile");
    return made.error().message;
  };
  EXPECT_EQ(said("tile.kernel @odd() {\n  %r = range 17 : tile<[17], i64>\n}")
                .find("kernel 'odd': tile tile<[17], i64> is not a multiple of"),
            0U);
  EXPECT_NE(said("tile.kernel @k(%c: ptr<i32> written, %n: i64) {\n  %p = program_id 0 : i64\n"
                 "  grid_barrier %c[0] rank=%p of=%n\n}")
                .find("wait for each other"),
            std::string::npos);
  EXPECT_NE(said("tile.kernel @k(%n: i64) {\n  for %i = 0 to %n step 1 {\n    %s = scratch 8 : ptr<f32>\n  }\n}")
                .find("scratch inside a region"),
            std::string::npos);
  EXPECT_NE(
      said("tile.kernel @k() {\n  %p = program_id 0 : i64\n  %s = scratch %p : ptr<f32>\n}").find("depends on more"),
      std::string::npos);
}

} // namespace
} // namespace tessera
