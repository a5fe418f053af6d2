// The choices of libraries, kept for the next process: the algorithm of a product for a bucket of sizes, say. The cache
// knows neither the key's text nor the bytes. A choice counts for one device and one creator (library and driver with
// their versions). All choices of these two are one entry, which is read once and written as a whole.
//
// put() writes no file: a thread writes what has been put, at the earliest `delay` after the write before, so that a
// burst of choices is one write and no call waits for it. A process that is killed loses what was not written. What
// other processes have written meanwhile is merged; for equal keys, each process stays with what it knows already.
#pragma once
#include "base/fork.h"
#include "runtime/cache/cache.h"
#include <chrono>
#include <condition_variable>
#include <memory>
#include <thread>
#include <unordered_map>

namespace tessera {

class KeptChoices {
public:
  using Milliseconds = std::chrono::milliseconds;
  static constexpr Milliseconds kDelay{2000};
  static constexpr size_t kMax = 8192; // beyond it, those that were not used for longest go

  // Reads the entry. Memory alone where the cache is null or switched off.
  KeptChoices(std::shared_ptr<Cache> cache, std::string creator, std::string device, Milliseconds delay = kDelay);
  ~KeptChoices(); // flush()
  KeptChoices(const KeptChoices&) = delete;
  KeptChoices& operator=(const KeptChoices&) = delete;

  // Any thread may call these. find() and put() read and write no file.
  [[nodiscard]] std::optional<std::string> find(const std::string& key) const;
  void put(const std::string& key, std::string_view bytes);
  // Writes what was put since the last write, if anything was.
  void flush();
  // Another folder from now on; what is known is written there, too. Nothing happens where the cache is null or of the
  // same folder.
  void keep_in(std::shared_ptr<Cache> cache);
  [[nodiscard]] int64_t writes() const; // of the entry so far

private:
  struct Known {
    std::shared_ptr<const std::string> record; // lengths, key and bytes, as the entry has them
    uint64_t used = 0;                         // at which call
  };
  [[nodiscard]] Hash128 hash() const;
  [[nodiscard]] std::string read(Cache& cache) const; // the entry's payload; empty: there is none
  // The mutex is held:
  void add(std::string_view payload);
  void make_room();
  void work();
  void write();

  const std::string creator_, device_;
  const Milliseconds delay_;
  std::mutex writing_;       // of write(), which does not hold the other one while it reads and writes files
  Hash128 seen_;             // of the payload that was read or written last; of write()
  mutable std::mutex mutex_; // of what follows
  std::condition_variable more_;
  const OfProcess process_;
  std::shared_ptr<Cache> cache_;
  mutable std::unordered_map<std::string, Known> known_;
  mutable uint64_t calls_ = 0;
  bool unwritten_ = false, stop_ = false;
  int64_t writes_ = 0;
  std::thread thread_; // started by the first choice that is to be written
};

} // namespace tessera
