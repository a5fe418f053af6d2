#include "runtime/cuda/assembler_log.h"
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <set>

namespace tessera::cuda {
namespace {

template <class F>
void each_line(const std::string& text, const F& f) {
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find('\n', at), text.size());
    f(std::string_view(text).substr(at, end - at));
    at = end + 1;
  }
}

// The number directly before `words`, -1 when they do not occur.
int number_before(std::string_view line, std::string_view words) {
  size_t at = line.find(words);
  if (at == std::string_view::npos) return -1;
  size_t begin = at;
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(line[begin - 1]))) --begin;
  return begin == at ? -1 : std::atoi(std::string(line.substr(begin, at - begin)).c_str());
}

std::string trimmed(std::string_view s) {
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.front()))) s.remove_prefix(1);
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.back()))) s.remove_suffix(1);
  return std::string(s);
}

std::string line_of(const std::string& text, int number) {
  int n = 0;
  std::string found;
  each_line(text, [&](std::string_view line) {
    if (++n == number) found = trimmed(line);
  });
  return found;
}

// "... (C7510) ...": ptxas's advisories about wgmma that it had to serialise.
bool is_serialised(std::string_view line) {
  size_t at = line.find("(C75");
  return at != std::string_view::npos && at + 6 < line.size() &&
         std::isdigit(static_cast<unsigned char>(line[at + 4])) &&
         std::isdigit(static_cast<unsigned char>(line[at + 5])) && line[at + 6] == ')';
}

} // namespace

Status check_arch(const std::string& arch) {
  size_t digits = 3;
  while (digits < arch.size() && std::isdigit(static_cast<unsigned char>(arch[digits]))) ++digits;
  std::string_view rest = std::string_view(arch).substr(std::min(digits, arch.size()));
  if (arch.rfind("sm_", 0) == 0 && digits > 3 && (rest.empty() || rest == "a" || rest == "f")) return {};
  return Diagnostic(ErrorCode::Usage, "'" + arch + "' is no GPU architecture; one is written like sm_90");
}

void read_resources(const std::string& log, Cubin& cubin) {
  auto most = [](int& into, int value) {
    if (value >= 0) into = std::max(into, value);
  };
  each_line(log, [&](std::string_view line) {
    if (int registers = number_before(line, " registers"); registers >= 0) {
      most(cubin.registers, registers);
      most(cubin.shared_bytes, std::max(0, number_before(line, " bytes smem"))); // not printed when there is none
    }
    most(cubin.stack_bytes, number_before(line, " bytes stack frame"));
    if (int spills = number_before(line, " bytes spill stores"); spills >= 0)
      cubin.spill_bytes = std::max(cubin.spill_bytes, 0) + spills;
  });
}

std::string refused_by_log(const std::string& log) {
  std::string found;
  each_line(log, [&](std::string_view line) {
    if (found.empty() && is_serialised(line)) found = trimmed(line);
  });
  return found;
}

Diagnostic assembling_failed(const std::string& assembler, const std::string& arch, const std::string& log,
                             const std::string& ptx) {
  std::string first;
  std::vector<std::string> others;
  std::set<int> lines;
  each_line(log, [&](std::string_view line) {
    bool error = line.find("error") != std::string_view::npos || line.find("fatal") != std::string_view::npos;
    if (!error && !is_serialised(line)) return;
    if (first.empty())
      first = trimmed(line);
    else if (others.size() < 8)
      others.push_back(trimmed(line));
    if (size_t at = line.find("line "); at != std::string_view::npos)
      if (int n = std::atoi(std::string(line.substr(at + 5)).c_str()); n > 0) lines.insert(n);
  });
  if (first.empty()) first = log.empty() ? "no reason was given" : trimmed(log);
  Diagnostic d(ErrorCode::CodegenError, assembler + " refuses a kernel for " + arch + ": " + first);
  int told = 0;
  for (int n : lines)
    if (auto text = line_of(ptx, n); !text.empty() && told++ < 4) d.note("line " + std::to_string(n) + ": " + text);
  for (auto& o : others) d.note(std::move(o));
  return d;
}

} // namespace tessera::cuda
