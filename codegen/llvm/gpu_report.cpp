// Reports of bad indices. They hardly ever come: what they need must take no register while there are none. Positions,
// and indices that come from no memory, are therefore computed anew where a report is made; LLVM would otherwise take
// them from where the kernel has computed the same numbers before.
#include "codegen/llvm/gpu_memory.h"
#include <llvm/IR/Instructions.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/MDBuilder.h>

namespace tessera::gpu {
namespace {

// Values as functions of a thread index that LLVM does not know to be the kernel's.
class Anew {
public:
  Anew(llvm::IRBuilder<>& b, Value* thread, Value* other) : b_(b) { made_.emplace(thread, other); }
  // These are taken as they are.
  void keep(std::span<Value* const> values) {
    for (auto* v : values) made_.emplace(v, v);
  }
  Value* of(Value* v) {
    if (auto it = made_.find(v); it != made_.end()) return it->second;
    auto* result = v;
    if (auto* from = computed(v)) {
      std::vector<Value*> operands;
      bool same = true;
      for (const auto& operand : from->operands()) {
        operands.push_back(of(operand));
        same = same && operands.back() == operand;
      }
      if (!same) { // else no thread's own: in a register of all threads anyway
        auto* copy = from->clone();
        for (unsigned i = 0; i < operands.size(); ++i) copy->setOperand(i, operands[i]);
        result = b_.Insert(copy);
      }
    }
    made_.emplace(v, result);
    return result;
  }
  // True if something else than arithmetic, of the thread index and of what all threads have, decides the value.
  bool has_data(Value* v) {
    auto* instruction = llvm::dyn_cast<llvm::Instruction>(v);
    if (!instruction || made_.contains(v)) return false;
    if (!computed(v)) return true;
    auto [it, fresh] = data_.try_emplace(v, false);
    if (fresh)
      it->second = std::any_of(instruction->op_begin(), instruction->op_end(), [&](Value* o) { return has_data(o); });
    return data_[v];
  }

private:
  static llvm::Instruction* computed(Value* v) {
    auto* i = llvm::dyn_cast<llvm::Instruction>(v);
    if (!i) return nullptr;
    using namespace llvm;
    const bool arithmetic = isa<BinaryOperator>(i) || isa<CmpInst>(i) || isa<SelectInst>(i) || isa<CastInst>(i);
    const auto* call = dyn_cast<IntrinsicInst>(i);
    const bool function = call && call->doesNotAccessMemory() && !call->isConvergent();
    return arithmetic || function || isa<FreezeInst>(i) ? i : nullptr;
  }

  llvm::IRBuilder<>& b_;
  std::map<Value*, Value*> made_;
  std::map<Value*, bool> data_;
};

} // namespace

void Memory::report_index(const tile::Op& op) {
  auto is_bad = registers(op.operands[0]);
  const size_t n = is_bad.size();
  Value* bad = nullptr;
  for (auto* v : is_bad) bad = bad ? b_.CreateOr(bad, v) : v;
  auto* report = llvm::BasicBlock::Create(b_.getContext(), "bad_index", c_.function);
  auto* go_on = llvm::BasicBlock::Create(b_.getContext(), "index_checked", c_.function);
  b_.CreateCondBr(bad, report, go_on, llvm::MDBuilder(b_.getContext()).createUnlikelyBranchWeights());
  b_.SetInsertPoint(report);
  auto index = registers(op.operands[1], n), position = registers(op.operands[2], n);
  Anew anew(b_, c_.thread, gpu_.other_thread_index());
  anew.keep({&c_.program, 1});
  for (auto& v : index)
    if (!anew.has_data(v)) v = anew.of(v);
  anew.keep(index);
  for (size_t r = 0; r < n; ++r) {
    is_bad[r] = anew.of(is_bad[r]);
    position[r] = anew.of(position[r]);
  }
  // The thread's first one.
  Value *at = n == 1 ? position[0] : b_.CreateSelect(is_bad[0], position[0], b_.getInt64(UINT64_MAX)),
        *value = index[0];
  for (size_t r = 1; r < n; ++r) {
    auto* first = b_.CreateAnd(is_bad[r], b_.CreateICmpULT(position[r], at));
    at = b_.CreateSelect(first, position[r], at);
    value = b_.CreateSelect(first, index[r], value);
  }
  gpu_.report(c_.report, irgen::report_words(b_, op.site, at, value));
  b_.CreateBr(go_on);
  b_.SetInsertPoint(go_on);
}

} // namespace tessera::gpu
