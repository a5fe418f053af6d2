// Pooling. Loops of our own, vectorized over channels: they take any strides, dilation and ceil-mode sizes (for which
// oneDNN's average that counts pads has no notion), start without creating a primitive, and move memory as fast
// (docs/runtime.md).
#include "runtime/library/blocks.h"
#include "runtime/library/call.h"
#include <algorithm>
#include <array>
#include <limits>

namespace tessera {
namespace {

constexpr int64_t kEpilogueBlock = 64 << 10; // elements: 256 KB

// One spatial dimension; missing ones have size 1.
struct Axis {
  int64_t in = 1, out = 1, kernel = 1, stride = 1, dilation = 1, pad = 0, pad_end = 0, xs = 0, ys = 0;
};

struct Window {
  int64_t begin, end, counted;
}; // taps inside of x; taps inside of x and its declared pads
Window window(const Axis& a, int64_t o) {
  int64_t at = o * a.stride - a.pad;
  auto taps_from = [&](int64_t limit) {
    return at >= limit ? int64_t{0} : std::min(a.kernel, (limit - at + a.dilation - 1) / a.dilation);
  };
  int64_t begin = taps_from(0), end = std::max(begin, taps_from(a.in));
  return {begin, end, std::max<int64_t>(0, taps_from(a.in + a.pad_end))};
}

struct Shape {
  PoolCall::Kind kind = PoolCall::Kind::Max;
  int64_t channels = 0, xn = 0, yn = 0, xc = 0, yc = 0;
  std::array<Axis, 3> axis;
};

// One pixel of the result, all channels. kUnit: channels lie next to each other in both.
template <bool kUnit, bool kMax>
[[gnu::always_inline]] inline void pixel(const Shape& s, const float* x, float* y, const Window (&w)[3], float factor) {
  constexpr int64_t kLanes = 64;
  int64_t xc = kUnit ? 1 : s.xc, yc = kUnit ? 1 : s.yc;
  for (int64_t c0 = 0; c0 < s.channels; c0 += kLanes) {
    int64_t lanes = std::min(kLanes, s.channels - c0);
    float acc[kLanes];
    for (auto& a : acc) a = kMax ? -std::numeric_limits<float>::infinity() : 0.0f;
    for (int64_t i = w[0].begin; i < w[0].end; ++i)
      for (int64_t j = w[1].begin; j < w[1].end; ++j)
        for (int64_t k = w[2].begin; k < w[2].end; ++k) {
          const float* p = x + i * s.axis[0].dilation * s.axis[0].xs + j * s.axis[1].dilation * s.axis[1].xs +
                           k * s.axis[2].dilation * s.axis[2].xs + c0 * xc;
          auto take = [&](int64_t c) {
            acc[c] = kMax ? (p[c * xc] > acc[c] || p[c * xc] != p[c * xc] ? p[c * xc] : acc[c]) : acc[c] + p[c * xc];
          };
          if (kUnit && lanes == kLanes) {
            for (int64_t c = 0; c < kLanes; ++c) take(c);
          } else {
            for (int64_t c = 0; c < lanes; ++c) take(c);
          }
        }
    for (int64_t c = 0; c < lanes; ++c) y[(c0 + c) * yc] = kMax ? acc[c] : acc[c] * factor;
  }
}

// Images [n0, n1), first result rows [r0, r1) of axis `row`.
template <bool kUnit, bool kMax>
[[gnu::always_inline]] inline void rows(const Shape& s, const float* x, float* y, int64_t n0, int64_t n1, int row,
                                        int64_t r0, int64_t r1) {
  int64_t from[3] = {0, 0, 0}, to[3] = {s.axis[0].out, s.axis[1].out, s.axis[2].out};
  from[row] = r0;
  to[row] = r1;
  for (int64_t n = n0; n < n1; ++n)
    for (int64_t i = from[0]; i < to[0]; ++i)
      for (int64_t j = from[1]; j < to[1]; ++j)
        for (int64_t k = from[2]; k < to[2]; ++k) {
          const int64_t o[3] = {i, j, k};
          Window w[3];
          const float* px = x + n * s.xn;
          float* py = y + n * s.yn;
          int64_t counted = 1;
          for (int d = 0; d < 3; ++d) {
            const auto& a = s.axis[static_cast<size_t>(d)];
            w[d] = window(a, o[d]);
            px += (o[d] * a.stride - a.pad) * a.xs;
            py += o[d] * a.ys;
            counted *= s.kind == PoolCall::Kind::AverageIncludePad ? w[d].counted : w[d].end - w[d].begin;
          }
          pixel<kUnit, kMax>(s, px, py, w, 1.0f / static_cast<float>(counted));
        }
}

using RowsFn = void (*)(const Shape&, const float*, float*, int64_t, int64_t, int, int64_t, int64_t);
[[gnu::always_inline]] inline void any_rows(const Shape& s, const float* x, float* y, int64_t n0, int64_t n1, int row,
                                            int64_t r0, int64_t r1) {
  bool unit = (s.xc == 1 && s.yc == 1) || s.channels == 1, max = s.kind == PoolCall::Kind::Max;
  if (unit)
    max ? rows<true, true>(s, x, y, n0, n1, row, r0, r1) : rows<true, false>(s, x, y, n0, n1, row, r0, r1);
  else
    max ? rows<false, true>(s, x, y, n0, n1, row, r0, r1) : rows<false, false>(s, x, y, n0, n1, row, r0, r1);
}
void rows_plain(const Shape& s, const float* x, float* y, int64_t n0, int64_t n1, int row, int64_t r0, int64_t r1) {
  any_rows(s, x, y, n0, n1, row, r0, r1);
}
#if defined(__x86_64__)
[[gnu::target("avx2"), gnu::optimize("O3")]] void rows_avx2(const Shape& s, const float* x, float* y, int64_t n0,
                                                            int64_t n1, int row, int64_t r0, int64_t r1) {
  any_rows(s, x, y, n0, n1, row, r0, r1);
}
[[gnu::target("avx512f,prefer-vector-width=512"), gnu::optimize("O3")]] void
rows_avx512(const Shape& s, const float* x, float* y, int64_t n0, int64_t n1, int row, int64_t r0, int64_t r1) {
  any_rows(s, x, y, n0, n1, row, r0, r1);
}
#endif
RowsFn best_rows() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return rows_avx512;
  if (__builtin_cpu_supports("avx2")) return rows_avx2;
#endif
  return rows_plain;
}

class PoolPlan final : public LibraryPlan {
public:
  struct Part {
    int64_t n0, n1, r0, r1;
  };
  void run(const LibraryRun& r) const override {
    struct Frame {
      const PoolPlan* plan;
      const LibraryRun* run;
      const float* x;
      float* y;
    } frame{this, &r, nullptr, nullptr};
    frame.x = static_cast<const float*>(r.pointers[x_buffer]) + x_offset;
    frame.y = static_cast<float*>(r.pointers[y_buffer]) + y_offset;
    r.pool->parallel_for(static_cast<int64_t>(parts.size()), 1, [&frame](int64_t begin, int64_t end, int worker) {
      const auto& p = *frame.plan;
      for (int64_t b = begin; b < end; ++b) {
        const auto& part = p.parts[static_cast<size_t>(b)];
        p.rows_fn(p.shape, frame.x, frame.y, part.n0, part.n1, p.row, part.r0, part.r1);
        p.finish(*frame.run, b, worker);
      }
    });
  }
  Shape shape;
  RowsFn rows_fn = nullptr;
  int row = 0; // axis that is cut
  BufferId x_buffer = -1, y_buffer = -1;
  int64_t x_offset = 0, y_offset = 0;
  std::vector<Part> parts;
};

} // namespace

Result<std::unique_ptr<LibraryPlan>> plan_pool(const PlanContext& context, const PoolCall& call, const Operand& x,
                                               const Operand& y) {
  auto contradiction = [&](const char* what) {
    return Diagnostic(ErrorCode::Internal, "pooling '" + context.name + "': " + what);
  };
  size_t rank = x.shape.size(), spatial = rank - 2;
  if (rank < 3 || rank > 5 || y.shape.size() != rank) return contradiction("ranks of operand and result");
  if (x.shape[0] != y.shape[0] || x.shape[1] != y.shape[1]) return contradiction("images and channels differ");
  for (const auto* v : {&call.kernel, &call.strides, &call.pads_begin, &call.pads_end, &call.dilations})
    if (v->size() != spatial) return contradiction("one entry per spatial dimension is needed");
  auto plan = std::make_unique<PoolPlan>();
  plan->rank = static_cast<int>(rank);
  plan->x_buffer = x.buffer;
  plan->y_buffer = y.buffer;
  plan->x_offset = x.offset;
  plan->y_offset = y.offset;
  plan->rows_fn = best_rows();
  auto& s = plan->shape;
  s.kind = call.kind;
  s.channels = x.shape[1];
  s.xn = x.strides[0];
  s.yn = y.strides[0];
  s.xc = x.strides[1];
  s.yc = y.strides[1];
  double taps = 1;
  for (size_t d = 0; d < spatial; ++d) {
    constexpr int64_t kMax = int64_t{1} << 30;
    int64_t k = call.kernel[d], st = call.strides[d], l = call.dilations[d], p = call.pads_begin[d],
            q = call.pads_end[d];
    if (std::min({k, st, l}) < 1 || std::min(p, q) < 0 || std::max({k, st, l, p, q}) > kMax ||
        std::max(x.shape[d + 2], y.shape[d + 2]) > kMax)
      return contradiction("window, stride, pad or dilation out of range");
    if ((y.shape[d + 2] - 1) * st > x.shape[d + 2] + p + q + st) // a last window may begin behind the pads
      return contradiction("spatial size of the result");
    s.axis[3 - spatial + d] = {x.shape[d + 2], y.shape[d + 2], k, st, l, p, q, x.strides[d + 2], y.strides[d + 2]};
    taps *= static_cast<double>(k);
  }
  // Cut by images and rows of the first spatial dimension that has several.
  size_t row = 0;
  while (row + 1 < spatial && y.shape[row + 2] == 1) ++row;
  plan->row = static_cast<int>(3 - spatial + row);
  int64_t elements = 1;
  for (int64_t d : y.shape) elements *= d;
  if (elements == 0) return std::unique_ptr<LibraryPlan>(std::move(plan));
  int64_t dims[] = {y.shape[0], y.shape[row + 2]}, total = dims[0] * dims[1], row_elements = elements / total;
  double us_per_row = static_cast<double>(row_elements) * taps * 1e-4;
  int64_t least = static_cast<int64_t>(4.0 / std::max(us_per_row, 1e-9)) + 1;
  int64_t target = std::max((total + context.threads - 1) / context.threads, least);
  if (context.has_epilogue) target = std::min(target, std::max<int64_t>(kEpilogueBlock / row_elements, least));
  Dims begin(rank, 0), count = y.shape;
  for (const auto& b : cut_into_blocks(dims, target, context.threads)) {
    begin[0] = b.begin[0];
    count[0] = b.count[0];
    begin[row + 2] = b.begin[1];
    count[row + 2] = b.count[1];
    plan->parts.push_back({b.begin[0], b.begin[0] + b.count[0], b.begin[1], b.begin[1] + b.count[1]});
    plan->add_box(begin, count);
  }
  return std::unique_ptr<LibraryPlan>(std::move(plan));
}

} // namespace tessera
