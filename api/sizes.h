// Statements about a model's symbolic dimensions before calls come: sizes that variants are made for, and ranges that
// calls keep to; and how people write both, the same in options of the command, of C, of Python and of servers.
//
//   batch=exact,seq=div:8          a variant for each size of the batch, and for lengths that 8 divides
//   batch=4,seq=div:8              one variant, for batches of 4
//   batch=1..8..32,seq=1..512      at least, typically and at most: an optimization profile, as TensorRT calls it
//   batch=only:1..8..32            the same, and calls of other sizes are errors: code and memory are for these alone
#pragma once
#include "base/result.h"
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace tessera {

// A request that code be made for less than every shape, because it may be faster: checked by a guard at each call.
struct Specialization {
  enum class Kind : uint8_t { Exact, Divisible };
  Kind kind = Kind::Exact;
  int64_t divisor = 1; // Divisible
  int64_t size = -1;   // Exact, in SessionOptions::variants: the size
};
using Specializations = std::map<std::string, Specialization>; // by symbolic dimension ("batch")

// Sizes of a dimension that calls are expected to have; others work as well, unless `only`.
struct SizeRange {
  int64_t min = 1, opt = 1, max = 1; // opt: the typical one, which is made ready
  bool only = false;
};
using SizeRanges = std::map<std::string, SizeRange>; // by symbolic dimension

// "batch=exact,seq=div:8". Errors Usage.
[[nodiscard]] Result<Specializations> parse_specializations(std::string_view text);
// "batch=4,seq=div:8": the conditions of one variant. Errors Usage.
[[nodiscard]] Result<Specializations> parse_variant(std::string_view text);
// "batch=1..8..32,seq=1..512,channels=3": MIN..OPT..MAX, MIN..MAX with MAX as the typical size, or one size; only: before it. Errors Usage: a
// size below 1 or beyond 2^40, MIN above MAX, OPT outside of them, a dimension that is named twice.
[[nodiscard]] Result<SizeRanges> parse_size_ranges(std::string_view text);

} // namespace tessera
