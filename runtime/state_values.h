// The values of an executor's states (Executable::states), which stay in the device's memory from call to call.
//
// A call reads `value` as one of its last inputs and puts the new one into `next`, one of its last outputs. When it is done,
// the device makes the one of the other (DeviceCall::changes); where it fails, nothing has changed.
#pragma once
#include "runtime/device.h"

namespace tessera {

class StateValues {
public:
  explicit StateValues(Device& device) : device_(device) {}
  // Memory with the first values of this executable's states, where that is not made yet. Of a call that is captured it
  // must be: error Usage. Inside of Device::around(), as what is below. Other errors: OutOfMemory, BadWeights (a model
  // without data), DeviceError.
  [[nodiscard]] Status make(const Executable& executable, bool captured);
  // A copy on the host; another value; all to the first ones. Errors: Usage (there is no such state), BadInput (another
  // type or size), DeviceError, OutOfMemory.
  [[nodiscard]] Result<Tensor> read(size_t index);
  [[nodiscard]] Status write(size_t index, const Tensor& value);
  [[nodiscard]] Status reset();
  // The inputs of a call with the states behind them, until the next request.
  [[nodiscard]] std::span<const Tensor* const> behind(std::span<const Tensor* const> inputs);
  [[nodiscard]] std::span<StateValue> all() { return values_; }

private:
  [[nodiscard]] Status check(size_t index) const;
  [[nodiscard]] Status begin(size_t index);

  Device& device_; // has the memory
  std::vector<StateValue> values_;
  std::vector<Constant> first_;
  std::vector<const Tensor*> inputs_;
};

} // namespace tessera
