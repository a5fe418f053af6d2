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

// Both reports in one file, with what differs; names come from the models.
TEST_F(Command, PageOfTwoReports) {
  const std::string mlp = "'" + model("mlp") + "' --device cpu --shape b=2 --shape s=3";
  expect(1, "diff " + mlp + " --with no-fusion -o d.html --json d.json");
  const std::string page = read_text(path("d.html"));
  EXPECT_EQ(page.rfind("<!DOCTYPE html>", 0), 0u);
  const Json j = Json::parse(report_in(page));
  EXPECT_EQ(j["diff"], json("d.json"));
  for (const char* side : {"a", "b"}) EXPECT_TRUE(j[side].contains("steps")) << side;
  EXPECT_NE(j["a"]["totals"]["kernels"], j["b"]["totals"]["kernels"]);
  // The page of each is that of `explain`.
  expect(0, "explain " + mlp + " -o r.html");
  const std::string one = read_text(path("r.html"));
  const std::string before = j["page"][0], after = j["page"][1];
  EXPECT_EQ(one.rfind(before, 0), 0u);
  EXPECT_EQ(one.substr(one.size() - after.size()), after);
  for (unsigned char c : report_in(page)) ASSERT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f && c != '<'));
  expect(0, "diff '" + model("mlp") + "' " + mlp + " -o same.html");
  expect(2, "diff " + mlp + " --with no-fusion -o d.html --format json", {"leave one of them out"});
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
