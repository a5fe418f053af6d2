#include "serving/triton/error.h"
#include <string_view>

namespace tessera::triton {

namespace {
TRITONSERVER_Error_Code code_of(std::string_view name) {
  for (auto caller : {"usage", "bad-input", "unknown-input", "missing-input", "guard-failed", "earlier-call"})
    if (name == caller) return TRITONSERVER_ERROR_INVALID_ARG;
  if (name == "out-of-memory") return TRITONSERVER_ERROR_UNAVAILABLE;
  if (name == "file-error") return TRITONSERVER_ERROR_NOT_FOUND;
  return name.starts_with("unsupported") ? TRITONSERVER_ERROR_UNSUPPORTED : TRITONSERVER_ERROR_INTERNAL;
}
} // namespace

Error from_tessera(const char* text) {
  if (text == nullptr) return nullptr;
  const tessera_error* parts = tessera_last_error();
  if (parts == nullptr) return make_error(TRITONSERVER_ERROR_INTERNAL, text);
  // The parts on one line: clients print it behind a status.
  std::string line = parts->location;
  if (!line.empty()) line += ": ";
  line += std::string(parts->message) + " [" + parts->code + " " + parts->name + "]";
  for (int32_t i = 0; i < parts->note_count; ++i) line += std::string("; ") + parts->notes[i];
  return make_error(code_of(parts->name), line);
}

void log(TRITONSERVER_LogLevel level, const std::string& text) {
  Error(TRITONSERVER_LogMessage(level, "tessera", 0, text.c_str())); // an error of the log has nowhere to go
}

} // namespace tessera::triton
