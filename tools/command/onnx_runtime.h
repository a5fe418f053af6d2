// Values that ONNX Runtime computes, by its Python package in a process of its own.
#pragma once
#include "base/temporary_folder.h"
#include "inputs.h"
#include "measure/accuracy/accuracy.h"
#include <set>

namespace tessera::command {

class OnnxRuntimeValues : public accuracy::OtherValues {
public:
  // `python`: a program of Python 3 that has the package onnxruntime. `graph`: of the compiled model, for types. Errors:
  // UnsupportedFeature without the package, or where ONNX Runtime does not run the model; UnsupportedType for inputs
  // that numpy has no type of; Usage for what is no ONNX model.
  [[nodiscard]] static Result<std::unique_ptr<OnnxRuntimeValues>>
  create(const std::string& model, const std::string& python, const Graph& graph, const Tensors& inputs);

  [[nodiscard]] Status load(const std::vector<std::string>& names) override;
  [[nodiscard]] Result<std::optional<accuracy::Elements>> get(const std::string& name) override;
  [[nodiscard]] const std::string& version() const { return version_; } // "1.22.0"

private:
  OnnxRuntimeValues(std::string model, std::string python, TemporaryFolder folder)
      : model_(std::move(model)), python_(std::move(python)), folder_(std::move(folder)) {}
  [[nodiscard]] Status run(const std::vector<std::string>& names);

  std::string model_, python_, version_;
  TemporaryFolder folder_; // the script, inputs, values of the last load()
  Json inputs_ = Json::object();
  std::map<std::string, DType> types_;       // of values that ONNX Runtime can yield as arrays
  std::map<std::string, std::string> files_; // of values that were loaded
};

} // namespace tessera::command
