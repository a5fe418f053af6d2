// Parts that the subcommands share: options of a model, exit codes, JSON, tables, progress.
#pragma once
#include "api/session/variant.h"
#include "api/tessera.hpp"
#include "base/text.h"
#include "exit_codes.h"
#include "options.h"
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tessera::command {

using Json = nlohmann::ordered_json; // keys in the order in which they were written

// Each adds one subcommand.
void add_run(CommandLine& line);
void add_inspect(CommandLine& line);
void add_explain(CommandLine& line);
void add_diff(CommandLine& line);
void add_compile(CommandLine& line);
void add_bench(CommandLine& line);
void add_test(CommandLine& line);
void add_tune(CommandLine& line);
void add_calibrate(CommandLine& line);
void add_opt(CommandLine& line);
void add_ops(CommandLine& line);
void add_debug(CommandLine& line);
void add_reduce(CommandLine& line);
void add_cache(CommandLine& line);
void add_triton(CommandLine& line);
void add_kernel(CommandLine& line);

// ---- options that every subcommand with a model takes
struct ModelOptions {
  std::string model;
  std::vector<std::string> shapes; // NAME=1x128, DIM=4
  std::vector<std::string> values; // NAME=1,-1
  // Options of the table (api/option_fields.h). Those of Kind::Sizes are in `sizes`, by name: DIM=exact, DIM=div:8; of
  // `compile`, "DIM=4,DIM=div:8" for each variant; DIM=MIN..OPT..MAX.
  stable::Options options;
  std::map<std::string_view, std::vector<std::string>> sizes;
  std::map<std::string_view, std::string> given; // texts of the others that were given, by name
  std::string arch;
  bool no_fusion = false, no_cache = false, no_tuned = false;
  std::string tuned_for, target;
  std::vector<std::string> disabled_passes;
  std::vector<std::string> no_fuse; // two for each pair
  std::vector<std::string> break_at;
  std::string save_plan; // file
  bool plan_strict = false;
  std::vector<std::string> operators; // shared libraries of operators
  std::string on_miss = "compile";
  std::string json;                  // file, "-" for standard output
  std::vector<std::string> compiles; // options that were given and that only the compile of a model can follow
};
void add_model_options(Subcommand& sub, ModelOptions& options);
// An option of the table as the command writes it: "--warm-up".
[[nodiscard]] std::string flag_of(std::string_view name);
// Values of options of the table that were given, by name.
[[nodiscard]] std::map<std::string_view, std::string> given_texts(const ModelOptions& options);
// Those of them that decide which plan is made.
void add_plan_options(Subcommand& sub, ModelOptions& options);
void add_operators_option(Subcommand& sub, std::vector<std::string>& libraries);
// Registers the operators of the libraries. Errors: those of load_operators().
[[nodiscard]] Status load_all(const std::vector<std::string>& libraries);
void add_json_option(Subcommand& sub, std::string& file);
void add_save_plan_option(Subcommand& sub, ModelOptions& options);
// Writes the plan of the first variant where --save-plan requests it.
[[nodiscard]] Status save_plan(const ModelOptions& options, const Session& session);
[[nodiscard]] Diagnostic unknown_pass(const std::string& name);
// An error for a compiled file where `subcommand` needs the model it was compiled from.
[[nodiscard]] Status need_model(const std::string& path, const std::string& subcommand);

// A --shape: sizes of an input, or of a named dimension (one number). -1 where free ("?").
struct ShapeArgument {
  std::string name;
  Dims sizes;
};
[[nodiscard]] Result<std::vector<ShapeArgument>> parse_shapes(const std::vector<std::string>& texts);

// --specialize of 'tessera compile', one variant each: "batch=8,seq=div:8".
[[nodiscard]] Result<std::vector<Specializations>> parse_variants(const std::vector<std::string>& texts);
// An option's ranges of sizes (api/sizes.h).
[[nodiscard]] Result<SizeRanges> parse_ranges(const char* option, const std::vector<std::string>& texts);

// Errors: Usage for texts that do not parse, and for options that do not apply to a compiled file; those of
// choose_device().
[[nodiscard]] Result<SessionOptions> session_options(const ModelOptions& options,
                                                     const std::vector<ShapeArgument>& shapes);

// --nvtx: named ranges for a profiler, or a note where none receives them. Error UnsupportedFeature without NVTX.
inline constexpr const char* kNvtxHelp = "name calls and steps for nsys and ncu (TESSERA_NVTX=1 does it, too)";
[[nodiscard]] Status add_ranges(bool wanted, ExecutorOptions& options);

// Session::open() for inputs that are read or drawn. Where values that decide the model's structure are not known, they
// are those of the inputs that `arguments` give ("NAME=FILE.npy"), else guessed; `session` says them then.
[[nodiscard]] Result<std::unique_ptr<Session>> open_for_inputs(const std::string& model, SessionOptions& session,
                                                               const std::vector<std::string>& arguments = {});
// Opens the model or compiled file, showing progress. `inputs`: as of open_for_inputs().
[[nodiscard]] Result<std::unique_ptr<Session>> open_session(const ModelOptions& options, SessionOptions session,
                                                            const std::vector<std::string>& inputs = {});

// ---- results
[[nodiscard]] Json to_json(const Diagnostic& d);
[[nodiscard]] Json to_json(const RunStats& stats);
// How many variants a session has, and what became of them: as JSON, and that as a line.
[[nodiscard]] Json variant_counts(const std::string& policy, const Session& session);
[[nodiscard]] std::string variants_text(const Json& counts);
// Writes a whole file; to standard output where `path` is "-" or empty.
[[nodiscard]] Status write_text(const std::string& path, std::string_view text);
// Pretty-printed, with a newline. Strings are exact, in ASCII; bytes that are no UTF-8 are replaced by U+FFFD.
[[nodiscard]] std::string json_text(const Json& json);
// Nothing when `path` is empty.
[[nodiscard]] Status write_json(const std::string& path, const Json& json);
// The row of the error's code; kFailed where it is about a file that the command was to write.
[[nodiscard]] int exit_code(const Diagnostic& d);
// Prints the error, writes {"error": ...} where JSON was requested, and returns its exit code.
int fail(const Diagnostic& d, const std::string& json_path = "");
// Writes `json` where `json_path` is given, at the end. Prints and returns the code of a failed write, else `code`.
int finish(int code, const std::string& json_path, const Json& json);

// ---- text. Everything for people leaves through these three and fail(), fit to be shown (base/text.h); names
// that are put into a line of ours are shown() by themselves.
void say(std::string_view text); // lines for standard output
void say_note(const std::string& text);
void say_warning(const std::string& text);
[[nodiscard]] std::string format_bytes(double bytes);          // "12.6 MB", decimal units
[[nodiscard]] std::string format_number(double v, int digits); // fixed
[[nodiscard]] std::string format_ms(double ms);                // "1.23 ms", "45 us", "2.1 s"
// Columns of a terminal, or of COLUMNS: 40 to 100; 100 for a file.
[[nodiscard]] size_t screen_width();
[[nodiscard]] std::string clipped(const std::string& text, size_t most); // columns; the middle of more is left out

// Columns padded to their widest cell; cells of columns named in `right` are aligned to the right. Each cell is
// shown().
class Table {
public:
  explicit Table(std::vector<std::string> header, std::vector<size_t> right = {})
      : rows_{std::move(header)}, right_(std::move(right)) {}
  void add(std::vector<std::string> row);
  [[nodiscard]] bool empty() const { return rows_.size() == 1; }
  // Lines of at most `most` columns: wide cells are clipped, then the last columns left out.
  [[nodiscard]] std::string str(const std::string& indent = "", size_t most = std::string::npos) const;

private:
  std::vector<std::vector<std::string>> rows_;
  std::vector<size_t> right_;
};

// One line on standard error that is rewritten; silent unless that is a terminal.
class Progress {
public:
  Progress();
  ~Progress() { clear(); }
  void show(const std::string& text);
  void clear();

private:
  bool terminal_;
  bool shown_ = false;
};

} // namespace tessera::command
