#include "graph/ops/added.h"
#include "graph/ops/microsoft.h"
#include "graph/ops/ml.h"
#include <algorithm>
#include <atomic>
#include <mutex>
#include <shared_mutex>

namespace tessera {

namespace {

// Records that were added while the program runs. They are few: all are looked at.
struct Added {
  std::shared_mutex mutex;
  std::vector<std::unique_ptr<AddedRecord>> records;
  std::atomic<bool> any = false;
};
Added& added() {
  static Added all;
  return all;
}

bool overlap(const OnnxName& a, const OnnxName& b) {
  return a.op_type == b.op_type && a.domain == b.domain && a.since <= b.until && b.since <= a.until;
}

} // namespace

// Every file of definitions. The order is of no account: the table is sorted by name.
OpTable::OpTable() {
  for (auto* register_ops :
       {register_constant_ops, register_pointwise_ops, register_activation_ops, register_reduction_ops,
        register_indexing_ops, register_norm_ops, register_rotary_ops, register_matmul_ops, register_conv_ops,
        register_sort_scan_ops, register_recurrent_ops, register_quant_ops, register_misc_ops, register_microsoft_ops,
        register_ml_ops, register_control_ops})
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
  if (auto it = by_name_.find(name); it != by_name_.end()) return it->second;
  Added& more = added();
  if (!more.any) return nullptr;
  const std::shared_lock lock(more.mutex);
  for (const auto& record : more.records)
    if (record->def.name == name) return &record->def;
  return nullptr;
}

const OpDef* OpTable::find_onnx(std::string_view op_type, std::string_view domain, int opset,
                                bool* known_elsewhere) const {
  if (known_elsewhere) *known_elsewhere = false;
  if (domain == "ai.onnx") domain = "";
  auto is = [&](const OpDef& def) {
    return std::any_of(def.onnx.begin(), def.onnx.end(), [&](const OnnxName& onnx) {
      if (onnx.op_type != op_type || onnx.domain != domain) return false;
      if (onnx.since <= opset && opset <= onnx.until) return true;
      if (known_elsewhere) *known_elsewhere = true;
      return false;
    });
  };
  if (auto it = by_onnx_.find(op_type); it != by_onnx_.end())
    for (const OpDef* def : it->second)
      if (is(*def)) return def;
  Added& more = added();
  if (!more.any) return nullptr;
  const std::shared_lock lock(more.mutex);
  for (const auto& record : more.records)
    if (is(record->def)) return &record->def;
  return nullptr;
}

Status add_records(std::vector<AddedRecord> records) {
  const OpTable& table = OpTable::get();
  Added& more = added();
  const std::unique_lock lock(more.mutex);
  std::vector<const OpDef*> others;
  for (const auto& def : table.all()) others.push_back(def.get());
  for (const auto& record : more.records) others.push_back(&record->def);
  for (const AddedRecord& record : records) {
    for (const OpDef* other : others) {
      bool same = other->name == record.def.name;
      for (const OnnxName& a : record.def.onnx)
        for (const OnnxName& b : other->onnx) same = same || overlap(a, b);
      if (same)
        return Diagnostic(ErrorCode::Usage, "operator '" + std::string(record.def.name) + "' is defined already, as '" +
                                                std::string(other->name) + "'")
            .note("Tessera, or a library that was loaded before, has its name and one of its versions");
    }
    others.push_back(&record.def);
  }
  for (AddedRecord& record : records) more.records.push_back(std::make_unique<AddedRecord>(std::move(record)));
  more.any = !more.records.empty();
  return {};
}

std::vector<const OpDef*> added_records() {
  Added& more = added();
  const std::shared_lock lock(more.mutex);
  std::vector<const OpDef*> out;
  for (const auto& record : more.records) out.push_back(&record->def);
  return out;
}

const TileTextFn* tile_text_of(const OpDef& op) {
  Added& more = added();
  if (!more.any) return nullptr;
  const std::shared_lock lock(more.mutex);
  for (const auto& record : more.records)
    if (&record->def == &op) return record->tile_text ? &record->tile_text : nullptr;
  return nullptr;
}

const OpDef* OpTable::find_aten(std::string_view name) const {
  auto it = by_aten_.find(name);
  return it == by_aten_.end() ? nullptr : it->second;
}

} // namespace tessera
