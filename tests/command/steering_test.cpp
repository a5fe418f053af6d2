// Requests of a user, and plan files: --no-fuse, --break-at, --save-plan, --plan.
#include "../onnx/model_maker.h"
#include "harness.h"
#include <algorithm>

namespace tessera {
namespace {

using namespace command_test;
using namespace onnx_test;

// Normalised rows, a product with an activation, a residual.
Maker small_model() {
  Maker m;
  std::vector<float> weights;
  for (int i = 0; i < 8 * 8; ++i) weights.push_back(static_cast<float>(i % 7) / 5 - 0.5f);
  m.input("x", {"batch", 8});
  m.weight(float_tensor("weights", {8, 8}, weights));
  auto named = [&](const std::string& name) { m.model.mutable_graph()->mutable_node()->rbegin()->set_name(name); };
  m.add("Softmax", {"x"}, {"rows"}, {int_attribute("axis", -1)});
  named("soft");
  m.add("MatMul", {"rows", "weights"}, {"product"});
  named("mul");
  m.add("Tanh", {"product"}, {"active"});
  named("act");
  m.add("Add", {"active", "x"}, {"sum"});
  named("add");
  m.add("Exp", {"sum"}, {"y"});
  named("last");
  m.output("y");
  return m;
}

// The part of a report that says how the model is computed: steps, their operators and schedules.
Json plan_of(const Json& report) {
  Json out = Json::array();
  for (const Json& s : report.at("steps")) {
    Json step{{"id", s.at("id")}, {"operators", s.at("operators")}};
    if (s.contains("schedule")) step["schedule"] = s.at("schedule").at("config");
    out.push_back(std::move(step));
  }
  return out;
}

class Steering : public Command {
protected:
  void SetUp() override {
    Command::SetUp();
    std::ofstream(path("m.onnx"), std::ios::binary) << small_model().bytes();
  }
  Json explained(const std::string& options) {
    expect(0, "explain m.onnx --format json -o report.json " + options);
    return json("report.json");
  }
  static Json edge(const Json& report, const std::string& from, const std::string& to) {
    for (const Json& e : report.at("edges"))
      if (e.at("producer") == from && e.at("consumer") == to) return e;
    ADD_FAILURE() << "no edge from " << from << " to " << to;
    return {};
  }
  static bool together(const Json& report, const std::string& a, const std::string& b) {
    for (const Json& s : report.at("steps")) {
      auto has = [&](const std::string& name) {
        return std::find(s.at("operators").begin(), s.at("operators").end(), name) != s.at("operators").end();
      };
      if (has(a) && has(b)) return true;
    }
    return false;
  }
};

TEST_F(Steering, OperatorsStayApartByRequest) {
  for (const std::string device : {"--device cpu", "--device cuda --arch sm_90a --target h200"}) {
    SCOPED_TRACE(device);
    ASSERT_TRUE(together(explained(device), "act", "last"));
    const Json apart = explained(device + " --no-fuse act last");
    EXPECT_FALSE(together(apart, "act", "last"));
    const Json broken = explained(device + " --break-at add");
    EXPECT_FALSE(together(broken, "add", "last"));
    EXPECT_EQ(edge(broken, "add", "last").at("code"), "FUS-047");
    EXPECT_EQ(edge(broken, "add", "last").at("reason"), "kept-apart");
    EXPECT_FALSE(edge(broken, "add", "last").at("fused"));
  }
  // Several pairs, each of two; the next argument is the model.
  expect(0, "explain --device cpu --no-fuse act add --no-fuse add last m.onnx --format json -o report.json");
  EXPECT_FALSE(together(json("report.json"), "act", "add"));
  EXPECT_FALSE(together(json("report.json"), "add", "last"));
  // By the name of an output as well.
  EXPECT_FALSE(together(explained("--device cpu --no-fuse active y"), "act", "last"));
}

TEST_F(Steering, UnknownOperatorsAreErrors) {
  expect(2, "explain m.onnx --no-fuse act lsat",
         {"--no-fuse: the model has no operator 'lsat'", "did you mean 'last'?"});
  expect(2, "explain m.onnx --break-at ad", {"--break-at: the model has no operator 'ad'", "did you mean"});
  expect(2, "explain m.onnx --no-fuse act act", {"twice"});
  expect(2, "explain m.onnx --no-fuse act", {"--no-fuse"});
  expect(0, "compile m.onnx -o m.tsr --device cpu");
  expect(2, "run m.tsr --break-at add", {"m.tsr is a compiled file, to which --break-at cannot apply"});
}

// A plan that was saved with a request gives the same kernels without it, and the same bits.
TEST_F(Steering, APlanIsRepeated) {
  const std::string sizes = " --device cpu --shape batch=3 ";
  for (const std::string request : {"", "--no-fuse act last", "--break-at mul", "--no-fusion"}) {
    SCOPED_TRACE(request);
    const std::string other = request == "--no-fusion" ? " --no-fusion" : "";
    expect(0, "compile m.onnx -o m.tsr --save-plan plan.json" + sizes + request);
    expect(0, "run m.onnx --output-dir asked" + sizes + request);
    Outcome o = expect(0, "run m.onnx --output-dir repeated --plan plan.json --plan-strict" + sizes + other);
    EXPECT_EQ(o.err.find("warning"), std::string::npos) << o.err;
    EXPECT_EQ(read_text(path("asked/y.npy")), read_text(path("repeated/y.npy")));
    EXPECT_EQ(plan_of(explained(sizes + request)), plan_of(explained(sizes + other + " --plan plan.json")));
    // A plan that was read is written as it was.
    expect(0, "explain m.onnx --format json -o report.json --plan plan.json --save-plan again.json" + sizes + other);
    EXPECT_EQ(json("plan.json"), json("again.json"));
  }
}

TEST_F(Steering, APlanOfAGpuIsRepeated) {
  const std::string gpu = " --device cuda --arch sm_90a --target h200 ";
  expect(0, "explain m.onnx --format json -o r.json --save-plan plan.json --no-fuse act last" + gpu);
  // Other figures would choose other schedules.
  const Json requested = explained(gpu + "--no-fuse act last"),
             repeated = explained(gpu + "--plan plan.json --plan-strict");
  EXPECT_EQ(plan_of(requested), plan_of(repeated));
}

TEST_F(Steering, BodiesOfControlFlowHaveTheirPart) {
  fs::copy_file(model("if_data"), path("if.onnx"));
  expect(0, "explain if.onnx --format json -o r.json --device cpu --save-plan plan.json");
  ASSERT_TRUE(json("plan.json").contains("bodies"));
  Outcome o = expect(0, "run if.onnx --device cpu --plan plan.json --plan-strict");
  EXPECT_EQ(o.err.find("warning"), std::string::npos) << o.err;
}

TEST_F(Steering, WhatDoesNotFitIsNamed) {
  const std::string cpu = " --device cpu --shape batch=3 ";
  expect(0, "explain m.onnx --format json -o r.json --save-plan plan.json" + cpu);
  // Another model.
  expect(0, "run '" + model("mlp") + "' --device cpu --plan plan.json",
         {"warning", "of the plan file does not fit: the graph has no node", "the planner decides"});
  expect(2, "run '" + model("mlp") + "' --device cpu --plan plan.json --plan-strict",
         {"plan.json does not fit", "the graph has no node", "without --plan-strict"});
  // A schedule that is not legal; the rest counts.
  Json plan = json("plan.json");
  for (Json& g : plan["groups"])
    if (g.contains("schedules")) g["schedules"][0]["schedule"] = "flat axis=99 vector=4";
  std::ofstream(path("wrong.json")) << plan;
  expect(0, "run m.onnx --output-dir asked --plan wrong.json" + cpu,
         {"warning", "schedule 'flat axis=99 vector=4' does not fit", "the cost model chooses"});
  expect(0, "run m.onnx --output-dir plain" + cpu);
  EXPECT_EQ(read_text(path("asked/y.npy")), read_text(path("plain/y.npy")));
  plan["strict"] = true;
  std::ofstream(path("wrong.json")) << plan;
  expect(2, "run m.onnx --plan wrong.json" + cpu, {"wrong.json does not fit"});
  // Another device.
  expect(0, "explain m.onnx --format json -o r.json --device cuda --arch sm_90a --target h200 --plan plan.json",
         {"warning", "of the plan file does not fit", "is for hosts"});
}

TEST_F(Steering, DamagedFilesAreErrors) {
  expect(4, "run m.onnx --plan none.json", {"none.json"});
  std::ofstream(path("bad.json")) << "{}";
  expect(4, "run m.onnx --plan bad.json", {"bad.json", "it is no plan file"});
  expect(0, "explain m.onnx --format json -o r.json --device cpu --save-plan plan.json");
  const Json plan = json("plan.json");
  auto refused = [&](const std::string& what, auto change) {
    Json j = plan;
    change(j);
    std::ofstream(path("bad.json")) << j;
    expect(4, "run m.onnx --plan bad.json", {"bad.json", what});
  };
  refused("version 7", [](Json& j) { j["schema"]["version"] = 7; });
  refused("its schema is 'tessera.report'", [](Json& j) { j["schema"]["name"] = "tessera.report"; });
  refused("no kind 'kernels'", [](Json& j) { j["groups"][0]["kind"] = "kernels"; });
  refused("group 0 is unusable", [](Json& j) { j["groups"][0]["schedules"][0]["schedule"] = "stairs"; });
  refused("there is no part 9", [](Json& j) { j["groups"][0]["parts"] = {9}; });
  refused("it is no plan file", [](Json& j) { j["groups"][0]["nodes"] = 3; });
}

} // namespace
} // namespace tessera
