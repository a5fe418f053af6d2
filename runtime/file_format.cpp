#include "runtime/file_format.h"
#include <deque>
#include <mutex>

namespace tessera {

SymExpr file::parameter(size_t index) {
  static std::mutex mutex;
  static std::deque<SymExpr> all;
  std::lock_guard lock(mutex);
  while (all.size() <= index) all.push_back(SymExpr::symbol("p" + std::to_string(all.size())));
  return all[index];
}

} // namespace tessera
