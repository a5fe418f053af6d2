#include "helpers.h"
#include <array>

namespace tessera::tile::test {
namespace {

int count(const Kernel& k, OpKind kind) {
  int n = 0;
  for (int i = 0; i < k.op_count(); ++i) n += k.op(i).kind == kind;
  return n;
}

TEST(Builder, ReusesEqualPureOperationsOfThisAndEnclosingBlocks) {
  Kernel k;
  k.name = "k";
  Builder b(k);
  ValueId n = b.param("n", {Type::Kind::Data, DType::I64, {}});
  ValueId one = b.const_i(DType::I64, 1);
  EXPECT_EQ(b.const_i(DType::I64, 1), one);
  EXPECT_NE(b.const_i(DType::I32, 1), one);
  EXPECT_NE(b.const_f(DType::F32, 0.0), b.const_f(DType::F32, -0.0));
  EXPECT_EQ(b.scalar(ScalarOp::Add, std::array{n, one}), b.scalar(ScalarOp::Add, std::array{n, one}));
  ValueId inside = -1;
  b.for_loop(b.const_i(DType::I64, 0), n, one, {}, [&](ValueId i, std::span<const ValueId>) -> std::vector<ValueId> {
    EXPECT_EQ(b.const_i(DType::I64, 1), one);
    inside = b.scalar(ScalarOp::Mul, std::array{i, i});
    b.range(4);
    return {};
  });
  b.range(4); // the loop's one does not dominate this
  EXPECT_EQ(count(k, OpKind::Range), 2);
  EXPECT_TRUE(verify(k).ok());
}

TEST(Builder, LoadsAreNeverShared) {
  Kernel k;
  k.name = "k";
  Builder b(k);
  ValueId p = b.param("p", {Type::Kind::Pointer, DType::F32, {}}, true), zero = b.const_i(DType::I64, 0);
  ValueId v = b.load(p, zero);
  b.store(p, zero, b.scalar(ScalarOp::Neg, std::array{v}));
  EXPECT_NE(b.load(p, zero), v);
}

TEST(Builder, ParameterNamesBecomeUniqueIdentifiers) {
  Kernel k;
  k.name = "k";
  Builder b(k);
  b.param("encoder.0/weight", {Type::Kind::Pointer, DType::F32, {}});
  b.param("encoder_0_weight", {Type::Kind::Pointer, DType::F32, {}});
  b.param("7", {Type::Kind::Data, DType::I64, {}});
  EXPECT_EQ(k.params[0].name, "encoder_0_weight");
  EXPECT_EQ(k.params[1].name, "encoder_0_weight_1");
  EXPECT_EQ(k.params[2].name, "_7");
  ASSERT_TRUE(parse(print(k)).ok());
}

TEST(Builder, TypesAreInferred) {
  Kernel k;
  k.name = "k";
  Builder b(k);
  ValueId r = b.range(8), h = b.cast(r, DType::F32);
  EXPECT_EQ(k.type(b.scalar(ScalarOp::Lt, std::array{h, b.const_f(DType::F32, 2)})).str(), "tile<[8], bool>");
  EXPECT_EQ(k.type(b.reduce(ReduceKind::Sum, h, 0)).str(), "f32");
  EXPECT_EQ(k.type(b.broadcast(b.expand_dims(h, 0), {4, 8})).str(), "tile<[4, 8], f32>");
  auto [v, i] = b.reduce_arg(ReduceKind::ArgMax, h, r, 0, false);
  EXPECT_EQ(k.type(v).str() + " " + k.type(i).str(), "f32 i64");
  EXPECT_EQ(k.type(b.scratch(DType::F16, b.const_i(DType::I64, 4))).str(), "ptr<f16>");
  EXPECT_EQ(b.cast(h, DType::F32), h);
}

// ---- the verifier on kernels that no builder or parser makes
TEST(Verify, RefusesBrokenKernels) {
  auto broken = [](const std::function<void(Kernel&)>& damage, std::string_view reason) {
    Kernel k = read("tile.kernel @k(%x: ptr<f32> written, %n: i64) {\n%r = range 4 : tile<[4], i64>\n%v = load %x[%r] "
                    ": tile<[4], f32>\nstore %x[%r] = %v\nfor %i = 0 to %n step 1 {\n%a = neg(%i) : i64\n}\n}");
    EXPECT_TRUE(verify(k).ok());
    damage(k);
    Status s = verify(k);
    ASSERT_FALSE(s.ok()) << reason;
    EXPECT_NE(s.error().message.find(reason), std::string::npos) << s.error().message;
  };
  auto find = [](Kernel& k, OpKind kind) -> Op& {
    for (int i = 0; i < k.op_count(); ++i)
      if (k.op(i).kind == kind) return k.op(i);
    return k.op(0);
  };
  broken([](Kernel& k) { k.name.clear(); }, "needs a name");
  broken([](Kernel& k) { std::swap(k.body[0], k.body[1]); }, "not defined before it");
  broken([](Kernel& k) { k.body.push_back(k.body[0]); }, "is used twice");
  broken([](Kernel& k) { k.body.push_back(999); }, "operation id out of range");
  broken([&](Kernel& k) { find(k, OpKind::Load).operands[0] = 999; }, "not defined before it");
  broken([&](Kernel& k) { find(k, OpKind::For).regions[0].pop_back(); }, "does not end with yield");
  broken([&](Kernel& k) { find(k, OpKind::Store).operands[2] = k.params[1].value; }, "cannot store 'i64'");
  broken([](Kernel& k) { k.params[0].written = false; }, "not marked written");
  broken([&](Kernel& k) { find(k, OpKind::Load).operands.push_back(find(k, OpKind::Range).results[0]); },
         "a mask must be bool");
  broken(
      [&](Kernel& k) { // a value of the loop used after it
        Op op;
        op.kind = OpKind::Scalar;
        op.scalar = ScalarOp::Neg;
        op.operands = {find(k, OpKind::For).region_args[0][0]};
        op.results = {k.new_value({Type::Kind::Data, DType::I64, {}})};
        k.body.push_back(k.new_op(std::move(op)));
      },
      "not defined before it");
}

} // namespace
} // namespace tessera::tile::test
