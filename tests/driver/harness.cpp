#include "harness.h"
#include "graph/ops/samples.h"
#include "graph/reference/evaluator.h"
#include <cmath>

namespace tessera::driver_test {

CompileOptions options(const std::string& cache_dir) {
  CompileOptions o;
  o.threads = 2;
  o.cache_dir = cache_dir;
  return o;
}

Graph parse(const std::string& text) {
  auto graph = parse_graph(text);
  EXPECT_TRUE(graph.ok()) << (graph.ok() ? "" : graph.error().str());
  return graph.ok() ? std::move(*graph) : Graph();
}

Compiled compile_it(Graph graph, const CompileOptions& options) {
  auto compiled = compile(std::move(graph), options);
  EXPECT_TRUE(compiled.ok()) << (compiled.ok() ? "" : compiled.error().str());
  return compiled.ok() ? std::move(*compiled) : Compiled();
}

Result<std::vector<Tensor>> run(const Compiled& compiled, const Inputs& inputs) {
  if (!compiled.executable) return Diagnostic(ErrorCode::Usage, "it was not compiled");
  static const auto pool = ThreadPool::create(2);
  ExecutorOptions o;
  o.pool = pool;
  o.poison = true;
  TESSERA_ASSIGN(auto executor, Executor::create({compiled.executable}, o));
  return executor->run(inputs);
}

Tensor random(DType dtype, Dims dims, uint64_t seed) { return ops::random(dtype, std::move(dims), seed); }

void expect_right(const Graph& source, const Compiled& compiled, const Inputs& inputs, double tolerance) {
  auto got = run(compiled, inputs);
  ASSERT_TRUE(got.ok()) << got.error().str();
  auto want = evaluate_graph(source, inputs);
  ASSERT_TRUE(want.ok()) << want.error().str();
  ASSERT_EQ(got->size(), want->size());
  for (size_t o = 0; o < want->size(); ++o) {
    ASSERT_EQ((*got)[o].dtype(), (*want)[o].dtype());
    ASSERT_EQ((*got)[o].dims(), (*want)[o].dims());
    for (int64_t i = 0; i < (*want)[o].count(); ++i) {
      double g = (*got)[o].get_f64(i), w = (*want)[o].get_f64(i);
      ASSERT_LE(std::abs(g - w), tolerance * (1 + std::abs(w)))
          << "output " << o << ", element " << i << ": " << g << ", not " << w;
    }
  }
}

} // namespace tessera::driver_test
