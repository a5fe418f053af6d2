// A request: its inputs as the server has them, and its response. Each request is answered and released once.
#pragma once
#include "serving/triton/model.h"

namespace tessera::triton {

using Dims = std::vector<int64_t>;

struct Buffer {
  const void* data;
  size_t bytes;
  Place place;
};
struct Input {
  Dims dims;
  size_t bytes = 0;
  std::vector<Buffer> buffers; // one after another: the tensor
};

// Times of an execution in nanoseconds, as the server's statistics have them.
struct Times {
  uint64_t start = 0, compute_start = 0, compute_end = 0;
};
[[nodiscard]] uint64_t now();

class Request {
public:
  // Takes the request.
  Request(TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* handle) noexcept
      : instance_(instance), handle_(handle) {}
  Request(Request&& other) noexcept;
  // Answers with an error where nobody did before.
  ~Request();

  // Makes the response; reads inputs in the model's order, and which outputs are requested. Errors: INVALID_ARG for
  // inputs that do not fit the model, CANCELLED for a request whose client is gone.
  [[nodiscard]] Error read(const Model& model, const Place& preferred);
  // Sends the response: the outputs made by output(), or the error.
  void answer(Error error, const Times& times);

  // An output in the response: memory for it, at `place` where the server has that, else where `place` says then.
  [[nodiscard]] Error output(const Value& value, const Dims& dims, size_t bytes, void** data, Place& place);

  [[nodiscard]] const std::vector<Input>& inputs() const { return inputs_; }
  [[nodiscard]] bool wants(size_t output) const { return wanted_[output]; }
  // Size of the batch dimension; 1 without one.
  [[nodiscard]] int64_t rows() const { return rows_; }
  [[nodiscard]] bool answered() const { return handle_ == nullptr; }
  // Whether the tensors of both may be parts of one batch: all sizes but the rows are equal.
  [[nodiscard]] bool joins(const Request& other) const;

private:
  [[nodiscard]] Error read_input(const Value& value, bool batched, const Place& preferred);
  [[nodiscard]] Error read_wanted(const Model& model);

  TRITONBACKEND_ModelInstance* instance_;
  TRITONBACKEND_Request* handle_;
  TRITONBACKEND_Response* response_ = nullptr;
  std::vector<Input> inputs_;
  std::vector<bool> wanted_; // by output of the model
  int64_t rows_ = 1;
};

} // namespace tessera::triton
