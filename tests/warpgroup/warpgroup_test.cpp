// Tensor copies, mbarriers and products of warpgroups: kernels on the emulator are compared with plain products, errors
// planted in them are found, and the assembler takes their PTX.
#include "base/dtype.h"
#include "kernels.h"
#include "runtime/cuda/assembler.h"
#include <cstring>
#include <gtest/gtest.h>
#include <random>

namespace tessera::test {
namespace {

// Integers from -2 to 2 (from 0 of u8), which all dtypes have; their sums are exact.
struct Matrix {
  Matrix(DType type, int64_t rows, int64_t columns, uint32_t seed)
      : dtype(type), width(columns), values(static_cast<size_t>(rows * columns)),
        bytes(values.size() * static_cast<size_t>(info(type).bits / 8)) {
    std::mt19937 random(seed);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(static_cast<int>(random() % 5) - (type == DType::U8 ? 0 : 2));
      put(i, values[i]);
    }
  }
  void put(size_t i, float v) {
    auto* to = bytes.data() + i * bytes.size() / values.size();
    auto store = [&](auto word) { std::memcpy(to, &word, sizeof word); };
    switch (dtype) {
    case DType::F32: return store(v);
    case DType::F16: return store(f32_to_f16(v));
    case DType::BF16: return store(f32_to_bf16(v));
    case DType::I8:
    case DType::U8: return store(static_cast<int8_t>(v));
    default: return store(f32_to_small_float(dtype, v));
    }
  }
  [[nodiscard]] float at(int64_t row, int64_t column) const {
    return values[static_cast<size_t>(row * width + column)];
  }
  [[nodiscard]] tile::Argument argument() { return {bytes, {}}; }

  DType dtype;
  int64_t width;
  std::vector<float> values;
  std::vector<std::byte> bytes;
};
tile::Argument size(int64_t v) { return {{}, {static_cast<double>(v), v}}; }

struct Sizes {
  int64_t m = 0, n = 0, k = 0;
};
// The error of the run; empty after the right results.
std::string run(const RingKernel& form, const Sizes& s, uint64_t seed) {
  auto compiled = emulated(form);
  if (!compiled.ok()) return compiled.error().str();
  auto program = EmulatedProgram::link(parameters(form), std::move(*compiled));
  if (!program.ok()) return program.error().str();
  Matrix a(form.a, form.a_transposed ? s.k : s.m, form.a_transposed ? s.m : s.k, 1);
  Matrix b(form.b, form.b_transposed ? s.k : s.n, form.b_transposed ? s.n : s.k, 2);
  std::vector<uint32_t> c(static_cast<size_t>(s.m * s.n), 0x7fc00000);
  const tile::Argument args[] = {a.argument(), b.argument(), {std::as_writable_bytes(std::span(c)), {}},
                                 size(s.m),    size(s.n),    size(s.k)};
  auto done = program->run(args, (s.m + 127) / 128, {.seed = seed});
  if (!done.ok()) return done.error().str();
  for (int64_t row = 0; row < s.m; ++row)
    for (int64_t column = 0; column < s.n; ++column) {
      float sum = 0;
      for (int64_t k = 0; k < s.k; ++k)
        sum +=
            (form.a_transposed ? a.at(k, row) : a.at(row, k)) * (form.b_transposed ? b.at(k, column) : b.at(column, k));
      const auto word = c[static_cast<size_t>(row * s.n + column)];
      const float actual =
          is_integer(form.a) ? static_cast<float>(static_cast<int32_t>(word)) : std::bit_cast<float>(word);
      if (actual != sum)
        return "row " + std::to_string(row) + " column " + std::to_string(column) + ": " + std::to_string(actual) +
               " instead of " + std::to_string(sum);
    }
  return "";
}
std::string run(const StoredKernel& form, uint64_t seed) {
  auto compiled = emulated(form);
  if (!compiled.ok()) return compiled.error().str();
  auto program = EmulatedProgram::link(parameters(form), std::move(*compiled));
  if (!program.ok()) return program.error().str();
  Matrix a(DType::BF16, 64, 32, 1), b(DType::BF16, 64, 32, 2), c(DType::BF16, 64, 64, 3);
  const tile::Argument args[] = {a.argument(), b.argument(), c.argument()};
  auto done = program->run(args, 1, {.seed = seed});
  if (!done.ok()) return done.error().str();
  for (int64_t row = 0; row < 64; ++row)
    for (int64_t column = 0; column < 64; ++column) {
      float sum = 0;
      for (int64_t k = 0; k < 32; ++k) sum += a.at(row, k) * b.at(column, k);
      uint16_t half = 0;
      std::memcpy(&half, c.bytes.data() + 2 * (row * 64 + column), sizeof half);
      if (bf16_to_f32(half) != sum)
        return "row " + std::to_string(row) + " column " + std::to_string(column) + ": " +
               std::to_string(bf16_to_f32(half)) + " instead of " + std::to_string(sum);
    }
  return "";
}

std::vector<RingKernel> forms() {
  std::vector<RingKernel> all;
  for (DType d : {DType::F16, DType::BF16, DType::F32, DType::F8E4M3FN, DType::F8E5M2, DType::I8, DType::U8})
    all.push_back({.a = d, .b = d});
  all.push_back({.a = DType::F8E4M3FN, .b = DType::F8E5M2, .columns = 24});
  all.push_back({.a = DType::U8, .b = DType::I8, .columns = 48});
  for (const int columns : {8, 104, 256}) all.push_back({.columns = columns, .stages = 2});
  for (const bool a : {false, true})
    for (const bool b : {false, true}) all.push_back({.a_transposed = a, .b_transposed = b});
  all.push_back({.columns = 128, .b_transposed = true, .stages = 4});
  for (const Swizzle s : {Swizzle::Bytes32, Swizzle::Bytes64}) all.push_back({.swizzle = s, .stages = 5});
  return all;
}
std::string describe(const RingKernel& f) {
  return std::string(name(f.a)) + " x " + std::string(name(f.b)) + " columns " + std::to_string(f.columns) +
         (f.a_transposed ? " a transposed" : "") + (f.b_transposed ? " b transposed" : "") + " swizzle " +
         std::to_string(static_cast<int>(f.swizzle)) + " stages " + std::to_string(f.stages);
}

TEST(Warpgroup, RingsOfTensorCopiesMultiply) {
  for (const auto& form : forms()) {
    SCOPED_TRACE(describe(form));
    // Whole tiles, and sizes that end within boxes.
    EXPECT_EQ(run(form, {128, form.columns, 256}, 0), "");
    const int64_t n = form.columns > 16 ? form.columns - 16 : form.columns;
    for (uint64_t seed = 1; seed < 4; ++seed)
      EXPECT_EQ(run(form, {form.a_transposed ? 144 : 131, n, 144}, seed), "") << "seed " << seed;
  }
}

TEST(Warpgroup, OperandsOfThreadsMultiply) {
  for (const bool registers : {false, true})
    for (const bool copies : {false, true})
      for (uint64_t seed = 0; seed < 4; ++seed)
        EXPECT_EQ(run(StoredKernel{registers, copies}, seed), "") << "seed " << seed;
}

std::vector<CopyKernel> copies() {
  return {{DType::F32, {8}, {20}, {4}},
          {DType::F32, {8}, {20}, {-3}},
          {DType::F32, {8}, {20}, {16}},
          {DType::BF16, {16, 8}, {24, 7}, {-8, -2}, Swizzle::Bytes32},
          {DType::F8E5M2, {64, 4, 3}, {80, 6, 5}, {40, 4, 3}, Swizzle::Bytes64},
          {DType::F32, {4, 3, 2, 3}, {8, 4, 5, 6}, {2, 2, 4, -1}},
          {DType::F64, {4, 2, 3, 2, 2}, {6, 3, 4, 3, 5}, {4, 1, 2, 2, -1}},
          {DType::F16, {16, 4, 3, 2}, {24, 7, 9, 2}, {0, -1, 2, 0}, Swizzle::Bytes32, {1, 2, 3, 1}}};
}
// Each byte of an element is its number.
void expect_copied(const CopyKernel& form, uint64_t seed) {
  const auto size = static_cast<size_t>(info(form.dtype).bits / 8);
  auto elements = [](const std::vector<int>& dims) {
    size_t n = 1;
    for (const int d : dims) n *= static_cast<size_t>(d);
    return n;
  };
  std::vector<uint8_t> a(elements(form.dims) * size), c(elements(form.box) * size, 0xff);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<uint8_t>(1 + i / size % 250);
  auto compiled = emulated(form);
  ASSERT_TRUE(compiled.ok()) << compiled.error().str();
  auto program = EmulatedProgram::link(parameters(form), std::move(*compiled));
  ASSERT_TRUE(program.ok()) << program.error().str();
  const tile::Argument args[] = {{std::as_writable_bytes(std::span(a)), {}},
                                 {std::as_writable_bytes(std::span(c)), {}}};
  auto done = program->run(args, 1, {.seed = seed});
  ASSERT_TRUE(done.ok()) << done.error().str();
  for (size_t i = 0; i < c.size(); ++i) {
    size_t rest = i / size, place = 0, pitch = 1;
    bool inside = true;
    for (size_t d = 0; d < form.box.size(); ++d) {
      const int at = form.coordinates[d] + static_cast<int>(rest % static_cast<size_t>(form.box[d])) *
                                               (form.steps.empty() ? 1 : form.steps[d]);
      rest /= static_cast<size_t>(form.box[d]);
      inside = inside && at >= 0 && at < form.dims[d];
      place += static_cast<size_t>(at) * pitch;
      pitch *= static_cast<size_t>(form.dims[d]);
    }
    ASSERT_EQ(c[i], inside ? a[place * size] : 0) << "byte " << i;
  }
}

TEST(Warpgroup, BoxesOfEveryRankAreCopied) {
  for (const auto& form : copies())
    for (uint64_t seed = 0; seed < 3; ++seed) {
      SCOPED_TRACE(std::to_string(form.box.size()) + " dimensions of " + std::string(name(form.dtype)));
      expect_copied(form, seed);
    }
}

// Each order of threads finds the error, in whatever it does first.
template <class Run>
void expect_found(Run run, const std::vector<std::string>& texts) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const std::string error = run(seed);
    bool found = false;
    for (const auto& text : texts) found = found || error.find(text) != std::string::npos;
    EXPECT_TRUE(found) << "seed " << seed << ": " << error;
  }
}
void expect_found(Fault fault, const std::vector<std::string>& texts) {
  expect_found([&](uint64_t seed) { return run(RingKernel{.fault = fault}, {128, 64, 512}, seed); }, texts);
}
void expect_found_in_stored(const StoredKernel& form, const std::vector<std::string>& texts) {
  expect_found([&](uint64_t seed) { return run(form, seed); }, texts);
}

TEST(WarpgroupFaults, StagesOverwrittenTooEarly) {
  const std::string read = "is not ordered with the read by a product",
                    written = "is not ordered with the write by a copy", again = "more than 1 times in phase";
  expect_found(Fault::NoWaitForEmpty, {read, written, again});
  expect_found(Fault::SameParityOfEmpty, {read, written, again, "deadlock"});
  expect_found(Fault::ReleasedBeforeWait, {read});
  expect_found(Fault::ReleasedByOneConsumer, {"1 of 2 arrivals are missing"});
}

// Consumers that end before the first copy leave the producer without an arrival that it can see.
TEST(WarpgroupFaults, StagesReadTooEarly) {
  expect_found(Fault::NoWaitForFull, {"is not ordered with the write by a copy for the mbarrier",
                                      "is not ordered with the read by a product", "2 of 2 arrivals are missing"});
}

TEST(WarpgroupFaults, ExpectedBytes) {
  expect_found(Fault::FewerBytesExpected,
               {"the phase expected fewer bytes than are copied", "bytes were not expected"});
  expect_found(Fault::MoreBytesExpected, {"deadlock", "16 bytes are missing"});
}

TEST(WarpgroupFaults, ProductsAndRegisters) {
  expect_found(Fault::NoFenceOfRegisters, {"no fence orders with it"});
  expect_found(Fault::NoWaitForProducts, {"ends before its warpgroup's products have been waited for"});
  expect_found(Fault::TooManyRegisters, {"deadlock"});
}

TEST(WarpgroupFaults, Initialisation) {
  expect_found(Fault::NoFenceOfBarriers, {"whose initialisation no fence followed"});
  expect_found(Fault::NoBarrierAfterInit, {"which is not initialised", "is not ordered before"});
  expect_found(Fault::MisalignedStage, {"is not aligned to 1024"});
}

TEST(WarpgroupFaults, StoresOfThreads) {
  const std::string written = "is not ordered with the write by thread", read = "is not ordered with the read by ";
  for (const bool registers : {false, true}) {
    expect_found_in_stored({registers, false, Fault::NoFenceOfStores}, {"no fence of the proxies lies between"});
    expect_found_in_stored({registers, false, Fault::NoBarrierOfStores}, {written, read});
    expect_found_in_stored({registers, false, Fault::OneWarpLess}, {"numbered barrier", written, read});
  }
  expect_found_in_stored({.fault = Fault::ResultsOverProducts}, {read + "a product"});
  expect_found_in_stored({.fault = Fault::NoFenceOfResults}, {"no fence of the proxies lies between"});
  expect_found_in_stored({.fault = Fault::NoWaitForTensorStore}, {"before its tensor stores have read shared memory"});
  expect_found_in_stored({.fault = Fault::ResultsOverTensorStore}, {read + "a tensor store of thread", written});
}

TEST(WarpgroupFaults, CopiesOfThreads) {
  for (const bool registers : {false, true}) {
    expect_found_in_stored({registers, true, Fault::NoFenceOfStores}, {"no fence of the proxies lies between"});
    expect_found_in_stored({registers, true, Fault::NoWaitForCopies}, {"is not ordered with the "});
  }
}

TEST(Warpgroup, MapsBeyondTheirArgumentAreRefused) {
  RingKernel form;
  EXPECT_NE(run(form, {128, 64, 68}, 0).find("a stride is 136 bytes"), std::string::npos);
}

TEST(Warpgroup, TheAssemblerTakesThem) {
  // nvJitLink makes objects that may be linked with others, in which setmaxnreg has no effect.
  auto assembler = cuda::Assembler::find(cuda::Assembler::Kind::Ptxas);
  if (!assembler.ok()) GTEST_SKIP() << "not assembled: " << assembler.error().message;
  auto expect = [&](const Result<GpuKernelCode>& code) {
    ASSERT_TRUE(code.ok()) << code.error().str();
    EXPECT_EQ(code->ptx.find(".local"), std::string::npos);
    auto cubin = (*assembler)->assemble(code->ptx, "sm_90a");
    ASSERT_TRUE(cubin.ok()) << cubin.error().str() << code->ptx;
    EXPECT_EQ(cubin->spill_bytes, 0);
    EXPECT_EQ(cubin->stack_bytes, 0);
  };
  for (const auto& form : forms()) {
    SCOPED_TRACE(describe(form));
    expect(ptx(form));
  }
  for (const bool registers : {false, true})
    for (const bool copies : {false, true}) expect(ptx(StoredKernel{registers, copies}));
  for (const auto& form : copies()) expect(ptx(form));
  expect(ptx_of_other_instructions());
}

} // namespace
} // namespace tessera::test
