#include "api/compiler/plan_cache.h"
#include "api/operators/load.h"
#include "base/json_document.h"
#include "base/json_reader.h"
#include "base/json_text.h"
#include "base/log.h"
#include "codegen/driver/compile_key.h"
#include "codegen/load/load.h"
#include "runtime/file_format.h"
#include <algorithm>

namespace tessera {
namespace {

// An entry has at most this share of the folder: one model does not drive out all others.
constexpr int64_t kLargestShare = 16;

void add_options(KeyText& key, const ImportOptions& options) {
  const auto& [dim_values, input_shapes, dim_ranges, dim_hints, of_call, undetermined, missing_weights] = options;
  key.add("dim_values", dim_values);
  key.add("input_shapes", input_shapes);
  key.add("dim_ranges", dim_ranges);
  key.add("dim_hints", dim_hints);
  key.add("of_call", of_call);
  key.add("undetermined", undetermined);
  key.add("missing_weights", missing_weights);
}

// Who wants to see a compile gets one.
bool watched() {
  if (dump_enabled()) return true;
  for (const auto channel : {LogChannel::Fusion, LogChannel::Guards, LogChannel::OutputCode, LogChannel::Passes})
    if (log_enabled(channel)) return true;
  return false;
}

struct Head { // of a payload
  uint64_t plan_at = 0, description_bytes = 0;
};

JsonText to_json(const KeptPlan& plan, const std::vector<ModelContent::WeightFile>& files) {
  const auto& [format, version, opsets, producer, functions, nodes, absent_weights, absent_bytes] = plan.info;
  JsonText domains = JsonText::array(), weights = JsonText::array();
  for (const auto& [domain, opset] : opsets) domains.push_back(JsonText::array({domain, opset}));
  for (const auto& f : files) weights.push_back(JsonText::array({f.name, f.bytes, f.hash.lo, f.hash.hi}));
  return JsonText::object(
      {{"warnings", plan.warnings},
       {"kernels", plan.kernels},
       {"host_steps", plan.executable->host_steps},
       {"info", JsonText::array({format, version, producer, functions, nodes, absent_weights, absent_bytes})},
       {"opsets", domains},
       {"weights", weights}});
}

} // namespace

PlanCache::PlanCache(const PlanRequest& request, std::string name, ThreadPool* pool)
    : name_(std::move(name)), pool_(pool), cache_(request.compile.cache_dir, request.compile.cache) {
  if (!request.compile.cache || cache_.directory().empty() || watched()) return;
  KeyText key;
  CompileOptions compile = request.compile;
  if (!request.measured.empty()) compile.tuned = nullptr;
  const auto operators = added_operators();
  const bool has_text = add_options(key, compile);
  if (!has_text || !operators) {
    skip("its options or operators have no text to compare by");
    return;
  }
  if (!add_device(key, compile, device_).ok()) return; // the compile says what is wrong
  key.add("build", compiler_build());
  add_options(key, request.import);
  key.add("conditions", request.conditions);
  key.add("measured", request.measured);
  key.add("operators", *operators);
  key_text_ = key.str();
  usable_ = true;
}

void PlanCache::skip(const std::string& why) const {
  TESSERA_LOGF(LogChannel::Cache, "the plan of " + name_ + " is not kept: " + why);
}

Hash128 PlanCache::key(const ModelContent& model) const { return hash128(model.hash().hex() + key_text_); }

std::optional<KeptPlan> PlanCache::find(ModelContent& model) {
  if (!usable_) return std::nullopt;
  const auto payload = cache_.map(EntryKind::Plan, key(model));
  if (!payload) return std::nullopt;
  bool other_weights = false;
  auto plan = read(*payload, model, other_weights);
  if (plan.ok()) {
    TESSERA_LOGF(LogChannel::Cache, "the plan of " + name_ + " is from the cache");
    return std::move(*plan);
  }
  if (!other_weights && plan.error().code != ErrorCode::OutOfMemory)
    cache_.report_damaged(EntryKind::Plan, key(model), plan.error().message);
  return std::nullopt;
}

Result<KeptPlan> PlanCache::read(const Storage& payload, ModelContent& model, bool& other_weights) {
  const auto damaged = [](const std::string& what) { return Diagnostic(ErrorCode::CorruptFile, what); };
  Head head;
  if (payload.bytes < sizeof head) return damaged("it is shorter than a head");
  std::memcpy(&head, payload.data, sizeof head);
  if (head.plan_at > payload.bytes || head.plan_at < sizeof head || head.description_bytes > head.plan_at - sizeof head)
    return damaged("the sizes in its head contradict each other");
  const char* text = reinterpret_cast<const char*>(payload.data) + sizeof head;
  JsonDocument described;
  if (!described.parse(text, text + head.description_bytes)) return damaged("its description is no JSON");
  KeptPlan out;
  int host_steps = 0;
  try {
    const file::JsonValue j(described.json, "description");
    out.warnings = j.at("warnings").list([](const file::JsonValue& w) { return w.text(); });
    out.kernels = j.at("kernels").integer(0, INT32_MAX);
    host_steps = j.at("host_steps").integer(0, INT32_MAX);
    const file::JsonValue info = j.at("info");
    out.info = {info.at(size_t{0}).text(),
                info.at(1).integer(),
                {},
                info.at(2).text(),
                info.at(3).integer(0, INT32_MAX),
                info.at(4).integer(0, INT32_MAX),
                info.at(5).integer(0, INT32_MAX),
                info.at(6).integer()};
    j.at("opsets").each(
        [&](const file::JsonValue& o) { out.info.opsets.emplace(o.at(size_t{0}).text(), o.at(1).integer()); });
    j.at("weights").each([&](const file::JsonValue& w) {
      out.weight_files.push_back(w.at(size_t{0}).text());
      const auto is =
          other_weights ? Diagnostic(ErrorCode::FileError, "") : model.add(out.weight_files.back(), cache_, pool_);
      const Hash128 hash{w.at(2).word(), w.at(3).word()};
      other_weights = !is.ok() || is->bytes != w.at(1).integer() || is->hash != hash;
    });
  } catch (const file::Corrupt& c) {
    return damaged(c.what);
  }
  if (other_weights) return Diagnostic(ErrorCode::FileError, "the model's weights are others");
  const Storage bytes{payload.owner, payload.data + head.plan_at, payload.bytes - head.plan_at};
  TESSERA_ASSIGN(auto executable, load_plan(bytes, "plan of " + name_, model.parts()));
  executable->host_steps = host_steps;
  out.executable = std::move(executable);
  return out;
}

void PlanCache::store(ModelContent& model, const KeptPlan& plan, std::span<const CopiedWeight> copied) {
  if (!usable_) return;
  std::vector<ModelContent::WeightFile> files;
  for (const std::string& name : plan.weight_files) {
    auto file = model.add(name, cache_, pool_);
    if (!file.ok()) return skip(file.error().message);
    files.push_back(std::move(*file));
  }
  auto bytes = plan_bytes(*plan.executable, model.places(copied), cache_.limit() / kLargestShare);
  if (!bytes.ok()) return skip(bytes.error().message);
  const JsonText described = to_json(plan, files);
  if (described.repaired()) return skip("a text of the model is no UTF-8");
  const std::string& description = described.str();
  if (!model.unchanged(pool_)) return skip("the model has just been written");
  const EntryOrigin origin{compiler_build(), device_, name_};
  const size_t before = entry_head_bytes(origin);
  const Head head{file::aligned(before + sizeof head + description.size()) - before, description.size()};
  std::string payload(reinterpret_cast<const char*>(&head), sizeof head);
  payload += description;
  payload.resize(head.plan_at);
  payload += *bytes;
  cache_.store(EntryKind::Plan, key(model), origin, payload);
}

} // namespace tessera
