#include "serving/triton/request.h"
#include <algorithm>
#include <chrono>
#include <utility>

namespace tessera::triton {

uint64_t now() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

Request::Request(Request&& other) noexcept
    : instance_(other.instance_), handle_(std::exchange(other.handle_, nullptr)),
      response_(std::exchange(other.response_, nullptr)), inputs_(std::move(other.inputs_)),
      wanted_(std::move(other.wanted_)), rows_(other.rows_) {}

Request::~Request() {
  if (handle_ == nullptr) return;
  const uint64_t t = now();
  answer(Error(TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, "tessera: the request was not computed")), {t, t, t});
}

Error Request::read_input(const Value& value, bool batched, const Place& preferred) {
  const std::string what = "input '" + value.name + "'";
  TRITONBACKEND_Input* input = nullptr;
  TESSERA_TRITON_TRY(TRITONBACKEND_RequestInput(handle_, value.name.c_str(), &input));
  TRITONSERVER_DataType type{};
  const int64_t* dims = nullptr;
  uint32_t rank = 0, buffers = 0;
  uint64_t bytes = 0;
  TESSERA_TRITON_TRY(TRITONBACKEND_InputProperties(input, nullptr, &type, &dims, &rank, &bytes, &buffers));
  const ElementType& known = *element_type(value.onnx);
  if (type != known.triton)
    return invalid(what + " has element type number " + std::to_string(type) + ", and the model takes " + known.config);
  if (value.dims.empty() && rank == 1 && *dims == 1) rank = 0; // the server has no tensors without dimensions
  if (rank != value.dims.size())
    return invalid(what + " has " + std::to_string(rank) + " dimensions, and the model takes " +
                   std::to_string(value.dims.size()));
  Input& in = inputs_.emplace_back();
  in.dims.assign(dims, dims + rank);
  in.bytes = bytes;
  // The server has compared these with each other for types of a fixed size; a batch is put together by them.
  uint64_t expected = known.bytes;
  for (int64_t d : in.dims)
    if (d < 0 || __builtin_mul_overflow(expected, static_cast<uint64_t>(d), &expected))
      return invalid(what + " has a dimension of " + std::to_string(d));
  if (known.bytes != 0 && bytes != expected)
    return invalid(what + " has " + std::to_string(bytes) + " bytes, and its dimensions need " +
                   std::to_string(expected));
  uint64_t total = 0;
  for (uint32_t i = 0; i < buffers; ++i) {
    Buffer b{nullptr, 0, preferred};
    uint64_t size = 0;
    TESSERA_TRITON_TRY(TRITONBACKEND_InputBuffer(input, i, &b.data, &size, &b.place.memory, &b.place.device));
    b.bytes = size;
    total += size;
    if (size > 0) in.buffers.push_back(b);
  }
  if (total != bytes)
    return invalid(what + " has " + std::to_string(total) + " bytes in its buffers, and declares " +
                   std::to_string(bytes));
  if (!batched) return nullptr;
  if (inputs_.size() == 1) rows_ = in.dims.front();
  if (in.dims.front() != rows_)
    return invalid(what + " has " + std::to_string(in.dims.front()) + " rows, and the first input has " +
                   std::to_string(rows_));
  return nullptr;
}

Error Request::read_wanted(const Model& model) {
  const std::vector<Value>& outputs = model.interface().outputs;
  uint32_t count = 0;
  TESSERA_TRITON_TRY(TRITONBACKEND_RequestOutputCount(handle_, &count));
  wanted_.assign(outputs.size(), count == 0); // none is named: all are requested
  for (uint32_t i = 0; i < count; ++i) {
    const char* name = nullptr;
    TESSERA_TRITON_TRY(TRITONBACKEND_RequestOutputName(handle_, i, &name));
    auto it = std::find_if(outputs.begin(), outputs.end(), [&](const Value& v) { return v.name == name; });
    if (it == outputs.end()) return invalid("the model has no output '" + std::string(name) + "'");
    wanted_[static_cast<size_t>(it - outputs.begin())] = true;
  }
  return nullptr;
}

Error Request::read(const Model& model, const Place& preferred) {
  TESSERA_TRITON_TRY(TRITONBACKEND_ResponseNew(&response_, handle_));
  bool cancelled = false;
  TESSERA_TRITON_TRY(TRITONBACKEND_RequestIsCancelled(handle_, &cancelled));
  if (cancelled) return make_error(TRITONSERVER_ERROR_CANCELLED, "the request was cancelled before it was computed");
  TESSERA_TRITON_TRY(read_wanted(model));
  for (const Value& v : model.interface().inputs) TESSERA_TRITON_TRY(read_input(v, model.batched(), preferred));
  return nullptr;
}

void Request::answer(Error error, const Times& times) {
  const bool good = error == nullptr;
  if (response_ != nullptr) {
    log_error(Error(TRITONBACKEND_ResponseSend(std::exchange(response_, nullptr), TRITONSERVER_RESPONSE_COMPLETE_FINAL,
                                               error.get())));
  } else {
    log_error(std::move(error)); // there was no memory for a response
  }
  log_error(Error(TRITONBACKEND_ModelInstanceReportStatistics(instance_, handle_, good, times.start,
                                                              times.compute_start, times.compute_end, now())));
  log_error(Error(TRITONBACKEND_RequestRelease(std::exchange(handle_, nullptr), TRITONSERVER_REQUEST_RELEASE_ALL)));
}

Error Request::output(const Value& value, const Dims& dims, size_t bytes, void** data, Place& place) {
  TRITONBACKEND_Output* output = nullptr;
  const Dims shown = dims.empty() ? Dims{1} : dims;
  TESSERA_TRITON_TRY(TRITONBACKEND_ResponseOutput(response_, &output, value.name.c_str(),
                                                  static_cast<TRITONSERVER_DataType>(element_type(value.onnx)->triton),
                                                  shown.data(), static_cast<uint32_t>(shown.size())));
  return Error(TRITONBACKEND_OutputBuffer(output, data, bytes, &place.memory, &place.device));
}

bool Request::joins(const Request& other) const {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Dims &a = inputs_[i].dims, &b = other.inputs_[i].dims;
    if (!std::equal(a.begin() + 1, a.end(), b.begin() + 1, b.end())) return false;
  }
  return true;
}

} // namespace tessera::triton
