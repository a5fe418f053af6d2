// Conditions on the inputs' sizes that torch.export writes with a program (`guards_code`), as Python's text:
//
//   (L['x'].size()[0] % 2) == 0      L['d']['a'].size()[1] > L['n']
//
// They say which way the module's own branches on sizes went, so that they are conditions of every call.
#pragma once
#include "frontend/fx/symbols.h"
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::fx {

// Finds the size of an input by its name: dimension `dim` of a tensor or, without one, an integer. Nothing if there is
// no such input.
using InputSize = std::function<std::optional<SymExpr>(const std::string& input, std::optional<int64_t> dim)>;

// The condition; nothing where it is about more than integers and sizes of inputs. The inputs' names are those of the
// program: the keys of L joined by '_'.
[[nodiscard]] std::optional<SymExpr> read_guard(std::string_view text, const InputSize& size);

// Makes the program's guards conditions of every call. One that is not understood is left out: for some calls the
// module's own branches may then have gone another way. Error ShapeMismatch where one is known not to hold.
[[nodiscard]] Status require_guards(const Program& program, SymbolTable& symbols, ShapeEnv& env, const Location& where);

} // namespace tessera::fx
