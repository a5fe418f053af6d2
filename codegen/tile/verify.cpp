#include "codegen/tile/rules.h"
#include <algorithm>

namespace tessera::tile {
namespace {

class Verifier {
public:
  Verifier(const Kernel& k, FaultyPart& at)
      : k_(k), at_(at), defined_(static_cast<size_t>(k.value_count())), seen_(static_cast<size_t>(k.op_count())) {}

  Status run() {
    if (k_.name.empty()) return error("a kernel needs a name");
    for (const Param& p : k_.params) {
      at_.param = static_cast<int>(&p - k_.params.data());
      if (p.value < 0 || p.value >= k_.value_count()) return error("parameter '" + p.name + "' has no value");
      TESSERA_TRY(check_type(p.type));
      if (p.type.is_tile()) return error("parameter '" + p.name + "' is a tile");
      if (k_.type(p.value) != p.type) return error("parameter '" + p.name + "' and its value differ in type");
      TESSERA_TRY(define(p.value));
      if (p.written && p.type.kind != Type::Kind::Pointer)
        return error("parameter '" + p.name + "' is written but is not a pointer");
      if (p.once && !p.written) return error("parameter '" + p.name + "' is written once but not written");
      if (p.invariant && (p.written || p.type.kind != Type::Kind::Pointer))
        return error("parameter '" + p.name + "' is invariant but " + (p.written ? "written" : "not a pointer"));
      if (p.in_place && (p.written || p.invariant || p.type.kind != Type::Kind::Pointer))
        return error("parameter '" + p.name + "' is in_place but is not a read-only pointer");
      if (p.multiple_of < 1 ||
          (p.multiple_of > 1 && (p.type.kind == Type::Kind::Pointer || p.type.dtype != DType::I64)))
        return error("parameter '" + p.name + "' has a divisor but is not an i64 scalar");
      TESSERA_TRY(check_elements(p));
    }
    at_.param = -1;
    TESSERA_TRY(block(k_.body, 0));
    at_.op = -1;
    return {};
  }

private:
  Diagnostic error(const std::string& message) const {
    return {ErrorCode::Internal, "tile kernel '" + k_.name + "': " + message};
  }
  Status define(ValueId v) {
    if (v < 0 || v >= k_.value_count()) return error("value id out of range");
    if (defined_[static_cast<size_t>(v)] != 0) return error("value " + std::to_string(v) + " is defined twice");
    defined_[static_cast<size_t>(v)] = 1;
    scope_.push_back(v);
    return {};
  }
  Status check_elements(const Param& p) const {
    if (p.elements == 0 && p.elements_value < 0) return {};
    auto counts = [&](const Param& n) {
      return n.value == p.elements_value && n.type == Type{Type::Kind::Data, DType::I64, {}};
    };
    if (p.type.kind != Type::Kind::Pointer || p.elements < 0 || (p.elements > 0 && p.elements_value >= 0))
      return error("parameter '" + p.name + "' has a number of elements but is not a pointer, or has two numbers");
    if (p.elements_value >= 0 && std::none_of(k_.params.begin(), k_.params.end(), counts))
      return error("the number of elements of parameter '" + p.name + "' is not an i64 parameter");
    return {};
  }
  Status check_written(const Op& op) const {
    if (op.kind != OpKind::Store && op.kind != OpKind::Atomic && op.kind != OpKind::Arrive &&
        op.kind != OpKind::GridBarrier && op.kind != OpKind::Exchange)
      return {};
    for (const Param& p : k_.params)
      if (p.value == op.operands[0] && !p.written)
        return error("parameter '" + p.name + "' is stored to but not marked written");
    return {};
  }
  Status block(const std::vector<OpId>& ops, int depth) {
    if (depth > kMaxDepth) return error("regions are nested too deeply");
    size_t outer = scope_.size();
    for (size_t i = 0; i < ops.size(); ++i) {
      OpId id = ops[i];
      if (id < 0 || id >= k_.op_count()) return error("operation id out of range");
      if (seen_[static_cast<size_t>(id)]) return error("operation " + std::to_string(id) + " is used twice");
      seen_[static_cast<size_t>(id)] = true;
      at_.op = id;
      const Op& op = k_.op(id);
      for (ValueId v : op.operands)
        if (v < 0 || v >= k_.value_count() || defined_[static_cast<size_t>(v)] != 1)
          return error("operand of " + std::string(op_name(op.kind)) + " is not defined before it");
      for (ValueId v : op.results)
        if (v < 0 || v >= k_.value_count()) return error("value id out of range");
      if (op.kind == OpKind::Yield && (depth == 0 || i + 1 != ops.size())) return error("yield may only end a region");
      if (waits_for_programs(op) && depth > 0)
        return error(std::string(op_name(op.kind)) + " may not be inside a region");
      for (size_t r = 0; r < op.regions.size(); ++r) {
        size_t mark = scope_.size();
        if (r < op.region_args.size())
          for (ValueId v : op.region_args[r]) TESSERA_TRY(define(v));
        TESSERA_TRY(block(op.regions[r], depth + 1));
        leave(mark);
      }
      at_.op = id;
      if (Status ok = check_op(k_, op); !ok.ok())
        return error(std::string(op_name(op.kind)) + ": " + ok.error().message);
      TESSERA_TRY(check_written(op));
      for (ValueId v : op.results) TESSERA_TRY(define(v));
    }
    leave(outer);
    return {};
  }
  // Values of a region that ended are no longer visible; state 2 makes a second definition an error.
  void leave(size_t mark) {
    for (; scope_.size() > mark; scope_.pop_back()) defined_[static_cast<size_t>(scope_.back())] = 2;
  }

  const Kernel& k_;
  FaultyPart& at_;            // the part that is being looked at
  std::vector<char> defined_; // 0 not yet, 1 visible, 2 out of scope
  std::vector<bool> seen_;
  std::vector<ValueId> scope_;
};

} // namespace

Status verify(const Kernel& kernel, FaultyPart& part) { return Verifier(kernel, part).run(); }
Status verify(const Kernel& kernel) {
  FaultyPart part;
  return verify(kernel, part);
}

bool uses_grid(const Kernel& kernel) {
  for (OpId id = 0; id < kernel.op_count(); ++id)
    if (const Op& op = kernel.op(id); op.kind == OpKind::NumPrograms || (op.kind == OpKind::ProgramId && op.axis > 0))
      return true;
  return false;
}

bool needs_cooperative_launch(const Kernel& kernel) {
  return std::any_of(kernel.body.begin(), kernel.body.end(),
                     [&](OpId id) { return waits_for_programs(kernel.op(id)); });
}

} // namespace tessera::tile
