#include "frontend/fx/aten/parts.h"
#include <limits>
#include <numeric>

namespace tessera::fx {

Ints spatial(Call& c, std::string_view name, size_t count, const Ints& fallback) {
  Ints values = c.in.ints(name);
  if (!c.b.ok()) return Ints(count, 1);
  if (values.empty()) values = fallback;
  if (values.size() == 1) values.assign(count, values[0]);
  if (values.size() != count) {
    c.b.fail(ErrorCode::BadAttribute, "argument '" + std::string(name) + "' has " + std::to_string(values.size()) +
                                          " elements, expected " + std::to_string(count));
    return Ints(count, 1);
  }
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  const int64_t least = name.find("padding") != std::string_view::npos ? 0 : 1;
  for (const int64_t v : values)
    if (v < least || v > kMax) {
      c.b.fail(ErrorCode::BadAttribute, "argument '" + std::string(name) + "' has " + std::to_string(v) +
                                            ", expected a number from " + std::to_string(least) + " to " +
                                            std::to_string(kMax));
      return Ints(count, 1);
    }
  return values;
}

Batched with_batch(Call& c, ValueId x, int spatial) {
  if (!c.b.ok()) return {x, false};
  const int rank = c.b.rank(x);
  if (rank == spatial + 2) return {x, false};
  if (rank != spatial + 1)
    c.b.fail(ErrorCode::ShapeMismatch, "a tensor of " + std::to_string(spatial + 1) + " or " +
                                           std::to_string(spatial + 2) + " dimensions is expected, not " +
                                           str(c.b.shape(x)));
  return {unsqueeze(c.b, x, {0}), true};
}
ValueId without_batch(Call& c, ValueId x, const Batched& like) {
  return like.added && c.b.ok() ? squeeze(c.b, x, {0}) : x;
}

ValueId windows(Call& c, ValueId x, const Windows& w) {
  for (size_t i = 0; i < w.kernel.size() && c.b.ok(); ++i) {
    const auto axis = static_cast<int64_t>(2 + 2 * i);
    if (w.kernel[i].is_const(1)) // a view
      x = unsqueeze(c.b, slice(c.b, x, axis, 0, w.sizes[i], w.strides[i]), {axis});
    else
      x = c.b.op("windows", {x},
                 {{"axis", axis},
                  {"sizes", SymShape{w.kernel[i], w.sizes[i]}},
                  {"strides", Ints{w.dilations[i], w.strides[i]}}});
  }
  return x;
}

ValueId matrix_product(Call& c, ValueId x, ValueId y) { return c.b.op("MatMul", {x, y}); }

ValueId transposed(Call& c, ValueId x) {
  if (!c.b.ok()) return {};
  Ints perm = axis_range(0, c.b.rank(x));
  if (perm.size() > 1) std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return transpose(c.b, x, perm);
}

ValueId linear(Call& c, ValueId x, ValueId weight, ValueId bias) {
  if (!c.b.ok()) return {};
  ValueId y = matrix_product(c, x, c.b.rank(weight) == 1 ? weight : transposed(c, weight));
  return bias.valid() ? add(c.b, y, bias) : y;
}

Ints axis_range(int64_t begin, int64_t end) {
  Ints axes(static_cast<size_t>(std::max<int64_t>(end - begin, 0)));
  std::iota(axes.begin(), axes.end(), begin);
  return axes;
}

ValueId along(Call& c, ValueId vector, int64_t axis, int rank) {
  if (!c.b.ok()) return {};
  SymShape shape(static_cast<size_t>(rank), SymExpr(1));
  shape[static_cast<size_t>(axis)] = c.b.dim(vector, 0);
  return reshape(c.b, vector, shape);
}

ValueId cast_if(Call& c, ValueId v, DType dtype) { return v.valid() ? cast(c.b, v, dtype) : v; }

ValueId reduced_loss(Call& c, ValueId loss, int64_t reduction) {
  if (!c.b.ok() || reduction == 0) return loss;
  Ints axes = axis_range(0, c.b.rank(loss));
  if (axes.empty()) return loss;
  return reduction == 1 ? mean(c.b, loss, axes, false) : sum(c.b, loss, axes, false);
}

ValueId zeros(Call& c, DType dtype, const SymShape& shape) { return expand(c.b, c.b.scalar(dtype, 0), shape); }

ValueId softmax(Call& c, ValueId x, int64_t axis, bool logarithm) {
  if (!c.b.ok()) return {};
  const bool scalar = c.b.rank(x) == 0;
  if (scalar) x = reshape(c.b, x, {1});
  ValueId y = c.b.op(logarithm ? "LogSoftmax" : "Softmax", {x}, {{"axis", axis}});
  return scalar ? reshape(c.b, y, {}) : y;
}

ValueId layer_norm(Call& c, ValueId x, int64_t axis, ValueId scale, ValueId bias, double epsilon) {
  if (!c.b.ok()) return {};
  if (!scale.valid()) scale = c.b.like(x, 1);
  std::vector<ValueId> operands = {x, scale};
  if (bias.valid()) operands.push_back(bias);
  return c.b.op("LayerNormalization", operands, {{"axis", axis}, {"epsilon", epsilon}});
}

DType requested_dtype(Call& c, DType fallback) { return c.in.dtype("dtype").value_or(fallback); }

} // namespace tessera::fx
