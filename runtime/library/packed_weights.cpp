#include "runtime/library/packed_weights.h"
#include <algorithm>
#include <exception>
#include <map>

namespace tessera {
namespace {
struct Registry {
  std::mutex mutex;
  std::map<std::pair<const std::byte*, std::string>, std::weak_ptr<PackedWeight>> packs;
};
Registry& registry() {
  static Registry r;
  return r;
}
} // namespace

PackRequests::~PackRequests() {
  finish(std::uncaught_exceptions() > 0 ? PackedWeight::NoMemory : PackedWeight::Failed);
}

void PackRequests::finish(PackedWeight::State state) {
  for (auto& m : mine_) {
    int building = PackedWeight::Building;
    m.pack->state_.compare_exchange_strong(building, state);
    m.pack->state_.notify_all();
  }
}

Result<std::shared_ptr<const PackedWeight>> PackRequests::want(const Tensor& source, Job job) {
  auto& all = registry();
  std::shared_ptr<PackedWeight> found;
  bool fresh = false;
  std::lock_guard lock(mutex_);
  mine_.reserve(mine_.size() + 1); // what others can find is surely finished
  {
    std::lock_guard registry_lock(all.mutex);
    auto& entry = all.packs[{source.data(), job.key}];
    found = entry.lock();
    if (!found || found->state_.load() >= PackedWeight::Failed) {
      found = std::make_shared<PackedWeight>();
      TESSERA_ASSIGN(found->counted_,
                     account_->hold(MemoryAccount::Where::Host, static_cast<int64_t>(job.bytes), "packed weights"));
      TESSERA_ASSIGN(found->block_, allocate_bytes(job.bytes));
      found->data_ = found->block_.get();
      found->bytes_ = job.bytes;
      found->source_ = source.owner();
      entry = found;
      fresh = true;
      if (all.packs.size() % 256 == 0) std::erase_if(all.packs, [](const auto& e) { return e.second.expired(); });
    }
  }
  if (fresh)
    mine_.push_back({found, source, std::move(job)});
  else
    others_.push_back(found);
  return std::shared_ptr<const PackedWeight>(found);
}

Status PackRequests::build(ThreadPool& pool) {
  struct Part {
    size_t pending;
    int part;
  };
  std::vector<Part> parts;
  // Largest first would balance better; in order of asking keeps the pages that are resident at a time few and in file
  // order.
  std::vector<std::vector<std::atomic<int>>> left; // of each job's ranges
  std::optional<MappedRegions> regions;
  for (size_t i = 0; i < mine_.size(); ++i) {
    auto& job = mine_[i].job;
    if (!job.range) {
      job.parts_per_range = std::max(job.parts, 1);
      job.range = [bytes = mine_[i].source.bytes()](int) { return std::pair<size_t, size_t>(0, bytes); };
    }
    auto& ranges = left.emplace_back(static_cast<size_t>((job.parts + job.parts_per_range - 1) / job.parts_per_range));
    for (int p = 0; p < job.parts; ++p) ++ranges[static_cast<size_t>(p / job.parts_per_range)];
    for (int p = 0; p < mine_[i].job.parts; ++p) parts.push_back({i, p});
    built_bytes_ += static_cast<int64_t>(mine_[i].job.bytes);
    if (!regions) regions = MappedRegions::of_this_process();
  }
  auto body = [&](int64_t begin, int64_t end, int) {
    for (int64_t k = begin; k < end; ++k) {
      auto [i, p] = parts[static_cast<size_t>(k)];
      auto& m = mine_[i];
      if (!m.job.fill(m.pack->block_.get(), m.source.data(), p)) m.pack->state_.store(PackedWeight::Failed);
      int range = p / m.job.parts_per_range;
      if (left[i][static_cast<size_t>(range)].fetch_sub(1) != 1) continue;
      auto [from, to] = m.job.range(range);
      regions->release(m.source.data() + from, to - from);
    }
  };
  pool.parallel_for(static_cast<int64_t>(parts.size()), 1, body);
  finish(PackedWeight::Ready);
  bool failed = false, no_memory = false;
  for (auto& m : mine_) failed = failed || m.pack->state_.load() == PackedWeight::Failed;
  mine_.clear();
  for (auto& o : others_) {
    o->state_.wait(PackedWeight::Building);
    failed = failed || o->state_.load() == PackedWeight::Failed;
    no_memory = no_memory || o->state_.load() == PackedWeight::NoMemory;
  }
  others_.clear();
  if (no_memory)
    return Diagnostic(ErrorCode::OutOfMemory,
                      "memory ran out while another executor packed weights that this one needs");
  if (failed) return Diagnostic(ErrorCode::DeviceError, "oneDNN could not reorder weights");
  return {};
}

} // namespace tessera
