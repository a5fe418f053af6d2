// The options of an opening as a table. What reads them by name derives from it: the flags of the command, the keyword
// arguments of Python, the options of torch.compile, the parameters of Triton's backend, their checks and docs/options.md.
#pragma once
#include "api/tessera.hpp"
#include <algorithm>
#include <array>
#include <string_view>
#include <variant>

namespace tessera {

struct OptionField {
  enum class Kind : uint8_t {
    Text,
    Choice, // one of `values`
    Sizes,  // "DIM=VALUE,DIM=VALUE"; a mapping in Python, repeatable on the command line
    File,
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
inline constexpr auto kOptionFields = [] {
  using O = stable::Options;
  using C = tessera_options;
  using K = OptionField::Kind;
  constexpr auto device = "Device", precision = "Fusion and precision", tuning = "Cache and tuning",
                 variants = "Variants";
  constexpr auto by_dynamo = "Dynamo's guards decide which sizes are compiled";
  return std::array{
      OptionField{"device", &O::device, &C::device, K::Text, "", "auto", true, false, device,
                  "where to run: cpu, cuda (the first GPU), cuda:N, or auto: the first GPU where there is one that can "
                  "be used, else the CPU",
                  ""},
      OptionField{"threads", &O::threads, &C::threads, K::Count, "", "0", true, false, device,
                  "threads of the host; 0: as many as affinity and quota allow", ""},
      OptionField{"tune_share", &O::tune_share, &C::tune_share, K::Share, "", "", false, true, tuning,
                  "tune kernels during the calls, in at most this share of the time, from 0 to 1 (default: "
                  "$TESSERA_TUNE_SHARE, else 0)",
                  ""},
      OptionField{"tf32", &O::tf32, &C::tf32, K::Choice, "off, conv, matmul, all", "conv", true, true, precision,
                  "f32 operations on a GPU that may round their operands to TF32: convolutions, products, or both", ""},
      OptionField{"plan", &O::plan, &C::plan, K::File, "", "", true, true, precision,
                  "fusion, schedules and routes of this file, which 'tessera compile --save-plan' wrote; what does not "
                  "fit is decided anew",
                  "a plan is of one graph, and a module may have several"},
      OptionField{"memory_limit", &O::memory_limit, &C::memory_limit, K::Bytes, "", "0", false, false, device,
                  "bytes that intermediate results, outputs that the library allocates, plans of sizes and packed "
                  "weights may have together: a call that needs more is an error before it begins; 0: any number",
                  "PyTorch's allocator holds the memory"},
      OptionField{"policy", &O::policy, &C::policy, K::Choice, "generic, adaptive, exact", "generic", false, true,
                  variants,
                  "variants for the sizes of calls: none; of sizes that recur, compiled in the background; of all "
                  "sizes, compiled in the call",
                  by_dynamo},
      OptionField{"max_variants", &O::max_variants, &C::max_variants, K::Count, "", "8", false, true, variants,
                  "variants made for sizes, at most; those used least recently go", by_dynamo},
      OptionField{"deterministic", &O::deterministic, &C::deterministic, K::Flag, "", "", true, false, precision,
                  "equal inputs have bit-identical results from call to call: no code is replaced", ""},
      OptionField{"specialize", &O::specialize, &C::specialize, K::Sizes, "", "", false, true, variants,
                  "make variants for sizes, in the calls that have them: DIM=exact,DIM=div:8", by_dynamo},
      // `ranges` in tessera_options and its older name in stable::Options.
      OptionField{"warm_up", &O::warm_up, &C::ranges, K::Sizes, "", "", false, false, variants,
                  "make ready for sizes DIM=MIN..OPT..MAX of all dimensions, before any call: variants that they need, "
                  "memory for the largest, plans of OPT; DIM=only:MIN..MAX: other sizes are errors",
                  by_dynamo},
      OptionField{"max_variant_bytes", &O::max_variant_bytes, &C::max_variant_bytes, K::Bytes, "", "268435456", false,
                  true, variants,
                  "bytes of machine code, and of constants of their own, of variants made for sizes; those used least "
                  "recently go",
                  by_dynamo},
      OptionField{"strict_rounding", &O::strict_rounding, &C::strict_rounding, K::Flag, "", "", true, true, precision,
                  "round f16 and bf16 after every operator; nothing is computed in TF32", ""},
  };
}();

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
  const auto* it =
      std::find_if(kOptionFields.begin(), kOptionFields.end(), [&](const auto& f) { return f.name == name; });
  return it == kOptionFields.end() ? nullptr : it;
}
[[nodiscard]] inline std::string option_names() {
  std::string all;
  for (const OptionField& f : kOptionFields) all += (all.empty() ? "" : ", ") + std::string(f.name);
  return all;
}
[[nodiscard]] constexpr int64_t largest(OptionField::Kind kind) {
  return kind == OptionField::Kind::Count ? INT32_MAX : INT64_MAX;
}
// A share as tessera_options has it, of a caller who did say it.
[[nodiscard]] constexpr double given_share(double share) { return share == 0 ? -1 : share; }

} // namespace tessera
