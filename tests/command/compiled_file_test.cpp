// Files that `tessera compile` writes are taken by run, bench and explain as the model is.
#include "../onnx/model_maker.h"
#include "base/tensor.h"
#include "harness.h"
#include "runtime/executor.h"
#include <map>
#include <random>
#include <regex>

namespace tessera {
namespace {

using namespace command_test;
using namespace onnx_test;

// Token ids, an embedding of 11 rows, a product, a softmax.
Maker token_model() {
  Maker m;
  std::vector<float> table, weights;
  for (int i = 0; i < 11 * 6; ++i) table.push_back(static_cast<float>(i % 13) / 7);
  for (int i = 0; i < 6 * 5; ++i) weights.push_back(static_cast<float>(i % 7) / 5 - 0.5f);
  m.input("ids", {"batch", "seq"}, proto::TensorProto::INT64);
  m.input("mask", {"batch", "seq"}, proto::TensorProto::INT64);
  m.weight(float_tensor("table", {11, 6}, table)).weight(float_tensor("weights", {6, 5}, weights));
  m.weight(int64_tensor("last", {1}, {-1}));
  m.add("Gather", {"table", "ids"}, {"rows"});
  m.add("MatMul", {"rows", "weights"}, {"product"});
  m.add("Cast", {"mask"}, {"kept"}, {int_attribute("to", proto::TensorProto::FLOAT)});
  m.add("Unsqueeze", {"kept", "last"}, {"column"});
  m.add("Mul", {"product", "column"}, {"masked"});
  m.add("Softmax", {"masked"}, {"y"}, {int_attribute("axis", -1)});
  m.output("y");
  return m;
}

// A report without what differs from one compile to the next: times, and what the cache had.
void forget_times(Json& j) {
  if (j.is_object())
    for (const char* key : {"compile", "compile_ms", "from_cache", "ms"}) j.erase(key);
  if (j.is_structured())
    for (auto& part : j) forget_times(part);
}
std::string without_times(std::string page) {
  return std::regex_replace(page, std::regex(R"re("(\w*ms|cache_\w+|from_cache)":[^,}]*)re"), "");
}

class CompiledFile : public Command {
protected:
  void SetUp() override {
    Command::SetUp();
    std::ofstream(path("tokens.onnx"), std::ios::binary) << token_model().bytes();
    fs::copy_file(Command::model("mlp"), path("floats.onnx"));
  }
  // `shapes` are given to the compile, too: they decide which code is chosen.
  void same_reports(const std::string& name, const std::string& shapes, const std::string& options = "") {
    SCOPED_TRACE(name + " " + shapes + " " + options);
    expect(0, "compile " + name + ".onnx -o " + name + ".tsr " + shapes + " " + options);
    const std::string of_model = "explain " + name + ".onnx " + shapes + " " + options,
                      of_file = "explain " + name + ".tsr " + shapes;
    EXPECT_EQ(expect(0, of_model).out, expect(0, of_file).out);
    EXPECT_EQ(expect(0, of_model + " --full").out, expect(0, of_file + " --full").out);
    EXPECT_EQ(expect(0, of_model + " --tiles").out, expect(0, of_file + " --tiles", {"tile.kernel"}).out);
    for (const char* tiles : {"", " --tiles"}) {
      expect(0, of_model + " --format json -o model.json" + tiles);
      expect(0, of_file + " --format json -o file.json" + tiles);
      Json model = json("model.json"), file = json("file.json");
      EXPECT_EQ(model["compile"].size(), file["compile"].size());
      forget_times(model);
      forget_times(file);
      EXPECT_EQ(model, file);
      EXPECT_EQ(model.dump(), file.dump()); // in the same order
      expect(0, of_model + " --format html -o model.html" + tiles);
      expect(0, of_file + " --format html -o file.html" + tiles);
      EXPECT_EQ(without_times(read_text(path("model.html"))), without_times(read_text(path("file.html"))));
    }
  }
};

TEST_F(CompiledFile, RunsAsTheModelDoes) {
  for (const char* embed : {"", " --embed-weights"}) {
    expect(0, std::string("compile tokens.onnx -o tokens.tsr") + embed);
    for (const char* shapes :
         {"", "--shape batch=2", "--shape batch=2 --shape seq=9", "--shape ids=2x9", "--shape seq=9"}) {
      expect(0, std::string("run tokens.onnx --output-dir model ") + shapes, {"2 of 2 inputs are random, from seed 0"});
      expect(0, std::string("run tokens.tsr --output-dir file ") + shapes, {"2 of 2 inputs are random, from seed 0"});
      // Sizes that one of them is compiled for may choose another order of sums.
      const auto model = read_npy(path("model/y.npy")), file = read_npy(path("file/y.npy"));
      ASSERT_TRUE(model.ok() && file.ok()) << shapes;
      const auto same = compare(*file, *model, 1e-6, 1e-7);
      EXPECT_TRUE(same.same) << shapes << ": " << same.message;
    }
  }
  Tensor ids = Tensor::create(DType::I64, {1, 3}, true).value();
  ASSERT_TRUE(write_npy(path("ids.npy"), ids).ok());
  expect(0, "run tokens.onnx --input ids=ids.npy --output-dir model --json m.json");
  expect(0, "run tokens.tsr --input ids=ids.npy --expect model --json f.json", {"agrees", "loaded in"});
  EXPECT_EQ(json("f.json")["cases"][0]["outputs"][0]["max_abs"], 0.0);
  EXPECT_EQ(json("m.json")["kernels"], json("f.json")["kernels"]);
  expect(2, "run tokens.tsr --shape nothing=3",
         {"neither an input nor a dimension is called 'nothing'",
          "batch (dimension 0 of 'ids'), seq (dimension 1 of 'ids')"});
}

TEST_F(CompiledFile, HoldsSeveralVariants) {
  expect(0, "compile tokens.onnx -o one.tsr --embed-weights");
  expect(0, "compile tokens.onnx -o tokens.tsr --embed-weights --specialize batch=1 --specialize batch=4,seq=div:8 "
            "--specialize seq=div:8 --json c.json");
  EXPECT_EQ(json("c.json")["variants"], Json({"generic", "batch=1", "batch=4, seq%8=0", "seq%8=0"}));
  // The call's sizes choose: the one with most conditions that fits, the generic one last.
  const std::pair<const char*, const char*> ran[] = {{"--shape ids=1x9", "batch=1"},
                                                     {"--shape ids=4x16", "batch=4, seq%8=0"},
                                                     {"--shape ids=3x16", "seq%8=0"},
                                                     {"--shape ids=3x9", "generic"}};
  for (const auto& [shapes, label] : ran) {
    SCOPED_TRACE(shapes);
    expect(0, std::string("run tokens.tsr --output-dir several ") + shapes + " --json r.json");
    const Json r = json("r.json");
    EXPECT_EQ(r["variant_labels"][r["cases"][0]["run"]["variant"].get<size_t>()], label);
    expect(0, std::string("run tokens.tsr ") + shapes, {std::string("variant ") + label + ", one of 4"});
    expect(0, std::string("run one.tsr --expect several ") + shapes, {"agrees"});
  }
  expect(0, "explain tokens.tsr", {"the file has the variants 'generic', 'batch=1', 'batch=4, seq%8=0', 'seq%8=0'"});
  // Weights and equal code are there once.
  auto variants = load_executables(path("tokens.tsr"));
  ASSERT_TRUE(variants.ok()) << variants.error().str();
  ASSERT_EQ(variants->size(), 4u);
  EXPECT_EQ((*variants)[0].conditions, 0);
  EXPECT_EQ((*variants)[2].conditions, 2);
  const auto weights = [&](size_t variant) {
    std::map<std::string, const void*> at;
    for (const auto& c : (*variants)[variant].executable->constants) at.emplace(c.name, c.value.data());
    return at;
  };
  EXPECT_FALSE(weights(0).empty());
  for (size_t v = 1; v < 4; ++v)
    for (const auto& [name, data] : weights(v))
      if (weights(0).contains(name)) {
        EXPECT_EQ(weights(0).at(name), data) << name;
      }
  // A loaded file that is saved again has the same bytes.
  ASSERT_TRUE(save_executables(*variants, path("again.tsr"), true).ok());
  EXPECT_EQ(read_text(path("again.tsr")), read_text(path("tokens.tsr")));
}

TEST_F(CompiledFile, RefusesVariantsForWhatIsNotThere) {
  expect(2, "compile tokens.onnx -o x.tsr --specialize batch=exact", {"neither a size nor div:8", "batch=8,seq=div:8"});
  expect(2, "compile tokens.onnx -o x.tsr --specialize batch=-3", {"neither a size nor div:8"});
  expect(2, "compile tokens.onnx -o x.tsr --specialize batch=2,batch=3", {"names 'batch' twice"});
  expect(2, "compile tokens.onnx -o x.tsr --specialize nobody=3",
         {"no input of the model has a symbolic dimension 'nobody'"});
  EXPECT_FALSE(fs::exists(path("x.tsr")));
}

TEST_F(CompiledFile, FloatsToo) {
  expect(0, "compile floats.onnx -o floats.tsr");
  expect(0, "run floats.onnx --shape b=3 --output-dir model");
  expect(0, "run floats.tsr --shape b=3 --output-dir file");
  EXPECT_EQ(read_text(path("model/y.npy")), read_text(path("file/y.npy")));
}

TEST_F(CompiledFile, IsMeasuredOnRequestsOfRandomSizes) {
  expect(0, "compile tokens.onnx -o tokens.tsr");
  const std::string vary = " --vary batch=1..3 --vary seq=2..9 --requests 20 ";
  expect(0, "bench tokens.onnx --check 2 --json m.json" + vary,
         {"first call of a shape", "largest relative difference"});
  expect(0, "bench tokens.tsr --json f.json" + vary, {"first / second"});
  const Json m = json("m.json"), f = json("f.json");
  EXPECT_EQ(m["new_shapes"], f["new_shapes"]) << "the same seed gives the same sizes";
  EXPECT_GT(m["new_shapes"].get<int>(), 5);
  EXPECT_LE(m["new_shapes"].get<int>(), 20);
  EXPECT_EQ(m["checked"], 2);
  EXPECT_LE(m["largest_error"].get<double>(), 1e-5);
  EXPECT_EQ(m["variants"], 1) << "none is compiled for sizes";
  expect(2, "bench tokens.onnx --vary seq=9..2", {"--vary 'seq=9..2': the smallest size, 9, is above the largest, 2"});
  expect(2, "bench tokens.onnx --vary sq=2..9",
         {"neither an input nor a dimension is called 'sq'", "did you mean 'seq'"});
}

TEST_F(CompiledFile, IsMeasured) {
  expect(0, "compile tokens.onnx -o tokens.tsr");
  for (const char* file : {"tokens.tsr", "tokens.onnx"})
    expect(0, std::string("bench ") + file + " --shape batch=2 --seconds 0 --min-runs 2 --json " + file + ".json",
           {"median", "memory's ceiling"});
  Json file = json("tokens.tsr.json"), model = json("tokens.onnx.json");
  EXPECT_EQ(file["bytes_moved"], model["bytes_moved"]);
  EXPECT_EQ(file["library_flops"], model["library_flops"]);
  EXPECT_EQ(file["library_flops"], 2 * 2 * 32 * 6 * 5);
  EXPECT_EQ(file["sizes"], model["sizes"]);
  EXPECT_FALSE(file.contains("cold_start_ms"));
}

TEST_F(CompiledFile, IsExplainedAsTheModelIs) {
  same_reports("tokens", "--shape batch=2 --shape seq=9");
  same_reports("tokens", "", "--no-fusion");
  same_reports("floats", "");
  fs::copy_file(Command::model("nonzero"), path("nonzero.onnx")); // a size that only a run defines
  same_reports("nonzero", "");
  // One report serves every size.
  expect(0, "explain floats.tsr --format json -o small.json --shape b=1 --shape s=2");
  expect(0, "explain floats.tsr --format json -o large.json --shape b=3 --shape s=2");
  Json small = json("small.json"), large = json("large.json");
  EXPECT_EQ(large["sizes"]["b"], 3);
  EXPECT_GT(large["totals"]["bytes"]["at_sizes"], small["totals"]["bytes"]["at_sizes"]);
  EXPECT_EQ(large["totals"]["bytes"]["expression"], small["totals"]["bytes"]["expression"]);
}

TEST_F(CompiledFile, ForAGpuThatIsNotHere) {
  same_reports("tokens", "--shape batch=2", "--device cuda --arch sm_90");
  expect(0, "explain tokens.tsr --device cuda --arch sm_90", {"cuda sm_90"});
  expect(2, "explain tokens.tsr --arch sm_80", {"compiled file for 'cuda sm_90'", "not for 'cuda sm_80'"});
  expect(2, "run tokens.tsr --device cpu", {"compiled file for 'cuda sm_90'", "not for 'cpu'"});
  if (!fs::exists("/dev/nvidia0")) expect(3, "run tokens.tsr", {"libcuda.so.1", "is compiled for 'cuda sm_90'"});
}

TEST_F(CompiledFile, WhatItCannotDoIsSaid) {
  expect(0, "compile tokens.onnx -o tokens.tsr");
  const std::vector<std::string> cannot = {"tokens.tsr is a compiled file, to which", "cannot apply",
                                           "tessera compile"};
  for (const char* option : {"--no-fusion", "--strict-rounding", "--no-tuned", "--tune-share 0.1", "--disable-pass cse",
                             "--specialize batch=exact", "--on-miss generic", "--max-variants 2"})
    for (const char* command : {"run", "bench", "explain"})
      expect(2, std::string(command) + " tokens.tsr " + option, cannot);
  expect(2, "run tokens.tsr --disable-pass cse --no-fusion", {"--no-fusion, --disable-pass"});
  expect(2, "run tokens.tsr --device cuda", {"not for 'cuda'"});
  expect(0, "run tokens.tsr --device cpu --threads 1 --no-cache --cache-dir other");
  for (const char* command : {"tune", "opt", "test", "compile -o x"})
    expect(2, std::string(command) + " tokens.tsr",
           {"is a compiled file", "works on a model", "run, bench and explain"});
}

// A report that was changed, under a hash that fits: shown or refused.
TEST_F(CompiledFile, AReportThatIsNone) {
  expect(0, "compile tokens.onnx -o tokens.tsr");
  auto loaded = load_executable(path("tokens.tsr"));
  ASSERT_TRUE(loaded.ok()) << loaded.error().str();
  const auto explain = [&](const std::string& report, const char* format) {
    Executable changed = **loaded;
    changed.report = report;
    EXPECT_TRUE(save_executable(changed, path("changed.tsr"), true).ok());
    return run(std::string("explain changed.tsr --tiles --format ") + format);
  };
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "[";
  for (const std::string& none : {std::string(), std::string("7"), std::string("{\"kernels\": "), std::string("[]"),
                                  deep, std::string("{\"kernels\": \"none\"}")})
    for (const char* format : {"text", "html"}) {
      Outcome o = explain(none, format);
      EXPECT_EQ(o.code, 4) << none.substr(0, 50);
      EXPECT_NE(o.err.find("report in the compiled file cannot be read"), std::string::npos) << o.err;
    }
  EXPECT_EQ(explain((*loaded)->report, "text").code, 0);

  std::mt19937 rng(1);
  for (int round = 0; round < 40; ++round) {
    Json report = Json::parse((*loaded)->report);
    // The value at a random place becomes another, or goes.
    Json* at = &report;
    while (at->is_structured() && !at->empty() && (at == &report || rng() % 4 != 0)) {
      auto it = at->begin();
      std::advance(it, static_cast<std::ptrdiff_t>(rng() % at->size()));
      if (rng() % 8 == 0) {
        at->erase(it);
        break;
      }
      at = &*it;
    }
    const Json others[] = {7, "x", nullptr, Json::array({1}), Json{{"expression", "1/0"}}, -1e300, true};
    if (at != &report) *at = others[rng() % std::size(others)];
    Outcome o = explain(report.dump(), rng() % 2 ? "text" : "html");
    EXPECT_TRUE(o.code == 0 || o.code == 4) << o.code << o.err << report.dump();
  }
}

// With operator, value, position, range and table, once.
TEST_F(CompiledFile, ABadIndexIsShown) {
  expect(0, "compile tokens.onnx -o tokens.tsr");
  Tensor ids = Tensor::create(DType::I64, {2, 3}, true).value();
  ids.set_i64(4, 4711);
  ASSERT_TRUE(write_npy(path("ids.npy"), ids).ok());
  for (const char* file : {"tokens.onnx", "tokens.tsr"}) {
    Outcome o = expect(4, std::string("run ") + file + " --input ids=ids.npy",
                       {"index 4711 at [1, 1] of 'ids' is out of range [-11, 11) of 'table' in n_rows\n"});
    EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 2 + 1) << o.err; // error, note, one on random inputs
  }
  ids.set_i64(4, -11);
  ASSERT_TRUE(write_npy(path("ids.npy"), ids).ok());
  expect(0, "run tokens.tsr --input ids=ids.npy");
}

} // namespace
} // namespace tessera
