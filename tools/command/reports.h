// Reports as commands take them: of a model that they compile, or stored by `explain --format json`; with measured times.
#pragma once
#include "explain.h"

namespace tessera::command {

// The source of a report's measured times.
struct MeasureOptions {
  bool measure = false; // calls of the model
  bool routes = false;  // and the other routes of its library calls
  std::string profile;  // a file that `bench` wrote
  double seconds = 1;
  uint64_t seed = 0;
  [[nodiscard]] bool measures() const { return measure || routes; }
};
void add_measure_options(Subcommand& sub, MeasureOptions& options);
// Sets the options of a session that measuring needs, before the session is opened.
void prepare(const MeasureOptions& options, SessionOptions& session);
// A host of which no target was given is calibrated, which takes two seconds: what is measured is compared with prices
// of this machine. Errors: those of calibrate_host().
[[nodiscard]] Status price_by_this_host(const ModelOptions& model, const MeasureOptions& options,
                                        SessionOptions& session);
// Adds the times that the options request; notes are said. `session`: of the model; null for a stored report. Errors:
// Usage for measuring a stored report; those of measure_steps(), read_step_times() and add_measured().
[[nodiscard]] Status add_times(const ModelOptions& model, const MeasureOptions& options, Session* session,
                               Json& report);

// The report of the model that the options name: read where it is stored. Errors: those of compiling it; Usage for
// measuring a stored report.
[[nodiscard]] Result<Json> report_of(const ModelOptions& options, const MeasureOptions& measure);

// A name of a report's operator, by which people call it: its id, its path of modules or its place in the source.
// `pattern` has * for any text and ? for any character.
[[nodiscard]] bool is_called(const Json& operation, std::string_view pattern);
// Whether the pattern is all of the text; `prefix`: the length of the shortest beginning that it is, npos where none is.
[[nodiscard]] bool matches(std::string_view pattern, std::string_view text);
[[nodiscard]] size_t matching_prefix(std::string_view pattern, std::string_view text);

} // namespace tessera::command
