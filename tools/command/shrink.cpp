#include "shrink.h"
#include <algorithm>
#include <vector>

namespace tessera::command {

std::set<size_t> smallest(const std::set<size_t>& items, const std::function<bool(const std::set<size_t>&)>& holds,
                          const std::function<bool()>& expired) {
  std::vector<size_t> now(items.begin(), items.end());
  size_t parts = 2;
  auto cut = [&](size_t part, bool keep) { // the part, or all others
    const size_t begin = now.size() * part / parts, end = now.size() * (part + 1) / parts;
    std::set<size_t> out;
    for (size_t i = 0; i < now.size(); ++i)
      if ((i >= begin && i < end) == keep) out.insert(now[i]);
    return out;
  };
  while (now.size() > 1 && !expired()) {
    parts = std::min(parts, now.size());
    bool smaller = false;
    for (bool keep : {true, false}) {
      if (parts == 2 && !keep) continue; // the other half is a part, too
      for (size_t p = 0; p < parts && !smaller && !expired(); ++p) {
        const std::set<size_t> candidate = cut(p, keep);
        if (!holds(candidate)) continue;
        now.assign(candidate.begin(), candidate.end());
        parts = keep ? 2 : std::max<size_t>(parts - 1, 2);
        smaller = true;
      }
      if (smaller) break;
    }
    if (smaller) continue;
    if (parts >= now.size()) break;
    parts *= 2;
  }
  return {now.begin(), now.end()};
}

} // namespace tessera::command
