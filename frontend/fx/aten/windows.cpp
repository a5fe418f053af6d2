#include "frontend/fx/call.h"

namespace tessera::fx {

void register_windows(AtenTable&) {}

} // namespace tessera::fx
