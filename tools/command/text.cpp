// Text for people: numbers with units, tables, lines of progress.
#include "command.h"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <unistd.h>

namespace tessera::command {

std::string format_number(double v, int digits) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.*f", digits, v);
  return buffer;
}

std::string format_bytes(double bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  size_t unit = 0;
  while (std::fabs(bytes) >= 999.5 && unit + 1 < std::size(kUnits)) bytes /= 1000, ++unit;
  return format_number(bytes, unit == 0 || bytes >= 99.95 ? 0 : 1) + " " + kUnits[unit];
}

std::string format_ms(double ms) {
  if (ms >= 1000) return format_number(ms / 1000, 2) + " s";
  if (ms >= 1) return format_number(ms, 2) + " ms";
  return format_number(ms * 1000, 1) + " us";
}

void say(std::string_view text) { std::fputs(shown_lines(text).c_str(), stdout); }
void say_note(const std::string& text) { std::fprintf(stderr, "note: %s\n", shown(text).c_str()); }
void say_warning(const std::string& text) { std::fprintf(stderr, "warning: %s\n", shown(text).c_str()); }

namespace {
// Characters of UTF-8 text: continuation bytes take no column.
size_t width(const std::string& s) {
  return static_cast<size_t>(
      std::count_if(s.begin(), s.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}
} // namespace

void Table::add(std::vector<std::string> row) {
  for (std::string& cell : row) cell = shown(cell);
  rows_.push_back(std::move(row));
}

std::string Table::str(const std::string& indent) const {
  std::vector<size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line = indent;
    for (size_t i = 0; i < row.size(); ++i) {
      std::string pad(widths[i] - width(row[i]), ' ');
      bool right = std::find(right_.begin(), right_.end(), i) != right_.end();
      line += (i > 0 ? "  " : "") + (right ? pad + row[i] : row[i] + pad);
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    out += line + "\n";
  }
  return out;
}

Progress::Progress() : terminal_(::isatty(STDERR_FILENO) != 0) {}

void Progress::show(const std::string& text) {
  if (!terminal_) return;
  std::fprintf(stderr, "\r\033[K%s", shown(text, 80).c_str());
  std::fflush(stderr);
  shown_ = true;
}

void Progress::clear() {
  if (!shown_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  shown_ = false;
}

} // namespace tessera::command
