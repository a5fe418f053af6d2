#include "frontend/fx/call.h"

namespace tessera::fx {

void register_products(AtenTable&) {}

} // namespace tessera::fx
