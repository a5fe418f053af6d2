// Target files inside the binary.
#include "codegen/target/select.h"

// The file TESSERA_TARGET_DATA/NAME.json as the bytes between two symbols.
#define TESSERA_TARGET_FILE(NAME)                                                                                      \
  __asm__(".pushsection .rodata\n"                                                                                     \
          ".local tessera_target_" #NAME "_begin\n"                                                                    \
          "tessera_target_" #NAME "_begin:\n"                                                                          \
          ".incbin \"" TESSERA_TARGET_DATA "/" #NAME ".json\"\n"                                                       \
          ".local tessera_target_" #NAME "_end\n"                                                                      \
          "tessera_target_" #NAME "_end:\n"                                                                            \
          ".byte 0\n"                                                                                                  \
          ".popsection\n");                                                                                            \
  extern "C" {                                                                                                         \
  __attribute__((visibility("hidden"))) extern const char tessera_target_##NAME##_begin[];                             \
  __attribute__((visibility("hidden"))) extern const char tessera_target_##NAME##_end[];                               \
  }

// A new target is a file under data/ and a name here. Of GPUs with the same architecture the first is the default.
#define TESSERA_TARGETS(X) X(h200) X(h100) X(a100) X(rtx4090) X(l40s) X(avx512) X(avx2) X(portable)
TESSERA_TARGETS(TESSERA_TARGET_FILE)

namespace tessera {
namespace {

struct File {
  std::string_view name, text;
};
std::string_view text_between(const char* begin, const char* end) { return {begin, static_cast<size_t>(end - begin)}; }

} // namespace

const std::vector<Target>& shipped_targets() {
  static const auto* const all = [] {
    auto* out = new std::vector<Target>;
#define TESSERA_TARGET_ENTRY(NAME)                                                                                     \
  File{#NAME, text_between(tessera_target_##NAME##_begin, tessera_target_##NAME##_end)},
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
