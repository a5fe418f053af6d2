// The file of records: read back, merged, damaged, written by many at once, pinned.
#include "measure/tune/records.h"
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tessera {
namespace {

const TunedTarget kHere{"NVIDIA H200, sm_90", "13.0", "version 7"};

TunedRecord record(uint64_t kernel, int64_t rows = 1000, int64_t time = 100) {
  TunedRecord r;
  r.kernel = {kernel, 7};
  r.name = "k" + std::to_string(kernel) + "_\"softmax\"\n";
  r.on = kHere;
  r.extents = {bucket_of(rows), {512, 512, 1}};
  r.measured_at = {rows, 512};
  r.schedule = parse_schedule("block-rows rows=4 columns=512 column_axes=2").value();
  r.default_us = 38.1;
  r.tuned_us = 35;
  r.candidates = 12;
  r.time = time;
  return r;
}

class Records : public testing::Test {
protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "tessera-tune-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::string text() const {
    std::ostringstream out;
    out << std::ifstream(folder_ + "/tuned.json").rdbuf();
    return out.str();
  }
  void write(const std::string& text) const { std::ofstream(folder_ + "/tuned.json") << text; }
  std::string folder_;
};

void add(TunedRecords& to, std::vector<TunedRecord> records) {
  auto status = to.add(records);
  EXPECT_TRUE(status.ok()) << status.error().str();
}

TEST_F(Records, ComeBackAsTheyWereWritten) {
  TunedRecord plain = record(2), odd = record(1);
  plain.schedule.reset();
  odd.pinned = true;
  odd.extents[0] = {0, INT64_MAX, 3};
  {
    TunedRecords records(folder_, kHere);
    EXPECT_TRUE(records.all().empty());
    add(records, {plain, odd});
  }
  TunedRecords again(folder_, kHere);
  EXPECT_TRUE(again.warnings().empty());
  auto all = again.all();
  ASSERT_EQ(all.size(), 2U);
  const TunedRecord& r = all[0].kernel == odd.kernel ? all[0] : all[1];
  EXPECT_EQ(r.name, odd.name);
  EXPECT_EQ(r.extents, odd.extents);
  EXPECT_EQ(r.measured_at, odd.measured_at);
  EXPECT_EQ(r.schedule, odd.schedule);
  EXPECT_EQ(r.tuned_us, 35);
  EXPECT_TRUE(r.pinned);
  EXPECT_EQ(print_records(all), text());

  // A record of the default schedule says that it is fastest; find() returns no schedule for it.
  EXPECT_TRUE(again.find(plain.kernel).empty());
  EXPECT_TRUE(again.at(plain.kernel, std::vector<int64_t>{1000, 512}).has_value());
  auto found = again.find(odd.kernel);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].measured, "38.1 us -> 35.0 us on NVIDIA H200, sm_90, pinned");
}

// A kind that could not be read back would take the whole file with it.
TEST_F(Records, OfSchedulesOfEveryKind) {
  std::vector<TunedRecord> all;
  for (uint8_t k = 0; k <= static_cast<uint8_t>(ScheduleKind::BlockContraction); ++k) {
    all.push_back(record(k)); // the number of the kind is the lower half of the kernel's hash
    all.back().schedule->kind = static_cast<ScheduleKind>(k);
  }
  TunedRecords writes(folder_, kHere);
  add(writes, all);
  TunedRecords reads(folder_, kHere);
  ASSERT_EQ(reads.all().size(), all.size());
  for (const TunedRecord& r : reads.all()) EXPECT_EQ(r.schedule->kind, static_cast<ScheduleKind>(r.kernel.lo));
}

TEST_F(Records, CountForTheirDeviceDriverCompilerAndSizes) {
  TunedRecords here(folder_, kHere);
  add(here, {record(1)});
  auto known = [&](const TunedTarget& target) { return TunedRecords(folder_, target).find({1, 7}).size(); };
  EXPECT_EQ(known(kHere), 1U);
  EXPECT_EQ(known({kHere.device, "", kHere.compiler}), 1U); // compiling for it elsewhere
  EXPECT_EQ(known({"NVIDIA H100, sm_90", kHere.driver, kHere.compiler}), 0U);
  EXPECT_EQ(known({kHere.device, "12.9", kHere.compiler}), 0U);
  EXPECT_EQ(known({kHere.device, kHere.driver, "version 8"}), 0U);
  auto at = [&](std::vector<int64_t> extents) { return here.at({1, 7}, extents).has_value(); };
  EXPECT_TRUE(at({1000, 512}) && at({1024, 512}) && at({520, 512}));
  EXPECT_FALSE(at({1001, 512}) || at({512, 512}) || at({1032, 512}) || at({1000, 513}) || at({1000}));
  EXPECT_FALSE(here.at({2, 7}, std::vector<int64_t>{1000, 512}).has_value());

  // Pinned ones count with another driver and compiler, not on another device.
  auto status = here.update([](std::vector<TunedRecord>& all) { all[0].pinned = true; });
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(known({kHere.device, "12.9", "version 8"}), 1U);
  EXPECT_EQ(known({"NVIDIA H100, sm_90", kHere.driver, kHere.compiler}), 0U);
}

TEST_F(Records, TheLaterOneStaysUnlessPinned) {
  TunedRecords records(folder_, kHere);
  auto us = [&] { return records.all().at(0).tuned_us; };
  TunedRecord first = record(1, 1000, 100), later = record(1, 1016, 200), earlier = record(1, 1000, 50);
  later.tuned_us = 33;
  earlier.tuned_us = 20;
  add(records, {first});
  add(records, {later}); // the same bucket
  add(records, {earlier});
  ASSERT_EQ(records.all().size(), 1U);
  EXPECT_EQ(us(), 33);
  TunedRecord pinned = record(1, 1000, 10), newest = record(1, 1000, 900);
  pinned.pinned = true;
  pinned.tuned_us = 30;
  add(records, {pinned});
  add(records, {newest});
  ASSERT_EQ(records.all().size(), 1U);
  EXPECT_EQ(us(), 30);
  // Another bucket is another record; what is divisible by more comes first.
  TunedRecord odd = record(1, 1001, 1000);
  add(records, {odd, record(1, 960, 1)});
  ASSERT_EQ(records.find({1, 7}).size(), 3U);
  EXPECT_TRUE(records.all()[0].pinned);
  EXPECT_EQ(records.all()[1].extents[0].multiple_of, 16);
  EXPECT_EQ(records.all()[2].extents[0].multiple_of, 1);
}

TEST_F(Records, DamagedFilesAreReportedIgnoredAndReplaced) {
  {
    TunedRecords records(folder_, kHere);
    add(records, {record(1)});
  }
  const std::string good = text();
  auto changed = [&](const std::string& from, const std::string& to) {
    std::string t = good;
    t.replace(t.find(from), from.size(), to);
    return t;
  };
  const std::pair<std::string, std::string> bad[] = {
      {"", "no JSON object"},
      {good.substr(0, good.size() / 2), "no JSON object"},
      {"[1, 2]", "no JSON object"},
      {"{}", "'format' and 'records' are missing"},
      {changed("\"format\": 2", "\"format\": 1"), "format 1, this version reads format 2"},
      {changed("\"tuned_us\"", "\"tuned_ms\""), "record 0 is unusable: a field is missing"},
      {changed("\"block-rows\"", "\"block-nothing\""), "there is no kind of schedule 'block-nothing'"},
      {changed("\"rows\"", "\"turns\""), "record 0 is unusable: a schedule has no field 'turns'"},
      {changed("\"rows\": 4", "\"rows\": 4294967296"), "field 'rows' of a schedule cannot be 4294967296"},
      {changed("\"min\": 513", "\"min\": -4"), "record 0 is unusable: a field is missing"},
      {changed("\"multiple_of\": 8", "\"multiple_of\": 0"), "record 0 is unusable: a field is missing"},
      {changed("\"rows\": 4", "\"rows\": \"four\""), "record 0 is unusable: a field is missing"},
      {changed(record(1).kernel.hex(), "zz"), "record 0 is unusable: a field is missing"}};
  for (const auto& [content, why] : bad) {
    write(content);
    TunedRecords records(folder_, kHere);
    EXPECT_TRUE(records.find({1, 7}).empty());
    ASSERT_EQ(records.warnings().size(), 1U) << content;
    EXPECT_NE(records.warnings()[0].find(why), std::string::npos) << records.warnings()[0];
    add(records, {record(2)});
    TunedRecords again(folder_, kHere);
    EXPECT_TRUE(again.warnings().empty());
    EXPECT_EQ(again.all().size(), 1U);
  }
}

TEST_F(Records, WithoutAFolderNothingIsFatal) {
  std::ofstream(folder_ + "/file") << "x";
  TunedRecords records(folder_ + "/file/below", kHere);
  EXPECT_TRUE(records.find({1, 7}).empty());
  std::vector<TunedRecord> list{record(1)};
  auto status = records.add(list);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::FileError);
}

TEST_F(Records, OfOthersAreIgnoredAndAFolderOfOthersIsLeftAlone) {
  {
    TunedRecords records(folder_, kHere);
    add(records, {record(1)});
  }
  auto expect_refused = [&](const std::string& what) {
    TunedRecords records(folder_, kHere);
    EXPECT_TRUE(records.all().empty());
    ASSERT_EQ(records.warnings().size(), 1U);
    EXPECT_NE(records.warnings()[0].find(what), std::string::npos) << records.warnings()[0];
  };
  const std::string file = folder_ + "/tuned.json";
  ASSERT_EQ(::chmod(file.c_str(), 0622), 0);
  expect_refused(file + ": a regular file of user");
  ASSERT_EQ(::chmod(file.c_str(), 0600), 0);
  EXPECT_EQ(TunedRecords(folder_, kHere).all().size(), 1U);

  ASSERT_EQ(::chmod(folder_.c_str(), 0777), 0);
  expect_refused(folder_ + ": a folder of user");
  const std::string before = text();
  std::vector<TunedRecord> more{record(2)};
  TunedRecords records(folder_, kHere);
  auto status = records.add(more);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("mode 0777"), std::string::npos) << status.error().str();
  EXPECT_EQ(text(), before);
  ASSERT_EQ(::chmod(folder_.c_str(), 0700), 0);

  std::filesystem::remove(file);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  ::alarm(60); // a reader that waits ends by a signal
  expect_refused("is a FIFO");
  ::alarm(0);
}

TEST_F(Records, WhatCouldNotBeWrittenCountsHereAndIsWrittenLater) {
  TunedRecords records(folder_, kHere);
  std::filesystem::create_directory(folder_ + "/tuned.json.lock"); // as good as a full disk: no write succeeds
  std::vector<TunedRecord> first{record(1)};
  auto status = records.add(first);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::FileError);
  EXPECT_EQ(records.find({1, 7}).size(), 1U);
  records.refresh();
  EXPECT_EQ(records.find({1, 7}).size(), 1U);
  EXPECT_TRUE(TunedRecords(folder_, kHere).all().empty());

  std::filesystem::remove(folder_ + "/tuned.json.lock");
  add(records, {record(2)});
  EXPECT_EQ(TunedRecords(folder_, kHere).all().size(), 2U);
}

TEST_F(Records, OthersRecordsAreSeenWhenTheFileIsReadAgain) {
  TunedRecords mine(folder_, kHere), theirs(folder_, kHere);
  add(theirs, {record(1)});
  EXPECT_TRUE(mine.find({1, 7}).empty());
  mine.refresh();
  EXPECT_EQ(mine.find({1, 7}).size(), 1U);
  ASSERT_TRUE(theirs.update([](std::vector<TunedRecord>& all) { all.clear(); }).ok());
  mine.refresh();
  EXPECT_TRUE(mine.find({1, 7}).empty());
}

// Several processes write at the same time; nothing is lost, and a reader never sees half a file.
TEST_F(Records, ProcessesDoNotLoseEachOthersRecords) {
  constexpr int kProcesses = 4, kEach = 12;
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      bool good = true;
      for (int i = 0; i < kEach; ++i) {
        TunedRecords records(folder_, kHere);
        std::vector<TunedRecord> one{record(static_cast<uint64_t>(100 * p + i))};
        good = good && records.warnings().empty() && records.add(one).ok();
      }
      ::_exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  EXPECT_EQ(TunedRecords(folder_, kHere).all().size(), static_cast<size_t>(kProcesses * kEach));
  size_t files = 0;
  for ([[maybe_unused]] const auto& e : std::filesystem::directory_iterator(folder_)) ++files;
  EXPECT_EQ(files, 2U); // the file and its lock
}

} // namespace
} // namespace tessera
