// Two reports compared, and rules that a report has to keep.
#include "harness.h"
#include "tessera_onnx.pb.h"
#include <map>

namespace tessera {
namespace {

using namespace command_test;

// The model with other names of its nodes, as another exporter gives them.
void rename_nodes(const std::string& from, const std::string& to) {
  onnx_proto::ModelProto m;
  std::ifstream in(from, std::ios::binary);
  ASSERT_TRUE(m.ParseFromIstream(&in));
  int n = 0;
  for (auto& node : *m.mutable_graph()->mutable_node()) node.set_name("other_" + std::to_string(n++));
  std::ofstream(to, std::ios::binary) << m.SerializeAsString();
}

TEST_F(Command, AModelIsTheSameAsItself) {
  for (const char* name : {"mlp", "norm", "loop", "nonzero"}) {
    expect(0, "diff '" + model(name) + "' '" + model(name) + "' --device cpu --json d.json", {"the same plan"});
    const Json d = json("d.json");
    EXPECT_TRUE(d["same"].get<bool>());
    EXPECT_TRUE(d["edges"].empty());
    EXPECT_TRUE(d["steps"].empty());
    EXPECT_TRUE(d["operators"]["only_a"].empty());
  }
}

TEST_F(Command, AnotherExportersNamesMatchByStructure) {
  rename_nodes(model("mlp"), path("other.onnx"));
  expect(0, "diff '" + model("mlp") + "' other.onnx --device cpu --json d.json", {"the same plan"});
  const Json d = json("d.json");
  EXPECT_EQ(d["operators"]["by_name"], 0);
  EXPECT_GT(d["operators"]["by_structure"].get<int>(), 0);
  // The edge that differs is found under both names.
  expect(1, "diff '" + model("mlp") + "' other.onnx --device cpu --with no-fusion --json d.json");
  const Json e = json("d.json")["edges"][0];
  EXPECT_TRUE(e["in_b"][0].get<std::string>().starts_with("other_"));
}

TEST_F(Command, ADifferenceHasBothCodesAndTheSteps) {
  const std::string both = "'" + model("mlp") + "' --device cpu";
  expect(0, "explain " + both + " --format json -o a.json");
  expect(0, "explain " + both + " --no-fusion --format json -o b.json");
  expect(1, "diff " + both + " --with no-fusion --json d.json", {"only fused in A", "slower in B", "launches"});
  const Json d = json("d.json"), a = json("a.json"), b = json("b.json");
  EXPECT_FALSE(d["same"].get<bool>());
  // Every edge whose code differs, and no other.
  std::map<std::string, std::string> codes;
  for (const Json& e : b["edges"]) codes[e["id"]] = e["code"];
  size_t differing = 0;
  for (const Json& e : a["edges"]) differing += codes.contains(e["id"]) && codes[e["id"]] != e["code"] ? 1 : 0;
  EXPECT_GT(differing, 0u);
  EXPECT_EQ(d["edges"].size(), differing);
  for (const Json& e : d["edges"]) EXPECT_NE(e["a"]["code"], e["b"]["code"]);
  for (const Json& t : d["totals"])
    if (t["name"] == "launches") {
      EXPECT_EQ(t["a"], a["totals"]["launches"]);
      EXPECT_EQ(t["b"], b["totals"]["launches"]);
    }
  bool divided = false;
  for (const Json& s : d["steps"])
    divided = divided || (!s["divided_alike"].get<bool>() && s["b"].size() > s["a"].size());
  EXPECT_TRUE(divided);
  // Stored reports give the same as models; turned round, A and B change places.
  expect(1, "diff a.json b.json --json stored.json");
  EXPECT_EQ(json("stored.json")["edges"], d["edges"]);
  expect(1, "diff b.json a.json --json turned.json", {"only fused in B", "faster in B"});
  EXPECT_EQ(json("turned.json")["edges"].size(), differing);
}

TEST_F(Command, WhatCannotBeCompared) {
  expect(2, "diff '" + model("mlp") + "'", {"nothing to compare", "--with device=cuda"});
  expect(2, "diff '" + model("mlp") + "' --with no-fusoin",
         {"--with: there is no option '--no-fusoin'", "--no-fusion"});
  std::ofstream(path("x.json")) << "{\"a\": 1}";
  expect(4, "diff x.json '" + model("mlp") + "'", {"x.json: the report cannot be read"});
  std::ofstream(path("v.json")) << R"({"schema": {"name": "tessera.report", "version": 7}})";
  expect(4, "diff v.json v.json", {"version is 7"});
  expect(0, "explain '" + model("mlp") + "' --device cpu --format json -o a.json");
  expect(2, "diff a.json a.json --with no-fusion", {"both are stored reports"});
}

class Rules : public Command {
protected:
  // Exit code and text of a rule file checked on the norm model's stored report.
  Outcome check(const std::string& rules) {
    if (!fs::exists(path("r.json"))) expect(0, "explain '" + model("mlp") + "' --device cpu --format json -o r.json");
    std::ofstream(path("ci.rules")) << rules;
    return run("explain r.json --rules ci.rules --json out.json");
  }
  void holds(const std::string& rule) {
    const Outcome o = check(rule);
    EXPECT_EQ(o.code, 0) << rule << "\n" << o.err;
    EXPECT_TRUE(json("out.json")["rules"]["violations"].empty());
  }
  void breaks(const std::string& rule, const std::string& why) {
    const Outcome o = check("# a comment\n\n  " + rule + "   # why\n");
    EXPECT_EQ(o.code, 1) << rule << "\n" << o.err;
    EXPECT_NE(o.err.find("ci.rules:3: broken: " + rule + ": "), std::string::npos) << o.err;
    EXPECT_NE(o.err.find(why), std::string::npos) << o.err;
    EXPECT_EQ(json("out.json")["rules"]["violations"][0]["line"], 3);
  }
  void refused(const std::string& rules, const std::string& where, const std::string& why) {
    const Outcome o = check(rules);
    EXPECT_EQ(o.code, 4) << rules;
    EXPECT_NE(o.err.find(where), std::string::npos) << o.err;
    EXPECT_NE(o.err.find(why), std::string::npos) << o.err;
  }
};

TEST_F(Rules, HoldOrSayWhatBreaksThem) {
  check("");
  const Json report = json("r.json");
  const std::string launches = report["totals"]["launches"].dump();
  holds("require launches <= " + launches);
  holds("require launches == " + launches + "\nrequire bytes < 1 GB\nforbid host-operators\nforbid computed-sizes\n");
  breaks("require launches < " + launches, "launches is " + launches);
  breaks("require measured-us < 1 s", "--measure or --profile FILE adds it");
  const Json *fused = nullptr, *apart = nullptr;
  for (const Json& e : report["edges"]) (e["fused"].get<bool>() ? fused : apart) = &e;
  ASSERT_NE(fused, nullptr);
  const auto name = [](const Json& id) { return "\"" + id.get<std::string>() + "\""; };
  const std::string pair = name((*fused)["producer"]) + " with " + name((*fused)["consumer"]);
  holds("require fused " + pair);
  breaks("forbid fused " + pair, (*fused)["code"]);
  holds("forbid fused \"nothing*\" with \"*\"");
  breaks("require fused \"nothing*\" with \"*\"", "no value goes from an operator");
  breaks("forbid code " + (*fused)["code"].get<std::string>(), (*fused)["reason"]);
  breaks("forbid code " + (*fused)["code"].get<std::string>() + " between " + name((*fused)["producer"]) + " and \"*\"",
         (*fused)["reason"]);
  breaks("require \"nothing*\" is one kernel", "no operator of the model is called \"nothing*\"");
  breaks("require op \"Nothing\" is one kernel", "no operator of the model is of type \"Nothing\"");
  // The operators of a step, by the operator's names.
  for (const Json& s : report["steps"])
    if (s["launches"] == 1 && !s["operators"].empty()) holds("require " + name(s["operators"][0]) + " is one kernel");
  if (report["totals"]["kernels"].get<int>() + report["totals"]["library_calls"].get<int>() > 1)
    breaks("require \"*\" is one kernel", "operators are in");
}

TEST_F(Rules, ErrorsNameLineAndColumn) {
  refused("require lanches <= 3", "ci.rules:1:9", "did you mean 'launches'?");
  refused("\nrequired launches <= 3", "ci.rules:2:1", "did you mean 'require'?");
  refused("require launches 3", "ci.rules:1:18", "one of <=, <");
  refused("require launches <= many", "ci.rules:1:21", "a number");
  refused("require launches <= 3 MB", "ci.rules:1:23", "the end of the rule, or a unit");
  refused("require bytes <= 3 MiB", "ci.rules:1:20", "kB");
  refused("forbid hostoperators", "ci.rules:1:8", "did you mean 'host-operators'?");
  refused("forbid code FUS-999", "ci.rules:1:13", "a code such as FUS-034");
  refused("require fused attention with \"b\"", "ci.rules:1:15", "a pattern in quotes");
  refused("require \"attention", "ci.rules:1:9", "has no closing quote");
  refused("require \"a\" is one", "ci.rules:1:19", "the line ends where 'kernel' is expected");
  refused("require launches <= 3 4", "ci.rules:1:23", "is expected");
  refused("require @", "ci.rules:1:9", "begins no word");
  expect(4, "explain '" + model("mlp") + "' --device cpu --rules none.rules", {"none.rules"});
}

} // namespace
} // namespace tessera
