// Tensor maps: views of memory for the bulk tensor copies of a GPU (sm_90a and later), as the CUDA driver defines them
// (cuTensorMapEncodeTiled). A kernel states the maps that it takes with sizes as products of its parameters; a launch
// has the same maps with sizes as expressions, and its plan their values.
#pragma once
#include "base/dtype.h"
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace tessera {

// The permutation of 16-byte units within each 128 bytes of shared memory that holds a box, by the address: bits 4..6
// of it are xored with bits 7..9 (of Bytes64: bits 4..5 with 7..8; of Bytes32: bit 4 with 7). A box of shared memory is
// aligned to 8 times the bytes of its mode, 1024, 512 or 256, and without one to 128.
enum class Swizzle : uint8_t { None, Bytes32, Bytes64, Bytes128 };
// Bytes of shared memory after which the pattern repeats, which are the alignment of a box.
[[nodiscard]] constexpr int swizzle_alignment(Swizzle s) {
  return s == Swizzle::None ? 128 : 128 << static_cast<int>(s);
}
// The largest inner extent of a box, in bytes; 0: any.
[[nodiscard]] constexpr int swizzle_bytes(Swizzle s) { return s == Swizzle::None ? 0 : 16 << static_cast<int>(s); }
// The place of the byte at `offset`, where both count from an address that is aligned to swizzle_alignment.
[[nodiscard]] constexpr int64_t swizzled(Swizzle s, int64_t offset) {
  const int64_t units = s == Swizzle::None ? 0 : (int64_t{1} << static_cast<int>(s)) - 1;
  return offset ^ ((offset >> 7 & units) << 4);
}

// A map as the driver encodes it.
inline constexpr int kTensorMapBytes = 128, kTensorMapAlignment = 64;
inline constexpr int kTensorMapRank = 5; // dimensions at most

// A view of 1 to 5 dimensions, the contiguous one first. A box is copied as a dense array of shared memory, the
// contiguous dimension first, permuted as the swizzle says. Elements outside of `dims` are read as zeros and not
// written.
template <class Size>
struct TensorMapOf {
  int buffer = 0;            // the kernel's pointer parameter by index; in a launch its buffer
  DType dtype = DType::F32;  // of 1, 2, 4 or 8 bytes
  Size offset{};             // of the first element from the buffer's begin, in bytes: a multiple of 16
  std::vector<Size> dims;    // elements, each 1 to 2^32
  std::vector<Size> strides; // of all dimensions but the first, in bytes: multiples of 16 below 2^40
  std::vector<int> box;      // elements of each dimension, 1 to 256; those of the first have a multiple of 16 bytes
  Swizzle swizzle = Swizzle::None;
  // Elements of the tensor from one element of a box to the next, 1 to 8 of each dimension, 1 of the first; box * step is
  // 256 at most. Empty: all are 1.
  std::vector<int> steps;

  [[nodiscard]] int rank() const { return static_cast<int>(dims.size()); }
  [[nodiscard]] int step(size_t dimension) const { return steps.empty() ? 1 : steps[dimension]; }
  [[nodiscard]] int64_t box_bytes() const {
    int64_t elements = 1;
    for (const int n : box) elements *= n;
    return elements * (info(dtype).bits / 8);
  }
  bool operator==(const TensorMapOf&) const = default;
  // The map with f(size) in the place of each size.
  template <class F>
  [[nodiscard]] auto convert(F&& f) const {
    TensorMapOf<std::decay_t<decltype(f(offset))>> to{buffer, dtype, f(offset), {}, {}, box, swizzle, steps};
    for (const Size& n : dims) to.dims.push_back(f(n));
    for (const Size& n : strides) to.strides.push_back(f(n));
    return to;
  }
};

// Why the driver would refuse the map, or why elements of it lie behind the buffer's `bytes`; empty for a map that it
// takes.
[[nodiscard]] std::string refusal(const TensorMapOf<int64_t>& map, int64_t bytes);

// A size of a kernel's map: the factor times the i64 parameters of the kernel with these indices, which may repeat.
struct ParameterProduct {
  int64_t factor = 0;
  std::vector<int> params;
  bool operator==(const ParameterProduct&) const = default;
};
using KernelTensorMap = TensorMapOf<ParameterProduct>;
// Maps as numbers, and back; nothing where the numbers are none of flatten()'s.
[[nodiscard]] std::vector<int64_t> flatten(std::span<const KernelTensorMap> maps);
[[nodiscard]] std::optional<std::vector<KernelTensorMap>> unflatten(std::span<const int64_t> numbers);

} // namespace tessera
