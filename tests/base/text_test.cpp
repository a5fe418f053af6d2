// Text from elsewhere on its way to people: nothing that a terminal obeys, valid UTF-8, bounded.
#include "base/diagnostic.h"
#include "base/log.h"
#include "base/text.h"
#include <gtest/gtest.h>
#include <random>

namespace tessera {
namespace {

TEST(Text, EscapesWhatATerminalObeys) {
  EXPECT_EQ(shown("plain, é, 漢字, 🙂"), "plain, é, 漢字, 🙂");
  EXPECT_EQ(shown("a\nb\tc\rd"), "a\\nb\\tc\\rd");
  EXPECT_EQ(shown(std::string_view("\0\x1b[31m\x7f", 7)), "\\x00\\x1b[31m\\x7f");
  EXPECT_EQ(shown("\xc2\x9b\xc2\x85"), "\\u009b\\u0085");                        // C1
  EXPECT_EQ(shown("\xe2\x80\xae\xe2\x81\xa6\xd8\x9c"), "\\u202e\\u2066\\u061c"); // bidirectional
  EXPECT_EQ(shown("\xe2\x80\xa8\xe2\x80\xa9\xef\xbb\xbf"), "\\u2028\\u2029\\ufeff");
  EXPECT_EQ(shown("\xf3\xa0\x81\x81"), "\\U000e0041"); // a tag
}

TEST(Text, RepairsUtf8) {
  EXPECT_EQ(shown("\xff\xfe"), "\\xff\\xfe");
  EXPECT_EQ(shown("\xc3"), "\\xc3");                            // ends within a character
  EXPECT_EQ(shown("\xe2\x80 x"), "\\xe2\\x80 x");               // interrupted
  EXPECT_EQ(shown("\xc0\x8a"), "\\xc0\\x8a");                   // overlong newline
  EXPECT_EQ(shown("\xe0\x80\x8a"), "\\xe0\\x80\\x8a");          // overlong
  EXPECT_EQ(shown("\xed\xa0\x80"), "\\xed\\xa0\\x80");          // a surrogate
  EXPECT_EQ(shown("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80"); // beyond U+10FFFF
}

TEST(Text, LeavesTheMiddleOut) {
  EXPECT_EQ(shown("0123456789", 10), "0123456789");
  EXPECT_EQ(shown("0123456789ab", 9), "012345 ...[3 bytes left out]... 9ab");
  const std::string big(5 << 20, 'A');
  const std::string text = shown("begin" + big + "end");
  EXPECT_LT(text.size(), kMaxShown + 64);
  EXPECT_TRUE(text.starts_with("beginAAA"));
  EXPECT_TRUE(text.ends_with("AAAend"));
  // No cut within a character.
  std::string wide;
  for (int i = 0; i < 1000; ++i) wide += "漢";
  for (size_t most = 1; most < 20; ++most) EXPECT_EQ(shown(wide, most).find('\\'), std::string::npos) << most;
}

TEST(Text, LinesStayLines) {
  EXPECT_EQ(shown_lines("a\tb\n\x1b\n\nc\n"), "a\tb\n\\x1b\n\nc\n");
  EXPECT_EQ(shown_lines("\t\n\t"), "\t\n\t");
  EXPECT_EQ(shown_lines(""), "");
  EXPECT_LT(shown_lines("a\n" + std::string(1 << 20, 'b') + "\nc").size(), kMaxShownLine + 128);
}

// The result for any bytes has none that are escaped, is shown as it is the next time, and a quoted string reads back.
TEST(Text, AnyBytes) {
  std::mt19937 rng(1);
  const std::string parts[] = {"a", "\\", "\"", "\n", "\x9b", "\xc2", "\xe2\x80", "\xae", "\xf0\x9f\x99\x82", "é"};
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (unsigned n = rng() % 12; n > 0; --n)
      text += rng() % 2 ? parts[rng() % std::size(parts)] : std::string(1, static_cast<char>(rng()));
    const std::string once = shown(text), quoted = quote(text);
    EXPECT_EQ(shown(once), once);
    EXPECT_EQ(shown(quoted), quoted);
    std::string back;
    EXPECT_EQ(unquote(quoted + "rest", back), quoted.size());
    EXPECT_EQ(back, text);
  }
  std::string unused;
  for (const char* broken : {"", "a", "\"", "\"a", "\"\\", "\"\\q\"", "\"\\x1\"", "\"\n\""})
    EXPECT_EQ(unquote(broken, unused), 0U) << broken;
}

TEST(Text, DiagnosticsAreOneLineForEachPart) {
  Diagnostic d(ErrorCode::BadInput,
               Location{.file = "m\n.onnx", .node = "\x1bN", .op = "O\xff", .output = "\xe2\x80\xae"},
               "name 'a\nerror TES-0000 forged: b'");
  for (int i = 0; i < 1000; ++i) d.note("call\n" + std::to_string(i));
  const std::string text = d.str();
  EXPECT_TRUE(text.starts_with("error TES-3008 bad-input: m\\n.onnx: node '\\x1bN' (O\\xff, output '\\u202e'): name "
                               "'a\\nerror TES-0000 forged: b'\n  note: call\\n0\n"))
      << text;
  EXPECT_NE(text.find("  note: ... (988 more)\n"), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("  note: call\\n999\n"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 14);
  EXPECT_EQ(d.message, "name 'a\nerror TES-0000 forged: b'"); // as it is, for programs
}

TEST(Text, LogLinesAreMarked) {
  std::string seen;
  set_log_sink([](void* user, std::string_view, std::string_view text) { *static_cast<std::string*>(user) += text; },
               &seen);
  EXPECT_EQ(set_log_channels("fusion"), "");
  TESSERA_LOGF(LogChannel::Fusion, "two\n[00:00:00.000] guards: forged \x1b\n");
  EXPECT_EQ(set_log_channels(""), "");
  set_log_sink(nullptr, nullptr);
  EXPECT_EQ(seen, "two\n  | [00:00:00.000] guards: forged \\x1b\n");
}

} // namespace
} // namespace tessera
