// Products through the library against plain loops, over shapes, strides and epilogues.
#include "build_executable.h"

namespace tessera {
namespace {
using namespace test;

struct Layout {
  Dims shape, strides;
  int64_t offset = 0, elements = 0;
};
// A random layout of `shape`: dims in a random order of memory, sometimes with gaps and an offset.
Layout random_layout(const Dims& shape, std::mt19937& rng, bool may_gap) {
  Layout l{shape, Dims(shape.size(), 0), 0, 0};
  std::vector<size_t> order(shape.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (rng() % 2) std::shuffle(order.begin(), order.end(), rng);
  int64_t at = 1;
  if (may_gap && rng() % 4 == 0) at = 2; // no unit stride at all
  for (size_t i = order.size(); i-- > 0;) {
    l.strides[order[i]] = at;
    at *= std::max<int64_t>(shape[order[i]], 1);
    if (may_gap && rng() % 3 == 0) at += static_cast<int64_t>(rng() % 5);
  }
  l.offset = may_gap ? static_cast<int64_t>(rng() % 7) : 0;
  l.elements = at + l.offset;
  return l;
}
StridedOperand operand(BufferId b, const Layout& l) {
  StridedOperand o{b, {}, {}, l.offset};
  for (auto d : l.shape) o.shape.emplace_back(d);
  for (auto s : l.strides) o.strides.emplace_back(s);
  return o;
}

// out[dense] = c[strided] * 2 + bias[n] over a box of up to 4 dims (missing ones of size 1).
// sizes: 4 dims of out, 4 strides of c, offset of c, begin x 4, count x 4.
void box_epilogue(void* const* b, const int64_t* s, int64_t begin, int64_t end, void*, IndexReport*) {
  const auto* c = static_cast<const float*>(b[0]);
  const auto* bias = static_cast<const float*>(b[1]);
  auto* out = static_cast<float*>(b[2]);
  const int64_t *dims = s, *strides = s + 4, *from = s + 9, *count = s + 13;
  for (int64_t p = begin; p < end; ++p)
    for (int64_t j = 0; j < count[1]; ++j)
      for (int64_t k = 0; k < count[2]; ++k)
        for (int64_t l = 0; l < count[3]; ++l) {
          int64_t i0 = from[0] + p, i1 = from[1] + j, i2 = from[2] + k, i3 = from[3] + l;
          float v = c[s[8] + i0 * strides[0] + i1 * strides[1] + i2 * strides[2] + i3 * strides[3]];
          out[((i0 * dims[1] + i1) * dims[2] + i2) * dims[3] + i3] = v * 2 + bias[i3];
        }
}

void check_product(uint32_t seed, int threads) {
  std::mt19937 rng(seed);
  auto pick = [&](std::initializer_list<int64_t> of) { return *(of.begin() + rng() % of.size()); };
  size_t batches = rng() % 3;
  Dims batch;
  for (size_t i = 0; i < batches; ++i) batch.push_back(pick({1, 2, 3, 5}));
  if (rng() % 20 == 0 && batches) batch[0] = 0;
  int64_t m = pick({1, 1, 2, 7, 16, 33, 100, 257}), n = pick({1, 3, 16, 47, 64, 130, 400, 800}),
          k = pick({1, 2, 17, 64, 129, 1500});
  if (rng() % 15 == 0) k = 0;
  if (rng() % 25 == 0) m = 0;
  if (rng() % 25 == 0) n = 0;
  bool constant = rng() % 2, epilogue = rng() % 2, share_b = rng() % 2, share_a = rng() % 6 == 0;
  auto shape = [&](int64_t r, int64_t c) {
    Dims d = batch;
    d.push_back(r);
    d.push_back(c);
    return d;
  };
  auto la = random_layout(shape(m, k), rng, true), lb = random_layout(shape(k, n), rng, true),
       lc = random_layout(shape(m, n), rng, true);
  auto share = [&](Layout& l) {
    for (size_t i = 0; i < batches; ++i) l.strides[i] = 0;
  };
  if (share_b) share(lb);
  if (share_a) share(la);
  if (share_b && rng() % 2 &&
      la.strides.size() == lb.strides.size()) { // rows that go on through the batch, as an exporter writes them
    la = {la.shape, {}, 0, 0};
    lc = {lc.shape, {}, 0, 0};
    for (auto* l : {&la, &lc}) {
      l->strides.assign(l->shape.size(), 1);
      for (size_t d = l->shape.size() - 1; d-- > 0;)
        l->strides[d] = l->strides[d + 1] * std::max<int64_t>(1, l->shape[d + 1]);
      l->elements = 1;
      for (auto d : l->shape) l->elements *= d;
    }
    share_a = false;
  }
  Tensor a = random_tensor({la.elements}, seed + 1), w = random_tensor({lb.elements}, seed + 2),
         bias = random_tensor({n}, seed + 3);
  Builder b;
  auto ia = b.input("a", {SymExpr(la.elements)});
  // Weights in half precision are multiplied as the numbers they are.
  DType weight = constant ? std::array{DType::F32, DType::F32, DType::F16, DType::BF16}[seed / 17 % 4] : DType::F32;
  auto ib = !constant              ? b.input("b", {SymExpr(lb.elements)})
            : weight == DType::F32 ? b.constant("b", w)
                                   : b.constant("b", narrowed(w, weight));
  auto ibias = b.input("bias", {SymExpr(n)});
  auto out_dims = shape(m, n);
  SymShape out_shape(out_dims.begin(), out_dims.end());
  auto ic = epilogue ? b.buffer("c", {SymExpr(lc.elements)}) : b.output("c", {SymExpr(lc.elements)});
  MatmulCall call{operand(ia, la), operand(ib, lb), operand(ic, lc), std::nullopt};
  if (epilogue) {
    auto out = b.output("out", out_shape);
    EpilogueKernel e;
    std::vector<SymExpr> dims, strides, begin, count;
    size_t missing = 4 - out_dims.size();
    for (size_t d = 0; d < 4; ++d) {
      bool has = d >= missing;
      auto bs = b.symbol("begin" + std::to_string(d)), cs = b.symbol("count" + std::to_string(d));
      dims.push_back(has ? SymExpr(out_dims[d - missing]) : SymExpr(1));
      strides.push_back(has ? SymExpr(lc.strides[d - missing]) : SymExpr(0));
      begin.push_back(has ? bs : SymExpr(0));
      count.push_back(has ? cs : SymExpr(1));
      if (has) {
        e.begin.push_back(bs);
        e.count.push_back(cs);
      }
    }
    std::vector<SymExpr> sizes = dims;
    sizes.insert(sizes.end(), strides.begin(), strides.end());
    sizes.emplace_back(lc.offset);
    sizes.insert(sizes.end(), begin.begin(), begin.end());
    sizes.insert(sizes.end(), count.begin(), count.end());
    e.kernel = Builder::launch("epilogue", box_epilogue, {ic, ibias}, {out}, sizes, count[0]);
    call.epilogue = e;
  }
  b.exe->steps.emplace_back(LibraryStep{"product", call});
  ExecutorOptions options;
  options.pool = ThreadPool::create(threads);
  options.poison = true;
  auto executor = Executor::create({b.done()}, options);
  ASSERT_TRUE(executor.ok()) << executor.error().str();
  std::map<std::string, Tensor> inputs{{"a", a}, {"bias", bias}};
  if (!constant) inputs.emplace("b", w);
  // Places in the result and what is expected there; plain pointers, as sanitizers look at each access.
  struct Element {
    size_t at;
    double value;
  };
  std::vector<Element> expected;
  const float *left = a.as<float>().data(), *right = w.as<float>().data(), *added = bias.as<float>().data();
  const int64_t left_step = la.strides[batches + 1], right_step = lb.strides[batches];
  Dims index(out_dims.size(), 0);
  int64_t count = 1;
  for (auto d : out_dims) count *= d;
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, pa = la.offset, pb = lb.offset, pc = lc.offset;
    for (size_t d = out_dims.size(); d-- > 0;) {
      index[d] = rest % out_dims[d];
      rest /= out_dims[d];
      pc += index[d] * lc.strides[d];
      if (d < batches) {
        pa += index[d] * la.strides[d];
        pb += index[d] * lb.strides[d];
      }
    }
    pa += index[batches] * la.strides[batches];
    pb += index[batches + 1] * lb.strides[batches + 1];
    double sum = 0;
    for (int64_t q = 0; q < k; ++q) sum += static_cast<double>(left[pa + q * left_step]) * right[pb + q * right_step];
    expected.push_back({static_cast<size_t>(epilogue ? i : pc), epilogue ? sum * 2 + added[index[batches + 1]] : sum});
  }
  for (int round = 0; round < 2; ++round) {
    auto result = (*executor)->run(inputs);
    ASSERT_TRUE(result.ok()) << result.error().str();
    const auto got = (*result)[0].as<float>();
    for (const Element& e : expected)
      ASSERT_NEAR(got[e.at], e.value, k > 1000 ? 5e-4 : 1e-4)
          << "seed " << seed << " m " << m << " n " << n << " k " << k << " element " << e.at;
  }
}

TEST(Matmul, AgreesWithLoopsForRandomShapesAndStrides) {
  for (uint32_t seed = 0; seed < 240; ++seed) {
    check_product(seed * 17 + 1, 1 + static_cast<int>(seed % 3));
    if (HasFatalFailure()) return;
  }
}

// Whatever is no constant weight is f32.
TEST(Matmul, HalfPrecisionOperandsAreRefused) {
  Builder b;
  auto a = b.input("a", {SymExpr(4)}), w = b.input("w", {SymExpr(4)}), c = b.output("c", {SymExpr(4)});
  b.exe->buffers[static_cast<size_t>(w)].dtype = DType::F16;
  auto view = [](BufferId id) { return StridedOperand{id, {2, 2}, {2, 1}, 0}; };
  b.exe->steps.emplace_back(LibraryStep{"product", MatmulCall{view(a), view(w), view(c), std::nullopt}});
  auto executor = Executor::create({b.done()}, {});
  ASSERT_FALSE(executor.ok());
  EXPECT_NE(executor.error().message.find("'w' is not f32"), std::string::npos) << executor.error().str();
}

} // namespace
} // namespace tessera
