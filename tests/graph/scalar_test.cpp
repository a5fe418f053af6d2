#include "graph/scalar/scalar.h"
#include <cmath>
#include <gtest/gtest.h>
#include <limits>

namespace tessera {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

int64_t ints(ScalarOp op, DType d, std::initializer_list<int64_t> args) {
  std::vector<ScalarValue> v;
  for (int64_t a : args) v.push_back({0, a});
  return eval_scalar(op, d, d, v).i;
}
double floats(ScalarOp op, DType d, std::initializer_list<double> args) {
  std::vector<ScalarValue> v;
  for (double a : args) v.push_back({a, 0});
  return eval_scalar(op, d, d, v).f;
}
double to_float(DType to, DType from, int64_t v) {
  ScalarValue a{0, v};
  return eval_scalar(ScalarOp::Cast, to, from, std::span(&a, 1)).f;
}
double round_float(DType to, double v) {
  ScalarValue a{v, 0};
  return eval_scalar(ScalarOp::Cast, to, DType::F64, std::span(&a, 1)).f;
}
int64_t to_int(DType to, double v) {
  ScalarValue a{v, 0};
  return eval_scalar(ScalarOp::Cast, to, DType::F64, std::span(&a, 1)).i;
}

TEST(ScalarTable, EveryOperatorIsNamedAndFound) {
  for (int i = 0; i < static_cast<int>(ScalarOp::Count_); ++i) {
    auto op = static_cast<ScalarOp>(i);
    EXPECT_EQ(scalar_op_from_name(info(op).name), op) << info(op).name;
  }
  EXPECT_FALSE(scalar_op_from_name("nothing").has_value());
  for (auto kind : {ReduceKind::Sum, ReduceKind::Prod, ReduceKind::Max, ReduceKind::Min, ReduceKind::Any,
                    ReduceKind::All, ReduceKind::ArgMax, ReduceKind::ArgMin})
    EXPECT_EQ(reduce_kind_from_name(name(kind)), kind);
}

TEST(ScalarTable, IdentitiesAreTheDtypesExtremes) {
  EXPECT_EQ(reduce_identity_f64(ReduceKind::Max, DType::F16), -kInf);
  EXPECT_EQ(reduce_identity_i64(ReduceKind::Max, DType::I8), -128);
  EXPECT_EQ(reduce_identity_i64(ReduceKind::Min, DType::U8), 255);
  EXPECT_EQ(reduce_identity_i64(ReduceKind::Min, DType::I64), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(reduce_identity_i64(ReduceKind::Min, DType::U64), -1); // all bits
  EXPECT_EQ(reduce_identity_i64(ReduceKind::All, DType::Bool), 1);
  EXPECT_EQ(compute_dtype(DType::F8E5M2), DType::F32);
  EXPECT_EQ(compute_dtype(DType::F64), DType::F64);
  EXPECT_EQ(compute_dtype(DType::I4), DType::I4);
}

TEST(ScalarEval, IntegersWrapAndNeverTrap) {
  constexpr int64_t low = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(ints(ScalarOp::Add, DType::I8, {127, 1}), -128);
  EXPECT_EQ(ints(ScalarOp::Mul, DType::I32, {1 << 20, 1 << 20}), 0);
  EXPECT_EQ(ints(ScalarOp::Sub, DType::U8, {0, 1}), 255);
  EXPECT_EQ(ints(ScalarOp::Div, DType::I64, {low, -1}), low);
  EXPECT_EQ(ints(ScalarOp::Div, DType::I64, {-7, 2}), -3);
  EXPECT_EQ(ints(ScalarOp::Div, DType::I64, {5, 0}), 0);
  EXPECT_EQ(ints(ScalarOp::Mod, DType::I64, {-7, 2}), 1);
  EXPECT_EQ(ints(ScalarOp::Mod, DType::I64, {7, -2}), -1);
  EXPECT_EQ(ints(ScalarOp::Fmod, DType::I64, {-7, 2}), -1);
  EXPECT_EQ(ints(ScalarOp::Mod, DType::I64, {low, -1}), 0);
  EXPECT_EQ(ints(ScalarOp::Abs, DType::I64, {low}), low);
  EXPECT_EQ(ints(ScalarOp::Neg, DType::U32, {1}), 4294967295);
  EXPECT_EQ(ints(ScalarOp::Shl, DType::I32, {1, 32}), 0);
  EXPECT_EQ(ints(ScalarOp::Shr, DType::I32, {-8, 40}), -1);
  EXPECT_EQ(ints(ScalarOp::Shr, DType::U8, {255, 4}), 15);
  EXPECT_EQ(ints(ScalarOp::Pow, DType::I64, {-2, 3}), -8);
  EXPECT_EQ(ints(ScalarOp::Pow, DType::I64, {2, -1}), 0);
  EXPECT_EQ(ints(ScalarOp::Pow, DType::I64, {-1, -3}), -1);
  EXPECT_EQ(ints(ScalarOp::Max, DType::U64, {-1, 1}), -1); // 2^64 - 1
  EXPECT_EQ(ints(ScalarOp::Not, DType::U8, {1}), 254);
  EXPECT_EQ(ints(ScalarOp::Not, DType::Bool, {1}), 0);
}

TEST(ScalarEval, FloatsAreIeee) {
  EXPECT_TRUE(std::isnan(floats(ScalarOp::Max, DType::F32, {kNan, 1})));
  EXPECT_TRUE(std::isnan(floats(ScalarOp::Min, DType::F32, {1, kNan})));
  EXPECT_TRUE(std::isnan(floats(ScalarOp::Sub, DType::F32, {kInf, kInf})));
  EXPECT_EQ(floats(ScalarOp::Div, DType::F32, {1, 0}), kInf);
  EXPECT_EQ(floats(ScalarOp::Round, DType::F32, {2.5}), 2);
  EXPECT_EQ(floats(ScalarOp::Round, DType::F32, {-3.5}), -4);
  EXPECT_EQ(floats(ScalarOp::Mod, DType::F64, {-1, 3}), 2);
  EXPECT_EQ(floats(ScalarOp::Fmod, DType::F64, {-1, 3}), -1);
  EXPECT_EQ(floats(ScalarOp::Add, DType::F32, {16777216, 1}), 16777216); // in f32
  EXPECT_EQ(floats(ScalarOp::Add, DType::F64, {16777216, 1}), 16777217);
  EXPECT_TRUE(std::isnan(floats(ScalarOp::Sign, DType::F32, {kNan})));
}

TEST(ScalarEval, CastsTruncateSaturateAndRoundOnce) {
  EXPECT_EQ(to_int(DType::I8, 300.7), 127);
  EXPECT_EQ(to_int(DType::I8, -1e30), -128);
  EXPECT_EQ(to_int(DType::U8, -1), 0);
  EXPECT_EQ(to_int(DType::I64, kInf), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(to_int(DType::I64, kNan), 0);
  EXPECT_EQ(to_int(DType::U64, 1e30), -1);
  EXPECT_EQ(to_int(DType::I4, 100), 7);
  EXPECT_EQ(to_int(DType::Bool, kNan), 1);
  // Just above the middle between two f16: rounding by way of f32 would lose the last bit and go down.
  EXPECT_EQ(round_float(DType::F16, 1.0 + 0x1p-11 + 0x1p-40), 1.0 + 0x1p-10);
  EXPECT_EQ(round_float(DType::F16, 1.0 + 0x1p-11), 1.0);
  EXPECT_EQ(round_float(DType::BF16, -(1.0 + 0x1p-8 + 0x1p-50)), -(1.0 + 0x1p-7));
  EXPECT_EQ(round_float(DType::F16, 1e6), kInf);
  EXPECT_EQ(to_float(DType::F32, DType::I64, (int64_t{1} << 62) + (int64_t{1} << 38) + 1), 0x1p62 + 0x1p39);
  EXPECT_EQ(to_float(DType::F64, DType::U64, -1), 18446744073709551616.0);
  EXPECT_EQ(to_float(DType::F32, DType::I32, -16777217), -16777216);
}

TEST(ScalarDagTest, EqualNodesAreOneNode) {
  ScalarDag dag;
  ScalarId x = dag.load(0, DType::F32, {dag.index(SymExpr::symbol("i"))});
  EXPECT_EQ(dag.op(ScalarOp::Mul, x, x), dag.op(ScalarOp::Mul, x, x));
  EXPECT_NE(dag.constant_f(DType::F32, 0.0), dag.constant_f(DType::F32, -0.0));
  EXPECT_EQ(dag.constant_f(DType::F32, kNan), dag.constant_f(DType::F32, kNan));
  EXPECT_NE(dag.constant_i(DType::I32, 1), dag.constant_i(DType::I64, 1));
  EXPECT_EQ(dag.constant_f(DType::F32, 0.1), dag.constant_f(DType::F32, static_cast<double>(0.1f)));
}

TEST(ScalarDagTest, IndexArithmeticFoldsIntoOneNode) {
  ScalarDag dag;
  SymExpr i = SymExpr::symbol("i"), s = SymExpr::symbol("s");
  ScalarId a = dag.op(ScalarOp::Mul, dag.index(i), dag.index(s));
  ScalarId b = dag.op(ScalarOp::Add, a, dag.constant_i(DType::I64, 2));
  EXPECT_EQ(dag.as_sym(b), i * s + 2);
  EXPECT_EQ(dag[b].op, ScalarOp::Index);
  ScalarId less = dag.op(ScalarOp::Lt, dag.index(i), dag.index(s));
  EXPECT_EQ(dag[less].dtype, DType::Bool);
  EXPECT_EQ(dag.as_sym(less), sym_lt(i, s));
  EXPECT_EQ(dag.as_sym(dag.op(ScalarOp::Select, less, dag.index(i), dag.index(s))), sym_select(sym_lt(i, s), i, s));
  // Division truncates; of unknown signs it is no floor division.
  EXPECT_EQ(dag[dag.op(ScalarOp::Div, dag.index(i), dag.index(s))].op, ScalarOp::Div);
  // A cast to i32 may wrap: it stays.
  EXPECT_EQ(dag[dag.cast(dag.index(i), DType::I32)].op, ScalarOp::Cast);
}

TEST(ScalarDagTest, ConstantsFoldAndNothingElseDoes) {
  ScalarDag dag;
  ScalarId x = dag.load(0, DType::F32, {});
  EXPECT_EQ(dag.op(ScalarOp::Add, dag.constant_f(DType::F32, 1), dag.constant_f(DType::F32, 2)),
            dag.constant_f(DType::F32, 3));
  EXPECT_EQ(dag[dag.op(ScalarOp::Sub, x, x)].op, ScalarOp::Sub); // x - x is not 0
  EXPECT_EQ(dag[dag.op(ScalarOp::Mul, x, dag.constant_f(DType::F32, 1))].op, ScalarOp::Mul);
  ScalarId yes = dag.constant_i(DType::Bool, 1);
  EXPECT_EQ(dag.op(ScalarOp::Select, yes, x, dag.constant_f(DType::F32, 0)), x);
  EXPECT_EQ(dag.load(0, DType::F32, {}, yes), x);
  EXPECT_EQ(dag.load(0, DType::F32, {}, dag.constant_i(DType::Bool, 0)), dag.constant_f(DType::F32, 0));
  ScalarId three = dag.constant_i(DType::I64, 3);
  EXPECT_EQ(dag.check_bounds(three, dag.constant_i(DType::I64, 4)), three);
  EXPECT_EQ(dag[dag.check_bounds(three, three)].op, ScalarOp::CheckBounds);
}

TEST(ScalarDagTest, ImportReplacesLeavesAndKeepsSharing) {
  ScalarDag from, into;
  ScalarId x = from.load(0, DType::F32, {});
  ScalarId square = from.op(ScalarOp::Mul, x, x);
  ScalarId root = from.op(ScalarOp::Add, square, from.op(ScalarOp::Exp, square));
  int calls = 0;
  std::unordered_map<ScalarId, ScalarId> done;
  auto leaf = [&](ScalarDag& d, const ScalarNode& n, std::span<const ScalarId>) -> ScalarId {
    ++calls;
    return n.op == ScalarOp::Load ? d.constant_f(DType::F32, 3) : -1;
  };
  ScalarId result = into.import(from, root, leaf, done);
  EXPECT_EQ(calls, from.size()); // once a node
  ASSERT_EQ(into[result].op, ScalarOp::Const);
  EXPECT_FLOAT_EQ(static_cast<float>(into[result].f), 9 + std::exp(9.0f));
  EXPECT_EQ(into.import(from, root, leaf, done), result);
  EXPECT_EQ(calls, from.size());
}

TEST(ScalarDagTest, PrintsAsStatements) {
  ScalarDag dag;
  SymExpr i = SymExpr::symbol("i");
  ScalarId x = dag.load(0, DType::F16, {dag.index(i)});
  ScalarId sum = dag.reduce(ReduceKind::Sum, dag.cast(x, DType::F32));
  EXPECT_EQ(dag.str(dag.op(ScalarOp::Mul, sum, dag.constant_f(DType::F32, 0.5))),
            "%0 = load 0[i] : f16\n%1 = cast(%0) : f32\n%2 = reduce.sum(%1) : f32\n%3 = mul(%2, 0.5) : f32\n");
}

TEST(ScalarDagTest, DeepChainsNeedNoStack) {
  ScalarDag dag, into;
  ScalarId x = dag.load(0, DType::F32, {});
  for (int i = 0; i < 200000; ++i) x = dag.op(ScalarOp::Neg, x);
  std::unordered_map<ScalarId, ScalarId> done;
  EXPECT_EQ(into.import(dag, x, {}, done), x);
  EXPECT_EQ(into.size(), dag.size());
}

} // namespace
} // namespace tessera
