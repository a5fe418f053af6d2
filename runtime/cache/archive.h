// Entries of a cache folder as one file, which fills the folders of other machines.
//
//   magic "TSRARCH1", number of entries, bytes of all that follows; for each entry its length and its bytes (entry.h)
//
// Numbers have 64 bits in this machine's byte order. The machine code in it is run by whoever imports it: an archive is
// as trusted as its sender.
#pragma once
#include "base/tensor.h"
#include "runtime/cache/entry.h"

namespace tessera {

class Archive {
public:
  // Maps and checks the whole file. Errors: FileError; CorruptFile, where nothing of it is to be used.
  [[nodiscard]] static Result<Archive> open(const std::string& path);
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; } // views of the file

private:
  Storage file_;
  std::vector<Entry> entries_;
};

struct Exported {
  int64_t entries = 0, bytes = 0, damaged = 0;
};
// Writes all undamaged entries of the folder, and `records` (the text of tuned.json, or nothing) as one more. The file
// appears whole or not at all. Errors: FileError.
[[nodiscard]] Result<Exported> export_cache(const std::string& directory, std::string_view records,
                                            const std::string& path);

struct Imported {
  int64_t added = 0, present = 0, bytes = 0; // bytes: of those that were added
};
// Adds the archive's entries to the folder but for records, which are the caller's to merge; then the folder is bounded.
// Errors: FileError.
[[nodiscard]] Result<Imported> import_cache(const std::string& directory, const Archive& archive, int64_t limit);

} // namespace tessera
