// The device that these tests compile for and run on: TESSERA_TEST_DEVICE, cpu without it.
#pragma once
#include "codegen/driver/compile.h"
#include "runtime/executor.h"

namespace tessera::device_test {

[[nodiscard]] const std::string& device();
[[nodiscard]] CompileOptions options();
// Compiles and runs once, arena and outputs poisoned. `host_steps` counts operators that ran by reference.
[[nodiscard]] Result<std::vector<Tensor>> compile_and_run(Graph graph, const std::map<std::string, Tensor>& inputs,
                                                          int* host_steps = nullptr);

} // namespace tessera::device_test
