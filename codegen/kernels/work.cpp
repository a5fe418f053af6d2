#include "codegen/kernels/work.h"
#include <algorithm>

namespace tessera {
namespace {

using tile::Op;
using tile::OpKind;

constexpr double kManyTrips = 64;
constexpr double kMaxWork = 1e15; // no sum or product of these overflows as an integer

class Estimate {
public:
  explicit Estimate(const tile::Kernel& k) : k_(k), definitions_(static_cast<size_t>(k.value_count())) {
    for (tile::OpId id = 0; id < k.op_count(); ++id)
      for (tile::ValueId v : k.op(id).results) definitions_[static_cast<size_t>(v)] = &k.op(id);
  }
  [[nodiscard]] double block(const std::vector<tile::OpId>& ops) const {
    double sum = 0;
    for (tile::OpId id : ops) sum = std::min(kMaxWork, sum + operation(k_.op(id)));
    return sum;
  }

private:
  [[nodiscard]] double elements(tile::ValueId v) const { return static_cast<double>(k_.type(v).count()); }
  [[nodiscard]] std::optional<double> constant(tile::ValueId v) const {
    const Op* op = definitions_[static_cast<size_t>(v)];
    if (!op || op->kind != OpKind::Const) return std::nullopt;
    return static_cast<double>(op->i);
  }
  [[nodiscard]] double trips(const Op& loop) const {
    const auto from = constant(loop.operands[0]), to = constant(loop.operands[1]), step = constant(loop.operands[2]);
    if (!from || !to || !step || *step <= 0) return kManyTrips;
    return std::max(0.0, (*to - *from) / *step);
  }
  [[nodiscard]] double operation(const Op& op) const {
    if (op.kind == OpKind::For) return trips(op) * (1 + block(op.regions[0]));
    if (op.kind == OpKind::If) return 1 + std::max(block(op.regions[0]), block(op.regions[1]));
    if (op.kind == OpKind::Dot) return elements(op.results[0]) * static_cast<double>(k_.type(op.operands[0]).shape[1]);
    double most = 1;
    for (tile::ValueId v : op.operands) most = std::max(most, elements(v));
    for (tile::ValueId v : op.results) most = std::max(most, elements(v));
    return most;
  }

  const tile::Kernel& k_;
  std::vector<const Op*> definitions_; // by value
};

} // namespace

int64_t work_of_program(const tile::Kernel& kernel) {
  return static_cast<int64_t>(std::min(kMaxWork, Estimate(kernel).block(kernel.body)));
}

} // namespace tessera
