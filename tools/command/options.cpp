#include "options.h"
#include "graph/support/similar.h"
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <utility>

namespace tessera::command {

Option& Option::required(bool yes) { return option_->required(yes), *this; }
Option& Option::show_default() { return option_->capture_default_str(), *this; }
Option& Option::one_at_a_time() { return option_->allow_extra_args(false), *this; }
Option& Option::pairs() {
  option_->type_size(2)->expected(1, CLI::detail::expected_max_vector_size)->allow_extra_args(false);
  return *this;
}
Option& Option::one_of(std::initializer_list<const char*> values) {
  return option_->check(CLI::IsMember(std::vector<std::string>(values.begin(), values.end()))), *this;
}
Option& Option::one_of(std::initializer_list<int> values) {
  return option_->check(CLI::IsMember(std::vector<int>(values))), *this;
}
Option& Option::range(int low, int high) { return option_->check(CLI::Range(low, high)), *this; }
Option& Option::range(double low, double high) { return option_->check(CLI::Range(low, high)), *this; }
namespace {
// CLI11's own checks of a bound print the largest double as the other one.
CLI::Option* at_least(CLI::Option* option, bool (*holds)(double), const char* wanted) {
  return option->check([=](const std::string& text) {
    double v = 0;
    return CLI::detail::lexical_cast(text, v) && holds(v) ? std::string() : "'" + text + "' is no number " + wanted;
  });
}
} // namespace
Option& Option::not_negative() {
  return at_least(
             option_, [](double v) { return v >= 0; }, "from 0"),
         *this;
}
Option& Option::positive() {
  return at_least(
             option_, [](double v) { return v > 0; }, "above 0"),
         *this;
}
Option& Option::excludes(const Option& other) { return option_->excludes(other.option_), *this; }
Option& Option::only_compiles(std::vector<std::string>& given) {
  option_->each([&given, name = option_->get_name()](const std::string&) {
    if (std::find(given.begin(), given.end(), name) == given.end()) given.push_back(name);
  });
  return *this;
}

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

Option Subcommand::flag(const std::string& names, bool& to, const std::string& help) {
  return Option(app_->add_flag(names, to, help));
}
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

namespace {

// What is wrong with arguments that CLI11 refused, in the words and the form of every other error.
Diagnostic refused(const CLI::App& app, const CLI::ParseError& error) {
  const auto chosen = app.get_subcommands();
  const CLI::App& at = chosen.empty() ? app : *chosen.front();
  std::vector<std::string> known;
  std::string unknown;
  for (const std::string& word : app.remaining(true))
    if (unknown.empty() && word != "--") unknown = word;
  const bool option = unknown.starts_with('-');
  Diagnostic d(ErrorCode::Usage, "");
  if (unknown.empty()) {
    d.message = error.what();
    if (!d.message.empty() && !d.message.starts_with("MODEL"))
      d.message[0] = static_cast<char>(std::tolower(d.message[0]));
  } else if (option) {
    unknown = unknown.substr(0, unknown.find('='));
    d.message = "there is no option '" + unknown + "'" + (chosen.empty() ? "" : " of '" + at.get_name() + "'");
    for (const CLI::Option* o : at.get_options())
      for (const auto& name : o->get_lnames()) known.push_back("--" + name);
  } else if (chosen.empty()) {
    d.message = "there is no subcommand '" + unknown + "'";
    for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
      known.push_back(sub->get_name());
  } else {
    d.message = "'" + at.get_name() + "' has no use for the argument '" + unknown + "'";
  }
  if (const auto close = similar(unknown, known); !close.empty()) d.note("did you mean '" + close + "'?");
  return std::move(d).note("'tessera" + (chosen.empty() ? "" : " " + at.get_name()) + " --help' has the " +
                           (chosen.empty() ? "subcommands" : "options"));
}

} // namespace

int CommandLine::run(int argc, char** argv, const std::function<int(const Diagnostic&)>& refuse) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::Success& e) {
    return app_->exit(e); // prints help or the version
  } catch (const CLI::ParseError& e) {
    return refuse(refused(*app_, e));
  }
  return chosen_();
}

} // namespace tessera::command
