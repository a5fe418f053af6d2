// Graphs of cuDNN's operations, put together piece by piece. Needs no GPU.
#pragma once
#include "runtime/cuda/cudnn.h"
#include <span>

namespace tessera::cuda {

// nullopt: cuDNN is not used to compute on such numbers.
[[nodiscard]] std::optional<cudnnDataType_t> cudnn_type(DType dtype);

class GraphBuilder {
protected:
  // `alignment`: bytes, of every tensor in memory.
  GraphBuilder(const Cudnn& library, int64_t alignment) : library_(library), alignment_(alignment) {}

  // Parts are known by their numbers. Errors of all that follows: as the library's.
  size_t keep(Descriptor d);
  [[nodiscard]] const Descriptor& part(size_t i) const { return graph_.parts[i]; }
  Result<size_t> finalized(Descriptor d);
  Status operation(Descriptor op); // finalized and added

  enum class Where : uint8_t { Memory, Between, Argument }; // Between: in no memory; Argument: one number
  struct Extents {
    std::span<const int64_t> dims, strides; // elements
  };
  Result<size_t> tensor(Extents extents, cudnnDataType_t type, int64_t id, Where where = Where::Memory);
  Result<size_t> between(Extents extents, cudnnDataType_t type = CUDNN_DATA_FLOAT);

  // A pointwise function, not finalized: it may have further attributes.
  Result<Descriptor> function(cudnnPointwiseMode_t mode, cudnnDataType_t precision = CUDNN_DATA_FLOAT);
  // y = function(x, b, t); with factors of x and b where they are given.
  struct Factors {
    float x, b;
  };
  Status apply(size_t function, size_t x, std::optional<size_t> b, std::optional<size_t> t, size_t y,
               std::optional<Factors> factors = {});

  const Cudnn& library_;
  OperationGraph graph_;

private:
  int64_t alignment_;
};

} // namespace tessera::cuda
