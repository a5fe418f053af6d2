// The table of options against what has them: the structs of C and C++, the session's options, the key of the cache.
#include "api/c/session_options.h"
#include "api/option_fields.h"
#include "codegen/driver/compile.h"
#include "codegen/driver/compile_key.h"
#include <gtest/gtest.h>

namespace tessera {
namespace {

struct Anything {
  template <class T>
  operator T() const; // NOLINT: of an initializer
};
template <class Struct, class... Fields>
consteval size_t field_count() {
  if constexpr (requires { Struct{Fields{}..., Anything{}}; })
    return field_count<Struct, Fields..., Anything>();
  else
    return sizeof...(Fields);
}

TEST(Options, EveryFieldOfCHasARow) {
  constexpr size_t without = 2; // struct_size, allocator
  EXPECT_EQ(field_count<tessera_options>(), std::size(kOptionFields) + without);
}

// A value that is not the default.
void change(const OptionField& f, stable::Options& options) {
  std::visit(
      [&](auto member) {
        using T = std::remove_reference_t<decltype(options.*member)>;
        if constexpr (std::is_same_v<T, std::string>) {
          using K = OptionField::Kind;
          options.*member = f.kind == K::Choice ? values_of(f).back() : f.kind == K::Text ? "cuda" : "n=3";
        } else {
          options.*member = static_cast<T>(1);
        }
      },
      f.member);
  if (f.name == "specialize") options.specialize = "n=exact";
}

TEST(Options, OfCxxReachC) {
  const auto differs = [](const OptionField& f, const tessera_options& a, const tessera_options& b) {
    return std::visit(
        [&](auto member) {
          if constexpr (std::is_same_v<decltype(member), const char * tessera_options::*>)
            return std::string(a.*member ? a.*member : "") != (b.*member ? b.*member : "");
          else
            return a.*member != b.*member;
        },
        f.c_member);
  };
  const stable::Options none;
  for (const OptionField& f : kOptionFields) {
    stable::Options options;
    change(f, options);
    for (const OptionField& g : kOptionFields)
      EXPECT_EQ(differs(g, options.c(), none.c()), &f == &g) << f.name << g.name;
  }
  stable::Options older;
  older.ranges = "n=3";
  EXPECT_STREQ(older.c().ranges, "n=3");
}

TEST(Options, OfPlansAreInTheKeyOfTheCache) {
  const auto key = [](const stable::Options& options) {
    SessionOptions session;
    session.compile.device = options.device;
    const Status taken = take_options(options.c(), as_named, session);
    EXPECT_TRUE(taken.ok()) << (taken.ok() ? "" : taken.error().str());
    if (session.deterministic) session.compile.deterministic = true; // as Session::open() does
    KeyText text;
    EXPECT_TRUE(add_options(text, session.compile));
    return text.str();
  };
  for (const OptionField& f : kOptionFields) {
    if (f.kind == OptionField::Kind::File) continue; // a plan file has no text, and its compiles are not in the cache
    stable::Options options;
    change(f, options);
    EXPECT_EQ(key(options) != key({}), f.plans) << f.name;
  }
}

TEST(Options, ValuesOfChoicesAreThoseOfTheSession) {
  const auto tf32 = values_of(*find_option("tf32"));
  EXPECT_EQ(tf32, std::vector<std::string>(kTf32Names.begin(), kTf32Names.end()));
  EXPECT_EQ(parse_tf32(find_option("tf32")->standard), CompileOptions().tf32);
  for (const auto& policy : values_of(*find_option("policy"))) EXPECT_TRUE(parse_policy(policy)) << policy;
  EXPECT_EQ(parse_policy(find_option("policy")->standard), SessionOptions().policy);
  EXPECT_EQ(find_option("max_variants")->standard, std::to_string(SessionOptions().max_variants));
  EXPECT_EQ(find_option("max_variant_bytes")->standard, std::to_string(SessionOptions().max_variant_bytes));
}

TEST(Options, AValueOutsideTheTableIsAnErrorWithNameAndValues) {
  const auto says = [](const stable::Options& options, const std::string& text) {
    SessionOptions session;
    const Status taken = take_options(options.c(), as_named, session);
    ASSERT_FALSE(taken.ok()) << text;
    EXPECT_NE(taken.error().str().find(text), std::string::npos) << taken.error().str();
  };
  says({.threads = -1}, "threads is -1; 0 to 2147483647 are possible");
  says({.tune_share = 2}, "tune_share is 2.000000; a share of the time is from 0 to 1");
  says({.tf32 = "never"}, "tf32 is \"never\"; it must be one of off, conv, matmul, all");
  says({.memory_limit = UINT64_MAX}, "memory_limit is 18446744073709551615; 0 to 9223372036854775807 are possible");
  says({.policy = "best"}, "policy is \"best\"; it must be one of generic, adaptive, exact");
  says({.specialize = "n"}, "specialize 'n' is not of the form DIM=exact or DIM=div:8");
  says({.warm_up = "n=4..1"}, "warm_up 'n=4..1': the smallest size, 4");
}

} // namespace
} // namespace tessera
