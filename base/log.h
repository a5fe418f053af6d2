// Channels of the log: TESSERA_LOG=warnings,fusion,guards,recompiles,output_code,passes,cache,memory,perf (or "all"). Written to
// standard error through spdlog, which is private to log.cpp, and fit to be shown (text.h): the second and later lines
// of a text begin with "  | ". A disabled channel costs one relaxed load.
#pragma once
#include <string>
#include <string_view>

namespace tessera {

// Every channel; log.cpp's table gives its name and one line of help.
enum class LogChannel { Warnings, Fusion, Guards, Recompiles, OutputCode, Passes, Cache, Memory, Perf, Count_ };

[[nodiscard]] bool log_enabled(LogChannel channel);
void log_write(LogChannel channel, const std::string& text);
// Replaces the sink, for embedders: called with channel name and text, from any thread. nullptr restores stderr.
using LogSink = void (*)(void* user, std::string_view channel, std::string_view text);
void set_log_sink(LogSink sink, void* user);
// Enables channels as the environment variable would ("fusion,guards"); returns the first unknown name or "".
std::string set_log_channels(std::string_view names);
// How much a channel says: warnings of models, caches and files; what a process does seldom; everything else. The name is
// one that a sink is given.
enum class LogLevel { Warning = 1, Info = 2, Debug = 3 };
[[nodiscard]] LogLevel log_level(std::string_view channel);
// Enables the channels of this level and of those before it.
void set_log_level(LogLevel most);
// Enables what TESSERA_LOG says.
void reset_log_channels();
// TESSERA_DUMP_DIR: when set, write_dump("003-cse.graph", text) puts a file there; otherwise nothing happens.
[[nodiscard]] bool dump_enabled();
void write_dump(const std::string& file_name, std::string_view text);

} // namespace tessera

#define TESSERA_LOGF(channel, text)                                                                                    \
  do {                                                                                                                 \
    if (::tessera::log_enabled(channel)) [[unlikely]]                                                                  \
      ::tessera::log_write(channel, (text));                                                                           \
  } while (0)
