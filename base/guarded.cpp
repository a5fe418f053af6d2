#include "base/guarded.h"
#include "base/limits.h"
#include <array>
#include <new>
#include <stdexcept>
#include <system_error>

namespace tessera {
namespace {

// Diagnostics that are there already: an ordinary heap object each, since the error's owner deletes it.
std::array<std::atomic<Diagnostic*>, 64> aside{};
std::atomic<int> missing{static_cast<int>(aside.size())};

std::unique_ptr<Diagnostic> blank() noexcept {
  if (auto* fresh = new (std::nothrow) Diagnostic()) return std::unique_ptr<Diagnostic>(fresh);
  for (auto& place : aside)
    if (auto* taken = place.exchange(nullptr)) {
      missing.fetch_add(1);
      return std::unique_ptr<Diagnostic>(taken);
    }
  // All errors that were set aside are in use, and no memory has been free since the first.
  check_failed("memory for an error", __FILE__, __LINE__, "out of memory");
}

// Returns the code, text and notes of the exception that is being handled.
ErrorCode code_of(std::string& text, std::vector<std::string>& notes) {
  try {
    throw;
  } catch (const InternalError& e) {
    Diagnostic failed = e.diagnostic();
    text = std::move(failed.message);
    notes = std::move(failed.notes);
    notes.emplace_back("this is a bug in Tessera: please report it with the model");
    return ErrorCode::Internal;
  } catch (const std::bad_alloc&) {
    text = "memory is exhausted";
  } catch (const std::length_error&) {
    text = "a container would be larger than any memory";
  } catch (const std::system_error& e) {
    const auto& code = e.code();
    text = e.what();
    if (code != std::errc::not_enough_memory && code != std::errc::resource_unavailable_try_again)
      return ErrorCode::Internal;
    if (code == std::errc::resource_unavailable_try_again) { // of pthread_create
      text = "no thread can be started: " + text;
      notes = limit_notes(true);
    }
  } catch (const std::exception& e) {
    text = e.what();
    return ErrorCode::Internal;
  } catch (...) {
    text = "an exception of an unknown type";
    return ErrorCode::Internal;
  }
  return ErrorCode::OutOfMemory;
}

} // namespace

void set_errors_aside() noexcept {
  if (missing.load(std::memory_order_relaxed) == 0) [[likely]]
    return;
  for (auto& place : aside) {
    if (place.load() != nullptr) continue;
    auto* fresh = new (std::nothrow) Diagnostic();
    if (fresh == nullptr) return;
    Diagnostic* empty = nullptr;
    if (place.compare_exchange_strong(empty, fresh))
      missing.fetch_sub(1);
    else
      delete fresh;
  }
}

Failure exception_as_error(const Doing& doing) noexcept {
  auto error = blank();
  error->code = ErrorCode::OutOfMemory;
  try {
    std::string text;
    std::vector<std::string> notes;
    ErrorCode code = code_of(text, notes);
    error->message = doing.what;
    if (!doing.name.empty()) error->message.append(" '").append(doing.name).append("'");
    error->message += ": " + text;
    error->code = code;
    if (code == ErrorCode::OutOfMemory)
      error->notes = notes.empty() ? limit_notes(false) : std::move(notes);
    else if (notes.empty())
      error->note("this is a bug in Tessera: an exception where none is expected");
    else
      error->notes = std::move(notes);
  } catch (...) { // no memory for the text
    error->notes.clear();
    error->message = "out of memory"; // needs none: std::string holds that many characters itself
  }
  return Failure(std::move(error));
}

} // namespace tessera
