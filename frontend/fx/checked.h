// Lists whose elements are checked. Translations read sizes and lists of integers by positions that a program of
// PyTorch has, and one that was damaged need not: the read throws, and GraphBuilder::translate() makes an error of it.
#pragma once
#include "graph/ir/graph.h"
#include <stdexcept>
#include <vector>

namespace tessera::fx {

template <class T>
class Checked : public std::vector<T> {
  using Base = std::vector<T>;

public:
  using Base::Base;
  Checked() = default;
  Checked(const Base& v) : Base(v) {}                // NOLINT: implicit on purpose
  Checked(Base&& v) noexcept : Base(std::move(v)) {} // NOLINT

  const T& operator[](size_t i) const { return Base::at(i); }
  T& operator[](size_t i) { return Base::at(i); }
  const T& front() const { return Base::at(0); }
  T& front() { return Base::at(0); }
  const T& back() const { return Base::at(Base::size() - 1); }
  T& back() { return Base::at(Base::size() - 1); }
};

// In the importer these names are the checked lists.
using SymShape = Checked<SymExpr>;
using Ints = Checked<int64_t>;
using Values = Checked<ValueId>;

} // namespace tessera::fx
