// Files inside the binary, as they are.
#pragma once
#include <cstddef>
#include <string_view>

// At global scope of one source file: the function NAME() gives the bytes of the file PATH, a string literal.
#define TESSERA_EMBED(NAME, PATH)                                                                                      \
  __asm__(".pushsection .rodata\n"                                                                                     \
          ".balign 16\n"                                                                                               \
          ".local tessera_" #NAME "_begin\n"                                                                           \
          "tessera_" #NAME "_begin:\n"                                                                                 \
          ".incbin \"" PATH "\"\n"                                                                                     \
          ".local tessera_" #NAME "_end\n"                                                                             \
          "tessera_" #NAME "_end:\n"                                                                                   \
          ".byte 0\n"                                                                                                  \
          ".popsection\n");                                                                                            \
  extern "C" {                                                                                                         \
  __attribute__((visibility("hidden"))) extern const char tessera_##NAME##_begin[];                                    \
  __attribute__((visibility("hidden"))) extern const char tessera_##NAME##_end[];                                      \
  }                                                                                                                    \
  static std::string_view NAME() {                                                                                     \
    return {tessera_##NAME##_begin, static_cast<size_t>(tessera_##NAME##_end - tessera_##NAME##_begin)};               \
  }
