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
  bool operator==(const Polynomial&) const = default;

private:
  void add(const Monomial& monomial, int64_t coefficient);

  std::map<Monomial, int64_t> terms_;
};

// Values of a kernel as polynomials: sums, differences and products of scalars are looked into, everything else is an
// atom. Tiles are sums of a scalar and, for each dimension, its index times a scalar.
class Polynomials {
public:
  explicit Polynomials(const tile::Kernel& kernel);

  struct AffineTile {
    Polynomial base;
    std::vector<Polynomial> strides; // by dimension of the tile
  };
  [[nodiscard]] Polynomial scalar(tile::ValueId id) const;
  [[nodiscard]] std::optional<AffineTile> tile(tile::ValueId id) const; // nothing if the tile is no such sum
  // The operation that yields a value; null of parameters and block arguments.
  [[nodiscard]] const tile::Op* definition(tile::ValueId id) const { return definitions_[static_cast<size_t>(id)]; }

private:
  const tile::Kernel& k_;
  std::vector<const tile::Op*> definitions_;
};

} // namespace tessera::layout
