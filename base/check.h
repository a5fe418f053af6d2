// Internal checks. A failed check is a bug in Tessera, never the user's fault: it prints the condition, the place and
// what was being worked on, then aborts. Bad input must be reported as a Diagnostic (diagnostic.h) before it can reach
// one.
#pragma once
#include <string>
#include <string_view>

namespace tessera {

// Prints "internal error: ..." with file, line, the current work (see CheckContext) and aborts.
[[noreturn]] void check_failed(const char* condition, const char* file, int line, std::string_view what);

// While alive, names what this thread is working on ("pass cse on graph main"); failed checks print the stack of these.
class CheckContext {
public:
  explicit CheckContext(std::string what);
  ~CheckContext();
  CheckContext(const CheckContext&) = delete;
  CheckContext& operator=(const CheckContext&) = delete;
};

} // namespace tessera

#define TESSERA_CHECK(cond, what)                                                                                      \
  do {                                                                                                                 \
    if (!(cond)) [[unlikely]]                                                                                          \
      ::tessera::check_failed(#cond, __FILE__, __LINE__, (what));                                                      \
  } while (0)
#define TESSERA_UNREACHABLE(what) ::tessera::check_failed("unreachable", __FILE__, __LINE__, (what))
