#include "frontend/fx/call.h"

namespace tessera::fx {

void register_reductions(AtenTable&) {}

} // namespace tessera::fx
