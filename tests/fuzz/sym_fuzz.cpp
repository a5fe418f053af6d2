// The parser of symbolic expressions on arbitrary text: an error, or an expression whose print parses to the same one,
// and that evaluates to the same number or the same kind of error when it is simplified.
#include "driver.h"
#include "symbols/env.h"

namespace {
// Products of sizes that no address space admits are left undistributed, so their canonical form is not unique.
bool within_address_space(const tessera::SymExpr& e) {
  if (auto c = e.as_const()) return *c > -tessera::kSymMax && *c < tessera::kSymMax;
  if (e.is_symbol()) return true;
  for (const auto& a : e.args())
    if (!within_address_space(a)) return false;
  return true;
}
} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  ShapeEnv env;
  auto lookup = [&env](std::string_view name) -> Result<SymExpr> {
    return env.named_symbol(std::string(name), {0, 1000});
  };
  auto e = parse_sym({reinterpret_cast<const char*>(data), size}, lookup);
  if (!e.ok()) {
    TESSERA_CHECK(!e.error().message.empty(), "an error says something");
    return 0;
  }
  auto again = parse_sym(e->str(), lookup);
  TESSERA_CHECK(again.ok(), e->str() + ": " + again.error().str());
  if (within_address_space(*e)) TESSERA_CHECK(*again == *e, e->str() + " reads back as " + again->str());
  std::unordered_map<uint64_t, int64_t> sizes;
  for (const SymExpr& s : e->symbols()) sizes[s.symbol_id()] = 1 + static_cast<int64_t>(sizes.size()) * 7;
  SymExpr simple = env.simplify(*e);
  auto a = e->eval(sizes), b = simple.eval(sizes);
  // Simplifying may remove an overflow or a division by zero, never add or change a value.
  if (a.ok()) TESSERA_CHECK(b.ok() && *a == *b, e->str() + " simplified to " + simple.str());
  return 0;
}
