// Samples of operators' records as JSON lines, for the generator of models: what an operator is called in ONNX, and
// what it was given.
#pragma once
#include <ostream>

namespace tessera::generator {

// A line a record that has an ONNX name and samples. Samples of lists and of subgraphs are left out.
void write_records(std::ostream& out);

} // namespace tessera::generator
