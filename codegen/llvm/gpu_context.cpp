#include "codegen/llvm/gpu_context.h"
#include "base/check.h"

namespace tessera::gpu {

Context::Context(llvm::Module& module, const layout::KernelLayouts& of, Code code, const GpuTarget& target)
    : layouts(of), kernel(of.kernel), math(module, of.kernel, code == Code::Emulated, target.small_floats()),
      gpu(code == Code::Emulated ? emulated_intrinsics(module, math.builder())
                                 : nvptx_intrinsics(module, math.builder(), code == Code::DependentPtx)),
      hazards(of.kernel, target.shared_bytes), values(static_cast<size_t>(of.kernel.value_count())),
      facts(layout::axis_info(of.kernel)), bounds(layout::integer_bounds(of.kernel)), definitions(values.size()),
      warpgroups(code == Code::Emulated ? emulated_warpgroup_intrinsics(module, math.builder())
                                        : nvptx_warpgroup_intrinsics(module, math.builder())) {
  for (tile::OpId id = 0; id < kernel.op_count(); ++id)
    for (auto r : kernel.op(id).results) definitions[static_cast<size_t>(r)] = &kernel.op(id);
}

void begin(Context& c) {
  auto& gpu = *c.gpu;
  auto k = gpu.begin(c.kernel, c.block_threads(), c.tensor_maps);
  c.function = k.function;
  for (size_t i = 0; i < c.kernel.params.size(); ++i)
    c.values[static_cast<size_t>(c.kernel.params[i].value)] = {k.params[i]};
  c.report = k.report;
  c.map_values = k.tensor_maps;
  c.thread = gpu.thread_index();
  c.program = gpu.of_grid(GridValue::Index, 0);
}

Value* Part::scalar(tile::ValueId id) const {
  const auto& r = registers(id);
  TESSERA_CHECK(r.size() == 1, "scalar expected in kernel " + kernel_.name);
  return r[0];
}

Registers Part::registers(tile::ValueId id, size_t count) const {
  if (!kernel_.type(id).is_tile()) return Registers(count, scalar(id));
  const auto& r = registers(id);
  TESSERA_CHECK(r.size() == count, "layouts of one operation differ in kernel " + kernel_.name);
  return r;
}

size_t Part::register_count(tile::ValueId id) const {
  return kernel_.type(id).is_tile() ? static_cast<size_t>(layouts_[id].registers()) : 1;
}

Value* disjoint_or(llvm::IRBuilder<>& b, Value* x, Value* y) {
  auto* v = b.CreateOr(x, y);
  if (auto* i = llvm::dyn_cast<llvm::PossiblyDisjointInst>(v)) i->setIsDisjoint(true);
  return v;
}

Value* both(llvm::IRBuilder<>& b, Value* x, Value* y) {
  if (!x || !y) return x ? x : y;
  return b.CreateAnd(x, y);
}

bool is_never(const Value* predicate) {
  const auto* constant = llvm::dyn_cast_or_null<llvm::ConstantInt>(predicate);
  return constant && constant->isZero();
}

} // namespace tessera::gpu
