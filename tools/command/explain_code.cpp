// tessera explain --code: the page of a reason, or all reasons.
#include "base/similar.h"
#include "explain.h"
#include "report/pages.h"
#include <algorithm>

namespace tessera::command {

namespace {

std::vector<const FusionReasonInfo*> all_reasons() {
  std::vector<const FusionReasonInfo*> out;
  for (int r = 0; r < static_cast<int>(FusionReason::Count_); ++r) out.push_back(&info(static_cast<FusionReason>(r)));
  std::sort(out.begin(), out.end(), [](const auto* a, const auto* b) { return a->code < b->code; });
  return out;
}

Json to_json(const FusionReasonInfo& reason) {
  Json j{{"code", reason.code}, {"reason", reason.name}, {"fused", reason.fused}, {"summary", reason.summary}};
  if (!reason.fused) j["counterfactual"] = {{"change", name(reason.change)}, {"text", reason.advice}};
  return j;
}

Diagnostic unknown(const std::string& wanted) {
  std::vector<std::string> known = {"list"};
  for (const auto* reason : all_reasons())
    for (std::string_view word : {reason->code, reason->name}) known.emplace_back(word);
  Diagnostic d(ErrorCode::Usage, "--code: there is no reason '" + wanted + "'");
  if (const std::string close = similar(wanted, known); !close.empty()) d.note("did you mean '" + close + "'?");
  return d.note("'tessera explain --code list' names all");
}

} // namespace

Result<ReasonText> explain_code(const std::string& wanted) {
  ReasonText out;
  if (wanted == "list") {
    Table table({"code", "reason", "fused", "meaning"}, {});
    out.json = Json::array();
    for (const auto* reason : all_reasons()) {
      table.add({std::string(reason->code), std::string(reason->name), reason->fused ? "yes" : "no",
                 std::string(reason->summary)});
      out.json.push_back(to_json(*reason));
    }
    out.text = table.str();
    return out;
  }
  std::string upper = wanted;
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
  const FusionReasonInfo* reason = find_reason(wanted);
  if (reason == nullptr) reason = find_reason(upper);
  if (reason == nullptr) return unknown(wanted);
  out.text = reason_page(*reason);
  out.json = to_json(*reason);
  out.json["page"] = out.text;
  return out;
}

} // namespace tessera::command
