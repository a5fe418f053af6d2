// The command as people and scripts use it: exit codes, files, JSON, errors.
#include "base/tensor.h"
#include "harness.h"
#include "tessera_onnx.pb.h"

namespace tessera {
namespace {

using namespace command_test;

Tensor floats(Dims dims, float first) {
  Tensor t = Tensor::create(DType::F32, std::move(dims)).value();
  for (int64_t i = 0; i < t.count(); ++i) t.set_f64(i, first + static_cast<float>(i) * 0.25f - 2);
  return t;
}

TEST_F(Command, HelpSaysHow) {
  expect(0, "--help", {"run", "explain", "compile", "bench", "tune", "test", "opt", "Exit codes"});
  for (const char* sub : {"run", "explain", "compile", "bench", "tune", "test", "opt"})
    expect(0, std::string(sub) + " --help", {"Examples:", std::string("tessera ") + sub});
  expect(0, "--version", {"0."});
}

// Options of the subcommand first, those of all models behind them.
TEST_F(Command, HelpGroupsCommonOptions) {
  for (const auto& [sub, own] :
       {std::pair("explain", "--why-not"), std::pair("run", "--expect"), std::pair("bench", "--warmup")}) {
    const std::string help = run(std::string(sub) + " --help").out;
    size_t at = help.find(own);
    for (const char* next : {"Model:", "--shape", "Device:", "Cache and tuning:"}) {
      const size_t found = help.find(next);
      EXPECT_LT(at, found) << sub << " " << next;
      ASSERT_NE(found, std::string::npos) << next;
      at = found;
    }
  }
}

TEST_F(Command, SizesOfOneArgument) {
  expect(0, "run '" + model("mlp") + "' --shape b=2,s=5 --output-dir a");
  expect(0, "run '" + model("mlp") + "' --shape x=2,5,4 --output-dir b");
  EXPECT_EQ(read_text(path("a/y.npy")), read_text(path("b/y.npy")));
}

// Callers at their own rate, and requests that come at a given one.
TEST_F(Command, BenchOfConcurrentCallers) {
  const std::string bench = "bench '" + model("mlp") + "' --device cpu --threads 1 --shape b=2,s=3 --seconds ";
  expect(0, bench + "0.3 --concurrency 3 --json c.json",
         {"requests per second", "3 callers", "p50", "p90", "p95", "p99"});
  Json j = json("c.json");
  EXPECT_EQ(j["callers"], 3);
  EXPECT_EQ(j["loop"], "closed");
  EXPECT_GT(j["requests"], 3);
  EXPECT_NEAR(j["requests_per_second"].get<double>() * j["seconds"].get<double>(), j["requests"].get<double>(), 1e-6);
  for (const char* shares : {"latency_ms", "call_ms"}) {
    EXPECT_LE(j[shares]["p50"], j[shares]["p90"]);
    EXPECT_LE(j[shares]["p95"], j[shares]["p99"]);
    EXPECT_LE(j[shares]["p99"], j[shares]["max"]);
  }
  for (const char* arrivals : {"constant", "poisson"}) {
    expect(0, bench + "0.3 --concurrency 2 --request-rate 100 --json r.json --arrivals " + arrivals,
           {"of 100.0", "due"});
    j = json("r.json");
    EXPECT_EQ(j["loop"], "open");
    EXPECT_NEAR(j["requests"].get<double>(), 30, arrivals == std::string("constant") ? 0 : 25);
    EXPECT_GE(j["latency_ms"]["max"], j["call_ms"]["p50"]);
  }
  // More than one caller can answer: requests wait, and their latency says so.
  expect(0, bench + "0.02 --request-rate 1000000 --json r.json", {"the rate is not reached"});
  j = json("r.json");
  EXPECT_GT(j["latency_ms"]["p50"].get<double>(), 5 * j["call_ms"]["p50"].get<double>());
  expect(0, bench + "0 --request-rate 10 --json r.json", {"(1 in "});
  expect(0, bench + "0 --concurrency 2", {"(2 in "});
  expect(2, bench + "1 --concurrency 0", {"--concurrency '0'"});
  expect(2, bench + "1 --request-rate -1", {"--request-rate '-1'"});
  expect(2, bench + "1 --concurrency 2 --vary b=1..4", {"exclude each other"});
}

// The folder of the outputs is looked at before the model is.
TEST_F(Command, OutputFolderIsCheckedFirst) {
  expect(5, "run none.onnx --output-dir /proc/none", {"/proc/none: --output-dir cannot be written"});
  std::ofstream(path("file")) << "x";
  expect(5, "run none.onnx --output-dir file", {"file: --output-dir cannot be written"});
}

TEST_F(Command, WrongUseIsTwo) {
  expect(2, "");
  expect(2, "frobnicate");
  expect(2, "run");
  expect(2, "run '" + model("relu") + "' --no-such-option");
  expect(2, "run '" + model("relu") + "' --shape b", {"--shape 'b' is not of the form"});
  expect(2, "run '" + model("relu") + "' --shape b=-4", {"'-4' is no size"});
  expect(2, "run '" + model("relu") + "' --shape b=1,b=2", {"names 'b' twice"});
  expect(2, "explian x", {"no subcommand 'explian'", "did you mean 'explain'?"});
  expect(2, "run x --shpae b=1", {"no option '--shpae' of 'run'", "did you mean '--shape'?"});
  expect(2, "run x --on-miss compil", {"--on-miss 'compil' is none of compile, generic", "did you mean 'compile'?"});
  expect(2, "run x --max-variants -2", {"--max-variants '-2' is no number from 0 to 2147483647"});
  expect(2, "run x --threads many", {"--threads 'many' is no number"});
  expect(2, "run x --rtol -1", {"--rtol '-1' is no number from 0"});
  expect(2, "run '" + model("relu") + "' --shape q=4",
         {"neither an input nor a dimension is called 'q'", "inputs are x", "dimensions are b"});
  expect(2, "run '" + model("relu") + "' --shape x=2x5", {"dimension 1 of input 'x' is always 4"});
  expect(2, "run '" + model("relu") + "' --specialize b=sometimes",
         {"--specialize", "'sometimes' is neither exact nor div:8"});
  expect(2, "run '" + model("relu") + "' --disable-pass nothing", {"no pass is called 'nothing'"});
  expect(2, "run '" + model("relu") + "' --input q=x.npy", {"no input 'q'", "inputs are x"});
  expect(2, "compile '" + model("relu") + "' -o x --arch sm_12", {"sm_12"});
  expect(2, "opt");
  expect(2, "opt '" + model("relu") + "' --passes nothing", {"no pass is called 'nothing'"});
}

// A model of an operator that has no definition.
void make_unsupported(const std::string& file) {
  onnx_proto::ModelProto m;
  m.set_ir_version(10);
  m.add_opset_import()->set_version(20);
  auto& preview = *m.add_opset_import();
  preview.set_domain("ai.onnx.preview.training");
  preview.set_version(1);
  auto& graph = *m.mutable_graph();
  auto tensor = [](onnx_proto::ValueInfoProto& v, const char* name, int dims) {
    v.set_name(name);
    auto& t = *v.mutable_type()->mutable_tensor_type();
    t.set_elem_type(onnx_proto::TensorProto::UINT8);
    for (int i = 0; i < dims; ++i) t.mutable_shape()->add_dim()->set_dim_value(4);
  };
  tensor(*graph.add_input(), "x", 1);
  tensor(*graph.add_output(), "y", 3);
  auto& node = *graph.add_node();
  node.set_op_type("Gradient");
  node.set_domain("ai.onnx.preview.training");
  node.add_input("x");
  node.add_output("y");
  std::ofstream(file, std::ios::binary) << m.SerializeAsString();
}

TEST_F(Command, WhatIsNotSupportedIsThree) {
  if (!std::filesystem::exists("/dev/nvidia0"))
    expect(3, "run '" + model("relu") + "' --device cuda", {"libcuda.so.1", "cannot be used", "--arch sm_90a"});
  make_unsupported(path("unsupported.onnx"));
  expect(3, "run unsupported.onnx", {"Gradient"});
}

TEST_F(Command, BadModelsAndInputsAreFour) {
  std::ofstream(path("cut.onnx"), std::ios::binary) << read_text(model("mlp")).substr(0, 60);
  expect(4, "run none.onnx", {"none.onnx", "cannot open"});
  expect(4, "run cut.onnx --json e.json", {"cut.onnx", "cut off at byte"});
  EXPECT_EQ(json("e.json")["error"]["name"], "malformed-model");
  EXPECT_EQ(json("e.json")["error"]["exit_code"], 4);
  expect(4, "run '" + model("external") + "'", {"w.bin", "cannot be found"});
  expect(4, "run '" + model("relu") + "' --input x=none.npy", {"none.npy"});
  ASSERT_TRUE(write_npy(path("i.npy"), Tensor::create(DType::I64, {2, 4}, true).value()).ok());
  ASSERT_TRUE(write_npy(path("wide.npy"), floats({2, 5}, 0)).ok());
  ASSERT_TRUE(write_npy(path("flat.npy"), floats({4}, 0)).ok());
  expect(4, "run '" + model("relu") + "' --input x=i.npy", {"i64"});
  expect(4, "run '" + model("relu") + "' --input x=wide.npy", {"5"});
  expect(4, "run '" + model("relu") + "' --input x=flat.npy", {"x"});
  expect(4, "test none", {"'none' is not a folder"});
  std::ofstream(path("pointer.onnx")) << "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
  expect(4, "run pointer.onnx", {"pointer.onnx", "Git LFS pointer", "git lfs pull"});
}

TEST_F(Command, SizesThatContradictEachOtherAreErrors) {
  const std::string mlp = "run '" + model("mlp") + "' "; // x[b, s, 4]
  ASSERT_TRUE(write_npy(path("x.npy"), floats({2, 5, 4}, 0)).ok());
  expect(2, mlp + "--shape x=2x5x4 --shape b=3", {"--shape x=2x5x4 makes 'b' 2, and --shape b=3 makes it 3"});
  expect(2, mlp + "--shape b=3 --shape x=2x5x4", {"--shape b=3 makes 'b' 3", "--shape x=2x5x4 makes it 2"});
  expect(2, mlp + "--input x=x.npy --shape s=6", {"--input x of 2x5x4 makes 's' 5", "--shape s=6 makes it 6"});
  expect(2, mlp + "--input x=x.npy --shape x=2x6x4", {"--shape x=2x6x4 contradicts --input x, which is 2x5x4"});
  expect(0, mlp + "--input x=x.npy --shape x=2x?x4 --shape s=5");
  expect(2, "run '" + model("relu") + "' --shape x=1x3", {"dimension 1 of input 'x' is always 4"});
}

TEST_F(Command, RunWritesAndCompares) {
  Tensor x = floats({3, 4}, 0);
  ASSERT_TRUE(write_npy(path("x.npy"), x).ok());
  expect(0, "run '" + model("relu") + "' --input x=x.npy --output-dir out --json r.json", {"f32[3, 4]"});
  Tensor y = read_npy(path("out/y.npy")).value();
  ASSERT_EQ(y.dims(), x.dims());
  for (int64_t i = 0; i < x.count(); ++i) EXPECT_EQ(y.get_f64(i), std::max(0.0, x.get_f64(i)));
  Json r = json("r.json");
  EXPECT_EQ(r["kernels"], 1);
  EXPECT_EQ(r["host_steps"], 0);
  EXPECT_EQ(r["variants"], 1);
  EXPECT_EQ(r["cases"][0]["outputs"][0]["dims"], (std::vector<int>{3, 4}));

  expect(0, "run '" + model("relu") + "' --input x=x.npy --expect out", {"agrees"});
  y.set_f64(11, 9);
  fs::create_directory(path("wrong"));
  ASSERT_TRUE(write_npy(path("wrong/y.npy"), y).ok());
  expect(1, "run '" + model("relu") + "' --input x=x.npy --expect wrong", {"differs"});
  expect(0, "run '" + model("relu") + "' --input x=x.npy --expect wrong --norm-tolerance 10");
  fs::create_directory(path("empty"));
  expect(4, "run '" + model("relu") + "' --input x=x.npy --expect empty", {"none of the outputs", "y.npy"});
}

TEST_F(Command, MadeUpInputsAreTheSameEveryTime) {
  expect(0, "run '" + model("mlp") + "' --shape b=2 --shape s=5 --output-dir a");
  expect(0, "run '" + model("mlp") + "' --shape x=2x5x4 --output-dir b");
  expect(0, "run '" + model("mlp") + "' --shape x=2x5x4 --output-dir c --seed 1");
  EXPECT_EQ(read_text(path("a/y.npy")), read_text(path("b/y.npy")));
  EXPECT_NE(read_text(path("a/y.npy")), read_text(path("c/y.npy")));
  expect(0, "run '" + model("mlp") + "'", {"sizes not given, chosen: b=1, s=32", "inputs are random, from seed 0"});
}

TEST_F(Command, SeveralCasesOneCompile) {
  for (int b : {1, 7}) {
    std::string dir = path("case" + std::to_string(b));
    fs::create_directories(dir + "/inputs");
    fs::create_directories(dir + "/expected");
    Tensor x = floats({b, 4}, 0), y = floats({b, 4}, 0);
    for (int64_t i = 0; i < y.count(); ++i) y.set_f64(i, std::max(0.0, x.get_f64(i)));
    ASSERT_TRUE(write_npy(dir + "/inputs/x.npy", x).ok());
    ASSERT_TRUE(write_npy(dir + "/expected/y.npy", y).ok());
  }
  expect(0, "run '" + model("relu") + "' --case case1 --case case7 --json r.json");
  Json r = json("r.json");
  EXPECT_EQ(r["cases"].size(), 2u);
  EXPECT_EQ(r["variants"], 1);
  EXPECT_EQ(r["cases"][1]["outputs"][0]["norm_ratio"], 0.0);
  // Specialized: each size gets a variant of its own, and the miss is reported.
  expect(0, "run '" + model("relu") + "' --case case1 --case case7 --specialize b=exact --json s.json",
         {"guard missed"});
  Json s = json("s.json");
  EXPECT_EQ(s["variants"], 3);
  EXPECT_EQ(s["variant_labels"][1], "b=1");
  ASSERT_EQ(s["cases"][1]["run"]["guard_misses"].size(), 1u);
  EXPECT_EQ(s["cases"][1]["run"]["guard_misses"][0]["sizes"]["b"], 7);
}

TEST_F(Command, ExplainCountsAndGivesReasons) {
  Outcome text = expect(0, "explain '" + model("mlp") + "' --full",
                        {"library call", "edges by reason", "breaks", "guards", "matmul"});
  Outcome screen = expect(0, "explain '" + model("mlp") + "'", {"kernel", "library call", "most expensive steps"});
  EXPECT_LT(screen.out.size(), text.out.size());
  expect(0, "explain '" + model("mlp") + "' --format json -o r.json --shape b=2 --shape s=3");
  Json r = json("r.json");
  EXPECT_EQ(r["totals"]["library_calls"], 1);
  EXPECT_EQ(r["totals"]["steps"].get<size_t>(), r["steps"].size());
  EXPECT_EQ(r["totals"]["host_operators"], 0);
  EXPECT_GT(r["totals"]["bytes"]["at_sizes"].get<int64_t>(), 0);
  EXPECT_LE(r["totals"]["bytes"]["at_sizes"], r["totals"]["bytes_unfused"]["at_sizes"]);
  EXPECT_EQ(r["sizes"]["s"], 3);
  size_t edges = 0;
  for (const auto& c : r["codes"]) edges += c["count"].get<size_t>();
  EXPECT_EQ(edges, r["edges"].size() + r["pairs"].size());
  for (const auto& e : r["edges"]) EXPECT_EQ(e["code"].get<std::string>().substr(0, 4), "FUS-") << e;
  // The same report twice.
  expect(0, "explain '" + model("mlp") + "' --format json -o again.json --shape b=2 --shape s=3");
  Json again = json("again.json");
  for (const char* part : {"steps", "edges", "pairs", "totals"}) {
    for (Json* j : {&r, &again})
      for (auto& k : (*j)[part])
        if (k.is_object()) k.erase("compile_ms"), k.erase("from_cache");
    EXPECT_EQ(r[part], again[part]) << part;
  }
  // A graph whose weights are not there explains as well.
  expect(0, "explain '" + model("external") + "'", {"matmul"});
}

TEST_F(Command, ExplainKeepsBreaksApart) {
  Outcome o = run("explain '" + model("nonzero") + "' --format json -o r.json");
  ASSERT_EQ(o.code, 0) << o.err;
  Json r = json("r.json");
  // The size is read, which is no operator on the host.
  EXPECT_EQ(r["totals"]["host_operators"], 0);
  size_t sizes = 0;
  for (const auto& b : r["breaks"]) {
    EXPECT_NE(b["kind"], "host-operator") << b;
    sizes += b["kind"] == "computed-size" ? 1 : 0;
  }
  EXPECT_EQ(sizes, 1u);
}

TEST_F(Command, CompileWritesAFile) {
  expect(0, "compile '" + model("mlp") + "' -o mlp.tsr --json c.json");
  EXPECT_GT(fs::file_size(path("mlp.tsr")), 100u);
  EXPECT_EQ(json("c.json")["bytes"], fs::file_size(path("mlp.tsr")));
  expect(5, "compile '" + model("mlp") + "' -o none/mlp.tsr", {"none/mlp.tsr"});
  // Operators that run by their reference are in the file, too.
  expect(0, "compile '" + model("nonzero") + "' -o nonzero.tsr");
  expect(0, "run nonzero.tsr", {"output"});
}

TEST_F(Command, BenchMeasures) {
  expect(0, "bench '" + model("mlp") + "' --seconds 0 --min-runs 3 --profile --json b.json",
         {"median", "from nothing", "from the cache"});
  Json b = json("b.json");
  EXPECT_GE(b["runs"].get<int>(), 3);
  EXPECT_GT(b["median_ms"].get<double>(), 0);
  EXPECT_LE(b["min_ms"], b["median_ms"]);
  EXPECT_LE(b["median_ms"], b["p99_ms"]);
  EXPECT_GT(b["copy_bytes_per_second"].get<double>(), 0);
  EXPECT_EQ(b["warm_start"]["cache_misses"], 0);
  EXPECT_FALSE(b["steps"].empty());
}

// A test folder of a seed model: x -> y as given.
void make_test_folder(const std::string& folder, const std::string& model, const Tensor& x, const Tensor& y) {
  fs::create_directories(folder + "/test_data_set_0");
  fs::copy_file(model, folder + "/model.onnx");
  for (const auto& [file, name, t] : {std::tuple("input_0", "x", x), std::tuple("output_0", "y", y)}) {
    onnx_proto::TensorProto p;
    p.set_name(name);
    p.set_data_type(onnx_proto::TensorProto::FLOAT);
    p.mutable_dims()->Add(t.dims().begin(), t.dims().end());
    p.set_raw_data(t.data(), t.bytes());
    std::ofstream(folder + "/test_data_set_0/" + file + ".pb", std::ios::binary) << p.SerializeAsString();
  }
}

TEST_F(Command, TestFolders) {
  Tensor x = floats({2, 4}, 0), y = floats({2, 4}, 0);
  for (int64_t i = 0; i < y.count(); ++i) y.set_f64(i, std::max(0.0, x.get_f64(i)));
  make_test_folder(path("t/right"), model("relu"), x, y);
  make_test_folder(path("t/deep/too"), model("relu"), x, y);
  make_unsupported(path("unsupported.onnx"));
  make_test_folder(path("t/unknown"), path("unsupported.onnx"), x, y);
  expect(0, "test t --json t.json", {"2 pass, 0 fail, 1 not supported, 0 crash, 0 timeout of 3", "Gradient"});
  EXPECT_EQ(json("t.json")["counts"]["pass"], 2);
  EXPECT_EQ(json("t.json")["not_supported"]["ai.onnx.preview.training.Gradient"], 1);
  make_test_folder(path("t/wrong"), model("relu"), x, x);
  make_test_folder(path("t/broken"), model("relu"), x, y);
  std::ofstream(path("t/broken/model.onnx"), std::ios::binary) << "nonsense";
  expect(1, "test t", {"2 pass, 2 fail", "fail  wrong: test_data_set_0: output 'y'", "fail  broken: error"});
  expect(0, "test t --filter right -v", {"pass  right", "1 pass"});
  Outcome list = expect(0, "test t --list");
  EXPECT_EQ(std::count(list.out.begin(), list.out.end(), '\n'), 5);
}

// ONNX's other layouts: a model whose inputs are counted, which a data.json elsewhere names, with its tolerance.
TEST_F(Command, TestFoldersOfOtherLayouts) {
  onnx_proto::ModelProto relu;
  std::ifstream file(model("relu"), std::ios::binary);
  ASSERT_TRUE(relu.ParseFromIstream(&file));
  auto write = [&](const std::string& name, const std::string& text) {
    fs::create_directories(fs::path(path(name)).parent_path());
    std::ofstream(path(name), std::ios::binary) << text;
  };
  auto expected = [](double scale) {
    onnx_proto::TensorProto p;
    p.set_data_type(onnx_proto::TensorProto::FLOAT);
    p.add_dims(1), p.add_dims(4); // an unknown dimension is 1
    for (int i = 0; i < 4; ++i) p.add_float_data(static_cast<float>(i / 4.0 * scale));
    return p.SerializeAsString();
  };
  write("data/light/light_m.onnx", relu.SerializeAsString());
  write("data/light/light_m_output_0.pb", expected(1));
  expect(0, "test data/light -v", {"pass  light_m", "1 pass", "of 1;"});
  write("data/real/test_m/data.json",
        R"({"url": "onnx/backend/test/data/light/light_m.onnx", "rtol": 0.001, "atol": 0})");
  expect(0, "test data -v", {"pass  test_m", "1 pass", "of 1;"});
  expect(0, "test data/real data/light --list", {"test_m"});
  write("data/light/light_m_output_0.pb", expected(1.01));
  expect(1, "test data", {"fail  test_m: counted inputs: output 'y'"});
  write("data/real/test_m/data.json", R"({"url": "light/light_m.onnx", "rtol": 0.1})");
  expect(0, "test data", {"1 pass"});
  write("data/real/test_m/data.json", R"({"url": "light/gone.onnx"})");
  expect(0, "test data/real", {"1 not supported", "model that is not here"});
}

TEST_F(Command, OptRunsPassesOverText) {
  expect(0, "opt --list", {"decompose", "cse", "dce", "fuse", "llvm"});
  std::string graph = kSeeds + "graph_text/norm.graph", tile = kSeeds + "tile_text/sum.tile";
  Outcome printed = expect(0, "opt '" + graph + "'", {"graph @main", "weight"});
  std::ofstream(path("again.graph")) << printed.out;
  EXPECT_EQ(expect(0, "opt again.graph").out, printed.out);
  EXPECT_EQ(expect(0, "opt - < again.graph >out.txt; true").code, 0);
  expect(0, "opt '" + graph + "' --passes default,fuse --verify --json p.json", {"group", "edge"});
  EXPECT_FALSE(json("p.json")["passes"].empty());
  expect(0, "opt '" + graph + "' --passes default,tile", {"tile.kernel"});
  expect(0, "opt '" + graph + "' --passes llvm", {"define"});
  EXPECT_EQ(expect(0, "opt '" + tile + "' --passes verify").out, "");
  expect(0, "opt '" + tile + "'", {"tile.kernel @sum"});
  expect(0, "opt '" + tile + "' --passes llvm --vector-bytes 32", {"define"});
  expect(0, "opt '" + model("mlp") + "' --passes default", {"matmul"});
  expect(2, "opt '" + graph + "' --passes tile,cse", {"'tile' prints and can only stand last"});
  std::ofstream(path("bad.graph"))
      << "graph @main(%x: f32[b]) -> (%y: f32[b]) where b in [0, ?] {\n  %y = nonsense(%x) : f32[b]\n}\n";
  expect(4, "opt bad.graph", {"bad.graph:2", "nonsense"});
}

// Figures of a device by name and by file; what is wrong with either is said in one error.
TEST_F(Command, TargetsAreNamedOrFiles) {
  const std::string compile = "compile '" + model("relu") + "' -o x.tsr ", explain = "explain '" + model("relu") + "' ";
  expect(0, compile + "--device cuda --arch sm_80", {"for cuda sm_80"});
  expect(0, compile + "--device cuda --arch sm_90 --target a100", {"for cuda sm_90"});
  expect(0, explain + "--device cuda --arch sm_80", {"cuda sm_80, figures of a100"});
  expect(0, explain + "--device cuda --arch sm_90 --target rtx4090", {"cuda sm_90, figures of rtx4090"});
  expect(0, explain + "--target portable", {"sse, figures of portable"});
  expect(2, explain + "--target a10",
         {"no target is called 'a10'", "did you mean 'a100'?", "h200, h100, a100, rtx4090"});
  expect(2, explain + "--device cpu --target a100", {"target 'a100' is of kind cuda, the device is cpu"});
  expect(4, explain + "--target none.json", {"none.json", "No such file"});
  std::ofstream(path("bad.json")) << R"({"name": "bad", "kind": "cpu", "measured": {"coers": 4}})";
  expect(4, explain + "--target bad.json", {"bad.json", "'coers'", "did you mean 'cores'?"});

  // Measured schedules of a target file lie next to it.
  std::ofstream(path("gpu.json")) << read_text(TESSERA_SOURCE_DIR "/codegen/target/data/a100.json");
  expect(0, explain + "--device cuda --arch sm_80 --target gpu.json", {"figures of gpu.json"});
  std::ofstream(path("gpu.records.txt")) << "0123456789abcdef 512x2048 3.5 block-stairs\n";
  expect(4, explain + "--device cuda --arch sm_80 --target gpu.json", {"gpu.records.txt:1", "'block-stairs'"});
  expect(0, explain + "--device cuda --arch sm_80 --target gpu.json --no-tuned", {"figures of gpu.json"});

  expect(0, "calibrate --device cpu --threads 1 -o mine.json --json c.json",
         {"memory_bytes_per_us", "--target mine.json"});
  expect(0, explain + "--device cpu --target mine.json", {"figures of mine.json"});
  expect(0, "run '" + model("relu") + "' --device cpu --target mine.json", {});
  expect(5, "calibrate --device cpu -o none/mine.json", {"none/mine.json"});
  expect(0, "calibrate --list", {"saturating_bytes", "loads in flight", "rtx4090", "sm_89"});
  expect(2, "calibrate --device tpu", {"there is no device 'tpu'"});
}

// Each model of a corpus is tuned in a process of its own; one that fails does not keep the others from the file.
TEST_F(Command, TuneOfACorpusWritesRecords) {
  expect(2, "tune --corpus none", {"--corpus needs the file of records", "-o FILE"});
  expect(4, "tune --corpus none -o r.txt", {"no file or folder 'none'"});
  expect(2, "tune '" + model("relu") + "' --corpus none -o r.txt", {"give a model to tune, --corpus, or one of"});
  tessera::onnx_proto::ModelProto fixed;
  ASSERT_TRUE(fixed.ParseFromString(read_text(model("relu"))));
  for (auto* v : {fixed.mutable_graph()->mutable_input(0), fixed.mutable_graph()->mutable_output(0)})
    v->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(0)->set_dim_value(512);
  std::filesystem::create_directory(path("corpus"));
  std::ofstream(path("corpus/fixed.onnx"), std::ios::binary) << fixed.SerializeAsString();
  std::ofstream(path("corpus/broken.onnx")) << "no model";
  const std::string tune = "tune --corpus corpus --device cpu --threads 1 --candidates 3 --jobs 2 -o r.txt ";
  expect(0, tune + "--json c.json", {"1 kernels of 2 models measured", "1 models failed", "1 records"});
  EXPECT_EQ(json("c.json")["failed"].size(), 1U);
  EXPECT_EQ(json("c.json")["added"], 1);
  const std::string text = read_text(path("r.txt"));
  EXPECT_NE(text.find("flat"), std::string::npos) << text;
  expect(0, tune + "--json c.json", {"1 records, 0 of them new"}); // measured anew, in its place
  std::ofstream(path("r.txt")) << "x\n";
  expect(4, tune, {"r.txt:1", "no signature"});
  EXPECT_EQ(read_text(path("r.txt")), "x\n");
  expect(5, "tune --corpus corpus --device cpu -o none/r.txt", {"none/r.txt"});
}

// On the host only kernels of fixed sizes have a choice; what is found is listed, carried elsewhere, pinned and
// cleared.
TEST_F(Command, TuneRemembers) {
  expect(2, "tune", {"give a model to tune, --corpus, or one of"});
  expect(2, "tune '" + model("fixed") + "' --list", {"give a model to tune, --corpus, or one of"});
  expect(2, "run '" + model("relu") + "' --tuned-for 'NVIDIA H200'", {"it needs --arch"});
  expect(0, "tune --list", {"no records"});
  expect(2, "tune --pin 12", {"no record is of a kernel that begins with '12'"});
  expect(4, "tune --merge none.json", {"none.json"});
  expect(0, "tune '" + model("relu") + "' --device cpu", {"its sizes are not fixed"});

  tessera::onnx_proto::ModelProto fixed;
  ASSERT_TRUE(fixed.ParseFromString(read_text(model("relu"))));
  for (auto* v : {fixed.mutable_graph()->mutable_input(0), fixed.mutable_graph()->mutable_output(0)})
    v->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(0)->set_dim_value(512);
  std::ofstream(path("fixed.onnx"), std::ios::binary) << fixed.SerializeAsString();
  expect(0, "tune fixed.onnx --device cpu --threads 2 --candidates 3 --json t.json", {"cache/tuned.json"});
  Json t = json("t.json");
  ASSERT_EQ(t["kernels"].size(), 1U);
  EXPECT_EQ(t["measured"], 1);
  EXPECT_EQ(t["wrong"], 0);
  std::string kernel = t["kernels"][0]["kernel"];
  // A second process tunes nothing.
  expect(0, "tune fixed.onnx --device cpu --threads 2 --json t.json", {"known", "0 of 0 measured"});
  expect(0, "tune --list", {kernel.substr(0, 12), "2048", "us"});
  expect(0, "tune --export all.json", {"1 records"});
  expect(0, "tune --pin " + kernel.substr(0, 8), {"1 changed"});
  expect(0, "tune --clear", {"1 records, 0 changed"});
  expect(0, "tune --list", {"pinned"});
  expect(0, "tune --unpin " + kernel + " --clear");
  expect(0, "tune --clear", {"0 records"});
  expect(0, "tune --merge all.json", {"1 records"});
  std::ofstream(path("cache/tuned.json")) << "{";
  expect(0, "run fixed.onnx --device cpu", {"tuned schedules are ignored"});
  expect(0, "tune --list", {"tuned schedules are ignored", "no records"});
}

} // namespace
} // namespace tessera
