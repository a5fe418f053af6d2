// tessera kernel: a tile kernel at each level, and what a launch of it needs.
#include "harness.h"

namespace tessera::command_test {
namespace {

const std::string kExamples = TESSERA_SOURCE_DIR "/examples/tile/";

TEST_F(Command, KernelPrintsEachLevel) {
  const std::string file = "kernel '" + kExamples + "product.tile' ";
  expect(0, file + "--emit tile", {"tile.kernel @product(", "= dot("});
  expect(0, file + "--arch sm_90 --emit llvm", {"nvptx", "define "});
  expect(0, file + "--arch sm_80", {".target sm_80", ".entry product(", "mma.sync"});
  expect(0, file + "-o product.ptx");
  EXPECT_NE(read_text(path("product.ptx")).find(".target sm_90\n"), std::string::npos);
}

TEST_F(Command, KernelHasProductsByWarpgroups) {
  for (const auto& [name, instruction] : {std::pair("product", "m64n256k16.f32.bf16.bf16"),
                                          {"product_persistent", "m64n256k16.f32.bf16.bf16"},
                                          {"product_f16", "m64n256k16.f32.f16.f16"},
                                          {"product_f8", "m64n128k32.f32.e4m3.e4m3"}}) {
    const std::string file = "kernel '" + kExamples + name + ".tile' --arch sm_90a ";
    expect(0, file + "--emit ptx", {std::string("wgmma.mma_async.sync.aligned.") + instruction});
    expect(0, file + "--emit json -o launch.json");
    EXPECT_EQ(json("launch.json")["products"], "by warpgroups, 4 stages") << name;
  }
}

TEST_F(Command, KernelSaysWhatALaunchNeeds) {
  expect(0, "kernel '" + kExamples + "product.tile' --arch sm_80 --emit json -o product.json");
  const Json launch = json("product.json");
  EXPECT_EQ(launch["symbol"], "product");
  EXPECT_EQ(launch["threads"], 256);
  EXPECT_EQ(launch["dependent_launch"], false);
  EXPECT_EQ(launch["cluster"], 1);
  EXPECT_GT(launch["shared_bytes"], 0);
  std::vector<std::string> names;
  for (const auto& p : launch["params"]) names.push_back(p["name"]);
  EXPECT_EQ(names, (std::vector<std::string>{"a", "b", "c", "m", "n", "k", "report"}));
  EXPECT_EQ(launch["params"][2]["written"], true);
  EXPECT_EQ(launch["params"][4]["multiple"], 8);
  EXPECT_EQ(launch["tensor_maps"], Json::array());
}

TEST_F(Command, KernelRefusesWhatIsNone) {
  std::ofstream(path("wrong.tile")) << "tile.kernel @wrong(%x: ptr<f32>) {\n  store %x[0] = 1\n}\n";
  expect(4, "kernel wrong.tile", {"wrong.tile"});
  expect(4, "kernel none.tile", {"none.tile"});
  expect(2, "kernel '" + kExamples + "product.tile' --arch sm_1", {"sm_1", "sm_90a"});
  expect(2, "kernel '" + kExamples + "product.tile' --emit cubin", {"cubin"});
}

} // namespace
} // namespace tessera::command_test
