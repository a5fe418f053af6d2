// The table of reasons: stable codes, and the page that lists them.
#include "tests/fusion/harness.h"
#include <fstream>
#include <set>
#include <sstream>

namespace tessera {
namespace {

TEST(Ledger, CodesAreUniqueAndDocumented) {
  std::ifstream file(std::string(TESSERA_SOURCE_DIR) + "/docs/fusion/README.md");
  std::stringstream page;
  page << file.rdbuf();
  std::set<std::string_view> codes, names;
  for (int r = 0; r < static_cast<int>(FusionReason::Count_); ++r) {
    const auto& row = info(static_cast<FusionReason>(r));
    EXPECT_TRUE(codes.insert(row.code).second) << row.code;
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_TRUE(row.alias.empty() || names.insert(row.alias).second) << row.alias;
    std::string code(row.code);
    std::string line = "| [" + code + "](" + code + ".md) | " + std::string(row.name) + " | " +
                       (row.fused ? "yes" : "no") + " | " + std::string(row.summary) + " |\n";
    EXPECT_NE(page.str().find(line), std::string::npos) << "docs/fusion/README.md lacks: " << line;
  }
}

} // namespace
} // namespace tessera
