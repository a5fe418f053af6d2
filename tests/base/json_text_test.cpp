// JSON as text reads back as what was written.
#include "base/json_text.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

namespace tessera {
namespace {
using Json = nlohmann::json;

TEST(JsonText, ReadsBackAsItWasWritten) {
  JsonText j = JsonText::object({{"none", nullptr}, {"also", JsonText()}, {"flags", std::vector<bool>{true, false}}});
  j.add("empty", JsonText::array());
  j.add("nothing", JsonText::object());
  j.add("mixed", JsonText::array({"text", INT64_MIN, UINT64_MAX, false, JsonText::object({{"a \"key\"", 1}})}));
  j.add("nested", std::vector<std::vector<int>>{{}, {1}, {2, 3}});
  EXPECT_FALSE(j.repaired());
  const Json read = Json::parse(j.str());
  EXPECT_EQ(read, Json({{"none", nullptr},
                        {"also", nullptr},
                        {"flags", {true, false}},
                        {"empty", Json::array()},
                        {"nothing", Json::object()},
                        {"mixed", Json::array({"text", INT64_MIN, UINT64_MAX, false, Json{{"a \"key\"", 1}}})},
                        {"nested", Json::array({Json::array(), Json::array({1}), Json::array({2, 3})})}}));
}

// The text of any bytes is JSON; that of UTF-8 is the same text, that of others says so.
TEST(JsonText, AnyBytesAreAString) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes;
    for (size_t n = random() % 12; n > 0; --n) bytes += static_cast<char>(random() % (i % 2 ? 128 : 256));
    const JsonText text = JsonText::array({bytes});
    const bool is_utf8 = Json(bytes).dump(-1, ' ', true, Json::error_handler_t::ignore) ==
                         Json(bytes).dump(-1, ' ', true, Json::error_handler_t::replace);
    EXPECT_EQ(text.repaired(), !is_utf8);
    const Json read = Json::parse(text.str());
    if (is_utf8) {
      EXPECT_EQ(read.at(0).get<std::string>(), bytes);
    }
  }
  for (const char* text : {"ä€😀", "\x01\x1f\x7f\b\f\n\r\t\"\\/"}) {
    EXPECT_EQ(Json::parse(JsonText(text).str()).get<std::string>(), text);
    EXPECT_FALSE(JsonText(text).repaired());
  }
  bool repaired = false;
  EXPECT_EQ(json_quote("a\xff"
                       "b",
                       &repaired),
            "\"a\xef\xbf\xbd"
            "b\"");
  EXPECT_TRUE(repaired);
  JsonText outer = JsonText::object({{"a", JsonText::array({"\xc3"})}});
  EXPECT_TRUE(outer.repaired());
}

} // namespace
} // namespace tessera
