// Tensor: host data with concrete sizes, contiguous and row-major. Shared, immutable once published; may view a mapped
// file.
#pragma once
#include "base/dtype.h"
#include "base/result.h"
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tessera {

using Dims = std::vector<int64_t>;

// Product of dims; error SizeOverflow when it exceeds 2^55 elements (so that bytes of any dtype fit 62 bits) or a
// dimension is negative. A zero anywhere makes it 0, whatever the others are.
[[nodiscard]] Result<int64_t> element_count(std::span<const int64_t> dims);

// Bytes with an owner: heap block, mapped file region or borrowed memory. The owner keeps the memory alive.
struct Storage {
  std::shared_ptr<const void> owner;
  const std::byte* data = nullptr;
  size_t bytes = 0;
};
// 64-byte aligned heap block, zero-filled when `zero`. Error OutOfMemory.
[[nodiscard]] Result<std::shared_ptr<std::byte>> allocate_bytes(size_t bytes, bool zero = false);

class Tensor {
public:
  // Out of line, as in every class of many members: code that copies and destroys one is large, and it is everywhere.
  Tensor();
  Tensor(const Tensor&);
  Tensor(Tensor&&) noexcept;
  Tensor& operator=(const Tensor&);
  Tensor& operator=(Tensor&&) noexcept;
  ~Tensor();
  // Allocates; contents undefined unless `zero`.
  static Result<Tensor> create(DType dtype, Dims dims, bool zero = false);
  // Takes part in `storage` (no copy). storage.bytes must be at least byte_size(dtype, count).
  static Tensor view(DType dtype, Dims dims, Storage storage);
  static Tensor strings(Dims dims, std::vector<std::string> values);
  // A List, of dims {items.size()}: a sequence; an optional, of one item or none; a map, of its keys and its values.
  static Tensor list(std::vector<Tensor> items);
  template <class T>
  static Tensor of(DType dtype, Dims dims, std::span<const T> values);

  // A default-constructed tensor is undefined; one of no elements is not (it has a dimension of 0).
  [[nodiscard]] bool defined() const {
    return data_ != nullptr || strings_ != nullptr || items_ != nullptr || (count_ == 0 && !dims_.empty());
  }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] const Dims& dims() const { return dims_; }
  [[nodiscard]] int64_t count() const { return count_; }
  [[nodiscard]] size_t bytes() const { return static_cast<size_t>(byte_size(dtype_, count_)); }
  [[nodiscard]] const std::byte* data() const { return data_; }
  // Only for a tensor that this code has just created with create().
  [[nodiscard]] std::byte* mutable_data() { return const_cast<std::byte*>(data_); }
  template <class T>
  [[nodiscard]] std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data_), static_cast<size_t>(count_)};
  }
  template <class T>
  [[nodiscard]] std::span<T> mutable_as() {
    return {reinterpret_cast<T*>(mutable_data()), static_cast<size_t>(count_)};
  }
  [[nodiscard]] const std::vector<std::string>& string_values() const { return *strings_; }
  [[nodiscard]] const std::vector<Tensor>& items() const { return *items_; } // of a List
  [[nodiscard]] const std::shared_ptr<const void>& owner() const { return owner_; }

  // Element i as double or int64 (bool as 0/1; any dtype but String, List and complex), and the inverse (rounded, wrapped as
  // a C cast would).
  [[nodiscard]] double get_f64(int64_t i) const;
  [[nodiscard]] int64_t get_i64(int64_t i) const;
  void set_f64(int64_t i, double v);
  void set_i64(int64_t i, int64_t v);
  // Same data, other dims of the same count.
  [[nodiscard]] Tensor reshaped(Dims dims) const;
  // Same bits, other dtype of the same width: what read_npy() yields for types that numpy does not have.
  [[nodiscard]] Tensor reinterpreted(DType dtype) const;

private:
  DType dtype_ = DType::F32;
  Dims dims_;
  int64_t count_ = 0;
  const std::byte* data_ = nullptr;
  std::shared_ptr<const void> owner_;
  std::shared_ptr<const std::vector<std::string>> strings_;
  std::shared_ptr<const std::vector<Tensor>> items_;
};

// .npy files (version 1 to 3, either byte order; Fortran order is transposed on reading). bf16 and fp8 are stored as
// raw unsigned integers; 4-bit and 2-bit types as one unsigned byte an element. `as` names the dtype that such a file
// holds, and otherwise changes nothing: a file of another type keeps its own.
[[nodiscard]] Result<Tensor> read_npy(const std::string& path);
[[nodiscard]] Result<Tensor> read_npy(const std::string& path, DType as);
[[nodiscard]] Status write_npy(const std::string& path, const Tensor& tensor);

struct Comparison {
  bool same = true;      // within |a-b| <= atol + rtol*|b| everywhere, NaN equal to NaN, shapes and dtypes equal
  double norm_ratio = 0; // ||a-b|| / ||b||, 0 when both are zero, infinite where NaN or infinity differ
  double max_abs = 0;
  int64_t first_bad = -1; // flat index
  std::string message;    // what differs, for people; empty when same
};
[[nodiscard]] Comparison compare(const Tensor& actual, const Tensor& expected, double rtol, double atol);

} // namespace tessera

namespace tessera {
template <class T>
Tensor Tensor::of(DType dtype, Dims dims, std::span<const T> values) {
  Tensor t = Tensor::create(dtype, std::move(dims)).value();
  TESSERA_CHECK(t.count() == static_cast<int64_t>(values.size()), "Tensor::of: element count");
  for (int64_t i = 0; i < t.count(); ++i) {
    if constexpr (std::is_floating_point_v<T>)
      t.set_f64(i, static_cast<double>(values[i]));
    else
      t.set_i64(i, static_cast<int64_t>(values[i]));
  }
  return t;
}
} // namespace tessera
