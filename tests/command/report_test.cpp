// The report as text, over a small report and over those of whole models: what is asked, what is answered.
#include "harness.h"
#include "report/report.h"
#include <random>
#include <regex>

namespace tessera {
namespace {

using namespace command_test;
namespace report = command::report;

Json small() { return Json::parse(read_text(TESSERA_SOURCE_DIR "/tests/command/small_report.json")); }

void expect_texts(const std::string& text, const std::vector<std::string>& texts) {
  for (const auto& t : texts) EXPECT_NE(text.find(t), std::string::npos) << "no '" << t << "' in\n" << text;
}
std::string answer(const Result<std::string>& r) { return r.ok() ? *r : "error: " + r.error().str(); }
std::string error(const Result<std::string>& r) { return r.ok() ? "" : r.error().str(); }

// Expects the limits that every screen keeps to.
void expect_screen(const std::string& text, long lines) {
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), lines) << text;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) EXPECT_LE(line.size(), command::screen_width()) << line;
}

TEST(ReportText, TheOverviewIsOneScreen) {
  const std::string text = report::overview(small(), false);
  expect_screen(text, 48);
  expect_texts(text, {"small.onnx", "cuda sm_90a", "b=4", "10 operators -> 3 kernels + 2 library calls, 5 launches",
                      "10.2 kB instead of 20.5 kB", "50 % saved", "predicted 99.0 us", "x2", "c0_matmul_add", "FUS-031",
                      "change the model: multiply the weight instead", "FUS-033", "1 assumed", "--why-not"});
  // The two equal products are one line, and it is the first.
  EXPECT_NE(text.find("80.0 us"), std::string::npos) << text;
  EXPECT_EQ(text.find("c2_matmul_add"), std::string::npos) << text;
  EXPECT_EQ(text.find('\033'), std::string::npos);
}

TEST(ReportText, WhatAChangeSavesComesFirstAndTheRestIsALine) {
  Json j = small();
  const std::string text = report::overview(j, false);
  EXPECT_LT(text.find("saves 1.2 us"), text.find("right so, no change would fuse them")) << text;
  EXPECT_EQ(text.find("nothing to do"), std::string::npos) << text;
  for (Json& e : j["edges"])
    if (!e["fused"].get<bool>()) e["counterfactual"]["change"] = "none";
  expect_texts(report::overview(j, false), {"a change would save: none", "right so"});
}

TEST(ReportText, FitsNarrowScreens) {
  for (const char* columns : {"40", "60", "100"}) {
    ::setenv("COLUMNS", columns, 1);
    const std::string text = report::overview(small(), false);
    ::unsetenv("COLUMNS");
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) EXPECT_LE(line.size(), std::stoul(columns)) << line;
  }
}

TEST(ReportText, StepsInsideOfControlFlowCountAsOftenAsTheyRun) {
  Json j = small();
  Json &control = j["steps"][0], &inner = j["steps"][1];
  control["bodies"] = Json::array();
  control["price"]["us"] = 100;
  control["price"]["terms_us"] = {{"bodies", 90}, {"iterations", 10}};
  inner["inside"] = control["id"];
  inner["runs"] = 9;
  EXPECT_EQ(report::View::predicted_us(control), 10);
  EXPECT_EQ(report::View::predicted_us(inner), 9 * inner["price"]["us"].get<double>());
  inner["runs"] = nullptr; // the loop's length is known only when it runs
  EXPECT_EQ(report::View::predicted_us(inner), std::nullopt);
}

TEST(ReportText, ColoursChangeNoWord) {
  const std::string text = report::overview(small(), true);
  EXPECT_NE(text.find("\033["), std::string::npos);
  EXPECT_EQ(std::regex_replace(text, std::regex("\033\\[[0-9;]*m"), ""), report::overview(small(), false));
}

TEST(ReportText, FullNamesEverything) {
  const Json j = small();
  const std::string text = report::full(j);
  for (const auto& s : j["steps"]) expect_texts(text, {s["id"].get<std::string>()});
  for (const auto& e : j["edges"])
    if (!e["fused"].get<bool>()) expect_texts(text, {e["code"].get<std::string>(), e["producer"].get<std::string>()});
}

TEST(ReportText, AKernelIsFoundByIndexIdAndBeginning) {
  const Json j = small();
  for (const char* name : {"1", "k1", "k1_softmax_mul"}) {
    const std::string text = answer(report::kernel(j, name));
    expect_screen(text, 45);
    expect_texts(text, {"k1_softmax_mul, step 1, kernel", "predicted 10.0 us", "bound by memory", "40 registers",
                        "occupancy 50 %", "Softmax_2", "FUS-032", "FUS-031"});
  }
  expect_texts(answer(report::kernel(j, "c0")), {"one of 2", "cuBLASLt", "taken", "slower", "matmul"});
  expect_texts(error(report::kernel(j, "k1_sotfmax_mul")),
               {"there is no step", "did you mean 'k1_softmax_mul'?", "0 to 4"});
  expect_texts(error(report::kernel(j, "17")), {"there is no step '17'", "0 to 4"});
}

TEST(ReportText, AnOperatorIsFoundByNameLineModuleAndType) {
  const Json j = small();
  for (const char* name : {"Softmax_2", "model.py:42", "src/model.py:42", "Softmax"}) {
    const std::string text = answer(report::operators(j, name));
    expect_texts(text, {"Softmax_2: Softmax", "layers.0.attn", "k1_softmax_mul", "FUS-032", "FUS-005"});
  }
  expect_texts(answer(report::operators(j, "layers.0")), {"4 operators", "MatMul_0", "Mul_3"});
  expect_texts(answer(report::operators(j, "Add_1")), {"2 operators", "Add_1#2"});
  expect_texts(answer(report::operators(j, "Shape_6")), {"folded"});
  expect_texts(error(report::operators(j, "Sofmax_2")), {"no operator", "did you mean 'Softmax_2'?"});
}

TEST(ReportText, WhyNotOfEveryKindOfPair) {
  const Json j = small();
  // An edge, from both sides.
  for (const auto& [a, b] : {std::pair("Mul_3", "MatMul_4"), std::pair("MatMul_4", "Mul_3")})
    expect_texts(answer(report::why_not(j, a, b)),
                 {"FUS-031", "not fused", "1.2 us", "Mul_3 (src/model.py:43) -> MatMul_4", "change the model"});
  expect_texts(answer(report::why_not(j, "Softmax_2", "Mul_3")), {"fused in k1_softmax_mul", "FUS-005", "saves"});
  // A path: each edge that stays unfused.
  const std::string path = answer(report::why_not(j, "MatMul_0", "Add_5"));
  expect_texts(path, {"5 edges", "FUS-032", "Add_1 (src/model.py:41) -> Softmax_2", "1.5 us", "nothing to do"});
  EXPECT_NE(path.find("FUS-031"), std::string::npos) << path;
  // No path: the verdict of their kernels, else that nothing is shared.
  expect_texts(answer(report::why_not(j, "Mul_3", "Neg_8")), {"FUS-042", "each moves more than a launch is worth"});
  expect_texts(answer(report::why_not(j, "MatMul_0", "Relu_7")), {"FUS-042", "at most a launch", "FUS-010"});
  expect_texts(answer(report::why_not(j, "Shape_6", "Relu_7")), {"FUS-042", "folded when compiling"});
  expect_texts(answer(report::why_not(j, "Relu_7", "Add_1#2")), {"FUS-039", "known only when it runs"});
  // One operator is needed on each side.
  expect_texts(error(report::why_not(j, "layers.0.fc", "Mul_3")), {"2 operators", "MatMul_0"});
  expect_texts(error(report::why_not(j, "Mul_3", "Mul_3")), {"are one operator"});
}

TEST(ReportText, MemoryHasThePeakAndLifetimes) {
  const std::string text = report::memory(small());
  expect_screen(text, 45);
  expect_texts(text, {"arena 3.1 kB", "peak 3.1 kB", "at step 1", "Mul_3_out", "0-1", "#"});
}

TEST(ReportText, TextsOfKernels) {
  const Json j = small();
  expect_texts(answer(report::ir(j, "nest", "")), {"# k1_softmax_mul", "nest Softmax_2", "nest Relu_7"});
  const std::string one = answer(report::ir(j, "nest", "k3"));
  EXPECT_EQ(one, "nest Relu_7 outer(i0: b) {\n}\n");
  expect_texts(error(report::ir(j, "ptx", "k1")), {"'k1_softmax_mul'", "has no ptx text"});
  expect_texts(error(report::ir(j, "llvm", "")), {"no llvm texts"});
}

class ReportCommand : public Command {};

// A report that was stored answers as its model does, and a damaged one is one clear error.
TEST_F(ReportCommand, StoredReportsAnswer) {
  const std::string shapes = " --shape b=2,s=3";
  expect(0, "explain '" + model("mlp") + "'" + shapes + " -o r.json");
  for (const char* question : {"", "--full", "--kernel 0", "--memory", "--guards", "--op MatMul", "--ir nest"}) {
    const Outcome of_model = run("explain '" + model("mlp") + "'" + shapes + " " + question),
                  stored = run("explain r.json " + std::string(question));
    EXPECT_EQ(of_model.code, stored.code) << stored.err;
    EXPECT_EQ(of_model.out, stored.out) << question;
  }
  expect(2, "explain r.json --shape b=3", {"stored report", "--shape"});
  expect(0, "explain r.json --memory --json again.json");
  EXPECT_EQ(json("again.json"), json("r.json"));

  std::mt19937 rng(1);
  const Json whole = json("r.json");
  std::ofstream(path("cut.json")) << read_text(path("r.json")).substr(0, 1000);
  expect(4, "explain cut.json", {"cut.json: the report cannot be read"});
  std::ofstream(path("other.json")) << "{\"schema\": {\"name\": \"tessera.report\", \"version\": 9}}";
  expect(4, "explain other.json", {"version is 9", "reads 1"});
  std::ofstream(path("list.json")) << "[1]";
  expect(4, "explain list.json", {"the report cannot be read"});
}

TEST(ReportText, ADamagedReportIsAnErrorAndNoCrash) {
  std::mt19937 rng(1);
  const Json others[] = {7,      "x",  nullptr,       Json::array({1}), Json{{"expression", "1/0"}},
                         -1e300, true, Json::array(), Json::object()};
  for (int round = 0; round < 3000; ++round) {
    Json j = small();
    Json* at = &j;
    while (at->is_structured() && !at->empty() && (at == &j || rng() % 4 != 0)) {
      auto it = at->begin();
      std::advance(it, static_cast<std::ptrdiff_t>(rng() % at->size()));
      at = &*it;
    }
    *at = others[rng() % std::size(others)];
    const auto quietly = [](const auto& call) {
      try {
        (void)call();
      } catch (const Json::exception&) {
      } catch (const std::out_of_range&) {
      }
    };
    quietly([&] { return report::overview(j, false); });
    quietly([&] { return report::full(j); });
    quietly([&] { return report::memory(j); });
    quietly([&] { return report::kernel(j, "k1"); });
    quietly([&] { return report::operators(j, "layers.0"); });
    quietly([&] { return report::why_not(j, "MatMul_0", "Add_5"); });
    quietly([&] { return report::why_not(j, "MatMul_0", "Neg_8"); });
    quietly([&] { return report::ir(j, "nest", "k1"); });
  }
}

TEST_F(ReportCommand, TheExtensionIsTheFormat) {
  const std::string mlp = "explain '" + model("mlp") + "' ";
  expect(0, mlp + "-o x.html");
  EXPECT_EQ(read_text(path("x.html")).rfind("<!DOCTYPE html>", 0), 0u);
  expect(0, mlp + "-o x.json");
  EXPECT_EQ(json("x.json")["schema"]["name"], "tessera.report");
  expect(0, mlp + "-o x.txt");
  EXPECT_EQ(read_text(path("x.txt")), run(mlp).out);
  expect(0, mlp + "-o y.json --format json");
  expect(0, mlp + "-o y.out --format json");
  EXPECT_EQ(json("y.json")["totals"], json("y.out")["totals"]);
  expect(2, mlp + "-o x.html --format json", {"x.html", "html by its extension", "--format says json"});
  expect(2, mlp + "-o x.htm", {"'.htm'", ".txt, .json and .html"});
  EXPECT_FALSE(fs::exists(path("x.htm")));
}

TEST_F(ReportCommand, ColourIsForTerminals) {
  const std::string mlp = "explain '" + model("mlp") + "' ";
  EXPECT_EQ(run(mlp).out.find('\033'), std::string::npos);
  EXPECT_NE(run(mlp + "--color always").out.find('\033'), std::string::npos);
  EXPECT_EQ(run(mlp + "--color never").out.find('\033'), std::string::npos);
  expect(2, mlp + "--color allways", {"--color 'allways' is none of auto, always, never", "did you mean 'always'?"});
}

TEST_F(ReportCommand, TextsOfTheCompile) {
  const std::string mlp = "explain '" + model("mlp") + "' ";
  expect(0, mlp + "--ir graph", {"graph", "matmul"});
  expect(0, mlp + "--ir nest", {"nest "});
  expect(0, mlp + "--ir tile", {"tile.kernel"});
  expect(0, mlp + "--ir llvm", {"define "});
  expect(0, mlp + "--ir ptx --device cuda --arch sm_90", {".entry"});
  expect(2, mlp + "--ir ptx --device cpu", {"no ptx texts"});
}

// Any two operators of a real model: an answer names a code, a price and both operators.
TEST_F(ReportCommand, AnyTwoOperatorsOfBertHaveAVerdict) {
  expect(0, "explain '" TESSERA_SOURCE_DIR "/models/bert.dynamo.f32.onnx' -o bert.json");
  const Json j = json("bert.json");
  expect_screen(report::overview(j, false), 50);
  const Json& all = j["operators"];
  std::mt19937 rng(26);
  const std::regex code("FUS-[0-9]{3}"),
      price("(saves|costs)[^,]* [0-9.]+ (us|ms|s)|price unknown|costs at most a launch");
  for (int round = 0; round < 500; ++round) {
    const size_t a = rng() % all.size(), b = rng() % all.size();
    if (a == b) continue;
    const std::string first = all[a]["id"], second = all[b]["id"];
    const auto text = report::why_not(j, first, second);
    ASSERT_TRUE(text.ok()) << text.error().str();
    EXPECT_TRUE(std::regex_search(*text, code)) << *text;
    EXPECT_NE(text->find("us"), std::string::npos) << *text;
    EXPECT_NE(text->find(first), std::string::npos) << *text;
    EXPECT_NE(text->find(second), std::string::npos) << *text;
    EXPECT_LE(std::count(text->begin(), text->end(), '\n'), 45) << *text;
  }
  // Each edge's own verdict is what its two ends get.
  for (size_t i = 0; i < j["edges"].size(); i += 37) {
    const Json& e = j["edges"][i];
    if (e["producer"] == e["consumer"]) continue; // between the parts of one operator
    const auto text = report::why_not(j, e["producer"], e["consumer"]);
    ASSERT_TRUE(text.ok());
    EXPECT_NE(text->find(e["code"].get<std::string>()), std::string::npos) << *text;
  }
}

TEST_F(ReportCommand, CodesHavePages) {
  for (const char* word : {"FUS-037", "fus-037", "recompute-too-expensive", "recompute-too-dear"})
    expect(0, std::string("explain --code ") + word,
           {"# FUS-037 recompute-too-expensive", "## What to do", "```graph"});
  expect(0, "explain --code list", {"FUS-001", "view-folded", "FUS-047", "kept-apart"});
  expect(0, "explain --code FUS-043 --json -", {"\"change\": \"option\"", "\"page\": "});
  expect(2, "explain --code recompute-to-expensive",
         {"recompute-to-expensive", "did you mean 'recompute-too-expensive'?"});
  expect(2, "explain --code FUS-037 '" + model("mlp") + "'", {"leave out the model"});
  expect(2, "explain", {"needs a model"});
}

} // namespace
} // namespace tessera
