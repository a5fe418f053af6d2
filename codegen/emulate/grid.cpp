#include "codegen/emulate/grid.h"
#include <algorithm>
#include <atomic>
#include <mutex>
#include <system_error>
#include <thread>

namespace tessera::emu {

constexpr int64_t kMaxResident = 512; // blocks that run at the same time, each on a system thread

Result<EmulateResult> run_grid(const Launch& launch) {
  const int64_t grid = launch.grid.programs();
  EmulateResult out;
  out.shared_bytes = launch.shared_bytes;
  if (grid <= 0) return out;
  if (launch.grid[0] % launch.cluster != 0)
    return Diagnostic(ErrorCode::BadInput,
                      "kernel '" + launch.kernel + "': a grid of " + std::to_string(launch.grid[0]) +
                          " programs is no multiple of its clusters of " + std::to_string(launch.cluster));
  const int64_t clusters = grid / launch.cluster;
  std::mutex mutex;
  std::optional<Diagnostic> error;
  std::set<int> sites;
  // Blocks start in ascending order, with odd seeds in descending order, so that a later block reads what an earlier
  // one overwrote. All blocks before a failed one run, so the reported error does not depend on timing.
  std::atomic<int64_t> next = 0, failed = clusters; // clusters
  auto work = [&] {
    auto cluster = Cluster::make(launch);
    auto note = [&](int64_t index, const Diagnostic& d) {
      std::lock_guard lock(mutex);
      // A block that was cancelled because of another block's error has no error of its own.
      bool cancelled = error && error->code == ErrorCode::Cancelled;
      if (d.code == ErrorCode::Cancelled ? error.has_value()
                                         : !cancelled && (index > failed || (index == failed && error)))
        return;
      failed = index;
      error = d;
    };
    if (!cluster) {
      if (launch.cooperation) launch.cooperation->leave(false);
      return note(0, cluster.error());
    }
    for (int64_t i; (i = next.fetch_add(1)) < clusters && i < failed;) {
      auto done = (*cluster)->run(launch.seed % 2 ? clusters - 1 - i : i);
      for (int rank = 0; launch.cooperation && rank < launch.cluster; ++rank) launch.cooperation->leave(done.ok());
      if (!done) note(i, done.error());
    }
    std::lock_guard lock(mutex);
    for (int rank = 0; rank < launch.cluster; ++rank) {
      const Block& block = (*cluster)->block(rank);
      out.barriers += block.barriers;
      out.shuffles += block.shuffles;
      sites.insert(block.barrier_sites.begin(), block.barrier_sites.end());
    }
  };
  auto workers = std::min<int64_t>(clusters, std::max(1u, std::thread::hardware_concurrency()));
  if (launch.cooperation && launch.cooperation->waits()) { // all blocks run at the same time
    TESSERA_CHECK(launch.cluster == 1, "clusters of kernel " + launch.kernel + ", whose programs wait for each other");
    if (grid > kMaxResident)
      return Diagnostic(ErrorCode::BadInput, "kernel '" + launch.kernel + "': " + std::to_string(grid) +
                                                 " cooperative blocks are too many to emulate, at most " +
                                                 std::to_string(kMaxResident));
    workers = grid;
  }
  std::vector<std::thread> threads;
  try {
    for (int64_t i = 1; i < workers; ++i) threads.emplace_back(work);
  } catch (const std::system_error& e) {
    {
      std::lock_guard lock(mutex);
      failed = -1; // takes precedence over errors of blocks
      error = Diagnostic(ErrorCode::OutOfMemory, "kernel '" + launch.kernel + "': threads for " +
                                                     std::to_string(workers) + " blocks at a time: " + e.what());
    }
    if (launch.cooperation) launch.cooperation->leave(false);
  }
  work();
  for (auto& t : threads) t.join();
  if (error) return std::move(*error);
  out.barrier_sites.assign(sites.begin(), sites.end());
  return out;
}

} // namespace tessera::emu
