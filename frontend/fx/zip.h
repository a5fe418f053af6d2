// A zip file in memory: entries by name, as views of it. Offsets and sizes are checked before anything is read there.
#pragma once
#include "base/tensor.h"
#include <map>
#include <string>

namespace tessera::fx {

class Zip {
public:
  // Reads the directory of `file`, zip64 too. Every entry lies inside of the file, apart from the others, and has a
  // relative name without "..", once. `path` is for messages. Error MalformedModel naming the entry.
  [[nodiscard]] static Result<Zip> read(Storage file, std::string path);

  [[nodiscard]] bool has(std::string_view name) const { return entries_.contains(name); }
  // The bytes of an entry; they keep the file. Errors: MalformedModel where there is none of the name,
  // UnsupportedFeature for a compressed or encrypted one.
  [[nodiscard]] Result<Storage> bytes(std::string_view name) const;
  // Names in the order of the alphabet.
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] const std::string& path() const { return path_; }

private:
  struct Entry {
    size_t offset = 0, bytes = 0; // of the data, in the file
    int method = 0;               // 0: stored
    bool encrypted = false;
  };
  Storage file_;
  std::string path_;
  std::map<std::string, Entry, std::less<>> entries_;
};

} // namespace tessera::fx
