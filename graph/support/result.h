// Result<T>: a value or a Diagnostic. Every recoverable error travels in one; no exception crosses a folder.
#pragma once
#include "graph/support/check.h"
#include "graph/support/diagnostic.h"
#include <memory>
#include <optional>
#include <utility>
#include <variant>

namespace tessera {

template <class T>
class [[nodiscard]] Result {
public:
  Result(T value) : state_(std::move(value)) {}
  Result(Diagnostic d) : state_(std::make_unique<Diagnostic>(std::move(d))) {}
  [[nodiscard]] bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & {
    TESSERA_CHECK(ok(), error().str());
    return std::get<0>(state_);
  }
  const T& value() const& {
    TESSERA_CHECK(ok(), error().str());
    return std::get<0>(state_);
  }
  T&& value() && {
    TESSERA_CHECK(ok(), error().str());
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  [[nodiscard]] const Diagnostic& error() const { return *std::get<1>(state_); }
  Diagnostic take_error() && { return std::move(*std::get<1>(state_)); }

private:
  std::variant<T, std::unique_ptr<Diagnostic>> state_;
};

template <>
class [[nodiscard]] Result<void> {
public:
  Result() = default;
  Result(Diagnostic d) : error_(std::make_unique<Diagnostic>(std::move(d))) {}
  [[nodiscard]] bool ok() const { return !error_; }
  explicit operator bool() const { return ok(); }
  [[nodiscard]] const Diagnostic& error() const { return *error_; }
  Diagnostic take_error() && { return std::move(*error_); }

private:
  std::unique_ptr<Diagnostic> error_;
};
using Status = Result<void>;

} // namespace tessera

// TESSERA_TRY(expr): returns the error of a Status or Result from the enclosing function.
// TESSERA_ASSIGN(auto x, expr): the same, and binds the value.
#define TESSERA_CONCAT_(a, b) a##b
#define TESSERA_CONCAT(a, b) TESSERA_CONCAT_(a, b)
#define TESSERA_TRY(expr)                                                                                              \
  do {                                                                                                                 \
    if (auto tessera_r_ = (expr); !tessera_r_.ok()) [[unlikely]]                                                       \
      return std::move(tessera_r_).take_error();                                                                       \
  } while (0)
#define TESSERA_ASSIGN(decl, expr) TESSERA_ASSIGN_(TESSERA_CONCAT(tessera_a_, __LINE__), decl, expr)
#define TESSERA_ASSIGN_(tmp, decl, expr)                                                                               \
  auto tmp = (expr);                                                                                                   \
  if (!tmp.ok()) [[unlikely]]                                                                                          \
    return std::move(tmp).take_error();                                                                                \
  decl = std::move(tmp).value()
