// Requests of random sizes, as a server gets them: what the first call of a shape costs next to its second.
#pragma once
#include "command.h"

namespace tessera::command {

struct RequestOptions {
  std::vector<std::string> ranges; // DIM=LOW..HIGH
  int requests = 1000;
  int checks = 0; // results that are computed again at the end, and by a fresh compile for their sizes
  uint64_t seed = 0;
};

// Calls the model with random sizes of the ranges, each twice, and measures both calls as a caller sees them. Errors:
// Usage for ranges that do not parse; those of opening and calling.
[[nodiscard]] Result<Json> bench_requests(const ModelOptions& model, const RequestOptions& options);
[[nodiscard]] std::string requests_text(const Json& report);

} // namespace tessera::command
