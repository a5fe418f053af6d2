// Which operator of one report is which of another.
#pragma once
#include "command.h"

namespace tessera::command {

struct OperatorMatch {
  std::vector<int> b_of_a; // index into the other's operators; -1 where it has none
  size_t by_name = 0, by_structure = 0;
};
// Matches two lists of operators: by id and type, then the rest by the longest common subsequence of types, in the
// models' order, those that steps compute before those that were computed while compiling. In lists that are too long
// for that, the n-th operator of a type matches the other's n-th one.
[[nodiscard]] OperatorMatch match_operators(const Json& a, const Json& b);

} // namespace tessera::command
