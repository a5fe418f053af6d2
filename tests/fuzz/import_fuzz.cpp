// The ONNX importer on arbitrary bytes: an error or a graph, and a graph must pass the verifier and print.
#include "driver.h"
#include "frontend/onnx/importer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  ImportOptions options;
  options.missing_weights = ImportOptions::MissingWeights::Empty;
  auto model = onnx::import_bytes({reinterpret_cast<const char*>(data), size}, "/nonexistent", options);
  if (!model.ok()) {
    TESSERA_CHECK(!model.error().message.empty(), "an error says something");
    return 0;
  }
  auto status = verify(model->graph);
  TESSERA_CHECK(status.ok(), status.error().str());
  TESSERA_CHECK(!print(model->graph).empty(), "a graph prints");
  return 0;
}
