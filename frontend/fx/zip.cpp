#include "frontend/fx/zip.h"
#include <algorithm>
#include <bit>
#include <cstring>

namespace tessera::fx {

static_assert(std::endian::native == std::endian::little, "numbers of a zip file are little-endian");

namespace {

// Sizes of the records' fixed parts, in bytes, and what they begin with.
constexpr uint32_t kEndMagic = 0x06054b50, kEnd64Magic = 0x06064b50, kLocator64Magic = 0x07064b50,
                   kCentralMagic = 0x02014b50, kLocalMagic = 0x04034b50;
constexpr size_t kEndBytes = 22, kEnd64Bytes = 56, kLocator64Bytes = 20, kCentralBytes = 46, kLocalBytes = 30;
constexpr size_t kMaxComment = 0xffff; // bytes of a comment behind the end record
constexpr uint16_t kExtra64 = 1;       // the extra field with 64-bit sizes
constexpr uint32_t kIn64 = 0xffffffff; // a field whose value stands in the zip64 record
constexpr uint16_t kIn64Short = 0xffff;
constexpr int kStored = 0;

// The place of the directory of entries.
struct Directory {
  uint64_t offset = 0, bytes = 0, entries = 0;
  uint64_t end = 0; // of what may hold entries and the directory: the end record's start
};

class Reader {
public:
  explicit Reader(const Storage& file) : data_(file.data), size_(file.bytes) {}

  [[nodiscard]] bool fits(uint64_t offset, uint64_t bytes) const { return offset <= size_ && bytes <= size_ - offset; }
  // A number of the file; the caller has checked that it fits.
  template <class T>
  [[nodiscard]] T number(uint64_t offset) const {
    T value;
    std::memcpy(&value, data_ + offset, sizeof value);
    return value;
  }
  [[nodiscard]] std::string_view text(uint64_t offset, size_t bytes) const {
    return {reinterpret_cast<const char*>(data_) + offset, bytes};
  }
  [[nodiscard]] uint64_t size() const { return size_; }

  // The last record of the file: only a comment stands behind it.
  [[nodiscard]] std::optional<uint64_t> end_record() const {
    if (size_ < kEndBytes) return {};
    const uint64_t last = size_ - kEndBytes, first = last > kMaxComment ? last - kMaxComment : 0;
    for (uint64_t at = last + 1; at-- > first;)
      if (number<uint32_t>(at) == kEndMagic && at + kEndBytes + number<uint16_t>(at + 20) == size_) return at;
    return {};
  }

private:
  const std::byte* data_;
  uint64_t size_;
};

Result<Directory> find_directory(const Reader& file) {
  auto malformed = [](const std::string& what) { return Diagnostic(ErrorCode::MalformedModel, what); };
  auto end = file.end_record();
  if (!end)
    return malformed("the archive has no end record: it is cut off, or something was appended to it")
        .note("save it again, or copy it again");
  Directory d{file.number<uint32_t>(*end + 16), file.number<uint32_t>(*end + 12), file.number<uint16_t>(*end + 10),
              *end};
  const bool is64 = d.offset == kIn64 || d.bytes == kIn64 || d.entries == kIn64Short;
  const bool has_locator = *end >= kLocator64Bytes && file.number<uint32_t>(*end - kLocator64Bytes) == kLocator64Magic;
  if (is64 && !has_locator) return malformed("the archive's end record refers to a zip64 record, which is not there");
  if (has_locator) {
    const auto at = file.number<uint64_t>(*end - kLocator64Bytes + 8);
    if (!file.fits(at, kEnd64Bytes) || at + kEnd64Bytes > *end - kLocator64Bytes ||
        file.number<uint32_t>(at) != kEnd64Magic)
      return malformed("the archive's zip64 record is not at offset " + std::to_string(at) +
                       ", where the archive says that it is");
    d = {file.number<uint64_t>(at + 48), file.number<uint64_t>(at + 40), file.number<uint64_t>(at + 32), at};
  }
  if (d.offset > d.end || d.bytes > d.end - d.offset)
    return malformed("the archive's directory is said to have " + std::to_string(d.bytes) + " bytes at offset " +
                     std::to_string(d.offset) + ", of a file of " + std::to_string(file.size()) + " bytes");
  if (d.entries > d.bytes / kCentralBytes)
    return malformed("the archive's directory is said to have " + std::to_string(d.entries) + " entries in " +
                     std::to_string(d.bytes) + " bytes");
  return d;
}

// Why a name must not stand in an archive; nullptr for one that may.
const char* bad_name(std::string_view name) {
  if (name.empty()) return "has no name";
  if (name.find('\0') != std::string_view::npos) return "has a zero byte in its name";
  if (name.front() == '/' || name.find('\\') != std::string_view::npos)
    return "has an absolute path, or one of another system";
  for (size_t at = 0; at <= name.size();) {
    size_t slash = std::min(name.find('/', at), name.size());
    if (name.substr(at, slash - at) == "..") return "has a name that leads out of the archive";
    at = slash + 1;
  }
  return nullptr;
}

} // namespace

Result<Zip> Zip::read(Storage file, std::string path) {
  const Reader reader(file);
  TESSERA_ASSIGN(const Directory directory, find_directory(reader));
  Zip zip;
  zip.file_ = std::move(file);
  zip.path_ = std::move(path);
  auto malformed = [](std::string_view name, const std::string& what) {
    return Diagnostic(ErrorCode::MalformedModel, "entry '" + std::string(name) + "' " + what);
  };
  struct Range {
    uint64_t begin, end;
    std::string_view name;
  };
  std::vector<Range> ranges;
  uint64_t at = directory.offset;
  const uint64_t end = directory.offset + directory.bytes;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    if (end - at < kCentralBytes || reader.number<uint32_t>(at) != kCentralMagic)
      return Diagnostic(ErrorCode::MalformedModel, "the archive's directory has no entry " + std::to_string(i) +
                                                       " at offset " + std::to_string(at) + ", and is said to have " +
                                                       std::to_string(directory.entries));
    const auto flags = reader.number<uint16_t>(at + 8), method = reader.number<uint16_t>(at + 10);
    uint64_t stored = reader.number<uint32_t>(at + 20), bytes = reader.number<uint32_t>(at + 24);
    const size_t name_bytes = reader.number<uint16_t>(at + 28), extra_bytes = reader.number<uint16_t>(at + 30),
                 comment_bytes = reader.number<uint16_t>(at + 32);
    uint64_t local = reader.number<uint32_t>(at + 42);
    if (end - at - kCentralBytes < name_bytes + extra_bytes + comment_bytes)
      return Diagnostic(ErrorCode::MalformedModel,
                        "entry " + std::to_string(i) + " of the archive's directory is longer than the directory");
    const std::string_view name = reader.text(at + kCentralBytes, name_bytes);
    if (const char* why = bad_name(name)) return malformed(name, why);
    // 64-bit values, in this order, of the fields that do not hold theirs.
    uint64_t extra = at + kCentralBytes + name_bytes;
    const uint64_t extra_end = extra + extra_bytes;
    while (extra_end - extra >= 4) {
      const auto id = reader.number<uint16_t>(extra), length = reader.number<uint16_t>(extra + 2);
      extra += 4;
      if (extra_end - extra < length) return malformed(name, "has an extra field that does not end");
      uint64_t field = extra;
      extra += length;
      if (id != kExtra64) continue;
      for (uint64_t* value : {&bytes, &stored, &local}) {
        if (*value != kIn64) continue;
        if (extra - field < 8) return malformed(name, "has no 64-bit size or offset, and says that it has");
        *value = reader.number<uint64_t>(field);
        field += 8;
      }
    }
    at += kCentralBytes + name_bytes + extra_bytes + comment_bytes;
    // The local header has a name and an extra field of its own length; the data stands behind them.
    if (!reader.fits(local, kLocalBytes) || reader.number<uint32_t>(local) != kLocalMagic)
      return malformed(name, "is not at offset " + std::to_string(local) + ", where the directory says that it is");
    const size_t local_name = reader.number<uint16_t>(local + 26), local_extra = reader.number<uint16_t>(local + 28);
    const uint64_t data = local + kLocalBytes + local_name + local_extra;
    if (data > directory.offset || stored > directory.offset - data)
      return malformed(name, "is said to have " + std::to_string(stored) + " bytes at offset " + std::to_string(data) +
                                 ", and the archive's directory begins at offset " + std::to_string(directory.offset));
    if (reader.text(local + kLocalBytes, local_name) != name)
      return malformed(name, "has another name in its own header");
    if (method == kStored && stored != bytes)
      return malformed(name,
                       "is stored in " + std::to_string(stored) + " bytes and said to have " + std::to_string(bytes));
    ranges.push_back({local, data + stored, name});
    if (name.ends_with('/')) continue; // a folder
    if (!zip.entries_.emplace(name, Entry{data, stored, method, (flags & 1) != 0}).second)
      return malformed(name, "is there twice");
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < ranges.size(); ++i)
    if (ranges[i].begin < ranges[i - 1].end)
      return malformed(ranges[i].name, "overlaps entry '" + std::string(ranges[i - 1].name) + "'");
  return zip;
}

Result<Storage> Zip::bytes(std::string_view name) const {
  auto it = entries_.find(name);
  if (it == entries_.end())
    return Diagnostic(ErrorCode::MalformedModel, "the archive has no entry '" + std::string(name) + "'");
  const Entry& e = it->second;
  if (e.encrypted) return Diagnostic(ErrorCode::UnsupportedFeature, "entry '" + std::string(name) + "' is encrypted");
  if (e.method != kStored)
    return Diagnostic(ErrorCode::UnsupportedFeature, "entry '" + std::string(name) + "' is compressed (method " +
                                                         std::to_string(e.method) +
                                                         "), and entries are read where they lie")
        .note("torch.export.save stores entries without compression: use its file as it is, or pack the archive again "
              "with 'zip -0'");
  return Storage{file_.owner, file_.data + e.offset, e.bytes};
}

std::vector<std::string> Zip::names() const {
  std::vector<std::string> all;
  for (const auto& [name, entry] : entries_) all.push_back(name);
  return all;
}

} // namespace tessera::fx
