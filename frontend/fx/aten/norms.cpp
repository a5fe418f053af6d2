#include "frontend/fx/call.h"

namespace tessera::fx {

void register_norms(AtenTable&) {}

} // namespace tessera::fx
