#include "match_operators.h"
#include <algorithm>
#include <cctype>
#include <map>

namespace tessera::command {

namespace {

// "aten.add.Tensor" and "Add" are one type; domains and overloads are left out.
std::string type_of(const Json& operation) {
  std::string op = operation.at("op").get<std::string>();
  if (const auto domain = op.rfind(':'); domain != std::string::npos) op = op.substr(domain + 1);
  if (op.starts_with("aten.")) op = op.substr(5, op.find('.', 5) - 5);
  std::string out;
  for (char c : op)
    if (c != '_') out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

constexpr size_t kMaxCells = size_t{1} << 26; // of the table of subsequences

// Pairs of a longest common subsequence, by index into each list.
std::vector<std::pair<size_t, size_t>> common(const std::vector<int>& a, const std::vector<int>& b) {
  const size_t rows = a.size() + 1, columns = b.size() + 1;
  std::vector<uint16_t> longest(rows * columns, 0); // of a from i on and b from j on
  auto at = [&](size_t i, size_t j) -> uint16_t& { return longest[i * columns + j]; };
  for (size_t i = a.size(); i-- > 0;)
    for (size_t j = b.size(); j-- > 0;)
      at(i, j) = a[i] == b[j] ? static_cast<uint16_t>(at(i + 1, j + 1) + 1) : std::max(at(i + 1, j), at(i, j + 1));
  std::vector<std::pair<size_t, size_t>> pairs;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (a[i] == b[j])
      pairs.emplace_back(i++, j++);
    else
      at(i + 1, j) >= at(i, j + 1) ? ++i : ++j;
  }
  return pairs;
}

std::vector<std::pair<size_t, size_t>> in_order_of_type(const std::vector<int>& a, const std::vector<int>& b) {
  std::map<int, std::vector<size_t>> places;
  for (size_t j = 0; j < b.size(); ++j) places[b[j]].push_back(j);
  std::map<int, size_t> taken;
  std::vector<std::pair<size_t, size_t>> pairs;
  for (size_t i = 0; i < a.size(); ++i)
    if (const size_t n = taken[a[i]]++; n < places[a[i]].size()) pairs.emplace_back(i, places[a[i]][n]);
  return pairs;
}

} // namespace

OperatorMatch match_operators(const Json& a, const Json& b) {
  OperatorMatch match;
  match.b_of_a.assign(a.size(), -1);
  std::map<std::string, size_t> by_id;
  for (size_t j = 0; j < b.size(); ++j) by_id.emplace(b[j].at("id").get<std::string>(), j);
  std::vector<bool> taken(b.size(), false);
  for (size_t i = 0; i < a.size(); ++i) {
    const auto it = by_id.find(a[i].at("id").get<std::string>());
    if (it == by_id.end() || type_of(a[i]) != type_of(b[it->second])) continue;
    match.b_of_a[i] = static_cast<int>(it->second);
    taken[it->second] = true;
    ++match.by_name;
  }
  std::map<std::string, int> numbers; // of types
  auto number = [&](const Json& o) {
    return numbers.emplace(type_of(o), static_cast<int>(numbers.size())).first->second;
  };
  for (const bool with_steps : {true, false}) { // what was computed while compiling is noise among the others
    std::vector<size_t> left_a, left_b;
    std::vector<int> types_a, types_b;
    for (size_t i = 0; i < a.size(); ++i)
      if (match.b_of_a[i] < 0 && a[i].at("steps").empty() != with_steps)
        left_a.push_back(i), types_a.push_back(number(a[i]));
    for (size_t j = 0; j < b.size(); ++j)
      if (!taken[j] && b[j].at("steps").empty() != with_steps) left_b.push_back(j), types_b.push_back(number(b[j]));
    const bool small = left_a.size() < UINT16_MAX && left_b.size() < UINT16_MAX &&
                       (left_a.size() + 1) * (left_b.size() + 1) <= kMaxCells;
    for (const auto& [i, j] : small ? common(types_a, types_b) : in_order_of_type(types_a, types_b)) {
      match.b_of_a[left_a[i]] = static_cast<int>(left_b[j]);
      taken[left_b[j]] = true;
      ++match.by_structure;
    }
  }
  return match;
}

} // namespace tessera::command
