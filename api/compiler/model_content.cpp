#include "api/compiler/model_content.h"
#include "base/file.h"
#include "base/key_text.h"
#include "runtime/mapped_regions.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sys/stat.h>
#include <thread>

namespace tessera {
namespace {

constexpr size_t kPiece = size_t{4} << 20;
// Clocks of files tick: what is written within a tick of another change has the same time.
constexpr int kTickMs = 12;
constexpr int kCoarsestTickSeconds = 2;              // of any file system
constexpr const char* kDigests = "tessera-digest-1"; // how digests are made

bool before(const timespec& a, const timespec& b) {
  return a.tv_sec != b.tv_sec ? a.tv_sec < b.tv_sec : a.tv_nsec < b.tv_nsec;
}
bool same(const timespec& a, const timespec& b) { return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec; }

timespec file_clock() { // that of files' times
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME_COARSE, &now);
  return now;
}

// Hashes in pieces, so that threads can share the work and a large file does not stay in memory.
Hash128 digest_of(const Storage& bytes, bool mapped, ThreadPool* pool) {
  const size_t pieces = (bytes.bytes + kPiece - 1) / kPiece;
  std::vector<Hash128> hashes(pieces);
  const auto some = [&](int64_t begin, int64_t end, int) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      const std::byte* at = bytes.data + i * kPiece;
      const size_t count = std::min(kPiece, bytes.bytes - i * kPiece);
      hashes[i] = hash128(at, count);
      if (mapped) drop_pages(at, count);
    }
  };
  if (pool != nullptr && pieces > 1)
    pool->parallel_for(static_cast<int64_t>(pieces), 1, some);
  else
    some(0, static_cast<int64_t>(pieces), 0);
  return hash128(hashes.data(), hashes.size() * sizeof(Hash128), bytes.bytes);
}

// The path as /proc names a mapped file; the path itself where that fails.
std::string real_path(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr), &std::free);
  return real ? real.get() : path;
}

Storage bytes_of(const Tensor& t) {
  return {std::shared_ptr<const void>(std::make_shared<Tensor>(t)), t.data(), t.bytes()};
}

} // namespace

std::optional<ModelContent::Stamp> ModelContent::stamp_of(const std::string& path) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) return std::nullopt;
  return Stamp{st.st_dev, st.st_ino, st.st_size, st.st_mtim, st.st_ctim};
}

bool ModelContent::Stamp::operator==(const Stamp& o) const {
  return device == o.device && inode == o.inode && bytes == o.bytes && same(modified, o.modified) &&
         same(changed, o.changed);
}

Result<Hash128> ModelContent::add_file(const std::string& name, const std::string& path, Cache& cache,
                                       ThreadPool* pool) {
  const auto stamp = stamp_of(path);
  TESSERA_ASSIGN(Storage mapped, map_file(path));
  KeyText key;
  key.add("digests", kDigests);
  key.add("path", real_path(path));
  if (stamp) {
    key.add("file", std::pair(stamp->device, std::pair(stamp->inode, stamp->bytes)));
    key.add("modified", std::pair(stamp->modified.tv_sec, stamp->modified.tv_nsec));
    key.add("changed", std::pair(stamp->changed.tv_sec, stamp->changed.tv_nsec));
  }
  const Hash128 of_stamp = hash128(key.str());
  Hash128 hash;
  const auto known = stamp ? cache.find(EntryKind::Digest, of_stamp) : std::nullopt;
  // The mapped file is that of the stamp only if it has not been replaced in between.
  if (known && known->size() == sizeof hash && stamp_of(path) == stamp) {
    std::memcpy(&hash, known->data(), sizeof hash);
  } else {
    hash = digest_of(mapped, true, pool);
    const bool old = stamp && stamp->changed.tv_sec + kCoarsestTickSeconds < began_.tv_sec;
    if (old && stamp_of(path) == stamp)
      cache.store(EntryKind::Digest, of_stamp, {kDigests, "", path},
                  {reinterpret_cast<const char*>(&hash), sizeof hash});
  }
  std::lock_guard lock(mutex_);
  files_.insert_or_assign(name, File{path, stamp.value_or(Stamp{}), hash});
  parts_.insert_or_assign(name, std::move(mapped));
  return hash;
}

Result<std::shared_ptr<ModelContent>> ModelContent::of_file(const std::string& path, Cache& cache, ThreadPool* pool) {
  auto out = std::make_shared<ModelContent>();
  const size_t slash = path.rfind('/');
  out->folder_ = slash == std::string::npos ? "" : path.substr(0, slash + 1);
  out->began_ = file_clock();
  if (const auto stamp = stamp_of(path); stamp && !before(stamp->changed, out->began_)) { // it was just written
    std::this_thread::sleep_for(std::chrono::milliseconds(kTickMs));
    out->began_ = file_clock();
  }
  TESSERA_ASSIGN(out->hash_, out->add_file("", path, cache, pool));
  return out;
}

Hash128 ModelContent::digest(const ProgramSource& program, ThreadPool* pool) {
  std::vector<Hash128> all{hash128(program.json)};
  for (const auto& [name, tensor] : program.weights) {
    all.push_back(hash128(name));
    all.push_back(
        hash128(tensor.dims().data(), tensor.dims().size() * sizeof(int64_t), static_cast<uint64_t>(tensor.dtype())));
    all.push_back(digest_of({nullptr, tensor.data(), tensor.bytes()}, false, pool));
  }
  return hash128(all.data(), all.size() * sizeof(Hash128), program.strided ? 1 : 0);
}

Result<std::shared_ptr<ModelContent>> ModelContent::of_program(std::shared_ptr<const ProgramSource> program,
                                                               ThreadPool* pool) {
  auto out = std::make_shared<ModelContent>();
  for (const auto& [name, tensor] : program->weights) {
    if (!has_bytes(tensor.dtype()))
      return Diagnostic(ErrorCode::UnsupportedType, "the weight '" + name + "' has no bytes that can be digested");
    out->parts_.emplace(name, bytes_of(tensor));
  }
  out->hash_ = digest(*program, pool);
  out->program_ = std::move(program);
  return out;
}

Result<ModelContent::WeightFile> ModelContent::add(const std::string& name, Cache& cache, ThreadPool* pool) {
  const auto has = [&](const Hash128& hash) {
    return WeightFile{name, static_cast<int64_t>(parts_.at(name).bytes), hash};
  };
  {
    std::lock_guard lock(mutex_);
    if (const auto file = files_.find(name); file != files_.end() && is_as_it_was(file->second))
      return has(file->second.hash);
  }
  TESSERA_ASSIGN(const Hash128 hash, add_file(name, name.starts_with('/') ? name : folder_ + name, cache, pool));
  std::lock_guard lock(mutex_);
  return has(hash);
}

ModelParts ModelContent::parts() const {
  std::lock_guard lock(mutex_);
  return parts_;
}

bool ModelContent::is_as_it_was(const File& file) const {
  const auto now = stamp_of(file.path);
  return now && *now == file.stamp && before(file.stamp.changed, began_);
}

bool ModelContent::unchanged(ThreadPool* pool) const {
  if (program_) return digest(*program_, pool) == hash_;
  std::lock_guard lock(mutex_);
  return std::all_of(files_.begin(), files_.end(), [&](const auto& f) { return is_as_it_was(f.second); });
}

BytesPlaceFn ModelContent::places(std::span<const CopiedWeight> copied) const {
  std::lock_guard lock(mutex_);
  if (program_) {
    std::map<const std::byte*, std::pair<std::string, size_t>> by_begin;
    for (const auto& [name, bytes] : parts_) by_begin.emplace(bytes.data, std::pair(name, bytes.bytes));
    return [by_begin = std::move(by_begin)](const void* data, size_t bytes) -> std::optional<BytesPlace> {
      const auto* at = static_cast<const std::byte*>(data);
      auto it = by_begin.upper_bound(at);
      if (bytes == 0 || it == by_begin.begin()) return std::nullopt;
      --it;
      const auto offset = static_cast<size_t>(at - it->first);
      if (offset > it->second.second || bytes > it->second.second - offset) return std::nullopt;
      return BytesPlace{it->second.first, static_cast<int64_t>(offset)};
    };
  }
  std::map<std::string, std::string> by_path;
  for (const auto& [name, file] : files_) by_path.emplace(real_path(file.path), name);
  auto regions = std::make_shared<const MappedRegions>(MappedRegions::of_this_process());
  std::map<const std::byte*, CopiedWeight> copies; // that are still there: no other memory has their addresses
  for (const CopiedWeight& c : copied)
    if (!c.owner.expired()) copies.emplace(c.copy, c);
  return [by_path = std::move(by_path), regions,
          copies = std::move(copies)](const void* data, size_t bytes) -> std::optional<BytesPlace> {
    const auto* at = static_cast<const std::byte*>(data);
    if (auto it = copies.upper_bound(at); it != copies.begin()) {
      const auto& [begin, copy] = *--it;
      const auto offset = static_cast<size_t>(at - begin);
      if (offset <= copy.source.bytes && bytes <= copy.source.bytes - offset) data = copy.source.data + offset;
    }
    const auto place = regions->find(data, bytes);
    const auto part = place ? by_path.find(place->path) : by_path.end();
    if (part == by_path.end()) return std::nullopt;
    return BytesPlace{part->second, place->offset};
  };
}

} // namespace tessera
