#include "runtime/cpu/plan.h"
#include <algorithm>

namespace tessera {

int64_t CpuPlan::host_bytes() const {
  int64_t total = static_cast<int64_t>(sizeof *this + steps.capacity() * sizeof(CpuStep));
  for (const CpuStep& step : steps) {
    if (step.library) total += step.library->host_bytes();
    if (step.epilogue)
      total +=
          static_cast<int64_t>((step.epilogue->sizes.capacity() + step.epilogue->grids.capacity()) * sizeof(int64_t));
  }
  return total;
}

namespace {

Result<std::unique_ptr<EpiloguePlan>> plan_epilogue(const Variant& variant, const EpilogueForm& form,
                                                    const std::string& name, const Variant::CallState& call,
                                                    const SegmentPlan& segment, const LibraryPlan& library) {
  auto plan = std::make_unique<EpiloguePlan>();
  plan->function = form.source->kernel.function;
  plan->buffers = form.source->kernel.buffers;
  plan->sizes_per_box = form.kernel.sizes.size();
  EpilogueSizes sizes(variant, form, call, segment);
  auto numbers = static_cast<size_t>(library.rank) * 2;
  for (int box = 0; box < library.box_count; ++box) {
    TESSERA_ASSIGN(auto step, sizes.at({library.boxes.data() + static_cast<size_t>(box) * numbers, numbers}));
    if (step.kernel->function != plan->function)
      return Diagnostic(ErrorCode::Internal, "the epilogue of '" + name + "' has alternatives, which are for GPUs");
    step.launch.sizes.resize(plan->sizes_per_box); // it has none where nothing is to be launched
    plan->sizes.insert(plan->sizes.end(), step.launch.sizes.begin(), step.launch.sizes.end());
    plan->grids.push_back(step.launch.grid);
    plan->scratch_bytes = std::max(plan->scratch_bytes, step.launch.scratch_bytes);
  }
  return plan;
}

Status plan_call(const Variant& variant, const StepForm& form, const Variant::CallState& call, const SegmentPlan& plan,
                 int threads, PackRequests& packs, CpuStep& step) {
  const auto& library = std::get<LibraryStep>(*form.step);
  PlanContext context{threads, form.epilogue.has_value(), library.name, &packs};
  TESSERA_ASSIGN(auto operands, concrete_operands(variant, form, call, plan));
  if (std::holds_alternative<MatmulCall>(library.call)) {
    TESSERA_ASSIGN(step.library, plan_matmul(context, operands[0], operands[1], operands[2]));
  } else if (const auto* conv = std::get_if<ConvCall>(&library.call)) {
    TESSERA_ASSIGN(step.library, plan_conv(context, *conv, operands[0], operands[1], operands[2]));
  } else {
    TESSERA_ASSIGN(step.library, plan_pool(context, std::get<PoolCall>(library.call), operands[0], operands[1]));
  }
  if (form.epilogue) {
    TESSERA_ASSIGN(step.epilogue, plan_epilogue(variant, *form.epilogue, library.name, call, plan, *step.library));
  }
  return {};
}

} // namespace

Status plan_cpu_calls(const Variant& variant, int segment, const Variant::CallState& call, SegmentPlan& plan,
                      ThreadPool& pool, const std::shared_ptr<MemoryAccount>& account) {
  auto made = std::make_unique<CpuPlan>();
  made->first_step = variant.segment_begin[static_cast<size_t>(segment)];
  made->steps.resize(plan.steps.size());
  std::vector<size_t> calls;
  auto form = [&](size_t s) -> const StepForm& { return variant.steps[static_cast<size_t>(made->first_step) + s]; };
  for (size_t s = 0; s < plan.steps.size(); ++s)
    if (std::holds_alternative<LibraryStep>(*form(s).step)) calls.push_back(s);
  std::vector<std::optional<Diagnostic>> errors(calls.size());
  PackRequests packs(account);
  auto body = [&](int64_t from, int64_t to, int) {
    for (int64_t i = from; i < to; ++i) {
      size_t s = calls[static_cast<size_t>(i)];
      if (auto status = plan_call(variant, form(s), call, plan, pool.threads(), packs, made->steps[s]); !status.ok())
        errors[static_cast<size_t>(i)] = status.error();
    }
  };
  pool.parallel_for(static_cast<int64_t>(calls.size()), 1, body);
  auto built = packs.build(pool); // also after an error: other executors may wait for these packs
  for (auto& e : errors)
    if (e) return std::move(*e);
  TESSERA_TRY(std::move(built));
  plan.packed_bytes = packs.built_bytes();
  for (const StepPlan& step : plan.steps) { // what programs of its kernel share
    int64_t bytes = step.launch.counters * static_cast<int64_t>(sizeof(uint32_t));
    for (const auto& w : step.launch.workspaces) bytes += aligned(w.bytes());
    plan.step_scratch = std::max(plan.step_scratch, bytes);
  }
  for (auto& step : made->steps) {
    if (!step.library) continue;
    plan.code_bytes += step.library->code_bytes;
    plan.step_scratch = std::max(plan.step_scratch, step.library->step_scratch);
    plan.worker_scratch = std::max(plan.worker_scratch,
                                   step.library->worker_scratch + (step.epilogue ? step.epilogue->scratch_bytes : 0));
  }
  plan.device = std::move(made);
  return {};
}

} // namespace tessera
