#include "runtime/cuda/launch.h"

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

} // namespace

Started Launcher::start(const Driver& driver, const PreparedLaunch& launch, const LaunchMemory& memory, CUstream stream,
                        bool dependent) {
  if (values_.size() < launch.arguments.size()) {
    values_.resize(launch.arguments.size());
    parameters_.clear();
    for (uint64_t& value : values_) parameters_.push_back(&value);
  }
  for (size_t i = 0; i < launch.arguments.size(); ++i) values_[i] = value_of(launch.arguments[i], memory);
  const auto threads = static_cast<unsigned>(launch.kernel->threads);
  const auto shared_bytes = static_cast<unsigned>(launch.kernel->shared_bytes);
  auto** parameters = parameters_.data(); // the driver reads the values before it returns
  if (launch.cooperative)
    return {driver.cuLaunchCooperativeKernel(launch.function, launch.grid, 1, 1, threads, 1, 1, shared_bytes, stream,
                                             parameters),
            "cuLaunchCooperativeKernel"};
  if (launch.dependent && dependent) {
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
    const CUlaunchConfig config{launch.grid, 1, 1, threads, 1, 1, shared_bytes, stream, &attribute, 1};
    const auto result = driver.cuLaunchKernelEx(&config, launch.function, parameters, nullptr);
    if (result != CUDA_ERROR_NOT_SUPPORTED && result != CUDA_ERROR_INVALID_VALUE) return {result, "cuLaunchKernelEx"};
  }
  return {driver.cuLaunchKernel(launch.function, launch.grid, 1, 1, threads, 1, 1, shared_bytes, stream, parameters,
                                nullptr),
          "cuLaunchKernel"};
}

} // namespace tessera::cuda
