// The arguments of one call of an ATen operator, by the names of PyTorch's schema. Errors are sticky, as the builder's
// are: after the first one every argument is empty.
#pragma once
#include "frontend/fx/program.h"
#include "frontend/fx/schema.h"
#include "graph/ops/builder.h"
#include <functional>
#include <variant>

namespace tessera::fx {

// The meaning of a name of the program: nothing, a tensor, a list of tensors (an invalid id is None), a symbolic
// integer or boolean, a symbolic number as a scalar tensor of f64.
struct SymbolicNumber {
  ValueId value;
};
using Item = std::variant<std::monostate, ValueId, std::vector<ValueId>, SymExpr, SymbolicNumber>;

// A number in the place of a tensor or of a Scalar argument.
struct Scalar {
  enum class Kind : uint8_t { Bool, Int, Float, Size /* symbolic integer */, Number /* symbolic number */ };
  Kind kind = Kind::Int;
  int64_t integer = 0;
  double number = 0; // the value of Bool, Int and Float
  SymExpr size;
  ValueId value; // Number: f64[]
  [[nodiscard]] bool is_constant() const { return kind != Kind::Size && kind != Kind::Number; }
};

class Arguments {
public:
  // The item of a name, nullptr where there is none; sizes as expressions.
  using Lookup = std::function<const Item*(const std::string&)>;
  using Sizes = std::function<Result<SymShape>(const std::vector<Size>&)>;
  Arguments(ops::B& b, const FxNode& fx, const FxGraph& program, const Schema& schema, Lookup lookup, Sizes sizes);

  // The schema's default stands for an argument that is left out.
  [[nodiscard]] bool given(std::string_view name) const;             // is there and is not None
  [[nodiscard]] ValueId tensor(std::string_view name);               // fails for None
  [[nodiscard]] ValueId maybe(std::string_view name);                // an invalid id for None
  [[nodiscard]] std::vector<ValueId> tensors(std::string_view name); // an invalid id for None in it
  [[nodiscard]] bool is_tensor(std::string_view name) const;         // not a number, None or a list
  [[nodiscard]] int64_t integer(std::string_view name);              // fails for a symbolic one
  [[nodiscard]] std::optional<int64_t> maybe_integer(std::string_view name);
  [[nodiscard]] double number(std::string_view name); // fails for a symbolic one
  [[nodiscard]] std::optional<double> maybe_number(std::string_view name);
  [[nodiscard]] bool flag(std::string_view name);
  [[nodiscard]] std::string text(std::string_view name);
  [[nodiscard]] Ints ints(std::string_view name); // empty for None; one integer where a list is expected is a list
  [[nodiscard]] SymExpr size(std::string_view name);
  [[nodiscard]] SymShape sizes(std::string_view name); // empty for None
  [[nodiscard]] std::vector<double> numbers(std::string_view name);
  [[nodiscard]] std::optional<DType> dtype(std::string_view name); // nothing for None
  [[nodiscard]] Scalar scalar(std::string_view name);
  // An axis of a tensor of `rank`, counted from the end where negative; a scalar has the axes 0 and -1, which are 0.
  [[nodiscard]] int64_t axis(std::string_view name, int rank);
  // Axes, sorted and distinct; all of them where the argument is None, or empty and `empty_is_all`.
  [[nodiscard]] Ints axes(std::string_view name, int rank, bool empty_is_all = true);

  // Strides and storage offset, in elements, that the exporter states for a tensor argument; nothing where it does not.
  struct Memory {
    SymShape strides;
    SymExpr offset;
  };
  [[nodiscard]] std::optional<Memory> memory(std::string_view name);
  // The name in the program of a tensor argument; empty where there is none.
  [[nodiscard]] std::string tensor_name(std::string_view name) const;

private:
  // The argument, or the schema's default for it; nullptr where it is None or there is none.
  [[nodiscard]] const Argument* find(std::string_view name) const;
  const Item* item(const Argument& a);
  std::optional<SymExpr> as_size(const Argument& a);
  std::optional<double> as_number(const Argument& a);
  // The number, unless its magnitude is more than any size's: that fails.
  std::optional<int64_t> within_sizes(std::string_view name, int64_t value);
  void wrong(std::string_view name, std::string_view expected, const Argument* found);
  void symbolic(std::string_view name, const std::string& what); // fails: it must be a constant

  ops::B& b_;
  const FxNode& fx_;
  const FxGraph& program_;
  const Schema& schema_;
  Lookup lookup_;
  Sizes sizes_;
  mutable std::map<std::string, Argument, std::less<>> fallbacks_; // defaults that were read
};

} // namespace tessera::fx
