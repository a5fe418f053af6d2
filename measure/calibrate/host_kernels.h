// Micro-kernels of a host's calibration, as tile kernels, so that their vectors are those of generated code. LANES
// stands for the elements of eight vectors. Private to the folder.
#pragma once
#include <string_view>

namespace tessera::calibration {

// y[begin, end) = x[begin, end)
inline constexpr std::string_view kCopy = R"(
tile.kernel @copy(%x: ptr<f32> align=64, %y: ptr<f32> written align=64, %begin: i64, %end: i64) {
  %step = const LANES                     : i64
  %r = range LANES                        : tile<[LANES], i64>
  for %i = %begin to %end step %step {
    %o = add(%r, %i)                    : tile<[LANES], i64>
    %v = load %x[%o] contiguous         : tile<[LANES], f32>
    store %y[%o] = %v contiguous
  }
})";

// Repeatedly sums x[0, end).
inline constexpr std::string_view kRead = R"(
tile.kernel @read(%x: ptr<f32> align=64, %y: ptr<f32> written align=64, %rounds: i64, %end: i64) {
  %step = const LANES                     : i64
  %one = const 1                        : i64
  %zero = const 0                       : i64
  %acc0 = const 0                       : tile<[LANES], f32>
  %r = range LANES                        : tile<[LANES], i64>
  %acc = for %k = %zero to %rounds step %one carry(%b = %acc0) {
    %inner = for %i = %zero to %end step %step carry(%a = %b) {
      %o = add(%r, %i)                  : tile<[LANES], i64>
      %v = load %x[%o] contiguous       : tile<[LANES], f32>
      %s = add(%a, %v)                  : tile<[LANES], f32>
      yield %s
    }
    yield %inner
  }
  store %y[%r] = %acc
})";

// The same through a table of offsets.
inline constexpr std::string_view kGather = R"(
tile.kernel @gather(%x: ptr<f32> align=64, %y: ptr<f32> written align=64, %at: ptr<i32> align=64, %rounds: i64, %end: i64) {
  %step = const LANES                     : i64
  %one = const 1                        : i64
  %zero = const 0                       : i64
  %acc0 = const 0                       : tile<[LANES], f32>
  %r = range LANES                        : tile<[LANES], i64>
  %acc = for %k = %zero to %rounds step %one carry(%b = %acc0) {
    %inner = for %i = %zero to %end step %step carry(%a = %b) {
      %o = add(%r, %i)                  : tile<[LANES], i64>
      %j = load %at[%o] contiguous      : tile<[LANES], i32>
      %v = load %x[%j]                  : tile<[LANES], f32>
      %s = add(%a, %v)                  : tile<[LANES], f32>
      yield %s
    }
    yield %inner
  }
  store %y[%r] = %acc
})";

// LANES chains of one class of instruction: NAME, and the lines from %a to %s.
inline constexpr std::string_view kRate = R"(
tile.kernel @rate(%x: ptr<TYPE> align=64, %y: ptr<TYPE> written align=64, %rounds: i64, %unused: i64) {
  %one = const 1                        : i64
  %zero = const 0                       : i64
  %r = range LANES                        : tile<[LANES], i64>
  %c = load %x[%zero]                   : TYPE
  %d = load %x[%one]                    : TYPE
  %a0 = load %x[%r] contiguous          : tile<[LANES], TYPE>
  %acc = for %k = %zero to %rounds step %one carry(%a = %a0) {
BODY
    yield %s
  }
  store %y[%r] = %acc
})";

} // namespace tessera::calibration
