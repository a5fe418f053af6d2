#include "base/similar.h"
#include <algorithm>
#include <utility>

namespace tessera {

std::string similar(const std::string& word, const std::vector<std::string>& known) {
  std::string best;
  size_t fewest = word.size() / 3 + 1;
  if (word.size() > 64) return best; // no slip of the finger
  for (const auto& other : known) {
    // Levenshtein's distance, a row of its table at a time.
    std::vector<size_t> row(other.size() + 1);
    for (size_t j = 0; j <= other.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= word.size(); ++i) {
      size_t diagonal = std::exchange(row[0], i);
      for (size_t j = 1; j <= other.size(); ++j) {
        const size_t replaced = diagonal + (word[i - 1] == other[j - 1] ? 0 : 1);
        diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
      }
    }
    if (row.back() <= fewest) {
      if (row.back() < fewest || best.empty()) best = other;
      fewest = row.back();
    }
  }
  return best;
}

} // namespace tessera
