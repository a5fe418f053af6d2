#include "runtime/library/conv_primitives.h"
#include <algorithm>
#include <cstdlib>
#include <map>

namespace tessera {

void channels_last(std::span<const int64_t> dims, std::span<int64_t> strides) {
  int64_t at = std::max<int64_t>(dims[1], 1);
  strides[1] = 1;
  for (size_t d = dims.size(); d-- > 2;) {
    strides[d] = at;
    at *= std::max<int64_t>(dims[d], 1);
  }
  strides[0] = at;
}
Dims channels_last(const Dims& dims) {
  Dims strides(dims.size());
  channels_last(dims, strides);
  return strides;
}

namespace {

using Md = dnnl::memory::desc;
constexpr auto kF32 = dnnl::memory::data_type::f32;

// oneDNN's own cache would keep what no plan uses any longer. A capacity that the user set stays.
void leave_cache_to_plans() {
  [[maybe_unused]] static const bool once = [] {
    for (const char* name : {"ONEDNN_PRIMITIVE_CACHE_CAPACITY", "DNNL_PRIMITIVE_CACHE_CAPACITY"})
      if (std::getenv(name) != nullptr) return false;
    dnnl_set_primitive_cache_capacity(0);
    return true;
  }();
}

// The description of a primitive by oneDNN, before code is generated.
struct Described {
  ConvSizes sizes;
  std::optional<dnnl::convolution_forward::primitive_desc> forward;
  std::optional<dnnl::deconvolution_forward::primitive_desc> transposed;

  [[nodiscard]] Md weights() const { return transposed ? transposed->weights_desc() : forward->weights_desc(); }
  [[nodiscard]] Md scratchpad() const {
    return transposed ? transposed->scratchpad_desc() : forward->scratchpad_desc();
  }
  [[nodiscard]] std::string implementation() const {
    return transposed ? transposed->impl_info_str() : forward->impl_info_str();
  }
  [[nodiscard]] dnnl::primitive generate() const {
    if (transposed) return dnnl::deconvolution_forward(*transposed);
    return dnnl::convolution_forward(*forward);
  }
  [[nodiscard]] bool has_pads() const {
    const auto any = [](const Dims& pads) {
      return std::any_of(pads.begin(), pads.end(), [](int64_t v) { return v > 0; });
    };
    return any(sizes.pads_begin) || any(sizes.pads_end);
  }
  // Measured with oneDNN 2.6 on AVX-512: batch-reduced products are generated for each number of rows up to a block's.
  [[nodiscard]] int64_t bytes() const {
    const std::string how = implementation();
    if (!how.starts_with("brgconv:")) return 48 << 10;
    const int64_t width = sizes.y.back() > 1 || sizes.y.size() < 4 ? sizes.y.back() : sizes.y[sizes.y.size() - 2];
    const int64_t channels = sizes.x[1] / sizes.groups;
    const int64_t row = 512 + channels * 4;
    int64_t dilated = 1;
    for (size_t d = 0; d < sizes.dilations.size(); ++d)
      if (sizes.dilations[d] > 1 && (sizes.pads_begin[d] > 0 || sizes.pads_end[d] > 0)) dilated = 3;
    return (40 << 10) + std::min<int64_t>(width, 4096) * row * dilated;
  }
};

// Nothing: oneDNN has no implementation that is right. Throws dnnl::error where memory runs out.
std::optional<Described> describe(const ConvSizes& sizes) {
  using namespace dnnl;
  leave_cache_to_plans();
  const Md x(sizes.x, kF32, channels_last(sizes.x)), y(sizes.y, kF32, channels_last(sizes.y)),
      w(sizes.w, kF32, memory::format_tag::any);
  Dims dilations = sizes.dilations;
  for (auto& d : dilations) --d;
  primitive_attr attributes = onednn_attributes();
  Described out;
  out.sizes = sizes;
  try {
    if (sizes.transposed) {
      const deconvolution_forward::desc desc(prop_kind::forward_inference, algorithm::deconvolution_direct, x, w, y,
                                             sizes.strides, dilations, sizes.pads_begin, sizes.pads_end);
      out.transposed.emplace(desc, attributes, onednn_engine());
    } else {
      const convolution_forward::desc desc(prop_kind::forward_inference, algorithm::convolution_direct, x, w, y,
                                           sizes.strides, dilations, sizes.pads_begin, sizes.pads_end);
      out.forward.emplace(desc, attributes, onednn_engine());
    }
  } catch (const error& e) {
    if (e.status == dnnl_out_of_memory) throw;
    return std::nullopt;
  }
  if (!sizes.transposed && out.has_pads() && out.implementation().starts_with("ref")) return std::nullopt;
  return out;
}

Result<std::shared_ptr<const ConvPrimitive>> generate(const Described& described, MemoryAccount& account, int64_t& made,
                                                      const std::string& name) {
  auto out = std::make_shared<ConvPrimitive>();
  out->bytes = described.bytes();
  TESSERA_ASSIGN(out->counted, account.hold(MemoryAccount::Where::Host, out->bytes, "generated code of a convolution"));
  TESSERA_TRY(room_for_code());
  if (described.implementation().find("gemm") != std::string::npos) TESSERA_TRY(generate_product_code());
  try {
    out->primitive = described.generate();
  } catch (const dnnl::error& e) {
    if (e.status != dnnl_out_of_memory) return std::shared_ptr<const ConvPrimitive>();
    return Diagnostic(ErrorCode::OutOfMemory, "convolution '" + name + "': " + e.what());
  }
  out->x = Md(described.sizes.x, kF32, channels_last(described.sizes.x));
  out->y = Md(described.sizes.y, kF32, channels_last(described.sizes.y));
  out->w = described.weights();
  out->scratchpad = described.scratchpad();
  made += out->bytes;
  return std::shared_ptr<const ConvPrimitive>(std::move(out));
}

// Objects that several plans use, found by a key for as long as one of them lives.
template <class Key, class Value>
class Shared {
public:
  template <class... Arguments>
  std::shared_ptr<Value> of(const Key& key, Arguments&&... arguments) {
    std::lock_guard lock(mutex_);
    auto& entry = entries_[key];
    auto found = entry.lock();
    if (!found) {
      constexpr size_t kSweep = 256;
      entry = found = std::make_shared<Value>(std::forward<Arguments>(arguments)...);
      if (++since_sweep_ % kSweep == 0) std::erase_if(entries_, [](const auto& e) { return e.second.expired(); });
    }
    return found;
  }

private:
  std::mutex mutex_;
  std::map<Key, std::weak_ptr<Value>> entries_;
  size_t since_sweep_ = 0;
};

// A primitive, once somebody has needed it.
struct Slot {
  std::mutex mutex; // held while code is generated: who needs the same waits for it
  std::shared_ptr<const ConvPrimitive> primitive;
};

Diagnostic out_of_memory(const dnnl::error& e, const std::string& name) {
  return {ErrorCode::OutOfMemory, "convolution '" + name + "': " + e.what()};
}

} // namespace

Result<std::shared_ptr<const ConvPrimitive>> conv_primitive(const ConvSizes& sizes, MemoryAccount& account,
                                                            int64_t& made, const std::string& name) {
  static auto* const all = new Shared<ConvSizes, Slot>;
  const std::shared_ptr<Slot> slot = all->of(sizes);
  std::lock_guard lock(slot->mutex);
  if (!slot->primitive) {
    try {
      const auto described = describe(sizes);
      if (!described) return std::shared_ptr<const ConvPrimitive>();
      TESSERA_ASSIGN(slot->primitive, generate(*described, account, made, name));
    } catch (const dnnl::error& e) {
      return out_of_memory(e, name);
    }
    if (!slot->primitive) return std::shared_ptr<const ConvPrimitive>();
  }
  return std::shared_ptr<const ConvPrimitive>(slot, slot->primitive.get());
}

std::shared_ptr<ConvBlockRows> ConvBlockRows::of(const ConvSizes& sizes, size_t dim) {
  static auto* const all = new Shared<std::pair<ConvSizes, size_t>, ConvBlockRows>;
  return all->of({sizes, dim}, sizes, dim);
}

int64_t ConvBlockRows::input_rows(int64_t rows) const {
  const size_t kernel = sizes_.w.size() - sizes_.x.size() + dim_;
  return (rows - 1) * sizes_.strides[dim_ - 2] + (sizes_.w[kernel] - 1) * sizes_.dilations[dim_ - 2] + 1;
}

ConvSizes ConvBlockRows::at(size_t i) const {
  ConvSizes sizes = sizes_;
  sizes.y[dim_] = kRows[i];
  sizes.x[dim_] = input_rows(kRows[i]);
  return sizes;
}

bool ConvBlockRows::usable(size_t i) {
  std::lock_guard lock(mutex_);
  return is_usable(i);
}

bool ConvBlockRows::is_usable(size_t i) {
  if (states_[i] != State::Unknown) return states_[i] == State::Usable;
  if (i != kFormat && !is_usable(kFormat)) return false;
  const auto described = describe(at(i));
  const bool usable = described && !described->implementation().starts_with("ref") &&
                      (i == kFormat || described->weights() == weights_);
  if (usable && i == kFormat) weights_ = described->weights();
  states_[i] = usable ? State::Usable : State::Refused;
  return usable;
}

Result<std::shared_ptr<const ConvPrimitive>> ConvBlockRows::primitive(size_t i, MemoryAccount& account, int64_t& made,
                                                                      const std::string& name) {
  std::lock_guard lock(mutex_);
  try {
    if (!made_[i] && is_usable(i)) {
      const auto described = describe(at(i));
      if (!described) return std::shared_ptr<const ConvPrimitive>();
      TESSERA_ASSIGN(made_[i], generate(*described, account, made, name));
      if (!made_[i]) states_[i] = State::Refused;
    }
  } catch (const dnnl::error& e) {
    return out_of_memory(e, name);
  }
  return made_[i];
}

} // namespace tessera
