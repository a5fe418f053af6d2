// Edits of a compiled file's plan that keep it JSON: what a damaged or a hostile file says under a right hash.
#pragma once
#include <nlohmann/json.hpp>
#include <random>

namespace tessera::fuzz {

// One to three edits: numbers, texts and flags by edge values or by what stands elsewhere in the plan; sizes edited as
// expressions; entries removed, repeated, exchanged; values of another type.
void mutate(nlohmann::json& plan, std::mt19937_64& rng);

} // namespace tessera::fuzz
