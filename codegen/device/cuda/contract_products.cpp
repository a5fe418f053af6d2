#include "codegen/device/cuda/contract_products.h"
#include "codegen/device/library_cost.h"
#include "codegen/layout/tensor_access.h"
#include "codegen/schedule/contraction.h"
#include "codegen/schedule/predict.h"
#include "fusion/structured_nest.h"
#include "graph/ops/questions.h"
#include <algorithm>
#include <cmath>

namespace tessera {
namespace {

bool is_multiplied_by_tensor_cores(DType dtype) { return dtype == DType::F16 || dtype == DType::BF16; }

class Choice {
public:
  explicit Choice(Compilation& c) : c_(c), graph_(c.graph()), device_(c.backend().device()) {}

  // Lists the calls that a contraction may take less time for, and says of the others why not.
  bool list() {
    Compilation::Planning& its = c_.planning();
    for (const Group& call : c_.plan().groups)
      if (multiplies(call))
        if (std::string refusal = list(call); !refusal.empty())
          its.uncompared.emplace(call.call.node, std::move(refusal));
    return !its.contractions.empty();
  }

  // Gives those for which it takes longer back to the library, or has them tried without the kernel in front.
  bool check() {
    bool changed = false;
    for (auto& [product, contraction] : c_.planning().contractions) {
      if (!contraction.choice.taken) continue;
      double us = 0;
      for (const Group& group : c_.plan().groups) {
        if (!computes_any(group, contraction.nodes)) continue;
        const auto time = group.kind == Group::Kind::Kernel ? price(group) : std::nullopt;
        us += time ? *time - (us > 0 ? overlap() : 0) : INFINITY;
      }
      contraction.choice.contraction_us = us;
      if (us * kPriceError < contraction.choice.library_us) continue;
      changed = true;
      contraction.choice.taken = !contraction.nodes_behind.empty();
      if (!contraction.choice.taken) continue;
      contraction.choice.library_us = contraction.library_us_behind;
      contraction.nodes = std::exchange(contraction.nodes_behind, {});
      contraction.factor = {};
    }
    return changed;
  }

private:
  // Lists a product; else returns why not.
  [[nodiscard]] std::string list(const Group& call) {
    // A product alone is the library's, which computes it at the full rate of the device.
    const Group *behind = only_reader(call.writes[0]), *front = nullptr;
    if (behind && behind->kind != Group::Kind::Kernel) behind = nullptr;
    ValueId factor;
    for (const OperandView& operand : call.call.operands)
      if (const Group* maker = only_maker(call, operand.value)) {
        if (front && !behind) return "kernels make both factors, of which a contraction computes one";
        front = front ? nullptr : maker;
        factor = front ? operand.value : ValueId();
      }
    if (!behind && !front && call.call.kind == LibraryCall::Kind::Matmul) return "no kernel alone reads the product";
    const DType dtype = graph_.type(call.call.operands[0].value).dtype;
    if (!is_multiplied_by_tensor_cores(dtype)) return "the factors are neither f16 nor bf16";
    if (!is_aligned(call.call)) return "a stride is not known to be a multiple of 16 bytes at all sizes";
    if (!size(flops(call.call))) return "a size is not known and has no hint";
    const auto first = price(call), second = behind ? price(*behind) : std::optional(overlap());
    const auto before = front ? price(*front) : std::optional(overlap());
    if (!first || !second || !before) return "the call or a kernel around it has no price";
    const double both = *first + *second - overlap(), all = both + *before - overlap();
    if (least(call.call) * kPriceError >= all)
      return "the multiplications alone are predicted to take as long as the call and the kernels around it";
    Compilation::Contraction made{{all, 0, true, {}}, call.call.sources, factor, both, {}};
    if (behind) made.nodes.insert(made.nodes.end(), behind->nest.sources.begin(), behind->nest.sources.end());
    if (behind && front) made.nodes_behind = made.nodes;
    if (front) made.nodes.insert(made.nodes.end(), front->nest.sources.begin(), front->nest.sources.end());
    c_.planning().contractions.emplace(call.call.node, std::move(made));
    return {};
  }
  // The kernel that makes a factor for this call alone, by element-wise operations; null where there is none.
  [[nodiscard]] const Group* only_maker(const Group& call, ValueId factor) const {
    const Node* node = graph_.producer(factor);
    const auto& outputs = graph_.outputs();
    if (!node || fusion::folds(*node) || only_reader(factor) != &call ||
        std::any_of(outputs.begin(), outputs.end(), [&](const auto& o) { return o.value == factor; }))
      return nullptr;
    for (const Group& group : c_.plan().groups)
      if (group.kind == Group::Kind::Kernel &&
          std::find(group.writes.begin(), group.writes.end(), factor) != group.writes.end())
        return &group;
    return nullptr;
  }
  [[nodiscard]] static bool computes_any(const Group& group, const std::vector<NodeId>& nodes) {
    const auto& sources = group.kind == Group::Kind::Library ? group.call.sources : group.nest.sources;
    return std::any_of(sources.begin(), sources.end(),
                       [&](NodeId id) { return std::find(nodes.begin(), nodes.end(), id) != nodes.end(); });
  }
  [[nodiscard]] static bool multiplies(const Group& group) {
    return group.kind == Group::Kind::Library && group.call.kind != LibraryCall::Kind::Pool && group.writes.size() == 1;
  }
  // The one group that reads a value; null where there is none, or more.
  [[nodiscard]] const Group* only_reader(ValueId value) const {
    const Group* out = nullptr;
    for (const Group& group : c_.plan().groups) {
      if (std::find(group.reads.begin(), group.reads.end(), value) == group.reads.end()) continue;
      if (out != nullptr) return nullptr;
      out = &group;
    }
    return out;
  }
  [[nodiscard]] bool is_aligned(const LibraryCall& call) const {
    auto fits = [&](const OperandView& o) { return is_aligned(o, call.kind == LibraryCall::Kind::Conv); };
    return fits(call.result) && std::all_of(call.operands.begin(), call.operands.end(), fits);
  }
  // Microseconds of a launch that pass while the kernel before it ends.
  [[nodiscard]] double overlap() const { return device_.kernel_us - device_.launch_us; }
  // Microseconds of the multiplications at the full rate.
  [[nodiscard]] double least(const LibraryCall& call) const {
    const auto operations = size(flops(call));
    const double rate = 2 * device_.warpgroup_f16_per_cycle * device_.multiprocessors * device_.clock_mhz;
    return operations ? static_cast<double>(*operations) / rate + device_.kernel_us : INFINITY;
  }
  // The value of an expression at the sizes that are known or that have hints.
  [[nodiscard]] std::optional<int64_t> size(const SymExpr& e) const {
    const auto value = e.as_const();
    return value ? value : graph_.env().hint(e);
  }
  // True if strides that are not known are known to be multiples of what bulk copies need: the price of a contraction
  // counts with what holds at the sizes of the hints, its code with what holds at all. `all`: those that are known as well.
  [[nodiscard]] bool is_aligned(const OperandView& view, bool all) const {
    const int64_t element = std::max(1, info(graph_.type(view.value).dtype).bits / 8);
    return std::all_of(view.strides.begin(), view.strides.end(), [&](const SymExpr& stride) {
      const SymExpr s = graph_.env().simplify(stride);
      if (s.as_const() && (!all || s.is_const(1))) return true;
      return graph_.env().divisor(s) * element % layout::kTensorAlignment == 0;
    });
  }
  // Microseconds at the sizes that are known or that have hints.
  [[nodiscard]] std::optional<double> price(const Group& group) const {
    const auto read = size(group.bytes_read), written = size(group.bytes_written);
    if (!read || !written) return std::nullopt;
    if (group.kind == Group::Kind::Kernel) {
      const auto time = predict_chosen(graph_, group.nest, device_);
      return time.ok() ? std::optional(time->us) : std::nullopt;
    }
    auto shape = product_shape(graph_, group.call, [&](const SymExpr& e) -> std::optional<double> {
      const auto value = size(e);
      return value ? std::optional(static_cast<double>(*value)) : std::nullopt;
    });
    if (!shape) return std::nullopt;
    shape->bytes = static_cast<double>(*read + *written);
    return product_time(*shape, device_).us;
  }

  Compilation& c_;
  const Graph& graph_;
  const Target& device_;
};

bool is_contraction(const Graph& graph, const LoopNest& nest) {
  const auto domain = make_domain(graph, nest);
  return domain.ok() && Contraction::find(graph, nest, *domain).has_value();
}

// Has products that no library computes planned alone where their kernel with other nodes would be loops over scalars.
bool keep_contractions(Compilation& c) {
  const Separation slow{FusionReason::SeparateKernel, "a kernel of both would not multiply on tensor cores"};
  bool changed = false;
  for (const Group& group : c.plan().groups) {
    if (group.kind != Group::Kind::Kernel || group.nest.sources.size() < 2 || is_contraction(c.graph(), group.nest))
      continue;
    for (const NodeId id : group.nest.sources) {
      const Node& node = c.graph().node(id);
      if (!ops::is(node, Structured::MatmulOfParts) && !ops::is(node, Structured::GroupedMatmul)) continue;
      if (is_multiplied_by_tensor_cores(c.graph().type(node.operands[0]).dtype))
        changed = c.planning().detours.alone.emplace(id, slow).second || changed;
    }
  }
  return changed;
}

} // namespace

Result<bool> contract_products(Compilation& compilation) {
  using Contracting = Compilation::Contracting;
  Compilation::Planning& its = compilation.planning();
  const bool possible = its.fusion.enabled && !its.pinned && compilation.backend().device().warpgroup_f16_per_cycle > 0;
  bool again = !its.pinned && keep_contractions(compilation);
  switch (possible && !again ? its.contracting : Contracting::Done) {
  case Contracting::List:
    again = Choice(compilation).list();
    its.contracting = again ? Contracting::Check : Contracting::Done;
    break;
  case Contracting::Check:
    again = Choice(compilation).check();
    if (!again) its.contracting = Contracting::Done;
    break;
  case Contracting::Done: break;
  }
  if (again) its.plan.reset();
  return again;
}

} // namespace tessera
