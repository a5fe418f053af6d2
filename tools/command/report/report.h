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
[[nodiscard]] std::string count_text(const Json& j); // of a whole number
// Lines of at most `width` columns, broken at spaces, each after `indent`.
[[nodiscard]] std::string wrapped(const std::string& text, const std::string& indent, size_t width = screen_width());
// A number of bytes at the report's sizes, else its expression where that is short; the JSON has each.
[[nodiscard]] std::string bytes_text(const Json& sized);
[[nodiscard]] std::string us_text(const std::optional<double>& us); // "12.3 us", "1.2 ms", "?" for nothing
[[nodiscard]] std::string price_text(const Json& edge);             // "saves 1.2 us", "costs 0.6 us"
// "change the model: ..." from a counterfactual.
[[nodiscard]] std::string advice_text(const Json& counterfactual);

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
  // The text of a verdict on an edge or pair, on lines after `indent`: code, reason, price, operators, why, what to do.
  [[nodiscard]] std::string verdict(const Json& edge, const std::string& indent) const;
  // A step's kind and sizes: "matmul [1, 128, 768] x [768, 3072]", "kernel rows (b, s) x (768)".
  [[nodiscard]] static std::string what(const Json& step);
  // The time of a step in a call, in microseconds: measured where the step was measured by itself, else predicted; the
  // steps sum up to the call. Steps inside of control flow count as often as they run, control flow without them; where
  // it was measured as a whole, they count nothing.
  [[nodiscard]] std::optional<double> us(const Json& step) const;
  [[nodiscard]] static std::optional<double> predicted_us(const Json& step);

private:
  bool measured_;
  std::map<std::string, const Json*> steps_, operators_;
};

// ---- texts
// One screen: totals, the most expensive steps and missed fusions, breaks, guards, and what to ask next.
[[nodiscard]] std::string overview(const Json& report, bool color);
// The same, and everything else as tables.
[[nodiscard]] std::string full(const Json& report);
[[nodiscard]] std::string guards(const Json& report); // guards, and what unknown sizes cost
// The arena, how much of it is in use at most, and the largest buffers with their lifetimes.
[[nodiscard]] std::string memory(const Json& report);

// ---- answers, a screen each. Error Usage for names: one that the report lacks, with the one that was meant, or one of
// several where the question is about one.
[[nodiscard]] Result<std::string> kernel(const Json& report, const std::string& step);
// By the exporter's name, the source line, the module's path, or the type; several are listed.
[[nodiscard]] Result<std::string> operators(const Json& report, const std::string& name);
// The verdict on two operators: of the edge between them, of the path that connects them, or of two that share nothing.
// Names a code, a price and both operators.
[[nodiscard]] Result<std::string> why_not(const Json& report, const std::string& first, const std::string& second);
// The graph behind all passes ("graph"), or the loop nest, tile kernel, LLVM IR or PTX ("nest", "tile", "llvm", "ptx") of
// a step; of all that have one for "".
[[nodiscard]] Result<std::string> ir(const Json& report, const std::string& form, const std::string& step);

// ---- names
// Operators that the name means, the closest kind of match only: id and name, source line ("model.py:42"), module and
// all below it, type. Never empty.
[[nodiscard]] Result<std::vector<const Json*>> find_operators(const Json& report, const std::string& name);
// By index ("7"), id, or the id's beginning ("k7").
[[nodiscard]] Result<const Json*> find_step(const Json& report, const std::string& name);

// Steps of a class, folded: how many, and their time together.
struct StepsOfClass {
  const Json* first = nullptr;
  int count = 0;
  double us = 0;
};
// In the order of their time, the most expensive first.
[[nodiscard]] std::vector<StepsOfClass> by_cost(const View& view);
// Missed fusions that are alike: of the same code, between operators of the same types, with values of the same type.
struct MissedFusions {
  std::vector<const Json*> all; // edges and pairs
  double us = 0;                // that fusing them would save
  bool fixable = false;         // by an option or a change of the model
};
// Those that a change can fuse first, then by what they cost.
[[nodiscard]] std::vector<MissedFusions> missed(const View& view);

} // namespace tessera::command::report
