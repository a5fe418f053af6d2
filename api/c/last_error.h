// The error that a function of the C interface returns as text, and tessera_last_error() in parts.
#pragma once
#include "base/diagnostic.h"

namespace tessera {

// Keeps the error for tessera_last_error(). Returns its text, valid until the same thread calls again; c.cpp defines it.
[[nodiscard]] const char* record_error(const Diagnostic& error) noexcept;

} // namespace tessera
