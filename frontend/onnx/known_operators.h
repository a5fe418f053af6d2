// Which operators of ONNX the importer knows, with their versions: the records of the table, old forms, and what is
// inlined as it is read.
#pragma once
#include "graph/ir/operator.h"

namespace tessera::onnx {

// An operator without a record: the importer puts others in its place.
struct InlinedOperator {
  std::string_view op_type, domain;
  int since;
  std::string_view summary;
};
inline constexpr InlinedOperator kFlexAttention = {"FlexAttention", "ai.onnx.preview", 1,
                                                   "attention with scores and probabilities modified by graphs"};

struct KnownOperator {
  struct Versions {
    int since = 1, until = 1; // of its domain, inclusive; kLatest: all that follow
    bool old_form = false;    // brought to a newer form, or to other operators, when it is imported
  };
  static constexpr int kLatest = 1 << 30;

  std::string domain, op_type;       // "" is the default domain
  std::string summary;               // of the newest record
  std::vector<Versions> versions;    // ascending
  std::vector<const OpDef*> records; // of the newest version first; none where all forms are old ones
};
// Sorted by domain and name.
[[nodiscard]] std::vector<KnownOperator> known_operators();
// Whether this version of the operator is imported. `domain`: canonical.
[[nodiscard]] bool is_known_operator(std::string_view domain, std::string_view op_type, int opset);

} // namespace tessera::onnx
