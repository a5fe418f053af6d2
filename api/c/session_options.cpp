#include "api/c/session_options.h"
#include "api/c/opening.h"
#include "api/option_fields.h"
#include "base/text.h"
#include <utility>

namespace tessera {
namespace {

Diagnostic usage(std::string message) { return {ErrorCode::Usage, std::move(message)}; }

Status check(const OptionField& f, const tessera_options& given, Spelling spelled) {
  const auto fits = [&](auto member) -> Status {
    const auto value = given.*member;
    if constexpr (std::is_same_v<decltype(value), const char* const>) {
      if (f.kind != OptionField::Kind::Choice || value == nullptr) return {};
      const auto known = values_of(f);
      if (std::find(known.begin(), known.end(), value) == known.end())
        return usage(spelled(f.name) + " is " + quote(value) + "; it must be one of " + std::string(f.values));
    } else if constexpr (std::is_same_v<decltype(value), const double>) {
      if (!(value <= 1))
        return usage(spelled(f.name) + " is " + std::to_string(value) + "; a share of the time is from 0 to 1");
    } else if (f.kind != OptionField::Kind::Flag) {
      if (std::cmp_less(value, 0) || std::cmp_greater(value, largest(f.kind)))
        return usage(spelled(f.name) + " is " + std::to_string(value) + "; 0 to " + std::to_string(largest(f.kind)) +
                     " are possible");
    }
    return {};
  };
  return std::visit(fits, f.c_member);
}

// Parse: (std::string_view) -> Result<T>. `text` may be null, which leaves `out` as it is.
template <class T, class Parse>
Status take_text(const char* text, const std::string& spelled, T& out, const Parse& parse) {
  if (text == nullptr) return {};
  auto parsed = parse(text);
  if (!parsed.ok()) {
    Diagnostic error = std::move(parsed).take_error();
    error.message = spelled + " " + error.message;
    return error;
  }
  out = std::move(*parsed);
  return {};
}

} // namespace

std::string as_named(std::string_view name) { return std::string(name); }

Status take_options(const tessera_options& given, Spelling spelled, SessionOptions& out) {
  for (const OptionField& f : kOptionFields) TESSERA_TRY(check(f, given, spelled));
  out.compile.threads = given.threads;
  TESSERA_TRY(apply({given.tf32, given.plan, given.strict_rounding != 0}, out.compile));
  if (given.tune_share != 0) out.tune_share = std::max(given.tune_share, 0.0);
  out.executor.memory_limit = static_cast<int64_t>(given.memory_limit);
  if (given.policy != nullptr) out.policy = *parse_policy(given.policy);
  if (given.max_variants > 0) out.max_variants = given.max_variants;
  if (given.max_variant_bytes > 0) out.max_variant_bytes = static_cast<int64_t>(given.max_variant_bytes);
  out.deterministic = given.deterministic != 0;
  if (given.cache_dir != nullptr) out.compile.cache_dir = given.cache_dir;
  TESSERA_TRY(take_text(given.specialize, spelled("specialize"), out.specialize, parse_specializations));
  return take_text(given.ranges, spelled("warm_up"), out.warm_up, parse_size_ranges);
}

} // namespace tessera
