// A transform of length n is a product with the matrix of the powers of the n-th root of unity. A length that is known
// and has factors is split, n = p q (Cooley and Tukey, 1965): p transforms of length q, a factor for each element, and q
// transforms of length p, so that it costs n (p + q) multiplications, not n^2. A large prime is a convolution, which
// transforms of a power of two compute (Bluestein, 1970).
#include "graph/ops/fourier.h"
#include "graph/ops/samples.h"
#include "graph/ops/sampling.h"
#include <cmath>
#include <numbers>

namespace tessera::ops {

namespace {

constexpr int64_t kMatrix = 64; // longest transform that is a product with one matrix of its own size

struct Pair { // real and imaginary part, each [..., n]
  ValueId re, im;
};

class Transform {
public:
  Transform(B& b, DType type) : b_(b), type_(type) {}

  // Along the last dimension, of length n. `sign` is that of the exponent.
  Pair known(Pair x, int64_t n, int sign) {
    if (n == 1 || !b_.ok()) return x;
    const int64_t p = factor(n);
    if (n <= kMatrix || (p == n && n <= 2 * kMatrix)) return product(x, n, sign);
    return p <= 2 * kMatrix && p != n ? split(x, p, n / p, sign) : convolved(x, n, sign);
  }

  [[nodiscard]] ValueId constant(Dims dims, const std::vector<double>& values) {
    return b_.constant(Tensor::of<double>(type_, std::move(dims), values));
  }

private:
  // The factor at most kMatrix that is largest; where there is none, the smallest one.
  static int64_t factor(int64_t n) {
    for (int64_t f = std::min(kMatrix, n); f > 1; --f)
      if (n % f == 0) return f;
    for (int64_t f = kMatrix + 1; f * f <= n; ++f)
      if (n % f == 0) return f;
    return n;
  }
  // e^(sign 2 pi i k / n), its angle reduced in integers.
  static double angle(int64_t k, int64_t n, int sign) {
    return sign * 2 * std::numbers::pi * static_cast<double>(k % n) / static_cast<double>(n);
  }
  Pair roots(int64_t rows, int64_t columns, int64_t n, int sign) { // of row times column
    std::vector<double> re, im;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t k = 0; k < columns; ++k) {
        re.push_back(std::cos(angle(i * k, n, sign)));
        im.push_back(std::sin(angle(i * k, n, sign)));
      }
    return {constant({rows, columns}, re), constant({rows, columns}, im)};
  }
  Pair times(Pair x, Pair y) {
    return {sub(b_, mul(b_, x.re, y.re), mul(b_, x.im, y.im)), add(b_, mul(b_, x.re, y.im), mul(b_, x.im, y.re))};
  }
  Pair each(Pair x, const std::function<ValueId(ValueId)>& f) { return {f(x.re), x.im.valid() ? f(x.im) : ValueId{}}; }
  // The part that a real signal lacks.
  Pair whole(Pair x) {
    if (!x.im.valid()) x.im = expand(b_, b_.like(x.re, 0), b_.shape(x.re));
    return x;
  }

  Pair product(Pair x, int64_t n, int sign) {
    Pair w = roots(n, n, n, sign);
    if (!x.im.valid()) return {matmul(b_, x.re, w.re), matmul(b_, x.re, w.im)};
    // One product: [re im] [[cos sin] [-sin cos]].
    const int64_t last = b_.rank(x.re) - 1;
    ValueId matrix = concat(b_, {concat(b_, {w.re, w.im}, 1), concat(b_, {neg(b_, w.im), w.re}, 1)}, 0);
    ValueId y = matmul(b_, concat(b_, {x.re, x.im}, last), matrix);
    return {slice(b_, y, last, 0, n), slice(b_, y, last, n, n)};
  }

  // Element q i + j of the signal, i < p, j < q; bin k + p l of the result, k < p, l < q.
  Pair split(Pair x, int64_t p, int64_t q, int sign) {
    SymShape outer = b_.shape(x.re);
    outer.pop_back();
    auto shaped = [&](std::initializer_list<int64_t> last) {
      SymShape s = outer;
      for (int64_t e : last) s.emplace_back(e);
      return s;
    };
    Ints swap;
    for (size_t i = 0; i < outer.size() + 2; ++i) swap.push_back(static_cast<int64_t>(i));
    std::swap(swap[outer.size()], swap[outer.size() + 1]);
    auto swapped = [&](ValueId v) { return transpose(b_, v, swap); };
    x = each(x, [&](ValueId v) { return swapped(reshape(b_, v, shaped({p, q}))); }); // [..., j, i]
    x = product_or_known(x, p, sign);                                                // [..., j, k]
    x = times(x, roots(q, p, p * q, sign));
    x = each(x, swapped);  // [..., k, j]
    x = known(x, q, sign); // [..., k, l]
    return each(x, [&](ValueId v) { return reshape(b_, swapped(v), shaped({p * q})); });
  }
  Pair product_or_known(Pair x, int64_t n, int sign) {
    return n <= 2 * kMatrix ? product(x, n, sign) : known(x, n, sign);
  }

  // jk = (j^2 + k^2 - (j - k)^2) / 2: the signal times roots, convolved with their conjugates, times roots.
  Pair convolved(Pair x, int64_t n, int sign) {
    int64_t m = 1;
    while (m < 2 * n - 1) m *= 2;
    std::vector<double> re(static_cast<size_t>(n)), im = re, cre(static_cast<size_t>(m)), cim = cre;
    for (int64_t k = 0; k < n; ++k) {
      const double a = angle(static_cast<int64_t>(static_cast<__int128>(k) * k % (2 * n)), 2 * n, sign);
      const auto at = static_cast<size_t>(k), mirrored = static_cast<size_t>(k == 0 ? 0 : m - k);
      re[at] = std::cos(a);
      im[at] = std::sin(a);
      cre[at] = cre[mirrored] = re[at];
      cim[at] = cim[mirrored] = -im[at];
    }
    Pair chirp{constant({n}, re), constant({n}, im)}, filter{constant({m}, cre), constant({m}, cim)};
    x = times(whole(x), chirp);
    SymShape none(b_.shape(x.re).size(), SymExpr(0)), end = none;
    end.back() = m - n;
    x = each(x, [&](ValueId v) { return pad(b_, v, none, end); });
    x = times(known(x, m, -1), known(filter, m, -1));
    x = known(x, m, 1);
    const int64_t last = b_.rank(x.re) - 1;
    x = each(x, [&](ValueId v) { return mul(b_, slice(b_, v, last, 0, n), 1 / static_cast<double>(m)); });
    return times(x, chirp);
  }

  B& b_;
  DType type_;
};

// Roots of unity for a length that only a call knows: cosines and sines of 2 pi (i k mod n) / n.
Pair computed_roots(B& b, const SymExpr& rows, const SymExpr& columns, const SymExpr& n, int sign, DType type) {
  ValueId turns = b.op2("mod", mul(b, ramp(b, rows, 2, 0), ramp(b, columns, 2, 1)), b.size(n, DType::I64));
  ValueId a = mul(b, div(b, cast(b, turns, DType::F64), b.size(n, DType::F64)), sign * 2 * std::numbers::pi);
  return {cast(b, b.op1("cos", a), type), cast(b, b.op1("sin", a), type)};
}

// The first `size` elements along the last dimension, zeros behind them where there are fewer.
ValueId resized(B& b, ValueId x, const SymExpr& size) {
  const int64_t last = b.rank(x) - 1;
  const SymExpr have = b.dim(x, last);
  if (b.env().known_equal(have, size)) return x;
  SymShape none(b.shape(x).size(), SymExpr(0)), end = none;
  end.back() = sym_max(size - have, 0);
  return slice(b, pad(b, x, none, end), last, 0, size);
}

} // namespace

ValueId fourier(B& b, ValueId x, const Fourier& t) {
  if (!b.ok()) return {};
  const DType type = b.dtype(x);
  const int last = b.rank(x) - 1;
  const SymExpr parts = b.dim(x, last);
  if (last < 1 || (!parts.is_const(1) && !parts.is_const(2)))
    return b.fail(ErrorCode::ShapeMismatch, "DFT takes [..., 1] (real) or [..., 2] (complex), not " + str(b.shape(x))),
           ValueId{};
  const SymExpr length = b.env().simplify(t.length), half = floordiv(length, 2) + 1;
  const bool real_result = t.inverse && t.onesided;
  const int sign = t.inverse ? 1 : -1;
  auto part = [&](int64_t k) { return squeeze(b, slice(b, x, last, k, 1), {last}); };
  const SymExpr taken = real_result ? half : length;
  Pair v{resized(b, part(0), taken), parts.is_const(2) ? resized(b, part(1), taken) : ValueId{}};
  if (real_result) { // the other half of the spectrum mirrors this one
    ValueId i = ramp(b, length, 1, 0), n = b.size(length, DType::I64), mirror = sub(b, n, i);
    ValueId direct = lt(b, i, b.size(half, DType::I64)), from = select(b, direct, i, mirror);
    v.re = gather(b, v.re, from, last - 1);
    if (v.im.valid()) {
      ValueId lone = logical_or(b, eq(b, i, b.scalar_i(DType::I64, 0)), eq(b, add(b, i, i), n));
      ValueId factor = select(b, lone, b.scalar(type, 0), select(b, direct, b.scalar(type, 1), b.scalar(type, -1)));
      v.im = mul(b, gather(b, v.im, from, last - 1), factor);
    }
  }
  const SymExpr bins = t.onesided && !t.inverse ? half : length;
  if (auto n = length.as_const(); n && *n > 0) {
    v = Transform(b, type).known(v, *n, sign);
    if (!v.im.valid() && b.ok()) v.im = expand(b, b.like(v.re, 0), b.shape(v.re));
    v = {slice(b, v.re, last - 1, 0, bins), slice(b, v.im, last - 1, 0, bins)};
  } else {
    Pair w = computed_roots(b, length, bins, length, sign, type);
    Pair y{matmul(b, v.re, w.re), matmul(b, v.re, w.im)};
    if (v.im.valid()) y = {sub(b, y.re, matmul(b, v.im, w.im)), add(b, y.im, matmul(b, v.im, w.re))};
    v = y;
  }
  if (!b.ok()) return {};
  ValueId y = unsqueeze(b, v.re, {last});
  if (!real_result) y = concat(b, {y, unsqueeze(b, v.im, {last})}, last);
  return t.inverse ? div(b, y, b.size(length, type)) : y;
}

} // namespace tessera::ops
