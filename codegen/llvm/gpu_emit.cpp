#include "codegen/llvm/gpu_emit.h"

namespace tessera::gpu {

using tile::OpKind;

Emitter::Emitter(llvm::Module& module, const layout::KernelLayouts& layouts, Code code, const GpuTarget& target)
    : context_(module, layouts, code, target) {}

Status Emitter::emit() {
  auto& math = context_.math;
  for (const auto& p : context_.kernel.params)
    if (const auto* type = math.element_type(p.type.dtype);
        !type || (p.type.kind == tile::Type::Kind::Data && is_float(p.type.dtype) && type->isIntegerTy()))
      return math.error("parameter " + p.name + " of type " + p.type.str() + " has no GPU code");
  if (ring_.is_used()) TESSERA_TRY(ring_.reserve());
  begin(context_);
  if (ring_.is_used()) TESSERA_TRY(ring_.divide());
  TESSERA_TRY(accesses_.reserve_scratch());
  windows_.load_tails();
  TESSERA_TRY(block(context_.kernel.body));
  if (ring_.is_used()) ring_.end();
  math.builder().CreateRetVoid();
  return {};
}

Status Emitter::operation(tile::OpId id) {
  if (ring_.is_dropped(id) && context_.divided) return {};
  const auto& op = context_.kernel.op(id);
  auto& math = context_.math;
  for (auto r : op.results)
    if (const DType dtype = context_.kernel.type(r).dtype; !math.element_type(dtype))
      return math.error("element type " + std::string(name(dtype)) + " has no GPU code");
  switch (op.kind) {
  case OpKind::Const: pointwise_.constant(op); return {};
  case OpKind::ProgramId: pointwise_.program_id(op); return {};
  case OpKind::NumPrograms: pointwise_.num_programs(op); return {};
  case OpKind::Range: indices_.range(op); return {};
  case OpKind::ExpandDims: pointwise_.expand_dims(op); return {};
  case OpKind::Broadcast: return pointwise_.broadcast(op);
  case OpKind::Scalar: return context_.layouts.is_conversion(op) ? conversions_.convert(op) : pointwise_.scalar_op(op);
  case OpKind::Load:
    if (ring_.is_read(id)) {
      ring_.load(id);
      return {};
    }
    if (pipelining_.staged(op.results[0]) || pipelining_.is_copied(id)) return {};
    return pipelining_.is_per_thread(op.results[0]) ? pipelining_.load_per_thread(op) : memory_.load(id);
  case OpKind::Store:
    if (!pipelining_.is_copied(id)) return memory_.store(id);
    accesses_.order(GlobalAccess::Kind::Write, op);
    return {};
  case OpKind::Reduce: return reductions_.reduce(op);
  case OpKind::Scan: return reductions_.scan(op);
  case OpKind::Dot:
    if (!ring_.computes(id)) return dots_.dot(op);
    ring_.multiply(id);
    return {};
  case OpKind::For: return ring_.loop(id) ? control_.ring_loop(id) : control_.loop(id);
  case OpKind::If: return control_.branch(op);
  case OpKind::Scratch: return {}; // Accesses::reserve_scratch
  case OpKind::Atomic: return memory_.atomic(id);
  case OpKind::ReportIndex: memory_.report_index(op); return {};
  case OpKind::Arrive:
  case OpKind::GridBarrier: return cooperation_.arrive(op);
  case OpKind::Exchange: return cooperation_.exchange(op);
  case OpKind::Prefetch: memory_.prefetch(op); return {};
  case OpKind::Yield: control_.yield(op); return {};
  case OpKind::Count_: break;
  }
  return math.error("operation without GPU code");
}

} // namespace tessera::gpu
