// Faults, one after the other while calls run: allocations that fail, compiles that are given up, damaged entries of the
// cache, a full disk, processes that are killed while they fill a cache. After each, what must work is tried.
#pragma once
#include "load.h"

namespace tessera::soak {

class Faults {
public:
  // `folder`: for the caches that are damaged. `program`: this one, which is started again.
  Faults(const std::vector<Model>& models, SessionOptions session, std::string folder, std::string program,
         uint64_t seed, Findings& findings);
  ~Faults() { stop(); }
  void stop();
  // A process without faults starts with the caches as they were left. Findings: it does not.
  void expect_clean_start();
  [[nodiscard]] std::string counts() const; // "12 of failing allocations, ..."

private:
  void work();
  void failing_allocation();
  void given_up_compile();
  void damaged_cache();
  void full_disk();
  void killed_writer();
  // Opens a model with this cache and calls it.
  void expect_works(const std::string& cache, const std::string& after);
  void expect_undamaged(const std::string& cache);
  pid_t start(const std::string& cache) const; // this program with --fill
  [[nodiscard]] std::string cache(const std::string& name) const { return folder_ + "/" + name; }

  const std::vector<Model>& models_;
  SessionOptions session_;
  std::string folder_, program_;
  std::mt19937_64 random_;
  Findings& findings_;
  std::atomic<bool> ends_{false};
  std::map<std::string, std::atomic<int64_t>> counts_;
  bool can_mount_ = true;
  std::thread thread_;
};

} // namespace tessera::soak
