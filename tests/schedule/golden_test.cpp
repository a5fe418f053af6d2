// The kernels of typical nests, whole: TESSERA_BLESS=1 rewrites them, a change is read as a diff.
#include "codegen/target/select.h"
#include "nests.h"
#include <algorithm>

namespace tessera::test {
namespace {

TEST(Golden, Softmax) { expect_golden("softmax", lower(softmax())); }
TEST(Golden, LayerNorm) { expect_golden("layer_norm", lower(layer_norm("768", "f16"))); }
TEST(Golden, BiasGelu) { expect_golden("bias_gelu", lower(bias_gelu())); }
TEST(Golden, ColumnSum) { expect_golden("column_sum", lower(column_sum())); }
TEST(Golden, Transposed) { expect_golden("transposed", lower(transposed())); }
TEST(Golden, Rope) { expect_golden("rope", lower(rope())); }
TEST(Golden, Embedding) { expect_golden("embedding", lower(embedding())); }

int count(const ScheduledKernel& k, tile::OpKind kind) {
  int n = 0;
  for (int i = 0; i < k.kernel.op_count(); ++i) n += k.kernel.op(i).kind == kind;
  return n;
}

TEST(Choice, KindFollowsTheBuffers) {
  EXPECT_EQ(lower(softmax()).schedule.kind, ScheduleKind::RowLoop);
  EXPECT_EQ(lower(bias_gelu()).schedule.kind, ScheduleKind::Flat);
  EXPECT_EQ(lower(column_sum()).schedule.kind, ScheduleKind::ColumnLoop);
  EXPECT_EQ(lower(transposed()).schedule.kind, ScheduleKind::Tiled2D);
}

ScheduledKernel in_scratch(const Problem& p) {
  Schedule s = choose_schedule(p.graph, p.nest, {}).schedule;
  s.residency.cache_in_output = false;
  return lower_to_tiles(p.graph, p.nest, s, "in_scratch").value();
}

TEST(Choice, DearValuesAreKeptAndCheapOnesReloaded) {
  EXPECT_EQ(count(in_scratch(softmax()), tile::OpKind::Scratch), 1);    // the exponential
  EXPECT_EQ(count(in_scratch(layer_norm()), tile::OpKind::Scratch), 1); // x + r, two loads
  Problem reload = problem("x: f32[b, s]\ny: f32[b, s]", R"(
    nest centre outer(i0: b) row(i1: s) {
      %0 = load x[i0, i1] : f32
      %1 = reduce.max %0 : f32
      %2 = sub %0, %1 : f32
      store y[i0, i1] = %2
    })");
  EXPECT_EQ(count(lower(reload), tile::OpKind::Scratch), 0);
}

// A resident row is stored in an output that has the value, or will be written last: not in one that is narrower, nor
// over an input that is read again.
TEST(Choice, KeptValuesLieInOutputsThatFit) {
  EXPECT_EQ(count(lower(softmax()), tile::OpKind::Scratch), 0);    // in y, from the second round on
  EXPECT_EQ(count(lower(layer_norm()), tile::OpKind::Scratch), 0); // x + r is z
  EXPECT_EQ(count(lower(softmax("f16")), tile::OpKind::Scratch), 1) << "y would round it";
  Problem again = problem("x: f32[b, s]\ny: f32[b, s]", R"(
    nest again outer(i0: b) row(i1: s) {
      %0 = load x[i0, i1] : f32
      %1 = exp %0 : f32
      %2 = reduce.sum %1 : f32
      %3 = div %1, %2 : f32
      %4 = mul %3, %0 : f32
      store y[i0, i1] = %4
    })");
  ScheduledKernel k = lower(again);
  EXPECT_EQ(count(k, tile::OpKind::Scratch), 0);
  EXPECT_TRUE(k.may_overwrite[1].empty()) << "y holds the exponential while x is yet to be read";
  EXPECT_FALSE(in_scratch(again).may_overwrite[1].empty());
}

TEST(Choice, RowScalarsDivideOnceUnlessExactDivisionIsAsked) {
  auto divisions = [](const ScheduledKernel& k) {
    int n = 0;
    for (int i = 0; i < k.kernel.op_count(); ++i)
      n += k.kernel.op(i).kind == tile::OpKind::Scalar && k.kernel.op(i).scalar == ScalarOp::Div &&
           is_float(k.kernel.type(k.kernel.op(i).results[0]).dtype);
    return n;
  };
  Problem p = softmax();
  EXPECT_EQ(divisions(lower(p)), 0);
  Schedule s = choose_schedule(p.graph, p.nest, {}).schedule;
  auto exact = lower_to_tiles(p.graph, p.nest, s, "exact", {.exact_division = true});
  ASSERT_TRUE(exact.ok());
  EXPECT_GT(divisions(*exact), 0);
}

// The row after this one, in a round that reads no memory itself: not in the one of the maximum.
TEST(Choice, TheNextRowIsPrefetchedWhileOneIsComputed) {
  Problem p = softmax();
  // One in each phase of the row's loop: full, for short rows and for long ones, narrow, masked.
  EXPECT_EQ(count(lower(p), tile::OpKind::Prefetch), 4);
  EXPECT_EQ(count(lower(layer_norm()), tile::OpKind::Prefetch), 2); // x and r, whole tiles only
  const Problem wide = layer_norm("65536");
  Schedule s = choose_schedule(wide.graph, wide.nest, shipped_target("avx512")).schedule;
  s.traversal.online = false;
  auto too_long = lower_to_tiles(wide.graph, wide.nest, s, "long");
  ASSERT_TRUE(too_long.ok());
  EXPECT_EQ(count(*too_long, tile::OpKind::Prefetch), 0) << "the row is too long";
  s = choose_schedule(p.graph, p.nest, {}).schedule;
  s.traversal.prefetch_bytes = 0;
  auto without = lower_to_tiles(p.graph, p.nest, s, "without");
  ASSERT_TRUE(without.ok());
  EXPECT_EQ(count(*without, tile::OpKind::Prefetch), 0);
}

TEST(Choice, PointsFarBelowArePrefetchedWhereEachIsDear) {
  auto tanh_sum = [](const std::string& columns) {
    return problem("x: f32[n, " + columns + "]\ny: f32[" + columns + "]",
                   "nest s outer(i0: " + columns + R"() row(i1: n) {
      %0 = load x[i1, i0] : f32
      %1 = tanh %0 : f32
      %2 = reduce.sum %1 : f32
      store.row y[i0] = %2
    })");
  };
  EXPECT_EQ(count(lower(column_sum()), tile::OpKind::Prefetch), 0) << "many points are in flight";
  EXPECT_EQ(count(lower(tanh_sum("4096")), tile::OpKind::Prefetch), 2); // whole tiles only, for few rows and for many
  EXPECT_EQ(count(lower(tanh_sum("64")), tile::OpKind::Prefetch), 0) << "the next point is at hand";
}

TEST(Choice, AxesOfOneContiguousArrayCollapse) {
  Problem p = problem("x: f32[b, h, s, 64]\ny: f32[b, h, s, 64]", R"(
    nest relu outer(i0: b, i1: h, i2: s, i3: 64) {
      %0 = load x[i0, i1, i2, i3] : f32
      %1 = abs %0 : f32
      store y[i0, i1, i2, i3] = %1
    })");
  ScheduledKernel k = lower(p);
  EXPECT_NE(k.why.find("64*b*h*s"), std::string::npos) << k.why;
  EXPECT_EQ(k.sizes.size(), 1u) << tile::print(k.kernel); // the count: whole vectors, no tail
  for (int i = 0; i < k.kernel.op_count(); ++i)
    if (k.kernel.op(i).kind == tile::OpKind::Load) {
      EXPECT_TRUE(k.kernel.op(i).contiguous_hint && k.kernel.op(i).operands.size() == 2);
    }
}

TEST(Choice, ConstantExtentsLeaveNoTail) {
  ScheduledKernel k = lower(layer_norm());
  for (int i = 0; i < k.kernel.op_count(); ++i)
    if (k.kernel.op(i).kind == tile::OpKind::Store) {
      EXPECT_EQ(k.kernel.op(i).operands.size(), 3u) << "masked store";
    }
}

TEST(Choice, OutputsMayTakeInputsThatEndWithThem) {
  auto names = [](const Problem& p, const ScheduledKernel& k) {
    std::string s;
    for (size_t b = 0; b < k.buffers.size(); ++b)
      for (int from : k.may_overwrite[b])
        s += p.graph.value(k.buffers[b]).name + "<-" + p.graph.value(k.buffers[static_cast<size_t>(from)]).name + " ";
    return s;
  };
  Problem gelu = bias_gelu(), ln = layer_norm(), move = transposed();
  EXPECT_EQ(names(gelu, lower(gelu)), "y<-x ");
  EXPECT_EQ(names(ln, lower(ln)), "y<-x y<-r "); // z is stored while later rounds still have to come
  EXPECT_EQ(names(move, lower(move)), "");
}

TEST(Choice, UnsupportedElementsAndWrongSchedulesAreErrors) {
  Problem p = problem("x: i4[n]\ny: i4[n]", "nest copy outer(i0: n) { %0 = load x[i0] : i4\n store y[i0] = %0 }");
  auto packed = lower_to_tiles(p.graph, p.nest, choose_schedule(p.graph, p.nest, {}).schedule, "copy");
  ASSERT_FALSE(packed.ok());
  EXPECT_EQ(packed.error().code, ErrorCode::UnsupportedType);
  Problem s = softmax();
  Schedule wrong = choose_schedule(s.graph, s.nest, {}).schedule;
  wrong.placement.axis = 9;
  auto bad = lower_to_tiles(s.graph, s.nest, wrong, "softmax");
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().code, ErrorCode::CodegenError);
}

TEST(Choice, LoweringIsDeterministic) {
  Problem p = layer_norm("w");
  EXPECT_EQ(tile::print(lower(p).kernel), tile::print(lower(p).kernel));
}

} // namespace
} // namespace tessera::test
