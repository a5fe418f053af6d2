// Convolution and pooling through the library against plain loops: spatial ranks, groups, strides, dilations, uneven
// pads, layouts, epilogues.
#include "build_executable.h"

namespace tessera {
namespace {
using namespace test;

struct Layout {
  Dims shape, strides;
  int64_t offset = 0, elements = 0;
};
Layout layout(const Dims& shape, std::mt19937& rng) {
  Layout l{shape, Dims(shape.size(), 0), 0, 0};
  std::vector<size_t> order; // memory order, outermost first
  order.push_back(0);
  int kind = static_cast<int>(rng() % 4); // 0, 1: channels last; 2: channels first; 3: channels last with gaps
  if (kind == 2) order.push_back(1);
  for (size_t d = 2; d < shape.size(); ++d) order.push_back(d);
  if (kind != 2) order.push_back(1);
  int64_t at = 1;
  for (size_t i = order.size(); i-- > 0;) {
    l.strides[order[i]] = at;
    at *= std::max<int64_t>(shape[order[i]], 1);
    if (kind == 3 && rng() % 2) at += 3;
  }
  l.offset = kind == 3 ? 5 : 0;
  l.elements = at + l.offset;
  return l;
}
// `nothing`: 0, or a symbol that is 0, with which sizes vary from call to call.
StridedOperand operand(BufferId b, const Layout& l, const SymExpr& nothing = 0) {
  StridedOperand o{b, {}, {}, l.offset};
  for (auto d : l.shape) o.shape.push_back(SymExpr(d) + nothing);
  for (auto s : l.strides) o.strides.emplace_back(s);
  return o;
}
int64_t total(const Dims& d) {
  int64_t n = 1;
  for (auto x : d) n *= x;
  return n;
}
// Calls f(index) for every index below dims.
template <class F>
void each(const Dims& dims, F&& f) {
  Dims index(dims.size(), 0);
  for (int64_t i = 0, n = total(dims); i < n; ++i) {
    f(index);
    for (size_t d = dims.size(); d-- > 0;) {
      if (++index[d] < dims[d]) break;
      index[d] = 0;
    }
  }
}
int64_t at(const Layout& l, const Dims& index) {
  int64_t p = l.offset;
  for (size_t d = 0; d < index.size(); ++d) p += index[d] * l.strides[d];
  return p;
}

// Doubles the result in place over a box of up to 5 dims: sizes are strides, begin, count (5 each), offset.
void double_box(void* const* b, const int64_t* s, int64_t begin, int64_t end, void*, IndexReport*) {
  auto* y = static_cast<float*>(b[0]);
  for (int64_t p = begin; p < end; ++p)
    for (int64_t c = 0; c < s[11]; ++c)
      for (int64_t i = 0; i < s[12]; ++i)
        for (int64_t j = 0; j < s[13]; ++j)
          for (int64_t k = 0; k < s[14]; ++k)
            y[s[15] + (s[5] + p) * s[0] + (s[6] + c) * s[1] + (s[7] + i) * s[2] + (s[8] + j) * s[3] +
              (s[9] + k) * s[4]] *= 2;
}
EpilogueKernel doubling(Builder& b, BufferId y, const Layout& l) {
  EpilogueKernel e;
  std::vector<SymExpr> strides, begin, count;
  for (size_t d = 0; d < 5; ++d) {
    bool has = d < l.shape.size();
    auto bs = b.symbol("begin" + std::to_string(d)), cs = b.symbol("count" + std::to_string(d));
    strides.push_back(has ? SymExpr(l.strides[d]) : SymExpr(0));
    begin.push_back(has ? bs : SymExpr(0));
    count.push_back(has ? cs : SymExpr(1));
    if (!has) continue;
    e.begin.push_back(bs);
    e.count.push_back(cs);
  }
  auto sizes = strides;
  sizes.insert(sizes.end(), begin.begin(), begin.end());
  sizes.insert(sizes.end(), count.begin(), count.end());
  sizes.emplace_back(l.offset);
  e.kernel = Builder::launch("double", double_box, {}, {y}, sizes, count[0]);
  return e;
}

struct Window {
  size_t spatial;
  Dims in, kernel, strides, dilations, pb, pe;
};
Window random_window(std::mt19937& rng) {
  auto pick = [&](std::initializer_list<int64_t> of) { return *(of.begin() + rng() % of.size()); };
  Window w;
  w.spatial = 1 + rng() % 3;
  bool pixels = rng() % 4 == 0;
  for (size_t d = 0; d < w.spatial; ++d) {
    w.in.push_back(w.spatial == 3 ? pick({1, 4, 7}) : w.spatial == 2 ? pick({1, 5, 9, 14}) : pick({1, 8, 33, 200}));
    w.kernel.push_back(pixels ? 1 : pick({1, 2, 3, 5}));
    w.strides.push_back(pixels ? 1 : pick({1, 1, 2, 3}));
    w.dilations.push_back(pick({1, 1, 2}));
    w.pb.push_back(pixels ? 0 : pick({0, 1, 2}));
    w.pe.push_back(pixels ? 0 : pick({0, 1, 2}));
  }
  return w;
}

std::string text(const Window& w, const Dims& x, const Dims& y, int64_t groups, uint32_t seed) {
  auto list = [](const Dims& d) {
    std::string s = "[";
    for (auto v : d) s += std::to_string(v) + " ";
    return s + "]";
  };
  return "seed " + std::to_string(seed) + " x " + list(x) + " y " + list(y) + " kernel " + list(w.kernel) +
         " strides " + list(w.strides) + " dilations " + list(w.dilations) + " pads " + list(w.pb) + list(w.pe) +
         " groups " + std::to_string(groups);
}

bool check_conv(uint32_t seed, int threads) {
  std::mt19937 rng(seed);
  auto pick = [&](std::initializer_list<int64_t> of) { return *(of.begin() + rng() % of.size()); };
  auto w = random_window(rng);
  bool transposed = rng() % 4 == 0, epilogue = rng() % 2, constant = rng() % 3 != 0, varies = rng() % 2;
  int64_t groups = pick({1, 1, 2, 3, 8}), cg = pick({1, 2, 5, 16}), og = pick({1, 3, 4, 16});
  if (groups == 1 && rng() % 3 == 0) og = 96;
  if (rng() % 3 == 0) {
    groups = pick({16, 5});
    cg = og = 1;
  } // depthwise
  int64_t n = rng() % 30 == 0 ? 0 : pick({1, 1, 2, 3});
  Dims x{n, groups * cg}, y{n, groups * og}, k{transposed ? groups * cg : groups * og, transposed ? og : cg};
  for (size_t d = 0; d < w.spatial; ++d) {
    int64_t reach = (w.kernel[d] - 1) * w.dilations[d] + 1, out = 0;
    if (transposed) {
      w.pb[d] = std::min(w.pb[d], reach - 1);
      out = (w.in[d] - 1) * w.strides[d] + reach - w.pb[d] - std::min(w.pe[d], reach - 1) +
            static_cast<int64_t>(rng() % static_cast<uint32_t>(w.strides[d]));
    } else {
      out = (w.in[d] + w.pb[d] + w.pe[d] - reach) / w.strides[d] + 1;
    }
    if (out < 1 || (!transposed && w.in[d] + w.pb[d] + w.pe[d] < reach)) return false;
    x.push_back(w.in[d]);
    y.push_back(out);
    k.push_back(w.kernel[d]);
  }
  auto lx = layout(x, rng), ly = layout(y, rng);
  Layout lk{k, Dims(k.size(), 1), 0, total(k)};
  for (size_t d = k.size() - 1; d-- > 0;) lk.strides[d] = lk.strides[d + 1] * k[d + 1];
  Tensor tx = random_tensor({lx.elements}, seed), tk = random_tensor({lk.elements}, seed + 1);
  Builder b;
  auto ix = b.input("x", {SymExpr(lx.elements)});
  DType weight = constant ? std::array{DType::F32, DType::F32, DType::F16, DType::BF16}[seed / 31 % 4] : DType::F32;
  auto ik = !constant              ? b.input("w", {SymExpr(lk.elements)})
            : weight == DType::F32 ? b.constant("w", tk)
                                   : b.constant("w", narrowed(tk, weight));
  auto iy = b.output("y", {SymExpr(ly.elements)});
  SymExpr nothing = 0;
  if (varies) {
    nothing = b.symbol("nothing");
    b.input("sizes", {nothing});
  }
  ConvCall call{operand(ix, lx, nothing),
                operand(ik, lk),
                operand(iy, ly, nothing),
                w.strides,
                w.pb,
                w.pe,
                w.dilations,
                groups,
                transposed,
                {},
                std::nullopt};
  if (epilogue) call.epilogue = doubling(b, iy, ly);
  b.exe->steps.emplace_back(LibraryStep{"conv", call});
  ExecutorOptions options;
  options.pool = ThreadPool::create(threads);
  options.poison = true;
  auto executor = Executor::create({b.done()}, options);
  EXPECT_TRUE(executor.ok());
  std::map<std::string, Tensor> inputs{{"x", tx}};
  if (!constant) inputs.emplace("w", tk);
  if (varies) inputs.emplace("sizes", random_tensor({0}, 0));
  std::vector<double> want(static_cast<size_t>(ly.elements), 0);
  Dims taps(k.begin() + 2, k.end());
  each(y, [&](const Dims& o) {
    double sum = 0;
    int64_t g = o[1] / og;
    each(taps, [&](const Dims& t) {
      Dims ixs(x.size()), iks(k.size());
      ixs[0] = o[0];
      for (size_t d = 0; d < w.spatial; ++d) {
        int64_t p = o[d + 2] + w.pb[d] - t[d] * w.dilations[d];
        int64_t i = transposed ? p / w.strides[d] : o[d + 2] * w.strides[d] - w.pb[d] + t[d] * w.dilations[d];
        if (i < 0 || i >= w.in[d] || (transposed && (p < 0 || p % w.strides[d] != 0))) return;
        ixs[d + 2] = i;
        iks[d + 2] = t[d];
      }
      ixs[1] = g * cg; // and the channels behind it
      iks[0] = transposed ? g * cg : o[1];
      iks[1] = transposed ? o[1] % og : 0;
      const float *px = tx.as<float>().data() + at(lx, ixs), *pk = tk.as<float>().data() + at(lk, iks);
      for (int64_t c = 0; c < cg; ++c)
        sum += static_cast<double>(px[c * lx.strides[1]]) * pk[c * lk.strides[transposed ? 0 : 1]];
    });
    want[static_cast<size_t>(at(ly, o))] = epilogue ? 2 * sum : sum;
  });
  for (int round = 0; round < 2; ++round) {
    auto result = (*executor)->run(inputs);
    EXPECT_TRUE(result.ok()) << text(w, x, y, groups, seed) << (transposed ? " transposed " : "")
                             << (result.ok() ? "" : result.error().str());
    if (!result.ok()) return true;
    double worst = 0;
    each(y, [&](const Dims& o) {
      auto p = static_cast<size_t>(at(ly, o));
      double d = std::fabs((*result)[0].as<float>()[p] - want[p]);
      worst = std::max(worst, d == d ? d : 1e9);
    });
    EXPECT_LT(worst, 2e-4) << text(w, x, y, groups, seed) << (transposed ? " transposed" : "") << " threads " << threads
                           << " epilogue " << epilogue << " varies " << varies;
  }
  return true;
}

TEST(Conv, AgreesWithLoops) {
  int checked = 0;
  for (uint32_t seed = 0; seed < 420 && !HasFailure(); ++seed)
    checked += check_conv(seed * 31 + 5, 1 + static_cast<int>(seed % 3));
  EXPECT_GT(checked, 250);
}

TEST(Conv, ChannelsAreCutForSmallImages) {
  // 7 rows do not divide between 2 threads: cut by output channels, with an epilogue over a box of channels.
  Builder b;
  Layout lx{{1, 64, 7, 7}, {64 * 49, 1, 7 * 64, 64}, 0, 64 * 49},
      ly{{1, 128, 7, 7}, {128 * 49, 1, 7 * 128, 128}, 0, 128 * 49}, lk{{128, 64, 3, 3}, {576, 9, 3, 1}, 0, 128 * 576};
  auto x = random_tensor({lx.elements}, 1), k = random_tensor({lk.elements}, 2);
  auto ix = b.input("x", {SymExpr(lx.elements)}), ik = b.constant("w", k), iy = b.output("y", {SymExpr(ly.elements)});
  ConvCall call{operand(ix, lx), operand(ik, lk), operand(iy, ly), {1, 1}, {1, 1}, {1, 1}, {1, 1}, 1, false, {},
                std::nullopt};
  call.epilogue = doubling(b, iy, ly);
  b.exe->steps.emplace_back(LibraryStep{"conv", call});
  std::vector<Tensor> results;
  for (int threads : {1, 2}) {
    ExecutorOptions options;
    options.pool = ThreadPool::create(threads);
    auto executor = Executor::create({b.done()}, options).value()->run({{"x", x}});
    ASSERT_TRUE(executor.ok());
    results.push_back((*executor)[0]);
  }
  auto c = compare(results[1], results[0], 1e-5, 1e-5);
  EXPECT_TRUE(c.same) << c.message;
}

TEST(Pool, AgreesWithLoops) {
  int checked = 0;
  for (uint32_t seed = 0; seed < 300 && !HasFailure(); ++seed) {
    std::mt19937 rng(seed * 13 + 7);
    auto w = random_window(rng);
    auto kind = static_cast<PoolCall::Kind>(rng() % 3);
    int64_t n = 1 + static_cast<int64_t>(rng() % 2),
            c = static_cast<int64_t>(std::vector<int>{1, 3, 16, 70, 130}[rng() % 5]);
    bool ceil_mode = rng() % 3 == 0, epilogue = rng() % 2, fits = true;
    Dims x{n, c}, y{n, c};
    for (size_t d = 0; d < w.spatial; ++d) {
      int64_t reach = (w.kernel[d] - 1) * w.dilations[d] + 1, room = w.in[d] + w.pb[d] + w.pe[d] - reach;
      w.pb[d] = std::min(w.pb[d], w.kernel[d] - 1);
      room = w.in[d] + w.pb[d] + w.pe[d] - reach;
      int64_t out = room < 0 ? 0 : (ceil_mode ? (room + w.strides[d] - 1) / w.strides[d] : room / w.strides[d]) + 1;
      // A window must begin inside of x or its first pad.
      while (out > 0 && (out - 1) * w.strides[d] >= w.in[d] + w.pb[d]) --out;
      fits = fits && out > 0;
      x.push_back(w.in[d]);
      y.push_back(out);
    }
    if (!fits) continue;
    ++checked;
    auto lx = layout(x, rng), ly = layout(y, rng);
    auto tx = random_tensor({lx.elements}, seed);
    Builder b;
    auto ix = b.input("x", {SymExpr(lx.elements)}), iy = b.output("y", {SymExpr(ly.elements)});
    PoolCall call{kind, operand(ix, lx), operand(iy, ly), w.kernel, w.strides, w.pb, w.pe, w.dilations, std::nullopt};
    if (epilogue) call.epilogue = doubling(b, iy, ly);
    b.exe->steps.emplace_back(LibraryStep{"pool", call});
    ExecutorOptions options;
    options.pool = ThreadPool::create(1 + static_cast<int>(seed % 3));
    options.poison = true;
    auto result = Executor::create({b.done()}, options).value()->run({{"x", tx}});
    ASSERT_TRUE(result.ok()) << result.error().str();
    each(y, [&](const Dims& o) {
      double best = -INFINITY, sum = 0;
      int64_t inside = 0, padded = 0;
      each(w.kernel, [&](const Dims& t) {
        Dims i{o[0], o[1]};
        bool in = true, in_pads = true;
        for (size_t d = 0; d < w.spatial; ++d) {
          i.push_back(o[d + 2] * w.strides[d] - w.pb[d] + t[d] * w.dilations[d]);
          in = in && i.back() >= 0 && i.back() < w.in[d];
          in_pads = in_pads && i.back() < w.in[d] + w.pe[d];
        }
        padded += in_pads;
        if (!in) return;
        ++inside;
        double v = tx.as<float>()[static_cast<size_t>(at(lx, i))];
        best = std::max(best, v);
        sum += v;
      });
      if (inside == 0) return; // no element: nothing is promised
      double want = kind == PoolCall::Kind::Max
                        ? best
                        : sum / static_cast<double>(kind == PoolCall::Kind::Average ? inside : padded);
      double got = (*result)[0].as<float>()[static_cast<size_t>(at(ly, o))];
      if (std::fabs(got - (epilogue ? 2 * want : want)) > 1e-4 || got != got)
        ADD_FAILURE() << text(w, x, y, 1, seed) << " kind " << static_cast<int>(kind) << ": " << got << " for " << want;
    });
  }
  EXPECT_GT(checked, 200);
}

} // namespace
} // namespace tessera
