// Every record against operands and attributes that nobody would write: inference yields types or a diagnostic, and
// never reaches a check. What it yields verifies.
#include "tests/graph/helpers.h"
#include <random>

namespace tessera {
namespace {

class Random {
public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  size_t pick(size_t n) { return static_cast<size_t>(engine_() % n); }
  int64_t small() {
    static constexpr int64_t kValues[] = {0,         1,        -1, 2, 3, 4, 5, 7, 12, -2, -7, 64, int64_t{1} << 40,
                                          INT64_MAX, INT64_MIN};
    return kValues[pick(pick(3) == 0 ? std::size(kValues) : 6)];
  }
  Ints list() {
    Ints out(pick(5));
    for (int64_t& v : out) v = small();
    return out;
  }
  DType dtype() {
    static constexpr DType kUsual[] = {DType::F32, DType::I64, DType::Bool, DType::F16};
    return pick(4) == 0 ? static_cast<DType>(pick(kDTypeCount)) : kUsual[pick(4)];
  }
  Attribute attribute(AttrKind kind, const std::shared_ptr<Graph>& subgraph) {
    static const char* const kWords[] = {"",    "SAME_UPPER", "VALID", "LEFT", "linear", "constant", "bij,bjk->bik",
                                         "i->", "...ij->ji",  "sum",   "tanh"};
    switch (kind) {
    case AttrKind::Int: return small();
    case AttrKind::Float: return pick(5) == 0 ? -1e300 : static_cast<double>(small()) / 2;
    case AttrKind::String: return std::string(kWords[pick(std::size(kWords))]);
    case AttrKind::Ints: return list();
    case AttrKind::Floats: return std::vector<double>(pick(4), 0.5);
    case AttrKind::Strings: return std::vector<std::string>(pick(4), kWords[pick(std::size(kWords))]);
    case AttrKind::Type: return dtype();
    case AttrKind::Dims: {
      Ints values = list();
      return SymShape(values.begin(), values.end());
    }
    case AttrKind::Tensor: return pick(2) ? floats({1}, {2}) : ints({1, 2});
    case AttrKind::Graph: return subgraph;
    }
    return int64_t{0};
  }

private:
  std::mt19937 engine_;
};

TEST(InferenceAtRandom, YieldsTypesOrADiagnostic) {
  auto subgraph = std::make_shared<Graph>("empty");
  int refused = 0, accepted = 0;
  for (const auto& def : OpTable::get().all()) {
    uint32_t seed = 17;
    for (char c : def->name) seed = seed * 31 + static_cast<unsigned char>(c);
    Random random(seed);
    for (int round = 0; round < 60; ++round) {
      Graph g;
      SymExpr n = g.env().create_symbol("n", {1, kSymMax}), m = g.env().create_symbol("m");
      std::vector<ValueId> operands;
      size_t count = def->operands.size();
      if (count > 0 && def->operands.back().variadic) count += random.pick(3);
      if (random.pick(10) == 0) count = random.pick(count + 2);
      DType common = random.dtype();
      size_t common_rank = random.pick(5);
      for (size_t i = 0; i < count; ++i) {
        if (random.pick(12) == 0) {
          operands.push_back({});
        } else if (random.pick(4) == 0) {
          operands.push_back(random.pick(3) ? g.add_constant(ints(random.list()))
                                            : g.add_constant(scalar_int(random.small())));
        } else {
          TensorType type{random.pick(4) ? common : random.dtype(), {}};
          size_t rank = random.pick(4) ? common_rank : random.pick(6);
          for (size_t d = 0; d < rank; ++d) {
            const SymExpr choices[] = {n, m, n * 2, SymExpr(4), SymExpr(1), SymExpr(0), SymExpr(3), n + 1};
            type.shape.push_back(choices[random.pick(random.pick(2) ? 4 : std::size(choices))]);
          }
          operands.push_back(g.add_input("", std::move(type)));
        }
      }
      Attributes attributes;
      for (const AttrDef& a : def->attributes)
        if (a.required || random.pick(3) == 0) attributes.set(a.name, random.attribute(a.kind, subgraph));
      size_t results =
          static_cast<size_t>(def->min_results) +
          random.pick(static_cast<size_t>(std::min(def->max_results, 5) - std::min(def->min_results, 5)) + 1);
      CheckContext doing("inference of " + std::string(def->name) + ", round " + std::to_string(round));
      static constexpr int kOpsets[] = {1, 7, 11, 13, 18, 22};
      auto node =
          g.add_node(*def, operands, attributes, {}, std::vector<std::string>(results), kOpsets[random.pick(6)]);
      if (!node.ok()) {
        EXPECT_NE(node.error().code, ErrorCode::Internal) << node.error().str();
        EXPECT_FALSE(node.error().message.empty());
        ++refused;
        continue;
      }
      ++accepted;
      Status valid = verify(g);
      EXPECT_TRUE(valid.ok()) << valid.error().str() << print(g);
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(accepted, 500);
}

} // namespace
} // namespace tessera
