// The report's JSON (docs/report.schema.json) as text. Everything here reads the JSON alone: of a session, of a compiled
// file, or stored. All functions throw Json::exception where a part is missing or of another type, which only explain.cpp
// sees.
#pragma once
#include "command.h"
#include <map>
#include <optional>

namespace tessera::command::report {

// ---- parts of the JSON
[[nodiscard]] std::optional<double> number(const Json& j); // nothing for null
// One line of text, fit to be shown; "" for null.
[[nodiscard]] std::string text_of(const Json& j);
// A number of bytes at the report's sizes, else its expression.
[[nodiscard]] std::string bytes_text(const Json& sized);
[[nodiscard]] std::string us_text(const std::optional<double>& us); // "12.3 us", "1.2 ms", "?" for nothing

// A report with its operators and steps by id.
class View {
public:
  explicit View(const Json& report);
  const Json& json;
  [[nodiscard]] const Json& step(const std::string& id) const { return *steps_.at(id); }
  [[nodiscard]] const Json& op(const std::string& id) const { return *operators_.at(id); }
  // "Add", "LayerNormalization x2, Add": the types of a step's operators, the most frequent first, at most `most`.
  [[nodiscard]] std::string types(const Json& operator_ids, size_t most = 4) const;
  // "layers.0.act.relu (model.py:42)"
  [[nodiscard]] std::string shown_operator(const std::string& id) const;
  // What a step is: "matmul [1, 128, 768] x [768, 3072]", "kernel rows (b, s) x (768)".
  [[nodiscard]] static std::string what(const Json& step);
  // The step by itself, measured where it was, else predicted; of a step that runs as part of another's price: nothing.
  [[nodiscard]] static std::optional<double> us(const Json& step);

private:
  std::map<std::string, const Json*> steps_, operators_;
};

// ---- texts
// One screen: totals, the most expensive steps and missed fusions, breaks, guards, and what to ask next.
[[nodiscard]] std::string overview(const Json& report, bool color);
// The same, and everything else as tables.
[[nodiscard]] std::string full(const Json& report);
[[nodiscard]] std::string guards(const Json& report); // guards, and what unknown sizes cost

// Steps of a class, folded: how many, and their time together.
struct StepsOfClass {
  const Json* first = nullptr;
  int count = 0;
  double us = 0;
};
// In the order of their time, the most expensive first.
[[nodiscard]] std::vector<StepsOfClass> by_cost(const View& view);
// Missed fusions that are alike: of the same code between steps of the same classes.
struct MissedFusions {
  const Json* first = nullptr;
  int count = 0;
  double us = 0;
};
[[nodiscard]] std::vector<MissedFusions> missed(const View& view);

} // namespace tessera::command::report
