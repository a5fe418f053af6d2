// Schedules that were measured on a target over many nests and ship with the compiler: where one fits a nest at its
// sizes, it is taken instead of the one of least predicted time.
//
// A file is text, a line each: the first 16 digits of nest_signature(), the extents of the nest's axes, the measured
// time in microseconds, the schedule, and for people the name of a kernel that has the signature:
//
//   41d08fb8a6f3b7c2 8192x1024 25.6 block-rows columns=1024 row_axes=1 ... # reduce_max_sub_exp_more
//
// `tessera tune --corpus` writes such files; those under records/ are part of the binary, by the name of the target.
#pragma once
#include "codegen/schedule/nest_key.h"
#include "codegen/schedule/schedule.h"
#include <unordered_map>

namespace tessera {

struct MeasuredSchedule {
  std::string signature;        // 16 hexadecimal digits
  std::vector<int64_t> extents; // at which it was measured, by axis of the domain
  double us = 0;                // of one launch
  Schedule schedule;
  std::string name;                       // of a kernel, for people
  [[nodiscard]] std::string text() const; // for reports: "25.6 us at 8192x1024"
};

class ScheduleRecords {
public:
  // Those of a target: the file that it names (Target::records), else the ones that are part of the binary. Empty where
  // there are none.
  [[nodiscard]] static const ScheduleRecords& of(const Target& target);
  // Errors of reading and parsing the file that a target names; of() is then empty.
  [[nodiscard]] static Status check(const Target& target);

  // The record of a nest that was measured at the nearest extents of those that are near: of the axes in `narrow`, a bit
  // set, extents have the same bucket_of(), and others differ by a factor of 4 at most. Nothing: there is none.
  [[nodiscard]] const MeasuredSchedule* find(const std::string& signature, std::span<const int64_t> extents,
                                             uint64_t narrow) const;
  // Replaces the record of the same signature and extents.
  void add(MeasuredSchedule record);
  [[nodiscard]] size_t size() const;
  [[nodiscard]] bool empty() const { return by_signature_.empty(); }

private:
  friend std::string print_schedule_records(const ScheduleRecords& records);
  std::unordered_map<std::string, std::vector<MeasuredSchedule>> by_signature_;
};

[[nodiscard]] std::string record_signature(const Graph& graph, const LoopNest& nest, const Domain& domain);

// Text of a file, and back. Errors: CorruptFile, which names the file, the line and what is wrong with it.
[[nodiscard]] std::string print_schedule_records(const ScheduleRecords& records);
[[nodiscard]] Result<ScheduleRecords> parse_schedule_records(std::string_view text, const std::string& file);

} // namespace tessera
