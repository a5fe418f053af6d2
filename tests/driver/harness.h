// Helpers for the tests of the compile driver: graphs as texts, compiled into a cache folder of the test's own, run and
// compared with the reference.
#pragma once
#include "codegen/driver/compile.h"
#include "runtime/executor.h"
#include "tests/onnx/model_maker.h"
#include <gtest/gtest.h>

namespace tessera::driver_test {

using onnx_test::Maker;
using onnx_test::TemporaryFolder;
using Inputs = std::map<std::string, Tensor>;

CompileOptions options(const std::string& cache_dir);
Graph parse(const std::string& text);
// Compiles; a failure is the test's, and the result is empty then.
Compiled compile_it(Graph graph, const CompileOptions& options);
Result<std::vector<Tensor>> run(const Compiled& compiled, const Inputs& inputs);
// Uniform in [-2, 2], the same for the same seed.
Tensor random(DType dtype, Dims dims, uint64_t seed = 1);
// Expects the reference's results within the tolerance, relative to 1 + |expected|; 0: the same numbers.
void expect_right(const Graph& source, const Compiled& compiled, const Inputs& inputs, double tolerance);

} // namespace tessera::driver_test
