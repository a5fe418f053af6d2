// Measured schedules that ship with a target: their file, how they are found, and that what is found is right.
#include "base/file.h"
#include "block_harness.h"
#include "codegen/schedule/schedule_records.h"
#include "codegen/target/select.h"
#include "nests.h"

namespace tessera::test {
namespace {

std::string shipped_file(const std::string& target) {
  auto text = read_file(TESSERA_SOURCE_DIR "/codegen/schedule/records/" + target + ".txt");
  EXPECT_TRUE(text.ok());
  return text.ok() ? *text : "";
}

TEST(ScheduleRecords, ShippedOnesReadBackAsTheyArePrinted) {
  const ScheduleRecords& records = ScheduleRecords::of(shipped_target("h200"));
  EXPECT_GT(records.size(), 400U);
  EXPECT_TRUE(ScheduleRecords::check(shipped_target("h200")).ok());
  const std::string text = shipped_file("h200");
  EXPECT_EQ(print_schedule_records(records), text);
  EXPECT_LE(text.size(), size_t{300} << 10);
  EXPECT_TRUE(ScheduleRecords::of(shipped_target("portable")).empty());
}

TEST(ScheduleRecords, TheNearestOfTheSameBucketIsFound) {
  const char* const text = "0123456789abcdef 8192x1000 10.0 block-rows columns=1024 column_axes=2 row_axes=1 # a\n"
                           "0123456789abcdef 1024x1000 3.0 block-rows columns=1024 column_axes=2 row_axes=1 warps=2\n";
  auto records = parse_schedule_records(text, "r.txt");
  ASSERT_TRUE(records.ok()) << records.error().str();
  EXPECT_EQ(records->size(), 2U);
  auto found = [&](std::vector<int64_t> extents, uint64_t narrow = 2) {
    const MeasuredSchedule* r = records->find("0123456789abcdef", extents, narrow);
    return r ? r->us : 0;
  };
  EXPECT_EQ(found({8192, 1000}), 10);
  EXPECT_EQ(found({6000, 1000}), 10);
  EXPECT_EQ(found({2000, 1000}), 3);
  EXPECT_EQ(found({2000, 1016}), 3); // of the bucket 513 to 1024, multiples of 8
  EXPECT_EQ(found({2000, 1001}), 0); // no multiple of 8
  EXPECT_EQ(found({2000, 500}), 0);
  EXPECT_EQ(found({100, 1000}), 0);     // more than a factor of 4 away
  EXPECT_EQ(found({2000, 1000}, 3), 0); // rows have to be of a bucket, too
  EXPECT_EQ(found({2000}), 0);
  EXPECT_EQ(records->find("fedcba9876543210", std::vector<int64_t>{8192, 1000}, 2), nullptr);
}

TEST(ScheduleRecords, BrokenFilesAreOneErrorThatNamesTheLine) {
  struct Case {
    const char *text, *says;
  };
  const Case cases[] = {{"12 8x8 1.0 block-rows\n", "r.txt:1: '12' is no signature"},
                        {"\n# text\n0123456789abcdef 8xx8 1.0 block-rows\n", "r.txt:3: '8xx8' are no extents"},
                        {"0123456789abcdef 8x0 1.0 block-rows\n", "'8x0' are no extents"},
                        {"0123456789abcdef 8x8 -1 block-rows\n", "'-1' is no time"},
                        {"0123456789abcdef 8x8 1.0 block-stairs\n", "block-stairs"},
                        {"0123456789abcdef 8x8 1.0 block-rows steps=2\n", "steps"},
                        {"0123456789abcdef 8x8 1.0 block-rows warps=x\n", "warps"},
                        {"0123456789abcdef", "are no extents"}};
  for (const Case& c : cases) {
    auto records = parse_schedule_records(c.text, "r.txt");
    ASSERT_FALSE(records.ok()) << c.text;
    EXPECT_NE(records.error().message.find(c.says), std::string::npos) << records.error().str();
    EXPECT_EQ(records.error().code, ErrorCode::CorruptFile);
  }
}

// Whatever a file says, what a kernel computes is right: a schedule that does not fit the nest is passed over.
TEST(ScheduleRecords, AreTakenWhereTheyAreLegal) {
  const Problem p = softmax_of("64", "300", "f32");
  auto domain = make_domain(p.graph, p.nest);
  ASSERT_TRUE(domain.ok());
  Target device = shipped_target("h200");
  const std::string folder = testing::TempDir(), signature = record_signature(p.graph, p.nest, *domain);
  int number = 0;
  auto chosen = [&](const std::string& schedule) {
    device.records = folder + "/records_" + std::to_string(number++) + ".txt";
    EXPECT_TRUE(write_file(device.records, {signature + " 64x300 5.0 " + schedule + "\n"}).ok());
    return choose_blocks(BlockFacts(p.graph, p.nest, *domain, device)).front();
  };
  const BlockChoice taken = chosen("block-rows column_axes=2 columns=512 row_axes=1 rows=8 warps=8");
  EXPECT_EQ(taken.measured, "5.0 us at 64x300");
  EXPECT_EQ(taken.legal.schedule.tile.rows, 8);
  for (const char* unfit : {"block-rows column_axes=2 columns=256 row_axes=1", "block-flat", "row-loop axis=1",
                            "block-rows column_axes=63 columns=512", "block-window taps=9 rows=64 warps=2"})
    EXPECT_EQ(chosen(unfit).measured, "") << unfit;
}

} // namespace
} // namespace tessera::test
