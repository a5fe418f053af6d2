// Policies, sizes that variants are made for, ranges and determinism, as somebody types them.
#include "../onnx/model_maker.h"
#include "harness.h"

namespace tessera {
namespace {

using namespace command_test;
using namespace onnx_test;

class PolicyOptions : public Command {
protected:
  void SetUp() override {
    Command::SetUp();
    Maker rows; // x: f32[batch, seq]
    rows.input("x", {"batch", "seq"}).add("Softmax", {"x"}, {"y"}, {int_attribute("axis", -1)}).output("y");
    write("rows.onnx", rows);
    Maker broadcasting; // a and b meet in their first dimensions
    broadcasting.input("a", {"n", 4}).input("b", {"k", 4}).add("Add", {"a", "b"}, {"y"}).output("y");
    write("broadcasting.onnx", broadcasting);
  }
  void write(const std::string& name, const Maker& model) const {
    std::ofstream(path(name), std::ios::binary) << model.bytes();
  }
};

TEST_F(PolicyOptions, RunSaysWhatBecameOfVariants) {
  expect(0, "run rows.onnx --shape batch=4,seq=8 --json r.json", {"policy generic: 1 variant, 1 compile, 0 swaps"});
  EXPECT_EQ(json("r.json")["variant_counts"]["policy"], "generic");
  expect(0, "run rows.onnx --shape batch=4,seq=8 --policy exact --json r.json",
         {"policy exact: 2 variants, 2 compiles (1 in calls)", "variant batch=4, seq=8, one of 2"});
  Json counts = json("r.json")["variant_counts"];
  EXPECT_EQ(counts["variants"], 2);
  EXPECT_EQ(counts["compiles"], 2);
  EXPECT_EQ(counts["calls_that_compiled"], 1);
  EXPECT_EQ(counts["evictions"], 0);
  EXPECT_GT(counts["bytes_of_specialized"], 0);
  expect(0, "run rows.onnx --shape batch=4,seq=8 --specialize batch=exact,seq=div:8 --json r.json");
  EXPECT_EQ(json("r.json")["variant_labels"], Json({"generic", "batch=4, seq%8=0"}));
  expect(0, "run rows.onnx --shape batch=4,seq=8 --policy adaptive", {"policy adaptive: "});
  expect(0, "run rows.onnx --shape batch=4,seq=8 --deterministic --policy exact");
}

TEST_F(PolicyOptions, BenchSaysIt) {
  const std::string few = " --seconds 0 --min-runs 2 --warmup 1 --no-cold";
  expect(0, "bench rows.onnx --shape batch=4,seq=8 --policy exact --json b.json" + few, {"policy exact: 2 variants"});
  EXPECT_EQ(json("b.json")["variant_counts"]["variants"], 2);
  expect(0, "bench rows.onnx --vary batch=1..4 --vary seq=2..3..5 --requests 5 --json b.json",
         {"policy generic: 1 variant"});
  EXPECT_EQ(json("b.json")["ranges"]["seq"], Json({2, 5}));
  expect(0, "bench rows.onnx --vary batch=1..4,seq=2..5 --requests 5 --warm-up batch=1..2..4,seq=2..5");
  expect(2, "bench rows.onnx --vary batch=4..1",
         {"--vary 'batch=4..1': the smallest size, 4, is above the largest, 1"});
}

TEST_F(PolicyOptions, WarmUp) {
  expect(0, "run broadcasting.onnx --shape n=4,k=1 --warm-up n=1..4..9,k=1..4..9 --json r.json");
  EXPECT_EQ(json("r.json")["variant_counts"]["calls_that_compiled"], 0);
  EXPECT_EQ(json("r.json")["variants"], 3);
  // The variants that the ranges need, in a file that compiles nothing.
  expect(0, "compile broadcasting.onnx -o m.tsr --warm-up n=1..4..9 --warm-up k=1..4..9 --json c.json");
  EXPECT_EQ(json("c.json")["variants"].size(), 3u);
  for (const char* sizes : {"n=4,k=4", "n=4,k=1", "n=1,k=9"})
    expect(0, "run m.tsr --shape " + std::string(sizes) + " --warm-up n=1..4..9,k=1..4..9",
           {"policy generic: 3 variants, 0 compiles"});
  expect(2, "compile broadcasting.onnx -o x.tsr --warm-up n=1..4..9", {"the range of 'k' is missing"});
}

TEST_F(PolicyOptions, Mistakes) {
  expect(2, "run rows.onnx --policy best", {"--policy 'best' is none of generic, adaptive, exact"});
  expect(2, "run rows.onnx --policy adaptiv", {"did you mean 'adaptive'?"});
  expect(2, "run rows.onnx --polcy exact", {"did you mean '--policy'?"});
  expect(2, "run rows.onnx --deterministic --policy adaptive", {"which deterministic excludes"});
  expect(2, "run rows.onnx --specialize batch", {"'batch' is not of the form DIM=exact or DIM=div:8"});
  expect(2, "run rows.onnx --specialize batch=exact --specialize batch=div:8", {"--specialize", "names 'batch' twice"});
  expect(2, "run rows.onnx --specialize bach=exact", {"'bach'", "did you mean 'batch'?"});
  expect(2, "run rows.onnx --warm-up batch=32..8..1,seq=1", {"--warm-up 'batch=32..8..1': the smallest size, 32"});
  expect(2, "run rows.onnx --warm-up batch=1..64..32,seq=1", {"the typical size, 64, is not between 1 and 32"});
  expect(2, "run rows.onnx --warm-up batch=0..8,seq=1", {"'0' is no size"});
  expect(2, "run rows.onnx --warm-up batch=1-8,seq=1", {"'1-8' is no size"});
  expect(2, "run rows.onnx --warm-up bach=1..8,seq=1", {"'bach'", "did you mean 'batch'?"});
  expect(2, "run rows.onnx --warm-up batch=1..8", {"the range of 'seq' is missing"});
  expect(2, "run rows.onnx --warmup batch=1..8", {"did you mean '--warm-up'?"});
  expect(2, "run rows.onnx --tune-share 2", {"--tune-share '2' is no number from 0 to 1"});
}

TEST_F(PolicyOptions, LimitsOfMemory) {
  expect(5, "run rows.onnx --shape batch=4096,seq=4096 --memory-limit 1000000", {"the limit is 1000000"});
  expect(0, "run rows.onnx --shape batch=4,seq=8 --policy exact --max-variant-bytes 1");
  expect(0, "triton rows.onnx -o r3 --memory-limit 1000000 --max-variant-bytes 5 --tune-share 0.1");
  // A folder of this machine is no parameter of a server's model.
  expect(0, "triton rows.onnx -o r4 --cache-dir here");
  EXPECT_EQ(read_text(path("r4/rows/config.pbtxt")).find("cache_dir"), std::string::npos);
  const std::string text = read_text(path("r3/rows/config.pbtxt"));
  for (const char* part : {"key: \"memory_limit\"\n  value {\n    string_value: \"1000000\"", "max_variant_bytes",
                           "string_value: \"0.1\""})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST_F(PolicyOptions, OfTritonsConfiguration) {
  expect(0,
         "triton rows.onnx -o r --device cpu --policy exact --specialize batch=exact --max-variants 4 --deterministic "
         "--warm-up batch=1..4..8 --warm-up seq=1..9");
  const std::string text = read_text(path("r/rows/config.pbtxt"));
  for (auto [key, value] : {std::pair{"policy", "exact"},
                            {"specialize", "batch=exact"},
                            {"max_variants", "4"},
                            {"deterministic", "true"},
                            {"warm_up", "batch=1..4..8,seq=1..9"}})
    EXPECT_NE(text.find("key: \"" + std::string(key) + "\"\n  value {\n    string_value: \"" + value + "\""),
              std::string::npos)
        << key << "\n"
        << text;
  expect(2, "triton rows.onnx -o r2 --warm-up bach=1..8", {"did you mean 'batch'?"});
}

} // namespace
} // namespace tessera
