#include "api/sizes.h"
#include "symbols/env.h"
#include <charconv>
#include <functional>
#include <optional>

namespace tessera {
namespace {

Diagnostic usage(std::string message) { return {ErrorCode::Usage, std::move(message)}; }

std::string quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

// "DIM=VALUE,DIM=VALUE", each value read by `read`. Names may hold '=', values do not.
template <class Value>
Result<std::map<std::string, Value>> assignments(std::string_view text, const std::string& example,
                                                 const std::function<Result<Value>(std::string_view)>& read) {
  std::map<std::string, Value> out;
  for (std::string_view rest = text;;) {
    const auto comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    const auto at = part.rfind('=');
    if (at == std::string_view::npos || at == 0 || at + 1 == part.size())
      return usage(quoted(part) + " is not of the form " + example);
    auto value = read(part.substr(at + 1));
    if (!value.ok()) {
      Diagnostic error = std::move(value).take_error();
      error.message = quoted(part) + ": " + error.message;
      return error;
    }
    if (!out.emplace(part.substr(0, at), std::move(*value)).second)
      return usage(quoted(text) + " names " + quoted(part.substr(0, at)) + " twice");
    if (comma == std::string_view::npos) return out;
    rest.remove_prefix(comma + 1);
  }
}

// Reads "div:8".
Result<Specialization> parse_divisor(std::string_view text) {
  const auto divisor = number(text.substr(4));
  if (!divisor || *divisor < 2 || *divisor > 1 << 20) return usage("the divisor is a number from 2 to 1048576");
  return Specialization{Specialization::Kind::Divisible, *divisor};
}

Result<SizeRange> parse_range(std::string_view text) {
  constexpr std::string_view kOnly = "only:";
  const bool only = text.starts_with(kOnly);
  if (only) text.remove_prefix(kOnly.size());
  std::vector<int64_t> sizes;
  for (std::string_view rest = text;;) {
    const auto dots = rest.find("..");
    const std::string_view part = rest.substr(0, dots);
    const auto size = number(part);
    if (!size || *size < 1 || *size > kSymMax)
      return usage(quoted(part) + " is no size, which is a number from 1 to " + std::to_string(kSymMax));
    sizes.push_back(*size);
    if (dots == std::string_view::npos) break;
    rest.remove_prefix(dots + 2);
  }
  if (sizes.size() > 3) return usage("a range has at most three sizes").note("write MIN..OPT..MAX: batch=1..8..32");
  const SizeRange range{sizes.front(), sizes[sizes.size() / 2], sizes.back(), only};
  if (range.min > range.max)
    return usage("the smallest size, " + std::to_string(range.min) + ", is above the largest, " +
                 std::to_string(range.max));
  if (range.opt < range.min || range.opt > range.max)
    return usage("the typical size, " + std::to_string(range.opt) + ", is not between " + std::to_string(range.min) +
                 " and " + std::to_string(range.max))
        .note("write MIN..OPT..MAX: batch=1..8..32");
  return range;
}

} // namespace

Result<Specializations> parse_specializations(std::string_view text) {
  return assignments<Specialization>(text, "DIM=exact or DIM=div:8", [](auto value) -> Result<Specialization> {
    if (value.starts_with("div:")) return parse_divisor(value);
    if (value == "exact") return Specialization{};
    return usage(quoted(value) + " is neither exact nor div:8");
  });
}

Result<Specializations> parse_variant(std::string_view text) {
  return assignments<Specialization>(text, "DIM=4 or DIM=div:8", [](auto value) -> Result<Specialization> {
    if (value.starts_with("div:")) return parse_divisor(value);
    const auto size = number(value);
    if (!size || *size < 0) return usage(quoted(value) + " is neither a size nor div:8");
    return Specialization{Specialization::Kind::Exact, 1, *size};
  });
}

Result<SizeRanges> parse_size_ranges(std::string_view text) {
  return assignments<SizeRange>(text, "DIM=MIN..OPT..MAX", [](auto value) { return parse_range(value); });
}

} // namespace tessera
