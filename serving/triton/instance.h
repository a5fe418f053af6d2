// An instance: a context of the model, which executes what the server's scheduler hands it, one batch at a time.
#pragma once
#include "serving/triton/request.h"
#include <span>

namespace tessera::triton {

// Requests that are computed in one call: their rows stand one behind another.
using Group = std::span<Request>;

// An output of a call, before it is in a response.
struct Produced {
  Dims dims;
  size_t bytes = 0;
  const void* data = nullptr;            // of numbers
  Place place;                           // of data
  void* response = nullptr;              // memory in the response of a group of one, where that is not `data`
  Place response_place;                  // of response
  std::vector<std::string_view> strings; // of a tensor of strings
};

class Instance {
public:
  [[nodiscard]] static Error create(Model& model, TRITONBACKEND_ModelInstance* handle, std::unique_ptr<Instance>& out);
  // Answers and releases all requests.
  void execute(std::vector<Request> requests);

private:
  Instance(Model& model, TRITONBACKEND_ModelInstance* handle) : model_(model), handle_(handle) {}
  // Computes a group and answers it. Where that fails for several requests, each is computed by itself, so that one
  // that is wrong takes no other with it.
  void run(Group group, uint64_t start);
  [[nodiscard]] Error compute(Group group, Times& times);
  // Input `index` of all requests as one tensor: where it lies, or copied to a block.
  [[nodiscard]] Error gather(Group group, size_t index, Place& place, const void** data);
  [[nodiscard]] Error call(Group group);
  [[nodiscard]] Error call_with_strings(Group group); // strings.cpp
  // Memory for an output of the current call.
  [[nodiscard]] Error allocate(Group group, size_t output, const Dims& dims, void** data);
  [[nodiscard]] Error check_rows(Group group, size_t output, const Dims& dims) const;
  // Results into responses.
  [[nodiscard]] Error deliver(Group group);
  [[nodiscard]] Error deliver_strings(Group group, size_t output); // strings.cpp
  // Sizes of input `index` of the whole group.
  [[nodiscard]] static Dims group_dims(Group group, size_t index, bool batched);
  [[nodiscard]] static int64_t rows_of(Group group);

  Model& model_;
  TRITONBACKEND_ModelInstance* handle_;
  SessionHandle session_;
  std::unique_ptr<Copies> copies_;
  std::vector<Block> input_blocks_, output_blocks_;
  std::vector<Produced> results_; // of the current call, by output
};

} // namespace tessera::triton
