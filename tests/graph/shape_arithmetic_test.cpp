// Dimension arithmetic the way exporters write it: chains of small integer tensors that end in Reshape, Expand or
// ConstantOfShape. No operator has code for this; contents follow from the meanings.
#include "tests/graph/helpers.h"

namespace tessera {
namespace {

class ShapeArithmetic : public ::testing::Test {
protected:
  ShapeArithmetic() {
    b = g.env().create_symbol("b", {1, kSymMax});
    s = g.env().create_symbol("s", {1, 512});
    x = g.add_input("x", {DType::F32, {b, s, SymExpr(768)}});
  }
  // By its name in ONNX, opset 17.
  ValueId onnx(std::string_view op, std::vector<ValueId> operands, Attributes attributes = {}) {
    const OpDef* def = OpTable::get().find_onnx(op, "", 17);
    EXPECT_NE(def, nullptr) << op;
    if (def == nullptr) return x;
    auto node = g.add_node(*def, std::move(operands), std::move(attributes), {}, {""}, 17);
    EXPECT_TRUE(node.ok()) << node.error().str();
    return node.ok() ? g.node(*node).results[0] : x;
  }
  ValueId c(std::vector<int64_t> values) { return g.add_constant(ints(std::move(values))); }
  ValueId c0(int64_t value) { return g.add_constant(scalar_int(value)); }
  ValueId dim(int64_t axis) { return onnx("Gather", {onnx("Shape", {x}), c0(axis)}, {{"axis", int64_t{0}}}); }
  ValueId unsqueeze(ValueId v) { return onnx("Unsqueeze", {v, c({0})}); }
  std::string contents(ValueId v) { return contents_of(g, v); }
  std::string type(ValueId v) { return g.type(v).str(); }

  Graph g;
  SymExpr b, s;
  ValueId x;
};

// torch.onnx's x.view(b, s, 12, 64).permute(...)
TEST_F(ShapeArithmetic, LegacyViewIntoHeads) {
  EXPECT_EQ(contents(onnx("Shape", {x})), "[b, s, 768]");
  ValueId heads = onnx("Concat", {unsqueeze(dim(0)), unsqueeze(dim(1)), c({12}), c({64})}, {{"axis", int64_t{0}}});
  EXPECT_EQ(contents(heads), "[b, s, 12, 64]");
  EXPECT_EQ(type(onnx("Reshape", {x, heads})), "f32[b, s, 12, 64]");
  ValueId rest = onnx("Concat", {unsqueeze(dim(0)), c({-1}), c({64})}, {{"axis", int64_t{0}}});
  ValueId folded = onnx("Reshape", {x, rest});
  EXPECT_TRUE(g.env().known_equal(g.type(folded).shape[1], s * 12)) << type(folded);
}

// x.expand(-1, s, ...): Where(shape == -1, ones, shape).
TEST_F(ShapeArithmetic, LegacyExpand) {
  ValueId wanted = onnx("Concat", {unsqueeze(dim(0)), c({1}), unsqueeze(dim(1)), c({-1})}, {{"axis", int64_t{0}}});
  ValueId ones = onnx("ConstantOfShape", {onnx("Shape", {wanted})}, {{"value", ints({1})}});
  ValueId minus = onnx("Mul", {ones, c0(-1)});
  EXPECT_EQ(contents(minus), "[-1, -1, -1, -1]");
  ValueId equal = onnx("Equal", {wanted, minus});
  EXPECT_EQ(contents(equal), "[0, 0, 0, 1]"); // b == -1 is decided by its range
  ValueId shape = onnx("Where", {equal, ones, wanted});
  EXPECT_EQ(contents(shape), "[b, 1, s, 1]");
  ValueId mask = g.add_input("mask", {DType::F32, {b, SymExpr(1), SymExpr(1), s}});
  EXPECT_EQ(type(onnx("Expand", {mask, shape})), "f32[b, 1, s, s]");
}

// The dynamo exporter takes pieces of Shape and squeezes them.
TEST_F(ShapeArithmetic, DynamoPieces) {
  ValueId piece = onnx("Shape", {x}, {{"start", int64_t{1}}, {"end", int64_t{2}}});
  EXPECT_EQ(contents(piece), "[s]");
  ValueId size = onnx("Squeeze", {piece, c({0})});
  EXPECT_EQ(type(size), "i64[]");
  EXPECT_EQ(contents(size), "[s]");
  ValueId doubled = onnx("Add", {onnx("Mul", {size, c0(2)}), c0(-1)});
  EXPECT_EQ(contents(doubled), (s * 2 - 1).str().insert(0, "[") + "]");
  ValueId shape =
      onnx("Concat", {onnx("Slice", {onnx("Shape", {x}), c({0}), c({1}), c({0})}), onnx("Reshape", {doubled, c({-1})})},
           {{"axis", int64_t{0}}});
  EXPECT_EQ(g.value(shape).contents, (std::vector<SymExpr>{b, s * 2 - 1}));
}

TEST_F(ShapeArithmetic, SlicesOfShapeFromBothEnds) {
  ValueId shape = onnx("Shape", {x});
  EXPECT_EQ(contents(onnx("Slice", {shape, c({0}), c({2}), c({0}), c({1})})), "[b, s]");
  EXPECT_EQ(contents(onnx("Slice", {shape, c({-2}), c({9223372036854775807}), c({0})})), "[s, 768]");
  EXPECT_EQ(contents(onnx("Slice", {shape, c({-1}), c({-9223372036854775807}), c({0}), c({-1})})), "[768, s, b]");
}

TEST_F(ShapeArithmetic, CountsAndQuotients) {
  ValueId shape = onnx("Shape", {x});
  EXPECT_EQ(g.value(onnx("ReduceProd", {shape}, {{"keepdims", int64_t{0}}})).contents,
            (std::vector<SymExpr>{b * s * 768}));
  EXPECT_EQ(g.value(onnx("Size", {x})).contents, (std::vector<SymExpr>{b * s * 768}));
  ValueId hidden = onnx("Div", {dim(2), c0(12)});
  EXPECT_EQ(contents(hidden), "[64]");
  EXPECT_EQ(g.value(onnx("Div", {dim(1), c0(2)})).contents, (std::vector<SymExpr>{floordiv(s, 2)}));
  EXPECT_EQ(g.value(onnx("Div", {onnx("Mul", {dim(1), c0(6)}), c0(3)})).contents, (std::vector<SymExpr>{s * 2}));
  EXPECT_EQ(g.value(onnx("Mod", {dim(1), c0(8)})).contents, (std::vector<SymExpr>{mod(s, 8)}));
  EXPECT_EQ(g.value(onnx("Min", {dim(1), c0(128)})).contents, (std::vector<SymExpr>{sym_min(s, 128)}));
  EXPECT_EQ(contents(onnx("Max", {dim(1), c0(1)})), "[s]"); // the range says so
  EXPECT_EQ(contents(onnx("Sub", {dim(1), dim(1)})), "[0]");
  // A negative number divides with truncation: no floor division, so it is not known.
  EXPECT_EQ(contents(onnx("Div", {onnx("Neg", {dim(1)}), c0(2)})), "unknown");
}

TEST_F(ShapeArithmetic, CastsOfSizesAreTheSizes) {
  ValueId narrow = onnx("Cast", {dim(1)}, {{"to", DType::I32}});
  EXPECT_EQ(contents(narrow), "[s]");
  EXPECT_EQ(contents(onnx("Cast", {narrow}, {{"to", DType::I64}})), "[s]");
  EXPECT_EQ(contents(onnx("Cast", {c({300})}, {{"to", DType::I8}})), "[44]"); // exact, it wraps
  EXPECT_EQ(contents(onnx("Cast", {dim(1)}, {{"to", DType::F32}})), "unknown");
  EXPECT_EQ(contents(onnx("Greater", {dim(1), c0(0)})), "[1]");
  EXPECT_EQ(g.value(onnx("Greater", {dim(1), c0(7)})).contents, (std::vector<SymExpr>{sym_lt(7, s)}));
}

// position_ids: Unsqueeze(Range(0, s)), expanded over the batch.
TEST_F(ShapeArithmetic, PositionIds) {
  ValueId range = onnx("Range", {c0(0), dim(1), c0(1)});
  EXPECT_EQ(type(range), "i64[s]");
  ValueId row = unsqueeze(range);
  EXPECT_EQ(type(row), "i64[1, s]");
  ValueId shape = onnx("Concat", {unsqueeze(dim(0)), c({-1})}, {{"axis", int64_t{0}}});
  EXPECT_EQ(contents(shape), "[b, -1]");
}

TEST_F(ShapeArithmetic, WhereOnAnUndecidedConditionIsASelection) {
  ValueId bigger = onnx("Greater", {dim(1), c0(128)});
  ValueId chosen = onnx("Where", {bigger, c0(128), dim(1)});
  ASSERT_TRUE(g.value(chosen).contents.has_value());
  SymExpr e = (*g.value(chosen).contents)[0];
  for (int64_t v : {1, 128, 129, 500})
    EXPECT_EQ(e.eval({{s.symbol_id(), v}}).value(), std::min<int64_t>(v, 128)) << e.str();
}

TEST_F(ShapeArithmetic, DataIsNotFollowed) {
  ValueId data = g.add_input("n", {DType::I64, {SymExpr(2)}});
  EXPECT_EQ(contents(onnx("Add", {data, c({1, 2})})), "unknown");
  ValueId far = g.add_constant(ints(std::vector<int64_t>(2000, 1)));
  EXPECT_EQ(contents(far), "unknown"); // too many to be a shape
  const OpDef* reshape = OpTable::get().find_onnx("Reshape", "", 17);
  Location where;
  where.node = "Reshape_7";
  auto node = g.add_node(*reshape, {x, far}, {}, where, {""}, 17);
  ASSERT_FALSE(node.ok());
  EXPECT_EQ(node.error().location.node, "Reshape_7");
  // A value that decides sizes is read when the model runs, once.
  node = g.add_node(*reshape, {x, data}, {}, where, {""}, 17);
  ASSERT_TRUE(node.ok()) << node.error().str();
  EXPECT_EQ(str(g.type(g.node(*node).results[0]).shape), "[n_0, n_1]");
  auto again = g.add_node(*reshape, {x, data}, {}, where, {""}, 17);
  ASSERT_TRUE(again.ok()) << again.error().str();
  EXPECT_EQ(g.type(g.node(*again).results[0]), g.type(g.node(*node).results[0]));
  // A value that decides ranks must come from a call.
  const OpDef* sum = OpTable::get().find_onnx("ReduceSum", "", 17);
  ValueId axes = g.add_input("axes", {DType::I64, {SymExpr(1)}});
  auto guessed = g.add_node(*sum, {x, axes}, {}, where, {""}, 17);
  ASSERT_FALSE(guessed.ok());
  EXPECT_EQ(guessed.error().code, ErrorCode::MissingValues);
}

} // namespace
} // namespace tessera
