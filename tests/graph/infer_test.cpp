#include "tests/graph/helpers.h"

namespace tessera {
namespace {

TEST(Records, TheTableIsConsistent) {
  const OpTable& table = OpTable::get();
  std::string_view last;
  for (const auto& def : table.all()) {
    EXPECT_LT(last, def->name); // sorted, each once
    last = def->name;
    EXPECT_EQ(table.find(def->name), def.get());
    EXPECT_FALSE(def->summary.empty()) << def->name;
    bool derived = def->pointwise() || def->reduction() || def->is_composite() ||
                   (def->structured() && def->structured()->kind == Structured::Constant);
    EXPECT_TRUE(def->infer || derived) << def->name << " has no inference";
    EXPECT_TRUE(def->reference || def->is_composite()) << def->name << " has no reference";
    for (const OnnxName& onnx : def->onnx)
      EXPECT_EQ(table.find_onnx(onnx.op_type, onnx.domain, onnx.since), def.get())
          << def->name << " as " << onnx.op_type;
    for (const AttrDef& a : def->attributes) {
      if (a.fallback) {
        EXPECT_EQ(kind_of(*a.fallback), a.kind) << def->name << "." << a.name;
      }
      EXPECT_FALSE(a.required && a.fallback) << def->name << "." << a.name << " is required and has a default";
    }
    for (size_t i = 0; i + 1 < def->operands.size(); ++i) EXPECT_FALSE(def->operands[i].variadic) << def->name;
  }
}

TEST(Records, AreFoundByOpset) {
  const OpTable& table = OpTable::get();
  EXPECT_EQ(table.find_onnx("Add", "", 17)->name, "add");
  EXPECT_EQ(table.find_onnx("Add", "ai.onnx", 17), table.find_onnx("Add", "", 17));
  bool elsewhere = true;
  EXPECT_EQ(table.find_onnx("NoSuchOperator", "", 17, &elsewhere), nullptr);
  EXPECT_FALSE(elsewhere);
  EXPECT_EQ(table.find_onnx("Reshape", "", 1, &elsewhere), nullptr);
  EXPECT_TRUE(elsewhere);
  EXPECT_EQ(table.find_onnx("Add", "com.example", 1), nullptr);
}

TEST(TypeSets, AdmitWhatTheirSummariesSay) {
  EXPECT_TRUE(admits(TypeSet::Float, DType::BF16));
  EXPECT_FALSE(admits(TypeSet::Float, DType::I8));
  EXPECT_TRUE(admits(TypeSet::Integer, DType::U4));
  EXPECT_FALSE(admits(TypeSet::Integer, DType::Bool));
  EXPECT_FALSE(admits(TypeSet::Signed, DType::U8));
  EXPECT_FALSE(admits(TypeSet::Numeric, DType::String));
  EXPECT_TRUE(admits(TypeSet::NumericOrBool, DType::Bool));
  EXPECT_FALSE(admits(TypeSet::Index, DType::I16));
  EXPECT_TRUE(admits(TypeSet::Any, DType::C64));
}

TEST(PointwiseDtype, FollowsTheFirstOperandThatIsNotBool) {
  auto of = [](DType body, std::vector<DType> operands) { return pointwise_dtype(body, operands); };
  EXPECT_EQ(of(DType::F32, {DType::F16, DType::F16}), DType::F16);
  EXPECT_EQ(of(DType::F32, {DType::Bool, DType::BF16, DType::BF16}), DType::BF16); // select
  EXPECT_EQ(of(DType::Bool, {DType::F16, DType::F16}), DType::Bool);               // comparison
  EXPECT_EQ(of(DType::F32, {DType::I64}), DType::F32);
  EXPECT_EQ(of(DType::I64, {DType::Bool}), DType::I64);
}

TEST(Inference, BroadcastingRecordsWhatItAssumed) {
  Graph g;
  SymExpr s = g.env().create_symbol("s", {2, kSymMax}), t = g.env().create_symbol("t", {2, kSymMax});
  ValueId x = g.add_input("x", {DType::F32, {s, SymExpr(1), SymExpr(4)}});
  ValueId y = g.add_input("y", {DType::F32, {SymExpr(3), SymExpr(1)}});
  EXPECT_EQ(g.type(must(g, "add", {x, y})).str(), "f32[s, 3, 4]");
  EXPECT_TRUE(g.env().guards().empty()); // nothing was in doubt
  ValueId z = g.add_input("z", {DType::F32, {t, SymExpr(1), SymExpr(4)}});
  Location where;
  where.node = "Add_3";
  ASSERT_TRUE(g.apply("add", {x, z}, {}, where).ok());
  ASSERT_EQ(g.env().guards().size(), 1u);
  EXPECT_EQ(g.env().guards()[0].where.node, "Add_3");
  EXPECT_TRUE(g.env().known_equal(s, t));
  ASSERT_TRUE(g.apply("mul", {x, z}).ok());
  EXPECT_EQ(g.env().guards().size(), 1u); // known by now
}

TEST(Inference, DefaultsAreFilledIn) {
  Graph g;
  ValueId x = g.add_input("x", {DType::F32, {SymExpr(2), SymExpr(3)}});
  ValueId y = must(g, "reduce_sum", {x}, {{"axes", Ints{1}}});
  EXPECT_EQ(g.producer(y)->attributes.items().size(), OpTable::get().find("reduce_sum")->attributes.size());
  // Ints are taken where the record says dimensions.
  ValueId r = must(g, "reshape", {x}, {{"shape", Ints{3, 2}}});
  EXPECT_NE(g.producer(r)->attributes.get<SymShape>("shape"), nullptr);
}

TEST(Inference, WrongAttributesAreNamed) {
  Graph g;
  ValueId x = g.add_input("x", {DType::F32, {SymExpr(2), SymExpr(3)}});
  auto message = [&](std::string_view op, Attributes attributes) {
    Location where;
    where.node = "N";
    auto r = g.apply(op, {x}, std::move(attributes), where);
    EXPECT_FALSE(r.ok());
    EXPECT_EQ(r.error().code, ErrorCode::BadAttribute);
    EXPECT_EQ(r.error().location.node, "N");
    return r.error().message;
  };
  EXPECT_EQ(message("transpose", {}), "attribute 'perm' (ints) of 'transpose' is missing");
  EXPECT_EQ(message("transpose", {{"perm", int64_t{1}}}),
            "attribute 'perm' of 'transpose' must be of kind ints, not int");
  EXPECT_EQ(message("transpose", {{"perm", Ints{1, 0}}, {"perms", int64_t{1}}}),
            "'transpose' has no attribute 'perms'");
  EXPECT_EQ(message("reduce_sum", {{"axes", Ints{5}}}),
            "attribute 'axes' is not an increasing list of dimensions of f32[2, 3]");
  int before = g.value_count();
  EXPECT_EQ(before, 1); // a refused node leaves nothing behind
}

TEST(Inference, ReductionsKeepOrChangeTheDtype) {
  Graph g;
  SymExpr n = g.env().create_symbol("n");
  ValueId x = g.add_input("x", {DType::F16, {SymExpr(2), n, SymExpr(3)}});
  ValueId m = g.add_input("m", {DType::Bool, {n}});
  EXPECT_EQ(g.type(must(g, "reduce_sum", {x}, {{"axes", Ints{0, 2}}, {"keepdims", int64_t{1}}})).str(), "f16[1, n, 1]");
  EXPECT_EQ(g.type(must(g, "argmax", {x}, {{"axes", Ints{2}}, {"keepdims", int64_t{0}}})).str(), "i64[2, n]");
  EXPECT_EQ(g.type(must(g, "reduce_any", {m}, {{"axes", Ints{0}}, {"keepdims", int64_t{0}}})).str(), "bool[]");
}

// A composite has the type of what it decomposes into, and errors inside carry the composite's place.
TEST(Inference, CompositesAreInferredByDecomposing) {
  Graph g;
  SymExpr n = g.env().create_symbol("n");
  ValueId x = g.add_input("x", {DType::F16, {n, SymExpr(4)}});
  EXPECT_EQ(g.type(must(g, "Flatten", {x}, {{"axis", int64_t{0}}}, 13)).str(), "f16[1, 4*n]");
  int nodes = g.node_count();
  const OpDef* unsqueeze = OpTable::get().find("Unsqueeze");
  ASSERT_NE(unsqueeze, nullptr);
  Location where;
  where.node = "Unsqueeze_4";
  auto r = g.add_node(*unsqueeze, {x, g.add_constant(ints({7}))}, {}, where, {""}, 13);
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::BadAttribute) << r.error().str();
  EXPECT_EQ(r.error().location.node, "Unsqueeze_4");
  EXPECT_EQ(g.node_count(), nodes + 1); // the constant; what was tried out is not here
}

// Integers that a call gives are read, and sizes follow from them.
TEST(Inference, SizesFollowFromWhatIsRead) {
  Graph g;
  ValueId x = g.add_input("x", {DType::F32, {SymExpr(1), SymExpr(128), SymExpr(1)}});
  ValueId n = g.add_input("n", {DType::I64, {}}), hz = g.add_input("hz", {DType::F32, {}});
  const OpTable& table = OpTable::get();
  auto shape = [&](const char* op, std::vector<ValueId> operands, Attributes attributes) {
    auto node = g.add_node(*table.find(op), std::move(operands), std::move(attributes), {}, {""}, 17);
    EXPECT_TRUE(node.ok()) << (node.ok() ? "" : node.error().str());
    return str(node.ok() ? g.type(g.node(*node).results[0]).shape : SymShape{});
  };
  ValueId eight = g.add_constant(ints({8}));
  EXPECT_EQ(shape("HannWindow", {n}, {}), "[n]");
  EXPECT_EQ(shape("DFT", {x, n}, {{"onesided", int64_t{1}}}), "[1, floordiv(n, 2) + 1, 2]");
  EXPECT_EQ(shape("MelWeightMatrix", {n, n, n, hz, hz}, {}), "[floordiv(n, 2) + 1, n]");
  EXPECT_EQ(shape("STFT", {x, eight, ValueId{}, g.add_constant(ints({16}))}, {}), "[1, 15, 9, 2]");
}

TEST(Inference, SizesBeyondMemoryAreRefused) {
  Graph g;
  SymExpr big = int64_t{1} << 32;
  ValueId x = g.add_input("x", {DType::F32, {big, SymExpr(1)}});
  ValueId y = g.add_input("y", {DType::F32, {SymExpr(1), big}});
  auto r = g.apply("add", {x, y});
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, ErrorCode::SizeOverflow);
  ValueId empty = g.add_input("e", {DType::F32, {big, big, SymExpr(0)}});
  EXPECT_TRUE(g.apply("exp", {empty}).ok()); // nothing of it is large
}

} // namespace
} // namespace tessera
