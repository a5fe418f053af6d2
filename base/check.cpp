#include "base/check.h"
#include "base/recover.h"
#include "base/text.h"
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace tessera {
namespace {
std::vector<std::string>& contexts() {
  thread_local std::vector<std::string> stack;
  return stack;
}
} // namespace

namespace {
[[noreturn]] void print_and_abort(const char* condition, const char* file, int line, std::string_view what) {
  const std::string text = shown(what);
  std::fprintf(stderr, "tessera: internal error: %.*s\n  check: %s\n  at %s:%d\n", static_cast<int>(text.size()),
               text.data(), condition, file, line);
  const auto& stack = contexts();
  for (auto it = stack.rbegin(); it != stack.rend(); ++it) std::fprintf(stderr, "  while: %s\n", shown(*it).c_str());
  std::fprintf(stderr,
               "This is a bug in Tessera. Please report it with the model; TESSERA_DUMP_DIR=DIR saves each stage.\n");
  std::fflush(stderr);
  std::abort();
}
} // namespace

void check_failed(const char* condition, const char* file, int line, std::string_view what) {
  if (RecoveryScope::open())
    throw InternalError(what, condition, std::string(file) + ":" + std::to_string(line), contexts());
  print_and_abort(condition, file, line, what);
}

void memory_check_failed(const char* condition, const char* file, int line, std::string_view what) {
  print_and_abort(condition, file, line, what);
}

CheckContext::CheckContext(std::string what) { contexts().push_back(std::move(what)); }
CheckContext::~CheckContext() { contexts().pop_back(); }

} // namespace tessera
