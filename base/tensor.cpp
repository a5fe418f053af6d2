#include "base/tensor.h"
#include "base/blocks_of_bytes.h"
#include "base/limits.h"
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace tessera {
namespace {
constexpr int64_t kMaxElements = int64_t{1} << 55;

template <class T>
T load(const std::byte* data, int64_t i) {
  T v;
  std::memcpy(&v, data + static_cast<size_t>(i) * sizeof(T), sizeof(T)); // mapped weights need not be aligned
  return v;
}
template <class T>
void store(std::byte* data, int64_t i, T v) {
  std::memcpy(data + static_cast<size_t>(i) * sizeof(T), &v, sizeof(T));
}

// Element i of `bits` (4 or 2) packed from the low end of each byte on.
uint8_t load_packed(const std::byte* data, int64_t i, int bits) {
  int64_t at = i * bits;
  return static_cast<uint8_t>((std::to_integer<unsigned>(data[at / 8]) >> (at % 8)) & ((1u << bits) - 1));
}
void store_packed(std::byte* data, int64_t i, int bits, unsigned v) {
  int64_t at = i * bits;
  unsigned mask = ((1u << bits) - 1) << (at % 8);
  data[at / 8] = static_cast<std::byte>((std::to_integer<unsigned>(data[at / 8]) & ~mask) | ((v << (at % 8)) & mask));
}
int64_t sign_extend(uint8_t v, int bits) {
  int shift = 64 - bits;
  return static_cast<int64_t>(static_cast<uint64_t>(v) << shift) >> shift;
}

// Integer and bool elements as i64 (u64 keeps its bits).
int64_t load_integer(DType d, const std::byte* p, int64_t i) {
  switch (d) {
  case DType::Bool: return load<uint8_t>(p, i) != 0;
  case DType::I8: return load<int8_t>(p, i);
  case DType::I16: return load<int16_t>(p, i);
  case DType::I32: return load<int32_t>(p, i);
  case DType::I64: return load<int64_t>(p, i);
  case DType::U8: return load<uint8_t>(p, i);
  case DType::U16: return load<uint16_t>(p, i);
  case DType::U32: return load<uint32_t>(p, i);
  case DType::U64: return static_cast<int64_t>(load<uint64_t>(p, i));
  case DType::I4: return sign_extend(load_packed(p, i, 4), 4);
  case DType::U4: return load_packed(p, i, 4);
  case DType::I2: return sign_extend(load_packed(p, i, 2), 2);
  case DType::U2: return load_packed(p, i, 2);
  default: TESSERA_UNREACHABLE("no integer type: " + std::string(name(d)));
  }
}

void store_integer(DType d, std::byte* p, int64_t i, int64_t v) {
  switch (d) {
  case DType::Bool: store<uint8_t>(p, i, v != 0); break;
  case DType::I8:
  case DType::U8: store(p, i, static_cast<uint8_t>(v)); break;
  case DType::I16:
  case DType::U16: store(p, i, static_cast<uint16_t>(v)); break;
  case DType::I32:
  case DType::U32: store(p, i, static_cast<uint32_t>(v)); break;
  case DType::I64:
  case DType::U64: store(p, i, v); break;
  case DType::I4:
  case DType::U4: store_packed(p, i, 4, static_cast<unsigned>(v)); break;
  case DType::I2:
  case DType::U2: store_packed(p, i, 2, static_cast<unsigned>(v)); break;
  default: TESSERA_UNREACHABLE("no integer type: " + std::string(name(d)));
  }
}

double load_float(DType d, const std::byte* p, int64_t i) {
  switch (d) {
  case DType::F16: return f16_to_f32(load<uint16_t>(p, i));
  case DType::BF16: return bf16_to_f32(load<uint16_t>(p, i));
  case DType::F32: return load<float>(p, i);
  case DType::F64: return load<double>(p, i);
  case DType::F4E2M1: return small_float_to_f32(d, load_packed(p, i, 4));
  default: return small_float_to_f32(d, load<uint8_t>(p, i));
  }
}

void store_float(DType d, std::byte* p, int64_t i, double v) {
  switch (d) {
  case DType::F16: store(p, i, f64_to_f16(v)); break;
  case DType::BF16: store(p, i, f64_to_bf16(v)); break;
  case DType::F32: store(p, i, static_cast<float>(v)); break;
  case DType::F64: store(p, i, v); break;
  case DType::F4E2M1: store_packed(p, i, 4, f64_to_small_float(d, v)); break;
  default: store(p, i, f64_to_small_float(d, v));
  }
}
} // namespace

Result<int64_t> element_count(std::span<const int64_t> dims) {
  int64_t n = 1;
  bool zero = false, over = false;
  for (int64_t d : dims) {
    if (d < 0) return Diagnostic(ErrorCode::SizeOverflow, "a dimension is negative: " + std::to_string(d));
    if (d == 0)
      zero = true;
    else if (d > kMaxElements / n)
      over = true;
    else
      n *= d;
  }
  if (zero) return int64_t{0};
  if (over) {
    std::string text;
    for (int64_t d : dims) text += (text.empty() ? "" : " x ") + std::to_string(d);
    return Diagnostic(ErrorCode::SizeOverflow, "a tensor of " + text + " elements exceeds the address space");
  }
  return n;
}

Result<std::shared_ptr<std::byte>> allocate_bytes(size_t bytes, bool zero) {
  const BlockOfBytes block = take_block(bytes);
  if (!block.data) return out_of_memory("cannot allocate " + std::to_string(bytes) + " bytes");
  if (zero && !block.cleared) std::memset(block.data, 0, bytes);
  return std::shared_ptr<std::byte>(block.data, [bytes](std::byte* b) { give_block(b, bytes); });
}

Tensor::Tensor() = default;
Tensor::Tensor(const Tensor&) = default;
Tensor::Tensor(Tensor&&) noexcept = default;
Tensor& Tensor::operator=(const Tensor&) = default;
Tensor& Tensor::operator=(Tensor&&) noexcept = default;
Tensor::~Tensor() = default;

Result<Tensor> Tensor::create(DType dtype, Dims dims, bool zero) {
  TESSERA_ASSIGN(int64_t count, element_count(dims));
  Tensor t;
  t.dtype_ = dtype;
  t.dims_ = std::move(dims);
  t.count_ = count;
  if (dtype == DType::String) {
    t.strings_ = std::make_shared<std::vector<std::string>>(static_cast<size_t>(count));
    return t;
  }
  if (dtype == DType::List) {
    t.items_ = std::make_shared<std::vector<Tensor>>(static_cast<size_t>(count));
    return t;
  }
  // The last bytes of a packed tensor hold bits of no element: keep them zero, so that equal tensors have equal bytes.
  TESSERA_ASSIGN(std::shared_ptr<std::byte> block, allocate_bytes(t.bytes(), zero || tessera::info(dtype).bits < 8));
  t.data_ = block.get();
  t.owner_ = std::move(block);
  return t;
}

Tensor Tensor::view(DType dtype, Dims dims, Storage storage) {
  Tensor t;
  t.dtype_ = dtype;
  t.dims_ = std::move(dims);
  t.count_ = element_count(t.dims_).value();
  TESSERA_CHECK(storage.bytes >= t.bytes(), "Tensor::view: storage is too small");
  t.data_ = storage.data;
  t.owner_ = std::move(storage.owner);
  return t;
}

Tensor Tensor::strings(Dims dims, std::vector<std::string> values) {
  Tensor t;
  t.dtype_ = DType::String;
  t.dims_ = std::move(dims);
  t.count_ = element_count(t.dims_).value();
  TESSERA_CHECK(t.count_ == static_cast<int64_t>(values.size()), "Tensor::strings: element count");
  t.strings_ = std::make_shared<std::vector<std::string>>(std::move(values));
  return t;
}

Tensor Tensor::list(std::vector<Tensor> items) {
  Tensor t;
  t.dtype_ = DType::List;
  t.count_ = static_cast<int64_t>(items.size());
  t.dims_ = {t.count_};
  t.items_ = std::make_shared<std::vector<Tensor>>(std::move(items));
  return t;
}

double Tensor::get_f64(int64_t i) const {
  if (is_float(dtype_)) return load_float(dtype_, data_, i);
  int64_t v = load_integer(dtype_, data_, i);
  return dtype_ == DType::U64 ? static_cast<double>(static_cast<uint64_t>(v)) : static_cast<double>(v);
}

int64_t Tensor::get_i64(int64_t i) const {
  return is_float(dtype_) ? f64_to_i64(load_float(dtype_, data_, i)) : load_integer(dtype_, data_, i);
}

void Tensor::set_f64(int64_t i, double v) {
  if (is_float(dtype_)) return store_float(dtype_, mutable_data(), i, v);
  if (dtype_ == DType::Bool) return store_integer(dtype_, mutable_data(), i, v != 0);
  if (dtype_ == DType::U64 && v >= 0x1p63)
    return store(mutable_data(), i, v >= 0x1p64 ? ~uint64_t{0} : static_cast<uint64_t>(v));
  store_integer(dtype_, mutable_data(), i, f64_to_i64(v));
}

void Tensor::set_i64(int64_t i, int64_t v) {
  if (!is_float(dtype_)) return store_integer(dtype_, mutable_data(), i, v);
  if (dtype_ == DType::F32) return store(mutable_data(), i, static_cast<float>(v)); // one rounding, not two
  store_float(dtype_, mutable_data(), i, static_cast<double>(v));
}

Tensor Tensor::reshaped(Dims dims) const {
  Tensor t = *this;
  t.dims_ = std::move(dims);
  TESSERA_CHECK(element_count(t.dims_).value() == count_, "Tensor::reshaped: element count");
  return t;
}

Tensor Tensor::reinterpreted(DType dtype) const {
  TESSERA_CHECK(tessera::info(dtype).bits == tessera::info(dtype_).bits && has_bytes(dtype_),
                "reinterpreted: width of the element");
  Tensor t = *this;
  t.dtype_ = dtype;
  return t;
}

} // namespace tessera
