// Errors of this backend are Triton's: a code, and the text that a client reads.
#pragma once
#include "api/c.h"
#include "serving/triton/triton.h"
#include <exception>
#include <memory>
#include <string>

namespace tessera::triton {

struct DeleteError {
  void operator()(TRITONSERVER_Error* e) const { TRITONSERVER_ErrorDelete(e); }
};
using Error = std::unique_ptr<TRITONSERVER_Error, DeleteError>; // null: none

[[nodiscard]] inline Error make_error(TRITONSERVER_Error_Code code, const std::string& text) {
  return Error(TRITONSERVER_ErrorNew(code, text.c_str()));
}
[[nodiscard]] inline Error invalid(const std::string& text) { return make_error(TRITONSERVER_ERROR_INVALID_ARG, text); }

// Makes an error of the text that a function of the C interface returned; null for null.
[[nodiscard]] Error from_tessera(const char* text);

// Returns the error that `expression` gives, if any. expression: an Error, or a TRITONSERVER_Error* that it takes.
#define TESSERA_TRITON_TRY(expression)                                                                                 \
  do {                                                                                                                 \
    if (::tessera::triton::Error failed_{expression}) return failed_;                                                  \
  } while (false)

// body()'s error; an exception is one, too: none crosses the interface. Body: () -> Error.
template <class Body>
[[nodiscard]] Error guarded(const Body& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Error(TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, "tessera: out of memory"));
  } catch (const std::exception& e) {
    return Error(TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, e.what()));
  }
}

// A line in the server's log.
void log(TRITONSERVER_LogLevel level, const std::string& text);
// Logs an error that nobody can be given.
inline void log_error(Error error) {
  if (error) log(TRITONSERVER_LOG_ERROR, TRITONSERVER_ErrorMessage(error.get()));
}

} // namespace tessera::triton
