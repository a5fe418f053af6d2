// Schedules that were measured to be better than the cost model's choice, and for which nests and sizes they are good.
#pragma once
#include "codegen/schedule/nest_key.h"
#include "codegen/schedule/schedule.h"

namespace tessera {

using CallSizes = std::unordered_map<uint64_t, int64_t>; // sizes of a call, by symbol id

// A schedule with the sizes that it is meant for. It is right at all sizes that it is ever launched for, whatever `extents` says: where a tile holds
// a whole row, the conditions of its kernel say so.
struct TunedSchedule {
  Schedule schedule;
  std::vector<ExtentRange> extents; // by axis of the nest's domain (domain.h)
  std::string measured;             // what was measured: "38.1 us -> 35.0 us on NVIDIA H200"
  bool operator==(const TunedSchedule&) const = default;
};

// The tuned schedules that a compile looks up. Thread-safe.
class TunedSchedules {
public:
  virtual ~TunedSchedules() = default;
  // The schedules of one nest, by nest_key(); the first one that fits a call's sizes is to be launched.
  [[nodiscard]] virtual std::vector<TunedSchedule> find(const Hash128& nest) const = 0;
};

// The same list for every nest that is looked up: what a plan file pins for one kernel.
class FixedSchedules final : public TunedSchedules {
public:
  explicit FixedSchedules(std::vector<TunedSchedule> list) : list_(std::move(list)) {}
  [[nodiscard]] std::vector<TunedSchedule> find(const Hash128&) const override { return list_; }
  [[nodiscard]] const std::vector<TunedSchedule>& list() const { return list_; }

private:
  std::vector<TunedSchedule> list_;
};
// Why a schedule is not right for a nest on a device; empty: it is.
[[nodiscard]] std::string refusal(const Graph& graph, const LoopNest& nest, const Target& device,
                                  const TunedSchedule& tuned);

// The range that a measured extent stands for: up to the next power of two, from just above the one below, and as
// divisible as it is, up to 16. A call outside of it is tuned by itself.
[[nodiscard]] ExtentRange bucket_of(int64_t extent);

} // namespace tessera
