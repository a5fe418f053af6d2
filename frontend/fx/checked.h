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
  template <class... A>
  auto insert(typename Base::const_iterator at, A&&... values) {
    return Base::insert(checked(at), std::forward<A>(values)...);
  }
  auto insert(typename Base::const_iterator at, std::initializer_list<T> values) {
    return Base::insert(checked(at), values);
  }
  auto erase(typename Base::const_iterator at) { return Base::erase(checked(at, 1)); }
  auto erase(typename Base::const_iterator first, typename Base::const_iterator last) {
    return Base::erase(checked(first), checked(last));
  }
  const T& front() const { return Base::at(0); }
  T& front() { return Base::at(0); }
  const T& back() const { return Base::at(Base::size() - 1); }
  T& back() { return Base::at(Base::size() - 1); }

private:
  // `at`, if `behind` elements are behind it.
  typename Base::const_iterator checked(typename Base::const_iterator at, size_t behind = 0) const {
    const auto position = at - Base::cbegin();
    if (position < 0 || static_cast<size_t>(position) + behind > Base::size()) throw std::out_of_range("position");
    return at;
  }
};

// In the importer these names are the checked lists.
using SymShape = Checked<SymExpr>;
using Ints = Checked<int64_t>;
using Values = Checked<ValueId>;

} // namespace tessera::fx
