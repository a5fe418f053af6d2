// The environment variables that Tessera reads, in one table. An empty variable is as one that is not set.
#pragma once
#include "base/result.h"
#include <optional>
#include <span>

namespace tessera {

struct EnvironmentVariable {
  std::string_view name;
  std::string_view expected; // what it may be, for people: "0 or 1"
  std::string_view help;     // what it does
  bool (*valid)(std::string_view value);
};
// By name.
[[nodiscard]] std::span<const EnvironmentVariable> environment_variables();

// The value of a variable of the table, null where it is not set.
[[nodiscard]] const char* environment(std::string_view name);
[[nodiscard]] bool environment_flag(std::string_view name, bool otherwise);
// Whether a variable is a list, separated by commas, that has this word.
[[nodiscard]] bool environment_lists(std::string_view name, std::string_view word);

// Error Usage: a variable is set to what it may not be. One whose name is that of a variable but for a letter or two is
// warned of, once in the process.
[[nodiscard]] Status check_environment();

// "1G", "512M", "64k", "1.5GB", "2GiB", "4096": a number of bytes; k, M, G, T are powers of 1000, Ki ... Ti of 1024.
[[nodiscard]] std::optional<int64_t> parse_bytes(std::string_view text);

} // namespace tessera
