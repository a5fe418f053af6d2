#include "codegen/llvm/gpu_emit.h"
#include "graph/support/check.h"

namespace tessera::gpu {

using layout::Dim;
using layout::LinearLayout;
using tile::OpKind;

Emitter::Emitter(llvm::Module& module, const layout::KernelLayouts& layouts, bool emulated)
    : Arithmetic(module, layouts.kernel.name), layouts_(layouts), kernel_(layouts.kernel),
      gpu_(emulated ? emulated_intrinsics(module, b_) : nvptx_intrinsics(module, b_)),
      values_(static_cast<size_t>(layouts.kernel.value_count())), facts_(layout::axis_info(layouts.kernel)),
      bounds_(layout::integer_bounds(layouts.kernel)), hazards_(layouts.kernel) {}

void Emitter::target_attributes(llvm::Function& f) const { f.addFnAttr(llvm::Attribute::NoUnwind); }

Status Emitter::emit() {
  for (const auto& p : kernel_.params)
    if (!element_type(p.type.dtype) || (p.type.kind == tile::Type::Kind::Data && p.type.dtype == DType::BF16))
      return error("parameter " + p.name + " of type " + p.type.str() + " has no GPU code");
  auto k = gpu_->begin(kernel_, threads());
  fn_ = k.function;
  for (size_t i = 0; i < kernel_.params.size(); ++i) define(kernel_.params[i].value, {k.params[i]});
  error_ = k.error;
  thread_ = gpu_->thread_index();
  program_ = gpu_->block_index();
  definitions_.resize(values_.size());
  for (tile::OpId id = 0; id < kernel_.op_count(); ++id)
    for (auto r : kernel_.op(id).results) definitions_[static_cast<size_t>(r)] = &kernel_.op(id);
  short_functions_ = stores_halves();
  TESSERA_TRY(reserve_scratch());
  load_tails();
  TESSERA_TRY(block(kernel_.body));
  b_.CreateRetVoid();
  return {};
}

llvm::Value* Emitter::scalar(tile::ValueId id) const {
  const auto& r = values_[static_cast<size_t>(id)];
  TESSERA_CHECK(r.size() == 1, "scalar expected in kernel " + kernel_.name);
  return r[0];
}

Emitter::Registers Emitter::registers(tile::ValueId id, size_t count) const {
  const auto& r = values_[static_cast<size_t>(id)];
  if (!kernel_.type(id).is_tile()) return Registers(count, scalar(id));
  TESSERA_CHECK(r.size() == count, "layouts of one operation differ in kernel " + kernel_.name);
  return r;
}

size_t Emitter::register_count(tile::ValueId id) const {
  return kernel_.type(id).is_tile() ? static_cast<size_t>(layouts_[id].registers()) : 1;
}

void Emitter::define(tile::ValueId id, Registers registers) { values_[static_cast<size_t>(id)] = std::move(registers); }

// Bits of the thread's number that go to one place by one shift are moved together.
llvm::Value* Emitter::xor_of_bits(std::span<const std::pair<int, int>> bits) {
  std::map<int, uint32_t> by_shift; // left shift: which bits
  Value* sum = nullptr;
  uint32_t taken = 0;
  auto add = [&](Value* v, uint32_t reaches) {
    if (!sum)
      sum = v;
    else if (taken & reaches)
      sum = b_.CreateXor(sum, v);
    else
      sum = disjoint_or(sum, v);
    taken |= reaches;
  };
  for (auto [bit, basis] : bits) {
    auto u = static_cast<uint32_t>(basis);
    if (u == 0) continue;
    if ((u & (u - 1)) == 0) {
      by_shift[__builtin_ctz(u) - bit] |= 1u << bit;
    } else { // all ones where the bit is set
      auto* set = b_.CreateAnd(b_.CreateLShr(thread_, static_cast<uint64_t>(bit)), 1);
      add(b_.CreateAnd(b_.CreateNeg(set), b_.getInt32(u)), u);
    }
  }
  auto all = static_cast<uint32_t>(threads() - 1);
  for (auto [shift, mask] : by_shift) {
    Value* v = mask == all ? thread_ : b_.CreateAnd(thread_, b_.getInt32(mask));
    if (shift > 0) v = b_.CreateShl(v, static_cast<uint64_t>(shift), "", true, true);
    if (shift < 0) v = b_.CreateLShr(v, static_cast<uint64_t>(-shift));
    add(v, shift > 0 ? mask << shift : mask >> -shift);
  }
  return sum ? sum : b_.getInt32(0);
}

static std::vector<std::pair<int, int>> thread_bits(const LinearLayout& layout, Dim out) {
  std::vector<std::pair<int, int>> bits;
  for (int i = 0; i < layout.in_bits(Dim::Lane); ++i) bits.emplace_back(i, layout.basis(Dim::Lane, i, out));
  for (int i = 0; i < layout.in_bits(Dim::Warp); ++i)
    bits.emplace_back(layout::kLaneBits + i, layout.basis(Dim::Warp, i, out));
  return bits;
}

llvm::Value* Emitter::thread_part(const LinearLayout& layout, Dim out) { return xor_of_bits(thread_bits(layout, out)); }

llvm::Value* Emitter::position(const LinearLayout& layout, Dim out, int reg, Value* part) {
  auto own = static_cast<uint32_t>(layout.apply(Dim::Register, reg, out));
  return moved(part, own, thread_reach(layout, out));
}

uint32_t Emitter::thread_reach(const LinearLayout& layout, Dim out) {
  uint32_t reach = 0;
  for (auto [bit, basis] : thread_bits(layout, out)) reach |= static_cast<uint32_t>(basis);
  return reach;
}

llvm::Value* Emitter::moved(Value* part, uint32_t by, uint32_t reach) {
  if (by & reach) part = b_.CreateXor(part, b_.getInt32(by & reach));
  by &= ~reach;
  // A sum, so that addresses become one register and a constant.
  return by == 0 ? part : b_.CreateAdd(part, b_.getInt32(by), "", true, true);
}

llvm::Value* Emitter::acts_for_copies(uint32_t free_lanes, uint32_t free_warps) {
  uint32_t mask = free_lanes | free_warps << layout::kLaneBits;
  mask &= static_cast<uint32_t>(threads() - 1);
  if (mask == 0) return nullptr;
  return b_.CreateICmpEQ(b_.CreateAnd(thread_, b_.getInt32(mask)), b_.getInt32(0));
}

llvm::Value* Emitter::disjoint_or(Value* a, Value* c) {
  auto* v = b_.CreateOr(a, c);
  if (auto* i = llvm::dyn_cast<llvm::PossiblyDisjointInst>(v)) i->setIsDisjoint(true);
  return v;
}

llvm::Value* Emitter::both(Value* a, Value* c) {
  if (!a || !c) return a ? a : c;
  return b_.CreateAnd(a, c);
}

void Emitter::barrier() {
  gpu_->barrier();
  hazards_.barrier();
}

Result<int64_t> Emitter::shared_region(int64_t bytes) {
  auto at = hazards_.find_shared(bytes);
  if (!at) {
    barrier();
    at = hazards_.find_shared(bytes);
  }
  if (!at)
    return error("an exchange between warps takes " + std::to_string(bytes) + " bytes of shared memory, of " +
                 std::to_string(hazards_.shared_limit()) + "; smaller tiles are needed");
  hazards_.touch_shared({*at, *at + bytes});
  return *at;
}

// ---- structure

Status Emitter::block(const std::vector<tile::OpId>& ops) {
  for (auto id : ops) TESSERA_TRY(operation(id));
  return {};
}

Status Emitter::operation(tile::OpId id) {
  const auto& op = kernel_.op(id);
  for (auto r : op.results)
    if (!element_type(kernel_.type(r).dtype))
      return error("element type " + std::string(name(kernel_.type(r).dtype)) + " has no GPU code");
  switch (op.kind) {
  case OpKind::Const:
    define(op.results[0],
           Registers(register_count(op.results[0]), constant(kernel_.type(op.results[0]).dtype, op.f, op.i)));
    return {};
  case OpKind::ProgramId: define(op.results[0], {op.axis == 0 ? program_ : b_.getInt64(0)}); return {};
  case OpKind::Range: range(op); return {};
  case OpKind::ExpandDims:
    define(op.results[0], registers(op.operands[0], register_count(op.results[0])));
    index_form(op);
    return {};
  case OpKind::Broadcast: return broadcast(op);
  case OpKind::Scalar: return layouts_.is_conversion(op) ? convert(op) : scalar_op(op);
  case OpKind::Load:
    if (ahead_.contains(op.results[0]) || copied_.contains(id)) return {};
    return own_ahead_.contains(op.results[0]) ? load_own(op) : load(id);
  case OpKind::Store:
    if (!copied_.contains(id)) return store(id);
    order(GlobalAccess::Kind::Write, op);
    return {};
  case OpKind::Reduce: return reduce(op);
  case OpKind::Scan: return scan(op);
  case OpKind::Dot: return dot(op);
  case OpKind::For: return loop(op);
  case OpKind::If: return branch(op);
  case OpKind::Scratch: return {}; // reserve_scratch
  case OpKind::AtomicAdd: return atomic_add(op);
  case OpKind::ReportIndex: report_index(op); return {};
  case OpKind::Arrive:
  case OpKind::Meet: return meet(op);
  case OpKind::Exchange: return exchange(op);
  case OpKind::Prefetch: prefetch(op); return {};
  case OpKind::Yield: yielded_ = op.operands; return {};
  case OpKind::Count_: break;
  }
  return error("operation without GPU code");
}

void Emitter::range(const tile::Op& op) {
  const auto& l = layouts_[op.results[0]];
  auto* part = thread_part(l, Dim::Axis0);
  Registers positions, out;
  for (int r = 0; r < l.registers(); ++r) {
    positions.push_back(position(l, Dim::Axis0, r, part));
    out.push_back(b_.CreateZExt(positions.back(), b_.getInt64Ty()));
  }
  define(op.results[0], std::move(out));
  indices_[op.results[0]] = {b_.getInt64(0), std::move(positions), kernel_.type(op.results[0]).shape[0] - 1};
}

int Emitter::constant_bits(tile::ValueId id) const {
  const auto& type = kernel_.type(id);
  if (!type.is_tile() || is_float(type.dtype)) return 0;
  const auto& l = layouts_[id];
  const auto& constancy = facts_[static_cast<size_t>(id)].constancy;
  int bits = 0;
  for (int i = 0; i < l.in_bits(Dim::Register); ++i) {
    bool same = true;
    for (size_t a = 0; a < type.shape.size(); ++a)
      same = same && l.basis(Dim::Register, i, layout::axis(static_cast<int>(a))) < constancy[a];
    if (same) bits |= 1 << i;
  }
  return bits;
}

Status Emitter::broadcast(const tile::Op& op) {
  auto from = op.operands[0], to = op.results[0];
  if (!kernel_.type(from).is_tile()) {
    define(to, registers(from, register_count(to)));
    return {};
  }
  auto map = layout::register_map(layouts_[from], layouts_[to]);
  TESSERA_CHECK(map.has_value(), "broadcast between threads in kernel " + kernel_.name);
  Registers out;
  for (int r : *map) out.push_back(registers(from)[static_cast<size_t>(r)]);
  define(to, std::move(out));
  index_form(op);
  return {};
}

// add(erf(x), 1) and add(tanh(x), 1), f32.
std::optional<Emitter::Registers> Emitter::one_plus(const tile::Op& op) {
  if (op.scalar != ScalarOp::Add || kernel_.type(op.results[0]).dtype != DType::F32) return std::nullopt;
  for (size_t f = 0; f < 2; ++f) {
    const auto* function = definitions_[static_cast<size_t>(op.operands[f])];
    const auto* one = definitions_[static_cast<size_t>(op.operands[1 - f])];
    while (one && one->kind == OpKind::Broadcast) one = definitions_[static_cast<size_t>(one->operands[0])];
    if (!function || function->kind != OpKind::Scalar || !one || one->kind != OpKind::Const || one->f != 1) continue;
    if (function->scalar != ScalarOp::Erf && function->scalar != ScalarOp::Tanh) continue;
    Registers out;
    for (auto* x : registers(function->operands[0], register_count(op.operands[f])))
      out.push_back(one_plus(function->scalar, x));
    if (out.size() == 1) out.assign(register_count(op.results[0]), out[0]);
    return out;
  }
  return std::nullopt;
}

Status Emitter::scalar_op(const tile::Op& op) {
  auto result = op.results[0];
  size_t n = register_count(result);
  DType type = kernel_.type(result).dtype;
  DType argument = kernel_.type(op.operands[op.scalar == ScalarOp::Select ? 1 : 0]).dtype;
  if (auto in_32 = narrow(op)) {
    define(result, std::move(*in_32));
    index_form(op); // what goes on with it may not fit
    return {};
  }
  auto better = compare(op);
  if (!better) better = one_plus(op);
  if (!better) {
    TESSERA_ASSIGN(better, divide(op));
  }
  if (better) {
    define(result, std::move(*better));
    return {};
  }
  std::vector<Registers> args;
  for (auto o : op.operands) args.push_back(registers(o, n));
  Registers out;
  // A number that a thread has one of: a mean.
  if (op.scalar == ScalarOp::Div && type == DType::F32 && n == 1)
    if (auto* by = llvm::dyn_cast<llvm::ConstantFP>(args[1][0]); by && by->getValueAPF().isFiniteNonZero()) {
      define(result, {divided(args[0][0], *by)});
      return {};
    }
  if (op.scalar == ScalarOp::Cast && n > 1) {
    out = cast_registers(args[0], argument, type);
  } else {
    auto same = static_cast<size_t>(constant_bits(result));
    for (size_t r = 0; r < n; ++r) {
      if (r & same) {
        out.push_back(out[r & ~same]);
        continue;
      }
      std::vector<Value*> a;
      for (const auto& x : args) a.push_back(x[r]);
      TESSERA_ASSIGN(auto* v, arith(op.scalar, type, argument, a));
      out.push_back(v);
    }
  }
  define(result, std::move(out));
  index_form(op);
  return {};
}

} // namespace tessera::gpu
