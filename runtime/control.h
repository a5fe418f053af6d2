// A control step in one executor: its bodies as executors on the same device, and what one run of it keeps.
//
// Bodies get addresses. An input is a buffer of the outer run, a slice of one, or a carried value where the iteration
// before left it. An output goes where it belongs: to the result's buffer where its size is known, to its slice of a
// stacked result; carried values alternate between the result's buffer and one of their own. Only a condition, or a
// trip count, that was computed is read back.
//
// Results whose sizes only the run defines lie in memory of their own until place().
#pragma once
#include "runtime/device.h"

namespace tessera {

class ControlRun {
public:
  // `index`: of the step. Errors: those of Executor::create. Variant, device and table outlive it.
  [[nodiscard]] static Result<std::unique_ptr<ControlRun>> create(const Variant& variant, int index, Device& device,
                                                                  BufferTable& table, const ExecutorOptions& options);
  // `numbers`: those of control_numbers(). Adds what the bodies did to `stats`. `captured`: as Device::captures() says; only
  // where decided_by_sizes(). Errors: those of bodies' runs.
  [[nodiscard]] Status run(std::span<const int64_t> numbers, const std::unordered_map<uint64_t, int64_t>& symbols,
                           RunStats& stats, bool captured);
  [[nodiscard]] const Dims& dims(size_t result) const { return results_[result].dims; }
  // Moves results whose sizes run() has defined to their buffers.
  [[nodiscard]] Status place();
  // The miss of a body that ended the last run() with an error, if it was that: another variant of the model may have
  // bodies that fit.
  [[nodiscard]] std::optional<GuardMiss> take_miss() { return std::exchange(missed_, std::nullopt); }
  // Until the bodies' work is done. Errors of it.
  [[nodiscard]] Status wait();

private:
  ControlRun(const Variant& variant, int index, Device& device, BufferTable& table);
  struct Value {
    void* data = nullptr;
    Dims dims;
  };
  // Memory that grows.
  struct Block {
    std::shared_ptr<std::byte> memory;
    int64_t bytes = 0;
  };
  // A carried value or a result.
  struct Slot {
    BufferId buffer = -1; // of the outer run; -1 where unused
    bool known = false;   // its size is known before the run: bodies write the buffer
    Block own[2];         // carried: what is not in the buffer; stacked, unknown: [0] holds all slices
    int next = 0;         // of own
  };

  // While it lives, a run has other blocks than those that are kept for the next one.
  class OtherBlocks;
  [[nodiscard]] Status run_if(std::span<const int64_t> numbers);
  [[nodiscard]] Status run_loop(std::span<const int64_t> numbers, const std::unordered_map<uint64_t, int64_t>& symbols);
  [[nodiscard]] Status iterate(int64_t i, int64_t trips, std::span<const int64_t> sizes);
  [[nodiscard]] Status call(size_t body, std::span<const int64_t> sizes, int64_t i, int64_t trips,
                            const OutputAllocator& outputs);
  [[nodiscard]] Result<void*> carried_memory(size_t k, const Dims& dims, int64_t bytes, bool in_buffer);
  [[nodiscard]] Result<void*> slice_memory(size_t r, const Dims& dims, int64_t bytes, int64_t i, int64_t trips);
  [[nodiscard]] Status reserve(Block& block, int64_t bytes, int64_t keep = 0);
  [[nodiscard]] Result<bool> flag(const void* at);
  [[nodiscard]] Diagnostic error(const std::string& what) const;
  [[nodiscard]] Status check_dims(const Slot& slot, const Dims& dims, size_t from) const;

  const Variant& variant_;
  const ControlStep& step_;
  Device& device_;
  BufferTable& table_;
  std::vector<std::unique_ptr<Executor>> bodies_;
  std::vector<Slot> slots_;    // by result
  std::vector<Value> results_; // by result; of carried ones the present value
  Block iteration_, condition_, unused_;
  std::vector<DeviceTensor> inputs_;
  std::vector<bool> sliced_; // by stacked result: it has a slice already, of results_[r].dims without the first
  std::optional<GuardMiss> missed_;
  bool reads_iteration_ = false; // the body reads the number of the iteration
  RunStats* stats_ = nullptr;
};

// The numbers that a step computes from sizes: the decision of an If or the beginning of a loop, the trip count, then
// the sizes that are arguments, by body.
[[nodiscard]] std::vector<SymExpr> control_numbers(const ControlStep& step);
// Which bodies run, and how often, follows from sizes, as do all sizes of results: no value is read back.
[[nodiscard]] bool decided_by_sizes(const ControlStep& step);
// Bodies and buffers fit each other. Error Internal.
[[nodiscard]] Status verify_control(const Executable& executable, const ControlStep& step);

} // namespace tessera
