#include "runtime/cache/archive.h"
#include "base/file.h"
#include "runtime/cache/eviction.h"
#include "runtime/cache/survey.h"
#include <cstring>
#include <ctime>

namespace tessera {
namespace {

constexpr char kMagic[8] = {'T', 'S', 'R', 'A', 'R', 'C', 'H', '1'};
struct Header {
  char magic[8];
  uint64_t entries, bytes; // bytes: behind the header
};

Diagnostic corrupt(const std::string& path, const std::string& what) {
  Location where;
  where.file = path;
  return {ErrorCode::CorruptFile, std::move(where), what};
}

} // namespace

Result<Archive> Archive::open(const std::string& path) {
  Archive out;
  TESSERA_ASSIGN(out.file_, map_file(path));
  std::string_view rest(reinterpret_cast<const char*>(out.file_.data), out.file_.bytes);
  Header h{};
  if (rest.size() >= sizeof h) std::memcpy(&h, rest.data(), sizeof h);
  if (rest.size() < sizeof h || std::memcmp(h.magic, kMagic, sizeof kMagic) != 0)
    return corrupt(path, "is no archive of a cache, which 'tessera cache export' writes");
  rest.remove_prefix(sizeof h);
  if (h.bytes != rest.size())
    return corrupt(path, "is damaged: " + std::to_string(h.bytes) + " bytes are expected behind its header, " +
                             std::to_string(rest.size()) + " are there");
  for (uint64_t i = 0; i < h.entries; ++i) {
    uint64_t bytes = 0;
    if (rest.size() >= sizeof bytes) std::memcpy(&bytes, rest.data(), sizeof bytes);
    if (rest.size() < sizeof bytes || bytes > rest.size() - sizeof bytes)
      return corrupt(path, "is damaged: entry " + std::to_string(i) + " ends behind the file");
    auto entry = decode_entry(rest.substr(sizeof bytes, bytes));
    if (!entry.ok()) return corrupt(path, "is damaged: entry " + std::to_string(i) + ": " + entry.error().message);
    out.entries_.push_back(std::move(*entry));
    rest.remove_prefix(sizeof bytes + bytes);
  }
  if (!rest.empty())
    return corrupt(path, "is damaged: " + std::to_string(rest.size()) + " bytes behind its last entry");
  return out;
}

Result<Exported> export_cache(const std::string& directory, std::string_view records, const std::string& path) {
  TESSERA_ASSIGN(auto file, NewFile::create(path));
  Header h{};
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  TESSERA_TRY(file.write(&h, sizeof h)); // the numbers are known at the end
  auto add = [&](const Entry& entry) -> Status {
    const std::string head = encode_entry_head(entry);
    const uint64_t bytes = head.size() + entry.payload.size();
    TESSERA_TRY(file.write(&bytes, sizeof bytes));
    TESSERA_TRY(file.write(head.data(), head.size()));
    ++h.entries;
    h.bytes += sizeof bytes + bytes;
    return file.write(entry.payload.data(), entry.payload.size());
  };
  Exported out;
  TESSERA_TRY(survey_cache(directory, false, [&](const SurveyedFile& f) -> Status {
    out.damaged += !f.problem.empty();
    return f.entry ? add(*f.entry) : Status();
  }));
  if (!records.empty())
    TESSERA_TRY(add({EntryKind::Records, {}, ::time(nullptr), {"tessera tune", "", "tuned.json"}, records}));
  TESSERA_TRY(file.write_at(0, &h, sizeof h));
  TESSERA_TRY(file.commit(true));
  out.entries = static_cast<int64_t>(h.entries);
  out.bytes = static_cast<int64_t>(h.bytes + sizeof h);
  return out;
}

Result<Imported> import_cache(const std::string& directory, const Archive& archive, int64_t limit) {
  Imported out;
  for (const Entry& entry : archive.entries()) {
    if (entry.kind == EntryKind::Records) continue;
    const std::string name = entry.file_name(), head = encode_entry_head(entry);
    TESSERA_ASSIGN(auto folder, open_entry_folder(directory, name, PrivateFolder::Missing::Make));
    auto before = folder->read(name);
    if (before.ok() && *before && decode_entry(**before).ok()) {
      ++out.present;
      continue;
    }
    TESSERA_TRY(folder->write(name, {head, entry.payload}));
    ++out.added;
    out.bytes += static_cast<int64_t>(head.size() + entry.payload.size());
  }
  if (out.added > 0) (void)bound_cache(directory, out.bytes, limit);
  return out;
}

} // namespace tessera
