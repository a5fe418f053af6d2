#include "codegen/layout/uniform.h"
#include <algorithm>

namespace tessera::layout {

using tile::Op;
using tile::OpKind;
using tile::ValueId;

Uniform::Uniform(const tile::Kernel& kernel, int group) : k_(kernel), group_(group) {
  for (tile::OpId id = 0; id < k_.op_count(); ++id) {
    const Op& op = k_.op(id);
    for (const ValueId v : op.results) definitions_[v] = &op;
    if (op.kind == OpKind::For) loops_[op.region_args[0][0]] = &op;
  }
}

bool Uniform::is_number(const Op& div) const {
  const auto number = definitions_.find(div.operands[0]), by = definitions_.find(div.operands[1]);
  return number != definitions_.end() && number->second->kind == OpKind::ProgramId && by != definitions_.end() &&
         by->second->kind == OpKind::Const && by->second->i > 0 && by->second->i % group_ == 0;
}

bool Uniform::is_uniform(ValueId v) const {
  const auto is_param = [&](const tile::Param& p) { return p.value == v; };
  if (std::any_of(k_.params.begin(), k_.params.end(), is_param)) return true;
  if (const auto loop = loops_.find(v); loop != loops_.end())
    return is_uniform(loop->second->operands[0]) && is_uniform(loop->second->operands[2]);
  const auto defined = definitions_.find(v);
  if (defined == definitions_.end() || k_.type(v).is_tile()) return false;
  if (const auto known = known_.find(v); known != known_.end()) return known->second;
  const Op& op = *defined->second;
  const auto all = [&] {
    return std::all_of(op.operands.begin(), op.operands.end(), [&](ValueId o) { return is_uniform(o); });
  };
  const auto unwritten = [&](const tile::Param& p) { return p.value == op.operands[0] && p.invariant; };
  bool uniform = false;
  if (op.kind == OpKind::Const)
    uniform = true;
  else if (op.kind == OpKind::Scalar)
    uniform = (op.scalar == ScalarOp::Div && is_number(op)) || all();
  else if (op.kind == OpKind::Load)
    uniform = std::any_of(k_.params.begin(), k_.params.end(), unwritten) && all();
  return known_[v] = uniform;
}

bool Uniform::iterates(const Op& loop) const {
  return std::all_of(loop.operands.begin(), loop.operands.begin() + 3, [&](ValueId v) { return is_uniform(v); });
}

} // namespace tessera::layout
