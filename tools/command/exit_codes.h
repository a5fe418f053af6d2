// The exit codes of the command, for every subcommand. Help and README show this table; an error's code has its exit
// code in the table of base/diagnostic.cpp.
#pragma once
#include <array>
#include <string>
#include <string_view>

namespace tessera::command {

enum ExitCode : int { kDone = 0, kDiffers = 1, kUsage = 2, kUnsupported = 3, kBadInput = 4, kFailed = 5 };

struct ExitCodeInfo {
  ExitCode code;
  std::string_view meaning;
};
inline constexpr std::array<ExitCodeInfo, 6> kExitCodes = {{
    {kDone, "done"},
    {kDiffers, "results differ"},
    {kUsage, "wrong use"},
    {kUnsupported, "not supported"},
    {kBadInput, "bad model, input or file"},
    {kFailed, "failed while running, or an output cannot be written"},
}};

// The table as a sentence. `differs`: what code 1 means for a subcommand; "": it has none.
[[nodiscard]] inline std::string exit_codes_text(std::string_view differs) {
  std::string text = "Exit codes:";
  for (const ExitCodeInfo& row : kExitCodes) {
    if (row.code == kDiffers && differs.empty()) continue;
    text += (row.code == kDone ? " " : "; ") + std::to_string(row.code) + " ";
    text += row.code == kDiffers ? differs : row.meaning;
  }
  return text + ".\n";
}

} // namespace tessera::command
