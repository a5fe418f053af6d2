// Who computes an attention at given sizes: cuDNN, or the steps behind its call. Where compiling knew the sizes, it is
// decided when a model is opened; else cuDNN's plan is made in the background, for sizes that come again.
#include "runtime/cuda/attention_choice.h"
#include "base/log.h"
#include "runtime/cuda/cudnn_attention.h"
#include <algorithm>

namespace tessera::cuda {
namespace {

constexpr int64_t kQueriesOfABlock = 128; // of cuDNN's kernels; a multiprocessor has one or two such blocks

// Whether the library's kernel has work for every multiprocessor. Where it has not, a generated kernel, whose blocks are
// smaller, takes less time.
bool fills(const AttentionProblem& p, const Context& context) {
  const auto& [batch, heads, queries, width] = p.q.dims;
  return batch * heads * ((queries + kQueriesOfABlock - 1) / kQueriesOfABlock) >= context.properties().multiprocessors;
}

// Without what only a run knows.
std::optional<Operand> known_operand(const Executable& exe, const StridedOperand& operand) {
  Operand out;
  out.buffer = operand.buffer;
  out.dtype = exe.buffers[static_cast<size_t>(operand.buffer)].dtype;
  const auto put = [](const SymExpr& e, int64_t& to) {
    const auto number = e.as_const();
    to = number.value_or(0);
    return number.has_value();
  };
  out.shape.resize(operand.shape.size());
  out.strides.resize(operand.shape.size());
  bool known = put(operand.offset, out.offset);
  for (size_t d = 0; d < operand.shape.size(); ++d) {
    known = put(operand.shape[d], out.shape[d]) && known;
    known = put(operand.strides[d], out.strides[d]) && known;
  }
  return known ? std::optional(std::move(out)) : std::nullopt;
}

std::optional<std::vector<Operand>> known_operands(const Executable& exe, const LibraryStep& step) {
  std::vector<Operand> out;
  for (const StridedOperand* o : operands_of(step).all) {
    auto operand = known_operand(exe, *o);
    if (!operand) return std::nullopt;
    out.push_back(std::move(*operand));
  }
  return out;
}

bool is_by_a_kernel(const Executable& exe, size_t step) {
  const auto* l = std::get_if<LibraryStep>(&exe.steps[step]);
  return l->instead_of == 1 && std::holds_alternative<KernelLaunch>(exe.steps[step + 1]);
}

} // namespace

bool sizes_are_known(const Executable& exe, const LibraryStep& step) { return known_operands(exe, step).has_value(); }

std::vector<AttentionProblem> known_attentions(const Context& context, const Executable& exe) {
  std::vector<AttentionProblem> out;
  for (size_t s = 0; s < exe.steps.size(); ++s) {
    const auto* l = std::get_if<LibraryStep>(&exe.steps[s]);
    const auto* call = l && l->instead_of > 0 ? std::get_if<FusedAttentionCall>(&l->call) : nullptr;
    if (!call) continue;
    const auto operands = known_operands(exe, *l);
    if (!operands) continue;
    auto problem = describe_attention(*call, *operands, l->name);
    if (!problem.ok() || problem->empty() || (is_by_a_kernel(exe, s) && !fills(*problem, context))) continue;
    const auto same = [&](const AttentionProblem& p) { return p.key() == problem->key(); };
    if (std::none_of(out.begin(), out.end(), same)) out.push_back(std::move(*problem));
  }
  return out;
}

AttentionChoice choose_attention(Context& context, const std::string& name, const FusedAttentionCall& call,
                                 std::span<const Operand> operands, bool by_a_kernel, bool wait) {
  AttentionChoice out;
  auto problem = describe_attention(call, operands, name);
  if (!problem.ok()) {
    out.why = problem.error().message;
    return out;
  }
  if (problem->empty()) {
    out.taken = true;
    return out;
  }
  if (by_a_kernel && !fills(*problem, context)) {
    out.why = "cuDNN's blocks would not occupy the GPU";
    return out;
  }
  auto engines = AttentionEngines::of(context);
  if (!engines.ok()) {
    out.why = engines.error().message;
    return out;
  }
  using State = AttentionEngines::Entry::State;
  auto entry = (*engines)->known_or_made(*problem, wait);
  if (!entry) {
    auto begun = std::make_shared<std::shared_ptr<const AttentionEngines::Entry>>();
    out.make = [engines = *engines, problem = std::move(*problem), begun] { *begun = engines->engine(problem, false); };
    out.make_ms = [engines = *engines] { return engines->mean_ms(); };
    out.made = [begun] { return *begun && (*begun)->state != State::Making; };
    return out;
  }
  switch (entry->state.load()) {
  case State::Making: out.made = [entry] { return entry->state != State::Making; }; break;
  case State::Ready: out.taken = true; break;
  case State::Refused: out.why = entry->why; break;
  }
  return out;
}

} // namespace tessera::cuda
