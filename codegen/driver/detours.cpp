#include "codegen/driver/detours.h"
#include "codegen/driver/pipeline.h"
#include "codegen/driver/planned_operators.h"
#include "graph/support/environment.h"
#include "graph/support/guarded.h"
#include "graph/support/log.h"
#include "runtime/cache/cache.h"
#include <algorithm>
#include <filesystem>

namespace tessera {
namespace {

constexpr size_t kMostTexts = 16;              // that the cache folder keeps
constexpr size_t kMostBytes = size_t{1} << 20; // of one

// Removes the oldest texts beyond the bound.
void bound_texts(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code ec;
  std::vector<std::pair<fs::file_time_type, fs::path>> texts;
  for (auto it = fs::directory_iterator(folder, ec); !ec && it != fs::directory_iterator(); it.increment(ec))
    if (it->path().extension() == ".txt") texts.emplace_back(it->last_write_time(ec), it->path());
  if (texts.size() <= kMostTexts) return;
  std::sort(texts.begin(), texts.end());
  for (size_t i = 0; i + kMostTexts < texts.size(); ++i) fs::remove(texts[i].second, ec);
}

// Where the text was saved; empty: nowhere.
std::string save(const CompileOptions& options, std::string text) {
  if (text.size() > kMostBytes) {
    text.resize(kMostBytes);
    text += "\n... cut\n";
  }
  const std::string name = "failure-" + hash128(text).hex() + ".txt"; // a failure that comes again has one file
  if (dump_enabled()) {
    write_dump(name, text);
    const char* folder = environment("TESSERA_DUMP_DIR");
    return std::string(folder ? folder : "") + "/" + name;
  }
  const std::string cache = options.cache ? cache_directory(options.cache_dir) : "";
  if (cache.empty()) return "";
  const std::string folder = cache + "/failures";
  auto opened = PrivateFolder::open(folder, PrivateFolder::Missing::Make);
  if (!opened.ok() || !*opened || !(*opened)->write(name, {text}).ok()) return "";
  bound_texts(folder);
  return folder + "/" + name;
}

} // namespace

void contain(std::vector<ContainedFailure>& report, const CompileOptions& options, std::string where,
             const Diagnostic& error, std::string instead, const std::string& text) {
  count_contained_failure();
  auto saved = guarded("saving what failed", [&]() -> Result<std::string> {
    return save(options, where + "\n" + error.str() + "\n" + text);
  });
  ContainedFailure& failure = report.emplace_back();
  failure.where = std::move(where);
  failure.error = error;
  failure.instead = std::move(instead);
  if (saved.ok()) failure.saved = std::move(*saved);
  TESSERA_LOGF(LogChannel::Warnings, failure.str());
}

std::string ContainedFailure::str() const {
  return std::string(info(error.code).id) + " in " + where + ": " + error.message + "; instead, " + instead +
         (saved.empty() ? "" : "; saved in " + saved);
}

bool may_detour(const Diagnostic& error) {
  return error.code == ErrorCode::Internal || error.code == ErrorCode::CodegenError ||
         error.code == ErrorCode::UnsupportedType || error.code == ErrorCode::UnsupportedFeature;
}

bool Detours::leave_out(const std::string& pass) {
  const CompilePass* known = find_compile_pass(pass);
  if (!known || known->level == PassLevel::Fuse) return false;
  if (std::find(passes_.begin(), passes_.end(), pass) != passes_.end()) return false;
  passes_.push_back(pass);
  plan_ = {}; // the graph will be another one
  return true;
}

bool Detours::all_on_host(const Graph& graph, const Diagnostic& error) {
  bool changed = false;
  for (NodeId id : graph.order()) {
    const auto* structured = graph.node(id).op->structured();
    if (structured && (structured->kind == Structured::Constant || structured->kind == Structured::Alias ||
                       structured->kind == Structured::Control))
      continue;
    changed = plan_.on_host.emplace(id, "generating code failed: " + error.message).second || changed;
  }
  return changed;
}

std::string Detours::around(const Graph& graph, const FusionPlan& plan, const Group& group, const Diagnostic& error) {
  if (group.kind == Group::Kind::Host || group.kind == Group::Kind::Alias) return "";
  constexpr int kRounds = 3; // after which a kernel of several operators goes to the host at once
  const bool attention =
      group.kind == Group::Kind::Attention || (group.kind == Group::Kind::Own && !group.node.valid());
  if (attention && plan_.in_steps.insert(group.attention.out.value).second) return "its three steps are planned";
  std::vector<NodeId> nodes;
  for (NodeId id : nodes_of(group)) {
    const auto* structured = graph.node(id).op->structured();
    if (!structured || (structured->kind != Structured::Constant && structured->kind != Structured::Alias))
      nodes.push_back(id);
  }
  if (group.kind == Group::Kind::Control) nodes = {group.node};
  if (nodes.empty()) { // a plan made it for an attention, which reads its result
    bool changed = false;
    for (const Group* reader : flat_groups(plan))
      for (ValueId v : reader->attention.out.value.valid() ? group.writes : std::vector<ValueId>())
        if (std::find(reader->reads.begin(), reader->reads.end(), v) != reader->reads.end())
          changed = plan_.in_steps.insert(reader->attention.out.value).second || changed;
    return changed ? "the attention that reads it is planned in steps" : "";
  }
  const bool several = nodes.size() > 1 && rounds_ < kRounds;
  bool changed = false;
  if (several) {
    for (NodeId id : nodes) changed = plan_.alone.insert(id).second || changed;
    if (changed) return "each of its operators is planned alone";
  }
  for (NodeId id : nodes)
    changed = plan_.on_host.emplace(id, "generating code for it failed: " + error.message).second || changed;
  if (!changed) return "";
  return nodes.size() > 1 ? "the host runs its operators" : "the host runs it";
}

} // namespace tessera
