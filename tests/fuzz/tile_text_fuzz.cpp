// The tile parser on arbitrary text: an error, or a kernel whose print parses to the same print.
#include "codegen/tile/tile.h"
#include "driver.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  auto kernel = tile::parse({reinterpret_cast<const char*>(data), size});
  if (!kernel.ok()) {
    TESSERA_CHECK(!kernel.error().message.empty(), "an error says something");
    return 0;
  }
  std::string text = tile::print(*kernel);
  auto again = tile::parse(text);
  TESSERA_CHECK(again.ok(), again.error().str() + text);
  TESSERA_CHECK(tile::print(*again) == text,
                "what was printed reads back as the same:\n" + text + "\n" + tile::print(*again));
  return 0;
}
