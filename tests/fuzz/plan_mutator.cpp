#include "plan_mutator.h"
#include <string>
#include <vector>

namespace tessera::fuzz {
namespace {
using Json = nlohmann::json;

class Mutator {
public:
  explicit Mutator(std::mt19937_64& rng) : rng_(rng) {}

  void edit(Json& plan) {
    nodes_.clear();
    collect(plan);
    Json& node = *nodes_[below(nodes_.size())];
    if (below(40) == 0) { // of another type, perhaps
      Json other = *nodes_[below(nodes_.size())];
      node = std::move(other);
      return;
    }
    switch (node.type()) {
    case Json::value_t::boolean: node = !node.get<bool>(); break;
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
    case Json::value_t::number_float: number(node); break;
    case Json::value_t::string: text(node); break;
    case Json::value_t::array: array(node); break;
    case Json::value_t::object: object(node); break;
    default: node = 0; break;
    }
  }

private:
  size_t below(size_t n) { return n == 0 ? 0 : static_cast<size_t>(rng_() % n); }

  void collect(Json& j) {
    nodes_.push_back(&j);
    if (j.is_structured())
      for (auto& child : j) collect(child);
  }
  // Another node of the same type.
  const Json& neighbour(const Json& node) {
    for (int tries = 0; tries < 16; ++tries)
      if (const Json& other = *nodes_[below(nodes_.size())]; other.type() == node.type()) return other;
    return node;
  }

  void number(Json& node) {
    static const int64_t kEdges[] = {-1,
                                     0,
                                     1,
                                     2,
                                     3,
                                     4,
                                     7,
                                     8,
                                     16,
                                     63,
                                     64,
                                     255,
                                     1000,
                                     INT32_MAX,
                                     INT32_MIN,
                                     int64_t{1} << 31,
                                     int64_t{1} << 32,
                                     int64_t{1} << 40,
                                     int64_t{1} << 62,
                                     INT64_MAX,
                                     INT64_MIN};
    switch (below(20)) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4:
    case 5: node = Json(neighbour(node)); break;
    case 6:
    case 7:
    case 8:
    case 9:
    case 10:
      if (node.is_number_float()) break;
      node = static_cast<int64_t>(node.get<uint64_t>() + (below(2) != 0 ? 1 : ~uint64_t{0}));
      break;
    case 11: {
      static const Json kOdd[] = {UINT64_MAX, 0.5, 1e300, -1e300, "1", true, nullptr};
      node = kOdd[below(std::size(kOdd))];
      break;
    }
    default: node = kEdges[below(below(2) != 0 ? 9 : std::size(kEdges))]; break; // 9: small ones
    }
  }

  void text(Json& node) {
    auto value = node.get<std::string>();
    static const char* const kTexts[] = {"0",
                                         "1",
                                         "-1",
                                         "2",
                                         "9223372036854775807",
                                         "1000000",
                                         "1099511627776",
                                         "f32",
                                         "f16",
                                         "i64",
                                         "bool",
                                         "string",
                                         "i4",
                                         "",
                                         "s",
                                         "n",
                                         "b",
                                         "h",
                                         "nobody",
                                         "matmul",
                                         "conv",
                                         "s*s",
                                         "s + 1"};
    switch (below(16)) {
    case 0: node = kTexts[below(std::size(kTexts))]; return;
    case 1:
    case 2:
    case 3:
    case 4:
    case 5: { // as a size
      static const char* const kAround[][2] = {{"(", ") + 1"},
                                               {"(", ") - 1"},
                                               {"(", ")*2"},
                                               {"(", ")*1000000"},
                                               {"floordiv(", ", 2)"},
                                               {"floordiv(", ", 0)"},
                                               {"-(", ")"},
                                               {"max(", ", 100)"},
                                               {"min(", ", 1)"},
                                               {"mod(", ", 3)"},
                                               {"select(le(", ", 2), 0, 5)"}};
      const auto& a = kAround[below(std::size(kAround))];
      node = a[0] + value + a[1];
      return;
    }
    case 6:
    case 7: node = value + " + " + (neighbour(node).is_string() ? neighbour(node).get<std::string>() : "1"); return;
    case 8:
      if (!value.empty()) value.erase(below(value.size()), 1 + below(4));
      break;
    case 9:
      if (!value.empty()) value[below(value.size())] = "0123456789-*(),sn[]% \n\x80\x01"[below(24)];
      break;
    case 10:
    case 11: // a number in it
      for (size_t at = below(value.size() + 1), i = 0; i < value.size(); ++i) {
        char& c = value[(at + i) % value.size()];
        if (c < '0' || c > '9') continue;
        c = static_cast<char>('0' + below(10));
        break;
      }
      break;
    default: node = Json(neighbour(node)); return;
    }
    node = value;
  }

  void array(Json& node) {
    auto n = node.size();
    if (n == 0) {
      node.push_back(Json(*nodes_[below(nodes_.size())]));
      return;
    }
    switch (below(6)) {
    case 0: node.erase(below(n)); break;
    case 1: node.push_back(Json(node[below(n)])); break;
    case 2: node.insert(node.begin() + static_cast<std::ptrdiff_t>(below(n)), Json(node[below(n)])); break;
    case 3: std::swap(node[below(n)], node[below(n)]); break;
    case 4: node[below(n)] = Json(node[below(n)]); break;
    default: node = Json(neighbour(node)); break;
    }
  }

  void object(Json& node) {
    if (node.empty()) return;
    auto key = [&] { return std::next(node.begin(), static_cast<std::ptrdiff_t>(below(node.size()))).key(); };
    switch (below(4)) {
    case 0: node.erase(key()); break;
    case 1: node[key()] = Json(node[key()]); break;
    case 2: node = Json(neighbour(node)); break;
    default: std::swap(node[key()], node[key()]); break;
    }
  }

  std::mt19937_64& rng_;
  std::vector<Json*> nodes_;
};

} // namespace

void mutate(Json& plan, std::mt19937_64& rng) {
  for (size_t edits = 1 + rng() % 3; edits > 0; --edits) Mutator(rng).edit(plan);
}

} // namespace tessera::fuzz
