// The error that a function of the C interface returns as text, and tessera_last_error() in parts.
#pragma once
#include "graph/support/diagnostic.h"

namespace tessera {

// Its text, good until the same thread calls again. c.cpp has the definition.
[[nodiscard]] const char* told(const Diagnostic& error) noexcept;

} // namespace tessera
