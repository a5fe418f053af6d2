// The command line as the subcommands declare it: a thin layer over CLI11, whose headers take longer to compile than
// any subcommand and are private to options.cpp.
#pragma once
#include "base/diagnostic.h"
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
} // namespace CLI

namespace tessera::command {

// A subcommand's work, run after the command line was read; returns the exit code.
using Action = std::function<int()>;

class Option {
public:
  explicit Option(CLI::Option* option) : option_(option) {}
  Option& required(bool yes = true);
  Option& show_default();
  Option& show_default(const std::string& text);
  Option& one_at_a_time(); // repeatable, one value each time: what follows the value is no other one
  Option& pairs();         // repeatable, two values each time
  Option& one_of(const std::vector<std::string>& values);
  Option& one_of(std::initializer_list<int> values);
  Option& range(int low, int high);
  Option& range(int64_t low, int64_t high);
  Option& range(double low, double high);
  Option& not_negative();
  Option& positive();
  Option& excludes(const Option& other);
  // Its value names what the command is to write: CommandLine::run() refuses what cannot be written, before any work is
  // done.
  Option& writes_file();
  Option& writes_folder();
  Option& only_compiles(std::vector<std::string>& given);     // its name is added to `given` when it is used
  Option& each(std::function<void(const std::string&)> body); // called with each value; "true" of a flag

private:
  CLI::Option* option_;
};

class Subcommand {
public:
  explicit Subcommand(CLI::App* app, Action& chosen) : app_(app), chosen_(chosen) {}
  // Puts the value of an option into `to`, which must outlive the parsing. T: string, vector of strings, int, uint64_t,
  // double, optional double.
  template <class T>
  Option option(const std::string& names, T& to, const std::string& help);
  Option flag(const std::string& names, bool& to, const std::string& help);
  [[nodiscard]] Option declared(const std::string& name); // one of this subcommand's
  // Help lists the options declared from here on under this heading, behind the subcommand's own; "": its own again.
  void group(const std::string& heading);
  // Sets the text that help prints behind the options, under the exit codes. `differs`: the meaning of exit code 1; "":
  // it has none.
  void footer(const std::string& text, const std::string& differs = "");
  // A subcommand of this one, which then does nothing by itself and needs one.
  Subcommand add(const std::string& name, const std::string& summary);
  void action(Action action);

private:
  [[nodiscard]] Option in_group(CLI::Option* option) const;

  CLI::App* app_;
  Action& chosen_;
  std::string heading_;
};

// The path of an error is an output: one that writes_file() or writes_folder() declared, or standard output.
inline constexpr const char* kStandardOutput = "standard output";
[[nodiscard]] bool is_output(const std::string& path);

class CommandLine {
public:
  CommandLine(const std::string& name, const std::string& description, const std::string& version,
              const std::string& footer);
  ~CommandLine();
  Subcommand add(const std::string& name, const std::string& summary);
  // Reads the arguments and runs the chosen subcommand's action; its exit code, or what `refuse` returns for wrong
  // arguments and outputs.
  int run(int argc, char** argv, const std::function<int(const Diagnostic&)>& refuse);

private:
  std::unique_ptr<CLI::App> app_;
  Action chosen_;
};

} // namespace tessera::command
