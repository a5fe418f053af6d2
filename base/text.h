// Text that comes from elsewhere (names in a model, paths, arguments), made fit to be shown.
//
// A terminal obeys control characters, bidirectional controls reorder what is read, and a newline in a name forges a
// line. So every sink of text for people (Diagnostic::str(), the log, reports, the command's output) writes what these
// functions return. They escape
//   control characters        C0, DEL and C1: U+0000-001F, U+007F-009F
//   bidirectional controls    U+061C, U+200E-200F, U+202A-202E, U+2066-2069
//   separators, invisible     U+2028-2029 (line, paragraph), U+200B, U+2060-2065, U+206A-206F, U+FEFF, U+FFF9-FFFB,
//                             tags U+E0000-E007F
//   bytes that are no UTF-8   overlong forms, surrogates, truncated sequences
// and leave every other character as it is, so that the result is valid UTF-8 and showing it once more changes nothing.
#pragma once
#include <string>
#include <string_view>

namespace tessera {

inline constexpr size_t kMaxShown = 1024;      // bytes of a message, a note or a name; the middle of more is left out
inline constexpr size_t kMaxShownLine = 16384; // bytes of one line of a text that has several

// One line: escaped as \n, \t, \r, \x1b (C0, DEL, invalid bytes) and \u202e (the rest). Of more than `most` bytes the
// beginning and the end are shown, with the number of bytes between: "AAAA ...[4998976 bytes left out]... AAAA".
[[nodiscard]] std::string shown(std::string_view text, size_t most = kMaxShown);
// A text whose lines are our own (a report, an IR): newlines and tabs stay, each line is shown().
[[nodiscard]] std::string shown_lines(std::string_view text, size_t most = kMaxShownLine);
// A string of our text forms, which read back the same bytes: "a\"b\n", with \" \\ \n \t, and \xNN for each byte of
// what shown() escapes.
[[nodiscard]] std::string quote(std::string_view text);
// Reads a string that quote() wrote at the beginning of `text`: puts it into `out` and returns how many bytes of `text`
// it took, both quotation marks included; 0 where `text` begins with no such string on one line.
[[nodiscard]] size_t unquote(std::string_view text, std::string& out);
// A string of JSON. Bytes that are no UTF-8 are replaced by U+FFFD each; then *repaired is set, else it stays.
[[nodiscard]] std::string json_quote(std::string_view text, bool* repaired);

} // namespace tessera
