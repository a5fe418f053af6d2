// The details of a verdict: text with amounts of bytes that are expressions over the sizes, so that a report prints them
// at its own sizes and the planner at those that it took.
#pragma once
#include "symbols/expr.h"

namespace tessera {

// The value of an expression at some sizes; nothing where only a run knows it.
using SizeValue = std::function<std::optional<double>(const SymExpr&)>;

// A sum of factors times expressions: bytes, or elements.
class SizeSum {
public:
  SizeSum() = default;
  SizeSum(const SymExpr& e) { add(e); } // NOLINT: implicit on purpose
  void add(const SymExpr& e, double factor = 1);
  void add(const SizeSum& other, double factor = 1);
  [[nodiscard]] std::optional<double> at(const SizeValue& value) const;

private:
  std::vector<std::pair<SymExpr, double>> terms_; // each expression once
};

class Detail {
public:
  Detail() = default;
  Detail(std::string text) { *this << text; } // NOLINT: implicit on purpose
  Detail(const char* text) : Detail(std::string(text)) {}
  Detail& operator<<(std::string_view text);
  Detail& operator<<(SizeSum bytes);
  Detail& append(const Detail& other);
  // The planner compared these bytes, at its sizes, and found `less` to be at most `more`.
  void compared(SizeSum less, SizeSum more);
  [[nodiscard]] bool empty() const { return pieces_.empty(); }

private:
  struct Piece {
    std::string text;
    std::optional<SizeSum> bytes; // behind the text
  };
  std::vector<Piece> pieces_;
  std::vector<std::pair<SizeSum, SizeSum>> compared_;
  friend std::string detail_text(const Detail& detail, const SizeValue& value);
  friend bool decided_otherwise(const Detail& detail, const SizeValue& value);
};

// With the amounts at these sizes: "computed 2.1 MB, stored 6.3 MB".
[[nodiscard]] std::string detail_text(const Detail& detail, const SizeValue& value);
// Whether a comparison that the planner made would turn out the other way at these sizes.
[[nodiscard]] bool decided_otherwise(const Detail& detail, const SizeValue& value);

} // namespace tessera
