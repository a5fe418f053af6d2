// The structures of DLPack (https://dmlc.github.io/dlpack/latest/c_api.html), which fix the layout of what a capsule of
// __dlpack__ points to: "dltensor" a ManagedTensor, "dltensor_versioned" a VersionedTensor.
#pragma once
#include <cstdint>

namespace tessera::python::dlpack {

constexpr uint64_t kCopied = 2; // of VersionedTensor::flags
constexpr int32_t kCpu = 1, kCuda = 2, kCudaHost = 3;

struct Device {
  int32_t type;
  int32_t id;
};
struct DataType {
  uint8_t code; // 0 signed, 1 unsigned, 2 float, 4 bfloat, 5 complex, 6 bool, 7 and on: floats of 8 bits and less
  uint8_t bits;
  uint16_t lanes;
};
struct Tensor {
  void* data;
  Device device;
  int32_t rank;
  DataType dtype;
  int64_t* shape;
  int64_t* strides; // in elements; null: row-major, contiguous
  uint64_t byte_offset;
};
struct ManagedTensor {
  Tensor tensor;
  void* context;
  void (*deleter)(ManagedTensor*);
};
struct VersionedTensor {
  uint32_t major, minor;
  void* context;
  void (*deleter)(VersionedTensor*);
  uint64_t flags; // bit 0: read-only; bit 1: a copy that nobody else has
  Tensor tensor;
};

} // namespace tessera::python::dlpack
