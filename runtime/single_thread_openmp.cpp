#include "runtime/single_thread_openmp.h"
#include <dlfcn.h>

namespace tessera {
namespace {
// Looked up, not linked: whether there is an OpenMP runtime is the business of the oneDNN that was installed.
struct OpenMP {
  int (*get_max_threads)() = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
  void (*set_num_threads)(int) = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
};
const OpenMP& openmp() {
  static const OpenMP found;
  return found;
}
} // namespace

SingleThreadOpenMP::SingleThreadOpenMP() {
  const auto& omp = openmp();
  if (!omp.get_max_threads || !omp.set_num_threads) return;
  before_ = omp.get_max_threads();
  if (before_ != 1) omp.set_num_threads(1);
}

SingleThreadOpenMP::~SingleThreadOpenMP() {
  if (before_ > 1) openmp().set_num_threads(before_);
}

} // namespace tessera
