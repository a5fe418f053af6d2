// An executor of a session: takes the variants that the session's policy wants for a call before it, and leaves those
// that were evicted, between two calls.
#pragma once
#include "api/variant_pool.h"

namespace tessera {

// Over the variants of this moment, specialized ones first and the generic one last. `work`: who hears of its calls, or
// null. RunStats::variant indexes VariantPool::variants().
[[nodiscard]] Result<std::unique_ptr<Executor>> make_session_executor(std::shared_ptr<VariantPool> pool,
                                                                      std::shared_ptr<BackgroundWork> work);

} // namespace tessera
