// The lexical rules of the Graph text form, shared by printer and parser (docs/graph-ir.md).
#pragma once
#include "base/text.h"
#include "graph/ir/graph.h"

namespace tessera::text {

// [A-Za-z_][A-Za-z0-9_.]*: what may stand without quotes after % and @, as an attribute's or a symbol's name.
[[nodiscard]] bool is_identifier(std::string_view s);
[[nodiscard]] std::string identifier_or_quoted(std::string_view s);
// Shortest text that reads back to the same double; always with a point, an exponent, or inf / -inf / nan.
[[nodiscard]] std::string real(double v);
// f16[b, s]
[[nodiscard]] std::string type(const TensorType& t);
// Elements in braces when there are at most `limit` and their text gives back the same bits: {1, 2}. Else "".
[[nodiscard]] std::string literal(const Tensor& t, int64_t limit);
[[nodiscard]] std::string hex(const Tensor& t);          // storage bytes, lower-case digits
[[nodiscard]] std::string content_hash(const Tensor& t); // 32 hexadecimal digits
inline constexpr int64_t kLiteralElements = 16;
// Subgraph attributes within subgraph attributes, parentheses within expressions.
inline constexpr int kMaxDepth = 32;

[[nodiscard]] std::string attribute(const Attribute& a, bool with_data, int indent);
[[nodiscard]] std::string graph(const Graph& g, bool with_data, int indent, bool with_symbols);

} // namespace tessera::text
