// The report as one page that needs no other file: the page of tools/command/page, which the build embeds, around the report's JSON.
#include "explain.h"

namespace tessera::command {

// Written by page/embed.cmake.
extern const char* const kPageBefore;
extern const char* const kPageAfter;

namespace {

// JSON that ends no element of the page and holds no character that a reader's terminal obeys: ASCII, without '<'.
std::string in_script(const Json& j) {
  const std::string text = j.dump(-1, ' ', true, Json::error_handler_t::replace);
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  for (char c : text) {
    if (c == '<')
      out += "\\u003c";
    else if (c == '\x7f')
      out += "\\u007f";
    else
      out += c;
  }
  return out;
}

} // namespace

std::string explain_html(const Json& report) {
  for (const char* part : {"operators", "steps", "edges"}) (void)report.at(part).get_ref<const Json::array_t&>();
  return kPageBefore + in_script(report) + kPageAfter;
}

} // namespace tessera::command
