#include "runtime/cuda/launch.h"
#include "runtime/empty_tensor_map.h"

namespace tessera::cuda {
namespace {

uint64_t value_of(const LaunchArgument& argument, const LaunchMemory& memory) {
  switch (argument.kind) {
  case LaunchArgument::Kind::Number: break;
  case LaunchArgument::Kind::Buffer: return reinterpret_cast<uintptr_t>(memory.buffers[argument.value]);
  case LaunchArgument::Kind::Workspace: return reinterpret_cast<uintptr_t>(memory.scratch + argument.value);
  case LaunchArgument::Kind::Counters: return memory.resting.counters;
  case LaunchArgument::Kind::Mailboxes: return memory.resting.mailboxes;
  case LaunchArgument::Kind::Report: return memory.reports.argument(static_cast<int>(argument.value));
  }
  return static_cast<uint64_t>(argument.value);
}

CUtensorMapDataType type_of(DType dtype) { // nothing depends on more than its size
  switch (info(dtype).bits) {
  case 8: return CU_TENSOR_MAP_DATA_TYPE_UINT8;
  case 16: return CU_TENSOR_MAP_DATA_TYPE_UINT16;
  case 32: return CU_TENSOR_MAP_DATA_TYPE_UINT32;
  default: return CU_TENSOR_MAP_DATA_TYPE_UINT64;
  }
}
CUtensorMapSwizzle mode_of(Swizzle swizzle) {
  switch (swizzle) {
  case Swizzle::None: break;
  case Swizzle::Bytes32: return CU_TENSOR_MAP_SWIZZLE_32B;
  case Swizzle::Bytes64: return CU_TENSOR_MAP_SWIZZLE_64B;
  case Swizzle::Bytes128: return CU_TENSOR_MAP_SWIZZLE_128B;
  }
  return CU_TENSOR_MAP_SWIZZLE_NONE;
}

} // namespace

CUresult EncodedMap::encode(const Driver& driver, const TensorMapOf<int64_t>& map, std::byte* buffer) {
  std::byte* const address = buffer + map.offset;
  if (is_empty(map) || (address_ == address && sizes_ == map)) return CUDA_SUCCESS;
  const std::vector<cuuint64_t> dims(map.dims.begin(), map.dims.end()), strides(map.strides.begin(), map.strides.end());
  std::vector<cuuint32_t> box, steps; // the driver counts the elements of a box before it leaves some out
  for (size_t i = 0; i < map.box.size(); ++i) {
    steps.push_back(static_cast<cuuint32_t>(map.step(i)));
    box.push_back(static_cast<cuuint32_t>(map.box[i]) * steps.back());
  }
  const auto result = driver.cuTensorMapEncodeTiled(
      &map_, type_of(map.dtype), static_cast<cuuint32_t>(map.rank()), address, dims.data(), strides.data(), box.data(),
      steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, mode_of(map.swizzle), CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  address_ = result == CUDA_SUCCESS ? address : nullptr;
  sizes_ = map;
  return result;
}

Started Launcher::start(const Driver& driver, const PreparedLaunch& launch, const LaunchMemory& memory, CUstream stream,
                        bool dependent) {
  const size_t arguments = launch.arguments.size(), count = arguments + launch.tensor_maps.size();
  if (values_.size() < arguments) values_.resize(arguments);
  if (parameters_.size() < count) parameters_.resize(count);
  for (size_t i = 0; i < arguments; ++i) {
    values_[i] = value_of(launch.arguments[i], memory);
    parameters_[i] = &values_[i];
  }
  if (count > arguments) {
    constexpr size_t kMaxLaunches = 4096; // whose maps are kept
    if (maps_.size() >= kMaxLaunches && !maps_.contains(&launch)) maps_.clear();
    auto& encoded = maps_[&launch];
    encoded.resize(launch.tensor_maps.size());
    for (size_t i = 0; i < encoded.size(); ++i) {
      const auto& map = launch.tensor_maps[i];
      const auto result = encoded[i].encode(driver, map, static_cast<std::byte*>(memory.buffers[map.buffer]));
      if (result != CUDA_SUCCESS) return {result, "cuTensorMapEncodeTiled"};
      parameters_[arguments + i] = encoded[i].data();
    }
  }
  const auto threads = static_cast<unsigned>(launch.kernel->threads);
  const auto shared_bytes = static_cast<unsigned>(launch.kernel->shared_bytes);
  auto** parameters = parameters_.data(); // the driver reads the values before it returns
  if (launch.cooperative)
    return {driver.cuLaunchCooperativeKernel(launch.function, launch.grid, 1, 1, threads, 1, 1, shared_bytes, stream,
                                             parameters),
            "cuLaunchCooperativeKernel"};
  CUlaunchAttribute attributes[2] = {};
  unsigned required = 0;
  if (const auto blocks = static_cast<unsigned>(launch.kernel->cluster); blocks > 1) {
    attributes[required].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attributes[required].value.clusterDim.x = blocks;
    attributes[required].value.clusterDim.y = attributes[required].value.clusterDim.z = 1;
    ++required;
  }
  unsigned used = required;
  if (launch.dependent && dependent) {
    attributes[used].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attributes[used].value.programmaticStreamSerializationAllowed = 1;
    ++used;
  }
  for (; used > 0; --used) { // without the last one where the driver refuses it
    const CUlaunchConfig config{launch.grid, 1, 1, threads, 1, 1, shared_bytes, stream, attributes, used};
    const auto result = driver.cuLaunchKernelEx(&config, launch.function, parameters, nullptr);
    const bool refused = result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_INVALID_VALUE;
    if (used == required || !refused) return {result, "cuLaunchKernelEx"};
  }
  return {driver.cuLaunchKernel(launch.function, launch.grid, 1, 1, threads, 1, 1, shared_bytes, stream, parameters,
                                nullptr),
          "cuLaunchKernel"};
}

} // namespace tessera::cuda
