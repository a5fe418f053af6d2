// The pages of reasons: one for each code, and what their examples claim is what a compile does.
#include "frontend/model.h"
#include "report/pages.h"
#include "report/report.h"
#include <algorithm>
#include <filesystem>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

namespace tessera {
namespace {

using Json = nlohmann::json;

// The text of a page about one graph: "`tessera opt FILE --device cpu` ... `a` and `b`", then the graph.
struct Example {
  std::string command, graph;
  std::pair<std::string, std::string> pair;
};

std::vector<Example> examples(std::string_view page) {
  const std::string text(page);
  static const std::regex form("`tessera opt FILE ([^`]*)`[^`]*`(\\w+)`\\s+and\\s+`(\\w+)`[^`]*```graph\n([^`]*)```");
  std::vector<Example> out;
  for (std::sregex_iterator it(text.begin(), text.end(), form), end; it != end; ++it)
    out.push_back({(*it)[1], (*it)[4], {(*it)[2], (*it)[3]}});
  return out;
}

CompileOptions options_of(const std::string& command) {
  CompileOptions options;
  options.cache = false;
  std::istringstream words(command);
  for (std::string word; words >> word;) {
    if (word == "--device")
      words >> options.device;
    else if (word == "--arch")
      words >> options.arch;
    else if (word == "--no-fusion")
      options.fusion = false;
    else if (word == "--no-fuse")
      words >> options.no_fuse.emplace_back().first >> options.no_fuse.back().second;
    else
      ADD_FAILURE() << "an option that the test does not know: " << word;
  }
  return options;
}

Json report_of(const Example& example) {
  auto graph = parse_graph(example.graph);
  EXPECT_TRUE(graph.ok()) << graph.error().str() << example.graph;
  if (!graph.ok()) return {};
  auto compiled = compile(std::move(*graph), options_of(example.command));
  EXPECT_TRUE(compiled.ok()) << compiled.error().str() << example.graph;
  if (!compiled.ok()) return {};
  return Json::parse(report_text(*compiled, {}, {}));
}

// An operator's name without "#2", which distinguishes its parts.
std::string whole(const Json& id) {
  const auto text = id.get<std::string>();
  return text.substr(0, text.find('#'));
}

// The verdicts of the two operators, of edges and of pairs.
std::vector<Json> between(const Json& report, const std::pair<std::string, std::string>& pair) {
  std::vector<Json> out;
  for (const auto& [list, from, to] :
       {std::tuple{"edges", "producer", "consumer"}, std::tuple{"pairs", "first", "second"}})
    for (const Json& e : report.at(list))
      if (const std::pair ends(whole(e.at(from)), whole(e.at(to)));
          ends == pair || ends == std::pair(pair.second, pair.first))
        out.push_back(e);
  return out;
}

std::vector<FusionReason> all_reasons() {
  std::vector<FusionReason> out;
  for (int r = 0; r < static_cast<int>(FusionReason::Count_); ++r) out.push_back(static_cast<FusionReason>(r));
  return out;
}

TEST(Pages, EveryCodeHasOneAndEachIsOfACode) {
  std::set<std::string> expected, found;
  for (FusionReason r : all_reasons()) {
    const auto& reason = info(r);
    const std::string page(reason_page(reason)), code(reason.code);
    expected.insert(code + ".md");
    EXPECT_TRUE(page.starts_with("# " + code + " " + std::string(reason.name) + "\n\n" +
                                 (reason.fused ? "Fused: " : "Not fused: ") + std::string(reason.summary) + ".\n"))
        << code << "\n"
        << page;
    const bool nothing = page.find("## What to do\n\nNothing") != std::string::npos;
    EXPECT_EQ(nothing, reason.change == FusionChange::None) << code;
    EXPECT_EQ(reason.advice.empty(), reason.fused) << code;
    EXPECT_LE(std::count(page.begin(), page.end(), ' '), 450) << code << ": a page is short";
    EXPECT_EQ(find_reason(reason.code), &reason);
    EXPECT_EQ(find_reason(reason.name), &reason);
    EXPECT_TRUE(reason.alias.empty() || find_reason(reason.alias) == &reason) << reason.alias;
  }
  for (const auto& file : std::filesystem::directory_iterator(std::string(TESSERA_SOURCE_DIR) + "/docs/fusion"))
    if (file.path().filename() != "README.md") found.insert(file.path().filename().string());
  EXPECT_EQ(found, expected);
  EXPECT_EQ(find_reason("FUS-999"), nullptr);
}

class Page : public testing::TestWithParam<FusionReason> {};

TEST_P(Page, ExampleShowsTheCode) {
  const auto& reason = info(GetParam());
  const auto found = examples(reason_page(reason));
  ASSERT_GE(found.size(), 1u);
  const Json report = report_of(found[0]);
  const auto verdicts = between(report, found[0].pair);
  const auto it =
      std::find_if(verdicts.begin(), verdicts.end(), [&](const Json& e) { return e.at("code") == reason.code; });
  ASSERT_NE(it, verdicts.end()) << report.at("edges").dump(1) << report.at("pairs").dump(1);
  if (reason.fused)
    EXPECT_FALSE(it->contains("counterfactual"));
  else
    EXPECT_EQ(it->at("counterfactual"), (Json{{"change", name(reason.change)}, {"text", reason.advice}}));
}

// The second graph of a page follows its advice: both operators are in one kernel or library call there. A page that
// advises to do nothing has none.
TEST_P(Page, AdviceFusesThePair) {
  const auto& reason = info(GetParam());
  const auto found = examples(reason_page(reason));
  ASSERT_GE(found.size(), 1u);
  if (reason.change == FusionChange::None && found.size() < 2) return;
  if (found.size() < 2) {
    EXPECT_EQ(reason.code, "FUS-038") << "the page follows its own advice";
    return;
  }
  const Json report = report_of(found[1]);
  const auto verdicts = between(report, found[1].pair);
  EXPECT_FALSE(verdicts.empty()) << report.at("edges").dump(1);
  EXPECT_TRUE(std::any_of(verdicts.begin(), verdicts.end(), [](const Json& e) { return e.at("fused") == true; }))
      << report.at("edges").dump(1);
}

std::vector<FusionReason> with_example() {
  auto out = all_reasons();
  std::erase(out, FusionReason::LeftToPyTorch);   // no graph of Tessera's
  std::erase(out, FusionReason::InternalFailure); // no graph that must fail
  return out;
}

INSTANTIATE_TEST_SUITE_P(Codes, Page, testing::ValuesIn(with_example()), [](const auto& tested) {
  std::string name(tessera::info(tested.param).name);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(Pages, AtLeastTenFollowTheirAdvice) {
  size_t n = 0;
  for (FusionReason r : all_reasons()) n += examples(reason_page(info(r))).size() == 2;
  EXPECT_GE(n, 10u);
}

// Amounts of a detail are those of the sizes at which it is reported; where the planner's decision would turn out the
// other way there, the report says at which it was made.
TEST(Pages, DetailsHoldAtTheSizesOfTheReport) {
  const auto found = examples(reason_page(info(FusionReason::RecomputeTooExpensive)));
  ASSERT_EQ(found.size(), 1u);
  auto graph = parse_graph(found[0].graph);
  ASSERT_TRUE(graph.ok());
  auto compiled = compile(std::move(*graph), options_of(found[0].command));
  ASSERT_TRUE(compiled.ok()) << compiled.error().str();
  auto detail = [&](int64_t n, int64_t s) {
    ReportOptions options;
    options.sizes = {{"n", n}, {"s", s}};
    const auto verdicts = between(Json::parse(report_text(*compiled, {}, options)), found[0].pair);
    return verdicts.empty() ? std::string() : verdicts[0].at("detail").get<std::string>();
  };
  const std::string planned = detail(128, 128), half = detail(128, 64);
  EXPECT_NE(planned.find("computed 54.5 MB, stored 16.4 kB"), std::string::npos) << planned;
  EXPECT_NE(half.find("computed 27.3 MB, stored 8.2 kB"), std::string::npos) << half;
  EXPECT_EQ(planned.find("decided at"), std::string::npos) << planned;
}

TEST(Pages, DetailsSayWhenOtherSizesWouldDecideOtherwise) {
  const SymExpr n = SymExpr::symbol("n");
  SizeSum quadratic;
  quadratic.add(n * n, 0.5);
  SizeSum linear(n * 100);
  Detail detail("computed ");
  detail << quadratic << ", stored " << linear;
  detail.compared(linear, quadratic); // at n = 1000, storing is cheaper
  auto at = [&](int64_t size) {
    return [&n, size](const SymExpr& e) -> std::optional<double> {
      auto v = e.eval({{n.symbol_id(), size}});
      return v.ok() ? std::optional(static_cast<double>(*v)) : std::nullopt;
    };
  };
  EXPECT_EQ(detail_text(detail, at(1000)), "computed 500.0 kB, stored 100.0 kB");
  EXPECT_FALSE(decided_otherwise(detail, at(1000)));
  EXPECT_TRUE(decided_otherwise(detail, at(100)));
  Detail more("first; ");
  more.append(detail) << "; last";
  EXPECT_TRUE(decided_otherwise(more, at(100)));
  EXPECT_EQ(detail_text(more, at(2000)), "first; computed 2.0 MB, stored 200.0 kB; last");
  EXPECT_NE(detail_text(more, [](const SymExpr&) { return std::optional<double>(); }).find("only a run knows"),
            std::string::npos);
}

} // namespace
} // namespace tessera
