// The axes of a grid on a GPU: in the emulator as the interpreter has them, and in PTX.
#include "harness.h"

namespace tessera::test {
namespace {

// y[number] = 10000 x + 100 y + z + the extents, by programs of a grid with three axes.
constexpr const char* kPlaces = R"(
tile.kernel @places(%out: ptr<i64> written, %by: f32, %scaled: ptr<f32> written) {
  %x = program_id 0      : i64
  %y = program_id 1      : i64
  %z = program_id 2      : i64
  %nx = num_programs 0   : i64
  %ny = num_programs 1   : i64
  %nz = num_programs 2   : i64
  %zy = mul(%z, %ny)     : i64
  %zy1 = add(%zy, %y)    : i64
  %n1 = mul(%zy1, %nx)   : i64
  %n = add(%n1, %x)      : i64
  %v1 = mul(%x, 10000)   : i64
  %v2 = mul(%y, 100)     : i64
  %v3 = add(%v1, %v2)    : i64
  %v4 = add(%v3, %z)     : i64
  %v5 = add(%v4, %nx)    : i64
  %v6 = mul(%ny, %nz)    : i64
  %v = add(%v5, %v6)     : i64
  store %out[%n] = %v
  %f = cast(%v)          : f32
  %g = mul(%f, %by)      : f32
  store %scaled[%n] = %g
}
)";

TEST(GpuGrid, ProgramsKnowTheirPlace) {
  const auto kernel = tile::parse(kPlaces);
  ASSERT_TRUE(kernel.ok()) << kernel.error().str();
  const auto program = EmulatedProgram::compile(*kernel, *GpuTarget::parse("sm_90"));
  ASSERT_TRUE(program.ok()) << program.error().str();
  for (const Grid& grid : {Grid{1}, {5}, {1, 3}, {1, 1, 4}, {3, 2, 4}}) {
    const auto count = static_cast<size_t>(grid.programs());
    std::vector<int64_t> expected(count, -1), seen(count, -1);
    std::vector<float> expected_scaled(count), scaled(count);
    auto arguments = [](std::vector<int64_t>& out, std::vector<float>& floats) {
      return std::array<tile::Argument, 3>{tile::Argument{std::as_writable_bytes(std::span(out)), {}},
                                           {{}, {0.5, 0}},
                                           {std::as_writable_bytes(std::span(floats)), {}}};
    };
    ASSERT_TRUE(tile::interpret(*kernel, arguments(expected, expected_scaled), grid).ok());
    for (uint64_t seed : {0, 1}) {
      const auto run = program->run(arguments(seen, scaled), grid, {.seed = seed});
      ASSERT_TRUE(run.ok()) << run.error().str();
      EXPECT_EQ(seen, expected);
      EXPECT_EQ(scaled, expected_scaled);
    }
  }
}

TEST(GpuGrid, PtxReadsTheRegistersOfTheAxes) {
  const auto code = compile_gpu_kernel(tile::parse(kPlaces).value(), *GpuTarget::parse("sm_90"));
  ASSERT_TRUE(code.ok()) << code.error().str();
  for (const char* name : {"%ctaid.x", "%ctaid.y", "%ctaid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z"})
    EXPECT_NE(code->ptx.find(name), std::string::npos) << name;
}

} // namespace
} // namespace tessera::test
