// The page of each reason (docs/fusion), inside the binary.
#pragma once
#include "fusion/plan.h"

namespace tessera {

// Markdown: what the code means, when it is right, what to do, an example.
[[nodiscard]] std::string_view reason_page(const FusionReasonInfo& reason);

} // namespace tessera
