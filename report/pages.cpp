#include "report/pages.h"
#include "base/embed.h"
#include TESSERA_PAGE_NUMBERS // of the files under docs/fusion: X(031) for FUS-031.md

#define TESSERA_PAGE_FILE(NUMBER) TESSERA_EMBED(page_##NUMBER, TESSERA_PAGES "/FUS-" #NUMBER ".md")
TESSERA_REASON_PAGES(TESSERA_PAGE_FILE)

namespace tessera {

std::string_view reason_page(const FusionReasonInfo& reason) {
#define TESSERA_PAGE_ENTRY(NUMBER)                                                                                     \
  if (reason.code == "FUS-" #NUMBER) return page_##NUMBER();
  TESSERA_REASON_PAGES(TESSERA_PAGE_ENTRY)
#undef TESSERA_PAGE_ENTRY
  return {};
}

} // namespace tessera
