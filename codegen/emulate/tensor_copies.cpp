#include "codegen/emulate/tensor_copies.h"
#include "codegen/emulate/cluster.h"
#include "runtime/empty_tensor_map.h"
#include <cstring>

namespace tessera::emu {

Result<TensorMap> TensorMap::make(const KernelTensorMap& map, const tile::Kernel& kernel,
                                  std::span<const tile::Argument> args, const GlobalMemory& memory) {
  TensorMap made;
  made.sizes = map.convert([&](const ParameterProduct& p) {
    int64_t value = p.factor;
    for (const int i : p.params) value *= args[static_cast<size_t>(i)].scalar.i;
    return value;
  });
  const auto buffer = static_cast<size_t>(map.buffer);
  if (is_empty(made.sizes)) return made;
  const auto why = refusal(made.sizes, static_cast<int64_t>(args[buffer].bytes.size()));
  if (!why.empty())
    return Diagnostic(ErrorCode::BadInput, "tile kernel '" + kernel.name + "': the tensor map of argument '" +
                                               kernel.params[buffer].name + "' is not possible: " + why);
  made.begin = memory.pointer(buffer) + made.sizes.offset;
  if (reinterpret_cast<uintptr_t>(made.begin) % 16 != 0)
    return Diagnostic(ErrorCode::BadInput, "tile kernel '" + kernel.name + "': argument '" +
                                               kernel.params[buffer].name +
                                               "' has a tensor map and is not aligned to 16");
  const auto* region = memory.find(made.begin);
  made.written = region && region->written;
  return made;
}

// Calls f(offset in shared memory, address or null) for each element of the box; null outside of the tensor.
template <class F>
static void each_element(const TensorMap& map, const std::array<int64_t, 5>& at, int64_t offset, F f) {
  const auto& m = map.sizes;
  const int64_t element = info(m.dtype).bits / 8, count = m.box_bytes() / element;
  std::array<int64_t, 5> index{};
  for (int64_t i = 0; i < count; ++i) {
    std::byte* address = map.begin;
    bool inside = true;
    for (size_t d = 0; d < m.dims.size(); ++d) {
      const int64_t p = at[d] + index[d] * m.step(d);
      inside = inside && p >= 0 && p < m.dims[d];
      if (inside) address += p * (d == 0 ? element : m.strides[d - 1]);
    }
    f(offset + swizzled(m.swizzle, i * element), inside ? address : nullptr);
    for (size_t d = 0; d < m.dims.size() && ++index[d] == m.box[d]; ++d) index[d] = 0;
  }
}

void TensorCopies::begin() {
  copies_.clear();
  stores_.clear();
}

TensorCopies::Box TensorCopies::box(const Thread& t, const TensorMap& map, const int32_t* coordinates, int64_t offset) {
  Box b{&map, {}, offset};
  if (is_empty(map.sizes))
    block_.fail(t, "it copies by a tensor map without elements, which the driver does not encode");
  std::copy(coordinates, coordinates + map.sizes.rank(), b.at.begin());
  const int alignment = swizzle_alignment(map.sizes.swizzle);
  if (offset % alignment != 0)
    block_.fail(t, "the box of its tensor copy at offset " + std::to_string(offset) +
                       " of shared memory is not aligned to " + std::to_string(alignment));
  return b;
}

void TensorCopies::copy(Thread& t, int64_t offset, const TensorMap& map, const int32_t* coordinates, int64_t barrier,
                        uint32_t blocks) {
  const Box b = box(t, map, coordinates, offset);
  const int64_t bytes = map.sizes.box_bytes();
  for (int rank = 0; blocks >> rank != 0 && !block_.failed(); ++rank) {
    if ((blocks >> rank & 1) == 0) continue;
    Block* to = block_.cluster().find(t, rank);
    if (!to) return;
    const auto stamp = to->asynchronous()->mbarriers.begin_copy(t, barrier, true);
    if (!stamp) return;
    to->touch(t, offset, bytes, *stamp, order_.of(t.agent), Access::Write, Proxy::Async);
    if (block_.failed()) return;
    std::memset(to->shared_data() + offset, 0xff, static_cast<size_t>(bytes));
    copies_.push_back({t.index, to, barrier, *stamp, b, {}});
  }
  if (map.written && !block_.failed())
    each_element(map, b.at, offset, [&](int64_t, std::byte* from) {
      if (from && !block_.failed()) block_.access_global(t, from, info(map.sizes.dtype).bits / 8, Access::Read);
    });
}

void TensorCopies::arrive_after_copies(Thread& t, int64_t barrier) {
  const auto stamp = block_.asynchronous()->mbarriers.begin_copy(t, barrier, false);
  if (!stamp) return;
  for (const auto& c : t.copies) {
    order_.set_writer(block_.order_place(c.offset), c.bytes, *stamp);
    block_.copies().hand_over(c);
  }
  copies_.push_back({t.index, &block_, barrier, *stamp, {}, std::move(t.copies)});
  t.copies.clear();
  for (size_t& end : t.ends) end = 0;
}

void TensorCopies::complete_one() {
  const size_t i = block_.random() % copies_.size();
  const Copy c = std::move(copies_[i]);
  copies_.erase(copies_.begin() + static_cast<std::ptrdiff_t>(i));
  const auto& t = block_.thread(c.thread);
  auto& mbarriers = c.to->asynchronous()->mbarriers;
  if (!c.box.map) {
    for (const auto& m : c.moved) block_.copies().complete(m);
    return mbarriers.complete_arrival(t, c.barrier);
  }
  const auto bytes = static_cast<size_t>(info(c.box.map->sizes.dtype).bits / 8);
  each_element(*c.box.map, c.box.at, c.box.offset, [&](int64_t to, const std::byte* from) {
    if (from)
      std::memcpy(c.to->shared_data() + to, from, bytes);
    else
      std::memset(c.to->shared_data() + to, 0, bytes);
  });
  mbarriers.complete_copy(t, c.barrier, c.stamp, c.box.map->sizes.box_bytes());
}

void TensorCopies::store(Thread& t, const TensorMap& map, const int32_t* coordinates, int64_t offset) {
  const Box b = box(t, map, coordinates, offset);
  if (block_.failed()) return;
  auto& stores = stores_[t.index];
  if (stores.agent < 0)
    stores.agent = order_.add_agent("a tensor store of thread " + std::to_string(t.index) + block_.of_block());
  const uint32_t group = stores.committed + 1;
  block_.touch(t, offset, map.sizes.box_bytes(), {stores.agent, group}, order_.of(t.agent), Access::Read, Proxy::Async);
  stores.open.emplace_back(group, b);
}

void TensorCopies::commit(const Thread& t) {
  if (auto it = stores_.find(t.index); it != stores_.end()) ++it->second.committed;
}

void TensorCopies::wait(Thread& t, int64_t later) {
  auto it = stores_.find(t.index);
  if (it == stores_.end() || int64_t{it->second.committed} <= later) return;
  auto& stores = it->second;
  const auto last = static_cast<uint32_t>(stores.committed - later);
  for (const auto& [group, b] : stores.open) {
    if (group > last) continue;
    const int bytes = info(b.map->sizes.dtype).bits / 8;
    each_element(*b.map, b.at, b.offset, [&](int64_t from, std::byte* to) {
      if (!to || block_.failed()) return;
      block_.access_global(t, to, bytes, Access::Write);
      if (!block_.failed()) std::memcpy(to, block_.shared_data() + from, static_cast<size_t>(bytes));
    });
  }
  std::erase_if(stores.open, [&](const auto& s) { return s.first <= last; });
  order_.of(t.agent).events.advance(stores.agent, last);
}

void TensorCopies::end(const Thread& t) {
  auto it = stores_.find(t.index);
  if (it != stores_.end() && !it->second.open.empty())
    block_.fail(t, "it ends before its tensor stores have read shared memory");
}

} // namespace tessera::emu
