// Random products of tiles: all of them get legal layouts; those that are small enough are compiled, and compute what the
// interpreter says.
#include "codegen/layout/assign.h"
#include "codegen/llvm/gpu_compiler.h"
#include "harness.h"
#include "tests/base/seeds.h"
#include <bit>
#include <iostream>
#include <random>

namespace tessera::test {
namespace {

using tile::ValueId;

constexpr int64_t kSharedBytes = 200 << 10; // for stages of a ring

// c[m, n] = a[m, k] b[k, n] by one program, of tiles whose dimensions are powers of two from 1 to 256. The sizes fill no
// tile where the operands are masked. All values and sums are small integers, exact in every type.
class RandomDot {
public:
  explicit RandomDot(unsigned seed) : rng_(seed), maker_("random_dot") {
    static constexpr DType kTypes[] = {DType::F16, DType::BF16, DType::I8,  DType::U8, // those of tensor cores
                                       DType::F16, DType::BF16, DType::F32, DType::F64, DType::I32};
    type_ = kTypes[upto(8)];
    // One of three has what warpgroups need: few others have all of it by chance.
    const bool for_warpgroups = seed % 3 == 0;
    if (for_warpgroups) type_ = kTypes[upto(3)];
    right_ = !is_byte(type_) ? type_ : upto(1) ? DType::I8 : DType::U8;
    maker_.k.config["warps"] = warps_ = for_warpgroups ? 4 << upto(1) : 1 << upto(3);
    do {
      for (int* extent : {&rows_, &columns_, &depth_}) *extent = 1 << (for_warpgroups ? 4 + upto(4) : upto(8));
    } while (largest_tile() > 1024 * 32 * warps_); // assign_layouts takes 1024 elements of a thread
    loop_ = for_warpgroups || upto(4) != 0;
    num_stages_ = loop_ ? upto(5) : 0;
    carried_ = for_warpgroups || upto(2) != 0;
    by_columns_[0] = upto(1), by_columns_[1] = upto(1);
    if (for_warpgroups && is_byte(type_)) by_columns_ = {false, true};
    prologue_ = for_warpgroups ? 0 : upto(3);
    const bool masked = upto(1);
    auto size = [&](int extent) { return masked ? std::max(1, extent - extent / (extent >= 32 ? 4 : 2)) : extent; };
    m_ = size(rows_), n_ = size(columns_);
    k_ = size(depth_) + (loop_ ? depth_ * upto(2) : 0);
    masked_ = masked || k_ % depth_ != 0;
    make();
  }

  [[nodiscard]] const tile::Kernel& kernel() const { return maker_.k; }
  [[nodiscard]] int warps() const { return warps_; }
  // Multiplications of one thread per tile, and of the whole kernel.
  [[nodiscard]] int64_t thread_work() const { return int64_t{rows_} * columns_ * depth_ / (32 * warps_); }
  [[nodiscard]] int64_t work() const { return int64_t{rows_} * columns_ * std::max(k_, depth_); }
  [[nodiscard]] int64_t largest_tile() const {
    return int64_t{rows_} * columns_ * depth_ / std::min({rows_, columns_, depth_});
  }
  [[nodiscard]] GpuRun run(const std::string& arch) const {
    GpuRun r;
    r.buffers = {integers(stored(type_), int64_t{m_} * k_), integers(stored(right_), int64_t{k_} * n_),
                 filled(sum_dtype(), int64_t{m_} * n_, 99)};
    r.scalars = {m_, n_, k_};
    r.warps = {warps_};
    r.seeds = 1;
    r.arch = arch;
    return r;
  }

  [[nodiscard]] bool on_tensor_cores() const {
    const int bits = info(type_).bits;
    return bits <= 16 && std::min(rows_, columns_) >= 16 && depth_ * bits >= 256;
  }
  // Sums of narrow factors have more bytes: a tile of bytes counts as one of 16-bit elements.
  [[nodiscard]] int64_t largest_tile_bytes() const { return largest_tile() * std::max(16, info(type_).bits) / 8; }

private:
  std::mt19937 rng_;
  KernelMaker maker_;
  DType type_ = DType::F16, right_ = DType::F16; // of the factors
  int warps_ = 1, rows_ = 1, columns_ = 1, depth_ = 1, m_ = 1, n_ = 1, k_ = 1, num_stages_ = 0;
  int prologue_ = 0; // none, cast from i8, multiplication, select
  bool loop_ = false, carried_ = false, masked_ = false;
  std::array<bool, 2> by_columns_ = {};

  static bool is_byte(DType d) { return d == DType::I8 || d == DType::U8; }
  [[nodiscard]] DType sum_dtype() const { return is_byte(type_) ? DType::I32 : compute_dtype(type_); }
  [[nodiscard]] DType stored(DType factor) const { return prologue_ == 1 ? DType::I8 : factor; }
  int upto(int n) { return std::uniform_int_distribution<int>(0, n)(rng_); }

  static Tensor integers(DType d, int64_t count) {
    Tensor t = filled(d, count, 0);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t v = i * 7919 % 31 % 5 - (d == DType::U8 ? 0 : 2);
      if (is_float(d))
        t.set_f64(i, static_cast<double>(v));
      else
        t.set_i64(i, v);
    }
    return t;
  }

  ValueId spread(ValueId v, int axis, const std::vector<int>& shape) {
    return maker_.b.broadcast(maker_.b.expand_dims(v, 1 - axis), shape);
  }
  // Offsets and mask (-1: none) of the tile at [row, column] of a matrix of `sizes`.
  std::pair<ValueId, ValueId> access(const std::vector<int>& shape, std::array<ValueId, 2> start,
                                     std::array<ValueId, 2> sizes, bool by_columns) {
    auto& f = maker_;
    auto row = f.add(f.b.range(shape[0]), start[0]), column = f.add(f.b.range(shape[1]), start[1]);
    auto at = by_columns ? f.add(spread(row, 0, shape), spread(f.mul(column, sizes[0]), 1, shape))
                         : f.add(spread(f.mul(row, sizes[1]), 0, shape), spread(column, 1, shape));
    if (!masked_) return {at, -1};
    return {at, f.op(ScalarOp::And, {spread(f.lt(row, sizes[0]), 0, shape), spread(f.lt(column, sizes[1]), 1, shape)})};
  }
  ValueId prologue(ValueId v, DType type, const std::vector<int>& shape) {
    auto& f = maker_;
    if (prologue_ < 2) return prologue_ == 1 ? f.b.cast(v, type) : v;
    const DType wide = compute_dtype(type);
    auto number = [&](int x) {
      return f.b.broadcast(is_float(wide) ? f.b.const_f(wide, x) : f.b.const_i(wide, x), shape);
    };
    auto x = f.b.cast(v, wide);
    x = prologue_ == 2 ? f.mul(x, number(2)) : f.op(ScalarOp::Select, {f.lt(x, number(0)), number(0), x});
    return f.b.cast(x, type);
  }

  void make() {
    auto& f = maker_;
    const DType sum = sum_dtype();
    auto a = f.in("a", stored(type_)), b = f.in("b", stored(right_)), c = f.out("c", sum);
    for (auto& p : f.k.params) p.invariant = !p.written;
    auto multiple = [](int v) { return int64_t{1} << std::min(4, std::countr_zero(static_cast<unsigned>(v))); };
    auto m = f.size("m", multiple(m_)), n = f.size("n", multiple(n_)), k = f.size("k", multiple(k_));
    auto zero = f.b.broadcast(is_float(sum) ? f.b.const_f(sum, 0) : f.b.const_i(sum, 0), {rows_, columns_});
    auto product = [&](ValueId i, ValueId start) {
      const std::vector<int> left = {rows_, depth_}, right = {depth_, columns_};
      auto [a_at, a_in] = access(left, {f.i(0), i}, {m, k}, by_columns_[0]);
      auto [b_at, b_in] = access(right, {i, f.i(0)}, {k, n}, by_columns_[1]);
      auto x = prologue(f.b.load(a, a_at, a_in), type_, left), y = prologue(f.b.load(b, b_at, b_in), right_, right);
      return carried_ ? f.b.dot(x, y, start) : f.add(f.b.dot(x, y, zero), start);
    };
    ValueId result = zero;
    if (loop_)
      result = f.b.for_loop(
          f.i(0), k, f.i(depth_), {zero},
          [&](ValueId i, std::span<const ValueId> acc) -> std::vector<ValueId> { return {product(i, acc[0])}; },
          num_stages_)[0];
    else
      result = product(f.i(0), zero);
    auto [at, in] = access({rows_, columns_}, {f.i(0), f.i(0)}, {m, n}, false);
    f.b.store(c, at, result, in);
  }
};

// Layouts of tensor cores, and of warpgroups where they take the product, pass their own checks.
TEST(RandomDots, ALegalLayoutAlwaysExists) {
  int by_warpgroups = 0;
  const auto count = seeds(10000);
  for (unsigned seed = 0; seed < count; ++seed) {
    const RandomDot random(seed);
    const auto& kernel = random.kernel();
    const std::string where = "seed " + std::to_string(seed) + "\n";
    auto good = tile::verify(kernel);
    ASSERT_TRUE(good.ok()) << where << good.error().str() << tile::print(kernel);
    auto choice = layout::plan_warpgroups(kernel, random.warps(), kSharedBytes);
    for (const bool warpgroups : {false, true}) {
      if (warpgroups && !choice.plan) {
        EXPECT_NE(choice.refusal, "") << where << "neither a plan nor why there is none";
        continue;
      }
      by_warpgroups += warpgroups;
      auto layouts = layout::assign_layouts(kernel, warpgroups ? choice.plan : std::nullopt);
      ASSERT_TRUE(layouts.ok()) << where << layouts.error().str() << tile::print(kernel);
      auto valid = layout::verify_layouts(*layouts);
      ASSERT_TRUE(valid.ok()) << where << valid.error().str() << layouts->str();
    }
  }
  if (count >= 1000) {
    EXPECT_GT(by_warpgroups, 0);
  }
  std::cout << count << " kernels, " << by_warpgroups << " of them by warpgroups\n";
}

// Those that LLVM compiles and the interpreter runs quickly: every architecture in turn.
TEST(RandomDots, DoWhatTheInterpreterSays) {
  static constexpr const char* kArchs[] = {"sm_80", "sm_89", "sm_90a"};
  unsigned seed = 0;
  int by_warpgroups = 0;
  const auto count = seeds(500);
  for (uint32_t done = 0; done < count && !HasFatalFailure(); ++seed) {
    const RandomDot random(20000 + seed);
    const int64_t scale = random.on_tensor_cores() ? 8 : 1; // fma takes as many instructions as multiplications
    if (random.thread_work() > 1024 * scale || random.work() > (scale << 18)) continue;
    if (random.largest_tile_bytes() > 64 << 10) continue; // two tiles and an exchange fit a block's shared memory
    SCOPED_TRACE("seed " + std::to_string(20000 + seed));
    const std::string arch = kArchs[done++ % 3];
    if (GpuTarget::parse(arch)->warpgroups())
      by_warpgroups += layout::plan_warpgroups(random.kernel(), random.warps(), kSharedBytes).plan.has_value();
    expect_as_interpreted(random.kernel(), random.run(arch));
  }
  if (count >= 100) {
    EXPECT_GT(by_warpgroups, 0);
  }
  std::cout << count << " kernels, " << by_warpgroups << " of them by warpgroups\n";
}

} // namespace
} // namespace tessera::test
