// What the system tells of this machine.
#pragma once
#include "codegen/target/target.h"

namespace tessera {

// Sets the caches of a host's target to those of this machine: capacity of the level-1 data cache, of levels 2 and 3,
// and the line, in bytes. What the system does not tell stays.
void set_host_caches(Target& target);

} // namespace tessera
