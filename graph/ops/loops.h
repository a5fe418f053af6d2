// Loops that references are written with: element access by kind of dtype, broadcasting, moving elements. Slow and
// plain; floats are computed in f64 and rounded once when stored, integers wrap when stored.
#pragma once
#include "base/tensor.h"
#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>
#include <type_traits>

namespace tessera::ops {

// ---- access. V is double (any float), int64_t (signed), uint64_t (unsigned) or bool.
template <class V>
[[nodiscard]] V get(const Tensor& t, int64_t i) {
  if constexpr (std::is_same_v<V, double>)
    return t.get_f64(i);
  else if constexpr (std::is_same_v<V, bool>)
    return t.get_i64(i) != 0;
  else
    return static_cast<V>(t.get_i64(i));
}
template <class V>
void set(Tensor& t, int64_t i, V v) {
  if constexpr (std::is_floating_point_v<V>)
    t.set_f64(i, v);
  else
    t.set_i64(i, static_cast<int64_t>(v));
}
// Calls f with a value of the V for the dtype: f(double{}), f(int64_t{}), f(uint64_t{}) or f(bool{}). Strings and
// complex numbers do not come here: operand type sets keep them out.
template <class F>
decltype(auto) by_kind(DType dtype, F&& f) {
  switch (info(dtype).kind) {
  case DTypeKind::Float: return f(double{});
  case DTypeKind::Signed: return f(int64_t{});
  case DTypeKind::Unsigned: return f(uint64_t{});
  case DTypeKind::Bool: return f(bool{});
  default: TESSERA_UNREACHABLE("by_kind: no number: " + std::string(name(dtype)));
  }
}
// A float tensor's elements as f64, for references that compute with whole arrays.
[[nodiscard]] std::vector<double> to_f64(const Tensor& t);
[[nodiscard]] std::vector<int64_t> to_i64(const Tensor& t);
[[nodiscard]] Result<Tensor> from_f64(DType dtype, Dims dims, std::span<const double> values);
[[nodiscard]] Result<Tensor> from_i64(DType dtype, Dims dims, std::span<const int64_t> values);

// ---- indices
[[nodiscard]] Dims strides_of(const Dims& dims);
// An odometer over dims, row-major: for (MultiIndex w(dims); !w.done(); w.next()) use w.at(), w.i().
class MultiIndex {
public:
  explicit MultiIndex(Dims dims);
  [[nodiscard]] bool done() const { return i_ >= count_; }
  [[nodiscard]] const Dims& at() const { return at_; }
  [[nodiscard]] int64_t operator[](size_t axis) const { return at_[axis]; }
  [[nodiscard]] int64_t i() const { return i_; }
  void next();

private:
  Dims dims_, at_;
  int64_t i_ = 0, count_ = 1;
};
[[nodiscard]] inline int64_t offset(const Dims& at, const Dims& strides) {
  int64_t r = 0;
  for (size_t k = 0; k < at.size(); ++k) r += at[k] * strides[k];
  return r;
}
// Shape that all broadcast to. Error ShapeMismatch.
[[nodiscard]] Result<Dims> broadcast_dims(std::span<const Tensor* const> tensors);
// Strides with which a tensor of `dims` is read along `out`: 0 where it is broadcast.
[[nodiscard]] Dims broadcast_strides(const Dims& dims, const Dims& out);

// ---- elementwise: out[i] = f(V of each tensor, broadcast)
template <class V, class F, class... Ts>
[[nodiscard]] Result<Tensor> zip(DType out, F f, const Ts&... ts) {
  const Tensor* all[] = {&ts...};
  TESSERA_ASSIGN(Dims dims, broadcast_dims(all));
  TESSERA_ASSIGN(Tensor result, Tensor::create(out, dims));
  std::array<Dims, sizeof...(Ts)> strides = {broadcast_strides(ts.dims(), dims)...};
  for (MultiIndex w(dims); !w.done(); w.next()) {
    size_t k = 0;
    std::array<V, sizeof...(Ts)> v = {get<V>(ts, offset(w.at(), strides[k++]))...};
    std::apply([&](auto... x) { set(result, w.i(), f(x...)); }, v);
  }
  return result;
}

// ---- moving elements of any dtype: out[i] = source[from(i)], zero (empty string) where from(i) is negative
template <class From>
[[nodiscard]] Result<Tensor> take(const Tensor& source, Dims dims, From from) {
  TESSERA_ASSIGN(int64_t n, element_count(dims));
  if (source.dtype() == DType::String) {
    std::vector<std::string> values(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i)
      if (int64_t s = from(i); s >= 0) values[static_cast<size_t>(i)] = source.string_values()[static_cast<size_t>(s)];
    return Tensor::strings(std::move(dims), std::move(values));
  }
  TESSERA_ASSIGN(Tensor out, Tensor::create(source.dtype(), std::move(dims), true));
  auto move = [&]<class T>(T) {
    const T* a = reinterpret_cast<const T*>(source.data());
    T* b = reinterpret_cast<T*>(out.mutable_data());
    for (int64_t i = 0; i < n; ++i)
      if (int64_t s = from(i); s >= 0) b[i] = a[s];
  };
  struct Wide {
    uint64_t half[2];
  };
  switch (info(source.dtype()).bits) {
  case 8: move(uint8_t{}); break;
  case 16: move(uint16_t{}); break;
  case 32: move(uint32_t{}); break;
  case 64: move(uint64_t{}); break;
  case 128: move(Wide{}); break;
  default: // packed
    for (int64_t i = 0; i < n; ++i) {
      int64_t s = from(i);
      if (s < 0) continue;
      if (is_float(source.dtype()))
        out.set_f64(i, source.get_f64(s));
      else
        out.set_i64(i, source.get_i64(s));
    }
  }
  return out;
}
// The same where the source element is found from the index: from(at) gives its flat position.
template <class From>
[[nodiscard]] Result<Tensor> take_at(const Tensor& source, const Dims& dims, From from) {
  MultiIndex w(dims);
  return take(source, dims, [&](int64_t) {
    int64_t s = from(w.at());
    w.next();
    return s;
  });
}

} // namespace tessera::ops
