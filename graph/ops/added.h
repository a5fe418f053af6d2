// Records that a program adds to the table while it runs: operators of libraries (api/operators.h).
#pragma once
#include "graph/ops/record.h"

namespace tessera {

// A kernel in the text form of the tile IR (docs/tile-ir.md). Parameters: a pointer for each operand that is given, one
// for each result, an i64 for each of `sizes`.
struct TileText {
  std::string text;
  std::vector<SymExpr> sizes;
  SymExpr grid; // programs
};
// Returns the kernel of a node for a device ("cpu", "cuda"), or nothing where it has none.
using TileTextFn = std::function<Result<std::optional<TileText>>(const Graph&, const Node&, std::string_view device)>;

struct AddedRecord {
  OpDef def;            // a composite, or Structured::Other
  TileTextFn tile_text; // of Structured::Other, where it has a kernel
};

// Adds all records, or none. They stay until the program ends: OpTable::find() and find_onnx() find them from then on, on
// every thread; all() does not have them. Error Usage for a name, or a version of an ONNX name, that has a record.
[[nodiscard]] Status add_records(std::vector<AddedRecord> records);
[[nodiscard]] std::vector<const OpDef*> added_records();
// The kernel of an added record; null where it has none.
[[nodiscard]] const TileTextFn* tile_text_of(const OpDef& op);

} // namespace tessera
