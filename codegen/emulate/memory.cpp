#include "codegen/emulate/memory.h"
#include "base/tensor.h"
#include <algorithm>
#include <cstring>
#include <numeric>

namespace tessera::emu {

static Diagnostic bad(const tile::Kernel& kernel, const std::string& what) {
  return {ErrorCode::BadInput, "tile kernel '" + kernel.name + "': " + what};
}

Result<GlobalMemory> GlobalMemory::make(const tile::Kernel& kernel, std::span<const tile::Argument> args) {
  if (args.size() != kernel.params.size())
    return bad(kernel,
               "expected " + std::to_string(kernel.params.size()) + " arguments, got " + std::to_string(args.size()));
  constexpr uintptr_t kGap = 1 << 20, kPage = 4096;
  GlobalMemory m;
  // Overlapping arguments, such as in-place ones, become one region.
  std::vector<size_t> order;
  for (size_t i = 0; i < args.size(); ++i)
    if (kernel.params[i].type.kind == tile::Type::Kind::Pointer) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return args[a].bytes.data() < args[b].bytes.data(); });
  struct Group {
    std::vector<size_t> params;
    std::byte *begin, *end; // in the caller's memory
    uintptr_t offset = 0;   // in pages_
  };
  std::vector<Group> groups;
  for (size_t i : order) {
    auto span = args[i].bytes;
    if (!groups.empty() && !span.empty() && span.data() < groups.back().end) {
      groups.back().params.push_back(i);
      groups.back().end = std::max(groups.back().end, span.data() + span.size());
    } else {
      groups.push_back({{i}, span.data(), span.data() + span.size()});
    }
  }
  uintptr_t at = kGap;
  for (auto& g : groups) {
    if (g.params.size() == 1) {
      auto alignment = static_cast<uintptr_t>(std::max<int64_t>(1, kernel.params[g.params[0]].alignment));
      g.offset = (at + 2 * alignment - 1) / (2 * alignment) * (2 * alignment) + alignment;
    } else { // the caller's offset in a page
      g.offset = (at + kPage - 1) / kPage * kPage + reinterpret_cast<uintptr_t>(g.begin) % kPage;
    }
    at = g.offset + static_cast<uintptr_t>(g.end - g.begin) + kGap;
  }
  TESSERA_ASSIGN(m.pages_, Pages::reserve(at));

  m.values_.resize(args.size());
  for (const auto& g : groups) {
    Region r;
    r.begin = m.pages_.data() + g.offset;
    r.bytes = g.end - g.begin;
    bool invariant = false;
    if (r.bytes) std::memcpy(r.begin, g.begin, static_cast<size_t>(r.bytes));
    for (size_t i : g.params) {
      auto span = args[i].bytes;
      auto* to = r.begin + (span.data() - g.begin);
      r.written = r.written || kernel.params[i].written;
      r.names += (r.names.empty() ? "%" : ", %") + kernel.params[i].name;
      invariant = invariant || kernel.params[i].invariant;
      if (kernel.params[i].written) m.copies_.push_back({span.data(), to, span.size()});
      m.values_[i] = reinterpret_cast<uint64_t>(to);
    }
    if (invariant && r.written)
      return bad(kernel, r.names + " overlap: one is written although another is marked invariant");
    r.history_start = m.written_bytes_;
    if (r.written) m.written_bytes_ += (r.bytes + 15) / 16 * 16;
    m.regions_.push_back(std::move(r));
  }
  for (size_t i = 0; i < args.size(); ++i) {
    const auto& p = kernel.params[i];
    if (p.type.kind == tile::Type::Kind::Pointer) {
      int64_t promised = p.elements;
      for (size_t n = 0; n < args.size(); ++n)
        if (kernel.params[n].value == p.elements_value) promised = args[n].scalar.i;
      if (static_cast<int64_t>(args[i].bytes.size()) < promised * (info(p.type.dtype).bits / 8))
        return bad(kernel,
                   "argument '" + p.name + "' has fewer than the " + std::to_string(promised) + " promised elements");
      continue;
    }
    if (p.multiple_of > 1 && args[i].scalar.i % p.multiple_of != 0)
      return bad(kernel, "argument '" + p.name + "' is not a multiple of " + std::to_string(p.multiple_of));
    TESSERA_ASSIGN(auto scalar, Tensor::create(p.type.dtype, {1}));
    if (is_float(p.type.dtype))
      scalar.set_f64(0, args[i].scalar.f);
    else
      scalar.set_i64(0, args[i].scalar.i);
    std::memcpy(&m.values_[i], scalar.data(), std::min(scalar.bytes(), sizeof(uint64_t)));
  }
  return m;
}

void GlobalMemory::copy_back() const {
  for (const auto& c : copies_)
    if (c.bytes) std::memcpy(c.from, c.to, c.bytes);
}

const Region* GlobalMemory::find(const std::byte* address) const {
  for (const auto& r : regions_)
    if (address >= r.begin && address < r.begin + r.bytes) return &r;
  return nullptr;
}

std::string GlobalMemory::describe(const std::byte* address) const {
  const Region* nearest = nullptr;
  int64_t distance = 0;
  for (const auto& r : regions_) {
    int64_t d = address < r.begin ? r.begin - address : address - (r.begin + r.bytes);
    if (!nearest || d < distance) {
      nearest = &r;
      distance = d;
    }
  }
  if (!nearest) return "there are no pointer arguments";
  return std::to_string(distance) + " bytes " + (address < nearest->begin ? "before" : "behind") + " " +
         nearest->names + " of " + std::to_string(nearest->bytes) + " bytes";
}

std::vector<void*> GlobalMemory::launch_arguments(IndexReport*& report) {
  std::vector<void*> out;
  for (auto& v : values_) out.push_back(&v);
  out.push_back(static_cast<void*>(&report));
  return out;
}

} // namespace tessera::emu
