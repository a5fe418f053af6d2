#include "frontend/fx/call.h"

namespace tessera::fx {

void register_attention(AtenTable&) {}

} // namespace tessera::fx
