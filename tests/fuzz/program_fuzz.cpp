// The importer of programs on arbitrary JSON: an error or a graph, and a graph must pass the verifier. Weights are not
// there, as in a survey. Mutations are calls of any operator, edits of the document, or of its bytes.
#include "driver.h"
#include "frontend/fx/importer.h"
#include "plan_mutator.h"
#include "program_mutator.h"
#include <cstring>

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned int seed) {
  using namespace tessera;
  std::mt19937_64 rng(seed);
  nlohmann::json program = nlohmann::json::parse(data, data + size, nullptr, false);
  const auto how = rng() % 8;
  if (how == 0 || program.is_discarded()) {
    if (size > 0) data[rng() % size] = static_cast<uint8_t>(rng());
    return size;
  }
  if (how < 5) fuzz::add_calls(program, rng);
  if (how > 3) fuzz::mutate(program, rng);
  const std::string text = program.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > most) return size;
  std::memcpy(data, text.data(), text.size());
  return text.size();
}

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
