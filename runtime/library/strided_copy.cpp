#include "runtime/library/strided_copy.h"
#include <algorithm>
#include <cstring>
#include <vector>

namespace tessera {
namespace {
struct Dim {
  int64_t size, to, from;
};

// Few channels that come from planes, as in an image that becomes channels-last: no inner loop.
template <int kCount, class T>
void interleave(T* to, const T* from, int64_t plane, int64_t step, int64_t size) {
  for (int64_t i = 0; i < size; ++i)
    for (int k = 0; k < kCount; ++k) to[i * step + k] = from[k * plane + i];
}

// Two innermost dims: `a` runs along the target, `b` along the source.
template <class T>
void copy_2d(T* to, const T* from, const Dim& a, const Dim& b) {
  if (a.to == 1 && a.from == 1) {
    for (int64_t i = 0; i < b.size; ++i)
      std::memcpy(to + i * b.to, from + i * b.from, static_cast<size_t>(a.size) * sizeof(T));
    return;
  }
  if (a.to == 1 && b.from == 1 && a.size >= 2 && a.size <= 4) {
    if (a.size == 2) interleave<2>(to, from, a.from, b.to, b.size);
    if (a.size == 3) interleave<3>(to, from, a.from, b.to, b.size);
    if (a.size == 4) interleave<4>(to, from, a.from, b.to, b.size);
    return;
  }
  constexpr int64_t kTile = 16; // 16 x 16 elements: at most 16 cache lines on each side
  for (int64_t i0 = 0; i0 < b.size; i0 += kTile)
    for (int64_t j0 = 0; j0 < a.size; j0 += kTile) {
      int64_t i1 = std::min(i0 + kTile, b.size), j1 = std::min(j0 + kTile, a.size);
      for (int64_t i = i0; i < i1; ++i) {
        T* t = to + i * b.to;
        const T* f = from + i * b.from;
        for (int64_t j = j0; j < j1; ++j) t[j * a.to] = f[j * a.from];
      }
    }
}

template <class T>
void copy(T* to, const T* from, std::span<const int64_t> dims, std::span<const int64_t> to_strides,
          std::span<const int64_t> from_strides) {
  constexpr size_t kFixed = 12; // tensors of convolutions and products have few dims; more go to the heap
  Dim fixed[kFixed];
  std::vector<Dim> many;
  Dim* d = fixed;
  if (dims.size() + 2 > kFixed) {
    many.resize(dims.size() + 2);
    d = many.data();
  }
  size_t n = 0;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 0) return;
    if (dims[i] == 1) continue;
    Dim next{dims[i], to_strides[i], from_strides[i]};
    // A dim that continues the one before it on both sides is the same dim.
    if (n > 0 && d[n - 1].to == next.to * next.size && d[n - 1].from == next.from * next.size)
      d[n - 1] = {d[n - 1].size * next.size, next.to, next.from};
    else
      d[n++] = next;
  }
  while (n < 2) d[n++] = {1, 1, 1};
  // Innermost: smallest stride of the target; next to it the smallest stride of the source among the others.
  auto smallest = [&](size_t end, auto key) {
    size_t best = 0;
    for (size_t i = 1; i < end; ++i)
      if (d[i].size > 1 && (d[best].size == 1 || key(d[i]) <= key(d[best]))) best = i;
    return best;
  };
  std::swap(d[n - 1], d[smallest(n, [](const Dim& x) { return std::abs(x.to); })]);
  std::swap(d[n - 2], d[smallest(n - 1, [](const Dim& x) { return std::abs(x.from); })]);
  int64_t fixed_index[kFixed] = {};
  std::vector<int64_t> many_index;
  int64_t* index = fixed_index;
  if (n > kFixed) {
    many_index.resize(n);
    index = many_index.data();
  }
  for (;;) {
    copy_2d(to, from, d[n - 1], d[n - 2]);
    size_t k = n - 2;
    for (; k > 0; --k) {
      auto& dim = d[k - 1];
      to += dim.to;
      from += dim.from;
      if (++index[k - 1] < dim.size) break;
      to -= dim.to * dim.size;
      from -= dim.from * dim.size;
      index[k - 1] = 0;
    }
    if (k == 0) return;
  }
}
} // namespace

void strided_copy(float* to, const float* from, std::span<const int64_t> dims, std::span<const int64_t> to_strides,
                  std::span<const int64_t> from_strides) {
  copy(to, from, dims, to_strides, from_strides);
}
void strided_copy(uint16_t* to, const uint16_t* from, std::span<const int64_t> dims,
                  std::span<const int64_t> to_strides, std::span<const int64_t> from_strides) {
  copy(to, from, dims, to_strides, from_strides);
}

} // namespace tessera
