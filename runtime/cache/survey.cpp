#include "runtime/cache/survey.h"
#include "runtime/cache/eviction.h"

namespace tessera {
namespace {

std::string one_line(const Diagnostic& d) {
  std::string text = d.message;
  for (const auto& note : d.notes) text += "; " + note;
  return text;
}

} // namespace

Status survey_cache(const std::string& directory, bool repair, const std::function<Status(const SurveyedFile&)>& f) {
  return each_entry_file(directory, [&](const PrivateFolder& folder, const PrivateFolder::Item& item) -> Status {
    SurveyedFile file{folder.path() + "/" + item.name, item.bytes, item.used, entry_file(item.name), {}, {}};
    std::optional<std::string> text;
    if (file.is == EntryFile::Unknown) {
      file.problem = "is no entry by its name";
    } else if (file.is == EntryFile::Entry) {
      auto read = folder.read(item.name);
      if (read.ok() && !*read) return {}; // gone meanwhile
      if (!read.ok()) {
        file.problem = one_line(read.error());
      } else {
        text = std::move(*read);
        auto entry = decode_entry(*text);
        if (!entry.ok())
          file.problem = "is damaged: " + entry.error().message;
        else if (entry->file_name() != item.name)
          file.problem = "is damaged: it is the entry of another key";
        else
          file.entry = std::move(*entry);
      }
    }
    TESSERA_TRY(f(file));
    if (repair && !item.folder && (!file.problem.empty() || file.is == EntryFile::Temporary))
      return folder.remove(item.name);
    return {};
  });
}

} // namespace tessera
