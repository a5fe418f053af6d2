#include "runtime/cuda/plan.h"
#include "graph/support/log.h"
#include "runtime/cuda/memory.h"
#include <algorithm>

namespace tessera::cuda {

namespace {

class Preparer {
public:
  Preparer(const std::shared_ptr<Context>& context, const Variant& variant, const Variant::CallState& call,
           LoadedExecutable& code, BufferTable& table, Reports& reports, RestingMemory& resting, SegmentPlan& plan)
      : context_(context), variant_(variant), call_(call), code_(code), table_(table), reports_(reports),
        resting_(resting), plan_(plan) {}

  Status run(int segment, std::vector<std::string>& refused) {
    Status first_refusal;
    auto made = std::make_unique<CudaPlan>();
    size_t put = 0; // steps that put something on the stream
    bool replayable = true;
    made->first_step = variant_.segment_begin[static_cast<size_t>(segment)];
    made->steps.resize(plan_.steps.size());
    for (size_t s = 0; s < made->steps.size(); ++s) {
      int index = made->first_step + static_cast<int>(s);
      const auto& form = variant_.steps[static_cast<size_t>(index)];
      auto& step = made->steps[s];
      if (plan_.leaves_out(s)) continue;
      if (std::holds_alternative<KernelLaunch>(*form.step)) {
        const auto& planned = plan_.steps[s];
        place_workspaces(planned, step.kernel);
        step.kernel.cooperative = planned.at_once;
        step.kernel.alone = !planned.at_once && !planned.kernel->team.is_const(0);
        replayable = replayable && !step.kernel.alone; // a graph does not wait for what is outside of it
        made->counters = std::max(made->counters, planned.counters);
        made->boxes = std::max(made->boxes, planned.boxes);
        TESSERA_TRY(kernel(*planned.kernel, planned.grid, plan_.numbers.data() + planned.sizes, index, step.kernel));
        put += step.kernel.grid > 0 ? 1 : 0;
      } else if (std::holds_alternative<LibraryStep>(*form.step)) {
        refused_ = false;
        if (auto status = library(form, index, step); !status.ok()) {
          if (!refused_) {
            refused.clear();
            return status;
          }
          if (refused.empty()) first_refusal = std::move(status);
          refused.push_back(name_of(*form.step));
          continue;
        }
        plan_.step_scratch = std::max(plan_.step_scratch, step.library->workspace_bytes);
        ++put;
      } else {
        replayable = replayable && is_copy_on_gpu(*form.step);
      }
    }
    if (!refused.empty()) return first_refusal;
    if (replayable && put >= Replays::kFewestSteps) made->replays = std::make_unique<Replays>(context_);
    plan_.device = std::move(made);
    return {};
  }

private:
  // Of host steps and of strings the executor takes care.
  [[nodiscard]] bool is_copy_on_gpu(const Step& step) const {
    const auto* copy = std::get_if<CopyStep>(&step);
    return copy && has_bytes(variant_.exe->buffers[static_cast<size_t>(copy->source)].dtype);
  }

  // One behind the other, in memory that the step has for itself while it runs.
  void place_workspaces(const StepPlan& planned, PreparedLaunch& out) {
    int64_t at = 0;
    for (int64_t bytes : planned.workspaces) {
      out.workspaces.push_back(at);
      at += rounded_bytes(bytes);
    }
    out.addresses.resize(out.workspaces.size());
    plan_.step_scratch = std::max(plan_.step_scratch, at);
  }

  Status kernel(const KernelLaunch& k, int64_t grid, int64_t* sizes, int step, PreparedLaunch& out) {
    if (grid > INT32_MAX)
      return Diagnostic(ErrorCode::SizeOverflow, "kernel '" + k.name + "' would have " + std::to_string(grid) +
                                                     " blocks, a GPU launches at most " + std::to_string(INT32_MAX));
    TESSERA_ASSIGN(out.function, code_.function(k));
    out.kernel = &k;
    out.grid = static_cast<unsigned>(std::max<int64_t>(grid, 0));
    out.threads = static_cast<unsigned>(k.threads);
    out.shared_bytes = static_cast<unsigned>(k.shared_bytes);
    for (auto b : k.buffers) out.params.push_back(&table_.pointers[static_cast<size_t>(b)]);
    for (auto& a : out.addresses) out.params.push_back(&a);
    if (!k.counters.is_const(0)) out.params.push_back(&resting_.counters);
    if (!k.boxes.is_const(0)) out.params.push_back(&resting_.boxes);
    for (size_t i = 0; i < k.sizes.size(); ++i) out.params.push_back(sizes + i);
    out.params.push_back(reports_.argument(step));
    return {};
  }

  Status library(const StepForm& form, int index, PreparedStep& step) {
    const auto& l = std::get<LibraryStep>(*form.step);
    CudaPlanContext context{*context_, l.name, form.epilogue.has_value()};
    TESSERA_ASSIGN(auto operands, concrete_operands(variant_, form, call_, plan_));
    auto planned = [&]() -> Result<std::unique_ptr<CudaLibraryPlan>> {
      if (const auto* matmul = std::get_if<MatmulCall>(&l.call)) return plan_cuda_matmul(context, *matmul, operands);
      if (const auto* conv = std::get_if<ConvCall>(&l.call)) return plan_cuda_conv(context, *conv, operands);
      if (const auto* attention = std::get_if<FusedAttentionCall>(&l.call))
        return plan_cuda_attention(context, *attention, operands);
      return plan_cuda_pool(context, std::get<PoolCall>(l.call), operands);
    }();
    if (!planned.ok()) {
      refused_ = planned.error().code == ErrorCode::UnsupportedFeature;
      return std::move(planned).take_error();
    }
    step.library = std::move(*planned);
    if (!form.epilogue) {
      if (step.library->epilogue_done) return {};
      refused_ = true;
      return Diagnostic(ErrorCode::UnsupportedFeature, "the library does not take the epilogue of '" + l.name +
                                                           "' at these sizes, and there is no "
                                                           "kernel for it");
    }
    if (step.library->epilogue_done && fused(l)) return {};
    // One box: the whole result.
    const auto& result = operands[form.result];
    std::vector<int64_t> box(result.shape.size(), 0);
    box.insert(box.end(), result.shape.begin(), result.shape.end());
    TESSERA_ASSIGN(auto launch, EpilogueSizes(variant_, *form.epilogue, call_, plan_).at(box, l.name));
    step.kernel.sizes = std::move(launch.sizes);
    return kernel(*launch.kernel, launch.grid, step.kernel.sizes.data(), index, step.kernel);
  }

  static bool fused(const LibraryStep& step) {
    if (const auto* m = std::get_if<MatmulCall>(&step.call)) return m->fused.has_value();
    if (const auto* c = std::get_if<ConvCall>(&step.call)) return c->fused.has_value();
    return false;
  }

  const std::shared_ptr<Context>& context_;
  const Variant& variant_;
  const Variant::CallState& call_;
  LoadedExecutable& code_;
  BufferTable& table_;
  Reports& reports_;
  RestingMemory& resting_;
  SegmentPlan& plan_;
  bool refused_ = false; // why the last library call has no plan: the library does not compute it
};

} // namespace

Status choose_steps(Context& context, const Variant& variant, int segment, const Variant::CallState& call,
                    SegmentPlan& plan, bool wait) {
  auto begin = static_cast<size_t>(variant.segment_begin[static_cast<size_t>(segment)]),
       end = static_cast<size_t>(variant.segment_begin[static_cast<size_t>(segment) + 1]);
  std::vector<std::function<bool()>> making;
  std::string told; // the last reason that was logged
  for (size_t s = begin; s < end; ++s) {
    const auto* l = std::get_if<LibraryStep>(variant.steps[s].step);
    if (!l || l->instead_of == 0) continue;
    const auto* attention = std::get_if<FusedAttentionCall>(&l->call);
    AttentionChoice choice;
    if (attention) {
      TESSERA_ASSIGN(auto operands, concrete_operands(variant, variant.steps[s], call, plan));
      choice = choose_attention(context, l->name, *attention, operands, wait);
    }
    if (plan.left_out.empty()) plan.left_out.resize(end - begin);
    size_t first = choice.taken ? s + 1 : s, count = choice.taken ? static_cast<size_t>(l->instead_of) : 1;
    for (size_t i = first; i < first + count; ++i) plan.left_out[i - begin] = true;
    if (choice.made) making.push_back(std::move(choice.made));
    if (!choice.why.empty() && choice.why != told)
      TESSERA_LOGF(LogChannel::Perf, "'" + l->name + "' in steps: " + (told = choice.why));
  }
  if (!making.empty())
    plan.outdated = [making = std::move(making)] {
      return std::all_of(making.begin(), making.end(), [](const auto& made) { return made(); });
    };
  return {};
}

Status prepare_steps(const std::shared_ptr<Context>& context, const Variant& variant, int segment,
                     const Variant::CallState& call, LoadedExecutable& code, BufferTable& table, Reports& reports,
                     RestingMemory& resting, SegmentPlan& plan, std::vector<std::string>& refused) {
  return Preparer(context, variant, call, code, table, reports, resting, plan).run(segment, refused);
}

} // namespace tessera::cuda
