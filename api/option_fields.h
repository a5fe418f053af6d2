// The options of an opening (options.def) as a table, for what reads them by name.
#pragma once
#include "api/tessera.hpp"
#include <algorithm>
#include <string_view>
#include <variant>

namespace tessera {

struct OptionField {
  enum class Kind : uint8_t {
    Text,
    Choice, // one of `values`
    Sizes,  // "DIM=VALUE,DIM=VALUE"; a mapping in Python, repeatable on the command line
    File,
    Folder,
    Flag,
    Count, // from 0 to INT32_MAX
    Bytes, // from 0 to INT64_MAX
    Share, // of the time, from 0 to 1; in tessera_options 0 is the default and a negative number is 0
  };
  using Of = stable::Options;
  using OfC = tessera_options;
  std::string_view name; // the command writes it with hyphens
  std::variant<std::string Of::*, int Of::*, uint64_t Of::*, double Of::*, bool Of::*> member;
  std::variant<const char * OfC::*, int32_t OfC::*, uint64_t OfC::*, double OfC::*> c_member;
  Kind kind;
  std::string_view values;   // of a Choice, with ", " between
  std::string_view standard; // the default, which zero and null in tessera_options are; empty: none
  bool plans;                // it decides which plan is made, and is part of the key of the cache of plans
  bool compiles;             // it has no meaning for a compiled file
  std::string_view group;    // its heading in the help of the command
  std::string_view help;     // a sentence without its full stop
  std::string_view no_torch; // why torch.compile does not take it; empty: it does
};

// All but struct_size and allocator, which is no text.
inline constexpr OptionField kOptionFields[] = {
#define TESSERA_OPTION(type, name, initial, field, kind, ...)                                                          \
  {#name, &stable::Options::name, &tessera_options::field, OptionField::Kind::kind, __VA_ARGS__},
#include "api/options.def"
};

[[nodiscard]] inline std::vector<std::string> values_of(const OptionField& choice) {
  std::vector<std::string> out;
  for (std::string_view rest = choice.values; !rest.empty();) {
    const auto comma = std::min(rest.find(", "), rest.size());
    out.emplace_back(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 2, rest.size()));
  }
  return out;
}
// Null for another name.
[[nodiscard]] inline const OptionField* find_option(std::string_view name) {
  const auto* it = std::find_if(std::begin(kOptionFields), std::end(kOptionFields),
                                [&](const OptionField& f) { return f.name == name; });
  return it == std::end(kOptionFields) ? nullptr : it;
}
[[nodiscard]] inline std::string option_names() {
  std::string all;
  for (const OptionField& f : kOptionFields) all += (all.empty() ? "" : ", ") + std::string(f.name);
  return all;
}
[[nodiscard]] constexpr bool is_path(OptionField::Kind kind) {
  return kind == OptionField::Kind::File || kind == OptionField::Kind::Folder;
}
[[nodiscard]] constexpr int64_t largest(OptionField::Kind kind) {
  return kind == OptionField::Kind::Count ? INT32_MAX : INT64_MAX;
}
// A share as tessera_options has it, of a caller who did say it.
[[nodiscard]] constexpr double given_share(double share) { return share == 0 ? -1 : share; }

} // namespace tessera
