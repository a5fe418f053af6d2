// Text for people: numbers with units, tables, lines of progress.
#include "command.h"
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <sys/ioctl.h>
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

namespace {
bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }

// Widths of columns that fit into `most`, with two columns between them: cells are clipped to a readable width, the last
// columns left out where that is not enough.
void fit(std::vector<size_t>& widths, size_t most) {
  constexpr size_t kLeast = 12;
  const auto total = [&](size_t cell) {
    size_t sum = 0;
    for (size_t w : widths) sum += std::min(w, cell) + 2;
    return sum < 2 ? 0 : sum - 2;
  };
  while (widths.size() > 1 && total(kLeast) > most) widths.pop_back();
  size_t cell = widths.empty() ? kLeast : *std::max_element(widths.begin(), widths.end());
  while (cell > kLeast && total(cell) > most) --cell;
  for (size_t& w : widths) w = std::min(w, cell);
}
} // namespace

std::string clipped(const std::string& s, size_t most) {
  if (s.size() <= most) return s;
  const size_t kept = most - 3;
  size_t head = kept * 2 / 3, tail = s.size() - (kept - head); // the end of a name is worth as much
  while (head > 0 && !begins_character(s[head])) --head;
  while (tail < s.size() && !begins_character(s[tail])) ++tail;
  return s.substr(0, head) + "..." + s.substr(tail);
}

size_t screen_width() {
  constexpr size_t kWidth = 100, kLeast = 40;
  winsize size{};
  size_t columns = kWidth;
  if (const char* variable = std::getenv("COLUMNS")) {
    const std::string_view text = variable;
    size_t value = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc()) columns = value;
  } else if (::isatty(STDOUT_FILENO) != 0 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    columns = size.ws_col;
  }
  return std::clamp(columns, kLeast, kWidth);
}

std::string Table::str(const std::string& indent, size_t most) const {
  std::vector<size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  }
  fit(widths, most > indent.size() ? most - indent.size() : most);
  std::string out;
  for (const auto& row : rows_) {
    std::string line = indent;
    for (size_t i = 0; i < row.size() && i < widths.size(); ++i) {
      const std::string cell = width(row[i]) > widths[i] ? clipped(row[i], widths[i]) : row[i];
      std::string pad(widths[i] - std::min(widths[i], width(cell)), ' ');
      bool right = std::find(right_.begin(), right_.end(), i) != right_.end();
      line += (i > 0 ? "  " : "") + (right ? pad + cell : cell + pad);
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
