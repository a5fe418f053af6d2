// Attention in the terms of cuDNN, and on a GPU against plain loops.
#include "runtime/cuda/cudnn_attention.h"
#include "tests/cuda/fake_cudnn.h"
#include "tests/cuda/library_device.h"
#include <cmath>

namespace tessera::cuda {
namespace {
using namespace test;

struct Heads {
  Dims batch;         // of q and out
  int64_t shared = 1; // innermost batch dimension: heads that share keys
  int64_t queries, keys, width, value_width;
};
struct Case {
  std::vector<DeviceOperand> operands; // q, k, v, out, bias
  FusedAttentionCall call;
};

// q, k, v and out as [b, s, heads * width], seen as [b, heads, s, width].
Case make(const Heads& h, DType dtype, bool causal = false, const std::optional<std::pair<DType, Dims>>& bias = {},
          int64_t offset = 0) {
  Case c;
  c.call.scale = 1 / std::sqrt(static_cast<double>(h.width));
  c.call.causal = causal;
  auto operand = [&](int64_t rows, int64_t width, bool keys, uint64_t seed) {
    Dims shape = h.batch, strides(h.batch.size());
    int64_t step = width, heads = 1;
    for (size_t d = h.batch.size(); d-- > 1;) {
      bool repeats = keys && h.shared > 1 && d + 1 == h.batch.size();
      strides[d] = repeats ? 0 : step;
      if (!repeats) step *= h.batch[d], heads *= h.batch[d];
    }
    strides[0] = heads * width * rows;
    shape.insert(shape.end(), {rows, width});
    strides.insert(strides.end(), {heads * width, 1});
    c.operands.push_back(filled(dtype, shape, strides, seed, offset));
  };
  operand(h.queries, h.width, false, 1);
  operand(h.keys, h.width, true, 2);
  operand(h.keys, h.value_width, true, 3);
  operand(h.queries, h.value_width, false, 4);
  if (bias) {
    Dims shape = h.batch;
    shape.insert(shape.end(), {h.queries, h.keys});
    c.operands.push_back(filled(bias->first, shape, bias->second, 5));
    c.call.bias.emplace();
  }
  return c;
}

Result<AttentionProblem> described(const Case& c) {
  std::vector<Operand> views;
  for (const auto& o : c.operands) views.push_back(o.view);
  return describe_attention(c.call, views, "a");
}

// 12 heads of one sequence are 12 blocks, of 132 multiprocessors; 16 sequences of two blocks a head are 384.
TEST(ChooseAttention, AKernelComputesWhatDoesNotOccupyTheGpu) {
  fake_cudnn::Machine machine;
  Context& context = machine.gpu->context();
  Context::Current current(context);
  auto choice = [&](int64_t batch, int64_t queries, bool by_a_kernel) {
    const Case c = make({{batch, 12}, 1, queries, queries, 16, 16}, DType::F16);
    std::vector<Operand> views;
    for (const auto& o : c.operands) views.push_back(o.view);
    return choose_attention(context, "a", c.call, views, by_a_kernel, false);
  };
  for (int64_t queries : {1, 128, 1000}) {
    const auto kernel = choice(1, queries, true), steps = choice(1, queries, false);
    EXPECT_TRUE(!kernel.taken && !kernel.make && !kernel.why.empty()) << queries;
    EXPECT_TRUE(steps.make && steps.why.empty()) << "several steps are slower: " << queries;
  }
  EXPECT_TRUE(choice(16, 197, true).make);
  EXPECT_TRUE(choice(11, 128, true).make) << "132 blocks";
  EXPECT_FALSE(choice(10, 128, true).make);
}

TEST(DescribeAttention, BatchesAndHeads) {
  auto p = described(make({{2, 3}, 1, 5, 7, 16, 8}, DType::F16));
  ASSERT_TRUE(p.ok()) << p.error().str();
  EXPECT_EQ(p->q.dims, (std::array<int64_t, 4>{2, 3, 5, 16}));
  EXPECT_EQ(p->q.strides, (std::array<int64_t, 4>{240, 16, 48, 1}));
  EXPECT_EQ(p->k.dims, (std::array<int64_t, 4>{2, 3, 7, 16}));
  EXPECT_EQ(p->out.strides, (std::array<int64_t, 4>{120, 8, 24, 1}));
  EXPECT_FALSE(p->bias);
  EXPECT_NE(p->key(), described(make({{2, 3}, 1, 5, 7, 16, 8}, DType::F16, true))->key());
}

TEST(DescribeAttention, HeadsShareKeys) {
  auto p = described(make({{2, 4, 8}, 8, 5, 7, 16, 16}, DType::F16));
  ASSERT_TRUE(p.ok()) << p.error().str();
  EXPECT_EQ(p->q.dims, (std::array<int64_t, 4>{2, 32, 5, 16}));
  EXPECT_EQ(p->k.dims, (std::array<int64_t, 4>{2, 4, 7, 16}));
  EXPECT_EQ(p->k.strides, (std::array<int64_t, 4>{448, 16, 64, 1}));
  p = described(make({{2, 8}, 8, 5, 7, 16, 16}, DType::F16)); // one head of keys
  ASSERT_TRUE(p.ok()) << p.error().str();
  EXPECT_EQ(p->k.dims, (std::array<int64_t, 4>{2, 1, 7, 16}));
  EXPECT_EQ(p->q.dims, (std::array<int64_t, 4>{2, 8, 5, 16}));
}

TEST(DescribeAttention, DimensionsOfOnePointAndMerged) {
  auto p = described(make({{1}, 1, 1, 7, 16, 16}, DType::BF16));
  ASSERT_TRUE(p.ok()) << p.error().str();
  EXPECT_EQ(p->q.dims, (std::array<int64_t, 4>{1, 1, 1, 16}));
  for (auto s : p->q.strides) EXPECT_GT(s, 0);
  p = described(make({{2, 3, 4}, 1, 5, 5, 8, 8}, DType::F16)); // 3 x 4 heads one after the other
  ASSERT_TRUE(p.ok()) << p.error().str();
  EXPECT_EQ(p->q.dims, (std::array<int64_t, 4>{2, 12, 5, 8}));
  p = described(make({{2, 3}, 1, 5, 7, 16, 8}, DType::F16, false, std::pair{DType::F32, Dims{7, 0, 0, 1}}));
  ASSERT_TRUE(p.ok() && p->bias);
  EXPECT_EQ(p->bias->dims, (std::array<int64_t, 4>{2, 3, 5, 7}));
  EXPECT_EQ(p->bias->strides, (std::array<int64_t, 4>{7, 0, 0, 1}));
}

TEST(DescribeAttention, Refusals) {
  auto refused = [](const Case& c, const char* why) {
    auto p = described(c);
    ASSERT_FALSE(p.ok());
    EXPECT_EQ(p.error().code, ErrorCode::UnsupportedFeature);
    EXPECT_NE(p.error().message.find(why), std::string::npos) << p.error().message;
  };
  refused(make({{2, 3}, 1, 5, 7, 12, 8}, DType::F16), "multiple of 8");
  refused(make({{2, 3}, 1, 5, 7, 512, 8}, DType::F16), "multiple of 8");
  refused(make({{2, 3}, 1, 5, 0, 16, 8}, DType::F16), "no keys");
  refused(make({{2, 3}, 1, 5, 7, 16, 8}, DType::F16, false, {}, 4), "16 bytes");
  auto shifted = make({{2, 3, 4}, 1, 5, 5, 8, 8}, DType::F16);
  shifted.operands[0].view.strides[1] = 8; // heads of the queries in another order
  refused(shifted, "batch dimensions");
  EXPECT_TRUE(described(make({{2, 0}, 1, 5, 7, 16, 8}, DType::F16))->empty());
}

// By plain loops in double: the probabilities of the row of `at`, none where every key is hidden.
std::vector<double> probabilities(const Case& c, const Dims& at) {
  const auto& o = c.operands;
  int64_t keys = o[1].view.shape[o[1].view.shape.size() - 2], width = o[0].view.shape.back();
  size_t rank = at.size();
  Dims q = at, k = at;
  std::vector<double> scores;
  double most = -INFINITY;
  for (int64_t j = 0; j < keys; ++j) {
    double sum = 0;
    k[rank - 2] = j;
    for (int64_t d = 0; d < width; ++d) {
      q[rank - 1] = k[rank - 1] = d;
      sum += o[0].host.get_f64(position(o[0].view, q)) * o[1].host.get_f64(position(o[1].view, k));
    }
    sum *= c.call.scale;
    if (c.call.bias) {
      Dims b = at;
      b[rank - 1] = j;
      sum += o[4].host.get_f64(position(o[4].view, b));
    }
    if (c.call.causal && j > at[rank - 2]) sum = -INFINITY;
    scores.push_back(sum);
    most = std::max(most, sum);
  }
  if (std::isinf(most)) return {};
  double total = 0;
  for (auto& s : scores) total += s = std::exp(s - most);
  for (auto& s : scores) s /= total;
  return scores;
}
double weighted(const Case& c, Dims at, const std::vector<double>& p) {
  double y = 0;
  for (size_t j = 0; j < p.size(); ++j) {
    at[at.size() - 2] = static_cast<int64_t>(j);
    y += p[j] * c.operands[2].host.get_f64(position(c.operands[2].view, at));
  }
  return y;
}

class GpuAttention : public ::testing::Test {
protected:
  void SetUp() override {
    gpu_ = Gpu::open(why_);
    if (!gpu_) GTEST_SKIP() << why_;
    if (auto library = Cudnn::of(gpu_->context()); !library.ok()) GTEST_SKIP() << library.error().message;
  }
  // Whether the library takes it; then the result is checked.
  bool check(Case c, const std::string& what) {
    std::vector<Operand> views;
    std::vector<DeviceOperand*> operands;
    for (size_t i = 0; i < c.operands.size(); ++i) {
      c.operands[i].view.buffer = static_cast<BufferId>(i);
      views.push_back(c.operands[i].view);
      operands.push_back(&c.operands[i]);
    }
    Context::Current current(gpu_->context());
    auto plan = plan_cuda_attention({gpu_->context(), what}, c.call, views);
    if (!plan.ok()) {
      EXPECT_EQ(plan.error().code, ErrorCode::UnsupportedFeature) << plan.error().str();
      std::printf("%s: %s\n", what.c_str(), plan.error().message.c_str());
      return false;
    }
    auto out = gpu_->run(**plan, operands, 3);
    EXPECT_TRUE(out.ok()) << (out.ok() ? "" : out.error().str());
    if (!out.ok()) return true;
    double worst = 0;
    std::vector<double> row;
    each(c.operands[3].view.shape, [&](const Dims& at) {
      if (at.back() == 0) row = probabilities(c, at);
      double got = out->get_f64(position(c.operands[3].view, at)), want = weighted(c, at, row);
      worst = std::isnan(got) ? INFINITY : std::max(worst, std::abs(got - want));
    });
    EXPECT_LE(worst, 2 * rounding_of(c.operands[0].host.dtype()) + 4e-3) << what;
    return true;
  }
  std::string why_;
  std::unique_ptr<Gpu> gpu_;
};

TEST_F(GpuAttention, LengthsMasksAndSharedHeads) {
  int taken = 0, requested = 0;
  auto one = [&](const Heads& h, DType dtype, bool causal, const std::optional<std::pair<DType, Dims>>& bias,
                 const char* what) {
    ++requested;
    taken += check(make(h, dtype, causal, bias), std::string(what) + " " + std::to_string(h.queries) + "x" +
                                                     std::to_string(h.keys) + " " + std::string(name(dtype)))
                 ? 1
                 : 0;
  };
  for (int64_t s : {64, 65, 7}) {
    one({{2, 3}, 1, s, s, 64, 64}, DType::F16, false, {}, "plain");
    one({{2, 3}, 1, s, s, 64, 64}, DType::F16, true, {}, "causal");
    one({{2, 3}, 1, s, s, 64, 64}, DType::F16, false, std::pair{DType::F16, Dims{s, 0, 0, 1}}, "bias of keys");
    one({{2, 3}, 1, s, s, 64, 64}, DType::F16, false, std::pair{DType::F32, Dims{s * s, 0, s, 1}}, "f32 bias");
    one({{2, 3}, 1, s, s, 64, 64}, DType::F16, true, std::pair{DType::F16, Dims{3 * s * s, s * s, s, 1}}, "both");
  }
  one({{2, 2, 4}, 4, 33, 65, 64, 64}, DType::BF16, false, {}, "shared heads");
  one({{2, 2, 4}, 4, 64, 64, 128, 128}, DType::F16, true, {}, "shared heads, causal");
  one({{3, 2}, 1, 1, 100, 64, 64}, DType::F16, false, {}, "one query");
  one({{3, 2}, 1, 20, 1, 64, 64}, DType::F16, false, {}, "one key");
  one({{1, 1}, 1, 40, 40, 8, 24}, DType::F16, false, {}, "narrow");
  EXPECT_GE(taken, requested / 2);
  std::printf("%d of %d taken by cuDNN %zu\n", taken, requested, (*Cudnn::of(gpu_->context()))->version);
}

TEST_F(GpuAttention, RowsOfNothingAreZeros) {
  for (DType dtype : {DType::F16, DType::F32}) {
    Case c = make({{2, 3}, 1, 64, 64, 64, 64}, DType::F16, false, std::pair{dtype, Dims{64 * 64, 0, 64, 1}});
    auto& bias = c.operands[4].host;
    for (int64_t j = 0; j < 64; ++j) bias.set_f64(5 * 64 + j, -INFINITY); // row 5 of batch 0
    for (int64_t j = 30; j < 64; ++j) bias.set_f64(64 * 64 + 7 * 64 + j, -INFINITY);
    check(std::move(c), std::string("rows of nothing, ") + std::string(name(dtype)));
  }
}

} // namespace
} // namespace tessera::cuda
