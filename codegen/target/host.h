// Properties of this machine from the system.
#pragma once
#include "codegen/target/target.h"

namespace tessera {

// Sets the caches of a host's target to those of this machine: capacity of the level-1 data cache, of levels 2 and 3,
// and the line, in bytes. Unreported values are unchanged.
void set_host_caches(Target& target);

} // namespace tessera
