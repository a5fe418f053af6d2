// Attention as one kernel for blocks of threads: scores and probabilities stay in registers (block_attention.cpp).
#pragma once
#include "codegen/schedule/schedule.h"
#include "fusion/plan.h"

namespace tessera {

// True if the kernel supports the call; otherwise sets `why_not`.
[[nodiscard]] bool attention_by_blocks_takes(const Graph& graph, const AttentionCall& call, std::string* why_not);
// Kernels of a supported call, as lower_for_gpu returns them; the first one is for few queries if their number is
// unknown. Buffers: those that q, k, v and the score's loads read, each once, then the output.
[[nodiscard]] std::vector<ScheduledKernel> attention_by_blocks(const Graph& graph, const AttentionCall& call,
                                                               const std::string& name);

} // namespace tessera
