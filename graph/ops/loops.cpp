#include "graph/ops/loops.h"

namespace tessera::ops {

std::vector<double> to_f64(const Tensor& t) {
  std::vector<double> out(static_cast<size_t>(t.count()));
  for (int64_t i = 0; i < t.count(); ++i) out[static_cast<size_t>(i)] = t.get_f64(i);
  return out;
}

std::vector<int64_t> to_i64(const Tensor& t) {
  std::vector<int64_t> out(static_cast<size_t>(t.count()));
  for (int64_t i = 0; i < t.count(); ++i) out[static_cast<size_t>(i)] = t.get_i64(i);
  return out;
}

Result<Tensor> from_f64(DType dtype, Dims dims, std::span<const double> values) {
  TESSERA_ASSIGN(Tensor t, Tensor::create(dtype, std::move(dims)));
  TESSERA_CHECK(t.count() == static_cast<int64_t>(values.size()), "from_f64: element count");
  for (int64_t i = 0; i < t.count(); ++i) t.set_f64(i, values[static_cast<size_t>(i)]);
  return t;
}

Result<Tensor> from_i64(DType dtype, Dims dims, std::span<const int64_t> values) {
  TESSERA_ASSIGN(Tensor t, Tensor::create(dtype, std::move(dims)));
  TESSERA_CHECK(t.count() == static_cast<int64_t>(values.size()), "from_i64: element count");
  for (int64_t i = 0; i < t.count(); ++i) t.set_i64(i, values[static_cast<size_t>(i)]);
  return t;
}

Dims strides_of(const Dims& dims) {
  Dims s(dims.size());
  int64_t n = 1;
  for (size_t k = dims.size(); k-- > 0;) {
    s[k] = n;
    n *= dims[k];
  }
  return s;
}

MultiIndex::MultiIndex(Dims dims) : dims_(std::move(dims)), at_(dims_.size(), 0) {
  for (int64_t d : dims_) count_ *= d;
}

void MultiIndex::next() {
  ++i_;
  for (size_t k = dims_.size(); k-- > 0;) {
    if (++at_[k] < dims_[k]) return;
    at_[k] = 0;
  }
}

Result<Dims> broadcast_dims(std::span<const Tensor* const> tensors) {
  Dims out;
  for (const Tensor* t : tensors) {
    Dims d = t->dims();
    if (d.size() > out.size())
      out.insert(out.begin(), d.size() - out.size(), 1);
    else
      d.insert(d.begin(), out.size() - d.size(), 1);
    for (size_t k = 0; k < d.size(); ++k) {
      if (d[k] == out[k] || d[k] == 1) continue;
      if (out[k] != 1)
        return Diagnostic(ErrorCode::ShapeMismatch,
                          "sizes " + std::to_string(out[k]) + " and " + std::to_string(d[k]) + " do not broadcast");
      out[k] = d[k];
    }
  }
  TESSERA_TRY(element_count(out));
  return out;
}

Dims broadcast_strides(const Dims& dims, const Dims& out) {
  Dims own = strides_of(dims), s(out.size(), 0);
  size_t lead = out.size() - dims.size();
  for (size_t k = 0; k < dims.size(); ++k) s[lead + k] = dims[k] == 1 ? 0 : own[k];
  return s;
}

} // namespace tessera::ops
