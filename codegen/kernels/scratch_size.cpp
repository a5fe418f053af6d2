#include "codegen/kernels/scratch_size.h"
#include "codegen/kernels/pack_arguments.h"
#include <algorithm>
#include <bit>

namespace tessera {
namespace {

using tile::Op;
using tile::OpKind;

constexpr int64_t kMaxBytes = int64_t{1} << 40; // of one program

ScalarValue value_of(DType dtype, uint64_t word) {
  switch (dtype) {
  case DType::F16: return {static_cast<double>(f16_to_f32(static_cast<uint16_t>(word))), 0};
  case DType::BF16: return {static_cast<double>(bf16_to_f32(static_cast<uint16_t>(word))), 0};
  case DType::F32: return {static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(word))), 0};
  case DType::F64: return {std::bit_cast<double>(word), 0};
  default:
    if (is_float(dtype)) return {static_cast<double>(small_float_to_f32(dtype, static_cast<uint8_t>(word))), 0};
    return {0, static_cast<int64_t>(word)};
  }
}

} // namespace

// Makes the steps of the counts of a kernel.
class ScratchSize::Reader {
public:
  Reader(const tile::Kernel& kernel, ScratchSize& out)
      : k_(kernel), out_(out), step_of_(static_cast<size_t>(kernel.value_count()), kNone),
        definitions_(step_of_.size()) {}

  Status run() {
    for (tile::OpId id = 0; id < k_.op_count(); ++id) {
      const Op& op = k_.op(id);
      for (tile::ValueId v : op.results) definitions_[static_cast<size_t>(v)] = &op;
      if (op.kind == OpKind::Scratch && std::find(k_.body.begin(), k_.body.end(), id) == k_.body.end())
        return error("scratch inside a region has no host code");
    }
    const ArgumentPacker packer(k_, false);
    for (size_t i = 0; i < k_.params.size(); ++i) {
      const tile::Param& p = k_.params[i];
      if (p.type.kind == tile::Type::Kind::Data)
        add(p.value, {.kind = Step::Kind::Parameter, .dtype = p.type.dtype, .word = packer.word_of(i)});
    }
    for (tile::OpId id : k_.body) {
      const Op& op = k_.op(id);
      if (op.kind != OpKind::Scratch) continue;
      TESSERA_TRY(compute(op.operands[0]));
      out_.counts_.push_back({step(op.operands[0]), byte_size(k_.type(op.results[0]).dtype, 1)});
    }
    if (out_.counts_.empty()) out_.steps_.clear();
    return {};
  }

private:
  static constexpr size_t kNone = SIZE_MAX;

  [[nodiscard]] Diagnostic error(const std::string& what) const {
    return {ErrorCode::CodegenError, "tile kernel '" + k_.name + "': " + what};
  }
  [[nodiscard]] size_t step(tile::ValueId v) const { return step_of_[static_cast<size_t>(v)]; }
  void add(tile::ValueId v, Step step) {
    step_of_[static_cast<size_t>(v)] = out_.steps_.size();
    out_.steps_.push_back(std::move(step));
  }

  // Operands come before what is computed of them; no value depends on itself, since the kernel is verified.
  Status compute(tile::ValueId v) {
    std::vector<tile::ValueId> open{v};
    while (!open.empty()) {
      const tile::ValueId at = open.back();
      if (step(at) != kNone) {
        open.pop_back();
        continue;
      }
      const Op* op = definitions_[static_cast<size_t>(at)];
      const bool known = op && !k_.type(at).is_tile() &&
                         (op->kind == OpKind::Const || op->kind == OpKind::NumPrograms || op->kind == OpKind::Scalar);
      if (!known)
        return error("the size of its scratch depends on more than scalar parameters, constants and the grid");
      Step s{.dtype = k_.type(at).dtype};
      const size_t before = open.size();
      for (tile::ValueId operand : op->operands) {
        if (step(operand) == kNone) open.push_back(operand);
        s.operands.push_back(step(operand));
      }
      if (open.size() > before) continue;
      open.pop_back();
      s.kind = op->kind == OpKind::Const         ? Step::Kind::Constant
               : op->kind == OpKind::NumPrograms ? Step::Kind::Extent
                                                 : Step::Kind::Operation;
      s.axis = op->axis;
      s.constant = {op->f, op->i};
      s.op = op->scalar;
      if (!op->operands.empty()) s.argument = k_.type(op->operands[0]).dtype;
      add(at, std::move(s));
    }
    return {};
  }

  const tile::Kernel& k_;
  ScratchSize& out_;
  std::vector<size_t> step_of_;        // by value
  std::vector<const Op*> definitions_; // by value; null of parameters and region arguments
};

Result<ScratchSize> ScratchSize::of(const tile::Kernel& kernel) {
  ScratchSize out;
  out.kernel_ = kernel.name;
  TESSERA_TRY(Reader(kernel, out).run());
  return out;
}

Result<int64_t> ScratchSize::bytes(const Grid& grid, const uint64_t* words) const {
  std::vector<ScalarValue> values(steps_.size());
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step& s = steps_[i];
    switch (s.kind) {
    case Step::Kind::Parameter: values[i] = value_of(s.dtype, words[s.word]); break;
    case Step::Kind::Constant: values[i] = s.constant; break;
    case Step::Kind::Extent: values[i].i = grid[s.axis]; break;
    case Step::Kind::Operation: {
      ScalarValue args[3];
      for (size_t a = 0; a < s.operands.size(); ++a) args[a] = values[s.operands[a]];
      values[i] = s.op == ScalarOp::Select ? (args[0].i ? args[1] : args[2])
                                           : eval_scalar(s.op, s.dtype, s.argument, {args, s.operands.size()});
    }
    }
  }
  int64_t bytes = 0;
  for (const Count& c : counts_) {
    const int64_t elements = values[c.step].i;
    if (elements < 0)
      return Diagnostic(ErrorCode::BadInput,
                        "kernel '" + kernel_ + "' requires scratch of " + std::to_string(elements) + " elements");
    if (elements > (kMaxBytes - bytes) / c.element_bytes)
      return Diagnostic(ErrorCode::OutOfMemory, "kernel '" + kernel_ + "' requires scratch of " +
                                                    std::to_string(elements) + " elements in each program, at most " +
                                                    std::to_string(kMaxBytes) + " bytes are possible");
    constexpr auto kUnit = static_cast<int64_t>(kAlignment);
    bytes += (elements * c.element_bytes + kUnit - 1) / kUnit * kUnit;
  }
  return bytes;
}

} // namespace tessera
