#include "api/c/opening.h"
#include "base/text.h"
#include "codegen/driver/compile.h"
#include "codegen/driver/plan_file.h"
#include "frontend/fx/call.h"
#include "frontend/fx/importer.h"
#include <nlohmann/json.hpp>

namespace tessera {

Status apply(const CompileTexts& texts, CompileOptions& options) {
  options.strict_rounding = texts.strict_rounding;
  if (texts.tf32 != nullptr) {
    const auto tf32 = parse_tf32(texts.tf32);
    if (!tf32) return Diagnostic(ErrorCode::Usage, "tf32 is " + quote(texts.tf32));
    options.tf32 = *tf32;
  }
  if (texts.plan != nullptr) {
    TESSERA_ASSIGN(options.plan, read_plan_file(texts.plan));
  }
  return {};
}

Result<std::string> survey_text(const ProgramSource& program) {
  TESSERA_ASSIGN(auto found, fx::survey(program));
  auto all = nlohmann::json::array();
  for (const auto& r : found)
    all.push_back({{"node", r.node}, {"target", r.target}, {"output", r.output}, {"reason", r.reason.message}});
  return all.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

Result<const std::string*> known_sizes_text() {
  static const std::string text = [] {
    auto all = nlohmann::json::object();
    for (const auto& [name, sizes] : fx::AtenTable::get().known())
      for (const fx::KnownSize& s : sizes)
        all["aten." + std::string(name)].push_back(
            {{"argument", s.argument}, {"dim", s.dim}, {"differs_from", s.differs_from}});
    return all.dump();
  }();
  return &text;
}

} // namespace tessera
