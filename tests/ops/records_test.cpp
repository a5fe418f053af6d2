// Every operator, enrolled by standing in the table. A failing check names operator and sample.
#include "samples_run.h"
#include <gtest/gtest.h>
#include <map>
#include <set>

namespace tessera::test {
namespace {

class Record : public testing::TestWithParam<const OpDef*> {
protected:
  const OpDef& op() const { return *GetParam(); }
  [[nodiscard]] std::vector<Sample> samples() const { return op().samples ? op().samples() : std::vector<Sample>{}; }
};

// Dims of the results under the sample's sizes; nothing where only running gives them.
std::optional<Dims> sizes(const SampleGraph& g, const TensorType& type) {
  Dims out;
  for (const SymExpr& e : type.shape) {
    auto v = g.graph.env().simplify(e).eval(g.symbols);
    if (!v.ok()) return std::nullopt;
    out.push_back(*v);
  }
  return out;
}

TEST_P(Record, SaysWhatItIs) {
  EXPECT_FALSE(op().summary.empty());
  EXPECT_EQ(op().summary.find('\n'), std::string_view::npos);
  EXPECT_TRUE(op().reference || op().is_composite()) << "neither a reference nor a decomposition";
  EXPECT_TRUE(op().samples) << "no samples";
  EXPECT_FALSE(samples().empty()) << "no samples";
  EXPECT_LE(op().min_results, op().max_results);
  for (size_t i = 0; i + 1 < op().operands.size(); ++i)
    EXPECT_FALSE(op().operands[i].variadic) << "only the last operand may be variadic";
  std::set<std::string_view> names;
  for (const AttrDef& a : op().attributes)
    EXPECT_TRUE(names.insert(a.name).second) << "attribute " << a.name << " twice";
  if (op().reduction()) {
    for (std::string_view a : {"axes", "keepdims"}) EXPECT_TRUE(names.count(a)) << "reductions have attribute " << a;
  }
}

TEST_P(Record, MeaningAgreesWithReference) {
  std::vector<Sample> all = samples();
  for (size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(describe(all[i], i));
    auto g = build(op(), all[i], Sizes::Static);
    ASSERT_TRUE(g.ok()) << g.error().str();
    std::vector<Tensor> operands = all[i].operands;
    operands.resize(g->get().operands.size());
    auto expected = evaluate_node(g->graph, g->get(), operands, g->symbols);
    ASSERT_TRUE(expected.ok()) << expected.error().str();
    ASSERT_GE(expected->size(), g->get().results.size());
    for (size_t r = 0; r < g->get().results.size(); ++r) { // what inference promised is what comes out
      const TensorType& type = g->graph.type(g->get().results[r]);
      EXPECT_EQ(type.dtype, (*expected)[r].dtype()) << "result " << r;
      ASSERT_EQ(type.rank(), static_cast<int>((*expected)[r].dims().size())) << "result " << r;
      if (auto dims = sizes(*g, type))
        EXPECT_EQ(*dims, (*expected)[r].dims()) << "result " << r;
      else
        EXPECT_TRUE(op().data_dependent_shape || op().is_composite()) << "a size is unknown: " << type.str();
    }
    bool has_second_way = op().is_composite() ? static_cast<bool>(op().reference) : !op().structured();
    if (!has_second_way || op().side_effect) continue;
    auto actual = evaluate_without_reference(*g, all[i]);
    ASSERT_TRUE(actual.ok()) << actual.error().str();
    EXPECT_EQ(difference(*actual, *expected, all[i].tolerance), "");
  }
}

TEST_P(Record, SymbolicSizesBecomeStaticOnes) {
  std::vector<Sample> all = samples();
  for (size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(describe(all[i], i));
    auto fixed = build(op(), all[i], Sizes::Static);
    ASSERT_TRUE(fixed.ok()) << fixed.error().str();
    auto free = build(op(), all[i], Sizes::Symbolic);
    // A structured operator, or one made of several, may require a size that only the batch is not.
    bool elementwise = op().pointwise() || op().indexing() || op().reduction();
    if (!free.ok() && !elementwise) free = build(op(), all[i], Sizes::SymbolicBatch);
    // Some sizes have to be known when compiling; the operator then says so.
    if (!free.ok() && free.error().code == ErrorCode::UnsupportedFeature) continue;
    ASSERT_TRUE(free.ok()) << free.error().str();
    for (size_t r = 0; r < free->get().results.size(); ++r) {
      const Value& a = free->graph.value(free->get().results[r]);
      const Value& e = fixed->graph.value(fixed->get().results[r]);
      EXPECT_EQ(a.type.dtype, e.type.dtype);
      ASSERT_EQ(a.type.rank(), e.type.rank());
      auto dims = sizes(*free, a.type), expected = sizes(*fixed, e.type);
      if (expected) {
        ASSERT_TRUE(dims.has_value()) << a.type.str() << " drops a dimension of " << e.type.str();
        EXPECT_EQ(*dims, *expected) << a.type.str();
      }
      if (a.contents && e.contents) {
        ASSERT_EQ(a.contents->size(), e.contents->size());
        for (size_t k = 0; k < a.contents->size(); ++k) {
          auto v = free->graph.env().simplify((*a.contents)[k]).eval(free->symbols);
          auto w = (*e.contents)[k].as_const();
          if (v.ok() && w) {
            EXPECT_EQ(*v, *w) << "content " << k;
          }
        }
      }
    }
    if (op().side_effect || op().structured()) continue;
    std::vector<Tensor> operands = all[i].operands;
    operands.resize(free->get().operands.size());
    auto reference = evaluate_node(free->graph, free->get(), operands, free->symbols);
    ASSERT_TRUE(reference.ok()) << reference.error().str();
    auto actual = evaluate_without_reference(*free, all[i]);
    ASSERT_TRUE(actual.ok()) << actual.error().str();
    EXPECT_EQ(difference(*actual, *reference, all[i].tolerance), "");
  }
}

TEST_P(Record, WrongUseIsExplained) {
  std::vector<ErrorSample> all = op().error_samples ? op().error_samples() : std::vector<ErrorSample>{};
  for (size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(describe(all[i].sample, i));
    // An error may show while inferring, the earlier the more is known, or when the data are there.
    bool found = false;
    std::string seen;
    for (Known known : {Known::Nothing, Known::IntegersAndScalars, Known::Everything}) {
      auto g = build(op(), all[i].sample, Sizes::Static, known);
      std::optional<Diagnostic> error;
      if (!g.ok()) {
        error = g.error();
      } else {
        std::vector<Tensor> operands = all[i].sample.operands;
        operands.resize(g->get().operands.size());
        auto r = evaluate_node(g->graph, g->get(), operands, g->symbols);
        if (!r.ok()) error = r.error();
      }
      EXPECT_TRUE(error.has_value()) << "no error";
      if (!error) continue;
      found |= error->code == all[i].code && error->str().find(all[i].message_part) != std::string::npos;
      seen += error->str();
    }
    EXPECT_TRUE(found) << "no " << info(all[i].code).name << " with '" << all[i].message_part << "' in:\n" << seen;
  }
}

std::vector<const OpDef*> all_records() {
  std::vector<const OpDef*> out;
  for (const auto& def : OpTable::get().all()) out.push_back(def.get());
  return out;
}

INSTANTIATE_TEST_SUITE_P(Ops, Record, testing::ValuesIn(all_records()), [](const auto& p) {
  // Two names may differ in case alone (add, Add): test names may not.
  std::string name(p.param->name);
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return (p.param->is_composite() ? "composite_" : "primitive_") + name;
});

TEST(Table, IsSortedAndFindsByName) {
  std::string_view last;
  for (const auto& def : OpTable::get().all()) {
    EXPECT_LT(last, def->name);
    last = def->name;
    EXPECT_EQ(OpTable::get().find(def->name), def.get());
  }
  EXPECT_EQ(OpTable::get().find("no such operator"), nullptr);
}

TEST(Table, OneRecordForEachOnnxNameAndVersion) {
  std::map<std::pair<std::string_view, std::string_view>, std::vector<std::pair<OnnxName, std::string_view>>> names;
  for (const auto& def : OpTable::get().all())
    for (const OnnxName& n : def->onnx) {
      EXPECT_LE(n.since, n.until) << n.op_type;
      for (const auto& [other, owner] : names[{n.domain, n.op_type}])
        EXPECT_TRUE(n.until < other.since || other.until < n.since)
            << n.op_type << " is claimed by '" << def->name << "' and '" << owner << "'";
      names[{n.domain, n.op_type}].emplace_back(n, def->name);
    }
}

TEST(Table, FindsByOnnxNameVersionAndDomain) {
  const OpTable& t = OpTable::get();
  bool elsewhere = true;
  EXPECT_EQ(t.find_onnx("Add", "", 13), t.find("add"));
  EXPECT_EQ(t.find_onnx("Add", "ai.onnx", 7), t.find("add"));
  EXPECT_EQ(t.find_onnx("Add", "com.example", 7, &elsewhere), nullptr);
  EXPECT_FALSE(elsewhere);
  EXPECT_EQ(t.find_onnx("Gelu", "", 13, &elsewhere), nullptr);
  EXPECT_TRUE(elsewhere);
  EXPECT_EQ(t.find_aten("add.Tensor"), t.find("add"));
}

} // namespace
} // namespace tessera::test
