#include "runtime/cuda/single_kernel.h"
#include "runtime/executable.h"

namespace tessera::cuda {

Status StreamsInUse::note(CUstream stream) {
  unsigned long long id = 0;
  TESSERA_CUDA_TRY(*context_, "", cuStreamGetId, stream, &id);
  auto end = ends_.find(id);
  if (end == ends_.end()) {
    if (ends_.size() >= kMaxStreams) TESSERA_TRY(wait());
    TESSERA_ASSIGN(auto event, Event::create(context_));
    end = ends_.emplace(id, std::move(event)).first;
  }
  return end->second->record(stream);
}

Status StreamsInUse::wait() {
  for (auto& [id, end] : ends_) TESSERA_TRY(end->wait());
  ends_.clear();
  return {};
}

Result<std::unique_ptr<SingleKernel>> SingleKernel::load(std::shared_ptr<Context> context, const CodeObject& object,
                                                         bool reports, bool cooperative) {
  std::unique_ptr<SingleKernel> out(new SingleKernel(std::move(context), cooperative));
  const Context::Current current(*out->context_);
  TESSERA_TRY(current.status());
  auto executable = std::make_shared<Executable>();
  executable->target = "cuda " + object.ptx_arch;
  executable->objects.push_back(cuda::encode(object));
  out->form_.name = out->form_.symbol = object.symbol;
  out->form_.object = 0;
  out->form_.threads = object.threads;
  out->form_.shared_bytes = object.shared_bytes;
  TESSERA_ASSIGN(out->code_, LoadedExecutable::get(out->context_, std::move(executable)));
  TESSERA_ASSIGN(out->function_, out->code_->function(out->form_));
  if (reports) TESSERA_TRY(out->make_report());
  return out;
}

SingleKernel::~SingleKernel() {
  const Context::Current current(*context_);
  (void)in_use_.wait(); // a context that is lost runs nothing
  code_ = nullptr;
  report_ = nullptr;
}

Status SingleKernel::make_report() {
  void* memory = nullptr;
  TESSERA_CUDA_TRY(*context_, "", cuMemHostAlloc, &memory, sizeof(IndexReport),
                   CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  report_ = std::shared_ptr<IndexReport>(static_cast<IndexReport*>(memory), [context = context_](IndexReport* of_host) {
    const Context::Current current(*context);
    (void)context->driver().cuMemFreeHost(of_host);
  });
  *report_ = IndexReport();
  TESSERA_CUDA_TRY(*context_, "", cuMemHostGetDevicePointer, &report_address_, memory, 0);
  return {};
}

Result<std::optional<IndexReport>> SingleKernel::take_report() {
  if (!report_ || !is_complete(*report_)) return std::optional<IndexReport>();
  const std::lock_guard lock(mutex_);
  const Context::Current current(*context_);
  TESSERA_TRY(current.status());
  TESSERA_TRY(in_use_.wait()); // a kernel that runs may be writing
  const IndexReport found = *report_;
  *report_ = IndexReport();
  return std::optional(found);
}

Status SingleKernel::encode(std::span<const uint64_t> arguments, std::span<const TensorMapOf<int64_t>> maps) {
  maps_.resize(maps.size());
  for (size_t i = 0; i < maps.size(); ++i) {
    auto* buffer = reinterpret_cast<std::byte*>(arguments[static_cast<size_t>(maps[i].buffer)]);
    const CUresult result = maps_[i].encode(context_->driver(), maps[i], buffer);
    if (result != CUDA_SUCCESS)
      return context_->error(result, "cuTensorMapEncodeTiled", "launching '" + form_.name + "'");
  }
  return {};
}

Status SingleKernel::launch(const Grid& grid, std::span<const uint64_t> arguments,
                            std::span<const TensorMapOf<int64_t>> maps, CUstream stream) {
  const std::lock_guard lock(mutex_);
  const Context::Current current(*context_);
  TESSERA_TRY(current.status());
  TESSERA_TRY(context_->usable());
  TESSERA_ASSIGN(const auto capture, context_->capture_of(stream));
  if (capture) {
    TESSERA_ASSIGN(const auto calls, CapturedCalls::of(*context_));
    TESSERA_ASSIGN(const auto holding, calls->holding(*capture, stream, this, account_));
    holding->begin({code_, report_});
  }
  TESSERA_TRY(encode(arguments, maps));
  parameters_.clear();
  // The driver reads the values before it returns.
  for (const uint64_t& word : arguments) parameters_.push_back(const_cast<uint64_t*>(&word));
  parameters_.push_back(&report_address_);
  for (EncodedMap& map : maps_) parameters_.push_back(map.data());
  const auto x = static_cast<unsigned>(grid[0]), y = static_cast<unsigned>(grid[1]), z = static_cast<unsigned>(grid[2]);
  const auto threads = static_cast<unsigned>(form_.threads), shared = static_cast<unsigned>(form_.shared_bytes);
  if (cooperative_)
    TESSERA_CUDA_TRY(*context_, form_.name, cuLaunchCooperativeKernel, function_, x, y, z, threads, 1, 1, shared,
                     stream, parameters_.data());
  else
    TESSERA_CUDA_TRY(*context_, form_.name, cuLaunchKernel, function_, x, y, z, threads, 1, 1, shared, stream,
                     parameters_.data(), nullptr);
  return capture ? Status() : in_use_.note(stream);
}

} // namespace tessera::cuda
