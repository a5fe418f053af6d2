// Operators of shared libraries (operators.h), for this process.
#pragma once
#include "base/result.h"
#include <optional>
#include <string>

namespace tessera {

// Registers the operators of a library; one that is loaded already is no error. Errors: FileError; Usage for what is no
// library of operators, is for another version, or has an operator that is defined already.
[[nodiscard]] Status load_operators(const std::string& library);
// The identity of the operators that this process has added: digests of the libraries. Nothing: a program has added
// some itself, which nothing identifies.
[[nodiscard]] std::optional<std::string> added_operators();

} // namespace tessera
