#include "runtime/cuda/plan.h"
#include "base/log.h"
#include "runtime/cuda/attention_choice.h"
#include "runtime/cuda/run_memory.h"
#include <algorithm>

namespace tessera::cuda {

namespace {

// A plan's steps with addresses that were kept, in the place of those of the variant's runs, which go on meanwhile.
// `addresses`: of buffers, then as RunMemory::append_addresses() leaves them.
class StepsElsewhere {
public:
  StepsElsewhere(Context& context, const Variant& variant, const SegmentPlan& segment, const CudaPlan& plan,
                 const Reports& reports, std::span<void* const> addresses)
      : context_(context), variant_(variant), segment_(segment), plan_(plan),
        memory_(RunMemory::kept(addresses, variant.exe->buffers.size(), reports)) {}

  Status put(CUstream stream) {
    for (size_t s = 0; s < plan_.steps.size(); ++s) {
      if (segment_.leaves_out(s)) continue;
      const Step& form = *variant_.steps[static_cast<size_t>(plan_.first_step) + s].step;
      if (const auto* copy = std::get_if<CopyStep>(&form)) {
        TESSERA_TRY(put(*copy, stream));
        continue;
      }
      const PreparedStep& step = plan_.steps[s];
      if (step.library) TESSERA_TRY(step.library->run(stream, memory_.buffers, memory_.scratch, false));
      if (step.kernel.grid > 0) TESSERA_TRY(put(step.kernel, stream));
    }
    return {};
  }

private:
  Status put(const CopyStep& copy, CUstream stream) {
    const auto bytes = static_cast<size_t>(segment_.bytes[static_cast<size_t>(copy.target)]);
    void *from = memory_.buffers[copy.source], *to = memory_.buffers[copy.target];
    if (bytes > 0 && from != to)
      TESSERA_CUDA_TRY(context_, "copy '" + copy.name + "'", cuMemcpyDtoDAsync, reinterpret_cast<CUdeviceptr>(to),
                       reinterpret_cast<CUdeviceptr>(from), bytes, stream);
    return {};
  }

  Status put(const PreparedLaunch& launch, CUstream stream) {
    const auto started = launcher_.start(context_.driver(), launch, memory_, stream, true);
    if (started.result != CUDA_SUCCESS)
      return context_.error(started.result, started.function, "launching kernel '" + launch.kernel->name + "'");
    return {};
  }

  Context& context_;
  const Variant& variant_;
  const SegmentPlan& segment_;
  const CudaPlan& plan_;
  const LaunchMemory memory_;
  Launcher launcher_;
};

class Preparer {
public:
  Preparer(const PlanPlace& place, const Variant::CallState& call, SegmentPlan& plan)
      : place_(place), variant_(place.variant), call_(call), plan_(plan), operands_(variant_.library_classes),
        products_(variant_.library_classes) {}

  Status run(int segment, std::vector<std::string>& refused) {
    Status first_refusal;
    auto made = std::make_unique<CudaPlan>();
    size_t put = 0; // steps that put something on the stream
    bool replayable = true;
    made->code = place_.code;
    made->first_step = variant_.segment_begin[static_cast<size_t>(segment)];
    made->steps.resize(plan_.steps.size());
    for (size_t s = 0; s < made->steps.size(); ++s) {
      int index = made->first_step + static_cast<int>(s);
      const auto& form = variant_.steps[static_cast<size_t>(index)];
      auto& step = made->steps[s];
      if (plan_.leaves_out(s)) continue;
      if (std::holds_alternative<KernelLaunch>(*form.step)) {
        const auto& planned = plan_.steps[s];
        made->counters = std::max(made->counters, planned.launch.counters);
        made->mailboxes = std::max(made->mailboxes, planned.launch.mailboxes);
        TESSERA_TRY(kernel(planned, index, step.kernel));
        replayable = replayable && !step.kernel.alone; // a graph does not wait for what is outside of it
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
        behind_kernel_ = false;
        replayable = replayable && is_copy_on_gpu(*form.step);
      }
    }
    if (!refused.empty()) return first_refusal;
    improve_products();
    if (replayable && put >= Replays::kFewestSteps)
      made->replays = std::make_unique<Replays>(
          place_.context, place_.recorder, place_.graphs, put,
          [this_plan = &plan_, made = made.get(), variant = &variant_, context = place_.context.get(),
           reports = &place_.reports](CUstream stream, std::span<void* const> addresses) {
            return StepsElsewhere(*context, *variant, *this_plan, *made, *reports, addresses).put(stream);
          });
    plan_.device = std::move(made);
    return {};
  }

private:
  void improve_products() {
    if (auto better = improvement_of(products_, place_.kernels))
      plan_.improvements.push_back(
          {std::move(better->begin), [ms = better->ms] { return ms; }, std::move(better->outdated)});
  }
  // The executor itself runs host steps and copies strings.
  [[nodiscard]] bool is_copy_on_gpu(const Step& step) const {
    const auto* copy = std::get_if<CopyStep>(&step);
    return copy && has_bytes(variant_.exe->buffers[static_cast<size_t>(copy->source)].dtype);
  }

  Status kernel(const StepPlan& planned, int step, PreparedLaunch& out) {
    const KernelLaunch& k = *planned.kernel;
    const int64_t grid = planned.launch.grid;
    if (grid > INT32_MAX)
      return Diagnostic(ErrorCode::SizeOverflow, "kernel '" + k.name + "' would have " + std::to_string(grid) +
                                                     " blocks, a GPU launches at most " + std::to_string(INT32_MAX));
    if (k.cluster > 1 && grid % k.cluster != 0)
      return Diagnostic(ErrorCode::Internal, "kernel '" + k.name + "' would have " + std::to_string(grid) +
                                                 " blocks, which is no multiple of its clusters of " +
                                                 std::to_string(k.cluster));
    TESSERA_ASSIGN(out.function, place_.code->function(k));
    out.kernel = &k;
    out.grid = static_cast<unsigned>(std::max<int64_t>(grid, 0));
    out.cooperative = planned.at_once;
    out.alone = !planned.at_once && !k.cooperative_blocks.is_const(0);
    out.dependent = k.dependent_launch && place_.dependent_launch && behind_kernel_ && !out.cooperative && !out.alone;
    if (out.grid > 0) behind_kernel_ = !out.alone; // behind that one lies an event
    arguments(planned, step, out.arguments);
    out.tensor_maps = tensor_maps(planned);
    return {};
  }

  // In the order of the kernel's parameters (KernelLaunch).
  void arguments(const StepPlan& planned, int step, std::vector<LaunchArgument>& out) {
    using Kind = LaunchArgument::Kind;
    const auto& launch = planned.launch;
    out.reserve(planned.kernel->buffers.size() + launch.workspaces.size() + launch.sizes.size() + 3);
    for (BufferId buffer : planned.kernel->buffers) out.push_back({Kind::Buffer, buffer});
    int64_t at = 0; // workspaces lie one behind the other, in memory that the step has for itself while it runs
    for (const auto& workspace : launch.workspaces) {
      out.push_back({Kind::Workspace, at});
      at += rounded_bytes(workspace.bytes());
    }
    plan_.step_scratch = std::max(plan_.step_scratch, at);
    if (!planned.kernel->counters.is_const(0)) out.push_back({Kind::Counters});
    if (!planned.kernel->mailboxes.is_const(0)) out.push_back({Kind::Mailboxes});
    for (int64_t size : launch.sizes) out.push_back({Kind::Number, size});
    out.push_back({Kind::Report, step});
  }
  static std::vector<TensorMapOf<int64_t>> tensor_maps(const StepPlan& planned) {
    auto maps = planned.launch.tensor_maps;
    for (auto& m : maps) m.buffer = planned.kernel->buffers[static_cast<size_t>(m.buffer)];
    return maps;
  }

  Status library(const StepForm& form, int index, PreparedStep& step) {
    const auto& l = std::get<LibraryStep>(*form.step);
    const auto its_class = static_cast<size_t>(form.library_class);
    auto& operands = operands_[its_class];
    if (operands.empty()) {
      TESSERA_ASSIGN(operands, concrete_operands(variant_, form, call_, plan_));
    } else {
      change_buffers(variant_, form, operands);
    }
    CudaPlanContext context{*place_.context,       l.name,         form.epilogue.has_value(), plan_.waited,
                            &products_[its_class], place_.kernels, place_.loads_ahead};
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
    behind_kernel_ = true; // without a trigger of its own, it lets the next kernel start when its last block ends
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
    TESSERA_ASSIGN(const StepPlan epilogue, EpilogueSizes(variant_, *form.epilogue, call_, plan_).at(box));
    return kernel(epilogue, index, step.kernel);
  }

  static bool fused(const LibraryStep& step) {
    if (const auto* m = std::get_if<MatmulCall>(&step.call)) return m->fused.has_value();
    if (const auto* c = std::get_if<ConvCall>(&step.call)) return c->fused.has_value();
    return false;
  }

  const PlanPlace& place_;
  const Variant& variant_;
  const Variant::CallState& call_;
  SegmentPlan& plan_;
  // By class of library calls.
  std::vector<std::vector<Operand>> operands_; // of the last call
  PreparedProducts products_;
  bool behind_kernel_ = false; // the last thing that the segment's steps so far put on the stream is a kernel
  bool refused_ = false;       // why the last library call has no plan: the library does not compute it
};

} // namespace

Status choose_steps(Context& context, const Variant& variant, int segment, const Variant::CallState& call,
                    SegmentPlan& plan, bool wait) {
  auto begin = static_cast<size_t>(variant.segment_begin[static_cast<size_t>(segment)]),
       end = static_cast<size_t>(variant.segment_begin[static_cast<size_t>(segment) + 1]);
  std::vector<std::function<void()>> make;
  std::function<double()> make_ms;
  std::vector<std::function<bool()>> making;
  std::string told; // the last reason that was logged
  std::vector<std::optional<AttentionChoice>> choices(variant.library_classes);
  for (size_t s = begin; s < end; ++s) {
    const auto* l = std::get_if<LibraryStep>(variant.steps[s].step);
    if (!l || l->instead_of == 0) continue;
    const auto* attention = std::get_if<FusedAttentionCall>(&l->call);
    auto& chosen = choices[static_cast<size_t>(variant.steps[s].library_class)];
    const bool first_of_class = !chosen;
    if (first_of_class) chosen.emplace();
    AttentionChoice& choice = *chosen;
    if (attention && first_of_class) {
      TESSERA_ASSIGN(auto operands, concrete_operands(variant, variant.steps[s], call, plan));
      const bool by_a_kernel = l->instead_of == 1 && std::holds_alternative<KernelLaunch>(*variant.steps[s + 1].step);
      // Plans for sizes that compiling knew were begun when the model was opened, and every call takes them.
      const bool known = sizes_are_known(*variant.exe, *l);
      choice = choose_attention(context, l->name, *attention, operands, by_a_kernel, wait || known);
    }
    if (plan.left_out.empty()) plan.left_out.resize(end - begin);
    size_t first = choice.taken ? s + 1 : s, count = choice.taken ? static_cast<size_t>(l->instead_of) : 1;
    for (size_t i = first; i < first + count; ++i) plan.left_out[i - begin] = true;
    if (!first_of_class) continue;
    if (choice.make) {
      make.push_back(std::move(choice.make));
      make_ms = std::move(choice.make_ms);
    }
    if (choice.made) making.push_back(std::move(choice.made));
    if (!choice.why.empty() && choice.why != told)
      TESSERA_LOGF(LogChannel::Perf, "'" + l->name + "' in steps: " + (told = choice.why));
  }
  if (making.empty()) return {};
  SegmentPlan::Improvement better;
  if (!make.empty())
    better.begin = [make = std::move(make)] {
      for (const auto& one : make) one();
      return true;
    };
  better.cost_ms = std::move(make_ms);
  better.outdated = [making = std::move(making)] {
    return std::all_of(making.begin(), making.end(), [](const auto& made) { return made(); });
  };
  plan.improvements.push_back(std::move(better));
  return {};
}

Status prepare_steps(const PlanPlace& place, int segment, const Variant::CallState& call, SegmentPlan& plan,
                     std::vector<std::string>& refused) {
  return Preparer(place, call, plan).run(segment, refused);
}

int64_t CudaPlan::host_bytes() const {
  constexpr int64_t kLibraryCall = 2048; // descriptors and algorithm
  int64_t total = static_cast<int64_t>(sizeof *this + steps.capacity() * sizeof(PreparedStep));
  for (const PreparedStep& step : steps) {
    total += static_cast<int64_t>(sizeof(LaunchArgument) * step.kernel.arguments.capacity());
    if (step.library) total += kLibraryCall;
  }
  return total; // graphs are counted where they are made (graph_room.h)
}

} // namespace tessera::cuda
