// Activations that ONNX Runtime fuses with what stands before them.
#include "graph/ops/microsoft.h"

namespace tessera {

namespace {
using namespace ops;

ValueId gelu(B& b, ValueId x, const char* approximate) {
  return b.op("Gelu", {x}, {{"approximate", std::string(approximate)}});
}

std::vector<Sample> with_vectors(std::initializer_list<Dims> more) {
  std::vector<Sample> out;
  for (DType d : {DType::F32, DType::F16}) {
    std::vector<Tensor> operands = {random(d, {2, 3, 8}, 1)};
    for (const Dims& dims : more) operands.push_back(random(d, dims, operands.size() + 1));
    out.push_back(sample(operands));
  }
  return out;
}

} // namespace

void register_microsoft_activation_ops(OpTable& table) {
  const std::vector<OperandDef> one = {{"X", TypeSet::Float}};
  const std::vector<OperandDef> biased = {{"A", TypeSet::Float}, {"B", TypeSet::SameAsFirst}};

  OpDef plain = microsoft("com.microsoft.Gelu", "Gaussian error linear unit", one,
                          formula([](B& b) { return gelu(b, b.in(0), "none"); }));
  plain.samples = [] { return with_vectors({}); };
  table.add(std::move(plain));

  OpDef fast = microsoft("com.microsoft.FastGelu", "Gaussian error linear unit of x + bias, by its tanh approximation",
                         {{"X", TypeSet::Float}, {"bias", TypeSet::SameAsFirst, true}},
                         formula([](B& b) { return gelu(b, b.has(1) ? add(b, b.in(0), b.in(1)) : b.in(0), "tanh"); }));
  fast.samples = [] {
    auto out = with_vectors({{8}});
    for (const Sample& s : with_vectors({})) out.push_back(s);
    return out;
  };
  table.add(std::move(fast));

  OpDef bias = microsoft("com.microsoft.BiasGelu", "Gaussian error linear unit of A + B", biased,
                         formula([](B& b) { return gelu(b, add(b, b.in(0), b.in(1)), "none"); }));
  bias.samples = [] { return with_vectors({{8}}); };
  table.add(std::move(bias));

  OpDef quick = microsoft("com.microsoft.QuickGelu", "x * sigmoid(alpha * x)", one, formula([](B& b) {
                            ValueId x = widen(b, b.in(0));
                            return cast(b, mul(b, x, sigmoid(b, mul(b, x, b.attr().f("alpha")))), b.dtype(b.in(0)));
                          }));
  quick.attributes = {number("alpha", 1.702)};
  quick.samples = [] { return with_vectors({}); };
  table.add(std::move(quick));

  const std::vector<OperandDef> residual = {
      {"X", TypeSet::Float}, {"bias", TypeSet::SameAsFirst}, {"skip", TypeSet::SameAsFirst}};
  OpDef sum = microsoft("com.microsoft.BiasAdd", "x + bias + skip", residual,
                        formula([](B& b) { return add(b, add(b, b.in(0), b.in(1)), b.in(2)); }));
  sum.samples = [] { return with_vectors({{8}, {2, 3, 8}}); };
  table.add(std::move(sum));

  OpDef split = microsoft("com.microsoft.BiasSplitGelu", "the left half of x + bias times the Gelu of the right half",
                          {{"X", TypeSet::Float}, {"bias", TypeSet::SameAsFirst}}, formula([](B& b) {
                            ValueId x = add(b, b.in(0), b.in(1));
                            const int64_t last = b.rank(x) - 1;
                            SymExpr half = floordiv(b.dim(x, last), 2);
                            return mul(b, slice(b, x, last, 0, half), gelu(b, slice(b, x, last, half, half), "none"));
                          }));
  split.samples = [] { return with_vectors({{8}}); };
  table.add(std::move(split));
}

} // namespace tessera
