// Target files inside the binary.
#include "base/embed.h"
#include "codegen/target/select.h"

#define TESSERA_TARGET_FILE(NAME) TESSERA_EMBED(target_##NAME, TESSERA_TARGET_DATA "/" #NAME ".json")

// A new target is a file under data/ and a name here. Of GPUs with the same architecture the first is the default.
#define TESSERA_TARGETS(X) X(h200) X(h100) X(a100) X(rtx4090) X(l40s) X(avx512) X(avx2) X(portable)
TESSERA_TARGETS(TESSERA_TARGET_FILE)

namespace tessera {
namespace {

struct File {
  std::string_view name, text;
};

} // namespace

const std::vector<Target>& shipped_targets() {
  static const auto* const all = [] {
    auto* out = new std::vector<Target>;
#define TESSERA_TARGET_ENTRY(NAME) File{#NAME, target_##NAME()},
    for (const File& f : {TESSERA_TARGETS(TESSERA_TARGET_ENTRY)}) {
      auto target = parse_target(f.text, std::string(f.name) + ".json");
      TESSERA_CHECK(target.ok() && target->name == f.name,
                    target.ok() ? "a target's name is its file's" : target.error().str());
      out->push_back(std::move(*target));
    }
    return out;
  }();
  return *all;
}

const Target& shipped_target(std::string_view name) {
  for (const Target& t : shipped_targets())
    if (t.name == name) return t;
  TESSERA_CHECK(false, "no target is called '" + std::string(name) + "'");
  std::abort();
}

} // namespace tessera
