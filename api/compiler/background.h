// A session whose kernels are tuned during its calls: measure/tune/background.h as a session's background work.
#pragma once
#include "api/session/model_source.h"
#include "measure/tune/background.h"

namespace tessera {

// Whether the options or the environment want it; their error is tune_in_background()'s.
[[nodiscard]] bool wants_background_tuning(const SessionOptions& options);
// `options`: those of the session, whose share is checked; null result: never.
[[nodiscard]] Result<std::shared_ptr<BackgroundWork>>
tune_in_background(const SessionOptions& options, const std::shared_ptr<TunedRecords>& records, BackgroundHooks hooks);

} // namespace tessera
