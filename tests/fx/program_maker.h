// Programs of torch.export from short text, for tests of the importer. One statement a line:
//
//   s in [2, 64]                                 a symbol and its range; "s" alone: without a range
//   input x: f32[s, 4]                           an input
//   input k: f32[2, 3] strides [1, 2] offset 5   strides and offset in elements; contiguous where nothing is said
//   input n = s                                  an input that is a size
//   weight w: f32[4]                             a parameter of the module: the values -1, 0, 1, 2 ...
//   buffer b: f32[4]                             a buffer, the same
//   y: f32[s, 4] = add.Tensor(self=x, other=2)   a call of an ATen operator; several results: "y: f32[4], i: i64[4] =
//   ..." n = sym_size.int(self=x, dim=0) : s          a call whose result is a size return y, n what the module returns
//   mutates b = y                                the signature: a buffer (or an input) takes this value
//
// Sizes are sums and products, with // and %: "2*s + 1". Arguments: numbers, True, None, "text", element types (f16),
// names of values, and lists of these.
#pragma once
#include "frontend/fx/importer.h"
#include <nlohmann/json.hpp>

namespace tessera::fx_test {

// The JSON of the program, and its weights. A statement that is none of the above is a failed check.
[[nodiscard]] ProgramSource program(std::string_view text);
// An archive with the program and its weights, as torch.export.save writes it.
[[nodiscard]] std::string archive(const ProgramSource& source);
// Imports it; fails the test where that fails.
[[nodiscard]] Graph imported(std::string_view text);
// Results of the program's first call by the reference evaluator, as text: "f32[2]{1, 2}"; the error where there is one.
[[nodiscard]] std::string results(std::string_view text, const std::map<std::string, Tensor>& inputs);
[[nodiscard]] std::string show(const Tensor& t);
// An input of consecutive numbers from `first`.
[[nodiscard]] Tensor range(Dims dims, double first = 0, DType dtype = DType::F32);

} // namespace tessera::fx_test
