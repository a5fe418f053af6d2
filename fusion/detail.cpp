#include "fusion/detail.h"
#include "fusion/cost.h"
#include <algorithm>

namespace tessera {

void SizeSum::add(const SymExpr& e, double factor) {
  auto it = std::find_if(terms_.begin(), terms_.end(), [&](const auto& term) { return term.first == e; });
  if (it != terms_.end())
    it->second += factor;
  else if (!e.is_const(0) && factor != 0)
    terms_.emplace_back(e, factor);
}

void SizeSum::add(const SizeSum& other, double factor) {
  for (const auto& [e, f] : std::vector(other.terms_)) add(e, f * factor);
}

std::optional<double> SizeSum::at(const SizeValue& value) const {
  double sum = 0;
  for (const auto& [e, factor] : terms_) {
    const auto v = value(e);
    if (!v) return std::nullopt;
    sum += *v * factor;
  }
  return sum;
}

Detail& Detail::operator<<(std::string_view text) {
  if (text.empty()) return *this;
  if (pieces_.empty() || pieces_.back().bytes)
    pieces_.push_back({std::string(text), std::nullopt});
  else
    pieces_.back().text += text;
  return *this;
}

Detail& Detail::operator<<(SizeSum bytes) {
  if (pieces_.empty() || pieces_.back().bytes) pieces_.emplace_back();
  pieces_.back().bytes = std::move(bytes);
  return *this;
}

Detail& Detail::append(const Detail& other) {
  for (const Piece& piece : std::vector(other.pieces_)) {
    *this << piece.text;
    if (piece.bytes) *this << *piece.bytes;
  }
  compared_.insert(compared_.end(), other.compared_.begin(), other.compared_.end());
  return *this;
}

void Detail::compared(SizeSum less, SizeSum more) { compared_.emplace_back(std::move(less), std::move(more)); }

std::string detail_text(const Detail& detail, const SizeValue& value) {
  std::string out;
  for (const auto& piece : detail.pieces_) {
    out += piece.text;
    if (!piece.bytes) continue;
    const auto bytes = piece.bytes->at(value);
    out += bytes ? fusion::bytes_text(*bytes) : "an amount that only a run knows";
  }
  return out;
}

bool decided_otherwise(const Detail& detail, const SizeValue& value) {
  return std::any_of(detail.compared_.begin(), detail.compared_.end(), [&](const auto& pair) {
    const auto less = pair.first.at(value), more = pair.second.at(value);
    return less && more && *less > *more;
  });
}

} // namespace tessera
