// Attention as one kernel for blocks of threads: scores and probabilities stay in registers (block_attention.cpp).
#pragma once
#include "codegen/schedule/schedule.h"
#include "fusion/plan.h"

namespace tessera {

// Whether there is code for it; otherwise `why_not` says what is missing.
[[nodiscard]] bool attention_by_blocks_takes(const Graph& graph, const AttentionCall& call, std::string* why_not);
// Of a call that is taken: kernels as lower_for_gpu yields them, one for few queries first where that many are not
// known. Buffers: what q, k, v and the score's loads read, each once, then what out writes.
[[nodiscard]] std::vector<ScheduledKernel> attention_by_blocks(const Graph& graph, const AttentionCall& call,
                                                               const std::string& name);

} // namespace tessera
