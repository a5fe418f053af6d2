#include "runtime/library/onednn.h"
#include "base/limits.h"
#include "runtime/single_thread_openmp.h"
#include <atomic>
#include <mutex>
#include <sys/mman.h>

namespace tessera {

Status room_for_code() {
  constexpr size_t kRoom = size_t{32} << 20;
  void* room = ::mmap(nullptr, kRoom, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return out_of_memory("there are no 32 MB of address space for oneDNN's code");
  ::munmap(room, kRoom);
  return {};
}

Status generate_product_code() {
  static std::atomic<bool> done{false};
  if (done.load(std::memory_order_acquire)) return {};
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  TESSERA_TRY(room_for_code());
  const SingleThreadOpenMP omp;
  constexpr int64_t kSize = 16;
  const std::vector<float> zeros(kSize * kSize);
  std::vector<float> result(kSize * kSize);
  // On AVX-512 few rows times a transposed matrix have kernels of their own; all others come with the first call.
  for (const auto& [op, rows] : {std::pair('N', kSize), std::pair('T', int64_t{2})})
    if (dnnl_sgemm('N', op, rows, kSize, kSize, 1.0F, zeros.data(), kSize, zeros.data(), kSize, 0.0F, result.data(),
                   kSize) != dnnl_success)
      return out_of_memory("oneDNN could not generate its products");
  done.store(true, std::memory_order_release);
  return {};
}

} // namespace tessera
