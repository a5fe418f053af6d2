// Four small models with symbolic sizes, cases of inputs for them, and what the reference computes for each case.
#pragma once
#include "base/tensor.h"
#include "tests/onnx/model_maker.h"
#include <map>
#include <random>

namespace tessera::soak {

using Inputs = std::map<std::string, Tensor>;

struct Case {
  Inputs inputs;
  std::vector<Tensor> expected;
};

struct Model {
  std::string name, path; // path: what a session opens
  std::string device;     // where it runs
  double tolerance = 0;   // of results, relative and absolute
  onnx_test::Maker maker;
  std::vector<Case> cases;
};

// Writes the models to the folder, to run on `device`. `count` cases each, of random sizes; the same for the same seed. `one_variant`: of
// sizes that the variant fits which is compiled without knowing them.
[[nodiscard]] Result<std::vector<Model>> make_models(const std::string& folder, const std::string& device, int count,
                                                     uint64_t seed, bool one_variant);

// The first difference from the expected outputs that another order of summation does not explain; empty: none.
[[nodiscard]] std::string difference(const Model& m, const Case& c, const std::vector<Tensor>& outputs);

} // namespace tessera::soak
