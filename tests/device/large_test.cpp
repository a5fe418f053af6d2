// Tensors of more than 2^31 elements, and of more than 2^32 bytes, on a GPU: offsets that do not fit 32 bits. Nothing
// of that size passes through the host: inputs repeat a short pattern, results are looked at where 32 bits end, at both
// ends and at random places. They need up to 13 GB of the GPU's memory and run where TESSERA_TEST_LARGE=1 requests
// them.
#include "runtime/cuda/stream.h"
#include "tests/device/device.h"
#include <cmath>
#include <cstdlib>
#include <functional>
#include <gtest/gtest.h>
#include <random>

namespace tessera {
namespace {

using cuda::Context;

constexpr int64_t k2to31 = int64_t{1} << 31;
constexpr int64_t kPeriod = 1048573; // prime: no row, column or block has the pattern of another
constexpr int kValues = 8;           // elements are 0 to 7: products and sums of a few are exact in every type

int pattern(int64_t i) { return static_cast<int>((static_cast<uint64_t>(i % kPeriod) * 2654435761u >> 7) % kValues); }

class Large : public testing::Test {
protected:
  void SetUp() override {
    const char* wanted = std::getenv("TESSERA_TEST_LARGE");
    if (!wanted || std::string(wanted) != "1")
      GTEST_SKIP() << "tensors of more than 2^31 elements: TESSERA_TEST_LARGE=1 runs them on a GPU of 16 GB";
    auto opened = Context::open();
    if (!opened.ok()) GTEST_SKIP() << "needs an NVIDIA GPU: " << opened.error().message;
    context_ = *opened;
    current_.emplace(*context_);
    auto stream = cuda::Stream::create(context_);
    ASSERT_TRUE(stream.ok()) << stream.error().str();
    stream_ = std::move(*stream);
  }
  void TearDown() override {
    if (stream_) release_all();
    stream_.reset();
    current_.reset();
  }
  void release_all() {
    for (auto [address, bytes] : held_) context_->release(address, bytes, stream());
    held_.clear();
    context_->driver().cuStreamSynchronize(stream());
  }
  [[nodiscard]] CUstream stream() const { return stream_->handle(); }
  void must(CUresult result, const char* what) {
    if (result != CUDA_SUCCESS) throw std::runtime_error(std::string(what) + ": " + context_->driver().text(result));
  }

  DeviceTensor empty(DType dtype, Dims dims) {
    int64_t bytes = byte_size(dtype, element_count(dims).value());
    auto address = context_->allocate(std::max<int64_t>(bytes, 1), stream(), "a test");
    if (!address.ok()) throw std::runtime_error(address.error().str());
    held_.emplace_back(*address, bytes);
    must(context_->driver().cuMemsetD8Async(*address, 0xFF, static_cast<size_t>(bytes), stream()), "cuMemsetD8Async");
    return {dtype, std::move(dims), reinterpret_cast<void*>(*address)};
  }
  // Element i is pattern(i): one period from the host, doubled on the GPU.
  DeviceTensor filled(DType dtype, Dims dims) {
    DeviceTensor t = empty(dtype, std::move(dims));
    const auto& driver = context_->driver();
    auto total = static_cast<size_t>(byte_size(dtype, element_count(t.dims).value()));
    Tensor period = Tensor::create(dtype, {kPeriod}).value();
    for (int64_t i = 0; i < kPeriod; ++i) set(period, i, pattern(i));
    auto base = reinterpret_cast<CUdeviceptr>(t.data);
    size_t done = std::min(total, period.bytes());
    must(driver.cuMemcpyHtoDAsync(base, period.data(), done, stream()), "cuMemcpyHtoDAsync");
    for (; done < total; done = std::min(total, done * 2))
      must(driver.cuMemcpyDtoDAsync(base + done, base, std::min(done, total - done), stream()), "cuMemcpyDtoDAsync");
    must(driver.cuStreamSynchronize(stream()), "cuStreamSynchronize"); // `period` goes away
    return t;
  }
  void put(const DeviceTensor& t, int64_t at, const Tensor& values) {
    auto where = reinterpret_cast<CUdeviceptr>(t.data) + static_cast<CUdeviceptr>(byte_size(t.dtype, at));
    must(context_->driver().cuMemcpyHtoDAsync(where, values.data(), values.bytes(), stream()), "cuMemcpyHtoDAsync");
    must(context_->driver().cuStreamSynchronize(stream()), "cuStreamSynchronize");
  }
  void put(const DeviceTensor& t, int64_t at, int value) {
    Tensor one = Tensor::create(t.dtype, {1}).value();
    set(one, 0, value);
    put(t, at, one);
  }

  // Compiles and runs on these tensors, and waits; the error of either.
  Status run(const std::string& text, const std::map<std::string, DeviceTensor>& inputs,
             const std::vector<DeviceTensor>& outputs, bool libraries = true) {
    auto graph = parse_graph(text);
    if (!graph.ok()) return std::move(graph).take_error();
    CompileOptions o = device_test::options();
    o.device = "cuda";
    o.cublaslt = o.cudnn = libraries;
    TESSERA_ASSIGN(auto compiled, compile(std::move(*graph), o));
    EXPECT_EQ(compiled.executable->host_steps, 0);
    ExecutorOptions options;
    options.pool = ThreadPool::create(2);
    options.gpu_context = context_;
    TESSERA_ASSIGN(auto executor, Executor::create({compiled.executable}, options));
    TESSERA_TRY(executor->run_on_device(inputs, outputs, stream()));
    return executor->wait();
  }

  // Looks at windows of the result: both ends, around multiples of 2^31 elements and bytes, and random ones.
  // `relative`: the error that is allowed, besides half a step of the smallest f16 where it is not 0.
  void expect(const DeviceTensor& t, const std::function<double(int64_t)>& expected, double relative = 0) {
    constexpr int64_t kWindow = 300;
    int64_t count = element_count(t.dims).value(), size = byte_size(t.dtype, 1);
    std::vector<int64_t> begins = {0, count - kWindow};
    for (int64_t end = k2to31; end < count * size + k2to31; end += k2to31)
      for (int64_t at : {end, end / size}) begins.push_back(at - kWindow / 2);
    std::mt19937_64 random(7);
    for (int i = 0; i < 64; ++i) begins.push_back(static_cast<int64_t>(random() % static_cast<uint64_t>(count)));
    Tensor window = Tensor::create(t.dtype, {kWindow}).value();
    int wrong = 0;
    for (int64_t begin : begins) {
      begin = std::max<int64_t>(0, std::min(begin, count - kWindow));
      int64_t n = std::min(kWindow, count - begin);
      auto from = reinterpret_cast<CUdeviceptr>(t.data) + static_cast<CUdeviceptr>(byte_size(t.dtype, begin));
      must(context_->driver().cuMemcpyDtoHAsync(window.mutable_data(), from, static_cast<size_t>(n * size), stream()),
           "cuMemcpyDtoHAsync");
      must(context_->driver().cuStreamSynchronize(stream()), "cuStreamSynchronize");
      for (int64_t i = 0; i < n && wrong < 5; ++i) {
        double actual = is_float(t.dtype) ? window.get_f64(i) : static_cast<double>(window.get_i64(i));
        double wanted = expected(begin + i);
        double bound = relative > 0 ? relative * std::abs(wanted) + std::ldexp(1, -25) : 0;
        if (std::abs(actual - wanted) <= bound) continue; // NaN is wrong
        ++wrong;
        ADD_FAILURE() << "element " << begin + i << " of " << count << " is " << actual << ", not " << wanted;
      }
    }
  }

  static void set(Tensor& t, int64_t i, int value) {
    if (is_float(t.dtype()))
      t.set_f64(i, value);
    else
      t.set_i64(i, value);
  }
  static std::string in_type(std::string text, DType dtype) {
    for (size_t at = 0; (at = text.find("DT", at)) != std::string::npos;) text.replace(at, 2, name(dtype));
    return text;
  }

private:
  std::shared_ptr<Context> context_;
  std::optional<Context::Current> current_;
  std::unique_ptr<cuda::Stream> stream_;
  std::vector<std::pair<CUdeviceptr, int64_t>> held_;
};

#define EXPECT_RUNS(...)                                                                                               \
  do {                                                                                                                 \
    auto status = run(__VA_ARGS__);                                                                                    \
    ASSERT_TRUE(status.ok()) << status.error().str();                                                                  \
  } while (0)

std::string number(int64_t n) { return std::to_string(n); }

// The graph with N and M as numbers, then as symbols.
std::vector<std::string> both(const std::string& text, int64_t n, int64_t m = 1) {
  auto filled_in = [&](const std::string& rows, const std::string& columns) {
    std::string out;
    for (char c : text) {
      if (c == 'N')
        out += rows;
      else if (c == 'M')
        out += columns;
      else
        out += c;
    }
    return out;
  };
  std::string symbolic = filled_in("n", "m");
  symbolic.insert(symbolic.find(" {"),
                  symbolic.find("m]") == std::string::npos ? " where n in [1, ?]" : " where n in [1, ?], m in [1, ?]");
  return {filled_in(number(n), number(m)), symbolic};
}

TEST_F(Large, Pointwise) {
  // Beyond 2^32 in elements, beyond 2^31 in elements; a length that vectors divide and ones that nothing does.
  for (auto [dtype, n] : {std::pair{DType::U8, 2 * k2to31 + 11}, {DType::F16, k2to31 + 8}, {DType::F16, k2to31 + 5}}) {
    SCOPED_TRACE(std::string(name(dtype)) + " " + number(n));
    auto x = filled(dtype, {n}), y = empty(dtype, {n});
    for (const auto& text : both("graph @main(%x: DT[N]) -> (%y: DT[N]) { %y = add(%x, %x) : DT[N] }", n)) {
      SCOPED_TRACE(text);
      EXPECT_RUNS(in_type(text, dtype), {{"x", x}}, {y});
      expect(y, [](int64_t i) { return 2 * pattern(i); });
    }
    release_all();
  }
}

TEST_F(Large, PointwiseWithARowOfItsOwn) {
  for (auto [dtype, n, m] : {std::tuple{DType::F16, int64_t{65537}, int64_t{32771}},
                             {DType::U8, int64_t{262147}, int64_t{8200}},
                             {DType::U8, (int64_t{1} << 28) + 1, int64_t{8}}}) {
    SCOPED_TRACE(std::string(name(dtype)) + " " + number(n) + " x " + number(m));
    auto x = filled(dtype, {n, m}), b = filled(dtype, {m}), y = empty(dtype, {n, m});
    for (const auto& text :
         both("graph @main(%x: DT[N, M], %b: DT[M]) -> (%y: DT[N, M]) { %y = mul(%x, %b) : DT[N, M] }", n, m)) {
      SCOPED_TRACE(text);
      EXPECT_RUNS(in_type(text, dtype), {{"x", x}, {"b", b}}, {y});
      expect(y, [m = m](int64_t i) { return pattern(i) * pattern(i % m); });
    }
    release_all();
  }
}

TEST_F(Large, ReductionsOfManyShortRowsAndOfColumns) {
  constexpr int64_t n = (int64_t{1} << 28) + 1, m = 8;
  auto x = filled(DType::F16, {n, m});
  auto sums = empty(DType::F16, {n}), greatest = empty(DType::F16, {m});
  for (const auto& text :
       both("graph @main(%x: f16[N, M]) -> (%y: f16[N]) { %y = reduce_sum(%x) axes=[1] keepdims=0 : f16[N] }", n, m)) {
    SCOPED_TRACE(text);
    EXPECT_RUNS(text, {{"x", x}}, {sums});
    expect(sums, [](int64_t i) {
      int sum = 0;
      for (int64_t k = 0; k < m; ++k) sum += pattern(i * m + k);
      return sum;
    });
  }
  for (int64_t c = 0; c < m; ++c) put(x, c % 2 ? c : (n - 1) * m + c, static_cast<int>(20 + c));
  for (const auto& text :
       both("graph @main(%x: f16[N, M]) -> (%y: f16[M]) { %y = reduce_max(%x) axes=[0] keepdims=0 : f16[M] }", n, m)) {
    SCOPED_TRACE(text);
    EXPECT_RUNS(text, {{"x", x}}, {greatest});
    expect(greatest, [](int64_t c) { return 20 + c; });
  }
}

TEST_F(Large, ReductionsOfOneLongRow) {
  constexpr int64_t n = 1, m = k2to31 + 8, place = k2to31 + 5;
  auto x = filled(DType::U8, {n, m}), where = empty(DType::I64, {n}), greatest = empty(DType::U8, {n});
  put(x, place, 100);
  for (const auto& text :
       both("graph @main(%x: u8[N, M]) -> (%y: i64[N]) { %y = argmax(%x) axes=[1] keepdims=0 : i64[N] }", n, m)) {
    SCOPED_TRACE(text);
    EXPECT_RUNS(text, {{"x", x}}, {where});
    expect(where, [](int64_t) { return place; });
  }
  for (const auto& text :
       both("graph @main(%x: u8[N, M]) -> (%y: u8[N]) { %y = reduce_max(%x) axes=[1] keepdims=0 : u8[N] }", n, m)) {
    SCOPED_TRACE(text);
    EXPECT_RUNS(text, {{"x", x}}, {greatest});
    expect(greatest, [](int64_t) { return 100; });
  }
}

TEST_F(Large, Softmax) {
  for (auto [n, m] :
       {std::pair{(int64_t{1} << 21) + 1, int64_t{1024}}, {(int64_t{1} << 31) / 1001 + 1, int64_t{1001}}}) {
    auto x = filled(DType::F16, {n, m}), y = empty(DType::F16, {n, m});
    std::map<int64_t, double> totals; // by row
    for (const auto& text :
         both("graph @main(%x: f16[N, M]) -> (%y: f16[N, M]) { %y = Softmax(%x) axis=-1 : f16[N, M] }", n, m)) {
      SCOPED_TRACE(text);
      EXPECT_RUNS(text, {{"x", x}}, {y});
      expect(
          y,
          [&, m = m](int64_t i) {
            auto [row, fresh] = totals.try_emplace(i / m, 0);
            if (fresh)
              for (int64_t k = 0; k < m; ++k) row->second += std::exp(pattern(i / m * m + k));
            return std::exp(pattern(i)) / row->second;
          },
          2e-3);
    }
    release_all();
  }
}

TEST_F(Large, Transposed) {
  for (auto [dtype, n, m] :
       {std::tuple{DType::F16, int64_t{32771}, int64_t{65539}}, {DType::U8, int64_t{32768}, int64_t{65600}}}) {
    SCOPED_TRACE(name(dtype));
    auto x = filled(dtype, {m, n}), y = empty(dtype, {n, m});
    for (const auto& text :
         both("graph @main(%x: DT[M, N]) -> (%y: DT[N, M]) { %y = transpose(%x) perm=[1, 0] : DT[N, M] }", n, m)) {
      SCOPED_TRACE(text);
      EXPECT_RUNS(in_type(text, dtype), {{"x", x}}, {y});
      expect(y, [n = n, m = m](int64_t i) { return pattern(i % m * n + i / m); });
    }
    release_all();
  }
}

TEST_F(Large, Gathered) {
  constexpr int64_t n = (int64_t{1} << 28) + 1, m = 8, picked = 1000;
  auto x = filled(DType::U8, {n, m}), at = empty(DType::I64, {picked}), y = empty(DType::U8, {picked, m});
  auto row = [](int64_t i) { return i % 2 ? n - 1 - i * 7 : i * 268001; };
  Tensor rows = Tensor::create(DType::I64, {picked}).value();
  for (int64_t i = 0; i < picked; ++i) rows.set_i64(i, row(i));
  put(at, 0, rows);
  const std::string text = "graph @main(%x: u8[N, M], %i: i64[1000]) -> (%y: u8[1000, M]) "
                           "{ %y = gather(%x, %i) axis=0 : u8[1000, M] }";
  for (const auto& t : both(text, n, m)) {
    SCOPED_TRACE(t);
    EXPECT_RUNS(t, {{"x", x}, {"i", at}}, {y});
    expect(y, [&](int64_t i) { return pattern(row(i / m) * m + i % m); });
    // One index beyond the rows is the input's fault and is reported, whatever its low 32 bits are.
    put(at, 77, [] {
      Tensor bad = Tensor::create(DType::I64, {1}).value();
      bad.set_i64(0, (int64_t{1} << 32) + 3);
      return bad;
    }());
    auto refused = run(t, {{"x", x}, {"i", at}}, {y});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::BadInput) << refused.error().str();
    put(at, 0, rows);
  }
  release_all();
  // Many rows of a small table.
  auto table = filled(DType::U8, {1000, 64}), places = filled(DType::I64, {k2to31 / 64 + 3});
  auto z = empty(DType::U8, {k2to31 / 64 + 3, 64});
  for (const auto& t : both("graph @main(%x: u8[1000, 64], %i: i64[N]) -> (%y: u8[N, 64]) "
                            "{ %y = gather(%x, %i) axis=0 : u8[N, 64] }",
                            k2to31 / 64 + 3)) {
    SCOPED_TRACE(t);
    EXPECT_RUNS(t, {{"x", table}, {"i", places}}, {z});
    expect(z, [](int64_t i) { return pattern(pattern(i / 64) * 64 + i % 64); });
  }
}

TEST_F(Large, SideBySideAndReversed) {
  constexpr int64_t n = (int64_t{1} << 30) + 5;
  auto x = filled(DType::U8, {n}), y = empty(DType::U8, {2 * n});
  EXPECT_RUNS("graph @main(%x: u8[n]) -> (%y: u8[2*n]) where n in [1, ?] { %y = concat(%x, %x) axis=0 : u8[2*n] }",
              {{"x", x}}, {y});
  expect(y, [](int64_t i) { return pattern(i % n); });
  auto z = empty(DType::U8, {2 * n});
  for (const auto& text : both("graph @main(%x: u8[N]) -> (%y: u8[N]) { %y = flip(%x) axes=[0] : u8[N] }", 2 * n)) {
    SCOPED_TRACE(text);
    EXPECT_RUNS(text, {{"x", y}}, {z});
    expect(z, [](int64_t i) { return pattern((2 * n - 1 - i) % n); });
  }
}

TEST_F(Large, RunningSums) {
  constexpr int64_t n = (int64_t{1} << 28) + 1, m = 8;
  auto x = filled(DType::U8, {n, m}), y = empty(DType::U8, {n, m});
  for (const auto& text :
       both("graph @main(%x: u8[N, M]) -> (%y: u8[N, M]) { %y = scan(%x) axis=1 kind=\"sum\" : u8[N, M] }", n, m)) {
    SCOPED_TRACE(text);
    EXPECT_RUNS(text, {{"x", x}}, {y});
    expect(y, [](int64_t i) {
      int sum = 0;
      for (int64_t k = i / m * m; k <= i; ++k) sum += pattern(k);
      return sum;
    });
  }
}

// By cuBLASLt, and as generated loops.
TEST_F(Large, Products) {
  constexpr int64_t k = 8;
  for (auto [n, m] : {std::pair{int64_t{65544}, int64_t{32776}}, {(int64_t{1} << 28) + 8, int64_t{8}}}) {
    auto a = filled(DType::F16, {n, k}), b = filled(DType::F16, {k, m}), c = empty(DType::F16, {n, m});
    const std::string text = "graph @main(%a: f16[N, 8], %b: f16[8, M]) -> (%y: f16[N, M]) "
                             "{ %y = matmul(%a, %b) : f16[N, M] }";
    for (bool libraries : {true, false})
      for (const auto& t : both(text, n, m)) {
        SCOPED_TRACE(t + (libraries ? "" : " as loops"));
        EXPECT_RUNS(t, {{"a", a}, {"b", b}}, {c}, libraries);
        expect(c, [m = m](int64_t i) {
          int sum = 0;
          for (int64_t x = 0; x < k; ++x) sum += pattern(i / m * k + x) * pattern(x * m + i % m);
          return sum;
        });
      }
    release_all();
  }
}

} // namespace
} // namespace tessera
