#include "runtime/library/conv_weights.h"
#include "runtime/library/onednn.h"
#include "runtime/library/widen.h"

namespace tessera {
namespace {

// The reorder is code of its own, which is needed once.
bool reorder(std::byte* to, const std::byte* from, const dnnl::memory::desc& plain, const dnnl::memory::desc& wanted) {
  if (!room_for_code().ok()) throw std::bad_alloc();
  try {
    const dnnl::reorder reorder(dnnl::reorder::primitive_desc(onednn_engine(), plain, onednn_engine(), wanted));
    auto source = onednn_memory(plain), target = onednn_memory(wanted);
    source.set_data_handle(const_cast<std::byte*>(from));
    target.set_data_handle(to);
    dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, source.get()}, {DNNL_ARG_TO, target.get()}};
    return dnnl_primitive_execute(reorder.get(), onednn_stream().get(), 2, args) == dnnl_success;
  } catch (const dnnl::error&) {
    return false;
  }
}

} // namespace

Result<std::shared_ptr<const PackedWeight>> want_conv_weights(PackRequests& packs, const Tensor& constant,
                                                              int64_t offset, const dnnl::memory::desc& plain,
                                                              const dnnl::memory::desc& wanted) {
  const auto text = [](const dnnl::memory::desc& desc) {
    return std::string(reinterpret_cast<const char*>(&desc.data), sizeof desc.data);
  };
  const DType dtype = constant.dtype();
  PackRequests::Job job;
  job.key = "conv " + std::string(name(dtype)) + " " + std::to_string(offset) + " " + text(plain) + text(wanted);
  job.bytes = wanted.get_size();
  job.fill = [plain, wanted, dtype, offset](std::byte* to, const std::byte* from, int) {
    if (dtype == DType::F32) return reorder(to, from + offset * static_cast<int64_t>(sizeof(float)), plain, wanted);
    std::vector<float> wide(plain.get_size() / sizeof(float)); // for the time of the reordering
    widen(wide.data(), reinterpret_cast<const uint16_t*>(from) + offset, static_cast<int64_t>(wide.size()), dtype);
    return reorder(to, reinterpret_cast<const std::byte*>(wide.data()), plain, wanted);
  };
  return packs.want(constant, std::move(job));
}

} // namespace tessera
