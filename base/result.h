// Result<T>: a value or a Diagnostic. Every recoverable error travels in one; no exception crosses a folder.
#pragma once
#include "base/check.h"
#include "base/diagnostic.h"
#include <memory>
#include <optional>
#include <utility>
#include <variant>

namespace tessera {

// An error on its way out of functions: converts to a Result of any type by moving a pointer.
struct Failure {
  explicit Failure(Diagnostic&& d); // result.cpp
  explicit Failure(std::unique_ptr<Diagnostic> d) : error(std::move(d)) {}
  std::unique_ptr<Diagnostic> error;
};
// The value of a Result that has none was requested: std::bad_alloc where memory was missing for it, as from any
// container; otherwise a failed check with the error's text.
[[noreturn]] void value_of_error(const Diagnostic& error);

template <class T>
class [[nodiscard]] Result {
public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Diagnostic d) : Result(Failure(std::move(d))) {}
  Result(Failure f) : state_(std::in_place_index<1>, std::move(f.error)) {}
  [[nodiscard]] bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & {
    if (!ok()) [[unlikely]]
      value_of_error(error());
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    if (!ok()) [[unlikely]]
      value_of_error(error());
    return *std::get_if<0>(&state_);
  }
  T&& value() && { return std::move(value()); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  [[nodiscard]] const Diagnostic& error() const { return **std::get_if<1>(&state_); } // of one that is not ok()
  Diagnostic take_error() && { return std::move(**std::get_if<1>(&state_)); }
  Failure failure() && { return Failure(std::move(*std::get_if<1>(&state_))); } // the same, to be returned as it is

private:
  std::variant<T, std::unique_ptr<Diagnostic>> state_;
};

template <>
class [[nodiscard]] Result<void> {
public:
  Result() = default;
  Result(Diagnostic d) : Result(Failure(std::move(d))) {}
  Result(Failure f) : error_(std::move(f.error)) {}
  [[nodiscard]] bool ok() const { return !error_; }
  explicit operator bool() const { return ok(); }
  [[nodiscard]] const Diagnostic& error() const { return *error_; }
  Diagnostic take_error() && { return std::move(*error_); }
  Failure failure() && { return Failure(std::move(error_)); }

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
      return std::move(tessera_r_).failure();                                                                          \
  } while (0)
#define TESSERA_ASSIGN(decl, expr) TESSERA_ASSIGN_(TESSERA_CONCAT(tessera_a_, __LINE__), decl, expr)
#define TESSERA_ASSIGN_(tmp, decl, expr)                                                                               \
  auto tmp = (expr);                                                                                                   \
  if (!tmp.ok()) [[unlikely]]                                                                                          \
    return std::move(tmp).failure();                                                                                   \
  decl = std::move(tmp).value()
