// The device that these tests compile for and run on: TESSERA_TEST_DEVICE, cpu without it. On a GPU, libraries that
// TESSERA_CUDA_WITHOUT names are not counted on: what they would do becomes generated loops.
#pragma once
#include "codegen/driver/compile.h"
#include "runtime/executor.h"

namespace tessera::device_test {

[[nodiscard]] const std::string& device();
[[nodiscard]] CompileOptions options();
// Whether item `i` of `count` is run. TESSERA_TEST_SAMPLES=n takes n of them, spread evenly, where all would take too
// long: under compute-sanitizer.
[[nodiscard]] bool is_wanted(size_t i, size_t count);
// Compiles and runs once, arena and outputs poisoned. `host_steps` counts operators that ran by reference.
[[nodiscard]] Result<std::vector<Tensor>> compile_and_run(Graph graph, const std::map<std::string, Tensor>& inputs,
                                                          int* host_steps = nullptr);

} // namespace tessera::device_test
