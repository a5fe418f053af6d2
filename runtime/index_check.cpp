#include "runtime/index_check.h"

namespace tessera {
namespace {

// "[1, 2]", or "element 5" where sizes are unknown; "" without a position.
std::string place(const IndexCheck& check, int64_t position, const std::unordered_map<uint64_t, int64_t>& symbols) {
  std::string at = check.component < 0 ? "" : std::to_string(check.component);
  const SymShape& shape = check.shape;
  if (position == IndexReport::kNoPosition || (shape.empty() && at.empty())) return "";
  int64_t rest = position;
  for (size_t d = shape.size(); d-- > 0;) {
    const auto size = shape[d].eval(symbols);
    if (!size.ok() || *size <= 0) return " at element " + std::to_string(position);
    at = std::to_string(rest % *size) + (at.empty() ? "" : ", ") + at;
    rest /= *size;
  }
  return " at [" + at + "]";
}

std::string range(const IndexCheck& check, const std::unordered_map<uint64_t, int64_t>& symbols) {
  if (!check.extent) return "";
  const auto known = check.extent->eval(symbols);
  const std::string n = known.ok() ? std::to_string(*known) : check.extent->str();
  const bool simple = known.ok() || check.extent->is_symbol();
  const std::string least = !check.from_end || n == "0" ? "0" : simple ? "-" + n : "-(" + n + ")";
  return " [" + least + ", " + n + ")";
}

} // namespace

std::string index_error(const IndexCheck& check, int64_t position, int64_t value,
                        const std::unordered_map<uint64_t, int64_t>& symbols) {
  const bool of_index = check.failure.empty();
  std::string text = (of_index ? "index " + std::to_string(value) : check.failure) + place(check, position, symbols);
  if (!check.indices.empty()) text += " of '" + check.indices + "'";
  if (of_index) text += " is out of range" + range(check, symbols);
  if (!check.table.empty()) text += " of '" + check.table + "'";
  return check.node.empty() ? text : text + " in " + check.node;
}

} // namespace tessera
