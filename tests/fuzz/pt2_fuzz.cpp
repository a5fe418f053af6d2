// The reader of archives of torch.export on arbitrary bytes: an error or a graph, and a graph must pass the verifier.
#include "driver.h"
#include "frontend/fx/importer.h"
#include <cstring>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  ImportOptions options;
  options.missing_weights = ImportOptions::MissingWeights::Empty;
  auto block = allocate_bytes(size).value(); // aligned as a map is
  if (size > 0) std::memcpy(block.get(), data, size);
  auto model = fx::import_bytes({block, block.get(), size}, options);
  if (!model.ok()) {
    TESSERA_CHECK(!model.error().message.empty(), "an error says something");
    return 0;
  }
  auto status = verify(model->graph);
  TESSERA_CHECK(status.ok(), status.error().str());
  TESSERA_CHECK(!print(model->graph).empty(), "a graph prints");
  return 0;
}
