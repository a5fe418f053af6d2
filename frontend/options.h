// Options of an import, and what a model says of itself. Part of the installed interface.
#pragma once
#include "base/tensor.h"
#include <map>
#include <string>
#include <utility>

namespace tessera {

struct ImportOptions {
  // Sizes given by the user: symbol name ("batch") or input name -> dims, -1 where free. Those sizes become constants.
  std::map<std::string, int64_t> dim_values;
  std::map<std::string, Dims> input_shapes;
  // Smallest and largest size that calls may have of a dimension, by the symbol's name: others are the error GuardFailed.
  std::map<std::string, std::pair<int64_t, int64_t>> dim_ranges;
  // Hints for assumptions, not constants: symbol name -> size of the call that caused this compilation.
  std::map<std::string, int64_t> dim_hints;
  // Whether a call is known: what it does not say of values that decide the structure (axes) is guessed then. Otherwise
  // the import of such a model is the error MissingValues, or, when `undetermined`, a graph that reads its integer
  // inputs and fits no call: the guard miss reports their values.
  bool of_call = false, undetermined = false;
  // Graph-only files: weights without data are an error, constants without contents (golden tests), or constants with
  // made-up contents, for what only plans or explains: the plan is the one that real weights get.
  enum class MissingWeights : uint8_t { Refuse, Empty, MadeUp } missing_weights = MissingWeights::Refuse;
};

// A program of torch.export in memory, for a process that captured one: its JSON (schema version 8) and its weights.
struct ProgramSource {
  std::string name; // of the model, for messages
  std::string json;
  // Parameters, buffers and constants by the names in the program's signature, contiguous in the order of the
  // dimensions; they are not copied.
  std::map<std::string, Tensor> weights;
  // Inputs and outputs lie in memory as the program's strides say, if these are a permutation of contiguous ones: the
  // Graph's inputs and outputs have the dimensions in the order of memory. Otherwise they are contiguous.
  bool strided = false;
};

struct ModelInfo {
  std::string format;                    // "ONNX", "PyTorch"
  int64_t version = 0;                   // of the format: ONNX's IR version, the major version of PyTorch's schema
  std::map<std::string, int64_t> opsets; // operator domain -> version ("ai.onnx", "aten")
  std::string producer;                  // name and version
  int functions = 0;                     // local functions in the file
  int nodes = 0;                         // after they were inlined
  int absent_weights = 0;                // without data in the file
  int64_t absent_bytes = 0;              // that they would have
};

} // namespace tessera
