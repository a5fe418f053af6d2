// The functions of the C interface that concern the process: version and log.
#include "api/c/context.h"
#include "api/c/struct.h"
#include "base/log.h"
#include "base/text.h"
#include <mutex>

using namespace tessera;

namespace {

// The function that the log goes to. `changing` orders the changes; the log's own lock orders them with its use.
struct Log {
  std::mutex changing;
  std::string channels;
  tessera_logger logger{}; // write is null: none
  static void write(void* self, std::string_view channel, std::string_view text) {
    const tessera_logger& to = static_cast<Log*>(self)->logger;
    to.write(to.context, static_cast<int32_t>(log_level(channel)), std::string(channel).c_str(),
             std::string(text).c_str());
  }
  // Empty, or the first channel that there is not.
  std::string apply() {
    if (logger.write == nullptr) {
      set_log_sink(nullptr, nullptr);
      reset_log_channels();
      return {};
    }
    if (logger.channels == nullptr)
      set_log_level(static_cast<LogLevel>(logger.level));
    else if (std::string unknown = set_log_channels(channels); !unknown.empty())
      return unknown;
    set_log_sink(write, this);
    return {};
  }
};
// Never destroyed, as the log.
Log& process_log() {
  static Log* const instance = new Log;
  return *instance;
}

} // namespace

const tessera_version_numbers* tessera_version(void) {
  static constexpr tessera_version_numbers numbers = {TESSERA_VERSION_NUMBERS, TESSERA_ABI_VERSION};
  return &numbers;
}

const char* tessera_set_logger(const tessera_logger* logger) {
  return recorded("setting the logger", [&]() -> Status {
    tessera_logger taken{};
    if (logger != nullptr) {
      TESSERA_ASSIGN(taken, take_struct("tessera_logger", *logger, TESSERA_BYTES_WITH(tessera_logger, context)));
      if (taken.write == nullptr) return usage("tessera_logger: the function `write` is null");
      if (taken.level < TESSERA_LOG_WARNING || taken.level > TESSERA_LOG_DEBUG)
        return usage("tessera_logger: the level is " + std::to_string(taken.level) + ", expected one from " +
                     std::to_string(TESSERA_LOG_WARNING) + " to " + std::to_string(TESSERA_LOG_DEBUG));
    }
    Log& log = process_log();
    std::lock_guard lock(log.changing);
    std::string channels = taken.channels ? taken.channels : "";
    set_log_sink(nullptr, nullptr); // nothing is in the function before from here on
    std::swap(log.channels, channels);
    std::swap(log.logger, taken);
    const std::string unknown = log.apply();
    if (unknown.empty()) return {};
    std::swap(log.channels, channels);
    std::swap(log.logger, taken);
    (void)log.apply();
    return usage("tessera_logger: there is no channel " + quote(unknown));
  });
}
