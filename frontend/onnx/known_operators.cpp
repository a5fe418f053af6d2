#include "frontend/onnx/known_operators.h"
#include "frontend/onnx/upgrade.h"
#include "graph/ops/added.h"
#include <algorithm>
#include <map>

namespace tessera::onnx {

std::vector<KnownOperator> known_operators() {
  std::map<std::pair<std::string_view, std::string_view>, KnownOperator> all;
  auto at = [&](std::string_view domain, std::string_view op_type) -> KnownOperator& {
    KnownOperator& k = all[{domain, op_type}];
    k.domain = domain;
    k.op_type = op_type;
    return k;
  };
  struct Claim {
    int since;
    const OpDef* op;
  };
  std::map<std::pair<std::string_view, std::string_view>, std::vector<Claim>> claims;
  std::vector<const OpDef*> records = added_records();
  for (const auto& op : OpTable::get().all()) records.push_back(op.get());
  for (const OpDef* op : records)
    for (const OnnxName& name : op->onnx) {
      KnownOperator& k = at(name.domain, name.op_type);
      k.versions.push_back({name.since, std::min(name.until, KnownOperator::kLatest), false});
      claims[{name.domain, name.op_type}].push_back({name.since, op});
    }
  for (auto& [key, of_operator] : claims) {
    std::sort(of_operator.begin(), of_operator.end(), [](const Claim& a, const Claim& b) { return a.since > b.since; });
    KnownOperator& k = all.at(key);
    for (const Claim& c : of_operator)
      if (std::find(k.records.begin(), k.records.end(), c.op) == k.records.end()) k.records.push_back(c.op);
    k.summary = k.records.front()->summary;
  }
  for (const OldForm& form : old_forms()) {
    KnownOperator& k = at("", form.op_type);
    k.versions.push_back({form.since, form.until, true});
    if (!k.records.empty() || !k.summary.empty()) continue;
    k.summary = "an operator of early exporters";
    if (const OpDef* op = OpTable::get().find_onnx(form.becomes, "", form.version)) {
      k.records.push_back(op);
      k.summary = op->summary;
    }
  }
  KnownOperator& flex = at(kFlexAttention.domain, kFlexAttention.op_type);
  flex.versions.push_back({kFlexAttention.since, KnownOperator::kLatest, false});
  flex.summary = kFlexAttention.summary;

  std::vector<KnownOperator> out;
  for (auto& [key, k] : all) {
    std::sort(k.versions.begin(), k.versions.end(),
              [](const auto& a, const auto& b) { return std::pair(a.since, a.until) < std::pair(b.since, b.until); });
    out.push_back(std::move(k));
  }
  return out;
}

bool is_known_operator(std::string_view domain, std::string_view op_type, int opset) {
  if (domain == kFlexAttention.domain && op_type == kFlexAttention.op_type) return true;
  bool other_versions = false;
  if (OpTable::get().find_onnx(op_type, domain, opset, &other_versions) != nullptr) return true;
  if (!domain.empty()) return false;
  const std::vector<OldForm> forms = old_forms();
  return std::any_of(forms.begin(), forms.end(), [&](const OldForm& f) {
    if (f.op_type != op_type || opset < f.since || opset > f.until) return false;
    return f.version != 0 ? OpTable::get().find_onnx(f.becomes, "", f.version) != nullptr : !other_versions;
  });
}

} // namespace tessera::onnx
