// The word that somebody may have meant.
#pragma once
#include <string>
#include <vector>

namespace tessera {

// The word of `known` that is fewest edits (Levenshtein's distance) from `word`, at most a third of its letters; empty
// where there is none.
[[nodiscard]] std::string similar(const std::string& word, const std::vector<std::string>& known);

} // namespace tessera
