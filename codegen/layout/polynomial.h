// Polynomials over the scalar integers of a kernel: offsets and bounds in the form in which terms can be compared and
// divided. Overflow is not considered: what is computed from it is an index, which fits.
#pragma once
#include "codegen/tile/tile.h"
#include <map>
#include <optional>

namespace tessera::layout {

class Polynomial {
public:
  using Monomial = std::vector<tile::ValueId>; // sorted; a value that stands twice is squared; empty: 1

  Polynomial() = default; // 0
  explicit Polynomial(int64_t constant) { add({}, constant); }
  [[nodiscard]] static Polynomial of(tile::ValueId atom);

  [[nodiscard]] const std::map<Monomial, int64_t>& terms() const { return terms_; } // coefficients are not 0
  [[nodiscard]] bool is_zero() const { return terms_.empty(); }
  [[nodiscard]] std::optional<int64_t> as_constant() const;

  [[nodiscard]] Polynomial operator+(const Polynomial& other) const;
  [[nodiscard]] Polynomial operator-(const Polynomial& other) const;
  [[nodiscard]] Polynomial operator*(const Polynomial& other) const;
  // Divided by a constant, or nothing if a coefficient is no multiple of it.
  [[nodiscard]] std::optional<Polynomial> divided(int64_t by) const;
  // The factor of `monomial` in the terms that contain it.
  [[nodiscard]] Polynomial coefficient_of(const Monomial& monomial) const;
  bool operator==(const Polynomial&) const = default;

private:
  void add(const Monomial& monomial, int64_t coefficient);

  std::map<Monomial, int64_t> terms_;
};

// Values of a kernel as polynomials: sums, differences and products of scalars are looked into, everything else is an
// atom; but a remainder x % n whose quotient q = x / n is computed as well is x - q * n. Tiles are sums of a scalar and, for each bit of the index of each dimension, that bit times a scalar. So the
// quotient and the remainder of an index by a power of two are such sums as well: of r / 8 * s + r % 8, the bits of r have
// 1, 2, 4, s, 2 s, ...
class Polynomials {
public:
  explicit Polynomials(const tile::Kernel& kernel);

  struct AffineTile {
    Polynomial base;
    std::vector<std::vector<Polynomial>> bits; // by dimension of the tile and bit of its index, low first
  };
  [[nodiscard]] Polynomial scalar(tile::ValueId id) const;
  [[nodiscard]] std::optional<AffineTile> tile(tile::ValueId id) const; // nothing if the tile is no such sum
  // The operation that yields a value; null of parameters and block arguments.
  [[nodiscard]] const tile::Op* definition(tile::ValueId id) const { return definitions_[static_cast<size_t>(id)]; }

private:
  void find_quotients(const std::vector<tile::OpId>& ops);

  const tile::Kernel& k_;
  std::vector<const tile::Op*> definitions_;
  std::map<std::pair<tile::ValueId, tile::ValueId>, tile::ValueId>
      known_;                                        // while they are found: in scope, by operands
  std::map<tile::ValueId, tile::ValueId> quotients_; // by remainder
};

} // namespace tessera::layout
