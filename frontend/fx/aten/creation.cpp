#include "frontend/fx/call.h"

namespace tessera::fx {

void register_creation(AtenTable&) {}

} // namespace tessera::fx
