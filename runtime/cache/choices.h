// What libraries chose, kept for the next process: the algorithm of a product for a bucket of sizes, say. The cache
// knows neither the key's text nor the bytes. A choice counts for one device and one creator (library and driver with
// their versions), which are part of its key.
#pragma once
#include "runtime/cache/cache.h"
#include <map>
#include <memory>

namespace tessera {

class KeptChoices {
public:
  // Memory alone where the cache is null or switched off.
  KeptChoices(std::shared_ptr<Cache> cache, std::string creator, std::string device);

  // Any thread may call these. Of what was not found, the folder is asked once.
  [[nodiscard]] std::optional<std::string> find(const std::string& key) const;
  void put(const std::string& key, std::string_view bytes);

private:
  [[nodiscard]] Hash128 hash(const std::string& key) const;
  std::shared_ptr<Cache> cache_;
  std::string creator_, device_;
  mutable std::mutex mutex_; // of what follows; not held while a file is read or written
  mutable std::map<std::string, std::optional<std::string>> known_;
};

} // namespace tessera
