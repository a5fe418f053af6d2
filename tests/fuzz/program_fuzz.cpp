// The importer of programs on arbitrary JSON: an error or a graph, and a graph must pass the verifier. Weights are not
// there, as in a survey.
#include "driver.h"
#include "frontend/fx/importer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  ProgramSource source;
  source.name = "program";
  source.json.assign(reinterpret_cast<const char*>(data), size);
  auto refusals = fx::survey(source);
  if (!refusals.ok()) TESSERA_CHECK(!refusals.error().message.empty(), "an error says something");
  auto model = fx::import_program(source);
  if (!model.ok()) {
    TESSERA_CHECK(!model.error().message.empty(), "an error says something");
    return 0;
  }
  auto status = verify(model->graph);
  TESSERA_CHECK(status.ok(), status.error().str());
  TESSERA_CHECK(!print(model->graph).empty(), "a graph prints");
  return 0;
}
