#include "codegen/device/cuda/copied_weights.h"
#include "graph/ir/operator.h"
#include <cstring>
#include <map>
#include <mutex>

namespace tessera {
namespace {

// Writes the part into a dense tensor of `dims`, from position `at` of `axis` on.
void put(std::byte* to, const Dims& dims, const Tensor& part, size_t axis, int64_t at) {
  const auto element = static_cast<size_t>(info(part.dtype()).bits / 8);
  const Dims& extents = part.dims();
  if (part.count() == 0) return;
  const size_t last = dims.size() - 1;
  const size_t run = static_cast<size_t>(extents[last]) * element;
  const std::byte* from = part.data();
  Dims row(dims.size(), 0);
  for (;;) {
    int64_t position = 0;
    for (size_t d = 0; d < dims.size(); ++d) position = position * dims[d] + row[d] + (d == axis ? at : 0);
    std::memcpy(to + static_cast<size_t>(position) * element, from, run);
    from += run;
    size_t d = last;
    while (d > 0 && ++row[d - 1] == extents[d - 1]) row[--d] = 0;
    if (d == 0) return;
  }
}

} // namespace

const Tensor* constant_tensor(const Graph& graph, ValueId value) {
  const Node* node = graph.producer(value);
  const auto* structured = node ? node->op->structured() : nullptr;
  if (!structured || structured->kind != Structured::Constant) return nullptr;
  return node->attributes.get<Tensor>("value");
}

Result<Tensor> copied_weights(const std::vector<Tensor>& parts, size_t axis, Dims dims) {
  struct Copy {
    std::shared_ptr<std::byte> bytes;
    std::vector<Tensor> parts; // owned, so that their addresses are not reused
  };
  using Key = std::tuple<std::vector<std::pair<const std::byte*, Dims>>, size_t, Dims>;
  static std::mutex mutex;
  static std::map<Key, std::weak_ptr<const Copy>> made;

  const DType dtype = parts[0].dtype();
  TESSERA_ASSIGN(const int64_t count, element_count(dims));
  const auto bytes = static_cast<size_t>(byte_size(dtype, count));
  Key key{{}, axis, dims};
  bool known = true;
  for (const Tensor& part : parts) {
    known = known && has_data(part);
    std::get<0>(key).emplace_back(part.data(), part.dims());
  }
  if (!known) return Tensor::view(dtype, std::move(dims), {nullptr, nullptr, bytes});

  std::lock_guard lock(mutex);
  std::erase_if(made, [](const auto& entry) { return entry.second.expired(); });
  auto& entry = made[key];
  auto copy = entry.lock();
  if (!copy) {
    TESSERA_ASSIGN(auto block, allocate_bytes(bytes, true));
    int64_t at = 0;
    for (const Tensor& part : parts) {
      put(block.get(), dims, part, axis, at);
      at += part.dims()[axis];
    }
    copy = std::make_shared<const Copy>(Copy{std::move(block), parts});
    entry = copy;
  }
  const std::byte* data = copy->bytes.get();
  return Tensor::view(dtype, std::move(dims), {std::move(copy), data, bytes});
}

} // namespace tessera
