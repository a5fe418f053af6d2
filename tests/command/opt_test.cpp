// tessera opt with a device: what it prints is what a compile makes.
#include "harness.h"

namespace tessera::command_test {
namespace {

const char* const kDevices[] = {"--device cpu", "--device cuda --arch sm_90a"};

TEST_F(Command, OptPrintsTheGraphAndThePlanOfACompile) {
  for (const char* name : {"mlp", "conv", "norm"})
    for (const char* device : kDevices) {
      const std::string arguments = "'" + model(name) + "' " + device;
      setenv("TESSERA_DUMP_DIR", path("dump").c_str(), 1);
      expect(0, "explain " + arguments);
      unsetenv("TESSERA_DUMP_DIR");
      const std::string graph = read_text(path("dump/graph.txt")), plan = read_text(path("dump/plan.txt"));
      EXPECT_NE(graph, "");
      EXPECT_NE(plan, "");
      EXPECT_EQ(expect(0, "opt --verify " + arguments).out, graph + "\n" + plan) << arguments;
      EXPECT_EQ(expect(0, "opt --passes compile " + arguments).out, graph + "\n" + plan) << arguments;
      fs::remove_all(path("dump"));
    }
}

TEST_F(Command, OptStopsAndLeavesPassesOut) {
  const std::string mlp = "'" + model("mlp") + "' ", cuda = mlp + kDevices[1];
  const std::string graph = expect(0, "opt " + cuda + " --stop-after pad-products --json p.json").out;
  EXPECT_EQ(graph.find("group "), std::string::npos) << "no plan yet";
  EXPECT_EQ(json("p.json")["passes"].back()["name"], "pad-products");
  EXPECT_EQ(expect(0, "opt " + mlp + kDevices[0] + " --stop-after simplify-shapes,2 --json p.json").code, 0);
  EXPECT_EQ(json("p.json")["passes"].back()["level"], "graph");
  expect(0, "opt " + cuda + " --disable-pass join-products --disable-pass fuse-attention --json p.json", {"group "});
  for (const auto& pass : json("p.json")["passes"]) EXPECT_NE(pass["name"], "join-products");
  expect(0, "opt " + cuda + " --passes tile", {"tile.kernel", "block-"});
  expect(0, "opt " + cuda + " --passes llvm", {"nvptx"});
  expect(0, "opt --list", {"widen-halves", "place-attention", "cuda", "graph to plan"});
}

TEST_F(Command, OptRefusesPassesThatCannotRun) {
  const std::string mlp = "opt '" + model("mlp") + "' ";
  expect(2, mlp + kDevices[0] + " --stop-after join-products", {"does not run pass 'join-products'", "widen-halves"});
  expect(2, mlp + "--passes join-products", {"pass 'join-products' is for device cuda, not cpu"});
  expect(2, mlp + "--passes fuse,cse", {"pass 'cse' works on a graph and stands before 'fuse'"});
  expect(2, mlp + "--passes place-atention --device cuda --arch sm_90", {"did you mean 'place-attention'?"});
  expect(2, mlp + "--device cpu --disable-pass fuse", {"without it there is no plan"});
  expect(2, mlp + "--device tpu", {"tpu"});
  expect(2, mlp + "--arch sm_1", {"sm_1"});
}

} // namespace
} // namespace tessera::command_test
