// Kernels in the forms that schedules produce for a GPU.
#pragma once
#include "tests/tile/helpers.h"
#include <string>

namespace tessera::layout::test {

// 1-D, two element sizes; the size is a multiple of 8.
inline const char* const kScale = R"(
tile.kernel @scale(%x: ptr<f16>, %y: ptr<f32> written, %n: i64 multiple=8) config(warps: 4) {
  %p = program_id 0                       : i64
  %start = mul(%p, 2048)                  : i64
  %r = range 2048                         : tile<[2048], i64>
  %o = add(%r, %start)                    : tile<[2048], i64>
  %in = lt(%o, %n)                        : tile<[2048], bool>
  %v = load %x[%o] mask=%in other=0       : tile<[2048], f16>
  %f = cast(%v)                           : tile<[2048], f32>
  %d = mul(%f, 2)                         : tile<[2048], f32>
  store %y[%o] = %d mask=%in
})";

// The same where nothing is known of the size: no access may be wider than an element.
inline const char* const kScaleAnySize = R"(
tile.kernel @scale(%x: ptr<f16>, %y: ptr<f16> written, %n: i64) config(warps: 4) {
  %p = program_id 0                       : i64
  %start = mul(%p, 1024)                  : i64
  %r = range 1024                         : tile<[1024], i64>
  %o = add(%r, %start)                    : tile<[1024], i64>
  %in = lt(%o, %n)                        : tile<[1024], bool>
  %v = load %x[%o] mask=%in               : tile<[1024], f16>
  store %y[%o] = %v mask=%in
})";

// Whole rows in a tile: 4 rows of 512, softmax, with a scale per column and the sum of each row as a second output.
inline const char* const kSoftmax = R"(
tile.kernel @softmax(%x: ptr<f16>, %g: ptr<f32>, %y: ptr<f16> written, %sums: ptr<f32> written, %rows: i64, %cols: i64 multiple=8) config(warps: 4) {
  %p = program_id 0                       : i64
  %base = mul(%p, 4)                      : i64
  %r = range 4                            : tile<[4], i64>
  %row = add(%r, %base)                   : tile<[4], i64>
  %rin = lt(%row, %rows)                  : tile<[4], bool>
  %row1 = expand_dims(%row) axis=1        : tile<[4, 1], i64>
  %rin1 = expand_dims(%rin) axis=1        : tile<[4, 1], bool>
  %start = mul(%row1, %cols)              : tile<[4, 1], i64>
  %starts = broadcast(%start)             : tile<[4, 512], i64>
  %rows_in = broadcast(%rin1)             : tile<[4, 512], bool>
  %c = range 512                          : tile<[512], i64>
  %cin = lt(%c, %cols)                    : tile<[512], bool>
  %c1 = expand_dims(%c) axis=0            : tile<[1, 512], i64>
  %cin1 = expand_dims(%cin) axis=0        : tile<[1, 512], bool>
  %cs = broadcast(%c1)                    : tile<[4, 512], i64>
  %cols_in = broadcast(%cin1)             : tile<[4, 512], bool>
  %in = and(%rows_in, %cols_in)           : tile<[4, 512], bool>
  %o = add(%starts, %cs)                  : tile<[4, 512], i64>
  %v = load %x[%o] mask=%in               : tile<[4, 512], f16>
  %f = cast(%v)                           : tile<[4, 512], f32>
  %low = const -inf                       : tile<[4, 512], f32>
  %s = select(%in, %f, %low)              : tile<[4, 512], f32>
  %m = reduce.max(%s) axis=1              : tile<[4], f32>
  %m1 = expand_dims(%m) axis=1            : tile<[4, 1], f32>
  %ms = broadcast(%m1)                    : tile<[4, 512], f32>
  %d = sub(%s, %ms)                       : tile<[4, 512], f32>
  %e = exp(%d)                            : tile<[4, 512], f32>
  %sum = reduce.sum(%e) axis=1            : tile<[4], f32>
  %inv = reciprocal(%sum)                 : tile<[4], f32>
  %inv1 = expand_dims(%inv) axis=1        : tile<[4, 1], f32>
  %invs = broadcast(%inv1)                : tile<[4, 512], f32>
  %q = mul(%e, %invs)                     : tile<[4, 512], f32>
  %gv = load %g[%c] mask=%cin             : tile<[512], f32>
  %g1 = expand_dims(%gv) axis=0           : tile<[1, 512], f32>
  %gs = broadcast(%g1)                    : tile<[4, 512], f32>
  %z = mul(%q, %gs)                       : tile<[4, 512], f32>
  %h = cast(%z)                           : tile<[4, 512], f16>
  store %y[%o] = %h mask=%in
  store %sums[%row] = %sum mask=%rin
})";

// Short rows: a tile of 128 rows of 16.
inline const char* const kShortRows = R"(
tile.kernel @short(%x: ptr<f32>, %y: ptr<f32> written) config(warps: 4) {
  %p = program_id 0                       : i64
  %base = mul(%p, 128)                    : i64
  %r = range 128                          : tile<[128], i64>
  %row = add(%r, %base)                   : tile<[128], i64>
  %row1 = expand_dims(%row) axis=1        : tile<[128, 1], i64>
  %start = mul(%row1, 16)                 : tile<[128, 1], i64>
  %starts = broadcast(%start)             : tile<[128, 16], i64>
  %c = range 16                           : tile<[16], i64>
  %c1 = expand_dims(%c) axis=0            : tile<[1, 16], i64>
  %cs = broadcast(%c1)                    : tile<[128, 16], i64>
  %o = add(%starts, %cs)                  : tile<[128, 16], i64>
  %v = load %x[%o]                        : tile<[128, 16], f32>
  %m = reduce.sum(%v) axis=1              : tile<[128], f32>
  store %y[%row] = %m
})";

// A long row, walked in tiles of one row, then reduced.
inline const char* const kLongRow = R"(
tile.kernel @long(%x: ptr<f16>, %y: ptr<f32> written, %cols: i64 multiple=8) config(warps: 8) {
  %p = program_id 0                       : i64
  %start = mul(%p, %cols)                 : i64
  %r = range 2048                         : tile<[2048], i64>
  %c = expand_dims(%r) axis=0             : tile<[1, 2048], i64>
  %zero = const 0                         : tile<[1, 2048], f32>
  %acc = for %i = 0 to %cols step 2048 carry(%a = %zero) {
    %k = add(%c, %i)                      : tile<[1, 2048], i64>
    %in = lt(%k, %cols)                   : tile<[1, 2048], bool>
    %o = add(%k, %start)                  : tile<[1, 2048], i64>
    %v = load %x[%o] mask=%in             : tile<[1, 2048], f16>
    %f = cast(%v)                         : tile<[1, 2048], f32>
    %s = add(%a, %f)                      : tile<[1, 2048], f32>
    yield %s
  }
  %m = reduce.sum(%acc) axis=1            : tile<[1], f32>
  %one = range 1                          : tile<[1], i64>
  %at = add(%one, %p)                     : tile<[1], i64>
  store %y[%at] = %m
})";

// Column sums: rows in registers, columns over the threads.
inline const char* const kColumns = R"(
tile.kernel @columns(%x: ptr<f32>, %y: ptr<f32> written, %rows: i64, %cols: i64 multiple=4) config(warps: 4) {
  %p = program_id 0                       : i64
  %left = mul(%p, 64)                     : i64
  %c = range 64                           : tile<[64], i64>
  %col = add(%c, %left)                   : tile<[64], i64>
  %cin = lt(%col, %cols)                  : tile<[64], bool>
  %col1 = expand_dims(%col) axis=0        : tile<[1, 64], i64>
  %cols_of = broadcast(%col1)             : tile<[32, 64], i64>
  %cin1 = expand_dims(%cin) axis=0        : tile<[1, 64], bool>
  %cins = broadcast(%cin1)                : tile<[32, 64], bool>
  %r = range 32                           : tile<[32], i64>
  %r1 = expand_dims(%r) axis=1            : tile<[32, 1], i64>
  %zero = const 0                         : tile<[32, 64], f32>
  %acc = for %i = 0 to %rows step 32 carry(%a = %zero) {
    %row = add(%r1, %i)                   : tile<[32, 1], i64>
    %rin = lt(%row, %rows)                : tile<[32, 1], bool>
    %rins = broadcast(%rin)               : tile<[32, 64], bool>
    %in = and(%rins, %cins)               : tile<[32, 64], bool>
    %start = mul(%row, %cols)             : tile<[32, 1], i64>
    %starts = broadcast(%start)           : tile<[32, 64], i64>
    %o = add(%starts, %cols_of)           : tile<[32, 64], i64>
    %v = load %x[%o] mask=%in             : tile<[32, 64], f32>
    %t = tanh(%v)                         : tile<[32, 64], f32>
    %s = add(%a, %t)                      : tile<[32, 64], f32>
    yield %s
  }
  %m = reduce.sum(%acc) axis=0            : tile<[64], f32>
  store %y[%col] = %m mask=%cin
})";

// y = x + 2 * transposed z: one operand runs along the rows.
inline const char* const kTranspose = R"(
tile.kernel @transpose(%x: ptr<f32>, %z: ptr<f32>, %y: ptr<f32> written, %n: i64 multiple=64) config(warps: 4) {
  %p = program_id 0                       : i64
  %across = div(%n, 64)                   : i64
  %pr = div(%p, %across)                  : i64
  %pc = mod(%p, %across)                  : i64
  %r0 = mul(%pr, 64)                      : i64
  %c0 = mul(%pc, 64)                      : i64
  %k = range 64                           : tile<[64], i64>
  %row = add(%k, %r0)                     : tile<[64], i64>
  %row1 = expand_dims(%row) axis=1        : tile<[64, 1], i64>
  %rows = broadcast(%row1)                : tile<[64, 64], i64>
  %col = add(%k, %c0)                     : tile<[64], i64>
  %col1 = expand_dims(%col) axis=0        : tile<[1, 64], i64>
  %cols = broadcast(%col1)                : tile<[64, 64], i64>
  %start = mul(%rows, %n)                 : tile<[64, 64], i64>
  %o = add(%start, %cols)                 : tile<[64, 64], i64>
  %down = mul(%cols, %n)                  : tile<[64, 64], i64>
  %ot = add(%down, %rows)                 : tile<[64, 64], i64>
  %a = load %x[%o]                        : tile<[64, 64], f32>
  %b = load %z[%ot]                       : tile<[64, 64], f32>
  %t = mul(%b, 2)                         : tile<[64, 64], f32>
  %s = add(%a, %t)                        : tile<[64, 64], f32>
  store %y[%o] = %s
})";

// The largest of each row and where it is; a running sum; a gather; a bad index reported.
inline const char* const kMixed = R"(
tile.kernel @mixed(%x: ptr<f32>, %ids: ptr<i64>, %where: ptr<i64> written, %y: ptr<f32> written, %n: i64) config(warps: 2) {
  %r = range 8                            : tile<[8], i64>
  %r1 = expand_dims(%r) axis=1            : tile<[8, 1], i64>
  %start = mul(%r1, 128)                  : tile<[8, 1], i64>
  %starts = broadcast(%start)             : tile<[8, 128], i64>
  %c = range 128                          : tile<[128], i64>
  %c1 = expand_dims(%c) axis=0            : tile<[1, 128], i64>
  %cs = broadcast(%c1)                    : tile<[8, 128], i64>
  %o = add(%starts, %cs)                  : tile<[8, 128], i64>
  %id = load %ids[%r]                     : tile<[8], i64>
  %low = lt(%id, 0)                       : tile<[8], bool>
  %high = ge(%id, %n)                     : tile<[8], bool>
  %bad = or(%low, %high)                  : tile<[8], bool>
  report_index %bad, %id, %r site=0
  %safe = select(%bad, 0, %id)            : tile<[8], i64>
  %id1 = expand_dims(%safe) axis=1        : tile<[8, 1], i64>
  %ats = mul(%id1, 128)                   : tile<[8, 1], i64>
  %at = broadcast(%ats)                   : tile<[8, 128], i64>
  %og = add(%at, %cs)                     : tile<[8, 128], i64>
  %v = load %x[%og]                       : tile<[8, 128], f32>
  %s = scan.sum(%v) axis=1                : tile<[8, 128], f32>
  %most, %place = reduce.argmax(%v, %cs) axis=1 : tile<[8], f32>, tile<[8], i64>
  store %where[%r] = %place
  %some = lt(%n, 100)                     : bool
  %z = if %some {
    %t = mul(%s, 3)                       : tile<[8, 128], f32>
    yield %t
  } else {
    %half = const 0.5                     : tile<[8, 128], f32>
    yield %half
  }
  store %y[%o] = %z
})";

// A row's sum and a column: the same small tile broadcast both ways.
inline const char* const kBothWays = R"(
tile.kernel @both(%x: ptr<f32>, %y: ptr<f32> written) config(warps: 4) {
  %r = range 64                           : tile<[64], i64>
  %r1 = expand_dims(%r) axis=1            : tile<[64, 1], i64>
  %rr = broadcast(%r1)                    : tile<[64, 64], i64>
  %c1 = expand_dims(%r) axis=0            : tile<[1, 64], i64>
  %cc = broadcast(%c1)                    : tile<[64, 64], i64>
  %start = mul(%rr, 64)                   : tile<[64, 64], i64>
  %o = add(%start, %cc)                   : tile<[64, 64], i64>
  %v = load %x[%o]                        : tile<[64, 64], f32>
  %m = reduce.sum(%v) axis=1              : tile<[64], f32>
  %down = expand_dims(%m) axis=1          : tile<[64, 1], f32>
  %downs = broadcast(%down)               : tile<[64, 64], f32>
  %across = expand_dims(%m) axis=0        : tile<[1, 64], f32>
  %acrosses = broadcast(%across)          : tile<[64, 64], f32>
  %d = sub(%downs, %acrosses)             : tile<[64, 64], f32>
  store %y[%o] = %d
})";

// A kernel with values that are carried, scanned and added atomically; a scan along the rows of a tile whose threads
// run along the columns.
inline const char* const kCarried = R"(
tile.kernel @carried(%x: ptr<f32>, %z: ptr<f32>, %y: ptr<f32> written, %h: ptr<f32> written, %n: i64) config(warps: 2) {
  %r = range 16                           : tile<[16], i64>
  %r1 = expand_dims(%r) axis=1            : tile<[16, 1], i64>
  %rr = broadcast(%r1)                    : tile<[16, 64], i64>
  %c = range 64                           : tile<[64], i64>
  %c1 = expand_dims(%c) axis=0            : tile<[1, 64], i64>
  %cc = broadcast(%c1)                    : tile<[16, 64], i64>
  %start = mul(%rr, 64)                   : tile<[16, 64], i64>
  %o = add(%start, %cc)                   : tile<[16, 64], i64>
  %down = mul(%cc, 16)                    : tile<[16, 64], i64>
  %ot = add(%down, %rr)                   : tile<[16, 64], i64>
  %first = load %z[%ot]                   : tile<[16, 64], f32>
  %count = const 0                        : tile<[16, 64], i64>
  %acc, %seen = for %i = 0 to %n step 1 carry(%a = %first, %k = %count) {
    %jump = mul(%i, 1024)                 : i64
    %at = add(%o, %jump)                  : tile<[16, 64], i64>
    %v = load %x[%at]                     : tile<[16, 64], f32>
    %s = scan.sum(%v) axis=0              : tile<[16, 64], f32>
    %t = add(%a, %s)                      : tile<[16, 64], f32>
    %more = add(%k, %cc)                  : tile<[16, 64], i64>
    yield %t, %more
  }
  %f = cast(%seen)                        : tile<[16, 64], f32>
  %g = add(%acc, %f)                      : tile<[16, 64], f32>
  %u = scan.sum(%g) axis=1                : tile<[16, 64], f32>
  store %y[%o] = %u
  %top = reduce.max(%first) axis=0        : tile<[64], f32>
  atomic_add %h[%c] = %top
})";

} // namespace tessera::layout::test
