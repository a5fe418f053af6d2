// Heads of attention.
#pragma once
#include "graph/ops/builder.h"

namespace tessera::ops {

// How many heads of queries share one of keys. Where both numbers are symbols, the quotient is that of the call, else 1,
// and is assumed: a call of another one gets another variant. Fails ShapeMismatch where keys' heads do not divide.
SymExpr heads_per_key(B& b, const SymExpr& heads, const SymExpr& key_heads);

} // namespace tessera::ops
