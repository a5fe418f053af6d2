// What an import can be told, and what a model says of itself. Part of the installed interface.
#pragma once
#include "graph/support/tensor.h"
#include <map>
#include <string>

namespace tessera::onnx {

struct ImportOptions {
  // Sizes given by the user: dim_param name ("batch") or input name -> dims, -1 where free. Those sizes become
  // constants.
  std::map<std::string, int64_t> dim_values;
  std::map<std::string, Dims> input_shapes;
  // Hints for assumptions, not constants: symbol name -> size of the call that asks for this compilation.
  std::map<std::string, int64_t> dim_hints;
  bool allow_missing_weights = false; // graph-only files: weights without data (explain, golden tests)
};

struct ModelInfo {
  int64_t ir_version = 0;
  std::map<std::string, int64_t> opsets; // domain -> version, "" is the default domain
  std::string producer;                  // name and version
  int functions = 0;                     // local functions in the file
  int nodes = 0;                         // after they were inlined
};

} // namespace tessera::onnx
