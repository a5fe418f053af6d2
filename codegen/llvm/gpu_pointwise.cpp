#include "codegen/llvm/gpu_pointwise.h"
#include "base/check.h"
#include "codegen/llvm/small_floats.h"

namespace tessera::gpu {

using tile::OpKind;

void Pointwise::constant(const tile::Op& op) {
  const auto result = op.results[0];
  define(result, Registers(register_count(result), math_.constant(dtype_of(result), op.f, op.i)));
}

void Pointwise::program_id(const tile::Op& op) {
  define(op.results[0], {op.axis == 0 ? c_.program : gpu_.of_grid(GridValue::Index, op.axis)});
}
void Pointwise::num_programs(const tile::Op& op) { define(op.results[0], {gpu_.of_grid(GridValue::Count, op.axis)}); }

void Pointwise::expand_dims(const tile::Op& op) {
  define(op.results[0], registers(op.operands[0], register_count(op.results[0])));
  indices_.index_form(op);
}

Status Pointwise::broadcast(const tile::Op& op) {
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
  indices_.index_form(op);
  return {};
}

// add(erf(x), 1) and add(tanh(x), 1), f32.
std::optional<Registers> Pointwise::one_plus(const tile::Op& op) {
  if (op.scalar != ScalarOp::Add || kernel_.type(op.results[0]).dtype != DType::F32) return std::nullopt;
  for (size_t f = 0; f < 2; ++f) {
    const auto* function = c_.definitions[static_cast<size_t>(op.operands[f])];
    const auto* one = c_.definitions[static_cast<size_t>(op.operands[1 - f])];
    while (one && one->kind == OpKind::Broadcast) one = c_.definitions[static_cast<size_t>(one->operands[0])];
    if (!function || function->kind != OpKind::Scalar || !one || one->kind != OpKind::Const || one->f != 1) continue;
    if (function->scalar != ScalarOp::Erf && function->scalar != ScalarOp::Tanh) continue;
    Registers out;
    for (auto* x : registers(function->operands[0], register_count(op.operands[f])))
      out.push_back(math_.one_plus(function->scalar, x));
    if (out.size() == 1) out.assign(register_count(op.results[0]), out[0]);
    return out;
  }
  return std::nullopt;
}

Status Pointwise::scalar_op(const tile::Op& op) {
  auto result = op.results[0];
  size_t n = register_count(result);
  DType type = kernel_.type(result).dtype;
  DType argument = kernel_.type(op.operands[op.scalar == ScalarOp::Select ? 1 : 0]).dtype;
  if (auto in_32 = indices_.narrow(op)) {
    define(result, std::move(*in_32));
    indices_.index_form(op); // later operations on it may not fit 32 bits
    return {};
  }
  auto better = indices_.compare(op);
  if (!better) better = one_plus(op);
  if (!better) {
    TESSERA_ASSIGN(better, indices_.divide(op));
  }
  if (better) {
    define(result, std::move(*better));
    return {};
  }
  std::vector<Registers> args;
  for (auto o : op.operands) args.push_back(registers(o, n));
  Registers out;
  // One value per thread, such as a mean.
  if (op.scalar == ScalarOp::Div && type == DType::F32 && n == 1)
    if (auto* by = llvm::dyn_cast<llvm::ConstantFP>(args[1][0]); by && by->getValueAPF().isFiniteNonZero()) {
      define(result, {math_.divided(args[0][0], *by)});
      return {};
    }
  if (op.scalar == ScalarOp::Cast && n > 1) {
    out = cast_registers(args[0], argument, type);
  } else {
    auto same = static_cast<size_t>(indices_.constant_bits(result));
    for (size_t r = 0; r < n; ++r) {
      if (r & same) {
        out.push_back(out[r & ~same]);
        continue;
      }
      std::vector<Value*> a;
      for (const auto& x : args) a.push_back(x[r]);
      TESSERA_ASSIGN(auto* v, math_.arith(op.scalar, type, argument, a));
      out.push_back(v);
    }
  }
  define(result, std::move(out));
  indices_.index_form(op);
  return {};
}

// Two elements at a time if one instruction rounds two.
Registers Pointwise::cast_registers(const Registers& from, DType from_type, DType to) {
  auto elements = [&](Value* pair, DType dtype) { return words_.unpack(std::span<Value* const>(&pair, 1), dtype, 2); };
  Registers out;
  for (size_t r = 0; r < from.size(); r += 2) {
    Registers two = {from[r], from[r + 1]};
    DType type = from_type;
    if (irgen::is_small_float(type) && type != to)
      if (auto* halves = math_.as_halves(two[0], two[1], type)) two = elements(halves, type = DType::F16);
    if (auto* pair = math_.cast_pair(two[0], two[1], type, to))
      two = elements(pair, to);
    else
      for (auto*& v : two) v = math_.cast(v, type, to);
    out.insert(out.end(), two.begin(), two.end());
  }
  return out;
}

} // namespace tessera::gpu
