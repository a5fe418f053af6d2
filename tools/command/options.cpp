#include "options.h"
#include "base/file.h"
#include "base/similar.h"
#include "exit_codes.h"
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <unistd.h>
#include <utility>

namespace tessera::command {

Option& Option::required(bool yes) { return option_->required(yes), *this; }
Option& Option::show_default() { return option_->capture_default_str(), *this; }
Option& Option::show_default(const std::string& text) { return option_->default_str(text), *this; }
Option& Option::one_at_a_time() { return option_->allow_extra_args(false), *this; }
Option& Option::pairs() {
  option_->type_size(2)->expected(1, CLI::detail::expected_max_vector_size)->allow_extra_args(false);
  return *this;
}

namespace {

// Checks of a value return an error text: the option's name goes in front, and the part after a newline is a note.
std::string none_of(const std::string& text, const std::vector<std::string>& known) {
  std::string all;
  for (const auto& k : known) all += (all.empty() ? "" : ", ") + k;
  const std::string close = similar(text, known);
  return "'" + text + "' is none of " + all + (close.empty() ? "" : "\ndid you mean '" + close + "'?");
}

CLI::Option* member(CLI::Option* option, const std::vector<std::string>& known) {
  std::string all;
  for (const auto& k : known) all += (all.empty() ? "" : ",") + k;
  return option->check(CLI::Validator(
      [known](std::string& text) {
        return std::find(known.begin(), known.end(), text) != known.end() ? std::string() : none_of(text, known);
      },
      "{" + all + "}"));
}

// Whether the text is a number that holds; "" where it is.
CLI::Option* number(CLI::Option* option, const std::function<bool(double)>& holds, const std::string& wanted,
                    const std::string& described = "") {
  return option->check(CLI::Validator(
      [=](std::string& text) {
        double v = 0;
        return CLI::detail::lexical_cast(text, v) && holds(v) ? std::string() : "'" + text + "' is no " + wanted;
      },
      described));
}

template <class T>
std::string short_text(T v) {
  std::string out = std::to_string(v);
  if (out.find('.') != std::string::npos) {
    while (out.back() == '0') out.pop_back();
    if (out.back() == '.') out.pop_back();
  }
  return out;
}

template <class T>
CLI::Option* between(CLI::Option* option, T low, T high) {
  return number(
      option, [=](double v) { return v >= low && v <= high; },
      "number from " + short_text(low) + " to " + short_text(high), short_text(low) + "-" + short_text(high));
}

} // namespace

Option& Option::one_of(const std::vector<std::string>& values) { return member(option_, values), *this; }
Option& Option::one_of(std::initializer_list<int> values) {
  std::vector<std::string> known;
  for (int v : values) known.push_back(std::to_string(v));
  return member(option_, known), *this;
}
Option& Option::range(int low, int high) { return between(option_, low, high), *this; }
Option& Option::range(int64_t low, int64_t high) { return between(option_, low, high), *this; }
Option& Option::range(double low, double high) { return between(option_, low, high), *this; }
Option& Option::not_negative() {
  return number(
             option_, [](double v) { return v >= 0; }, "number from 0"),
         *this;
}
Option& Option::positive() {
  return number(
             option_, [](double v) { return v > 0; }, "number above 0"),
         *this;
}
Option& Option::excludes(const Option& other) { return option_->excludes(other.option_), *this; }

namespace {

// Why nothing can be written there; "": something can. A file is made and goes again: permissions do not say all.
std::string unwritable(const std::filesystem::path& path) {
  std::error_code error;
  const auto kind = std::filesystem::status(path, error).type();
  if (kind == std::filesystem::file_type::directory) return "it is a folder";
  if (kind != std::filesystem::file_type::not_found)
    return ::access(path.c_str(), W_OK) == 0 ? "" : std::strerror(errno);
  auto made = NewFile::create(path.string());
  return made.ok() ? "" : made.error().message;
}

std::string unwritable_folder(std::filesystem::path folder) {
  std::error_code error;
  folder = std::filesystem::absolute(folder, error);
  while (!std::filesystem::exists(folder, error) && folder.has_relative_path()) folder = folder.parent_path();
  if (!std::filesystem::is_directory(folder, error)) return "'" + folder.string() + "' is no folder";
  return unwritable(folder / kTemporaryPrefix);
}

struct Output {
  std::string option, path;
  bool folder = false;
};
// The outputs of the command line that was read.
std::vector<Output>& outputs() {
  static std::vector<Output> all;
  return all;
}

void declare_output(CLI::Option* option, bool folder) {
  option->each([name = option->get_name(), folder](const std::string& path) {
    if (!path.empty() && path != "-") outputs().push_back({name, path, folder});
  });
}

Status check_outputs() {
  for (const Output& o : outputs()) {
    const std::string why = o.folder ? unwritable_folder(o.path) : unwritable(o.path);
    if (why.empty()) continue;
    return Diagnostic(ErrorCode::FileError, Location{.file = o.path}, o.option + " cannot be written: " + why)
        .note("nothing was done yet");
  }
  return {};
}

} // namespace

bool is_output(const std::string& path) {
  return path == kStandardOutput || std::any_of(outputs().begin(), outputs().end(), [&](const Output& o) {
           return path == o.path || (o.folder && path.starts_with(o.path + "/"));
         });
}

Option& Option::writes_file() { return declare_output(option_, false), *this; }
Option& Option::writes_folder() { return declare_output(option_, true), *this; }
Option& Option::each(std::function<void(const std::string&)> body) { return option_->each(std::move(body)), *this; }
Option& Option::only_compiles(std::vector<std::string>& given) {
  option_->each([&given, name = option_->get_name()](const std::string&) {
    if (std::find(given.begin(), given.end(), name) == given.end()) given.push_back(name);
  });
  return *this;
}

Option Subcommand::in_group(CLI::Option* option) const {
  if (!heading_.empty()) option->group(heading_);
  return Option(option);
}
void Subcommand::group(const std::string& heading) { heading_ = heading; }

template <class T>
Option Subcommand::option(const std::string& names, T& to, const std::string& help) {
  return in_group(app_->add_option(names, to, help));
}
template Option Subcommand::option(const std::string&, std::string&, const std::string&);
template Option Subcommand::option(const std::string&, std::vector<std::string>&, const std::string&);
template Option Subcommand::option(const std::string&, int&, const std::string&);
template Option Subcommand::option(const std::string&, uint64_t&, const std::string&);
template Option Subcommand::option(const std::string&, double&, const std::string&);
template Option Subcommand::option(const std::string&, std::optional<double>&, const std::string&);

Option Subcommand::flag(const std::string& names, bool& to, const std::string& help) {
  return in_group(app_->add_flag(names, to, help));
}
Option Subcommand::declared(const std::string& name) { return Option(app_->get_option(name)); }
void Subcommand::footer(const std::string& text, const std::string& differs) {
  app_->footer(exit_codes_text(differs) + text);
}

Subcommand Subcommand::add(const std::string& name, const std::string& summary) {
  app_->require_subcommand(1);
  return Subcommand(app_->add_subcommand(name, summary), chosen_);
}

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

// How many values an option needs, by CLI11's "--why-not: 2 required TEXT missing" or "Expected exactly 2 from ...".
int error_count(const std::string& text) {
  const auto digit = text.find_first_of("0123456789");
  return digit == std::string::npos ? 1 : std::atoi(text.c_str() + digit);
}

// The error of the arguments in our words; CLI11's differ from error to error.
std::string reason(const CLI::ParseError& error) {
  const std::string text = error.what();
  const auto colon = text.find(": "), excludes = text.find(" excludes ");
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr && colon != std::string::npos)
    return text.substr(0, colon) + " needs " +
           (error_count(text) > 1 ? std::to_string(error_count(text)) + " values" : "a value");
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr && colon != std::string::npos)
    if (const auto equals = text.find(" = ", colon); equals != std::string::npos)
      return text.substr(colon + 2, equals - colon - 2) + " '" + text.substr(equals + 3) +
             "' is no number that it takes";
  if (dynamic_cast<const CLI::ExcludesError*>(&error) != nullptr && excludes != std::string::npos)
    return text.substr(0, excludes) + " and " + text.substr(excludes + 10) + " exclude each other";
  if (dynamic_cast<const CLI::ValidationError*>(&error) != nullptr && colon != std::string::npos)
    return text.substr(0, colon) + text.substr(colon + 1);
  std::string out = text;
  if (out.starts_with("A ")) out[0] = 'a';
  return out;
}

// The error of arguments that CLI11 refused, in the words and the form of every other error.
Diagnostic refused(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* innermost = &app;
  std::string words; // the subcommands that were chosen, the inner one last
  while (!innermost->get_subcommands().empty()) {
    innermost = innermost->get_subcommands().front();
    words += (words.empty() ? "" : " ") + innermost->get_name();
  }
  const CLI::App& at = *innermost;
  // Those that could follow.
  const auto further = at.get_subcommands([](const CLI::App*) { return true; });
  std::vector<std::string> known;
  std::string unknown;
  for (const std::string& word : app.remaining(true))
    if (unknown.empty() && word != "--") unknown = word;
  const bool option = unknown.starts_with('-');
  Diagnostic d(ErrorCode::Usage, "");
  if (unknown.empty()) {
    d.message = reason(error);
    if (const auto line = d.message.find('\n'); line != std::string::npos) {
      d.note(d.message.substr(line + 1));
      d.message.resize(line);
    }
  } else if (option) {
    unknown = unknown.substr(0, unknown.find('='));
    d.message = "there is no option '" + unknown + "'" + (words.empty() ? "" : " of '" + words + "'");
    for (const CLI::Option* o : at.get_options())
      for (const auto& name : o->get_lnames()) known.push_back("--" + name);
  } else if (!further.empty()) {
    d.message = "there is no subcommand '" + unknown + "'" + (words.empty() ? "" : " of '" + words + "'");
    for (const CLI::App* sub : further) known.push_back(sub->get_name());
  } else {
    d.message = "'" + words + "' has no use for the argument '" + unknown + "'";
  }
  if (const auto close = similar(unknown, known); !close.empty()) d.note("did you mean '" + close + "'?");
  return std::move(d).note("'tessera" + (words.empty() ? "" : " " + words) + " --help' has the " +
                           (further.empty() ? "options" : "subcommands"));
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
  if (const Status status = check_outputs(); !status.ok()) return refuse(status.error());
  return chosen_();
}

} // namespace tessera::command
