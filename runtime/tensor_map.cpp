#include "runtime/tensor_map.h"
#include <algorithm>

namespace tessera {

constexpr int kMaxRank = kTensorMapRank, kMaxBox = 256, kMaxStep = 8;

std::string refusal(const TensorMapOf<int64_t>& map, int64_t bytes) {
  constexpr int64_t kMaxDim = int64_t{1} << 32, kMaxStride = int64_t{1} << 40;
  constexpr int kUnit = 16;
  const int element = info(map.dtype).bits / 8;
  const size_t rank = map.dims.size();
  if (rank < 1 || rank > kMaxRank || map.strides.size() + 1 != rank || map.box.size() != rank ||
      (!map.steps.empty() && map.steps.size() != rank))
    return "it has " + std::to_string(rank) + " dimensions, " + std::to_string(map.strides.size()) + " strides and " +
           std::to_string(map.box.size()) + " extents of a box";
  if (element < 1 || element > 8) return "its elements are " + std::string(name(map.dtype));
  if (map.swizzle > Swizzle::Bytes128) return "its swizzle does not exist";
  for (size_t i = 0; i < rank; ++i) {
    if (map.dims[i] < 1 || map.dims[i] > kMaxDim) return "a dimension has " + std::to_string(map.dims[i]) + " elements";
    if (map.box[i] < 1 || map.box[i] > kMaxBox) return "its box has " + std::to_string(map.box[i]) + " elements";
    const int step = map.step(i);
    if (step < 1 || step > (i == 0 ? 1 : kMaxStep) || map.box[i] * step > kMaxBox)
      return "its box has " + std::to_string(map.box[i]) + " elements at steps of " + std::to_string(step);
    if (i > 0 && (map.strides[i - 1] < 0 || map.strides[i - 1] >= kMaxStride || map.strides[i - 1] % kUnit != 0))
      return "a stride is " + std::to_string(map.strides[i - 1]) + " bytes";
  }
  const int row = map.box[0] * element, most = swizzle_bytes(map.swizzle);
  if (row % kUnit != 0 || (most > 0 && row > most)) return "a row of its box has " + std::to_string(row) + " bytes";
  if (map.offset < 0 || map.offset % kUnit != 0 || map.offset > bytes)
    return "it begins at byte " + std::to_string(map.offset) + " of " + std::to_string(bytes);
  // 2^32 elements times 2^40 bytes need more than 64 bits.
  int64_t room = bytes - map.offset; // behind what has been added up
  auto take = [&](int64_t count, int64_t stride) {
    if (stride > 0 && count > room / stride) return false;
    room -= count * stride;
    return true;
  };
  bool inside = take(map.dims[0], element);
  for (size_t i = 1; i < rank; ++i) inside = inside && take(map.dims[i] - 1, map.strides[i - 1]);
  if (!inside) return "its last element lies behind the " + std::to_string(bytes) + " bytes of the buffer";
  return "";
}

std::vector<int64_t> flatten(std::span<const KernelTensorMap> maps) {
  std::vector<int64_t> out;
  auto size = [&](const ParameterProduct& p) {
    out.push_back(p.factor);
    out.push_back(static_cast<int64_t>(p.params.size()));
    out.insert(out.end(), p.params.begin(), p.params.end());
  };
  for (const auto& m : maps) {
    for (const int v : {m.buffer, static_cast<int>(m.dtype), static_cast<int>(m.swizzle), m.rank()}) out.push_back(v);
    size(m.offset);
    for (const auto& n : m.dims) size(n);
    for (const auto& n : m.strides) size(n);
    out.insert(out.end(), m.box.begin(), m.box.end());
    for (size_t i = 0; i < m.box.size(); ++i) out.push_back(m.step(i));
  }
  return out;
}

std::optional<std::vector<KernelTensorMap>> unflatten(std::span<const int64_t> numbers) {
  constexpr int64_t kMaxIndex = 1 << 16;
  bool good = true;
  auto next = [&](int64_t below) -> int64_t { // from 0 on
    if (!good || numbers.empty() || numbers[0] < 0 || numbers[0] >= below) {
      good = false;
      return 0;
    }
    const int64_t v = numbers[0];
    numbers = numbers.subspan(1);
    return v;
  };
  auto size = [&] {
    ParameterProduct p{next(INT64_MAX), {}};
    for (int64_t count = next(kMaxIndex); good && count > 0; --count)
      p.params.push_back(static_cast<int>(next(kMaxIndex)));
    return p;
  };
  std::vector<KernelTensorMap> maps;
  while (good && !numbers.empty()) {
    KernelTensorMap m;
    m.buffer = static_cast<int>(next(kMaxIndex));
    m.dtype = static_cast<DType>(next(kDTypeCount));
    m.swizzle = static_cast<Swizzle>(next(static_cast<int64_t>(Swizzle::Bytes128) + 1));
    const int64_t rank = next(kMaxRank + 1);
    m.offset = size();
    for (int64_t i = 0; i < rank; ++i) m.dims.push_back(size());
    for (int64_t i = 1; i < rank; ++i) m.strides.push_back(size());
    for (int64_t i = 0; i < rank; ++i) m.box.push_back(static_cast<int>(next(kMaxBox + 1)));
    for (int64_t i = 0; i < rank; ++i) m.steps.push_back(static_cast<int>(next(kMaxStep + 1)));
    if (std::all_of(m.steps.begin(), m.steps.end(), [](int step) { return step == 1; })) m.steps.clear();
    maps.push_back(std::move(m));
  }
  if (!good) return std::nullopt;
  return maps;
}

} // namespace tessera
