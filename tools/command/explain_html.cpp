// The report as one page that needs no other file: the page of tools/command/page, which the build embeds, around the report's JSON.
#include "explain.h"
#include "report/report.h"

namespace tessera::command {

// Written by page/embed.cmake.
extern const char* const kPageBefore;
extern const char* const kPageAfter;
extern const char* const kDiffBefore;
extern const char* const kDiffAfter;

namespace {

// JSON that ends no element of the page and holds no character that a reader's terminal obeys: ASCII, without '<'.
std::string in_script(const Json& j) {
  const std::string text = j.dump(-1, ' ', true, Json::error_handler_t::replace);
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  for (char c : text) {
    if (c == '<')
      out += "\\u003c";
    else if (c == '\x7f')
      out += "\\u007f";
    else
      out += c;
  }
  return out;
}

// The report with what the page takes from the text's computations: what steps take of a call, and missed fusions in
// groups, by position in edges, then pairs.
Json for_page(const Json& report) {
  for (const char* part : {"operators", "steps", "edges"}) (void)report.at(part).get_ref<const Json::array_t&>();
  Json page = report;
  const report::View view(report);
  for (size_t i = 0; i < report.at("steps").size(); ++i) {
    const auto us = view.predicted_us(report.at("steps")[i]);
    page["steps"][i]["call_us"] = us ? Json(*us) : Json(nullptr);
  }
  std::map<const Json*, size_t> position;
  for (const char* list : {"edges", "pairs"})
    for (const Json& e : report.at(list)) position.emplace(&e, position.size());
  page["missed"] = Json::array();
  for (const auto& m : report::missed(view)) {
    Json& group = page["missed"].emplace_back(Json::array());
    for (const Json* e : m.all) group.push_back(position.at(e));
  }
  return page;
}

} // namespace

std::string explain_html(const Json& report) { return kPageBefore + in_script(for_page(report)) + kPageAfter; }

std::string diff_html(const Json& diff, const Json& a, const Json& b) {
  const Json all{{"diff", diff}, {"a", for_page(a)}, {"b", for_page(b)}, {"page", {kPageBefore, kPageAfter}}};
  return kDiffBefore + in_script(all) + kDiffAfter;
}

} // namespace tessera::command
