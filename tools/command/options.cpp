#include "options.h"
#include <CLI/CLI.hpp>

namespace tessera::command {

Option& Option::required(bool yes) { return option_->required(yes), *this; }
Option& Option::show_default() { return option_->capture_default_str(), *this; }
Option& Option::one_at_a_time() { return option_->allow_extra_args(false), *this; }
Option& Option::one_of(std::initializer_list<const char*> values) {
  return option_->check(CLI::IsMember(std::vector<std::string>(values.begin(), values.end()))), *this;
}
Option& Option::one_of(std::initializer_list<int> values) {
  return option_->check(CLI::IsMember(std::vector<int>(values))), *this;
}
Option& Option::range(int low, int high) { return option_->check(CLI::Range(low, high)), *this; }
Option& Option::range(double low, double high) { return option_->check(CLI::Range(low, high)), *this; }
Option& Option::not_negative() { return option_->check(CLI::NonNegativeNumber), *this; }
Option& Option::positive() { return option_->check(CLI::PositiveNumber), *this; }
Option& Option::excludes(const Option& other) { return option_->excludes(other.option_), *this; }

template <class T>
Option Subcommand::option(const std::string& names, T& to, const std::string& help) {
  return Option(app_->add_option(names, to, help));
}
template Option Subcommand::option(const std::string&, std::string&, const std::string&);
template Option Subcommand::option(const std::string&, std::vector<std::string>&, const std::string&);
template Option Subcommand::option(const std::string&, int&, const std::string&);
template Option Subcommand::option(const std::string&, uint64_t&, const std::string&);
template Option Subcommand::option(const std::string&, double&, const std::string&);
template Option Subcommand::option(const std::string&, std::optional<double>&, const std::string&);

void Subcommand::flag(const std::string& names, bool& to, const std::string& help) { app_->add_flag(names, to, help); }
Option Subcommand::declared(const std::string& name) { return Option(app_->get_option(name)); }
void Subcommand::footer(const std::string& text) { app_->footer(text); }

void Subcommand::action(Action action) {
  app_->callback([&chosen = chosen_, action = std::move(action)] { chosen = action; });
}

CommandLine::CommandLine(const std::string& name, const std::string& description, const std::string& version,
                         const std::string& footer)
    : app_(std::make_unique<CLI::App>(description, name)) {
  app_->footer(footer);
  app_->set_version_flag("--version", version);
  app_->require_subcommand(1);
  app_->set_help_all_flag("--help-all", "help of all subcommands");
}
CommandLine::~CommandLine() = default;

Subcommand CommandLine::add(const std::string& name, const std::string& summary) {
  return Subcommand(app_->add_subcommand(name, summary), chosen_);
}

int CommandLine::run(int argc, char** argv, int usage_error) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app_->exit(e) == 0 ? 0 : usage_error; // prints help or the error
  }
  return chosen_();
}

} // namespace tessera::command
