// Launches on the host: what kernels compute, over sizes, grids and threads.
#include "harness.h"
#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

namespace tessera {
namespace {
using namespace kernel_test;

constexpr const char* kAdd = R"(
tile.kernel @add(%x: ptr<f32>, %y: ptr<f32>, %z: ptr<f32> written, %n: i64) {
  %p = program_id 0                      : i64
  %start = mul(%p, 64)                   : i64
  %r = range 64                          : tile<[64], i64>
  %o = add(%r, %start)                   : tile<[64], i64>
  %in = lt(%o, %n)                       : tile<[64], bool>
  %a = load %x[%o] mask=%in              : tile<[64], f32>
  %b = load %y[%o] mask=%in              : tile<[64], f32>
  %s = add(%a, %b)                       : tile<[64], f32>
  store %z[%o] = %s mask=%in
}
)";

TEST(KernelLaunch, VectorsAreAdded) {
  for (int threads : {1, 2, 5}) {
    auto kernel = make(kAdd, on_host(threads));
    for (size_t n : {0, 1, 63, 64, 65, 1000, 100003}) {
      const auto x = ramp(n), y = ramp(n, 0.25F);
      std::vector<float> z(n + 1, 7), expected(n + 1, 7);
      for (size_t i = 0; i < n; ++i) expected[i] = x[i] + y[i];
      const auto status = launch(*kernel, static_cast<int64_t>(n + 63) / 64, x.data(), y.data(), z.data(), n);
      ASSERT_TRUE(status.ok()) << status.error().str();
      EXPECT_EQ(z, expected) << n << " on " << threads;
    }
  }
}

TEST(KernelLaunch, AddressesNeedNoMoreThanTheElementsAlignment) {
  auto kernel = make(kAdd);
  const auto x = ramp(101);
  std::vector<float> z(101);
  ASSERT_TRUE(launch(*kernel, 2, x.data() + 1, x.data() + 1, z.data() + 1, 100).ok());
  for (size_t i = 1; i < 101; ++i) EXPECT_EQ(z[i], 2 * x[i]);
}

// Programs of a row each, as wide as the next power of two.
std::string softmax(int columns) {
  const std::string w = std::to_string(columns), tile = "tile<[" + w + "], ";
  return "tile.kernel @softmax(%x: ptr<f32>, %y: ptr<f32> written, %n: i64) {\n  %p = program_id 0 : i64\n"
         "  %start = mul(%p, %n) : i64\n  %r = range " +
         w + " : " + tile + "i64>\n  %in = lt(%r, %n) : " + tile + "bool>\n  %o = add(%r, %start) : " + tile +
         "i64>\n  %v = load %x[%o] mask=%in other=-inf : " + tile +
         "f32>\n  %m = reduce.max(%v) axis=0 : f32\n  %d = sub(%v, %m) : " + tile + "f32>\n  %e = exp(%d) : " + tile +
         "f32>\n  %s = reduce.sum(%e) axis=0 : f32\n  %q = div(%e, %s) : " + tile +
         "f32>\n  store %y[%o] = %q mask=%in\n}\n";
}

TEST(KernelLaunch, RowsOfASoftmax) {
  for (auto [n, width] : {std::pair{1, 16}, {16, 16}, {17, 32}, {100, 128}, {255, 256}}) {
    auto kernel = make(softmax(width));
    for (int64_t rows : {1, 2, 33}) {
      const auto count = static_cast<size_t>(rows * n);
      const auto x = ramp(count, 0.125F);
      std::vector<float> y(count, 7), expected(count);
      ASSERT_TRUE(launch(*kernel, rows, x.data(), y.data(), n).ok());
      for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
        const auto* in = x.data() + row * static_cast<size_t>(n);
        const double most = *std::max_element(in, in + n);
        double sum = 0;
        for (int i = 0; i < n; ++i) sum += std::exp(in[i] - most);
        for (int i = 0; i < n; ++i)
          expected[row * static_cast<size_t>(n) + static_cast<size_t>(i)] =
              static_cast<float>(std::exp(in[i] - most) / sum);
      }
      EXPECT_LT(distance(y, expected), 1e-6) << n << " in " << width;
    }
  }
}

// c = a b with tiles of 16 x 16: axis 0 has the tiles of a row, axis 1 the rows of tiles, axis 2 the products of a batch.
constexpr const char* kProduct = R"(
tile.kernel @product(%a: ptr<f32>, %b: ptr<f32>, %c: ptr<f32> written once, %m: i64, %n: i64, %k: i64) {
  %pc = program_id 0                          : i64
  %pr = program_id 1                          : i64
  %pb = program_id 2                          : i64
  %mk = mul(%m, %k)                           : i64
  %kn = mul(%k, %n)                           : i64
  %mn = mul(%m, %n)                           : i64
  %a0 = mul(%pb, %mk)                         : i64
  %b0 = mul(%pb, %kn)                         : i64
  %c0 = mul(%pb, %mn)                         : i64
  %r = range 16                               : tile<[16], i64>
  %r0 = mul(%pr, 16)                          : i64
  %col0 = mul(%pc, 16)                        : i64
  %row1 = add(%r, %r0)                        : tile<[16], i64>
  %col1 = add(%r, %col0)                      : tile<[16], i64>
  %row = expand_dims(%row1) axis=1            : tile<[16, 1], i64>
  %col = expand_dims(%col1) axis=0            : tile<[1, 16], i64>
  %rows = broadcast(%row)                     : tile<[16, 16], i64>
  %cols = broadcast(%col)                     : tile<[16, 16], i64>
  %row_in = lt(%rows, %m)                     : tile<[16, 16], bool>
  %col_in = lt(%cols, %n)                     : tile<[16, 16], bool>
  %zero = const 0                             : tile<[16, 16], f32>
  %sum = for %i = 0 to %k step 16 carry(%acc = %zero) {
    %d = add(%r, %i)                          : tile<[16], i64>
    %da1 = expand_dims(%d) axis=0             : tile<[1, 16], i64>
    %db1 = expand_dims(%d) axis=1             : tile<[16, 1], i64>
    %da = broadcast(%da1)                     : tile<[16, 16], i64>
    %db = broadcast(%db1)                     : tile<[16, 16], i64>
    %da_in = lt(%da, %k)                      : tile<[16, 16], bool>
    %db_in = lt(%db, %k)                      : tile<[16, 16], bool>
    %a_in = and(%da_in, %row_in)              : tile<[16, 16], bool>
    %b_in = and(%db_in, %col_in)              : tile<[16, 16], bool>
    %a1 = mul(%rows, %k)                      : tile<[16, 16], i64>
    %a2 = add(%a1, %da)                       : tile<[16, 16], i64>
    %a3 = add(%a2, %a0)                       : tile<[16, 16], i64>
    %b1 = mul(%db, %n)                        : tile<[16, 16], i64>
    %b2 = add(%b1, %cols)                     : tile<[16, 16], i64>
    %b3 = add(%b2, %b0)                       : tile<[16, 16], i64>
    %at = load %a[%a3] mask=%a_in             : tile<[16, 16], f32>
    %bt = load %b[%b3] mask=%b_in             : tile<[16, 16], f32>
    %next = dot(%at, %bt, %acc)               : tile<[16, 16], f32>
    yield %next
  }
  %c1 = mul(%rows, %n)                        : tile<[16, 16], i64>
  %c2 = add(%c1, %cols)                       : tile<[16, 16], i64>
  %c3 = add(%c2, %c0)                         : tile<[16, 16], i64>
  %in = and(%row_in, %col_in)                 : tile<[16, 16], bool>
  store %c[%c3] = %sum mask=%in
}
)";

TEST(KernelLaunch, ProductsOverThreeAxes) {
  auto kernel = make(kProduct);
  struct Shape {
    int64_t m, n, k, batch;
  };
  for (const auto& [m, n, k, batch] : {Shape{1, 1, 1, 1}, {16, 16, 16, 2}, {33, 17, 40, 3}, {15, 64, 1, 5}}) {
    std::mt19937 random(3);
    std::uniform_real_distribution<float> uniform(-1, 1);
    auto numbers = [&](int64_t count) {
      std::vector<float> out(static_cast<size_t>(count));
      for (float& v : out) v = uniform(random);
      return out;
    };
    const auto a = numbers(batch * m * k), b = numbers(batch * k * n);
    std::vector<float> c(static_cast<size_t>(batch * m * n)), expected(c.size());
    for (int64_t p = 0; p < batch; ++p)
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0;
          for (int64_t l = 0; l < k; ++l)
            sum += double{a[static_cast<size_t>((p * m + i) * k + l)]} * b[static_cast<size_t>((p * k + l) * n + j)];
          expected[static_cast<size_t>((p * m + i) * n + j)] = static_cast<float>(sum);
        }
    ASSERT_TRUE(launch(*kernel, {(n + 15) / 16, (m + 15) / 16, batch}, a.data(), b.data(), c.data(), m, n, k).ok());
    EXPECT_LT(distance(c, expected), 1e-6) << m << " " << n << " " << k << " " << batch;
  }
}

TEST(KernelLaunch, ProgramsKnowTheirPlaceInTheGrid) {
  // out[number] = 1000000 x + 1000 y + z of the program, and the extents behind it.
  auto kernel = make(R"(
tile.kernel @places(%out: ptr<i64> written, %extents: ptr<i64> written) {
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
  %v1 = mul(%x, 1000000) : i64
  %v2 = mul(%y, 1000)    : i64
  %v3 = add(%v1, %v2)    : i64
  %v = add(%v3, %z)      : i64
  store %out[%n] = %v
  store %extents[0] = %nx
  store %extents[1] = %ny
  store %extents[2] = %nz
}
)");
  for (const Grid& grid : {Grid{1}, {7}, {1, 5}, {1, 1, 4}, {3, 4, 5}, {501, 2, 3}}) {
    std::vector<int64_t> out(static_cast<size_t>(grid.programs()), -1), extents(3);
    ASSERT_TRUE(launch(*kernel, grid, out.data(), extents.data()).ok());
    size_t at = 0;
    for (int64_t z = 0; z < grid[2]; ++z)
      for (int64_t y = 0; y < grid[1]; ++y)
        for (int64_t x = 0; x < grid[0]; ++x) EXPECT_EQ(out[at++], 1000000 * x + 1000 * y + z);
    EXPECT_EQ(extents, (std::vector<int64_t>{grid[0], grid[1], grid[2]}));
  }
}

TEST(KernelLaunch, CodeThatKnowsOneAxisRunsOverAllOfThem) {
  auto kernel = make(R"(
tile.kernel @count(%out: ptr<i32> written) {
  %x = program_id 0 : i64
  %one = const 1    : i32
  atomic_add %out[%x] = %one
}
)");
  for (const Grid& grid : {Grid{300}, {5, 7}, {2, 3, 4}, {1, 1, 9}}) {
    std::vector<int32_t> out(static_cast<size_t>(grid[0]));
    ASSERT_TRUE(launch(*kernel, grid, out.data()).ok());
    EXPECT_EQ(out, std::vector<int32_t>(out.size(), static_cast<int32_t>(grid[1] * grid[2])));
  }
}

TEST(KernelLaunch, AGridWithoutProgramsRunsNone) {
  auto kernel = make(kAdd);
  for (const Grid& grid : {Grid{0}, {0, 3}, {3, 0, 2}, {1, 1, 0}}) {
    float z = 7;
    EXPECT_TRUE(launch(*kernel, grid, &z, &z, &z, 1).ok());
    EXPECT_EQ(z, 7);
  }
}

TEST(KernelLaunch, TensorsWithoutElementsHaveNoAddress) {
  auto kernel = make(kAdd);
  const float* none = nullptr;
  EXPECT_TRUE(launch(*kernel, 1, none, none, none, 0).ok());
}

TEST(KernelLaunch, AtomicUpdatesOfManyPrograms) {
  auto kernel = make(R"(
tile.kernel @histogram(%x: ptr<i32>, %sums: ptr<i64> written, %most: ptr<i32> written, %n: i64) {
  %p = program_id 0       : i64
  %start = mul(%p, 32)    : i64
  %r = range 32           : tile<[32], i64>
  %o = add(%r, %start)    : tile<[32], i64>
  %in = lt(%o, %n)        : tile<[32], bool>
  %v = load %x[%o] mask=%in : tile<[32], i32>
  %bin = mod(%v, 8)       : tile<[32], i32>
  %one = const 1          : tile<[32], i64>
  atomic_add %sums[%bin] = %one mask=%in
  atomic_max %most[%bin] = %v mask=%in
}
)");
  for (int32_t n : {1, 31, 32, 33, 5000}) {
    std::vector<int32_t> x(static_cast<size_t>(n));
    std::iota(x.begin(), x.end(), 0);
    std::vector<int64_t> sums(8), expected(8);
    std::vector<int32_t> most(8, -1), expected_most(8, -1);
    for (int32_t v : x) {
      ++expected[static_cast<size_t>(v % 8)];
      expected_most[static_cast<size_t>(v % 8)] = v;
    }
    ASSERT_TRUE(launch(*kernel, (n + 31) / 32, x.data(), sums.data(), most.data(), n).ok());
    EXPECT_EQ(sums, expected);
    EXPECT_EQ(most, expected_most);
  }
}

TEST(KernelLaunch, ScratchIsAProgramsOwn) {
  // Each program reverses `n` elements through its scratch; the second block has another dtype.
  auto kernel = make(R"(
tile.kernel @reverse(%x: ptr<f32>, %y: ptr<f32> written, %n: i64, %extra: i32) {
  %p = program_id 0          : i64
  %start = mul(%p, %n)       : i64
  %wide = cast(%extra)       : i64
  %count = add(%n, %wide)    : i64
  %s = scratch %count        : ptr<f32>
  %np = num_programs 0       : i64
  %t = scratch %np           : ptr<f64>
  %e = const 2.5             : f64
  for %i = 0 to %n step 1 {
    %o = add(%start, %i)     : i64
    %v = load %x[%o]         : f32
    store %s[%i] = %v
  }
  store %t[%p] = %e
  for %i = 0 to %n step 1 {
    %back = sub(%n, %i)      : i64
    %from = sub(%back, 1)    : i64
    %v = load %s[%from]      : f32
    %d = load %t[%p]         : f64
    %f = cast(%d)            : f32
    %w = add(%v, %f)         : f32
    %o = add(%start, %i)     : i64
    store %y[%o] = %w
  }
}
)");
  for (auto [n, programs] : {std::pair<size_t, size_t>{1, 1}, {5, 3}, {1000, 7}, {3, 400}, {0, 4}}) {
    const auto x = ramp(n * programs);
    std::vector<float> y(x.size()), expected(x.size());
    for (size_t p = 0; p < programs; ++p)
      for (size_t i = 0; i < n; ++i) expected[p * n + i] = x[p * n + n - 1 - i] + 2.5F;
    ASSERT_TRUE(launch(*kernel, static_cast<int64_t>(programs), x.data(), y.data(), n, 3).ok());
    EXPECT_EQ(y, expected);
  }
  float v = 0;
  EXPECT_NE(message(launch(*kernel, 1, &v, &v, -100, 3)).find("requires scratch of -97 elements"), std::string::npos);
  EXPECT_NE(message(launch(*kernel, 1, &v, &v, INT64_MAX / 2, 3)).find("at most"), std::string::npos);
}

TEST(KernelLaunch, BadIndicesAreErrorsOfTheLaunch) {
  auto kernel = make(R"(
tile.kernel @gather(%x: ptr<f32>, %at: ptr<i64>, %y: ptr<f32> written, %n: i64, %rows: i64) {
  %p = program_id 0                 : i64
  %i = load %at[%p]                 : i64
  %bad = ge(%i, %rows)              : bool
  report_index %bad, %i, %p site=4
  %in = lt(%i, %rows)               : bool
  %v = load %x[%i] mask=%in         : f32
  store %y[%p] = %v
}
)");
  const auto x = ramp(10);
  const std::vector<int64_t> good{3, 9, 0}, bad{3, 12, 11};
  std::vector<float> y(3);
  EXPECT_TRUE(launch(*kernel, 3, x.data(), good.data(), y.data(), 3, 10).ok());
  const auto status = launch(*kernel, 3, x.data(), bad.data(), y.data(), 3, 10);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::BadInput);
  EXPECT_EQ(status.error().message, "index 12 at element 1 is out of range: check 4 of kernel 'gather'");
  EXPECT_TRUE(launch(*kernel, 3, x.data(), good.data(), y.data(), 3, 10).ok()) << "the kernel stays usable";
}

TEST(KernelLaunch, ThreadsLaunchOneKernelAtOnce) {
  auto kernel = make(kAdd);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const auto x = ramp(5000, static_cast<float>(t));
      std::vector<float> z(x.size());
      for (int i = 0; i < 50; ++i) {
        std::fill(z.begin(), z.end(), 0);
        if (!launch(*kernel, 79, x.data(), x.data(), z.data(), x.size()).ok()) ++wrong;
        for (size_t j = 0; j < x.size(); ++j) wrong += z[j] != 2 * x[j];
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

} // namespace
} // namespace tessera
