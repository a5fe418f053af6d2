// The command on archives of torch.export: what it does with ONNX models, and what people get wrong.
#include "base/tensor.h"
#include "harness.h"
#include "tests/fx/program_maker.h"

namespace tessera {
namespace {

using namespace command_test;
using fx_test::range;

// x [s, 4] and a number of rows that is an input, 8*t positions, a buffer that counts.
constexpr std::string_view kProgram = "s in [2, 64]\nt in [1, 8]\nn in [0, 9]\n"
                                      "weight w: f32[3, 4]\nbuffer count: i64[]\n"
                                      "input x: f32[s, 4]\ninput k: f32[8*t]\ninput n = n\n"
                                      "h: f32[s, 3] = linear.default(input=x, weight=w, bias=None)\n"
                                      "y: f32[s, 3] = mul.Tensor(self=h, other=n)\n"
                                      "z: f32[8*t] = relu.default(self=k)\n"
                                      "c: i64[] = add.Tensor(self=count, other=1)\n"
                                      "return y, z\nmutates count = c";

class ExportedProgram : public Command {
protected:
  void SetUp() override {
    Command::SetUp();
    write("m.pt2", fx_test::archive(fx_test::program(kProgram)));
    write_array("x.npy", range({2, 4}));
    write_array("k.npy", range({16}, -8));
    write_array("n.npy", range({}, 2, DType::I64));
  }
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
  }
  void write_array(const std::string& name, const Tensor& t) const { ASSERT_TRUE(write_npy(path(name), t).ok()); }
  [[nodiscard]] std::string array(const std::string& name) const {
    auto t = read_npy(path(name));
    return t.ok() ? fx_test::show(*t) : t.error().str();
  }
};

TEST_F(ExportedProgram, Runs) {
  const std::string inputs = " --input x=x.npy --input k=k.npy --input n=n.npy";
  Outcome o = expect(0, "run m.pt2 --output-dir out --json r.json" + inputs, {"count", "f32[2, 3]", "f32[16]"});
  EXPECT_EQ(o.err.find("not given"), std::string::npos) << o.err; // k gives t
  EXPECT_EQ(array("out/y.npy"), "f32[2, 3]{16.0, 64.0, 112.0, 32.0, 208.0, 384.0}");
  EXPECT_EQ(array("out/count.npy"), "i64[]{0}");
  EXPECT_EQ(json("r.json")["host_steps"], 0);

  expect(0, "compile m.pt2 -o m.tsr");
  expect(0, "run m.tsr --expect out" + inputs, {"agrees"});
  expect(0, "compile m.pt2 -o gpu.tsr --device cuda --arch sm_90", {"for cuda sm_90"});
  expect(0, "bench m.pt2 --seconds 0 --min-runs 2 --shape x=4x4", {"median"});
  expect(0, "opt m.pt2 --passes dce", {"graph @main", "// body.0.h"});
  // The format is recognised by the file's bytes, not by its name.
  fs::copy_file(path("m.pt2"), path("m.onnx"));
  expect(0, "run m.onnx --expect out" + inputs, {"agrees"});
  fs::copy_file(model("relu"), path("relu.pt2"));
  expect(0, "run relu.pt2", {"f32"});
}

TEST_F(ExportedProgram, IsExplainedByModuleAndLine) {
  expect(0, "explain m.pt2 --shape x=4x4", {"PyTorch", "matmul [s,4] x [4,3]"});
  expect(0, "explain m.pt2 --op net.py:10", {"body.0.h", "aten.linear.default", "net.py:10"});
  expect(0, "explain m.pt2 --op body.0", {"body.0.h", "body.0.y"});
  expect(0, "explain m.pt2 --format json -o r.json");
  Json r = json("r.json");
  EXPECT_EQ(r["format"], "PyTorch");
  bool found = false;
  for (const auto& op : r["operators"])
    found = found || (op["name"] == "body.0.h" && op["module"] == "body.0" && op["source"] == "net.py:10");
  EXPECT_TRUE(found) << r["operators"];
}

TEST_F(ExportedProgram, TestFolders) {
  fs::create_directories(path("t/m/test_data_set_0"));
  write("t/m/model.pt2",
        fx_test::archive(fx_test::program("input x: f32[4]\ny: f32[4] = relu.default(self=x)\nreturn y")));
  write_array("t/m/test_data_set_0/input_0.npy", range({4}, -2));
  write_array("t/m/test_data_set_0/output_0.npy", range({4}, 7));
  expect(1, "test t", {"0 pass, 1 fail", "output 'y'"});
  Tensor y = range({4}, 0);
  for (int i = 0; i < 4; ++i) y.set_f64(i, std::max(0, i - 2));
  write_array("t/m/test_data_set_0/output_0.npy", y);
  expect(0, "test t", {"1 pass, 0 fail"});
}

TEST_F(ExportedProgram, MistakesAreOneClearErrorEach) {
  write_array("wide.npy", range({2, 5}));
  write_array("whole.npy", range({2, 4}, 0, DType::I64));
  write_array("many.npy", range({65, 4}));
  write_array("odd.npy", range({12}));
  write_array("below.npy", range({}, -3, DType::I64));
  struct Case {
    int code;
    const char* arguments;
    std::vector<std::string> texts;
  };
  const Case cases[] = {
      {4, "run none.pt2", {"none.pt2", "cannot open"}},
      {2, "run m.pt2 --input X=x.npy", {"no input 'X'", "did you mean 'x'?", "inputs are x, k, n"}},
      {2,
       "run m.pt2 --shape seq=4",
       {"is called 'seq'", "s (dimension 0 of 'x'), t (8*t is dimension 0 of 'k'), n", "--shape x=?x4"}},
      {4, "run m.pt2 --input x=whole.npy", {"input 'x'", "f32[s, 4]", "i64[2, 4] was given"}},
      {4, "run m.pt2 --input x=wide.npy", {"dimension 1 must be 4", "f32[2, 5] was given"}},
      {4, "run m.pt2 --input x=many.npy", {"s <= 64", "s=65", "s is dimension 0 of input 'x'"}},
      {4, "run m.pt2 --shape t=9", {"t <= 8", "t=9"}},
      {4, "run m.pt2 --input k=odd.npy", {"input 'k'", "12"}},
      {4, "run m.pt2 --input n=below.npy", {"input 'n' is a size, and -3 was given"}},
      {4, "run m.pt2 --input x=m.pt2", {"m.pt2", ".npy"}},
      {4, "run text.pt2", {"text.pt2", "not a valid ONNX protobuf", "nor is it an archive of torch.export.save"}},
      {4, "run cut.pt2", {"cut.pt2", "no end record: it is cut off"}},
      {3, "run pickle.pt", {"pickle.pt", "the file is a pickle", "torch.export.save("}},
      {3, "run custom.pt2", {"node 'body.0.y' (my.op.default, output 'y', net.py:10)", "is not supported"}},
      {2, "compile m.pt2", {"--output is required"}},
  };
  write("text.pt2", "hello, this is no archive");
  write("cut.pt2", read_text(path("m.pt2")).substr(0, 1000));
  write("pickle.pt", "\x80\x02}q.");
  write("custom.pt2", fx_test::archive(fx_test::program("input x: f32[2]\ny: f32[2] = my.op.default(x=x)\nreturn y")));
  expect(0, "run m.pt2 --shape s=1", {"f32[1, 3]"}); // below the exporter's 2, as the exported module takes it
  for (const Case& c : cases) {
    Outcome o = expect(c.code, c.arguments, c.texts);
    EXPECT_EQ(o.err.find("error TES-"), o.err.rfind("error TES-")) << c.arguments << "\n" << o.err;
    EXPECT_NE(o.err.find("error TES-"), std::string::npos) << c.arguments << "\n" << o.err;
  }
}

} // namespace
} // namespace tessera
