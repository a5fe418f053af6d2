// Edits of a program of torch.export that keep it JSON: calls of operators that Tessera translates, with arguments that
// fit their schemas and values that may not.
#pragma once
#include <nlohmann/json.hpp>
#include <random>

namespace tessera::fuzz {

// Adds one to three calls at random places. Tensors are those of the program, other arguments small numbers, edge
// values, lists of these, or left out; results have the sizes and the element type of some tensor of the program.
// Nothing where the document is no program.
void add_calls(nlohmann::json& program, std::mt19937_64& rng);

} // namespace tessera::fuzz
