#include "codegen/compilation/shared_code.h"
#include <algorithm>

namespace tessera {
namespace tile {
namespace {

// True if the operand may be a parameter: a summand, a factor, an operand of a comparison, an address.
bool may_vary(const Op& op, size_t operand) {
  if (op.kind == OpKind::Broadcast) return true;
  if (op.kind == OpKind::Load || op.kind == OpKind::Store) return operand == 1;
  if (op.kind != OpKind::Scalar) return false;
  switch (op.scalar) {
  case ScalarOp::Add:
  case ScalarOp::Sub:
  case ScalarOp::Mul:
  case ScalarOp::Eq:
  case ScalarOp::Ne:
  case ScalarOp::Lt:
  case ScalarOp::Le:
  case ScalarOp::Gt:
  case ScalarOp::Ge: return true;
  default: return false;
  }
}

class Outliner {
public:
  explicit Outliner(const Kernel& kernel)
      : out_{kernel, {}}, defined_by_(static_cast<size_t>(kernel.value_count()), -1) {}

  OutlinedKernel run() {
    replace(out_.kernel.body);
    used_.assign(static_cast<size_t>(out_.kernel.value_count()), false);
    mark(out_.kernel.body);
    drop(out_.kernel.body);
    return std::move(out_);
  }

private:
  void replace(const std::vector<OpId>& block) {
    for (OpId id : block) {
      const Op& op = out_.kernel.op(id);
      for (ValueId r : op.results) defined_by_[static_cast<size_t>(r)] = id;
      for (size_t i = 0; i < op.operands.size(); ++i)
        if (auto value = may_vary(op, i) ? number(op.operands[i]) : std::nullopt)
          out_.kernel.op(id).operands[i] = parameter(*value);
      for (const auto& region : std::vector<std::vector<OpId>>(op.regions)) replace(region);
    }
  }
  // The constant of an i64 scalar.
  [[nodiscard]] std::optional<int64_t> number(ValueId v) const {
    if (static_cast<size_t>(v) >= defined_by_.size()) return std::nullopt;
    const OpId id = defined_by_[static_cast<size_t>(v)];
    const Type& type = out_.kernel.type(v);
    if (id < 0 || out_.kernel.op(id).kind != OpKind::Const || type.is_tile() || type.dtype != DType::I64)
      return std::nullopt;
    return out_.kernel.op(id).i;
  }
  ValueId parameter(int64_t value) {
    const Type i64{Type::Kind::Data, DType::I64, {}};
    Param p;
    p.name = "c" + std::to_string(out_.constants.size());
    p.type = i64;
    p.value = out_.kernel.new_value(i64);
    out_.kernel.params.push_back(std::move(p));
    out_.constants.push_back(value);
    return out_.kernel.params.back().value;
  }
  // Unused constants would make equal kernels differ.
  void mark(const std::vector<OpId>& block) {
    for (OpId id : block) {
      for (ValueId v : out_.kernel.op(id).operands) used_[static_cast<size_t>(v)] = true;
      for (const auto& region : out_.kernel.op(id).regions) mark(region);
    }
  }
  void drop(std::vector<OpId>& block) {
    std::erase_if(block, [&](OpId id) {
      const Op& op = out_.kernel.op(id);
      return op.kind == OpKind::Const && !used_[static_cast<size_t>(op.results[0])];
    });
    for (OpId id : block)
      for (auto& region : out_.kernel.op(id).regions) drop(region);
  }

  OutlinedKernel out_;
  std::vector<OpId> defined_by_; // by value of the original kernel
  std::vector<bool> used_;       // by value
};

} // namespace
} // namespace tile

OutlinedKernel outline_constants(const tile::Kernel& kernel) { return tile::Outliner(kernel).run(); }

} // namespace tessera
