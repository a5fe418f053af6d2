#include "base/result.h"
#include <new>

namespace tessera {

Failure::Failure(Diagnostic&& d) : error(std::make_unique<Diagnostic>(std::move(d))) {}

void value_of_error(const Diagnostic& error) {
  if (error.code == ErrorCode::OutOfMemory) throw std::bad_alloc();
  check_failed("ok()", __FILE__, __LINE__, "the value of a result that is an error: " + error.str());
}

} // namespace tessera
