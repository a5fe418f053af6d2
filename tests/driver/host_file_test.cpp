// Executables with operators that run by their reference: saved, loaded, run.
#include "codegen/load/load.h"
#include "codegen/load/resolve_host_step.h"
#include "harness.h"
#include <fstream>

namespace tessera::driver_test {
namespace {

// Compiles, saves, loads into a new executable and expects the same results of both.
void round_trip(Graph graph, const Inputs& inputs, int host_steps) {
  TemporaryFolder folder;
  auto compiled = compile_it(std::move(graph), options(folder.path()));
  ASSERT_TRUE(compiled.executable);
  EXPECT_EQ(compiled.executable->host_steps, host_steps);
  std::string path = folder.path() + "/model.tsr";
  auto saved = save_executable(*compiled.executable, path, true);
  ASSERT_TRUE(saved.ok()) << saved.error().str();
  auto loaded = load_compiled(path);
  ASSERT_TRUE(loaded.ok()) << loaded.error().str();
  auto want = run(compiled, inputs);
  ASSERT_TRUE(want.ok()) << want.error().str();
  Compiled other;
  ASSERT_EQ(loaded->size(), 1u);
  other.executable = loaded->front().executable;
  auto got = run(other, inputs);
  ASSERT_TRUE(got.ok()) << got.error().str();
  ASSERT_EQ(got->size(), want->size());
  for (size_t o = 0; o < want->size(); ++o) {
    ASSERT_EQ((*got)[o].dims(), (*want)[o].dims());
    for (int64_t i = 0; i < (*want)[o].count(); ++i) EXPECT_EQ((*got)[o].get_f64(i), (*want)[o].get_f64(i));
  }
}

TEST(HostFile, SizesThatDataDecides) {
  auto model = Maker()
                   .input("x", {"n", "m"})
                   .add("Relu", {"x"}, {"r"})
                   .add("NonZero", {"r"}, {"at"})
                   .add("Transpose", {"at"}, {"y"})
                   .add("Add", {"r", "r"}, {"z"})
                   .output("y")
                   .output("z");
  auto imported = model.import_it();
  ASSERT_TRUE(imported.ok()) << imported.error().str();
  round_trip(std::move(imported->graph), {{"x", random(DType::F32, {5, 7})}}, 0);
}

// A size of its own attributes that follows from the inputs, constants as operands, several results.
TEST(HostFile, AttributesConstantsAndSeveralResults) {
  round_trip(parse(R"(graph @main(%x: f32[n, 9]) -> ("v" = %v: f32[n, 3], "i" = %i: i64[n, 3]) where n in [0, ?] {
  %k = constant {3} : i64[1]
  %v, %i = topk(%x, %k) axis=1 : f32[n, 3], i64[n, 3]
}
)"),
             {{"x", random(DType::F32, {4, 9})}}, 0);
}

TEST(HostFile, TextsThatDoNotFitAreCorrupt) {
  Executable executable;
  executable.env = std::make_shared<ShapeEnv>();
  executable.buffers.resize(2);
  executable.buffers[0].shape = executable.buffers[1].shape = {SymExpr(3)};
  HostStep step;
  step.name = "at";
  step.op = "nonzero";
  step.inputs = {0};
  step.outputs = {1};
  for (const char* text :
       {"", "graph", "graph @host(%x: f32[3]) -> (\"y\" = %x: f32[3]) {\n}\n",
        "graph @host(%x: f32[3]) -> (%y: f32[3]) {\n  %y = neg(%x) : f32[3]\n}\n",
        "graph @host(%x: f32[3]) -> (%y: i64[1, n]) where n in [0, ?] {\n  %y = nonzero(%x) : i64[1, n]\n}\n"}) {
    step.payload = text;
    auto made = resolve_host_step(step, executable);
    ASSERT_FALSE(made.ok()) << text;
    EXPECT_EQ(made.error().code, ErrorCode::CorruptFile);
    EXPECT_NE(made.error().message.find("'at'"), std::string::npos) << made.error().str();
  }
}

// A step on a list whose items are those of `items`, made again from its text.
Result<decltype(HostStep::run)> on_list(const std::string& op, const std::string& text) {
  Executable executable;
  executable.env = std::make_shared<ShapeEnv>();
  executable.buffers.resize(2);
  for (auto& b : executable.buffers) {
    b.dtype = DType::List;
    b.shape = {SymExpr(2)};
  }
  HostStep step;
  step.name = step.op = op;
  step.inputs = {0};
  step.outputs = {1};
  step.payload = text;
  return resolve_host_step(step, executable);
}

// The items of a list are compared with the text before a reference reads it.
TEST(HostFile, ListsOfOtherItemsAreRefused) {
  auto run = on_list("Identity", "graph @host(%x: list<sequence f32[?]>[2]) -> (%y: list<sequence f32[?]>[2]) {\n"
                                 "  %y = Identity@13(%x) : list<sequence f32[?]>[2]\n}\n");
  ASSERT_TRUE(run.ok()) << run.error().str();
  const Tensor numbers = random(DType::F32, {3}), integers = Tensor::create(DType::I64, {3}, true).value(),
               words = Tensor::strings({3}, {"a", "b", "c"});
  EXPECT_TRUE((*run)({Tensor::list({numbers, numbers})}, {}).ok());
  for (const Tensor& other : {Tensor::list({numbers, integers}), Tensor::list({words, words}), numbers,
                              Tensor::list({numbers, Tensor::list({numbers})}), Tensor::list({numbers})}) {
    auto refused = (*run)({other}, {});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::Internal);
    EXPECT_NE(refused.error().message.find("list<sequence f32[?]>[2]"), std::string::npos) << refused.error().str();
  }
}

// An operator of a body that no loaded library has.
TEST(HostFile, UnknownOperatorsOfBodiesAreNamed) {
  auto run =
      on_list("loop", "graph @host(%s: list<sequence f32[]>[2]) -> (%r: list<sequence f32[]>[2]) {\n"
                      "  %r = loop(_, _, %s) body=graph @body(%i: i64[], %on: bool[], %t: list<sequence f32[]>[2])"
                      " -> (%on: bool[], %u: list<sequence f32[]>[2]) {\n"
                      "    %u = com.example.Sort(%t) : list<sequence f32[]>[2]\n"
                      "  } captures=[0] : list<sequence f32[]>[2]\n}\n");
  ASSERT_FALSE(run.ok());
  EXPECT_EQ(run.error().code, ErrorCode::UnsupportedOp);
  EXPECT_NE(run.error().message.find("'com.example.Sort'"), std::string::npos) << run.error().str();
  EXPECT_NE(run.error().str().find("--operators FILE"), std::string::npos) << run.error().str();
}

// A loop that carries a list, and reads what is around it.
TEST(HostFile, LoopsOfListsOnTheHost) {
  round_trip(
      parse(
          R"(graph @main(%t: i64[], %x: f32[n]) -> (%y: f32[m], %l: i64[]) where n in [1, ?], m in [0, ?], k in [0, ?] {
  %e = list_construct() container="sequence" of="f32" : list<sequence f32[]>[0]
  %w = constant {0.5} : f32[]
  %r = loop(%t, _, %e, %x, %w) body=graph @body(%i: i64[], %on: bool[], %s: list<sequence f32[?]>[d], %v: f32[n], %f: f32[]) -> (%on: bool[], %g: list<sequence f32[?]>[d + 1]) where d in [0, ?] {
    %q = mul(%v, %f) : f32[n]
    %g = list_insert(%s, %q) : list<sequence f32[?]>[d + 1]
  } captures=[2] : list<sequence f32[?]>[k]
  %y = ConcatFromSequence@11(%r) axis=0 new_axis=0 : f32[m]
  %l = SequenceLength@11(%r) : i64[]
}
)"),
      {{"t", Tensor::of<int64_t>(DType::I64, {}, std::vector<int64_t>{3})}, {"x", random(DType::F32, {4})}}, 3);
}

} // namespace
} // namespace tessera::driver_test
