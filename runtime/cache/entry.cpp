#include "runtime/cache/entry.h"
#include "base/file.h"
#include <cstring>

namespace tessera {
namespace {

constexpr char kMagic[8] = {'T', 'S', 'R', 'O', 'B', 'J', '0', '2'};
constexpr std::string_view kEnding = ".tsc"; // of this format's files; those of format 1 end with .o
constexpr size_t kHashDigits = 32;

struct Header {
  char magic[8];
  Hash128 key;
  int64_t created;
  uint32_t kind, creator_bytes, device_bytes, name_bytes;
  uint64_t payload_bytes;
  Hash128 checksum; // of this header with zeros here, the texts and the payload
};
static_assert(sizeof(Header) == 72, "no padding, which would be of unknown contents");

Hash128 checksum(Header h, std::string_view texts, std::string_view payload) {
  h.checksum = {};
  const uint64_t seed = hash128(texts, hash128(&h, sizeof h).lo).lo;
  return hash128(payload, seed);
}

} // namespace

std::string_view name(EntryKind kind) {
  switch (kind) {
  case EntryKind::Kernel: return "kernel";
  case EntryKind::Choice: return "choice";
  case EntryKind::Records: return "records";
  case EntryKind::Plan: return "plan";
  case EntryKind::Digest: return "digest";
  }
  return "";
}

std::string entry_file_name(EntryKind kind, const Hash128& key) {
  return hash128(&key, sizeof key, static_cast<uint64_t>(kind)).hex() + std::string(kEnding);
}

EntryFile entry_file(std::string_view file_name) {
  if (file_name.starts_with(kTemporaryPrefix)) return EntryFile::Temporary;
  const size_t digits = file_name.find_first_not_of("0123456789abcdef");
  if (digits != kHashDigits || file_name[digits] != '.') return EntryFile::Unknown;
  return file_name.substr(digits) == kEnding ? EntryFile::Entry : EntryFile::OtherFormat;
}

std::string Entry::file_name() const { return entry_file_name(kind, key); }

size_t entry_head_bytes(const EntryOrigin& origin) {
  return sizeof(Header) + origin.creator.size() + origin.device.size() + origin.name.size();
}

std::string encode_entry_head(const Entry& entry) {
  const std::string texts = entry.origin.creator + entry.origin.device + entry.origin.name;
  Header h{};
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  h.kind = static_cast<uint32_t>(entry.kind);
  h.key = entry.key;
  h.created = entry.created;
  h.creator_bytes = static_cast<uint32_t>(entry.origin.creator.size());
  h.device_bytes = static_cast<uint32_t>(entry.origin.device.size());
  h.name_bytes = static_cast<uint32_t>(entry.origin.name.size());
  h.payload_bytes = entry.payload.size();
  h.checksum = checksum(h, texts, entry.payload);
  std::string head(reinterpret_cast<const char*>(&h), sizeof h);
  return head + texts;
}

Result<Entry> decode_entry(std::string_view file) {
  auto damaged = [](const std::string& what) { return Diagnostic(ErrorCode::CorruptFile, what); };
  Header h{};
  if (file.size() < sizeof h)
    return damaged("it has " + std::to_string(file.size()) + " bytes, a header has " + std::to_string(sizeof h));
  std::memcpy(&h, file.data(), sizeof h);
  if (std::memcmp(h.magic, kMagic, sizeof kMagic) != 0) return damaged("it does not begin as an entry does");
  const std::string_view rest = file.substr(sizeof h);
  const uint64_t text_bytes = uint64_t{h.creator_bytes} + h.device_bytes + h.name_bytes;
  // Lengths are checked before anything is read by them; a sum of 32-bit numbers does not overflow.
  const bool fits = text_bytes <= rest.size() && h.payload_bytes == rest.size() - text_bytes;
  if (!fits)
    return damaged("its lengths are " + std::to_string(text_bytes) + " and " + std::to_string(h.payload_bytes) +
                   " bytes, the file has " + std::to_string(rest.size()) + " behind the header");
  if (h.checksum != checksum(h, rest.substr(0, text_bytes), rest.substr(text_bytes)))
    return damaged("its checksum is wrong");
  Entry e;
  e.kind = static_cast<EntryKind>(h.kind);
  if (name(e.kind).empty()) return damaged("its kind is " + std::to_string(h.kind) + ", which does not exist");
  e.key = h.key;
  e.created = h.created;
  e.origin.creator = rest.substr(0, h.creator_bytes);
  e.origin.device = rest.substr(h.creator_bytes, h.device_bytes);
  e.origin.name = rest.substr(uint64_t{h.creator_bytes} + h.device_bytes, h.name_bytes);
  e.payload = rest.substr(text_bytes);
  return e;
}

} // namespace tessera
