#include "runtime/library_classes.h"
#include <bit>

namespace tessera {
namespace {

// All that a call is but its buffers, as numbers.
class Signature {
public:
  std::vector<int64_t> numbers;

  void add(int64_t x) { numbers.push_back(x); }
  void add(double x) { add(static_cast<int64_t>(std::bit_cast<uint64_t>(x))); }
  void add(const std::vector<int64_t>& list) {
    add(static_cast<int64_t>(list.size()));
    numbers.insert(numbers.end(), list.begin(), list.end());
  }
  void add(const std::optional<LibraryEpilogue>& e) {
    add(int64_t{e.has_value()});
    if (!e) return;
    for (double x : {e->alpha, e->clip_low, e->clip_high}) add(x);
    for (int64_t x : {int64_t{e->bias.has_value()}, int64_t{e->bias_dim}, int64_t{e->residual.has_value()},
                      static_cast<int64_t>(e->activation)})
      add(x);
  }

  void add(const MatmulCall& c) {
    add(int64_t{c.epilogue.has_value()});
    add(c.fused);
    add(c.scale);
    add(int64_t{c.tf32});
  }
  void add(const ConvCall& c) {
    add(int64_t{c.epilogue.has_value()});
    add(c.fused);
    for (const auto* list : {&c.strides, &c.pads_begin, &c.pads_end, &c.dilations, &c.output_padding}) add(*list);
    for (int64_t x : {c.groups, int64_t{c.transposed}, int64_t{c.tf32}}) add(x);
  }
  void add(const PoolCall& c) {
    add(int64_t{c.epilogue.has_value()});
    add(static_cast<int64_t>(c.kind));
    for (const auto* list : {&c.kernel, &c.strides, &c.pads_begin, &c.pads_end, &c.dilations}) add(*list);
  }
  void add(const FusedAttentionCall& c) {
    add(c.scale);
    add(int64_t{c.bias.has_value()});
    add(int64_t{c.causal});
  }
};

} // namespace

int LibraryClasses::of(const Executable& executable, std::span<const int> buffer_shape, const LibraryStep& step,
                       const StepForm& form) {
  Signature s;
  s.add(static_cast<int64_t>(step.call.index()));
  std::visit([&](const auto& call) { s.add(call); }, step.call);
  for (const OperandForm& o : form.operands) {
    const auto buffer = static_cast<size_t>(o.buffer);
    const auto kind = executable.buffers[buffer].kind;
    s.add(static_cast<int64_t>(executable.buffers[buffer].dtype));
    s.add(int64_t{kind == BufferInfo::Kind::Constant});
    s.add(int64_t{buffer_shape[buffer]});
    s.add(static_cast<int64_t>(o.shape.size()));
    for (const auto* registers : {&o.shape, &o.strides})
      for (int r : *registers) s.add(int64_t{r});
    s.add(int64_t{o.offset});
  }
  return by_signature_.try_emplace(std::move(s.numbers), static_cast<int>(by_signature_.size())).first->second;
}

} // namespace tessera
