#include "graph/ops/microsoft.h"
#include "graph/ops/ml.h"
#include <algorithm>

namespace tessera {

// Every file of definitions. The order is of no account: the table is sorted by name.
OpTable::OpTable() {
  for (auto* register_ops : {register_constant_ops, register_pointwise_ops, register_activation_ops,
                             register_reduction_ops, register_indexing_ops, register_norm_ops, register_rotary_ops,
                             register_matmul_ops, register_conv_ops, register_sort_scan_ops, register_recurrent_ops,
                             register_quant_ops, register_misc_ops, register_microsoft_ops, register_ml_ops, register_control_ops})
    register_ops(*this);
  std::sort(defs_.begin(), defs_.end(), [](const auto& a, const auto& b) { return a->name < b->name; });
  for (const auto& def : defs_) {
    for (const OnnxName& onnx : def->onnx) by_onnx_[onnx.op_type].push_back(def.get());
    for (std::string_view aten : def->aten) {
      bool fresh = by_aten_.emplace(aten, def.get()).second;
      TESSERA_CHECK(fresh, "two records claim the ATen name " + std::string(aten));
    }
  }
}

const OpTable& OpTable::get() {
  static const OpTable table;
  return table;
}

void OpTable::add(OpDef def) {
  auto owned = std::make_unique<OpDef>(std::move(def));
  bool fresh = by_name_.emplace(owned->name, owned.get()).second;
  TESSERA_CHECK(fresh, "two records of the operator " + std::string(owned->name));
  defs_.push_back(std::move(owned));
}

Sample::Sample() = default;
Sample::Sample(const Sample&) = default;
Sample::Sample(Sample&&) noexcept = default;
Sample& Sample::operator=(const Sample&) = default;
Sample& Sample::operator=(Sample&&) noexcept = default;
Sample::~Sample() = default;

OpDef::OpDef() = default;
OpDef::OpDef(const OpDef&) = default;
OpDef::OpDef(OpDef&&) noexcept = default;
OpDef& OpDef::operator=(const OpDef&) = default;
OpDef& OpDef::operator=(OpDef&&) noexcept = default;
OpDef::~OpDef() = default;

const OpDef* OpTable::find(std::string_view name) const {
  auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : it->second;
}

const OpDef* OpTable::find_onnx(std::string_view op_type, std::string_view domain, int opset,
                                bool* known_elsewhere) const {
  if (known_elsewhere) *known_elsewhere = false;
  if (domain == "ai.onnx") domain = "";
  auto it = by_onnx_.find(op_type);
  if (it == by_onnx_.end()) return nullptr;
  for (const OpDef* def : it->second) {
    for (const OnnxName& onnx : def->onnx) {
      if (onnx.op_type != op_type || onnx.domain != domain) continue;
      if (onnx.since <= opset && opset <= onnx.until) return def;
      if (known_elsewhere) *known_elsewhere = true;
    }
  }
  return nullptr;
}

const OpDef* OpTable::find_aten(std::string_view name) const {
  auto it = by_aten_.find(name);
  return it == by_aten_.end() ? nullptr : it->second;
}

} // namespace tessera
