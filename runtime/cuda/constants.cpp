#include "runtime/cuda/constants.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "runtime/mapped_regions.h"
#include <algorithm>

namespace tessera::cuda {
namespace {

constexpr int64_t kAlignment = 256;
constexpr size_t kPiece = size_t{64} << 20; // between reports of progress

// One allocation, freed with the last constant in it. Its users have waited for their streams by then.
class Block {
public:
  static Result<std::shared_ptr<Block>> create(std::shared_ptr<Context> context, MemoryAccount& account, int64_t bytes,
                                               CUstream stream) {
    std::shared_ptr<Block> block(new Block(std::move(context), bytes));
    TESSERA_ASSIGN(block->counted_, account.hold(MemoryAccount::Where::Device, bytes, kWhat));
    TESSERA_ASSIGN(block->address_, block->context_->allocate(bytes, stream, kWhat));
    return block;
  }
  ~Block() {
    if (!address_) return;
    Context::Current current(*context_);
    context_->release(address_, bytes_, nullptr);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  [[nodiscard]] CUdeviceptr address() const { return address_; }

private:
  Block(std::shared_ptr<Context> context, int64_t bytes) : context_(std::move(context)), bytes_(bytes) {}
  std::shared_ptr<Context> context_;
  static constexpr const char* kWhat = "the model's weights";
  int64_t bytes_;
  CUdeviceptr address_ = 0;
  std::shared_ptr<const void> counted_;
};

std::string megabytes(int64_t bytes) { return std::to_string((bytes + (1 << 19)) >> 20) + " MiB"; }

} // namespace

struct DeviceConstants::Placed {
  std::shared_ptr<const Block> block;
  CUdeviceptr address;
  Tensor source; // kept: nothing else can lie at its address
};

namespace {

// The constants on a GPU, by the host memory that they came from.
struct Store {
  explicit Store(Context&) {}
  using Key = std::pair<const std::byte*, size_t>;
  std::mutex mutex; // held while uploading: whoever needs the same constants has to wait anyway
  std::map<Key, std::weak_ptr<const DeviceConstants::Placed>> placed;
};

class Progress {
public:
  explicit Progress(int64_t total) : total_(total) {}
  void add(size_t bytes) {
    done_ += static_cast<int64_t>(bytes);
    if (!log_enabled(LogChannel::Memory) || done_ < next_) return;
    next_ = done_ + std::max<int64_t>(total_ / 10, static_cast<int64_t>(kPiece));
    double s = watch_.seconds();
    log_write(LogChannel::Memory, "weights: " + megabytes(done_) + " of " + megabytes(total_) + " on their way after " +
                                      std::to_string(s) + " s");
  }

private:
  int64_t total_, done_ = 0, next_ = static_cast<int64_t>(kPiece);
  Stopwatch watch_;
};

} // namespace

Result<std::unique_ptr<DeviceConstants>> DeviceConstants::upload(const std::shared_ptr<Context>& context,
                                                                 const std::shared_ptr<MemoryAccount>& account,
                                                                 const Variant& variant, Staging& staging,
                                                                 CUstream stream) {
  TESSERA_ASSIGN(const auto store, context->attachment_of<Store>("constants"));
  std::lock_guard lock(store->mutex);
  std::erase_if(store->placed, [](const auto& entry) { return entry.second.expired(); });

  auto constants = std::make_unique<DeviceConstants>();
  const auto& buffers = variant.exe->buffers;
  constants->addresses_.assign(buffers.size(), nullptr);
  struct Missing {
    const Constant* constant;
    int64_t offset;
  };
  std::map<Store::Key, int64_t> offsets; // two buffers may show one constant
  std::vector<Missing> missing;
  int64_t total = 0;
  auto wanted = [&](size_t b) -> const Constant* {
    const auto& info = buffers[b];
    if (info.kind != BufferInfo::Kind::Constant || !variant.device_reads[b]) return nullptr;
    const auto& constant = variant.exe->constants[static_cast<size_t>(info.constant)];
    return constant.value.bytes() > 0 ? &constant : nullptr;
  };
  auto key = [](const Constant& c) { return Store::Key(c.value.data(), c.value.bytes()); };
  for (size_t b = 0; b < buffers.size(); ++b) {
    const auto* constant = wanted(b);
    if (!constant) continue;
    if (auto it = store->placed.find(key(*constant)); it != store->placed.end())
      if (auto there = it->second.lock()) {
        constants->addresses_[b] = reinterpret_cast<void*>(there->address);
        constants->kept_.push_back(std::move(there));
        continue;
      }
    if (!offsets.emplace(key(*constant), total).second) continue;
    missing.push_back({constant, total});
    total += (static_cast<int64_t>(constant->value.bytes()) + kAlignment - 1) / kAlignment * kAlignment;
  }
  if (missing.empty()) return constants;

  TESSERA_ASSIGN(auto block, Block::create(context, *account, total, stream));
  auto mapped = MappedRegions::of_this_process();
  Progress progress(total);
  for (const auto& [constant, offset] : missing) {
    const auto& value = constant->value;
    for (size_t at = 0; at < value.bytes(); at += kPiece) {
      size_t bytes = std::min(kPiece, value.bytes() - at);
      TESSERA_TRY(staging.upload(block->address() + static_cast<CUdeviceptr>(offset) + at, value.data() + at, bytes,
                                 stream, "copying constant '" + constant->name + "' to the GPU"));
      mapped.release(value.data() + at, bytes);
      progress.add(bytes);
    }
  }
  TESSERA_CUDA_TRY(*context, "copying constants to the GPU", cuStreamSynchronize, stream);
  TESSERA_TRY(staging.wait());
  for (const auto& [constant, offset] : missing) {
    auto placed = std::make_shared<const Placed>(
        Placed{block, block->address() + static_cast<CUdeviceptr>(offset), constant->value});
    store->placed[key(*constant)] = placed;
    constants->kept_.push_back(std::move(placed));
  }
  for (size_t b = 0; b < buffers.size(); ++b)
    if (const auto* constant = wanted(b); constant && !constants->addresses_[b])
      constants->addresses_[b] =
          reinterpret_cast<void*>(block->address() + static_cast<CUdeviceptr>(offsets.at(key(*constant))));
  constants->uploaded_bytes_ = total;
  TESSERA_LOGF(LogChannel::Memory, "weights: " + std::to_string(missing.size()) + " constants, " +
                                       std::to_string(total) + " bytes are on the GPU");
  return constants;
}

} // namespace tessera::cuda
