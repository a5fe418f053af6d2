// Properties of this machine from the system.
#pragma once
#include "codegen/target/target.h"

namespace tessera {

// Sets the caches of a host's target to those of this machine: capacity of the level-1 data cache, of levels 2 and 3,
// and the line, in bytes. Unreported values are unchanged.
void set_host_caches(Target& target);

// Instructions for one element of which the code of a whole step, `unroll` vectors, stays in the instruction cache of a
// host's core, which is about as large as its level-1 cache of data.
[[nodiscard]] double cached_instructions(const Target& host);

} // namespace tessera
