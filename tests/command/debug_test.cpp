// tessera debug and tessera reduce, as a shell runs them.
#include "../../tools/command/shrink.h"
#include "harness.h"
#include "tests/onnx/model_maker.h"
#include <cmath>

namespace tessera::command_test {
namespace {

using onnx_test::Maker;
namespace proto = ::tessera::onnx_proto;

class Debug : public Command {
protected:
  void write(const std::string& name, const Maker& maker) const {
    std::ofstream(path(name), std::ios::binary) << maker.bytes();
  }
  // Between other work, an exponential that overflows f16 and is divided by itself: n_half, n_exp.
  static Maker overflow() {
    Maker m;
    m.input("x", {"b", 8}).output("y", {"b", 8});
    m.weight(onnx_test::float_tensor("k", {}, {12}));
    m.weight(onnx_test::int64_tensor("axes", {1}, {1}));
    m.add("Sigmoid", {"x"}, {"s"}).add("Add", {"s", "s"}, {"t"}).add("Mul", {"t", "k"}, {"u"});
    m.add("Cast", {"u"}, {"half"}, {onnx_test::int_attribute("to", proto::TensorProto::FLOAT16)});
    m.add("Exp", {"half"}, {"e"});
    m.add("ReduceSum", {"e", "axes"}, {"sum"}).add("Div", {"e", "sum"}, {"d"});
    m.add("Cast", {"d"}, {"f"}, {onnx_test::int_attribute("to", proto::TensorProto::FLOAT)});
    m.add("Tanh", {"f"}, {"g"}).add("Mul", {"g", "s"}, {"y"});
    return m;
  }
};

TEST_F(Debug, NamesTheFirstOperatorThatDeparts) {
  write("m.onnx", overflow());
  expect(1, "debug m.onnx --shape b=3 --strict-rounding --json d.json", {"departs at n_e (Exp)", "expected", "inf"});
  const Json j = json("d.json");
  EXPECT_EQ(j["verdict"], "departs");
  EXPECT_EQ(j["first"]["operator"], "n_e");
  EXPECT_EQ(j["first"]["value"], "e");
  EXPECT_EQ(j["first"]["seen"], "inf");
  EXPECT_TRUE(j["first"]["error"].is_null()); // infinite
  EXPECT_EQ(j["first"]["index"].size(), 2u);
  EXPECT_EQ(j["chain"][0]["operator"], "n_e");
  EXPECT_EQ(j["chain"][1]["operator"], "n_half");
  EXPECT_EQ(j["outputs_bit_identical"], true);
  EXPECT_GT(j["taps_inside_kernels"], 0);
  std::set<std::string> names;
  for (const Json& o : j["operators"]) names.insert(o["name"]);
  for (const char* name : {"n_s", "n_t", "n_u", "n_half", "n_e", "n_sum", "n_d", "n_f", "n_g", "n_y"})
    EXPECT_TRUE(names.contains(name)) << name;
}

TEST_F(Debug, AgreesAndSaysWhatIsNotCompared) {
  Maker m;
  m.input("x", {"b", 8}).output("y", {8, "b"});
  m.add("Relu", {"x"}, {"r"}).add("Transpose", {"r"}, {"t"}).add("Exp", {"t"}, {"y"});
  write("m.onnx", m);
  expect(0, "debug m.onnx --shape b=3 --json d.json", {"agrees with the f64 reference", "same bits with and without"});
  EXPECT_EQ(json("d.json")["verdict"], "agrees");
  expect(0, "debug m.onnx --shape b=3 --full", {"all operators", "n_r", "n_y"});
  // Every value is compared or has a reason.
  const Json j = json("d.json");
  std::set<std::string> names;
  for (const Json& o : j["operators"]) names.insert(o["name"]);
  for (const Json& n : j["not_compared"]) {
    EXPECT_FALSE(n["reason"].get<std::string>().empty());
    names.insert(n["operator"]);
  }
  for (const char* name : {"n_r", "n_y"}) EXPECT_TRUE(names.contains(name)) << name;
  expect(1, "debug m.onnx --shape b=3 --rtol 0", {"departs at n_y"}); // exp rounds, relu does not
}

TEST_F(Debug, ComparesTwoModelsByTheNamesOfTheirValues) {
  Maker one, other;
  for (auto [m, factor] : {std::pair(&one, 2.0f), {&other, 2.5f}}) {
    m->input("x", {"b", 8}).output("y", {"b", 8});
    m->weight(onnx_test::float_tensor("k", {}, {factor}));
    m->add("Tanh", {"x"}, {"a"}).add("Mul", {"a", "k"}, {"c"}).add("Sigmoid", {"c"}, {"y"});
  }
  write("one.onnx", one);
  write("other.onnx", other);
  expect(1, "debug one.onnx --against-model other.onnx --shape b=2", {"departs at n_c (Mul)", "other.onnx"});
  expect(0, "debug one.onnx --against-model one.onnx --shape b=2", {"agrees with one.onnx"});
  expect(2, "debug one.onnx --against-model other.onnx --against cpu");
}

// Roundings that lie between two integers, and a difference that cancels.
TEST_F(Debug, SaysWhatIsNotJudged) {
  Maker m;
  m.input("x", {"b", 8}).output("y", {"b", 8});
  m.weight(onnx_test::float_tensor("k", {}, {4096}));
  m.add("Add", {"x", "k"}, {"a"});
  m.add("Cast", {"a"}, {"half"}, {onnx_test::int_attribute("to", proto::TensorProto::FLOAT16)});
  m.add("Cast", {"half"}, {"wide"}, {onnx_test::int_attribute("to", proto::TensorProto::FLOAT)});
  m.add("Sub", {"wide", "k"}, {"d"}).add("Round", {"d"}, {"r"}).add("Tanh", {"r"}, {"y"});
  write("m.onnx", m);
  expect(0, "debug m.onnx --shape b=3 --json d.json", {"agrees", "are not judged, as the operator itself is right"});
  const Json j = json("d.json");
  ASSERT_FALSE(j["not_judged"].empty());
  EXPECT_EQ(j["not_judged"][0]["operator"], "n_d");
  EXPECT_FALSE(j["not_judged"][0]["departs"].get<bool>());
}

// A random operator draws other numbers in every call; those of all runs of this command are the same.
TEST_F(Debug, RandomOperatorsAgree) {
  Maker m;
  m.input("x", {"b", 8}).output("y", {"b", 8});
  m.add("RandomNormalLike", {"x"}, {"r"}).add("Mul", {"x", "r"}, {"t"}).add("Exp", {"t"}, {"y"});
  write("m.onnx", m);
  for (int i = 0; i < 3; ++i) expect(0, "debug m.onnx --shape b=3", {"agrees", "same bits with and without"});
}

// The ids of what is chosen, the sizes of a slice and of a reshape are read from data.
TEST_F(Debug, SizesThatAreReadFromData) {
  Maker m;
  m.input("x", {"n", 4}).output("y").output("z");
  m.weight(onnx_test::float_tensor("zero", {}, {0}));
  m.weight(onnx_test::int64_tensor("one", {1}, {1})).weight(onnx_test::int64_tensor("start", {1}, {0}));
  m.weight(onnx_test::int64_tensor("axis", {1}, {0})).weight(onnx_test::int64_tensor("most", {1}, {5}));
  m.weight(onnx_test::int64_tensor("rows", {2}, {-1, 2}));
  m.add("Greater", {"x", "zero"}, {"g"}).add("NonZero", {"g"}, {"found"});
  m.add("Transpose", {"found"}, {"places"}).add("GatherND", {"x", "places"}, {"chosen"});
  m.add("Shape", {"chosen"}, {"count"}).add("Min", {"count", "most"}, {"take"});
  m.add("Slice", {"chosen", "start", "take", "axis", "one"}, {"top"}).add("Exp", {"top"}, {"y"});
  m.add("Sigmoid", {"chosen"}, {"s"}).add("Expand", {"zero", "take"}, {"filled"});
  m.add("Add", {"filled", "top"}, {"z"});
  // Computed where it is read, from a row on that is known only then.
  m.weight(onnx_test::int64_tensor("end", {1}, {1000})).output("w");
  m.add("Sigmoid", {"x"}, {"early"}).add("Mul", {"early", "early"}, {"square"});
  m.add("Slice", {"square", "take", "end", "axis", "one"}, {"rest"}).add("Exp", {"rest"}, {"w"});
  write("m.onnx", m);
  expect(0, "run m.onnx --shape n=6");
  expect(0, "debug m.onnx --shape n=6", {"agrees"});
  expect(0, "debug m.onnx --shape n=6 --against strict-rounding", {"agrees"});
}

TEST_F(Debug, ComparesWithOnnxRuntime) {
  write("m.onnx", overflow());
  const std::string python = TESSERA_BINARY_DIR "/venv/bin/python3";
  expect(3, "debug m.onnx --shape b=2 --against onnxruntime --python no-such-python",
         {"no ONNX Runtime to compare with", "pip install onnxruntime", "--python"});
  ASSERT_EQ(std::system(("'" + python + "' -c 'import onnxruntime'").c_str()), 0) << "tools/setup installs it";
  Maker good;
  good.input("x", {"b", 8}).output("y", {"b", 8});
  good.weight(onnx_test::float_tensor("k", {}, {2}));
  good.add("Tanh", {"x"}, {"a"}).add("Mul", {"a", "k"}, {"c"}).add("Softmax", {"c"}, {"y"});
  write("good.onnx", good);
  const std::string against = " --shape b=3 --against onnxruntime --python '" + python + "'";
  expect(0, "debug good.onnx --json d.json" + against, {"agrees with ONNX Runtime"});
  std::set<std::string> names;
  const Json j = json("d.json");
  for (const Json& o : j["operators"]) names.insert(o["name"]);
  for (const char* name : {"n_a", "n_c", "n_y"}) EXPECT_TRUE(names.contains(name)) << name;
  // Fused, an f16 between a cast and another is wider: exp() does not overflow, as it does there.
  expect(1, "debug m.onnx" + against, {"departs at", "ONNX Runtime"});
  expect(2, "debug good.onnx --against-model m.onnx" + against, {"exclude"});
}

TEST_F(Debug, ReducesToTheOperatorsThatDepart) {
  write("m.onnx", overflow());
  expect(0, "reduce m.onnx --shape b=4 --strict-rounding -o small --json r.json", {"reduced to", "n_e (Exp)", "small"});
  const Json j = json("r.json");
  EXPECT_EQ(j["operators_before"], 10);
  EXPECT_EQ(j["operators"], 1);
  EXPECT_EQ(j["nodes"][0]["name"], "n_e");
  EXPECT_TRUE(j["complete"]);
  // The folder is all that is needed, and its command fails as the model did.
  const std::string command = j["command"];
  ASSERT_EQ(command.find("tessera "), 0u);
  fs::remove(path("m.onnx"));
  expect(1, command.substr(8), {"departs at n_e (Exp)"});
}

TEST_F(Debug, ReducesWhatACommandCallsFailing) {
  write("m.onnx", overflow());
  std::ofstream(path("fails.sh")) << "test -d \"$(dirname \"$1\")/inputs\" || exit 0\n"
                                     "grep -aq n_d \"$1\" && grep -aq n_half \"$1\" && exit 3\nexit 0\n";
  expect(0, "reduce m.onnx --shape b=4 --fails 'sh fails.sh' -o small --json r.json", {"exit code 3"});
  const Json j = json("r.json");
  EXPECT_EQ(j["operators"], 2); // no path leads from one to the other: both stay, nothing between them
  EXPECT_TRUE(fs::exists(path("small/model.onnx")));
  expect(0, "run small/model.onnx --case small");
  // A model that does not fail is an error, and an existing folder of others' is not touched.
  expect(2, "reduce m.onnx --shape b=4 --fails true -o other", {"does not fail"});
  fs::create_directory(path("mine"));
  expect(2, "reduce m.onnx --shape b=4 --fails false -o mine", {"is no result of this command"});
}

TEST_F(Debug, ATimeLimitLeavesTheBestCandidate) {
  write("m.onnx", overflow());
  std::ofstream(path("fails.sh")) << "sleep 0.4\ngrep -aq n_d \"$1\" && exit 3\nexit 0\n";
  expect(0, "reduce m.onnx --shape b=4 --fails 'sh fails.sh' --seconds 1 -o small --json r.json");
  EXPECT_FALSE(json("r.json")["complete"]);
  expect(0, "run small/model.onnx --case small");
}

TEST(Shrink, FindsTheSmallestSetThatHolds) {
  std::set<size_t> all;
  for (size_t i = 0; i < 100; ++i) all.insert(i);
  for (const std::set<size_t>& need : {std::set<size_t>{42}, {3, 97}, {10, 11, 50, 80}, {0, 99}}) {
    int tried = 0;
    auto holds = [&](const std::set<size_t>& items) {
      ++tried;
      return std::includes(items.begin(), items.end(), need.begin(), need.end());
    };
    EXPECT_EQ(command::smallest(all, holds, [] { return false; }), need);
    EXPECT_LT(tried, 200);
  }
  EXPECT_EQ(command::smallest(
                all, [](const auto&) { return true; }, [] { return true; }),
            all);
}

} // namespace
} // namespace tessera::command_test
