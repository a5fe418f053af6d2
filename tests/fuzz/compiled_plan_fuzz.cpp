// Plans of models that were compiled on this machine: the contracts are the compiler's, the kernels its machine code.
#include "codegen/driver/compile.h"
#include "plan_harness.h"
#include "tests/runtime/build_executable.h"

namespace tessera::fuzz {
namespace {

PlanModel model(const std::string& name, const std::string& text, const std::map<std::string, Dims>& inputs) {
  auto graph = parse_graph(text);
  TESSERA_CHECK(graph.ok(), name + ": " + graph.error().str());
  CompileOptions options;
  options.cache = false;
  auto compiled = compile(std::move(*graph), options);
  TESSERA_CHECK(compiled.ok(), name + ": " + compiled.error().str());
  PlanModel made{name, compiled->executable, {}};
  uint32_t seed = 1;
  for (const auto& [input, dims] : inputs) made.inputs.emplace(input, test::random_tensor(dims, seed++));
  return made;
}

} // namespace

std::vector<PlanModel> plan_models() {
  return {
      // A product with an epilogue that runs in its memory, then rows: exp, sum, quotient.
      model("product",
            R"(graph @main(%x: f32[s, 16], %w: f32[16, 24], %c: f32[24]) -> (%y: f32[s, 24]) where s in [1, 512] {
  %p = matmul(%x, %w) : f32[s, 24]
  %q = add(%p, %c) : f32[s, 24]
  %e = exp(%q) : f32[s, 24]
  %n = reduce_sum(%e) axes=[1] keepdims=1 : f32[s, 1]
  %y = div(%e, %n) : f32[s, 24]
}
)",
            {{"x", {5, 16}}, {"w", {16, 24}}, {"c", {24}}}),
      model("windows",
            R"(graph @main(%x: f32[b, 3, 8, 8], %w: f32[4, 3, 3, 3]) -> (%y: f32[b, 4, 4, 4]) where b in [1, ?] {
  %c = conv(%x, %w) strides=[1, 1] pads_begin=[1, 1] pads_end=[1, 1] dilations=[1, 1] groups=1 : f32[b, 4, 8, 8]
  %e = neg(%c) : f32[b, 4, 8, 8]
  %y = pool(%e) mode="max" kernel=[2, 2] strides=[2, 2] pads_begin=[0, 0] pads_end=[0, 0] dilations=[1, 1] : f32[b, 4, 4, 4]
}
)",
            {{"x", {2, 3, 8, 8}}, {"w", {4, 3, 3, 3}}}),
      // Sizes that values decide; a transpose.
      model(
          "dynamic",
          R"(graph @main(%x: f32[s, t]) -> (%a: i64[2, n], %y: f32[t, s], %z: f32[s]) where s in [0, ?], t in [0, ?], n in [0, ?] {
  %a = nonzero(%x) : i64[2, n]
  %e = exp(%x) : f32[s, t]
  %y = transpose(%e) perm=[1, 0] : f32[t, s]
  %z = reduce_sum(%e) axes=[1] keepdims=0 : f32[s]
}
)",
          {{"x", {6, 70}}}),
  };
}

} // namespace tessera::fuzz
