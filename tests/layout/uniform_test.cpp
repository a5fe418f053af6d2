// Scalars that neighbouring programs have in common, and the clusters of blocks that follow from them.
#include "codegen/layout/uniform.h"
#include "codegen/layout/warpgroup.h"
#include "tests/tile/helpers.h"
#include <gtest/gtest.h>

namespace tessera::layout {
namespace {

using tile::test::read;

// Scalars by name, in the order of the text.
constexpr const char* kScalars = R"(
tile.kernel @scalars(%a: ptr<i64> invariant, %b: ptr<i64>, %y: ptr<i64> written, %n: i64) {
  %p = program_id 0        : i64
  %pair = div(%p, 2)       : i64
  %four = div(%p, 4)       : i64
  %three = div(%p, 3)      : i64
  %rank = mod(%p, 2)       : i64
  %sum = add(%pair, %n)    : i64
  %mixed = add(%sum, %p)   : i64
  %loaded = load %a[%pair] : i64
  %other = load %a[%p]     : i64
  %varying = load %b[%pair] : i64
  for %i = %pair to %n step 8 {
    %in = mul(%i, 4)       : i64
    store %y[%p] = %in
  }
  for %j = %rank to %n step 8 {
    %out = mul(%j, 4)      : i64
    store %y[%p] = %out
  }
})";

TEST(Uniform, FollowsFromTheGroupsNumber) {
  const tile::Kernel k = read(kScalars);
  const auto uniform = [&](int group) {
    const Uniform u(k, group);
    std::string text; // of scalars that are no constants, in the order of the operations
    for (tile::OpId id = 0; id < k.op_count(); ++id) {
      const tile::Op& op = k.op(id);
      if (op.kind != tile::OpKind::Const && op.results.size() == 1) text += u.is_uniform(op.results[0]) ? 'u' : '-';
    }
    return text;
  };
  //                    p pair four three rank sum mixed loaded other varying in out
  EXPECT_EQ(uniform(2), "-uu--u-u--u-");
  EXPECT_EQ(uniform(4), "--u---------");
  std::vector<bool> iterates;
  const Uniform pairs(k, 2);
  for (tile::OpId id = 0; id < k.op_count(); ++id)
    if (k.op(id).kind == tile::OpKind::For) iterates.push_back(pairs.iterates(k.op(id)));
  EXPECT_EQ(iterates, (std::vector<bool>{true, false}));
}

TEST(Uniform, SizesOfClusters) {
  for (const int64_t blocks : {1, 2, 4, 8}) EXPECT_TRUE(is_cluster(blocks));
  for (const int64_t blocks : {-2, 0, 3, 5, 16}) EXPECT_FALSE(is_cluster(blocks));
}

} // namespace
} // namespace tessera::layout
