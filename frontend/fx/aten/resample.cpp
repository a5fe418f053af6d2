// Images at positions that are data; images taken apart into channels and blocks; distances.
#include "frontend/fx/aten/index_parts.h"
#include "frontend/fx/aten/parts.h"
#include <cmath>
#include <limits>

namespace tessera::fx {
namespace {

// ---- grid_sampler: the image at coordinates from -1 to 1; the grid names the last dimension first
class Sampler {
public:
  Sampler(Call& c, ValueId x, ValueId grid, int64_t padding, bool corners)
      : c_(c), padding_(padding), corners_(corners) {
    if (!c.b.ok()) return;
    shape_ = c.b.shape(x);
    const SymShape g = c.b.shape(grid);
    if (shape_.size() < 3 || g.size() != shape_.size()) {
      c.b.fail(ErrorCode::ShapeMismatch, "input " + str(shape_) + " and grid " + str(g) +
                                             " have no batch, channels and dimensions to sample in common");
      return;
    }
    n_ = shape_.size() - 2;
    places_ = product(std::span(g).subspan(1, n_));
    out_ = {shape_[0], shape_[1]};
    out_.insert(out_.end(), g.begin() + 1, g.end() - 1);
    flat_ = reshape(c.b, widen(c.b, x), {shape_[0], shape_[1], product(std::span(shape_).subspan(2))});
    wide_ = c.b.dtype(flat_);
    ValueId flat_grid = reshape(c.b, cast(c.b, grid, wide_), {g[0], places_, static_cast<int64_t>(n_)});
    for (size_t i = 0; i < n_; ++i) {
      ValueId v = squeeze(c.b, slice(c.b, flat_grid, 2, static_cast<int64_t>(n_ - 1 - i), 1), {2});
      ValueId size = c.b.size(shape_[i + 2], wide_);
      v = add(c.b, v, 1.0);
      at_.push_back(corners ? mul(c.b, v, mul(c.b, sub(c.b, size, 1.0), 0.5))
                            : mul(c.b, sub(c.b, mul(c.b, v, size), 1.0), 0.5)); // [N, places]
    }
  }

  ValueId nearest() {
    std::vector<ValueId> whole;
    for (size_t i = 0; i < n_; ++i) whole.push_back(c_.b.op1("round", padded(at_[i], i)));
    return finish(read(whole));
  }
  ValueId linear() {
    std::vector<ValueId> low, share;
    for (size_t i = 0; i < n_; ++i) {
      ValueId p = padded(at_[i], i);
      low.push_back(floor(c_.b, p));
      share.push_back(sub(c_.b, p, low.back()));
    }
    ValueId sum;
    for (size_t corner = 0; corner < (size_t{1} << n_) && c_.b.ok(); ++corner) {
      std::vector<ValueId> whole;
      ValueId weight;
      for (size_t i = 0; i < n_; ++i) {
        const bool high = (corner >> i & 1) != 0;
        whole.push_back(high ? add(c_.b, low[i], 1.0) : low[i]);
        ValueId w = high ? share[i] : sub(c_.b, c_.b.like(share[i], 1), share[i]);
        weight = weight.valid() ? mul(c_.b, weight, w) : w;
      }
      ValueId inside, value = read(whole, &inside);
      // PyTorch leaves out corners outside of a volume, whose weights may be infinite.
      if (n_ == 3 && c_.b.ok()) weight = select(c_.b, inside, weight, 0.0);
      ValueId part = mul(c_.b, value, unsqueeze(c_.b, weight, {1}));
      sum = sum.valid() ? add(c_.b, sum, part) : part;
    }
    return finish(sum);
  }
  ValueId cubic_taps() { // each tap's own position is padded
    std::vector<ValueId> low, share;
    for (size_t i = 0; i < n_; ++i) {
      low.push_back(floor(c_.b, at_[i]));
      share.push_back(sub(c_.b, at_[i], low.back()));
    }
    auto weight = [&](ValueId t, int k) {
      ValueId d = abs(c_.b, sub(c_.b, t, static_cast<double>(k)));
      auto poly = [&](double a3, double a2, double a1, double a0) {
        return add(c_.b, mul(c_.b, add(c_.b, mul(c_.b, add(c_.b, mul(c_.b, d, a3), a2), d), a1), d), a0);
      };
      return k == 0 || k == 1 ? poly(1.25, -2.25, 0, 1) : poly(-0.75, 3.75, -6, 3);
    };
    ValueId sum;
    for (int i = -1; i <= 2; ++i)
      for (int j = -1; j <= 2 && c_.b.ok(); ++j) {
        ValueId y = padded(add(c_.b, low[0], static_cast<double>(i)), 0),
                x = padded(add(c_.b, low[1], static_cast<double>(j)), 1);
        ValueId part =
            mul(c_.b, read({y, x}), unsqueeze(c_.b, mul(c_.b, weight(share[0], i), weight(share[1], j)), {1}));
        sum = sum.valid() ? add(c_.b, sum, part) : part;
      }
    return finish(sum);
  }

private:
  // 0 zeros, 1 border, 2 reflection.
  ValueId padded(ValueId p, size_t i) {
    if (padding_ == 0 || !c_.b.ok()) return p;
    ValueId size = c_.b.size(shape_[i + 2], wide_), last = sub(c_.b, size, 1.0);
    if (padding_ == 2) {
      const double low = corners_ ? 0 : -0.5;
      ValueId span = corners_ ? max(c_.b, last, 1.0) : size;
      ValueId d = abs(c_.b, sub(c_.b, p, low)), turns = floor(c_.b, div(c_.b, d, span));
      ValueId rest = sub(c_.b, d, mul(c_.b, turns, span));
      ValueId odd = sub(c_.b, turns, mul(c_.b, floor(c_.b, mul(c_.b, turns, 0.5)), 2.0));
      p = add(c_.b, select(c_.b, eq(c_.b, odd, 0.0), rest, sub(c_.b, span, rest)), low);
    }
    return min(c_.b, max(c_.b, p, 0.0), last);
  }
  // The image at whole positions [N, places], zero outside of it: [N, C, places]. `is_inside`: which are not outside.
  ValueId read(const std::vector<ValueId>& whole, ValueId* is_inside = nullptr) {
    ValueId position, inside;
    for (size_t i = 0; i < n_ && c_.b.ok(); ++i) {
      ValueId last = c_.b.size(shape_[i + 2] - 1, wide_);
      ValueId here = logical_and(c_.b, ge(c_.b, whole[i], 0.0), le(c_.b, whole[i], last));
      inside = inside.valid() ? logical_and(c_.b, inside, here) : here;
      ValueId k = cast(c_.b, select(c_.b, here, whole[i], 0.0), DType::I64);
      position = position.valid() ? add(c_.b, mul(c_.b, position, c_.b.size(shape_[i + 2], DType::I64)), k) : k;
    }
    if (!c_.b.ok()) return {};
    if (is_inside != nullptr) *is_inside = inside;
    ValueId index = expand(c_.b, unsqueeze(c_.b, position, {1}), {shape_[0], shape_[1], places_});
    ValueId v = c_.b.op("gather_elements", {flat_, index}, {{"axis", int64_t{2}}});
    return select(c_.b, unsqueeze(c_.b, inside, {1}), v, 0.0);
  }
  ValueId finish(ValueId v) { return c_.b.ok() ? reshape(c_.b, v, out_) : v; }

  Call& c_;
  int64_t padding_;
  bool corners_;
  size_t n_ = 0;
  SymShape shape_, out_;
  SymExpr places_;
  ValueId flat_;
  DType wide_ = DType::F32;
  std::vector<ValueId> at_; // coordinates in elements, one for each dimension
};

void translate_grid_sampler(Call& c) {
  ValueId x = c.in.tensor("input"), grid = c.in.tensor("grid");
  const int64_t mode = c.in.integer("interpolation_mode"), padding = c.in.integer("padding_mode");
  const bool corners = c.in.flag("align_corners");
  if (!c.b.ok()) return;
  const DType d = c.b.dtype(x);
  Sampler s(c, x, grid, padding, corners);
  if (!c.b.ok()) return;
  if (mode == 2 && c.b.rank(x) != 4) return c.unsupported("cubic sampling of a volume");
  c.result(cast(c.b, mode == 0 ? s.linear() : mode == 1 ? s.nearest() : s.cubic_taps(), d));
}

// ---- channels and pixels
SymShape lead_of(const SymShape& s, size_t last) { return {s.begin(), s.end() - static_cast<int64_t>(last)}; }

// A factor between pixels and channels of `self`, which has them and perhaps dimensions before.
int64_t pixel_factor(Call& c, std::string_view name) {
  constexpr int64_t kMax = 1 << 15;
  const int64_t r = c.in.integer(name);
  if (c.b.ok() && (r < 1 || r > kMax))
    c.b.fail(ErrorCode::BadAttribute, "argument '" + std::string(name) + "' is " + std::to_string(r) +
                                          ", expected a number from 1 to " + std::to_string(kMax));
  const ValueId x = c.in.tensor("self");
  if (c.b.ok() && c.b.rank(x) < 3)
    c.b.fail(ErrorCode::ShapeMismatch,
             "argument 'self' has rank " + std::to_string(c.b.rank(x)) + ", expected 3 or more");
  return r;
}

void translate_pixel_shuffle(Call& c) {
  ValueId x = c.in.tensor("self");
  const int64_t r = pixel_factor(c, "upscale_factor");
  if (!c.b.ok()) return;
  const SymShape s = c.b.shape(x);
  const auto k = static_cast<int64_t>(s.size()) - 3;
  SymShape apart = lead_of(s, 3), out = apart;
  const SymExpr channels = c.b.env().simplify(floordiv(s[s.size() - 3], r * r)), h = s[s.size() - 2], w = s.back();
  for (const SymExpr& e : {channels, SymExpr(r), SymExpr(r), h, w}) apart.push_back(e);
  for (const SymExpr& e : {channels, h * r, w * r}) out.push_back(e);
  Ints perm = axis_range(0, k);
  for (int64_t a : {0, 3, 1, 4, 2}) perm.push_back(k + a);
  c.result(reshape(c.b, transpose(c.b, reshape(c.b, x, apart), perm), out));
}
void translate_pixel_unshuffle(Call& c) {
  ValueId x = c.in.tensor("self");
  const int64_t r = pixel_factor(c, "downscale_factor");
  if (!c.b.ok()) return;
  const SymShape s = c.b.shape(x);
  const auto k = static_cast<int64_t>(s.size()) - 3;
  SymShape apart = lead_of(s, 3), out = apart;
  const SymExpr h = c.b.env().simplify(floordiv(s[s.size() - 2], r)), w = c.b.env().simplify(floordiv(s.back(), r));
  for (const SymExpr& e : {s[s.size() - 3], h, SymExpr(r), w, SymExpr(r)}) apart.push_back(e);
  for (const SymExpr& e : {s[s.size() - 3] * (r * r), h, w}) out.push_back(e);
  Ints perm = axis_range(0, k);
  for (int64_t a : {0, 2, 4, 1, 3}) perm.push_back(k + a);
  c.result(reshape(c.b, transpose(c.b, reshape(c.b, x, apart), perm), out));
}
void translate_channel_shuffle(Call& c) {
  ValueId x = c.in.tensor("self");
  const int64_t groups = c.in.integer("groups");
  if (!c.b.ok()) return;
  const SymShape s = c.b.shape(x);
  SymShape apart = {s[0], groups, c.b.env().simplify(floordiv(s[1], groups))};
  apart.insert(apart.end(), s.begin() + 2, s.end());
  Ints perm = axis_range(0, static_cast<int64_t>(apart.size()));
  std::swap(perm[1], perm[2]);
  c.result(reshape(c.b, transpose(c.b, reshape(c.b, x, apart), perm), s));
}

// Blocks of an image as columns: [N, C * kh * kw, blocks].
void translate_im2col(Call& c) {
  ValueId x = c.in.tensor("self");
  const Ints kernel = spatial(c, "kernel_size", 2, {1}), dilation = spatial(c, "dilation", 2, {1}),
             padding = spatial(c, "padding", 2, {0}), stride = spatial(c, "stride", 2, {1});
  if (!c.b.ok()) return;
  const Batched in = with_batch(c, x, 2);
  const SymShape s = c.b.shape(in.value);
  ValueId padded = pad(c.b, in.value, {0, 0, padding[0], padding[1]}, {0, 0, padding[0], padding[1]});
  SymShape out;
  for (size_t i = 0; i < 2; ++i)
    out.push_back(
        c.b.env().simplify(floordiv(s[i + 2] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1, stride[i]) + 1));
  const SymShape taps(kernel.begin(), kernel.end());
  ValueId y = transpose(c.b, windows(c, padded, {taps, out, stride, dilation}), {0, 1, 2, 4, 3, 5});
  y = reshape(c.b, y, {s[0], s[1] * (kernel[0] * kernel[1]), out[0] * out[1]});
  c.result(without_batch(c, y, in));
}

// ---- distances: the p-norm of each row's difference
ValueId norm_of(Call& c, ValueId difference, double p, int64_t axis) {
  ValueId a = abs(c.b, difference);
  if (p == 0) return sum(c.b, cast(c.b, ne(c.b, a, 0.0), c.b.dtype(a)), {axis}, false);
  if (p == 1) return sum(c.b, a, {axis}, false);
  if (p == 2) return sqrt(c.b, sum(c.b, mul(c.b, a, a), {axis}, false));
  if (std::isinf(p)) return reduce(c.b, "reduce_max", a, {axis}, false);
  return pow(c.b, sum(c.b, pow(c.b, a, p), {axis}, false), 1 / p);
}
void translate_cdist(Call& c) {
  ValueId x = c.in.tensor("x1"), y = c.in.tensor("x2");
  const double p = c.in.number("p");
  if (!c.b.ok()) return;
  const DType d = c.b.dtype(x);
  const int rx = c.b.rank(x), ry = c.b.rank(y);
  if (c.b.dim(x, rx - 1).is_const(0)) return c.result(zeros(c, d, c.result_shape(0)));
  ValueId difference = sub(c.b, unsqueeze(c.b, widen(c.b, x), {rx - 1}), unsqueeze(c.b, widen(c.b, y), {ry - 2}));
  if (!c.b.ok()) return;
  c.result(cast(c.b, norm_of(c, difference, p, c.b.rank(difference) - 1), d));
}
// Distances of all pairs of rows, the upper triangle row by row.
void translate_pdist(Call& c) {
  ValueId x = c.in.tensor("self");
  const double p = c.in.number("p");
  if (!c.b.ok()) return;
  const DType d = c.b.dtype(x);
  auto n = c.b.dim(x, 0).as_const();
  if (!n) return c.unsupported("distances of the pairs of a symbolic number of rows");
  Ints first, second;
  for (int64_t i = 0; i < *n; ++i)
    for (int64_t j = i + 1; j < *n; ++j) {
      first.push_back(i);
      second.push_back(j);
    }
  if (first.empty() || c.b.dim(x, 1).is_const(0)) return c.result(zeros(c, d, c.result_shape(0)));
  ValueId wide = widen(c.b, x);
  ValueId difference = sub(c.b, gather(c.b, wide, c.b.ints(first), 0), gather(c.b, wide, c.b.ints(second), 0));
  c.result(cast(c.b, norm_of(c, difference, p, 1), d));
}

void translate_cosine_similarity(Call& c) {
  const DType d = promoted(c.b, c.in, {"x1", "x2"});
  ValueId x = operand(c.b, c.in, "x1", d), y = operand(c.b, c.in, "x2", d);
  const double epsilon = c.in.number("eps");
  if (!c.b.ok()) return;
  x = widen(c.b, x);
  y = widen(c.b, y);
  auto shape = c.b.env().broadcast(c.b.shape(x), c.b.shape(y), c.b.node().location);
  if (!shape.ok()) return c.b.fail(shape.error());
  const int64_t axis = c.in.axis("dim", static_cast<int>(shape->size()));
  if (!c.b.ok()) return;
  x = expand(c.b, x, *shape);
  y = expand(c.b, y, *shape);
  auto unit = [&](ValueId v) {
    return div(c.b, v, max(c.b, sqrt(c.b, sum(c.b, mul(c.b, v, v), {axis}, true)), epsilon));
  };
  c.result(cast(c.b, sum(c.b, mul(c.b, unit(x), unit(y)), {axis}, false), d));
}

// ---- bags: sums, means or maxima of rows that consecutive indices name; offsets[b] is where bag b begins
void translate_embedding_bag(Call& c) {
  ValueId weight = c.in.tensor("weight"), indices = c.in.tensor("indices"), offsets = c.in.tensor("offsets"),
          factor = c.in.maybe("per_sample_weights");
  const int64_t mode = c.in.integer("mode");
  const bool last = c.in.flag("include_last_offset");
  const auto padding = c.schema().argument("padding_idx") ? c.in.maybe_integer("padding_idx") : std::nullopt;
  if (!c.b.ok()) return;
  if (c.is_used(1) || c.is_used(2) || c.is_used(3))
    return c.unsupported("bag sizes and positions of an embedding bag as results");
  const DType d = c.b.dtype(weight), i64 = DType::I64;
  const SymExpr count = c.b.dim(indices, 0), rows = c.b.dim(weight, 0);
  const SymExpr bags = last ? c.b.dim(offsets, 0) - 1 : c.b.dim(offsets, 0);
  ValueId read = widen(c.b, selected(c.b, weight, indices, 0)); // [n, D]
  if (factor.valid()) read = mul(c.b, read, unsqueeze(c.b, cast(c.b, factor, c.b.dtype(read)), {1}));
  ValueId begin = cast(c.b, offsets, i64), end;
  if (!c.b.ok()) return;
  ValueId is_offset = logical_and(c.b, ge(c.b, begin, 0.0), le(c.b, begin, c.b.size(count, i64)));
  begin = c.b.op("require", {begin, is_offset},
                 {{"message", std::string("an offset of an embedding bag is out of bounds")}, {"host", int64_t{1}}});
  if (last) {
    end = slice(c.b, begin, 0, 1, bags);
    begin = slice(c.b, begin, 0, 0, bags);
  } else {
    end = concat(c.b, {slice(c.b, begin, 0, 1, bags - 1), reshape(c.b, c.b.size(count, i64), {1})}, 0);
  }
  ValueId place = iota(c.b, {1, count}, 1);
  ValueId member =
      logical_and(c.b, ge(c.b, place, unsqueeze(c.b, begin, {1})), lt(c.b, place, unsqueeze(c.b, end, {1})));
  // An index of -1 means "none" in the inner operator; the outer one counts it from the end.
  const bool inner = c.schema().name.find("._embedding_bag") != std::string_view::npos;
  if (padding && !(inner && *padding < 0)) {
    ValueId skip = *padding < 0 ? c.b.size(rows + *padding, i64) : c.b.scalar_i(i64, *padding);
    member = logical_and(c.b, member, unsqueeze(c.b, ne(c.b, cast(c.b, indices, i64), skip), {0}));
  }
  const double none = mode == 2 ? -std::numeric_limits<double>::infinity() : 0.0;
  ValueId chosen = select(c.b, unsqueeze(c.b, member, {2}), unsqueeze(c.b, read, {0}), none); // [bags, n, D]
  ValueId size = sum(c.b, cast(c.b, member, c.b.dtype(read)), {1}, true), y;
  if (mode == 2) {
    y = select(c.b, gt(c.b, size, 0.0), reduce(c.b, "reduce_max", chosen, {1}, false), 0.0);
  } else {
    y = sum(c.b, chosen, {1}, false);
    if (mode == 1) y = div(c.b, y, max(c.b, size, 1.0));
  }
  c.result(cast(c.b, y, d));
  for (int i = 1; i < 4; ++i) c.unused_result();
}

} // namespace

void register_resample(AtenTable& t) {
  t.add({"grid_sampler.default", "grid_sampler_2d.default", "grid_sampler_3d.default",
         "_grid_sampler_2d_cpu_fallback.default"},
        translate_grid_sampler);
  t.add({"pixel_shuffle.default"}, translate_pixel_shuffle);
  t.add({"pixel_unshuffle.default"}, translate_pixel_unshuffle);
  t.add({"channel_shuffle.default", "native_channel_shuffle.default"}, translate_channel_shuffle);
  t.add({"im2col.default"}, translate_im2col);
  t.add({"cdist.default", "_cdist_forward.default"}, translate_cdist);
  t.add({"pdist.default", "_pdist_forward.default"}, translate_pdist);
  t.add({"cosine_similarity.default"}, translate_cosine_similarity);
  t.add({"embedding_bag.default", "embedding_bag.padding_idx", "_embedding_bag.default",
         "_embedding_bag_forward_only.default"},
        translate_embedding_bag);
}

} // namespace tessera::fx
