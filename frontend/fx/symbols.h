// Symbols of a program: sympy's expressions become SymExpr over the symbols of one ShapeEnv.
#pragma once
#include "frontend/fx/program.h"
#include "frontend/options.h"
#include "symbols/env.h"

namespace tessera::fx {

// The name in "Symbol('s77', positive=True, integer=True)"; nothing when the text is anything else.
[[nodiscard]] std::optional<std::string> plain_symbol(std::string_view text);
// Names of all symbols in the text.
[[nodiscard]] std::vector<std::string> symbols_in(std::string_view text);

class SymbolTable {
public:
  // `file`: for errors. Sizes that the options give for symbols become constants, hints are set.
  SymbolTable(ShapeEnv& env, const Program& program, const ImportOptions& options, std::string file);
  // Symbols that are known around a graph within the program mean the same in it.
  void share(const SymbolTable& around);

  // The size that `size` states; a symbol that was not seen before is created with the program's range. Errors:
  // MalformedModel for text that is no expression, UnsupportedFeature for a function that is not known.
  [[nodiscard]] Result<SymExpr> read(const Size& size);
  [[nodiscard]] Result<SymShape> read(const std::vector<Size>& sizes);
  // The same from sympy's srepr: "Mul(Integer(2), Symbol('s77', positive=True, integer=True))".
  [[nodiscard]] Result<SymExpr> read_expression(std::string_view text);
  // True if the size is one symbol that was not seen yet: that of a result whose size depends on data.
  [[nodiscard]] bool is_new_symbol(const Size& size) const;
  // Lets the symbol of `size` stand for `value` from now on. Nothing happens if it is known, or is no plain symbol.
  void bind(const Size& size, const SymExpr& value);

private:
  friend class SympyReader;
  Result<SymExpr> symbol(const std::string& name);
  [[nodiscard]] Diagnostic malformed(std::string_view text, const std::string& what) const;

  ShapeEnv& env_;
  const Program& program_;
  const ImportOptions& options_;
  std::string file_;
  std::map<std::string, SymExpr, std::less<>> named_;
  std::map<std::string, SymExpr, std::less<>> read_; // expressions by their text
};

} // namespace tessera::fx
