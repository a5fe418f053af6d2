// Ranks that the file leaves open. The number of dimensions of an input without a shape is a symbol: each call binds it,
// a variant assumes one value, and a call with another one is a miss as any other. An output with such a symbol has a
// rank that follows from the call.
#pragma once
#include <string>
#include <string_view>

namespace tessera {

// The symbol's name. No dimension has it, as names of dimensions are identifiers.
[[nodiscard]] inline std::string rank_symbol(std::string_view name) { return "rank of " + std::string(name); }

} // namespace tessera
