// The error that a function of the C interface returns as text, and tessera_last_error() in parts.
#pragma once
#include "base/guarded.h"

namespace tessera {

// Keeps the error for tessera_last_error(). Returns its text, valid until the same thread calls again; models.cpp defines it.
[[nodiscard]] const char* record_error(const Diagnostic& error) noexcept;

// The error of body(), a Status, as record_error() returns it; null where there is none.
template <class Body>
[[nodiscard]] const char* recorded(const Doing& doing, const Body& body) {
  const Status outcome = guarded(doing, body);
  return outcome.ok() ? nullptr : record_error(outcome.error());
}

} // namespace tessera
