#include "base/text.h"
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>

namespace tessera {
namespace {

struct Character {
  char32_t code = 0;
  size_t bytes = 1;
  bool valid = true; // UTF-8; otherwise one byte, `code` its value
};

// The character at `at` of UTF-8 text (RFC 3629: no overlong form, no surrogate, at most U+10FFFF).
Character decode(std::string_view s, size_t at) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(s[at + i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {first};
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  const Character invalid{first, 1, false};
  if (first < 0xc2 || first > 0xf4 || s.size() - at < bytes) return invalid;
  char32_t code = first & (0x7fU >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return invalid;
    code = code << 6 | (byte(i) & 0x3f);
  }
  const char32_t least = bytes == 4 ? 0x10000 : bytes == 3 ? 0x800 : 0x80;
  if (code < least || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return invalid;
  return {code, bytes};
}

struct CodeRange {
  char32_t first, last;
};
constexpr std::array kEscaped = {
    CodeRange{0x00, 0x1f},     CodeRange{0x7f, 0x9f},       CodeRange{0x61c, 0x61c},   CodeRange{0x200b, 0x200b},
    CodeRange{0x200e, 0x200f}, CodeRange{0x2028, 0x202e},   CodeRange{0x2060, 0x206f}, CodeRange{0xfeff, 0xfeff},
    CodeRange{0xfff9, 0xfffb}, CodeRange{0xe0000, 0xe007f},
};
bool is_escaped(const Character& c) {
  return !c.valid || std::any_of(kEscaped.begin(), kEscaped.end(),
                                 [&](const CodeRange& r) { return c.code >= r.first && c.code <= r.last; });
}

void append_escape(std::string& out, const Character& c) {
  const char* letter = c.code == '\n' ? "\\n" : c.code == '\t' ? "\\t" : c.code == '\r' ? "\\r" : nullptr;
  char buffer[16];
  if (letter == nullptr) {
    const char* form = !c.valid || c.code < 0x80 ? "\\x%02x" : c.code <= 0xffff ? "\\u%04x" : "\\U%08x";
    std::snprintf(buffer, sizeof buffer, form, static_cast<unsigned>(c.code));
  }
  out += letter != nullptr ? letter : buffer;
}

void append_shown(std::string& out, std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Character c = decode(text, at);
    if (is_escaped(c))
      append_escape(out, c);
    else
      out += text.substr(at, c.bytes);
    at += c.bytes;
  }
}

// The letter after the backslash, in JSON; 0 where it has none.
char json_escape(char32_t code) {
  switch (code) {
  case '"':
  case '\\': return static_cast<char>(code);
  case '\b': return 'b';
  case '\f': return 'f';
  case '\n': return 'n';
  case '\r': return 'r';
  case '\t': return 't';
  default: return 0;
  }
}

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

} // namespace

std::string shown(std::string_view text, size_t most) {
  std::string out;
  if (text.size() <= most) {
    append_shown(out, text);
    return out;
  }
  // Two thirds of the room are the beginning's. Neither cut falls into a character, which has at most three
  // continuation bytes.
  size_t head = most - most / 3, tail = text.size() - most / 3;
  for (int i = 0; i < 3 && head > 0 && continues_character(text[head]); ++i) --head;
  for (int i = 0; i < 3 && tail < text.size() && continues_character(text[tail]); ++i) ++tail;
  append_shown(out, text.substr(0, head));
  out += " ...[" + std::to_string(tail - head) + " bytes left out]... ";
  append_shown(out, text.substr(tail));
  return out;
}

std::string shown_lines(std::string_view text, size_t most) {
  std::string out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t newline = text.find('\n', begin), end = std::min(newline, text.size());
    for (size_t at = begin; at <= end;) { // tabs lay columns out and stay
      const size_t tab = std::min(text.find('\t', at), end);
      out += shown(text.substr(at, tab - at), most);
      if (tab < end) out += '\t';
      at = tab + 1;
    }
    if (newline != std::string_view::npos) out += '\n';
    begin = end + 1;
  }
  return out;
}

std::string quote(std::string_view text) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out = "\"";
  for (size_t at = 0; at < text.size();) {
    const Character c = decode(text, at);
    const std::string_view bytes = text.substr(at, c.bytes);
    if (c.code == '"' || c.code == '\\')
      out += {'\\', bytes[0]};
    else if (c.code == '\n')
      out += "\\n";
    else if (c.code == '\t')
      out += "\\t";
    else if (!is_escaped(c))
      out += bytes;
    else
      for (char b : bytes) out += {'\\', 'x', kDigits[static_cast<unsigned char>(b) >> 4], kDigits[b & 15]};
    at += c.bytes;
  }
  return out + "\"";
}

std::string json_quote(std::string_view text, bool* repaired) {
  std::string out = "\"";
  out.reserve(text.size() + 2);
  for (size_t at = 0; at < text.size();) {
    const Character c = decode(text, at);
    if (!c.valid) {
      out += "\xef\xbf\xbd";
      *repaired = true;
    } else if (const char letter = json_escape(c.code)) {
      out += {'\\', letter};
    } else if (c.code < 0x20) {
      char buffer[8];
      std::snprintf(buffer, sizeof buffer, "\\u%04x", static_cast<unsigned>(c.code));
      out += buffer;
    } else {
      out += text.substr(at, c.bytes);
    }
    at += c.bytes;
  }
  return out + "\"";
}

size_t unquote(std::string_view text, std::string& out) {
  auto digit = [&](size_t at) {
    const char c = at < text.size() ? text[at] : '\0';
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  out.clear();
  if (!text.starts_with('"')) return 0;
  for (size_t at = 1; at < text.size() && text[at] != '\n'; ++at) {
    if (text[at] == '"') return at + 1;
    if (text[at] != '\\') {
      out += text[at];
      continue;
    }
    const char escape = ++at < text.size() ? text[at] : '\0';
    if (escape == 'n' || escape == 't') {
      out += escape == 'n' ? '\n' : '\t';
    } else if (escape == '"' || escape == '\\') {
      out += escape;
    } else if (escape == 'x' && digit(at + 1) >= 0 && digit(at + 2) >= 0) {
      out += static_cast<char>(digit(at + 1) * 16 + digit(at + 2));
      at += 2;
    } else {
      return 0;
    }
  }
  return 0;
}

} // namespace tessera
