// The cases that `tessera test` runs: models with inputs and expected outputs, in the layouts that ONNX's own runner
// knows.
//
//   A/model.onnx (or model.pt2), A/test_data_set_0/input_0.pb, output_0.pb (or .npy), A/data.json with rtol, atol
//   A/data.json with "url": the model lies elsewhere; next to this folder or one around it by the end of that path
//   A/NAME.onnx, A/NAME_output_0.pb: the inputs are counted (counted_input)
#pragma once
#include "command.h"

namespace tessera::command {

struct DataSet {
  std::string name;                 // "test_data_set_0"
  std::vector<std::string> inputs;  // files
  std::vector<std::string> outputs; // files
  bool counted = false;             // the inputs are counted_input() of each
};

struct ModelCase {
  std::string name, folder;
  std::string model;   // path; empty where it is not here
  std::string missing; // where it should have come from
  std::vector<DataSet> sets;
  std::optional<double> rtol, atol; // of data.json
};

// Every case in the folders, at any depth, sorted by folder within each. A model that a data.json names is one case.
// Error FileError for a folder that cannot be read, or has none.
[[nodiscard]] Result<std::vector<ModelCase>> find_cases(const std::vector<std::string>& dirs);

// ONNX's input for models without inputs of their own: 0, 1/n, 2/n ... of n elements; a dimension that is not known is 1.
[[nodiscard]] Result<Tensor> counted_input(const IoInfo& input);

} // namespace tessera::command
