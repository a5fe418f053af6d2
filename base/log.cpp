#include "base/log.h"
#include "base/check.h"
#include "base/file.h"
#include "base/text.h"
#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace tessera {
namespace {
struct ChannelInfo {
  LogChannel channel;
  LogLevel level;
  std::string_view name, help;
};
constexpr std::array kChannels = {
    ChannelInfo{LogChannel::Warnings, LogLevel::Warning, "warnings",
                "what a model says and is not so, caches that cannot be used"},
    ChannelInfo{LogChannel::Fusion, LogLevel::Debug, "fusion", "what was fused, what was not, and why"},
    ChannelInfo{LogChannel::Guards, LogLevel::Debug, "guards", "guards as they are added and as they are checked"},
    ChannelInfo{LogChannel::Recompiles, LogLevel::Info, "recompiles", "guard misses, and what they compiled or ran"},
    ChannelInfo{LogChannel::OutputCode, LogLevel::Debug, "output_code", "tile kernels and the LLVM IR made of them"},
    ChannelInfo{LogChannel::Passes, LogLevel::Debug, "passes", "graph passes: what changed, time"},
    ChannelInfo{LogChannel::Cache, LogLevel::Debug, "cache", "hits, misses and writes of the kernel cache"},
    ChannelInfo{LogChannel::Memory, LogLevel::Debug, "memory", "the arena's plan, allocations"},
    ChannelInfo{LogChannel::Perf, LogLevel::Debug, "perf", "times of compile stages and of steps"},
};
static_assert(kChannels.size() == static_cast<size_t>(LogChannel::Count_));

struct Logger {
  std::atomic<uint32_t> enabled{0};
  std::mutex mutex; // of the sink
  LogSink sink = nullptr;
  void* user = nullptr;
  spdlog::logger stderr_logger{"tessera", std::make_shared<spdlog::sinks::stderr_sink_mt>()};
  std::string dump_dir;
  std::string unknown; // of the environment variable

  Logger() {
    stderr_logger.set_pattern("[%H:%M:%S.%e] %v");
    stderr_logger.set_level(spdlog::level::trace);
    if (const char* dir = std::getenv("TESSERA_DUMP_DIR")) dump_dir = dir;
    if (const char* names = std::getenv("TESSERA_LOG")) unknown = enable(names);
    if (!unknown.empty()) {
      std::string known;
      for (const ChannelInfo& c : kChannels) known += (known.empty() ? "" : ", ") + std::string(c.name);
      stderr_logger.warn("TESSERA_LOG: unknown channel '{}'; channels are {}, all", shown(unknown), known);
    }
  }

  std::string enable(std::string_view names) {
    uint32_t mask = 0;
    std::string bad;
    while (!names.empty()) {
      size_t comma = names.find(',');
      std::string_view one = names.substr(0, comma);
      names.remove_prefix(comma == std::string_view::npos ? names.size() : comma + 1);
      while (!one.empty() && one.front() == ' ') one.remove_prefix(1);
      while (!one.empty() && one.back() == ' ') one.remove_suffix(1);
      if (one.empty()) continue;
      uint32_t bit = one == "all" ? (1u << kChannels.size()) - 1 : 0;
      for (const ChannelInfo& c : kChannels)
        if (c.name == one) bit = 1u << static_cast<unsigned>(c.channel);
      if (bit == 0 && bad.empty()) bad = one;
      mask |= bit;
    }
    enabled.store(mask, std::memory_order_relaxed);
    return bad;
  }
};

// A text of several lines, each after the first marked: no line of it passes for a message of its own.
std::string continued(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    out += text[i];
    if (text[i] == '\n' && i + 1 < text.size()) out += "  | ";
  }
  return out;
}

// Never destroyed: threads may still log while the process ends.
Logger& logger() {
  static Logger* const instance = new Logger;
  return *instance;
}
} // namespace

bool log_enabled(LogChannel channel) {
  return (logger().enabled.load(std::memory_order_relaxed) >> static_cast<unsigned>(channel)) & 1;
}

void log_write(LogChannel channel, const std::string& text) {
  Logger& log = logger();
  std::string_view name = kChannels[static_cast<size_t>(channel)].name;
  const std::string safe = continued(shown_lines(text));
  std::lock_guard lock(log.mutex);
  if (log.sink)
    log.sink(log.user, name, safe);
  else
    log.stderr_logger.info("{}: {}", name, safe);
}

void set_log_sink(LogSink sink, void* user) {
  Logger& log = logger();
  std::lock_guard lock(log.mutex);
  log.sink = sink;
  log.user = user;
}

std::string set_log_channels(std::string_view names) { return logger().enable(names); }

LogLevel log_level(std::string_view channel) {
  for (const ChannelInfo& c : kChannels)
    if (c.name == channel) return c.level;
  return LogLevel::Debug;
}

void set_log_level(LogLevel most) {
  uint32_t mask = 0;
  for (const ChannelInfo& c : kChannels)
    if (c.level <= most) mask |= 1u << static_cast<unsigned>(c.channel);
  logger().enabled.store(mask, std::memory_order_relaxed);
}

void reset_log_channels() {
  const char* names = std::getenv("TESSERA_LOG");
  (void)logger().enable(names ? names : ""); // that a name is unknown has been said
}

bool dump_enabled() { return !logger().dump_dir.empty(); }

void write_dump(const std::string& file_name, std::string_view text) {
  Logger& log = logger();
  if (log.dump_dir.empty()) return;
  std::string safe = shown(file_name, 200);
  for (char& c : safe)
    if (c == '/' || c == '\\') c = '_';
  std::filesystem::path path = std::filesystem::path(log.dump_dir) / safe;
  std::error_code ec;
  std::filesystem::create_directories(log.dump_dir, ec);
  auto written = write_file(path.string(), {text});
  // A dump is a help for debugging: that it failed is said, and the work goes on.
  if (!written.ok()) log.stderr_logger.warn("TESSERA_DUMP_DIR: {}", written.error().str());
}

} // namespace tessera
