#include "codegen/emulate/grid.h"
#include <algorithm>
#include <atomic>
#include <mutex>
#include <system_error>
#include <thread>

namespace tessera::emu {

constexpr int64_t kMostTogether = 512; // blocks, each on a thread of the system

Result<EmulateResult> run_grid(const Launch& launch, int64_t grid) {
  EmulateResult out;
  out.shared_bytes = launch.shared_bytes;
  if (grid <= 0) return out;
  std::mutex mutex;
  std::optional<Diagnostic> error;
  std::set<int> places;
  // Blocks start in order, from the other end with odd seeds: what one overwrites, another that comes later and reads
  // it sees. None is left out before one that failed: which error is told does not depend on timing.
  std::atomic<int64_t> next = 0, failed = grid;
  auto work = [&] {
    auto block = Block::make(launch);
    auto note = [&](int64_t index, const Diagnostic& d) {
      std::lock_guard lock(mutex);
      // A block that was given up because of another one's error has none of its own.
      bool given_up = error && error->code == ErrorCode::Cancelled;
      if (d.code == ErrorCode::Cancelled ? error.has_value()
                                         : !given_up && (index > failed || (index == failed && error)))
        return;
      failed = index;
      error = d;
    };
    if (!block) {
      if (launch.teams) launch.teams->leave(false);
      return note(0, block.error());
    }
    for (int64_t i; (i = next.fetch_add(1)) < grid && i < failed;) {
      auto done = (*block)->run(launch.seed % 2 ? grid - 1 - i : i);
      if (launch.teams) launch.teams->leave(done.ok());
      if (!done) note(i, done.error());
    }
    std::lock_guard lock(mutex);
    out.barriers += (*block)->barriers;
    out.shuffles += (*block)->shuffles;
    places.insert((*block)->barrier_places.begin(), (*block)->barrier_places.end());
  };
  auto workers = std::min<int64_t>(grid, std::max(1u, std::thread::hardware_concurrency()));
  if (launch.teams && launch.teams->waits()) { // all of them at the same time
    if (grid > kMostTogether)
      return Diagnostic(ErrorCode::BadInput, "kernel '" + launch.kernel + "': " + std::to_string(grid) +
                                                 " blocks that wait for each other are too many to emulate");
    workers = grid;
  }
  std::vector<std::thread> threads;
  try {
    for (int64_t i = 1; i < workers; ++i) threads.emplace_back(work);
  } catch (const std::system_error& e) {
    {
      std::lock_guard lock(mutex);
      failed = -1; // no error of a block counts
      error = Diagnostic(ErrorCode::OutOfMemory, "kernel '" + launch.kernel + "': threads for " +
                                                     std::to_string(workers) + " blocks at a time: " + e.what());
    }
    if (launch.teams) launch.teams->leave(false);
  }
  work();
  for (auto& t : threads) t.join();
  if (error) return std::move(*error);
  out.barrier_places.assign(places.begin(), places.end());
  return out;
}

} // namespace tessera::emu
