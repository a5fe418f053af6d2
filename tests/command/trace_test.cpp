// Measured steps: the Chrome trace, times joined to the report, one count of bytes, ranges for profilers.
#include "../onnx/model_maker.h"
#include "harness.h"
#include <algorithm>
#include <map>
#include <set>

namespace tessera {
namespace {

using namespace command_test;

std::map<std::string, Json> steps_by_id(const Json& report) {
  std::map<std::string, Json> out;
  for (const Json& s : report["steps"]) out.emplace(s["id"].get<std::string>(), s);
  return out;
}

// Slices of one thread are one behind the other or one within the other.
void expect_nested(const std::vector<Json>& slices) {
  std::vector<std::pair<double, double>> spans, open;
  for (const Json& e : slices) spans.emplace_back(e["ts"], e["ts"].get<double>() + e["dur"].get<double>());
  std::sort(spans.begin(), spans.end(),
            [](const auto& a, const auto& b) { return a.first != b.first ? a.first < b.first : a.second > b.second; });
  constexpr double kRounding = 1e-3; // of a nanosecond's double of microseconds
  for (const auto& s : spans) {
    while (!open.empty() && open.back().second <= s.first + kRounding) open.pop_back();
    if (!open.empty()) {
      EXPECT_LE(s.second, open.back().second + kRounding);
    }
    open.push_back(s);
  }
}

TEST_F(Command, TraceHasEveryStepOfTheReport) {
  const std::string arguments = "'" + model("mlp") + "' --device cpu";
  expect(0, "bench " + arguments + " --seconds 0 --min-runs 3 --no-cold --trace t.json --json b.json", {"step"});
  expect(0, "explain " + arguments + " --format json -o r.json");
  const Json trace = json("t.json"), bench = json("b.json");
  const auto steps = steps_by_id(json("r.json"));
  std::map<std::pair<int, int>, std::vector<Json>> threads;
  std::map<int, Json> starts, ends;
  std::set<std::string> named, seen;
  std::map<int, size_t> submitted, ran; // by call
  for (const Json& e : trace["traceEvents"]) {
    const std::string ph = e["ph"];
    if (ph == "M") named.insert(e["name"].get<std::string>() + " " + e["pid"].dump());
    if (ph == "s") starts[e["id"]] = e;
    if (ph == "f") ends[e["id"]] = e;
    if (ph != "X") continue;
    EXPECT_GE(e["dur"].get<double>(), 0);
    threads[{e["pid"], e["tid"]}].push_back(e);
    const std::string category = e["cat"];
    if (category != "step" && category != "submit" && category != "host step") continue;
    const std::string name = e["name"];
    ++(category == "step" ? ran : submitted)[e["args"]["call"].get<int>()];
    seen.insert(name);
    ASSERT_TRUE(steps.contains(name)) << name;
    EXPECT_EQ(e["args"]["bytes"], steps.at(name)["bytes"]["at_sizes"]) << name;
    EXPECT_EQ(e["args"]["operators"], steps.at(name)["operators"]) << name;
  }
  for (const auto& [id, step] : steps) EXPECT_TRUE(seen.contains(id)) << id;
  EXPECT_GE(ran.size(), 4u) << "the first call, and three";
  for (const auto& [call, count] : ran) EXPECT_EQ(count, steps.size());
  EXPECT_EQ(ran, submitted);
  for (const char* name : {"process_name 1", "process_name 2", "thread_name 1", "thread_name 2"})
    EXPECT_TRUE(named.contains(name)) << name;
  for (const auto& [thread, slices] : threads) expect_nested(slices);
  EXPECT_EQ(starts.size(), ran.size() * steps.size());
  ASSERT_EQ(starts.size(), ends.size());
  for (const auto& [id, start] : starts) {
    ASSERT_TRUE(ends.contains(id));
    EXPECT_LE(start["ts"], ends[id]["ts"]);
    EXPECT_NE(start["pid"], ends[id]["pid"]);
  }
  // Phases of the host, planning in the first call alone being of a new shape.
  std::set<std::string> phases;
  for (const Json& e : threads[{1, 1}])
    if (e["cat"] == "phase") phases.insert(e["name"]);
  EXPECT_EQ(phases, (std::set<std::string>{"bind", "guards", "inputs", "plan", "results"}));
  ASSERT_EQ(bench["steps"].size(), steps.size());
}

// A Gather reads some rows of its table, not all: explain, run and bench count the same.
TEST_F(Command, BytesOfStepsAreTheReports) {
  constexpr int64_t kRows = 5000, kColumns = 16;
  onnx_test::Maker maker;
  maker.input("ids", {"b", 7}, onnx_proto::TensorProto::INT64).input("y", {"b", 7, kColumns});
  maker.weight(onnx_test::float_tensor("table", {kRows, kColumns}, std::vector<float>(kRows * kColumns, 0.5f)));
  maker.add("Gather", {"table", "ids"}, {"rows"}).add("Add", {"rows", "y"}, {"z"}).output("z", {"b", 7, kColumns});
  std::ofstream(path("embedding.onnx"), std::ios::binary) << maker.bytes();
  for (const std::string& file : {path("embedding.onnx"), model("mlp"), model("shapes"), model("nonzero")}) {
    const std::string name = fs::path(file).stem();
    const std::string arguments = "'" + file + "' --device cpu";
    expect(0, "bench " + arguments + " --seconds 0 --min-runs 1 --warmup 1 --no-cold --profile --json b.json");
    expect(0, "explain " + arguments + " --format json -o r.json");
    expect(0, "compile " + arguments + " -o m.tsr");
    expect(0, "bench m.tsr --seconds 0 --min-runs 1 --warmup 1 --profile --json f.json");
    const auto steps = steps_by_id(json("r.json"));
    const Json b = json("b.json"), f = json("f.json");
    ASSERT_EQ(b["steps"].size(), f["steps"].size());
    for (const Json& s : b["steps"])
      if (name == "embedding") {
        EXPECT_LT(s["bytes"].get<int64_t>(), kRows * kColumns * 4);
      }
    for (size_t i = 0; i < b["steps"].size(); ++i) {
      const Json& s = b["steps"][i];
      const Json& reported = steps.at(s["name"])["bytes"]["at_sizes"];
      if (!reported.is_null()) {
        EXPECT_EQ(s["bytes"], reported) << name << " " << s["name"];
      }
      EXPECT_EQ(s["bytes"], f["steps"][i]["bytes"]) << "of the compiled file";
      EXPECT_EQ(s["name"], f["steps"][i]["name"]);
    }
  }
}

// Both routes of a library call have run, on the same report.
TEST_F(Command, RoutesOfLibraryCallsAreMeasured) {
  const std::string arguments = "'" + model("mlp") + "' --device cpu --measure-routes --seconds 0";
  expect(0, "explain " + arguments + " -o r.json");
  int calls = 0;
  const Json report = json("r.json");
  for (const Json& s : report["steps"]) {
    if (s["kind"] != "library") continue;
    ++calls;
    int measured = 0;
    for (const Json& r : s["routes"]) {
      measured += r.contains("measured_us") ? 1 : 0;
      if (r["taken"].get<bool>()) {
        EXPECT_EQ(r["measured_us"], s["measured_us"]);
      } else if (r["kind"] == "loops") {
        EXPECT_GT(r["measured_us"].get<double>(), 0);
        EXPECT_GE(r["with"].get<int>(), 0);
      }
    }
    EXPECT_EQ(measured, 2) << s["id"];
  }
  EXPECT_GT(calls, 0);
  expect(0, "explain r.json --kernel 0", {"generated loops", "times as fast as"});
  expect(2, "explain r.json --measure-routes", {"a stored report cannot be measured"});
}

TEST_F(Command, MeasuredTimesJoinTheReport) {
  const std::string arguments = "'" + model("mlp") + "' --device cpu --shape b=3";
  expect(0, "explain " + arguments + " --measure --seconds 0 --format json -o m.json");
  // Measured times are compared with prices of the machine that they were measured on, unless a target is given.
  EXPECT_EQ(json("m.json")["figures"], "this machine");
  expect(0, "explain " + arguments + " --measure --seconds 0 --target avx2 --format json -o avx2.json");
  EXPECT_EQ(json("avx2.json")["figures"], "avx2");
  const Json measured = json("m.json");
  for (const Json& s : measured["steps"]) EXPECT_GT(s["measured_us"].get<double>(), 0) << s["id"];
  EXPECT_GT(measured["totals"]["measured_us"].get<double>(), 0);
  expect(0, "bench " + arguments + " --seconds 0 --min-runs 2 --no-cold --trace t.json --json b.json");
  for (const char* file : {"t.json", "b.json"}) {
    expect(0, "explain " + arguments + " --profile " + file + " --format json -o p.json");
    const Json joined = json("p.json");
    for (const Json& s : joined["steps"]) EXPECT_GT(s["measured_us"].get<double>(), 0) << file << " " << s["id"];
  }
  const Json bench = json("b.json");
  const auto steps = steps_by_id(json("p.json"));
  for (const Json& s : bench["steps"])
    EXPECT_NEAR(steps.at(s["name"])["measured_us"].get<double>(), s["ms"].get<double>() * 1e3, 1e-6);
  // A stored report takes a profile, too; options that exclude each other are refused.
  expect(0, "explain " + arguments + " --format json -o r.json");
  expect(0, "explain r.json --profile b.json --format json -o again.json");
  EXPECT_EQ(json("again.json")["totals"]["measured_us"], json("p.json")["totals"]["measured_us"]);
  expect(2, "explain r.json --measure", {"a stored report cannot be measured"});
  expect(2, "explain " + arguments + " --measure --profile b.json", {"exclude each other"});
  expect(4, "explain '" + model("mlp") + "' --shape b=4 --profile b.json", {"were measured at", "b=3", "b=4"});
  expect(4, "explain " + arguments + " --profile r.json", {"holds no times of steps", "bench MODEL --profile"});
  Json other = bench;
  other["steps"][0]["name"] = "k0_another";
  std::ofstream(path("other.json")) << other.dump();
  if (bench["steps"].size() > 1)
    expect(0, "explain " + arguments + " --profile other.json --format json -o o.json",
           {"measured and not in the report: 'k0_another'", "in the report and not measured"});
}

TEST_F(Command, RangesNameCallsAndSteps) {
  const std::string fake =
      "TESSERA_CUDA_PATH='" TESSERA_BINARY_DIR "/fake_nvtx' FAKE_NVTX_LOG='" + path("ranges") + "' ";
  expect(0, "explain '" + model("mlp") + "' --device cpu --format json -o r.json");
  const Json report = json("r.json");
  auto ran = [&](const std::string& environment, const std::string& option) {
    fs::remove(path("ranges"));
    const std::string line = "cd '" + folder_ + "' && " + environment + fake +
                             "'" TESSERA_BINARY_DIR "/bin/tessera' run '" + model("mlp") + "' --device cpu " + option +
                             " >out.txt 2>err.txt";
    EXPECT_EQ(std::system(line.c_str()), 0) << read_text(path("err.txt"));
    std::vector<std::string> lines;
    std::istringstream in(read_text(path("ranges")));
    for (std::string l; std::getline(in, l);) lines.push_back(l);
    return lines;
  };
  for (const auto& [environment, option] : {std::pair("", "--nvtx"), std::pair("TESSERA_NVTX=1 ", "")}) {
    const auto lines = ran(environment, option);
    ASSERT_EQ(lines.size(), 2 * report["steps"].size() + 2);
    for (size_t s = 0; s < report["steps"].size(); ++s) {
      EXPECT_EQ(lines[2 * s + 1], report["steps"][s]["id"]) << "within the call";
      EXPECT_EQ(lines[2 * s + 2], "pop");
    }
    EXPECT_EQ(lines.back(), "pop");
  }
  EXPECT_EQ(read_text(path("err.txt")).find("no profiler"), std::string::npos);
  ran("", "--nvtx");
  EXPECT_NE(read_text(path("err.txt")).find("no profiler receives the ranges: NVTX_INJECTION64_PATH is not set"),
            std::string::npos);
  EXPECT_TRUE(ran("TESSERA_NVTX=0 ", "").empty());
  const std::string without = "cd '" + folder_ +
                              "' && TESSERA_CUDA_WITHOUT=nvtx '" TESSERA_BINARY_DIR "/bin/tessera' run '" +
                              model("mlp") + "' --device cpu --nvtx >out.txt 2>err.txt";
  EXPECT_EQ(WEXITSTATUS(std::system(without.c_str())), 3);
  EXPECT_NE(read_text(path("err.txt")).find("NVTX is left out"), std::string::npos) << read_text(path("err.txt"));
}

} // namespace
} // namespace tessera
