// Rules that a report has to keep, one a line, for continuous integration (docs/compare.md):
//
//   require "*attention*" is one kernel per "*layer.*/"
//   require fused "*Add*" with "*LayerNorm*"
//   require launches <= 60
//   forbid host-operators
//   forbid code FUS-034 between "A*" and "B*"
#pragma once
#include "command.h"

namespace tessera::command {

// Operators by name (reports.h: is_called()), or by their type in the model: op "Softmax".
struct OperatorPattern {
  std::string text;
  bool by_type = false;
  [[nodiscard]] bool takes(const Json& operation) const;
  [[nodiscard]] std::string str() const;
};

struct Rule {
  enum class Kind : uint8_t { OneKernel, Fused, Total, Break, Code };
  Kind kind = Kind::Total;
  bool forbids = false;
  int line = 0;
  std::string text;              // as the file has it
  OperatorPattern first, second; // OneKernel: first; Code: none where empty
  std::string per;               // OneKernel: a group for each beginning of a name that it matches; empty: one group
  std::string name;              // Total: key of the totals; Break: kind of the break; Code: the code
  std::string comparison;        // Total
  double limit = 0;              // Total, in the unit of the key
};

// A broken rule, and the reasons, one line each.
struct Violation {
  int line = 0;
  std::string rule;
  std::vector<std::string> reasons;
};

// `file` is what errors call it. Error ParseError with line and column.
[[nodiscard]] Result<std::vector<Rule>> parse_rules(std::string_view text, const std::string& file);
[[nodiscard]] std::vector<Violation> broken_rules(const std::vector<Rule>& rules, const Json& report);
// Reads the file, and says on standard error which rules the report breaks. kDone or kDiffers. Errors: FileError,
// ParseError. `to` gets "rules", where it is given: how many there are, and the violations.
[[nodiscard]] Result<int> check_rule_file(const std::string& path, const Json& report, Json* to = nullptr);

} // namespace tessera::command
