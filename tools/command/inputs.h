// Inputs of a run: read from .npy files, or random, by a seeded generator of values that the model accepts.
#pragma once
#include "command.h"

namespace tessera::command {

using Tensors = std::map<std::string, Tensor>;
using Sizes = std::map<std::string, int64_t>; // of symbolic dimensions, by name

// Reads NAME=FILE arguments; dtypes that numpy lacks come from the model. Errors: Usage, UnknownInput, FileError, ...
[[nodiscard]] Result<Tensors> read_inputs(const Session& session, const std::vector<std::string>& arguments);
// Every file NAME.npy of a folder that is called as an input is (file_name()).
[[nodiscard]] Result<Tensors> read_input_folder(const Session& session, const std::string& folder);

// The file of an input or output in a folder: names may hold slashes. Lists are no arrays: NAME.json.
[[nodiscard]] std::string file_name(const std::string& value, DType dtype);

// Sizes of all symbolic dimensions: from tensors that are given, then from --shape, then defaults: 1 for a dimension
// that stands first, 32 otherwise, within what the model allows. Each default is said in `notes`. Errors: UnknownInput,
// Usage.
[[nodiscard]] Result<Sizes> choose_sizes(const Session& session, const Tensors& given,
                                         const std::vector<ShapeArgument>& shapes, std::vector<std::string>& notes);

// Whether --shape fits a model's inputs, where nothing is run. Errors: those of choose_sizes().
[[nodiscard]] Status check_shapes(const Graph& graph, const std::vector<ShapeArgument>& shapes);

// Fills in the inputs that are not given. Floats are normally distributed; integers that index a table are small and
// within it, other integers (masks, lengths) and booleans are 1. The same seed gives the same numbers, input by input.
[[nodiscard]] Status make_inputs(const Session& session, const Sizes& sizes, uint64_t seed, Tensors& tensors);

// The value of a size expression; nullopt where it has symbols that only a run defines.
[[nodiscard]] std::optional<int64_t> evaluate(const ShapeEnv& env, const Sizes& sizes, const SymExpr& e);

} // namespace tessera::command
