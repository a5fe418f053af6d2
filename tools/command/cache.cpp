// tessera cache: what lies in the cache folder, and what is done with it.
#include "base/environment.h"
#include "base/file.h"
#include "codegen/compilation/kernels.h"
#include "codegen/driver/compile_key.h"
#include "codegen/llvm/gpu_compiler.h"
#include "codegen/llvm/host_compiler.h"
#include "command.h"
#include "measure/tune/records.h"
#include "runtime/cache/archive.h"
#include "runtime/cache/eviction.h"
#include "runtime/cache/survey.h"
#include <ctime>
#include <map>
#include <set>

namespace tessera::command {

namespace {

struct CacheCommand {
  std::string directory, json, format = "text";
  std::string file, limit, older_than;
  bool other_versions = false, repair = false;
};

// The folder, or an error where there is none.
Result<std::string> folder_of(const CacheCommand& o) {
  const std::string directory = cache_directory(o.directory);
  if (directory.empty())
    return Diagnostic(ErrorCode::Usage, "there is no cache folder: neither TESSERA_CACHE_DIR nor HOME is set")
        .note("--cache-dir names one");
  return directory;
}

std::string age_text(int64_t seconds) {
  constexpr std::pair<int64_t, const char*> kUnits[] = {{86400, " d"}, {3600, " h"}, {60, " min"}, {1, " s"}};
  for (const auto& [unit, name] : kUnits)
    if (seconds >= 2 * unit || unit == 1) return std::to_string(std::max<int64_t>(seconds, 0) / unit) + name;
  return "";
}

// "30d", "12h", "45min", "10s": seconds.
Result<int64_t> parse_age(const std::string& text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::map<std::string, int64_t> units = {{"s", 1}, {"min", 60}, {"h", 3600}, {"d", 86400}};
  const auto unit = units.find(text.substr(digits));
  constexpr size_t kMaxDigits = 9;
  if (digits == 0 || digits > kMaxDigits || unit == units.end())
    return Diagnostic(ErrorCode::Usage,
                      "--older-than: '" + text + "' is no age; expected is a number with s, min, h or d")
        .note("30d is thirty days");
  return std::stoll(text.substr(0, digits)) * unit->second;
}

// Entries of one kind, creator and device.
struct Sort {
  int64_t entries = 0, bytes = 0, newest = 0, unused = INT64_MAX; // newest: created; unused: oldest time of use
};

struct RecordCounts {
  int64_t records = 0, bytes = 0;
  std::string problem;
};

RecordCounts count_records(const std::string& directory) {
  const TunedRecords records(directory, {});
  RecordCounts out;
  out.records = static_cast<int64_t>(records.all().size());
  for (const std::string& w : records.warnings()) out.problem = w;
  if (out.records > 0) out.bytes = static_cast<int64_t>(print_records(records.all()).size());
  return out;
}

Result<Json> list(const CacheCommand& o) {
  TESSERA_ASSIGN(const std::string directory, folder_of(o));
  TESSERA_ASSIGN(const int64_t limit, cache_limit());
  std::map<std::tuple<std::string, std::string, std::string>, Sort> sorts;
  int64_t entries = 0, bytes = 0, problems = 0;
  const int64_t now = ::time(nullptr);
  TESSERA_TRY(survey_cache(directory, false, [&](const SurveyedFile& f) -> Status {
    bytes += f.bytes;
    problems += !f.problem.empty();
    std::tuple<std::string, std::string, std::string> key{"unfinished", "", ""};
    if (f.entry)
      key = {std::string(name(f.entry->kind)), f.entry->origin.creator, f.entry->origin.device};
    else if (!f.problem.empty())
      key = {"damaged", "", ""};
    else if (f.is == EntryFile::OtherFormat)
      key = {"other format", "", ""};
    Sort& s = sorts[key];
    ++s.entries, ++entries;
    s.bytes += f.bytes;
    s.newest = std::max(s.newest, f.entry ? f.entry->created : f.used);
    s.unused = std::min(s.unused, f.used);
    return {};
  }));
  Json j{{"folder", directory}, {"entries", entries}, {"bytes", bytes}};
  j["limit"] = limit == INT64_MAX ? Json() : Json(limit);
  j["damaged"] = problems;
  j["kinds"] = Json::array();
  for (const auto& [key, s] : sorts)
    j["kinds"].push_back({{"kind", std::get<0>(key)},
                          {"version", std::get<1>(key)},
                          {"device", std::get<2>(key)},
                          {"entries", s.entries},
                          {"bytes", s.bytes},
                          {"newest_seconds", now - s.newest},
                          {"unused_seconds", now - s.unused}});
  const RecordCounts records = count_records(directory);
  j["records"] = {{"file", directory + "/tuned.json"}, {"records", records.records}, {"bytes", records.bytes}};
  if (!records.problem.empty()) j["records"]["problem"] = records.problem;
  return j;
}

std::string list_text(const Json& j) {
  Table table({"kind", "version", "device", "entries", "size", "newest", "unused for"}, {3, 4, 5, 6});
  for (const auto& k : j["kinds"])
    table.add({k["kind"].get<std::string>(), k["version"].get<std::string>(), k["device"].get<std::string>(),
               k["entries"].dump(), format_bytes(k["bytes"].get<double>()), age_text(k["newest_seconds"]),
               age_text(k["unused_seconds"])});
  std::string out = table.empty() ? "" : table.str();
  out += shown(j["folder"].get<std::string>()) + ": " + j["entries"].dump() + " entries of " +
         format_bytes(j["bytes"].get<double>()) + "; limit " +
         (j["limit"].is_null() ? "none" : format_bytes(j["limit"].get<double>())) + "; " +
         j["records"]["records"].dump() + " tuned records\n";
  if (j["damaged"] != 0) out += j["damaged"].dump() + " damaged; 'tessera cache verify' names them\n";
  return out;
}

Result<Json> prune(const CacheCommand& o) {
  TESSERA_ASSIGN(const std::string directory, folder_of(o));
  if (o.limit.empty() && o.older_than.empty() && !o.other_versions)
    return Diagnostic(ErrorCode::Usage, "say what is to go: --limit, --older-than or --other-versions")
        .note("'tessera cache clear' removes everything");
  EvictionRules rules;
  if (!o.limit.empty()) {
    const auto limit = parse_bytes(o.limit);
    if (!limit)
      return Diagnostic(ErrorCode::Usage, "--limit: '" + o.limit + "' is no size; expected is one such as 500M or 2G");
    rules.limit = *limit;
  }
  if (!o.older_than.empty()) {
    TESSERA_ASSIGN(rules.older_than, parse_age(o.older_than));
  }
  Json j{{"folder", directory}};
  if (o.other_versions) {
    rules.other_formats = true;
    // Only versions of compilers are compared: other machines that use this folder may have the libraries whose choices
    // it holds.
    std::set<std::string> current = {kernel_origin(host_compiler_version(HostTarget::detect()), "").creator};
    TESSERA_ASSIGN(const GpuTarget gpu, GpuTarget::parse("sm_90"));
    current.insert(kernel_origin(gpu_compiler_version(gpu), "").creator);
    current.insert(compiler_build());
    rules.drop = [current](const Entry& e) {
      const bool compiled = e.kind == EntryKind::Kernel || e.kind == EntryKind::Plan;
      return compiled && !current.contains(e.origin.creator);
    };
  }
  TESSERA_ASSIGN(const Evicted evicted, evict(directory, rules));
  j["removed"] = evicted.files;
  j["removed_bytes"] = evicted.bytes;
  j["entries"] = evicted.files_left;
  j["bytes"] = evicted.bytes_left;
  return j;
}

Result<Json> clear(const CacheCommand& o) {
  TESSERA_ASSIGN(const std::string directory, folder_of(o));
  EvictionRules rules;
  rules.limit = 0;
  rules.other_formats = true;
  TESSERA_ASSIGN(const Evicted evicted, evict(directory, rules));
  return Json{{"folder", directory},
              {"removed", evicted.files},
              {"removed_bytes", evicted.bytes},
              {"entries", evicted.files_left},
              {"bytes", evicted.bytes_left}};
}

std::string removed_text(const Json& j) {
  return shown(j["folder"].get<std::string>()) + ": " + j["removed"].dump() + " entries of " +
         format_bytes(j["removed_bytes"].get<double>()) + " removed, " + j["entries"].dump() + " of " +
         format_bytes(j["bytes"].get<double>()) + " stay\n";
}

Result<Json> verify(const CacheCommand& o) {
  TESSERA_ASSIGN(const std::string directory, folder_of(o));
  int64_t entries = 0, unfinished = 0, other = 0;
  Json j{{"folder", directory}, {"damaged", Json::array()}};
  TESSERA_TRY(survey_cache(directory, o.repair, [&](const SurveyedFile& f) -> Status {
    entries += f.entry.has_value();
    unfinished += f.is == EntryFile::Temporary;
    other += f.is == EntryFile::OtherFormat;
    if (!f.problem.empty()) j["damaged"].push_back({{"path", f.path}, {"reason", f.problem}});
    return {};
  }));
  j["removed"] = o.repair ? j["damaged"].size() : 0;
  // Readers do without a damaged file of records, and the next writer replaces it. It is text that people may mend.
  if (const RecordCounts records = count_records(directory); !records.problem.empty())
    j["damaged"].push_back({{"path", directory + "/tuned.json"}, {"reason", records.problem}});
  j["entries"] = entries;
  j["unfinished"] = unfinished;
  j["other_format"] = other;
  return j;
}

std::string verify_text(const Json& j) {
  std::string out;
  for (const auto& d : j["damaged"])
    out += shown(d["path"].get<std::string>()) + " " + shown(d["reason"].get<std::string>()) + "\n";
  out += shown(j["folder"].get<std::string>()) + ": " + j["entries"].dump() + " entries are undamaged, " +
         std::to_string(j["damaged"].size()) + " damaged";
  if (j["other_format"] != 0) out += ", " + j["other_format"].dump() + " of another format";
  if (j["unfinished"] != 0) out += ", " + j["unfinished"].dump() + " unfinished";
  if (j["removed"] != 0)
    out += "; " + j["removed"].dump() + " were removed";
  else if (!j["damaged"].empty())
    out += "; --repair removes damaged entries";
  return out + "\n";
}

Result<Json> export_archive(const CacheCommand& o) {
  TESSERA_ASSIGN(const std::string directory, folder_of(o));
  const TunedRecords records(directory, {});
  for (const auto& w : records.warnings()) say_warning(w);
  const std::string text = records.all().empty() ? "" : print_records(records.all());
  TESSERA_ASSIGN(const Exported exported, export_cache(directory, text, o.file));
  return Json{{"folder", directory},
              {"file", o.file},
              {"entries", exported.entries - !text.empty()},
              {"records", records.all().size()},
              {"bytes", exported.bytes},
              {"damaged", exported.damaged}};
}

std::string export_text(const Json& j) {
  std::string out = shown(j["file"].get<std::string>()) + ": " + j["entries"].dump() + " entries and " +
                    j["records"].dump() + " tuned records of " + shown(j["folder"].get<std::string>()) + ", " +
                    format_bytes(j["bytes"].get<double>()) + "\n";
  if (j["damaged"] != 0) out += j["damaged"].dump() + " damaged entries were left out\n";
  return out;
}

Result<Json> import_archive(const CacheCommand& o) {
  TESSERA_ASSIGN(const std::string directory, folder_of(o));
  TESSERA_ASSIGN(const int64_t limit, cache_limit());
  TESSERA_ASSIGN(const Archive archive, Archive::open(o.file));
  std::vector<TunedRecord> more;
  for (const Entry& e : archive.entries())
    if (e.kind == EntryKind::Records) {
      TESSERA_ASSIGN(more, parse_records(e.payload, o.file));
    }
  TESSERA_ASSIGN(const Imported imported, import_cache(directory, archive, limit));
  if (!more.empty()) {
    TunedRecords records(directory, {});
    TESSERA_TRY(records.update([&](std::vector<TunedRecord>& now) { merge_records(now, more); }));
  }
  return Json{{"folder", directory},         {"file", o.file},          {"added", imported.added},
              {"present", imported.present}, {"bytes", imported.bytes}, {"records", more.size()}};
}

std::string import_text(const Json& j) {
  return shown(j["folder"].get<std::string>()) + ": " + j["added"].dump() + " entries of " +
         format_bytes(j["bytes"].get<double>()) + " added, " + j["present"].dump() + " were there; " +
         j["records"].dump() + " tuned records merged\nThey hold machine code that this user's programs will run: " +
         "import only what you, or somebody whose programs you would run, exported\n";
}

using Make = Result<Json> (*)(const CacheCommand&);
using Print = std::string (*)(const Json&);

int run(const CacheCommand& o, Make make, Print print) {
  const std::string json = o.format == "json" ? "-" : o.json;
  auto report = make(o);
  if (!report.ok()) return fail(report.error(), json);
  if (json != "-") say(print(*report));
  const bool damaged = make == verify && (*report)["damaged"].size() > (*report)["removed"].get<size_t>();
  return finish(damaged ? kDiffers : kDone, json, *report);
}

} // namespace

void add_cache(CommandLine& line) {
  Subcommand cache = line.add("cache", "list, check, shrink, copy or clear the cache folder");
  cache.footer("The folder is bounded by TESSERA_CACHE_LIMIT (2Gi where that is not set; 'none' for no limit).\n"
               "Examples:\n"
               "  tessera cache list\n"
               "  tessera cache prune --limit 500M --older-than 30d\n"
               "  tessera cache verify --repair\n"
               "  tessera cache export warm.tsa          # on a machine that compiled\n"
               "  tessera cache import warm.tsa          # on the others, or in a container's image",
               "verify found damaged entries");
  auto add = [&](const std::string& name, const std::string& summary, Make make, Print print) {
    auto options = std::make_shared<CacheCommand>();
    Subcommand sub = cache.add(name, summary);
    sub.option("--cache-dir", options->directory, "the folder (default: $TESSERA_CACHE_DIR, else ~/.cache/tessera)");
    add_json_option(sub, options->json);
    sub.option("--format", options->format, "text, or json on standard output").one_of({"text", "json"});
    sub.action([options, make, print] { return run(*options, make, print); });
    return std::pair(std::move(sub), options);
  };
  add("list", "kinds of entries: their number, size, version, device and age", list, list_text);
  {
    auto [sub, options] =
        add("prune", "remove entries that are too many, unused or of other versions", prune, removed_text);
    sub.option("--limit", options->limit, "keep at most so many bytes (500M, 2G), those that were used last");
    sub.option("--older-than", options->older_than, "remove what was not used for so long (30d, 12h)");
    sub.flag("--other-versions", options->other_versions,
             "remove kernels of other versions of the compiler, and entries of other formats");
  }
  {
    auto [sub, options] = add("verify", "check every entry", verify, verify_text);
    sub.flag("--repair", options->repair, "remove what is damaged; it is made again when it is needed");
  }
  {
    auto [sub, options] = add("export", "write all entries and tuned records to one file", export_archive, export_text);
    sub.option("FILE", options->file, "the archive").required().writes_file();
  }
  {
    auto [sub, options] = add("import", "add the entries and records of such a file; its machine code will be run",
                              import_archive, import_text);
    sub.option("FILE", options->file, "an archive that you trust as you trust a program").required();
  }
  add("clear", "remove all entries; tuned records stay ('tessera tune --clear')", clear, removed_text);
}

} // namespace tessera::command
