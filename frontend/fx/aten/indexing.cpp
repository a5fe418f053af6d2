#include "frontend/fx/call.h"

namespace tessera::fx {

void register_indexing(AtenTable&) {}

} // namespace tessera::fx
