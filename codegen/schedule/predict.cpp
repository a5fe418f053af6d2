#include "codegen/schedule/predict.h"
#include "codegen/schedule/cells.h"
#include "codegen/schedule/choose_blocks.h"
#include "codegen/schedule/cost.h"
#include "codegen/schedule/host_cost.h"
#include "codegen/schedule/legal.h"
#include "codegen/target/derived.h"

namespace tessera {

Result<KernelPrediction> predict(const Graph& graph, const LoopNest& nest, const Target& device,
                                 const Schedule& schedule, const CallSizes& sizes) {
  TESSERA_ASSIGN(Domain domain, make_domain(graph, nest));
  if (domain.axes.empty()) { // scalars: nothing but the launch
    const double launch = lone_launch_us(device);
    return KernelPrediction{{launch, {{"launch", launch}}}, 1, 1, 0, 0};
  }
  const BlockFacts facts(graph, nest, domain, device);
  TESSERA_ASSIGN(const SizedFacts sized, sized_facts(facts, sizes));
  Cost c;
  if (device.is_gpu()) {
    const Legal l = legal(facts, schedule, ranges_of(facts, sized.extents, sizes));
    if (!l) return Diagnostic(ErrorCode::CodegenError, l.refusal);
    int64_t blocks_per_row = 1;
    if (l.blocks_per_row) {
      TESSERA_ASSIGN(blocks_per_row, l.blocks_per_row->eval(sizes));
    }
    c = cost(sized, l.schedule, blocks_per_row, device, {});
  } else {
    HostCostModel model;
    model.programs = device.cores;
    c = host_cost(sized, schedule, device, model);
  }
  return KernelPrediction{c.predicted(), c.blocks, c.resident, c.registers, c.code};
}

Result<PredictedTime> predict_chosen(const Graph& graph, const LoopNest& nest, const Target& device) {
  TESSERA_ASSIGN(Domain domain, make_domain(graph, nest));
  const BlockFacts facts(graph, nest, domain, device);
  const std::vector<BlockChoice> choices = choose_blocks(facts);
  if (choices.empty()) return Diagnostic(ErrorCode::CodegenError, "no schedule is legal");
  if (domain.axes.empty()) return choices.front().predicted;
  const Cells cells = typical_cells(facts);
  if (!cells.seen) return Diagnostic(ErrorCode::CodegenError, "sizes are neither known nor expected");
  if (cells.list.empty()) return Diagnostic(ErrorCode::CodegenError, "no size is possible");
  const CallSizes& sizes = cells.list.front().sizes;
  if (sizes.empty()) return choices.front().predicted;
  for (const BlockChoice& choice : choices) // as a launch takes the first one that is right for its sizes
    if (holds(choice.legal.conditions, sizes)) {
      TESSERA_ASSIGN(KernelPrediction out, predict(graph, nest, device, choice.legal.schedule, sizes));
      return std::move(out.time);
    }
  return Diagnostic(ErrorCode::CodegenError, "no schedule is legal at the expected sizes");
}

} // namespace tessera
