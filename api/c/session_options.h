// The options of tessera_options as those of a session, for the C interface and the command.
#pragma once
#include "api/c.h"
#include "api/session.h"

namespace tessera {

// How messages spell the name of an option: "warm_up", "--warm-up".
using Spelling = std::string (*)(std::string_view name);
[[nodiscard]] std::string as_named(std::string_view name);

// All but device and allocator. Errors: Usage for a value that the table (option_fields.h) does not have, or a text that
// does not parse; those of apply() (opening.h).
[[nodiscard]] Status take_options(const tessera_options& given, Spelling spelled, SessionOptions& out);

} // namespace tessera
