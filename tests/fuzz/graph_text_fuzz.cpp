// The graph parser on arbitrary text: an error with a position, or a graph whose print parses to the same print.
#include "driver.h"
#include "graph/ir/graph.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  auto graph = parse_graph({reinterpret_cast<const char*>(data), size});
  if (!graph.ok()) {
    TESSERA_CHECK(!graph.error().message.empty(), "an error says something");
    return 0;
  }
  std::string text = print(*graph, true);
  auto again = parse_graph(text);
  TESSERA_CHECK(again.ok(), again.error().str() + text);
  TESSERA_CHECK(print(*again, true) == text,
                "what was printed reads back as the same:\n" + text + "\n" + print(*again, true));
  return 0;
}
