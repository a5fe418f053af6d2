#include "codegen/compilation/contain.h"
#include "base/environment.h"
#include "base/guarded.h"
#include "base/log.h"
#include "runtime/cache/cache.h"
#include <algorithm>
#include <filesystem>

namespace tessera {
namespace {

constexpr size_t kMaxTexts = 16;              // that the cache folder keeps
constexpr size_t kMaxBytes = size_t{1} << 20; // of one

// Removes the oldest texts beyond the bound.
void bound_texts(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code ec;
  std::vector<std::pair<fs::file_time_type, fs::path>> texts;
  for (auto it = fs::directory_iterator(folder, ec); !ec && it != fs::directory_iterator(); it.increment(ec))
    if (it->path().extension() == ".txt") texts.emplace_back(it->last_write_time(ec), it->path());
  if (texts.size() <= kMaxTexts) return;
  std::sort(texts.begin(), texts.end());
  for (size_t i = 0; i + kMaxTexts < texts.size(); ++i) fs::remove(texts[i].second, ec);
}

// The path at which the text was saved; empty: nowhere.
std::string save(const CompileOptions& options, std::string text) {
  if (text.size() > kMaxBytes) {
    text.resize(kMaxBytes);
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

} // namespace tessera
