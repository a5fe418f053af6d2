// Views: what moves no element.
#include "frontend/fx/call.h"

namespace tessera::fx {
namespace {

// Sizes with one -1 that stands for what the others leave.
SymShape completed(Call& c, SymShape sizes, const SymExpr& count) {
  SymExpr others = 1;
  std::optional<size_t> open;
  for (size_t k = 0; k < sizes.size(); ++k) {
    if (sizes[k].is_const(-1))
      open = k;
    else
      others *= sizes[k];
  }
  if (open) sizes[*open] = c.b.env().simplify(floordiv(count, others));
  return sizes;
}

void translate_view(Call& c) {
  ValueId x = c.tensor("self");
  SymShape sizes = c.given("size") ? c.sizes("size") : c.sizes("shape");
  if (!c.b.ok()) return;
  c.result(c.b.reshape(x, completed(c, std::move(sizes), c.b.type(x).count())));
}

} // namespace

void register_views(AtenTable& t) {
  t.add({"view.default", "reshape.default", "_unsafe_view.default"}, translate_view);
}

} // namespace tessera::fx
