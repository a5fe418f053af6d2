// Examines the files of the cache folder, for `tessera cache list` and `verify`.
#pragma once
#include "runtime/cache/entry.h"
#include "runtime/cache/private_folder.h"
#include <functional>

namespace tessera {

struct SurveyedFile {
  std::string path;
  int64_t bytes = 0, used = 0; // used: seconds since 1970
  EntryFile is = EntryFile::Entry;
  std::optional<Entry> entry; // an undamaged one; its payload is a view of what was read, good during the call
  std::string problem;        // what is wrong with it; empty: nothing
};

// Reads each file in the folders of entries and calls f with it. `repair`: what has a problem is removed, and so are
// temporary files. Errors: FileError (the folder is not trusted), those of f.
[[nodiscard]] Status survey_cache(const std::string& directory, bool repair,
                                  const std::function<Status(const SurveyedFile&)>& f);

} // namespace tessera
