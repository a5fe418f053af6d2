// The report as a page: one file with everything in it. tests/browser drives it.
#include "harness.h"
#include "tessera_onnx.pb.h"

namespace tessera {
namespace {

using namespace command_test;

// The JSON within the page.
std::string report_in(const std::string& page) {
  const std::string begin = "<script type=\"application/json\" id=\"report\">";
  const size_t at = page.find(begin);
  if (at == std::string::npos) return "";
  const size_t end = page.find("</script>", at);
  return page.substr(at + begin.size(), end - at - begin.size());
}

TEST_F(Command, PageNeedsNoOtherFile) {
  expect(0, "explain '" + model("mlp") + "' --format html --tiles -o r.html --shape b=2 --shape s=3");
  expect(0, "explain '" + model("mlp") + "' --format json --tiles -o r.json --shape b=2 --shape s=3");
  const std::string page = read_text(path("r.html"));
  EXPECT_EQ(page.rfind("<!DOCTYPE html>", 0), 0u);
  for (const char* foreign : {"http:", "https:", "src=", "@import", "url(", "<link"})
    EXPECT_EQ(page.find(foreign), std::string::npos) << foreign;
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
  EXPECT_NE(page.find("Chris Pettitt"), std::string::npos) << "the licence of the layout library";
  Json in_page = Json::parse(report_in(page)), r = json("r.json");
  for (const char* part : {"operators", "edges", "guards", "totals", "memory", "sizes"})
    EXPECT_EQ(in_page[part], r[part]) << part;
  EXPECT_NE(page.find("tile.kernel"), std::string::npos);
}

// Names come from the model.
TEST_F(Command, PageEscapesNames) {
  const std::string name = "</script><script>alert(1)</script>&\"\u202e";
  onnx_proto::ModelProto proto;
  ASSERT_TRUE(proto.ParseFromString(read_text(model("mlp"))));
  for (auto& node : *proto.mutable_graph()->mutable_node()) node.set_name(name);
  std::ofstream(path("names.onnx"), std::ios::binary) << proto.SerializeAsString();
  expect(0, "explain names.onnx --format html -o r.html");
  const std::string page = read_text(path("r.html"));
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  for (unsigned char c : report_in(page))
    ASSERT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f && c != '<')) << static_cast<int>(c);
  EXPECT_EQ(Json::parse(report_in(page))["operators"][0]["name"], name);
}

} // namespace
} // namespace tessera
