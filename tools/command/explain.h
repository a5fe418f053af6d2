// The report of what a compile made of a model (api/report.h), at the sizes of a call: as text and as a page.
#pragma once
#include "inputs.h"

namespace tessera::command {

// Session::report() with the numbers that the sizes give: "at_sizes" next to each "expression", null where the sizes do
// not say it. Without the texts of tile kernels unless `tiles`. Error CorruptFile: a compiled file's report is none.
[[nodiscard]] Result<Json> explain_json(const Session& session, const Sizes& sizes, bool tiles);
// MODEL is a report that -o FILE.json wrote.
[[nodiscard]] bool is_stored_report(const std::string& path);
// Errors: FileError; CorruptFile: no report, or of another version.
[[nodiscard]] Result<Json> read_report(const std::string& path);
// Throws Json::exception where a part of the report is missing or of another type, which only explain.cpp sees.
// One HTML file that needs no other: tables that can be sorted, a bar for what each step moves.
[[nodiscard]] std::string explain_html(const Json& report);
// The same of two reports side by side, with what differs (compare.h) before them.
[[nodiscard]] std::string diff_html(const Json& diff, const Json& a, const Json& b);
// "text", "json" or "html" by the extension of -o or by --format, which must agree; text where neither says anything.
// Error Usage.
[[nodiscard]] Result<std::string> chosen_format(const std::string& output, const std::string& format);

// The page of a reason by code or name, or a table of all for "list". Error Usage for another word, with a suggestion.
struct ReasonText {
  std::string text;
  Json json;
};
[[nodiscard]] Result<ReasonText> explain_code(const std::string& wanted);

} // namespace tessera::command
