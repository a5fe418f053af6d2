// Executables with operators that run by their reference: saved, loaded, run.
#include "codegen/driver/host_payload.h"
#include "codegen/driver/load.h"
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
  other.executable = *loaded;
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

} // namespace
} // namespace tessera::driver_test
