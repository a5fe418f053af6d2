#include "runtime/launch_spec.h"
#include "symbols/env.h"
#include <gtest/gtest.h>

namespace tessera {
namespace {

LaunchSpec launch(const SymExpr& n) {
  LaunchSpec k;
  k.sizes = {n, 4};
  k.grid = ceildiv(n, 64);
  k.work_per_program = 64;
  k.workspaces = {{DType::F16, n * 2}};
  k.access = {{DType::F32, n + 1, {0}}};
  k.conditions = {{n + 2, 8, 16, 1024}};
  k.facts = {{n + 3, 1, 0, 7}};
  return k;
}

TEST(LaunchSpec, PrintsItsNumbers) {
  ShapeEnv env;
  const SymExpr n = env.named_symbol("n");
  EXPECT_EQ(print(LaunchSpec()), "");
  EXPECT_EQ(print(launch(n)), "sizes = [n, 4]; grid = " + ceildiv(n, 64).str() + "; work = 64; workspaces = [f16 * (" +
                                  (n * 2).str() + ")]");
}

TEST(LaunchSpec, ConvertsEachSizeAndKeepsTheRest) {
  ShapeEnv env;
  const SymExpr n = env.named_symbol("n");
  std::vector<std::string> bounded;
  const auto values = convert_sizes<int64_t>(launch(n), [&](const LaunchField& field, const SymExpr& size) {
    if (!field.memory.empty()) bounded.emplace_back(field.key);
    return size.eval({{n.symbol_id(), 100}}).value();
  });
  EXPECT_EQ(bounded, (std::vector<std::string>{"scratch", "counters", "boxes", "workspaces"}));
  EXPECT_EQ(values.sizes, (std::vector<int64_t>{100, 4}));
  EXPECT_EQ(values.grid, 2);
  EXPECT_EQ(values.workspaces.at(0).bytes(), 400);
  EXPECT_EQ(values.access.at(0).elements, 101);
  EXPECT_EQ(values.access.at(0).may_overwrite, std::vector<int>{0});
  EXPECT_EQ(values.conditions.at(0).value, 102);
  EXPECT_TRUE(values.conditions.at(0).allows(104));
  EXPECT_FALSE(values.conditions.at(0).allows(102));
  EXPECT_FALSE(values.conditions.at(0).allows(8));
  EXPECT_EQ(values.facts.at(0).max, 7);
  int sizes = 0;
  each_size(launch(n), [&](const SymExpr&) { ++sizes; });
  EXPECT_EQ(sizes, 2 + 6 + 1 + 1 + 1 + 1);
}

TEST(LaunchSpec, HasTensorMaps) {
  ShapeEnv env;
  const SymExpr n = env.named_symbol("n");
  LaunchSpec k;
  k.tensor_maps = {{1, DType::F16, 64, {n, 8}, {n * 2}, {64, 8}, Swizzle::Bytes128}};
  EXPECT_EQ(print(k), "tensor_maps = [f16 %1 + 64 [n, 8] strides [" + (n * 2).str() + "] box [64, 8] swizzle 3]");
  const auto values = convert_numbers<int64_t>(k, [&](const LaunchField&, const SymExpr& size) {
    return size.eval({{n.symbol_id(), 72}}).value();
  });
  const TensorMapOf<int64_t> expected{1, DType::F16, 64, {72, 8}, {144}, {64, 8}, Swizzle::Bytes128};
  EXPECT_EQ(values.tensor_maps.at(0), expected);
  EXPECT_FALSE(has(k, LaunchUse::Shared));
}

TEST(TensorMap, RefusesWhatLiesOutside) {
  const TensorMapOf<int64_t> good{0, DType::F16, 32, {72, 8}, {160}, {64, 8}, Swizzle::Bytes128};
  const int64_t bytes = 32 + 7 * 160 + 72 * 2;
  EXPECT_EQ(refusal(good, bytes), "");
  auto refused = [&](auto change, const char* why) {
    auto map = good;
    change(map);
    EXPECT_NE(refusal(map, bytes).find(why), std::string::npos) << refusal(map, bytes);
  };
  EXPECT_NE(refusal(good, bytes - 1).find("its last element"), std::string::npos);
  refused([](auto& m) { m.dims[1] = 9; }, "its last element");
  refused([](auto& m) { m.dims[0] = 73; }, "its last element");
  refused([](auto& m) { m.dims[1] = int64_t{1} << 32; }, "its last element");
  refused([](auto& m) { m.strides[0] = 1 << 20; }, "its last element");
  refused([](auto& m) { m.dims[1] = 0; }, "a dimension has 0 elements");
  refused([](auto& m) { m.dims[0] = -1; }, "a dimension has -1 elements");
  refused([](auto& m) { m.strides[0] = 168; }, "a stride is 168 bytes");
  refused([](auto& m) { m.strides[0] = -160; }, "a stride is -160 bytes");
  refused([](auto& m) { m.strides[0] = int64_t{1} << 40; }, "a stride is");
  refused([](auto& m) { m.offset = 8; }, "it begins at byte 8");
  refused([](auto& m) { m.offset = -16; }, "it begins at byte -16");
  refused([](auto& m) { m.box[0] = 128; }, "a row of its box has 256 bytes");
  refused([](auto& m) { m.box[0] = 4; }, "a row of its box has 8 bytes");
  refused([](auto& m) { m.box[1] = 257; }, "its box has 257 elements");
  refused([](auto& m) { m.box.pop_back(); }, "extents of a box");
  refused([](auto& m) { m.steps = {2, 1}; }, "64 elements at steps of 2");
  refused([](auto& m) { m.steps = {1, 9}; }, "8 elements at steps of 9");
  refused([](auto& m) { m.box[1] = 128, m.steps = {1, 3}; }, "128 elements at steps of 3");
  refused([](auto& m) { m.strides.clear(); }, "0 strides");
  refused([](auto& m) { m.dtype = DType::U4; }, "its elements are u4");
  refused([](auto& m) { m.swizzle = static_cast<Swizzle>(4); }, "its swizzle");
}

TEST(TensorMap, IsReadBackFromNumbers) {
  const KernelTensorMap map{2, DType::BF16, {16, {}}, {{1, {4}}, {8, {4, 5}}}, {{2, {4}}}, {64, 16}, Swizzle::Bytes64};
  std::vector<KernelTensorMap> maps{map, map};
  maps[1].steps = {1, 2};
  auto numbers = flatten(maps);
  EXPECT_EQ(unflatten(numbers), maps);
  EXPECT_EQ(unflatten({}), std::vector<KernelTensorMap>());
  for (size_t i = 0; i < numbers.size(); ++i) { // cut off, or with a number that none has
    EXPECT_NE(unflatten(std::span(numbers).first(i)), maps);
    auto wrong = numbers;
    wrong[i] = -1;
    EXPECT_FALSE(unflatten(wrong)) << i;
  }
}

TEST(LaunchSpec, SaysWhatItIsFor) {
  LaunchSpec k;
  EXPECT_TRUE(has(launch(1), LaunchUse::Shared)); // its workspace
  EXPECT_FALSE(has(launch(1), LaunchUse::Waits));
  EXPECT_FALSE(has(k, LaunchUse::Shared));
  k.cooperative_blocks = 8;
  EXPECT_TRUE(has(k, LaunchUse::Shared));
  EXPECT_TRUE(has(k, LaunchUse::Waits));
}

} // namespace
} // namespace tessera
