#include "base/environment.h"
#include "base/check.h"
#include "base/log.h"
#include "base/similar.h"
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <unistd.h>

namespace tessera {
namespace {

using View = std::string_view;

bool any(View) { return true; }
bool flag(View v) { return v == "0" || v == "1"; }

constexpr EnvironmentVariable kVariables[] = {
    {"TESSERA_ASSEMBLER", "nvjitlink, ptxas, the path of a ptxas, or none", "what assembles PTX",
     [](View v) { return v == "nvjitlink" || v == "ptxas" || v == "none" || v.find('/') != View::npos; }},
    {"TESSERA_CACHE_DIR", "a folder", "what is compiled is kept there", any},
    {"TESSERA_CACHE_LIMIT", "a size such as 500M or 2Gi, or none", "bound of the cache folder; not set: 2Gi",
     [](View v) { return v == "none" || parse_bytes(v).has_value(); }},
    {"TESSERA_CHECKS", "abort, passes or both, separated by a comma",
     "abort: a failed internal check ends the process; passes: the graph is verified behind each pass",
     [](View v) { return v == "abort" || v == "passes" || v == "abort,passes" || v == "passes,abort"; }},
    {"TESSERA_CUDA_DEPENDENT_LAUNCH", "0 or 1", "0: a kernel starts once the one before it has ended", flag},
    {"TESSERA_CUDA_GRAPHS", "0 or 1", "0: launches are not recorded as CUDA graphs", flag},
    {"TESSERA_CUDA_PATH", "folders, separated by colons", "where the driver and NVIDIA's libraries are looked for",
     any},
    {"TESSERA_CUDA_SYNC", "0 or 1", "1: waits behind each launch, so that an error names its kernel", flag},
    {"TESSERA_CUDA_WITHOUT", "names of libraries, separated by commas", "libraries that are not loaded", any},
    {"TESSERA_CUDNN_COMPILE", "0 or 1", "1: cuDNN may compile engines", flag},
    {"TESSERA_CUDNN_WAIT", "0 or 1", "1: a call waits until cuDNN's engines are chosen", flag},
    {"TESSERA_DISABLE_PASSES", "names of passes, separated by commas", "passes that do not run", any},
    {"TESSERA_DUMP_DIR", "a folder", "the texts of all stages are written there", any},
    {"TESSERA_GEMM_POINTERS", "0 or 1", "0: no batched products by lists of pointers", flag},
    {"TESSERA_HOST_ISA", "sse, avx2 or avx512", "most that code for the host uses",
     [](View v) { return v == "sse" || v == "avx2" || v == "avx512"; }},
    {"TESSERA_INJECT_FAILURE", "STAGE or STAGE/PART", "a stage of compiles that fails, for tests", any},
    {"TESSERA_LOG", "channels of the log, separated by commas, or all", "what is logged", any},
    {"TESSERA_NVTX", "0 or 1", "1: ranges for NVIDIA's profilers", flag},
    {"TESSERA_TARGET", "a target of calibrate --list, or a file", "figures of the device", any},
    {"TESSERA_TUNE_SHARE", "a number from 0 to 1", "share of the time that tuning in the background may take",
     [](View v) {
       double share = -1;
       const auto [end, error] = std::from_chars(v.data(), v.data() + v.size(), share);
       return error == std::errc() && end == v.data() + v.size() && share >= 0 && share <= 1;
     }},
};

} // namespace

std::span<const EnvironmentVariable> environment_variables() { return kVariables; }

const char* environment(View name) {
  TESSERA_CHECK(std::any_of(std::begin(kVariables), std::end(kVariables), [&](auto& v) { return v.name == name; }),
                "a variable of the table");
  const char* value = std::getenv(name.data());
  return value && *value ? value : nullptr;
}

bool environment_flag(View name, bool otherwise) {
  const char* value = environment(name);
  return value ? View(value) != "0" : otherwise;
}

bool environment_lists(View name, View word) {
  const char* value = environment(name);
  for (View rest = value ? value : ""; !rest.empty();) {
    const size_t comma = rest.find(',');
    if (rest.substr(0, comma) == word) return true;
    rest.remove_prefix(comma == View::npos ? rest.size() : comma + 1);
  }
  return false;
}

Status check_environment() {
  for (const EnvironmentVariable& v : kVariables)
    if (const char* value = environment(v.name); value && !v.valid(value))
      return Diagnostic(ErrorCode::Usage, "the environment variable " + std::string(v.name) + " is '" +
                                              std::string(value) + "'; expected is " + std::string(v.expected));
  [[maybe_unused]] static const bool warned = [] {
    constexpr View kPrefix = "TESSERA_";
    std::vector<std::string> known;
    for (const EnvironmentVariable& v : kVariables) known.emplace_back(v.name.substr(kPrefix.size()));
    for (char** entry = environ; entry && *entry; ++entry) {
      const View text = *entry;
      if (!text.starts_with(kPrefix)) continue;
      const std::string name(text.substr(kPrefix.size(), text.find('=') - kPrefix.size()));
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      if (const std::string meant = similar(name, known); !meant.empty())
        log_write(LogChannel::Warnings,
                  "no environment variable is called TESSERA_" + name + "; did you mean TESSERA_" + meant + "?");
    }
    return true;
  }();
  return {};
}

std::optional<int64_t> parse_bytes(View text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !(number >= 0)) return std::nullopt;
  View unit = text.substr(static_cast<size_t>(end - text.data()));
  if (unit.ends_with('B') || unit.ends_with('b')) unit.remove_suffix(1);
  const bool binary = unit.size() == 2 && unit[1] == 'i';
  if (binary) unit.remove_suffix(1);
  if (unit.size() > 1) return std::nullopt;
  double scale = 1;
  if (!unit.empty()) {
    const size_t power = View("KMGT").find(unit[0] == 'k' ? 'K' : unit[0]);
    if (power == View::npos) return std::nullopt;
    scale = std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(power + 1));
  }
  constexpr double kMax = 9e18; // below the greatest int64_t
  return number * scale <= kMax ? std::optional(static_cast<int64_t>(number * scale)) : std::nullopt;
}

} // namespace tessera
