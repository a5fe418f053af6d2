#include "measure/tune/records.h"
#include "base/log.h"
#include "runtime/cache/cache.h"
#include <algorithm>
#include <sys/stat.h>

namespace tessera {
namespace {

constexpr const char* kFile = "tuned.json";

bool contains(const TunedRecord& r, std::span<const int64_t> extents) {
  if (r.extents.size() != extents.size()) return false;
  for (size_t i = 0; i < extents.size(); ++i) {
    const ExtentRange& e = r.extents[i];
    if (extents[i] < e.min || extents[i] > e.max || extents[i] % e.multiple_of != 0) return false;
  }
  return true;
}

} // namespace

bool TunedRecord::same_place(const TunedRecord& o) const {
  return kernel == o.kernel && on.device == o.on.device && on.driver == o.on.driver && extents == o.extents;
}

bool TunedRecord::counts_for(const TunedTarget& t) const {
  if (on.device != t.device) return false;
  return pinned || (on.compiler == t.compiler && (t.driver.empty() || on.driver == t.driver));
}

std::string measured_text(const TunedRecord& r) {
  char text[64];
  std::snprintf(text, sizeof text, "%.1f us -> %.1f us", r.default_us, r.tuned_us);
  return std::string(text) + " on " + r.on.device + (r.pinned ? ", pinned" : "");
}

void merge_records(std::vector<TunedRecord>& records, std::span<const TunedRecord> more) {
  for (const TunedRecord& r : more) {
    auto it = std::find_if(records.begin(), records.end(), [&](const TunedRecord& o) { return o.same_place(r); });
    if (it == records.end())
      records.push_back(r);
    else if (r.pinned || (!it->pinned && r.time >= it->time))
      *it = r;
  }
  // Pinned ones first, then those for more special sizes.
  auto order = [](const TunedRecord& r) {
    int64_t divisors = 0;
    for (const ExtentRange& e : r.extents) divisors += e.multiple_of;
    return std::tuple(r.kernel, r.on.device, !r.pinned, -divisors, -r.time);
  };
  std::stable_sort(records.begin(), records.end(),
                   [&](const TunedRecord& a, const TunedRecord& b) { return order(a) < order(b); });
}

TunedRecords::TunedRecords(const std::string& directory, TunedTarget target) : target_(std::move(target)) {
  folder_ = cache_directory(directory);
  if (!folder_.empty()) file_ = folder_ + "/" + kFile;
  read_ = stamp();
  records_ = read();
}

TunedRecords::Stamp TunedRecords::stamp() const {
  struct stat s {};
  if (file_.empty() || ::stat(file_.c_str(), &s) != 0) return {};
  return {s.st_ino, s.st_size, s.st_mtim.tv_sec, s.st_mtim.tv_nsec};
}

void TunedRecords::refresh() {
  std::lock_guard lock(mutex_);
  const Stamp now = stamp();
  if (now == read_) return;
  read_ = now; // one that is replaced while it is read is read again next time
  records_ = read();
  merge_records(records_, unwritten_);
}

std::vector<TunedRecord> TunedRecords::read() const {
  if (file_.empty()) return {};
  auto text = [&]() -> Result<std::optional<std::string>> {
    TESSERA_ASSIGN(auto folder, PrivateFolder::open(folder_, PrivateFolder::Missing::Leave));
    if (!folder) return std::optional<std::string>();
    return folder->read(kFile);
  }();
  if (!text.ok()) return warn(cache_warning(text.error())), std::vector<TunedRecord>();
  if (!*text) return {};
  auto parsed = parse_records(**text, file_);
  if (!parsed.ok()) {
    warn("tuned schedules are ignored: " + parsed.error().message + " (" + file_ + ")");
    return {};
  }
  merge_records(*parsed, {}); // in order, whoever wrote them
  return std::move(*parsed);
}

void TunedRecords::warn(std::string text) const {
  if (std::find(warnings_.begin(), warnings_.end(), text) != warnings_.end()) return;
  TESSERA_LOGF(LogChannel::Cache, text);
  warnings_.push_back(std::move(text));
}

std::vector<TunedSchedule> TunedRecords::find(const Hash128& nest) const {
  std::lock_guard lock(mutex_);
  std::vector<TunedSchedule> out;
  for (const TunedRecord& r : records_) {
    if (r.kernel != nest || r.is_default() || !r.counts_for(target_)) continue;
    out.push_back({*r.schedule, r.extents, measured_text(r)});
  }
  return out;
}

std::optional<TunedRecord> TunedRecords::at(const Hash128& nest, std::span<const int64_t> extents) const {
  std::lock_guard lock(mutex_);
  for (const TunedRecord& r : records_)
    if (r.kernel == nest && r.counts_for(target_) && contains(r, extents)) return r;
  return std::nullopt;
}

Status TunedRecords::add(std::span<const TunedRecord> records) {
  {
    std::lock_guard lock(mutex_);
    merge_records(unwritten_, records);
  }
  auto status = update([&](std::vector<TunedRecord>& all) { merge_records(all, unwritten_); });
  std::lock_guard lock(mutex_);
  if (status.ok())
    unwritten_.clear();
  else
    merge_records(records_, unwritten_);
  return status;
}

Status TunedRecords::update(const std::function<void(std::vector<TunedRecord>&)>& change) {
  std::lock_guard lock(mutex_);
  if (file_.empty())
    return Diagnostic(ErrorCode::FileError, "there is no folder for tuned schedules: set TESSERA_CACHE_DIR");
  TESSERA_ASSIGN(auto folder, PrivateFolder::open(folder_, PrivateFolder::Missing::Make));
  TESSERA_ASSIGN(auto locked, folder->lock(std::string(kFile) + ".lock"));
  std::vector<TunedRecord> now = read();
  change(now);
  merge_records(now, {});
  TESSERA_TRY(folder->write(kFile, {print_records(now)}, true));
  read_ = stamp();
  records_ = std::move(now);
  return {};
}

Result<FileDescriptor> TunedRecords::measuring() const {
  if (file_.empty()) return FileDescriptor();
  auto folder = PrivateFolder::open(folder_, PrivateFolder::Missing::Make);
  if (!folder.ok()) return FileDescriptor(); // whoever writes the records says why
  return (*folder)->lock(std::string(kFile) + ".measuring");
}

std::vector<TunedRecord> TunedRecords::all() const {
  std::lock_guard lock(mutex_);
  return records_;
}

std::vector<std::string> TunedRecords::warnings() const {
  std::lock_guard lock(mutex_);
  return warnings_;
}

} // namespace tessera
