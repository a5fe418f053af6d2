// Kernels in, kernels with layouts out: whole, as texts (TESSERA_BLESS=1 rewrites them), and what has to hold of all.
#include "codegen/layout/assign.h"
#include "kernels.h"
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace tessera::layout {
namespace {

using tile::OpKind;
using tile::test::read;

KernelLayouts assign(std::string_view text) {
  Result<KernelLayouts> k = assign_layouts(read(text));
  if (!k.ok()) {
    ADD_FAILURE() << k.error().str();
    std::abort();
  }
  Status good = verify_layouts(*k);
  EXPECT_TRUE(good.ok()) << good.error().str() << k->str();
  return std::move(k).value();
}

void expect_golden(const std::string& name, std::string_view text) {
  std::string out = assign(text).str();
  std::string path = std::string(TESSERA_TEST_DIR) + "/golden/" + name + ".tile";
  if (std::getenv("TESSERA_BLESS")) {
    std::ofstream(path) << out;
    return;
  }
  std::ifstream file(path);
  ASSERT_TRUE(file.good()) << path;
  std::stringstream expected;
  expected << file.rdbuf();
  EXPECT_EQ(out, expected.str());
  auto parsed = tile::parse(expected.str(), path);
  ASSERT_TRUE(parsed.ok()) << parsed.error().str();
}

TEST(AssignGolden, Scale) { expect_golden("scale", test::kScale); }
TEST(AssignGolden, Softmax) { expect_golden("softmax", test::kSoftmax); }
TEST(AssignGolden, ShortRows) { expect_golden("short_rows", test::kShortRows); }
TEST(AssignGolden, LongRow) { expect_golden("long_row", test::kLongRow); }
TEST(AssignGolden, Columns) { expect_golden("columns", test::kColumns); }
TEST(AssignGolden, Transpose) { expect_golden("transpose", test::kTranspose); }
TEST(AssignGolden, Mixed) { expect_golden("mixed", test::kMixed); }

} // namespace
} // namespace tessera::layout
