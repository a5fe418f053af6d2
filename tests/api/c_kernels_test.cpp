// Tile kernels through the C interface and as classes of C++.
#include "api/tessera.hpp"
#include "c_harness.h"
#include <cstring>

namespace tessera::api_test {
namespace {

constexpr const char* kScale = R"(
tile.kernel @scale(%x: ptr<f32>, %y: ptr<f32> written, %by: f32, %n: i64) {
  %p = program_id 0                       : i64
  %start = mul(%p, 64)                    : i64
  %r = range 64                           : tile<[64], i64>
  %o = add(%r, %start)                    : tile<[64], i64>
  %in = lt(%o, %n)                        : tile<[64], bool>
  %v = load %x[%o] mask=%in               : tile<[64], f32>
  %d = mul(%v, %by)                       : tile<[64], f32>
  store %y[%o] = %d mask=%in
}
)";

tessera_kernel_options kernel_on_cpu() {
  tessera_kernel_options o{};
  o.struct_size = sizeof o;
  o.device = "cpu";
  o.threads = 2;
  o.name = "scale.tile";
  return o;
}

struct OpenedKernel {
  tessera_kernel* kernel = nullptr;
  explicit OpenedKernel(const char* text = kScale) {
    const tessera_kernel_options options = kernel_on_cpu();
    const char* error = tessera_kernel_create(text, &options, &kernel);
    EXPECT_EQ(error, nullptr) << error;
  }
  ~OpenedKernel() { tessera_kernel_destroy(kernel); }
  OpenedKernel(const OpenedKernel&) = delete;
  OpenedKernel& operator=(const OpenedKernel&) = delete;
};

tessera_kernel_argument pointer(const void* p) { return {TESSERA_ARGUMENT_POINTER, p, 0, 0}; }
tessera_kernel_argument integer(int64_t v) { return {TESSERA_ARGUMENT_INTEGER, nullptr, v, 0}; }
tessera_kernel_argument number(double v) { return {TESSERA_ARGUMENT_FLOAT, nullptr, 0, v}; }

TEST(CKernels, AreMadeDescribedAndLaunched) {
  const OpenedKernel k;
  const tessera_kernel_parameter* parameters = nullptr;
  int32_t count = 0;
  ASSERT_EQ(tessera_kernel_parameters(k.kernel, &parameters, &count), nullptr);
  ASSERT_EQ(count, 4);
  EXPECT_STREQ(parameters[0].name, "x");
  EXPECT_EQ(parameters[0].is_pointer, 1);
  EXPECT_EQ(parameters[0].written, 0);
  EXPECT_EQ(parameters[0].alignment, 64);
  EXPECT_EQ(parameters[1].written, 1);
  EXPECT_EQ(parameters[2].is_pointer, 0);
  EXPECT_EQ(parameters[2].dtype, TESSERA_F32);
  EXPECT_EQ(parameters[3].dtype, TESSERA_I64);
  EXPECT_EQ(parameters[3].multiple, 1);
  tessera_kernel_info info{};
  info.struct_size = sizeof info;
  ASSERT_EQ(tessera_kernel_get_info(k.kernel, &info), nullptr);
  EXPECT_STREQ(info.name, "scale");
  EXPECT_STREQ(info.device, "cpu");
  EXPECT_EQ(info.threads, 0);
  EXPECT_EQ(info.registers, -1);
  std::vector<float> x(130, 3), y(130);
  const tessera_kernel_argument arguments[] = {pointer(x.data()), pointer(y.data()), number(0.5), integer(130)};
  ASSERT_EQ(tessera_kernel_launch(k.kernel, 3, 1, 1, arguments, 4, nullptr), nullptr);
  EXPECT_EQ(y, std::vector<float>(130, 1.5F));
  EXPECT_EQ(tessera_kernel_launch(k.kernel, 0, 1, 1, arguments, 4, nullptr), nullptr) << "runs nothing";
}

TEST(CKernels, WrongUseIsAnError) {
  const OpenedKernel k;
  tessera_kernel* none = nullptr;
  tessera_kernel_options options = kernel_on_cpu();
  says(tessera_kernel_create(nullptr, &options, &none), "the text of a kernel");
  says(tessera_kernel_create(kScale, &options, nullptr), "a place for the kernel");
  says(tessera_kernel_create("tile.kernel @k() {\n  frob(1)\n}", &options, &none), "scale.tile:2:3");
  EXPECT_STREQ(tessera_last_error()->code, "TES-3010");
  options.device = "tpu";
  says(tessera_kernel_create(kScale, &options, &none), "there is no device 'tpu'");
  options.struct_size = 3;
  says(tessera_kernel_create(kScale, &options, &none), "struct_size is 3");
  EXPECT_EQ(none, nullptr);
  tessera_kernel_destroy(nullptr);

  float x = 1, y = 0;
  const tessera_kernel_argument good[] = {pointer(&x), pointer(&y), number(2), integer(1)};
  const auto launch = [&](std::vector<tessera_kernel_argument> arguments, int64_t grid = 1) {
    return tessera_kernel_launch(k.kernel, grid, 1, 1, arguments.data(), static_cast<int32_t>(arguments.size()),
                                 nullptr);
  };
  says(tessera_kernel_launch(nullptr, 1, 1, 1, good, 4, nullptr), "the kernel is null");
  says(tessera_kernel_launch(k.kernel, 1, 1, 1, nullptr, 4, nullptr), "the arguments are null");
  says(tessera_kernel_launch(k.kernel, 1, 1, 1, good, -1, nullptr), "negative");
  says(launch({good[0]}), "takes 4 arguments, got 1");
  says(launch({good[0], good[1], good[2], number(1.5)}), "is the float 1.5, expected an integer");
  says(launch({good[0], good[1], good[2], {9, nullptr, 0, 0}}), "argument 4: the kind is 9");
  says(launch({good[0], good[1], good[2], {TESSERA_ARGUMENT_UNSIGNED, nullptr, -1, 0}}), "18446744073709551615");
  says(launch({std::begin(good), std::end(good)}, -1), "-1 programs along axis 0");
  const tessera_kernel_parameter* parameters = nullptr;
  says(tessera_kernel_parameters(k.kernel, &parameters, nullptr), "places for its parameters");
  tessera_kernel_info info{};
  says(tessera_kernel_get_info(k.kernel, &info), "struct_size is 0");
  EXPECT_EQ(launch({std::begin(good), std::end(good)}), nullptr) << "it stays usable";
  EXPECT_EQ(y, 2);
}

TEST(CKernels, AsAClass) {
  stable::Kernel kernel(kScale, {.device = "cpu", .name = "scale.tile"});
  EXPECT_EQ(kernel.parameters().size(), 4U);
  EXPECT_STREQ(kernel.info().name, "scale");
  std::vector<float> x(64, 3), y(64);
  kernel.launch({.x = 1}, x.data(), y.data(), 2, x.size());
  EXPECT_EQ(y, std::vector<float>(64, 6));
  try {
    kernel.launch({.x = 1}, x.data(), nullptr, 2, 1.5);
    FAIL();
  } catch (const stable::Error& e) {
    EXPECT_EQ(e.name(), "bad-input");
    EXPECT_NE(e.message().find("'n' of kernel 'scale'"), std::string::npos);
  }
  EXPECT_THROW(stable::Kernel("tile.kernel"), stable::Error);
}

} // namespace
} // namespace tessera::api_test
