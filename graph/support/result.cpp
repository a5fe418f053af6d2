#include "graph/support/result.h"

namespace tessera {

Failure::Failure(Diagnostic&& d) : error(std::make_unique<Diagnostic>(std::move(d))) {}

void value_of_error(const Diagnostic& error) {
  check_failed("ok()", __FILE__, __LINE__, "the value of a result that is an error: " + error.str());
}

} // namespace tessera
