// Pooling and its gradients, adaptive pooling, blocks of images.
//
// A gradient is gathered, not scattered: an element of the input adds up what the few windows that cover it hand back.
#include "frontend/fx/aten/parts.h"
#include <limits>

namespace tessera::fx {
namespace {

struct Pool {
  Ints kernel, strides, pads, dilations;
  bool ceil = false;
  [[nodiscard]] size_t spatial() const { return kernel.size(); }
  [[nodiscard]] Attributes attributes() const {
    Ints both = pads;
    both.insert(both.end(), pads.begin(), pads.end());
    return {{"kernel_shape", kernel},
            {"strides", strides},
            {"pads", both},
            {"dilations", dilations},
            {"ceil_mode", int64_t{ceil}}};
  }
};

// How many spatial dimensions the operator has: "max_pool2d_with_indices" has 2.
size_t dimensions_of(Call& c) {
  const std::string_view name = c.schema().name;
  const size_t d = name.find("d", name.find_first_of("123"));
  return d == std::string_view::npos ? 1 : static_cast<size_t>(name[d - 1] - '0');
}

Pool pool_of(Call& c) {
  const size_t n = dimensions_of(c);
  Pool p;
  p.kernel = spatial(c, "kernel_size", n, {1});
  p.strides = spatial(c, "stride", n, p.kernel);
  p.pads = spatial(c, "padding", n, {0});
  p.dilations = c.schema().argument("dilation") ? spatial(c, "dilation", n, {1}) : Ints(n, 1);
  p.ceil = c.in.flag("ceil_mode");
  // Translations write the elements of a window out.
  constexpr double kMaxElements = 1 << 16;
  double elements = 1;
  for (const int64_t k : p.kernel) elements *= static_cast<double>(k);
  if (c.b.ok() && elements > kMaxElements) c.unsupported("a window of more than 65536 elements");
  return p;
}

SymShape spatial_sizes(Call& c, ValueId x) {
  SymShape s = c.b.shape(x);
  return s.size() < 2 ? SymShape{} : SymShape(s.begin() + 2, s.end());
}
SymExpr windows(Call& c, const Pool& p, const SymExpr& size, size_t i) {
  SymExpr padded = size + 2 * p.pads[i], extent = p.dilations[i] * (p.kernel[i] - 1) + 1;
  if (!p.ceil) return c.b.env().simplify(floordiv(padded - extent, p.strides[i]) + 1);
  // A window must start inside of the input or of the padding before it.
  SymExpr count = ceildiv(padded - extent, p.strides[i]) + 1;
  return c.b.env().simplify(sym_select(sym_lt((count - 1) * p.strides[i], size + p.pads[i]), count, count - 1));
}

ValueId lowest(Call& c, DType d) {
  return is_float(d) ? c.b.scalar(d, -std::numeric_limits<double>::infinity())
                     : c.b.scalar_i(d, reduce_identity_i64(ReduceKind::Max, d));
}

// ---- maxima
// The greatest value so far and where it was: a later one counts if it is greater, or NaN.
struct Best {
  ValueId value, index;
  void meet(Call& c, ValueId v, ValueId at) {
    if (!value.valid()) {
      value = v;
      index = at;
      return;
    }
    ValueId better = gt(c.b, v, value);
    if (is_float(c.b.dtype(v))) better = logical_or(c.b, better, c.b.op1("isnan", v));
    value = select(c.b, better, v, value);
    index = select(c.b, better, at, index);
  }
};

int64_t product_of(const Ints& values) {
  int64_t n = 1;
  for (int64_t v : values) n *= v;
  return n;
}

constexpr int64_t kTaps = 128; // the most taps that are compared one after the other

// Maxima of windows and their positions in the spatial dimensions, row-major: each tap is a strided slice.
std::pair<ValueId, ValueId> max_with_positions(Call& c, ValueId x, const Pool& p) {
  const size_t n = p.spatial();
  const DType d = c.b.dtype(x);
  const SymShape sizes = spatial_sizes(c, x);
  SymShape out, begin(2, SymExpr(0)), end(2, SymExpr(0));
  for (size_t i = 0; i < n; ++i) {
    out.push_back(windows(c, p, sizes[i], i));
    begin.emplace_back(p.pads[i]);
    SymExpr more =
        c.b.env().simplify((out[i] - 1) * p.strides[i] + p.dilations[i] * (p.kernel[i] - 1) + 1 - sizes[i] - p.pads[i]);
    auto known = more.as_const();
    end.push_back(known ? SymExpr(std::max<int64_t>(*known, 0)) : sym_max(more, 0));
  }
  ValueId padded = pad(c.b, x, begin, end, lowest(c, d));
  Best best;
  Ints at(n, 0);
  for (int64_t t = 0; t < product_of(p.kernel) && c.b.ok(); ++t) {
    int64_t rest = t;
    for (size_t i = n; i-- > 0;) {
      at[i] = rest % p.kernel[i];
      rest /= p.kernel[i];
    }
    ValueId v = padded, position;
    for (size_t i = 0; i < n; ++i) {
      v = slice(c.b, v, static_cast<int64_t>(i) + 2, at[i] * p.dilations[i], out[i], p.strides[i]);
      SymShape ramp(n + 2, SymExpr(1));
      ramp[i + 2] = out[i];
      ValueId k = mul(c.b, iota(c.b, ramp, static_cast<int64_t>(i) + 2), c.b.scalar_i(DType::I64, p.strides[i]));
      k = add(c.b, k, c.b.scalar_i(DType::I64, at[i] * p.dilations[i] - p.pads[i]));
      position = position.valid() ? add(c.b, mul(c.b, position, c.b.size(sizes[i], DType::I64)), k) : k;
    }
    if (!c.b.ok()) return {};
    best.meet(c, v, expand(c.b, position, c.b.shape(v)));
  }
  return {best.value, best.index};
}

void translate_max_pool(Call& c) {
  ValueId x = c.in.tensor("self");
  const Pool p = pool_of(c);
  if (!c.b.ok()) return;
  const Batched in = with_batch(c, x, static_cast<int>(p.spatial()));
  if (c.schema().results.size() == 1 || !c.is_used(1)) {
    c.result(without_batch(c, c.b.op("MaxPool", {in.value}, p.attributes()), in));
    return c.unused_result();
  }
  if (product_of(p.kernel) > kTaps)
    return c.unsupported("positions of maxima of windows with " + std::to_string(product_of(p.kernel)) + " elements");
  auto [value, index] = max_with_positions(c, in.value, p);
  c.result(without_batch(c, value, in));
  c.result(without_batch(c, index, in));
}

// ---- what covers an element
// For each element of an input of `sizes`, along every spatial dimension: the windows that may cover it, newest first.
// f(windows, covered) gets index tensors, one for each dimension and broadcast along it, and whether each is a window
// that does cover the element.
using Covering =
    std::function<void(const std::vector<ValueId>& at, ValueId covered, const std::vector<ValueId>& offset)>;

void each_covering(Call& c, const Pool& p, const SymShape& sizes, const SymShape& out, const Covering& f) {
  const size_t n = p.spatial();
  const DType i64 = DType::I64;
  struct Choice {
    ValueId window, covered, offset; // [.., size, ..]
  };
  std::vector<std::vector<Choice>> choices(n);
  for (size_t i = 0; i < n && c.b.ok(); ++i) {
    SymShape ramp(n + 2, SymExpr(1));
    ramp[i + 2] = sizes[i];
    auto number = [&](int64_t v) { return c.b.scalar_i(i64, v); };
    ValueId place =
        ops::add(c.b, iota(c.b, ramp, static_cast<int64_t>(i) + 2), number(p.pads[i])); // in the padded input
    auto add = [&](ValueId window, ValueId offset, ValueId extra) {
      ValueId last = c.b.size(out[i] - 1, i64);
      ValueId inside = logical_and(c.b, ge(c.b, window, number(0)), le(c.b, window, last));
      if (extra.valid()) inside = logical_and(c.b, inside, extra);
      // Read somewhere where there is no such window.
      choices[i].push_back({max(c.b, min(c.b, window, last), number(0)), inside, offset});
    };
    if (p.dilations[i] == 1) { // windows start at each multiple of the stride: the last of them, and those before
      ValueId newest = div(c.b, place, number(p.strides[i]));
      for (int64_t k = 0; k * p.strides[i] < p.kernel[i]; ++k) {
        ValueId window = sub(c.b, newest, number(k));
        ValueId offset = sub(c.b, place, mul(c.b, window, number(p.strides[i])));
        ValueId extra;
        if ((k + 1) * p.strides[i] > p.kernel[i]) extra = lt(c.b, offset, number(p.kernel[i]));
        add(window, offset, extra);
      }
    } else { // one window at most for each tap
      for (int64_t k = 0; k < p.kernel[i]; ++k) {
        ValueId from = sub(c.b, place, number(k * p.dilations[i]));
        ValueId start = max(c.b, from, number(0)), window = div(c.b, start, number(p.strides[i]));
        ValueId hit = eq(c.b, mul(c.b, window, number(p.strides[i])), from);
        add(window, number(k), hit);
      }
    }
  }
  // Every combination of the dimensions' choices.
  std::vector<size_t> pick(n, 0);
  while (c.b.ok()) {
    std::vector<ValueId> at, offset;
    ValueId covered;
    for (size_t i = 0; i < n; ++i) {
      const Choice& choice = choices[i][pick[i]];
      at.push_back(choice.window);
      offset.push_back(choice.offset);
      covered = covered.valid() ? logical_and(c.b, covered, choice.covered) : choice.covered;
    }
    f(at, covered, offset);
    size_t i = n;
    while (i-- > 0) {
      if (++pick[i] < choices[i].size()) break;
      pick[i] = 0;
      if (i == 0) return;
    }
  }
}

// x read at one index for each spatial dimension, each broadcast along its own: a gather a dimension.
ValueId read_at(Call& c, ValueId x, const std::vector<ValueId>& at) {
  for (size_t i = 0; i < at.size() && c.b.ok(); ++i) {
    const auto axis = static_cast<int64_t>(i) + 2;
    x = gather(c.b, x, reshape(c.b, at[i], {c.b.dim(at[i], axis)}), axis);
  }
  return x;
}

// Row-major positions in the spatial dimensions: [1, 1, sizes...].
ValueId positions(Call& c, const SymShape& sizes) {
  ValueId out;
  for (size_t i = 0; i < sizes.size(); ++i) {
    SymShape ramp(sizes.size() + 2, SymExpr(1));
    ramp[i + 2] = sizes[i];
    ValueId k = iota(c.b, ramp, static_cast<int64_t>(i) + 2);
    out = out.valid() ? add(c.b, mul(c.b, out, c.b.size(sizes[i], DType::I64)), k) : k;
  }
  return out;
}

ValueId max_gradient(Call& c, ValueId grad, ValueId index, const SymShape& sizes, const Pool& p) {
  if (!c.b.ok()) return {};
  const DType d = c.b.dtype(grad);
  const SymShape out = spatial_sizes(c, grad);
  ValueId wide = widen(c.b, grad), sum, here = positions(c, sizes);
  each_covering(c, p, sizes, out, [&](const std::vector<ValueId>& at, ValueId covered, const std::vector<ValueId>&) {
    ValueId mine = logical_and(c.b, covered, eq(c.b, read_at(c, index, at), here));
    ValueId part = select(c.b, mine, read_at(c, wide, at), 0.0);
    sum = sum.valid() ? add(c.b, sum, part) : part;
  });
  return cast(c.b, sum, d);
}

void translate_max_pool_backward(Call& c) {
  ValueId grad = c.in.tensor("grad_output"), x = c.in.tensor("self"), index = c.in.tensor("indices");
  const Pool p = pool_of(c);
  if (!c.b.ok()) return;
  const int n = static_cast<int>(p.spatial());
  const Batched in = with_batch(c, x, n), g = with_batch(c, grad, n), at = with_batch(c, index, n);
  c.result(without_batch(c, max_gradient(c, g.value, at.value, spatial_sizes(c, in.value), p), in));
}

// ---- means
// Elements that PyTorch divides each window's sum by: [1, 1, windows...]; one number where it is the same for all.
ValueId window_sizes(Call& c, const Pool& p, const SymShape& sizes, const SymShape& out, bool include_pad,
                     std::optional<int64_t> divisor, DType d) {
  if (divisor) return c.b.scalar(d, static_cast<double>(*divisor));
  ValueId area;
  for (size_t i = 0; i < p.spatial(); ++i) {
    SymShape ramp(p.spatial() + 2, SymExpr(1));
    ramp[i + 2] = out[i];
    ValueId start = mul(c.b, iota(c.b, ramp, static_cast<int64_t>(i) + 2), c.b.scalar_i(DType::I64, p.strides[i]));
    start = sub(c.b, start, c.b.scalar_i(DType::I64, p.pads[i]));
    // Padding counts, what ceil_mode adds behind it does not.
    ValueId stop =
        min(c.b, add(c.b, start, c.b.scalar_i(DType::I64, p.kernel[i])), c.b.size(sizes[i] + p.pads[i], DType::I64));
    if (!include_pad) {
      start = max(c.b, start, c.b.scalar_i(DType::I64, 0));
      stop = min(c.b, stop, c.b.size(sizes[i], DType::I64));
    }
    ValueId length = sub(c.b, stop, start);
    area = area.valid() ? mul(c.b, area, length) : length;
  }
  return cast(c.b, area, d);
}

// Sums of the windows of x [N, C, padded size...], one dimension after the other.
ValueId window_sums(ops::B& b, ValueId x, const Pool& p, const SymShape& out) {
  for (size_t i = 0; i < p.spatial(); ++i) {
    ValueId sum;
    for (int64_t k = 0; k < p.kernel[i] && b.ok(); ++k) {
      ValueId tap = slice(b, x, static_cast<int64_t>(i) + 2, k, out[i], p.strides[i]);
      sum = sum.valid() ? add(b, sum, tap) : tap;
    }
    x = sum;
  }
  return x;
}

void translate_avg_pool(Call& c) {
  ValueId x = c.in.tensor("self");
  const Pool p = pool_of(c);
  const bool include_pad = c.in.flag("count_include_pad");
  const auto divisor = c.schema().argument("divisor_override") ? c.in.maybe_integer("divisor_override") : std::nullopt;
  if (!c.b.ok()) return;
  const Batched in = with_batch(c, x, static_cast<int>(p.spatial()));
  const DType d = c.b.dtype(x);
  if (!divisor && is_float(d)) {
    Attributes a = p.attributes();
    a.erase("dilations");
    a.set("count_include_pad", int64_t{include_pad});
    return c.result(without_batch(c, c.b.op("AveragePool", {in.value}, std::move(a)), in));
  }
  // Sums of windows: means of all the taps times their number.
  Attributes a = p.attributes();
  a.erase("dilations");
  const SymShape sizes = spatial_sizes(c, in.value);
  SymShape out, begin(2, SymExpr(0)), end(2, SymExpr(0));
  for (size_t i = 0; i < p.spatial(); ++i) {
    out.push_back(windows(c, p, sizes[i], i));
    begin.emplace_back(p.pads[i]);
    SymExpr more = c.b.env().simplify((out[i] - 1) * p.strides[i] + p.kernel[i] - sizes[i] - p.pads[i]);
    auto known = more.as_const();
    end.push_back(known ? SymExpr(std::max<int64_t>(*known, 0)) : sym_max(more, 0));
  }
  const DType wide = is_float(d) ? compute_dtype(d) : DType::I64;
  ValueId padded = pad(c.b, cast(c.b, in.value, wide), begin, end);
  if (!is_float(d)) { // sums wrap, and are divided towards zero
    ValueId y = div(c.b, window_sums(c.b, padded, p, out), window_sizes(c, p, sizes, out, include_pad, divisor, wide));
    return c.result(without_batch(c, cast(c.b, y, d), in));
  }
  ValueId mean = c.b.op("pool", {padded},
                        {{"mode", std::string("average")},
                         {"kernel", p.kernel},
                         {"strides", p.strides},
                         {"pads_begin", Ints(p.spatial(), 0)},
                         {"pads_end", Ints(p.spatial(), 0)},
                         {"dilations", Ints(p.spatial(), 1)}});
  ValueId sum = mul(c.b, mean, static_cast<double>(product_of(p.kernel)));
  ValueId y = div(c.b, sum, window_sizes(c, p, sizes, out, include_pad, divisor, wide));
  c.result(without_batch(c, cast(c.b, y, d), in));
}

void translate_avg_pool_backward(Call& c) {
  ValueId grad = c.in.tensor("grad_output"), x = c.in.tensor("self");
  const Pool p = pool_of(c);
  const bool include_pad = c.in.flag("count_include_pad");
  const auto divisor = c.in.maybe_integer("divisor_override");
  if (!c.b.ok()) return;
  const int n = static_cast<int>(p.spatial());
  const Batched in = with_batch(c, x, n), g = with_batch(c, grad, n);
  const DType d = c.b.dtype(grad);
  const SymShape sizes = spatial_sizes(c, in.value), out = spatial_sizes(c, g.value);
  ValueId wide = widen(c.b, g.value);
  wide = div(c.b, wide, window_sizes(c, p, sizes, out, include_pad, divisor, c.b.dtype(wide)));
  ValueId sum;
  each_covering(c, p, sizes, out, [&](const std::vector<ValueId>& at, ValueId covered, const std::vector<ValueId>&) {
    ValueId part = select(c.b, covered, read_at(c, wide, at), 0.0);
    sum = sum.valid() ? add(c.b, sum, part) : part;
  });
  c.result(without_batch(c, cast(c.b, sum, d), in));
}

// ---- adaptive pooling: window o of `out` covers [floor(o * in / out), ceil((o + 1) * in / out))
struct Adaptive {
  Ints in, out; // constant spatial sizes
  [[nodiscard]] bool divides() const {
    for (size_t i = 0; i < in.size(); ++i)
      if (out[i] == 0 || in[i] % out[i] != 0) return false;
    return true;
  }
  [[nodiscard]] int64_t start(size_t i, int64_t o) const { return o * in[i] / out[i]; }
  [[nodiscard]] int64_t stop(size_t i, int64_t o) const { return ((o + 1) * in[i] + out[i] - 1) / out[i]; }
  [[nodiscard]] int64_t longest(size_t i) const {
    int64_t most = 0;
    for (int64_t o = 0; o < out[i]; ++o) most = std::max(most, stop(i, o) - start(i, o));
    return most;
  }
  // Windows that are all alike.
  [[nodiscard]] Pool pool() const {
    Pool p;
    for (size_t i = 0; i < in.size(); ++i) p.kernel.push_back(in[i] / out[i]);
    p.strides = p.kernel;
    p.pads.assign(in.size(), 0);
    p.dilations.assign(in.size(), 1);
    return p;
  }
};

// Sizes wanted; None stands for the input's own.
SymShape wanted_sizes(Call& c, size_t n) {
  SymShape out = c.in.sizes("output_size");
  if (c.b.ok() && out.size() == 1) out.assign(n, out[0]);
  if (c.b.ok() && out.size() != n)
    c.b.fail(ErrorCode::BadAttribute,
             "argument 'output_size' has " + std::to_string(out.size()) + " elements, expected " + std::to_string(n));
  return out;
}

// Nothing where a size is a symbol.
std::optional<Adaptive> constant_sizes(Call& c, const SymShape& in, const SymShape& out) {
  Adaptive a;
  for (size_t i = 0; i < in.size(); ++i) {
    auto n = c.b.env().simplify(in[i]).as_const(), m = c.b.env().simplify(out[i]).as_const();
    if (!n || !m) return std::nullopt;
    constexpr int64_t kMax = int64_t{1} << 24; // elements of an axis: windows are written out
    if (*n < 0 || *m < 0 || *n > kMax || *m > kMax)
      c.unsupported("adaptive pooling from " + str(in) + " to " + str(out));
    a.in.push_back(*n);
    a.out.push_back(*m);
  }
  return a;
}

// Indices of tap k of each window along dimension i, kept inside, and, along dimension `axis` of `rank`, whether the
// window has that tap.
std::pair<ValueId, ValueId> adaptive_tap(Call& c, const Adaptive& a, size_t i, int64_t k, int64_t axis, int rank) {
  Ints index;
  std::vector<int64_t> has;
  for (int64_t o = 0; o < a.out[i]; ++o) {
    const int64_t at = a.start(i, o) + k;
    has.push_back(at < a.stop(i, o));
    index.push_back(std::min(at, a.in[i] - 1));
  }
  ValueId mask = c.b.constant(Tensor::of<int64_t>(DType::Bool, {a.out[i]}, has));
  return {c.b.ints(index), along(c, mask, axis, rank)};
}

// The windows along an axis of sizes that may be symbols. A window covers at most ceil(in / out) + 1 elements: `at` and
// `has`, [out, that many], are the positions in the input and whether the window has as many elements; a position
// beyond is kept inside. `start` and `length`: [out]. Element p of the input is covered by the windows whose numbers
// are the positions of window p of sizes exchanged.
struct Covers {
  ValueId at, has, start, length;
};
Covers covers(Call& c, const SymExpr& in, const SymExpr& out) {
  ops::B& b = c.b;
  const SymExpr most = b.env().simplify(ceildiv(in, sym_max(out, 1)) + 1);
  auto number = [&](const SymExpr& e) { return b.size(e, DType::I64); };
  ValueId o = iota(b, {out}, 0), zero_based = mul(b, o, number(in));
  Covers w;
  w.start = div(b, zero_based, number(out));
  ValueId stop = div(b, add(b, zero_based, number(in + out - 1)), number(out));
  w.length = sub(b, stop, w.start);
  w.at = add(b, unsqueeze(b, w.start, {1}), iota(b, {1, most}, 1));
  w.has = lt(b, w.at, unsqueeze(b, stop, {1}));
  w.at = min(b, w.at, number(in - 1));
  return w;
}

// [.., out, most, ..]: the elements of x that the windows along `axis` cover, and `otherwise` where one has fewer.
ValueId covered(Call& c, ValueId x, int64_t axis, const Covers& w, ValueId otherwise) {
  if (!c.b.ok()) return {};
  SymShape mask(static_cast<size_t>(c.b.rank(x)) + 1, SymExpr(1));
  mask[static_cast<size_t>(axis)] = c.b.dim(w.has, 0);
  mask[static_cast<size_t>(axis) + 1] = c.b.dim(w.has, 1);
  return select(c.b, reshape(c.b, w.has, mask), gather(c.b, x, w.at, axis), otherwise);
}

// y divided by the lengths of the windows along an axis.
ValueId divided(Call& c, ValueId y, int64_t axis, ValueId length) {
  return div(c.b, y, along(c, cast(c.b, length, c.b.dtype(y)), axis, c.b.rank(y)));
}

// The means of windows along one axis: those of a dimension do not depend on the others.
ValueId adaptive_mean(Call& c, ValueId x, int64_t axis, const SymExpr& in, const SymExpr& out) {
  if (!c.b.ok() || c.b.env().known_equal(in, out)) return x;
  if (out.is_const(1)) return mean(c.b, x, {axis}, true);
  const auto a = constant_sizes(c, {in}, {out});
  if (!a) {
    const Covers w = covers(c, in, out);
    ValueId total = sum(c.b, covered(c, x, axis, w, c.b.like(x, 0)), {axis + 1}, false);
    return divided(c, total, axis, w.length);
  }
  const int rank = c.b.rank(x);
  ValueId total;
  for (int64_t k = 0; c.b.ok() && k < a->longest(0); ++k) {
    auto [index, has] = adaptive_tap(c, *a, 0, k, axis, rank);
    ValueId part = select(c.b, has, gather(c.b, x, index, axis), 0.0);
    total = total.valid() ? add(c.b, total, part) : part;
  }
  std::vector<double> count;
  for (int64_t o = 0; o < a->out[0]; ++o) count.push_back(static_cast<double>(a->stop(0, o) - a->start(0, o)));
  return divided(c, total, axis, c.b.constant(Tensor::of<double>(c.b.dtype(x), {a->out[0]}, count)));
}

void translate_adaptive_avg_pool(Call& c) {
  ValueId x = c.in.tensor("self");
  const size_t n = dimensions_of(c);
  const SymShape out = wanted_sizes(c, n);
  if (!c.b.ok()) return;
  const Batched in = with_batch(c, x, static_cast<int>(n));
  const DType d = c.b.dtype(x);
  const SymShape sizes = spatial_sizes(c, in.value);
  if (std::all_of(out.begin(), out.end(), [](const SymExpr& e) { return e.is_const(1); }))
    return c.result(without_batch(c, c.b.op1("GlobalAveragePool", in.value), in));
  auto same = true;
  for (size_t i = 0; i < n; ++i) same = same && c.b.env().known_equal(sizes[i], out[i]);
  if (same) return c.result(x);
  const auto a = constant_sizes(c, sizes, out);
  if (!c.b.ok()) return;
  if (a && a->divides())
    return c.result(without_batch(c, c.b.op("AveragePool", {in.value}, a->pool().attributes()), in));
  if (std::any_of(out.begin(), out.end(), [](const SymExpr& e) { return e.is_const(0); })) {
    SymShape shape = c.b.shape(in.value);
    for (size_t i = 0; i < n; ++i) shape[i + 2] = out[i];
    return c.result(without_batch(c, zeros(c, d, shape), in));
  }
  ValueId y = widen(c.b, in.value);
  for (size_t i = 0; i < n && c.b.ok(); ++i) y = adaptive_mean(c, y, static_cast<int64_t>(i) + 2, sizes[i], out[i]);
  c.result(without_batch(c, cast(c.b, y, d), in));
}

// The gradient of the input for means along one axis.
ValueId adaptive_mean_gradient(Call& c, ValueId grad, int64_t axis, const SymExpr& in, const SymExpr& out) {
  if (!c.b.ok() || c.b.env().known_equal(in, out)) return grad;
  if (out.is_const(1)) { // all of the input is one window
    SymShape wide = c.b.shape(grad);
    wide[static_cast<size_t>(axis)] = in;
    return expand(c.b, div(c.b, grad, c.b.size(in, c.b.dtype(grad))), wide);
  }
  const auto a = constant_sizes(c, {in}, {out});
  if (!a) {
    ValueId y = divided(c, grad, axis, covers(c, in, out).length);
    return sum(c.b, covered(c, y, axis, covers(c, out, in), c.b.like(y, 0)), {axis + 1}, false);
  }
  if (!c.b.ok()) return {};
  const int rank = c.b.rank(grad);
  std::vector<double> count;
  for (int64_t o = 0; o < a->out[0]; ++o) count.push_back(static_cast<double>(a->stop(0, o) - a->start(0, o)));
  ValueId y = divided(c, grad, axis, c.b.constant(Tensor::of<double>(c.b.dtype(grad), {a->out[0]}, count)));
  // Windows that cover element p: consecutive ones.
  std::vector<std::vector<int64_t>> covering(static_cast<size_t>(a->in[0]));
  size_t most = 0;
  for (int64_t o = 0; o < a->out[0]; ++o)
    for (int64_t p = a->start(0, o); p < a->stop(0, o); ++p) {
      covering[static_cast<size_t>(p)].push_back(o);
      most = std::max(most, covering[static_cast<size_t>(p)].size());
    }
  ValueId total;
  for (size_t k = 0; k < most; ++k) {
    Ints index;
    std::vector<int64_t> has;
    for (const auto& windows : covering) {
      has.push_back(k < windows.size());
      index.push_back(k < windows.size() ? windows[k] : 0);
    }
    ValueId part = gather(c.b, y, c.b.ints(index), axis);
    if (std::find(has.begin(), has.end(), 0) != has.end())
      part =
          select(c.b, along(c, c.b.constant(Tensor::of<int64_t>(DType::Bool, {a->in[0]}, has)), axis, rank), part, 0.0);
    total = total.valid() ? add(c.b, total, part) : part;
  }
  return total;
}

void translate_adaptive_avg_pool_backward(Call& c) {
  ValueId grad = c.in.tensor("grad_output"), x = c.in.tensor("self");
  const size_t n = dimensions_of(c);
  if (!c.b.ok()) return;
  const Batched in = with_batch(c, x, static_cast<int>(n)), g = with_batch(c, grad, static_cast<int>(n));
  const DType d = c.b.dtype(grad);
  const SymShape sizes = spatial_sizes(c, in.value), out = spatial_sizes(c, g.value);
  ValueId y = widen(c.b, g.value);
  for (size_t i = 0; i < n; ++i) y = adaptive_mean_gradient(c, y, static_cast<int64_t>(i) + 2, sizes[i], out[i]);
  c.result(without_batch(c, cast(c.b, y, d), in));
}

// Maxima at sizes that may be symbols, and their positions: folds over all elements that a window covers.
std::pair<ValueId, ValueId> adaptive_maxima(Call& c, ValueId x, const SymShape& sizes, const SymShape& out) {
  ops::B& b = c.b;
  const size_t n = sizes.size();
  std::vector<Covers> windows;
  for (size_t i = 0; i < n; ++i) windows.push_back(covers(c, sizes[i], out[i]));
  ValueId all = x, low = lowest(c, b.dtype(x));
  for (size_t i = n; i-- > 0;) all = covered(c, all, static_cast<int64_t>(i) + 2, windows[i], low);
  if (!b.ok()) return {};
  Ints perm = {0, 1}, folded; // [N, C, out.., covered..]
  for (const int64_t of_window : {0, 1})
    for (size_t i = 0; i < n; ++i) perm.push_back(2 + 2 * static_cast<int64_t>(i) + of_window);
  for (size_t i = 0; i < n; ++i) folded.push_back(static_cast<int64_t>(2 + n + i));
  all = transpose(b, all, perm);
  ValueId value = reduce(b, "reduce_max", all, folded, false);
  if (!c.is_used(1)) return {value, {}};
  auto position = [&](ValueId of, int64_t last) {
    return b.op("argmax", {of}, {{"axes", folded}, {"keepdims", int64_t{0}}, {"select_last", last}});
  };
  ValueId tap = position(all, 0);
  if (is_float(b.dtype(x))) { // the last NaN
    ValueId nan = b.op1("isnan", all);
    tap = select(b, b.op1("isnan", value), position(cast(b, nan, DType::I32), 1), tap);
  }
  // Row-major in the window, and then in the input.
  std::vector<ValueId> at(n);
  for (size_t i = n; i-- > 0;) {
    ValueId most = b.size(b.dim(windows[i].at, 1), DType::I64);
    ValueId rest = div(b, tap, most), within = sub(b, tap, mul(b, rest, most));
    at[i] = add(b, within, along(c, windows[i].start, static_cast<int64_t>(i) + 2, static_cast<int>(n) + 2));
    tap = rest;
  }
  ValueId index = at[0];
  for (size_t i = 1; i < n; ++i) index = add(b, mul(b, index, b.size(sizes[i], DType::I64)), at[i]);
  return {value, index};
}

void translate_adaptive_max_pool(Call& c) {
  ValueId x = c.in.tensor("self");
  const size_t n = dimensions_of(c);
  const SymShape out = wanted_sizes(c, n);
  if (!c.b.ok()) return;
  const Batched in = with_batch(c, x, static_cast<int>(n));
  const SymShape sizes = spatial_sizes(c, in.value);
  const auto a = constant_sizes(c, sizes, out);
  if (!c.b.ok()) return;
  if (a && a->divides() && !c.is_used(1)) {
    c.result(without_batch(c, c.b.op("MaxPool", {in.value}, a->pool().attributes()), in));
    return c.unused_result();
  }
  // Few taps of all dimensions together are written out, in row-major order.
  Ints longest;
  for (size_t i = 0; a && i < n; ++i) longest.push_back(a->longest(i));
  if (!a || product_of(longest) > kTaps) {
    auto [value, index] = adaptive_maxima(c, in.value, sizes, out);
    c.result(without_batch(c, value, in));
    return index.valid() ? c.result(without_batch(c, index, in)) : c.unused_result();
  }
  Best best;
  ValueId low = lowest(c, c.b.dtype(x));
  for (int64_t t = 0; t < product_of(longest) && c.b.ok(); ++t) {
    int64_t rest = t;
    Ints at(n, 0);
    for (size_t i = n; i-- > 0;) {
      at[i] = rest % longest[i];
      rest /= longest[i];
    }
    ValueId v = in.value, has, position;
    for (size_t i = 0; i < n; ++i) {
      const int64_t axis = static_cast<int64_t>(i) + 2;
      const int rank = static_cast<int>(n) + 2;
      auto [index, inside] = adaptive_tap(c, *a, i, at[i], axis, rank);
      v = gather(c.b, v, index, axis);
      has = has.valid() ? logical_and(c.b, has, inside) : inside;
      ValueId k = along(c, index, axis, rank);
      position = position.valid() ? add(c.b, mul(c.b, position, c.b.size(sizes[i], DType::I64)), k) : k;
    }
    if (!c.b.ok()) return;
    best.meet(c, select(c.b, has, v, low), expand(c.b, position, c.b.shape(v)));
  }
  c.result(without_batch(c, best.value, in));
  c.result(without_batch(c, best.index, in));
}

// An element of the input adds up what the windows that cover it hand back: those whose maximum it was.
void translate_adaptive_max_pool_backward(Call& c) {
  ValueId grad = c.in.tensor("grad_output"), x = c.in.tensor("self"), index = c.in.tensor("indices");
  const size_t n = dimensions_of(c);
  if (!c.b.ok()) return;
  const int spatial = static_cast<int>(n);
  const Batched in = with_batch(c, x, spatial), g = with_batch(c, grad, spatial), at = with_batch(c, index, spatial);
  const DType d = c.b.dtype(grad);
  const SymShape sizes = spatial_sizes(c, in.value), out = spatial_sizes(c, g.value);
  ValueId part = widen(c.b, g.value), from = at.value, zero = c.b.like(part, 0), none = c.b.scalar_i(DType::I64, -1);
  for (size_t i = n; i-- > 0 && c.b.ok();) {
    const auto axis = static_cast<int64_t>(i) + 2;
    const Covers w = covers(c, out[i], sizes[i]);
    part = covered(c, part, axis, w, zero);
    from = covered(c, from, axis, w, none);
  }
  // [N, C, size, windows, size, windows..]
  SymShape spread = {1, 1};
  Ints folded;
  for (size_t i = 0; i < n; ++i) {
    spread.push_back(sizes[i]);
    spread.emplace_back(1);
    folded.push_back(static_cast<int64_t>(2 * i) + 3);
  }
  ValueId here = reshape(c.b, positions(c, sizes), spread);
  ValueId y = sum(c.b, select(c.b, eq(c.b, from, here), part, 0.0), folded, false);
  c.result(without_batch(c, cast(c.b, y, d), in));
}

// The sum of blocks where they overlap: columns [N, C * kh * kw, blocks] to an image.
void translate_col2im(Call& c) {
  ValueId x = c.in.tensor("self");
  const SymShape size = c.in.sizes("output_size");
  Pool p;
  p.kernel = spatial(c, "kernel_size", 2, {1});
  p.strides = spatial(c, "stride", 2, {1});
  p.pads = spatial(c, "padding", 2, {0});
  p.dilations = spatial(c, "dilation", 2, {1});
  if (!c.b.ok()) return;
  const Batched in = with_batch(c, x, 1);
  const DType d = c.b.dtype(x);
  const SymShape s = c.b.shape(in.value);
  const SymShape out = {windows(c, p, size.at(0), 0), windows(c, p, size.at(1), 1)};
  const SymExpr channels = c.b.env().simplify(floordiv(s[1], product_of(p.kernel)));
  // Taps and windows of a dimension stand together, so that one index reads both.
  ValueId y = reshape(c.b, widen(c.b, in.value), {s[0], channels, p.kernel[0], p.kernel[1], out[0], out[1]});
  y = reshape(c.b, transpose(c.b, y, {0, 1, 2, 4, 3, 5}), {s[0], channels, out[0] * p.kernel[0], out[1] * p.kernel[1]});
  ValueId sum;
  each_covering(
      c, p, size, out, [&](const std::vector<ValueId>& at, ValueId covered, const std::vector<ValueId>& offset) {
        std::vector<ValueId> both;
        for (size_t i = 0; i < 2; ++i) {
          ValueId tap =
              max(c.b, min(c.b, offset[i], c.b.scalar_i(DType::I64, p.kernel[i] - 1)), c.b.scalar_i(DType::I64, 0));
          both.push_back(add(c.b, mul(c.b, tap, c.b.size(out[i], DType::I64)), at[i]));
        }
        ValueId part = select(c.b, covered, read_at(c, y, both), 0.0);
        sum = sum.valid() ? add(c.b, sum, part) : part;
      });
  c.result(without_batch(c, cast(c.b, sum, d), in));
}

} // namespace

void register_windows(AtenTable& t) {
  t.add({"max_pool1d.default", "max_pool2d.default", "max_pool3d.default", "max_pool1d_with_indices.default",
         "max_pool2d_with_indices.default", "max_pool3d_with_indices.default"},
        translate_max_pool);
  t.add({"max_pool2d_with_indices_backward.default", "max_pool3d_with_indices_backward.default"},
        translate_max_pool_backward);
  t.add({"avg_pool1d.default", "avg_pool2d.default", "avg_pool3d.default"}, translate_avg_pool);
  t.add({"avg_pool2d_backward.default", "avg_pool3d_backward.default"}, translate_avg_pool_backward);
  t.add({"adaptive_avg_pool1d.default", "adaptive_avg_pool2d.default", "adaptive_avg_pool3d.default",
         "_adaptive_avg_pool2d.default", "_adaptive_avg_pool3d.default"},
        translate_adaptive_avg_pool);
  t.add({"_adaptive_avg_pool2d_backward.default", "_adaptive_avg_pool3d_backward.default"},
        translate_adaptive_avg_pool_backward);
  t.add({"adaptive_max_pool1d.default", "adaptive_max_pool2d.default", "adaptive_max_pool3d.default"},
        translate_adaptive_max_pool);
  t.add({"adaptive_max_pool2d_backward.default", "adaptive_max_pool3d_backward.default"},
        translate_adaptive_max_pool_backward);
  t.add({"col2im.default"}, translate_col2im);
}

} // namespace tessera::fx
