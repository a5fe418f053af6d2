#include "base/tensor.h"
#include <cmath>
#include <cstring>

namespace tessera {
namespace {
std::string dims_text(const Dims& dims) {
  std::string out = "[";
  for (size_t i = 0; i < dims.size(); ++i) out += (i ? ", " : "") + std::to_string(dims[i]);
  return out + "]";
}
std::string number(double v) {
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", v);
  return text;
}
std::string position(int64_t flat, const Dims& dims) {
  std::string out;
  for (size_t i = dims.size(); i-- > 0;) {
    out = std::to_string(flat % dims[i]) + (out.empty() ? "" : ", ") + out;
    flat /= dims[i];
  }
  return "[" + out + "]";
}

// Reads element parts as doubles: complex tensors have two an element.
struct Reader {
  const Tensor& t;
  int parts;
  explicit Reader(const Tensor& tensor) : t(tensor), parts(info(tensor.dtype()).kind == DTypeKind::Complex ? 2 : 1) {}
  double operator()(int64_t i) const {
    if (parts == 1) return t.get_f64(i);
    if (t.dtype() == DType::C128) {
      double v;
      std::memcpy(&v, t.data() + i * 8, 8);
      return v;
    }
    float v;
    std::memcpy(&v, t.data() + i * 4, 4);
    return v;
  }
};

Comparison different(std::string message) {
  Comparison c;
  c.same = false;
  c.norm_ratio = c.max_abs = INFINITY;
  c.message = std::move(message);
  return c;
}
} // namespace

Comparison compare(const Tensor& actual, const Tensor& expected, double rtol, double atol) {
  if (actual.dtype() != expected.dtype())
    return different("type " + std::string(name(actual.dtype())) + " instead of " +
                     std::string(name(expected.dtype())));
  if (actual.dims() != expected.dims())
    return different("shape " + dims_text(actual.dims()) + " instead of " + dims_text(expected.dims()));
  Comparison c;
  if (actual.dtype() == DType::String) {
    for (int64_t i = 0; i < actual.count(); ++i) {
      const std::string &a = actual.string_values()[static_cast<size_t>(i)],
                        &b = expected.string_values()[static_cast<size_t>(i)];
      if (a == b) continue;
      c = different("at " + position(i, actual.dims()) + ": '" + a + "' instead of '" + b + "'");
      c.first_bad = i;
      return c;
    }
    return c;
  }
  if (actual.dtype() == DType::List) {
    for (size_t i = 0; i < actual.items().size(); ++i) {
      Comparison item = compare(actual.items()[i], expected.items()[i], rtol, atol);
      c.norm_ratio = std::max(c.norm_ratio, item.norm_ratio);
      c.max_abs = std::max(c.max_abs, item.max_abs);
      if (item.same || !c.same) continue;
      c.same = false;
      c.first_bad = static_cast<int64_t>(i);
      c.message = "item " + std::to_string(i) + ": " + item.message;
    }
    return c;
  }
  Reader a(actual), b(expected);
  double sum_diff = 0, sum_ref = 0;
  int64_t bad = 0;
  // 64-bit integers do not fit a double: equal ones are distinguished from nearly equal ones by their bits.
  const bool wide = actual.dtype() == DType::I64 || actual.dtype() == DType::U64;
  for (int64_t i = 0; i < actual.count() * a.parts; ++i) {
    if (wide && actual.get_i64(i) == expected.get_i64(i)) {
      sum_ref += b(i) * b(i);
      continue;
    }
    double x = a(i), y = b(i);
    if (std::isnan(x) && std::isnan(y)) continue;
    if (std::isinf(y) && x == y) continue;
    double d = std::fabs(x - y);
    if (wide && d == 0) d = 1; // differ below a double's precision
    if (std::isnan(d)) d = INFINITY;
    c.max_abs = std::max(c.max_abs, d);
    sum_diff += d * d;
    if (std::isfinite(y)) sum_ref += y * y;
    if (d <= atol + rtol * std::fabs(y) && !std::isinf(d)) continue;
    if (bad++ == 0) c.first_bad = i / a.parts;
  }
  if (std::isinf(c.max_abs))
    c.norm_ratio = INFINITY;
  else if (sum_diff > 0)
    c.norm_ratio = sum_ref > 0 ? std::sqrt(sum_diff / sum_ref) : INFINITY;
  c.same = bad == 0;
  if (bad > 0) {
    int64_t i = c.first_bad * a.parts;
    c.message = std::to_string(bad) + " of " + std::to_string(actual.count() * a.parts) + " differ, first at " +
                position(c.first_bad, actual.dims()) + ": " + number(a(i)) + " instead of " + number(b(i)) +
                "; largest difference " + number(c.max_abs) + ", ||a-b||/||b|| = " + number(c.norm_ratio);
  }
  return c;
}

} // namespace tessera
