#include "command.h"
#include "api/c/session_options.h"
#include "api/device.h"
#include "api/operators/load.h"
#include "api/option_fields.h"
#include "base/file.h"
#include "base/similar.h"
#include "codegen/driver/pipeline.h"
#include "codegen/driver/plan_file.h"
#include "codegen/load/load.h"
#include "codegen/target/select.h"
#include "graph/ir/operator.h"
#include "graph/ir/sizes.h"
#include "inputs.h"
#include "runtime/cuda/nvtx.h"
#include "symbols/input_rank.h"
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>

namespace tessera::command {

namespace {

Diagnostic usage(std::string message) { return {ErrorCode::Usage, std::move(message)}; }

// Reads a whole decimal number.
bool parse_int(std::string_view text, int64_t& out) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

// "NAME=VALUE"; names may hold '=' and slashes themselves, values do not.
Result<std::pair<std::string, std::string>> split_assignment(const std::string& text, const std::string& option,
                                                             const std::string& example) {
  auto at = text.rfind('=');
  if (at == std::string::npos || at == 0 || at + 1 == text.size())
    return usage(option + " '" + text + "' is not of the form " + example);
  return std::pair(text.substr(0, at), text.substr(at + 1));
}

} // namespace

void add_operators_option(Subcommand& sub, std::vector<std::string>& libraries) {
  sub.option("--operators", libraries, "shared library with operators of the model's (repeatable)").one_at_a_time();
}

Status load_all(const std::vector<std::string>& libraries) {
  for (const std::string& library : libraries) TESSERA_TRY(load_operators(library));
  return {};
}

std::string flag_of(std::string_view name) {
  std::string out = "--" + std::string(name);
  std::replace(out.begin(), out.end(), '_', '-');
  return out;
}

namespace {

void add_table_option(Subcommand& sub, ModelOptions& o, const OptionField& f) {
  using Kind = OptionField::Kind;
  const std::string flag = flag_of(f.name), help(f.help);
  const auto declare = [&](auto member) {
    using T = std::remove_reference_t<decltype(o.options.*member)>;
    if constexpr (std::is_same_v<T, bool>)
      return sub.flag(flag, o.options.*member, help);
    else
      return f.kind == Kind::Sizes ? sub.option(flag, o.sizes[f.name], help + " (repeatable)").one_at_a_time()
                                   : sub.option(flag, o.options.*member, help);
  };
  if (f.kind == Kind::Choice) // results name it whether it was given or not
    if (std::string& value = o.options.*std::get<std::string stable::Options::*>(f.member); value.empty())
      value = f.standard;
  sub.group(std::string(f.group));
  Option option = std::visit(declare, f.member);
  if (f.kind != Kind::Sizes) option.each([&o, &f](const std::string& text) { o.given[f.name] = text; });
  if (f.compiles) option.only_compiles(o.compiles);
  if (!f.standard.empty()) option.show_default(std::string(f.standard));
  if (f.kind == Kind::Choice) option.one_of(values_of(f));
  if (f.kind == Kind::Share) option.range(0.0, 1.0);
  if (f.kind == Kind::Count) option.range(int64_t{0}, largest(f.kind));
  if (f.kind == Kind::Bytes) option.not_negative(); // the library checks the rest
}

void add_table_options(Subcommand& sub, ModelOptions& o, bool plans) {
  for (const OptionField& f : kOptionFields)
    if (f.plans == plans) add_table_option(sub, o, f);
}

} // namespace

void add_plan_options(Subcommand& sub, ModelOptions& o) {
  sub.group("Model");
  add_operators_option(sub, o.operators);
  sub.option("--shape", o.shapes,
             "sizes: INPUT=1x128 of an input, DIM=4 of a named dimension, or several: batch=8,seq=128 (repeatable)")
      .one_at_a_time();
  sub.option("--value", o.values,
             "integers that an input holds and that decide the model's structure: AXES=0,2 (repeatable)")
      .one_at_a_time()
      .only_compiles(o.compiles);
  add_table_options(sub, o, true);
  sub.group("Device");
  sub.option("--arch", o.arch, "GPU to make code for: sm_80, sm_90, sm_90a (default: the one that is here)");
  sub.group("Fusion and precision");
  sub.flag("--no-fusion", o.no_fusion, "one kernel per operator, for comparison").only_compiles(o.compiles);
  sub.option("--disable-pass", o.disabled_passes,
             "leave a pass out, by name (repeatable; 'tessera opt --list' names them)")
      .one_at_a_time()
      .only_compiles(o.compiles);
  sub.option("--no-fuse", o.no_fuse, "A B: keep two operators, by the exporter's names, out of one kernel (repeatable)")
      .pairs()
      .only_compiles(o.compiles);
  sub.option("--break-at", o.break_at, "fuse nothing across the result of this operator (repeatable)")
      .one_at_a_time()
      .only_compiles(o.compiles);
  sub.flag("--plan-strict", o.plan_strict, "what of the plan file does not fit is an error, not a warning")
      .only_compiles(o.compiles);
  sub.group("");
}

void add_save_plan_option(Subcommand& sub, ModelOptions& o) {
  sub.group("Results");
  sub.option("--save-plan", o.save_plan, "write fusion, schedules and routes to this file, for --plan")
      .writes_file()
      .only_compiles(o.compiles);
  sub.group("");
}

Status save_plan(const ModelOptions& o, const Session& session) {
  if (o.save_plan.empty()) return {};
  return write_text(o.save_plan, print_plan_file(*session.variants().front()->compiled));
}

void add_json_option(Subcommand& sub, std::string& file) {
  sub.option("--json", file, "write the results to this file as JSON ('-': standard output)").writes_file();
}

void add_model_options(Subcommand& sub, ModelOptions& o) {
  sub.option("MODEL", o.model, "model file: ONNX, or a program of torch.export (.pt2)").required();
  add_plan_options(sub, o);
  add_table_options(sub, o, false);
  sub.group("Device");
  sub.option("--target", o.target,
             "device whose figures choose schedules: the name of a known one (h200, a100, avx2) or a target file that "
             "'tessera calibrate' wrote (default: $TESSERA_TARGET, else the device's own); without a GPU here, also "
             "what code is "
             "made for")
      .only_compiles(o.compiles);
  sub.group("Cache and tuning");
  sub.flag("--no-cache", o.no_cache, "neither read nor write compiled kernels on disk");
  sub.flag("--no-tuned", o.no_tuned, "default schedules, even if 'tessera tune' found better ones")
      .only_compiles(o.compiles);
  sub.option("--tuned-for", o.tuned_for, "with --arch: take schedules that were tuned on this GPU (\"NVIDIA H200\")")
      .only_compiles(o.compiles);
  sub.group("Variants");
  sub.option("--on-miss", o.on_miss, "when no specialized variant fits: compile another, or run the generic one")
      .one_of({"compile", "generic"})
      .show_default()
      .only_compiles(o.compiles);
  sub.group("Results");
  add_json_option(sub, o.json);
  sub.group("");
}

namespace {

// "batch=8,seq=128" as its assignments: a comma ends one where a name and '=' follow, else it is between two sizes.
std::vector<std::string> split_shapes(const std::string& text) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, comma - begin);
    if (out.empty() || (part.find('=') != std::string::npos && out.back().find('=') != std::string::npos))
      out.push_back(part);
    else
      out.back() += "," + part;
    begin = comma + 1;
  }
  return out;
}

Result<ShapeArgument> parse_shape(const std::string& text) {
  TESSERA_ASSIGN(auto parts, split_assignment(text, "--shape", "NAME=1x128 or DIM=4"));
  ShapeArgument argument{parts.first, {}};
  std::string_view rest = parts.second;
  for (bool more = true; more;) {
    auto x = rest.find_first_of("xX,");
    std::string_view number = rest.substr(0, x);
    int64_t size = -1;
    if (number != "?" && (!parse_int(number, size) || size < 0 || size > kSymMax))
      return usage("--shape '" + text + "': '" + std::string(number) + "' is no size")
          .note("sizes are numbers from 0, or ? for any, with x between: --shape input_ids=1x128");
    argument.sizes.push_back(size);
    more = x != std::string_view::npos;
    rest = more ? rest.substr(x + 1) : std::string_view();
  }
  return argument;
}

} // namespace

Result<std::vector<ShapeArgument>> parse_shapes(const std::vector<std::string>& texts) {
  std::vector<ShapeArgument> out;
  for (const auto& several : texts)
    for (const auto& text : split_shapes(several)) {
      TESSERA_ASSIGN(ShapeArgument argument, parse_shape(text));
      auto same = std::find_if(out.begin(), out.end(), [&](const auto& a) { return a.name == argument.name; });
      if (same != out.end()) return usage("--shape names '" + argument.name + "' twice");
      out.push_back(std::move(argument));
    }
  return out;
}

Diagnostic unknown_pass(const std::string& name) {
  std::vector<std::string> known;
  for (const auto& p : compile_passes()) known.emplace_back(p.name);
  Diagnostic d = usage("no pass is called '" + name + "'");
  if (auto close = similar(name, known); !close.empty()) d.note("did you mean '" + close + "'?");
  return std::move(d).note("'tessera opt --list' names them");
}

Status need_model(const std::string& path, const std::string& subcommand) {
  if (!is_compiled_file(path)) return {};
  return usage(path + " is a compiled file, and 'tessera " + subcommand + "' works on a model")
      .note("give it the model that the file was compiled from; run, bench and explain take compiled files");
}

namespace {

// The device of --device, --arch and --target: where --device is auto, --arch requests a GPU, and --target for its kind
// of device, code for its architecture if no GPU is here.
Result<DeviceChoice> device_for(const ModelOptions& o) {
  const std::string& device = o.options.device;
  if (device != "auto") {
    auto chosen = choose_device(device, o.arch);
    if (!chosen.ok() && o.arch.empty() && device.starts_with("cuda"))
      return Diagnostic(chosen.error())
          .note("code for a GPU that is not here: --arch sm_90a, of explain, compile and diff");
    return chosen;
  }
  if (!o.arch.empty()) return choose_device("cuda", o.arch);
  if (o.target.empty()) return choose_device("auto");
  TESSERA_ASSIGN(const Target target, named_target(o.target));
  if (!target.is_gpu()) return choose_device("cpu");
  TESSERA_ASSIGN(DeviceChoice here, choose_device("auto"));
  return here.device == "cuda" ? here : choose_device("cuda", target.arch);
}

// An error of an option's text, with the option.
Diagnostic of_option(const char* option, Diagnostic error) {
  error.message = std::string(option) + " " + error.message;
  return error;
}

} // namespace

Result<std::vector<Specializations>> parse_variants(const std::vector<std::string>& texts) {
  std::vector<Specializations> out;
  for (const auto& text : texts) {
    auto variant = parse_variant(text);
    if (!variant.ok())
      return of_option("--specialize", std::move(variant).take_error())
          .note("a compiled file has variants for sizes that are known: --specialize batch=1 --specialize "
                "batch=8,seq=div:8");
    out.push_back(std::move(*variant));
  }
  return out;
}

Result<SizeRanges> parse_ranges(const char* option, const std::vector<std::string>& texts) {
  SizeRanges out;
  for (const auto& text : texts) {
    auto ranges = parse_size_ranges(text);
    if (!ranges.ok()) return of_option(option, std::move(ranges).take_error());
    for (const auto& [symbol, range] : *ranges)
      if (!out.emplace(symbol, range).second) return usage(std::string(option) + " names " + quote(symbol) + " twice");
  }
  return out;
}

namespace {

// The options of the table as they were given.
stable::Options given_options(const ModelOptions& o) {
  stable::Options out = o.options;
  for (const auto& [name, text] : given_texts(o)) {
    const OptionField& f = *find_option(name);
    if (f.kind == OptionField::Kind::Sizes) out.*std::get<std::string stable::Options::*>(f.member) = text;
    if (f.kind == OptionField::Kind::Share) {
      double& share = out.*std::get<double stable::Options::*>(f.member);
      share = given_share(share);
    }
  }
  return out;
}

} // namespace

std::map<std::string_view, std::string> given_texts(const ModelOptions& o) {
  std::map<std::string_view, std::string> out = o.given;
  for (const auto& [name, texts] : o.sizes) {
    std::string all;
    for (const auto& text : texts) all += (all.empty() ? "" : ",") + text;
    if (!texts.empty()) out[name] = all;
  }
  return out;
}

Result<SessionOptions> session_options(const ModelOptions& o, const std::vector<ShapeArgument>& shapes) {
  SessionOptions out;
  TESSERA_TRY(load_all(o.operators));
  const bool compiled = is_compiled_file(o.model);
  if (compiled && !o.compiles.empty()) {
    std::string names;
    for (const auto& name : o.compiles) names += (names.empty() ? "" : ", ") + name;
    return usage(o.model + " is a compiled file, to which " + names + " cannot apply")
        .note("give it to 'tessera compile MODEL -o FILE', which makes the code");
  }
  const stable::Options given = given_options(o);
  TESSERA_TRY(take_options(given.c(), flag_of, out));
  if (compiled) {
    out.compiled_for = !o.arch.empty()          ? "cuda " + o.arch
                       : given.device == "auto" ? ""
                                                : given.device.substr(0, given.device.find(':'));
    return out;
  }
  // A model that is only compiled for some GPU needs none here.
  TESSERA_ASSIGN(DeviceChoice device, device_for(o));
  device.apply(out.compile);
  device.apply(out.executor);
  out.use_tuned = !o.no_tuned;
  if (!o.tuned_for.empty() && o.arch.empty()) return usage("--tuned-for names a GPU that is not here: it needs --arch");
  if (!o.tuned_for.empty()) out.compile.device_name = o.tuned_for;
  out.compile.target = o.target;
  out.compile.fusion = !o.no_fusion;
  out.compile.cache = !o.no_cache;
  for (const auto& pass : o.disabled_passes)
    if (find_compile_pass(pass) == nullptr) return unknown_pass(pass);
  out.compile.disabled_passes = o.disabled_passes;
  for (size_t i = 0; i + 1 < o.no_fuse.size(); i += 2) out.compile.no_fuse.emplace_back(o.no_fuse[i], o.no_fuse[i + 1]);
  out.compile.break_at = o.break_at;
  out.compile.plan_strict = o.plan_strict;
  out.on_miss = o.on_miss == "generic" ? SessionOptions::OnMiss::Generic : SessionOptions::OnMiss::Compile;
  for (const auto& text : o.values) {
    TESSERA_ASSIGN(auto parts, split_assignment(text, "--value", "NAME=0,2"));
    std::vector<int64_t> values;
    std::string_view rest = parts.second;
    for (bool more = !rest.empty(); more;) {
      const auto comma = rest.find(',');
      const std::string_view number = rest.substr(0, comma);
      int64_t value = 0;
      if (!parse_int(number, value))
        return usage("--value '" + text + "': '" + std::string(number) + "' is no whole number");
      values.push_back(value);
      more = comma != std::string_view::npos;
      rest = more ? rest.substr(comma + 1) : std::string_view();
    }
    const auto names = read_symbols(parts.first, static_cast<int64_t>(values.size()));
    for (size_t i = 0; i < names.size() && i < values.size(); ++i) out.import.dim_hints[names[i]] = values[i];
    out.import.of_call = true;
  }
  // Sizes only say what will be run: the compiled code stays good for every size. They do decide assumptions, and give
  // inputs without a known rank theirs.
  for (const auto& s : shapes) {
    if (s.sizes.size() != 1)
      out.import.input_shapes[s.name] = Dims(s.sizes.size(), -1);
    else if (s.sizes[0] >= 0)
      out.import.dim_hints[s.name] = out.import.dim_hints[s.name + "_d0"] = s.sizes[0];
    if (s.sizes.size() == 1) out.import.dim_hints[rank_symbol(s.name)] = 1; // of an input without a shape
  }
  return out;
}

Status add_ranges(bool wanted, ExecutorOptions& options) {
  if (!wanted) return {};
  TESSERA_ASSIGN(options.ranges, cuda::nvtx_ranges());
  if (const std::string why = cuda::no_range_receiver(); !why.empty()) say_note(why);
  return {};
}

namespace {
// Adds ranks, sizes and small contents of the inputs as hints.
void add_hints(const Session& session, const Tensors& tensors, std::map<std::string, int64_t>& hints) {
  for (const IoInfo& io : session.inputs()) {
    const auto given = tensors.find(io.name);
    if (given == tensors.end()) continue;
    const Tensor& t = given->second;
    const Dims& dims = t.dims();
    if (io.any_rank) {
      hints[rank_symbol(io.name)] = static_cast<int64_t>(dims.size());
      for (size_t d = 0; d < dims.size(); ++d) hints[io.name + "_d" + std::to_string(d)] = dims[d];
    }
    for (size_t d = 0; d < std::min(dims.size(), io.shape.size()); ++d)
      if (io.shape[d].is_symbol()) hints[io.shape[d].symbol_name()] = dims[d];
    if ((!is_integer(t.dtype()) && t.dtype() != DType::Bool) || t.count() > kContentsLimit) continue;
    const auto names = read_symbols(io.name, t.count());
    for (size_t i = 0; i < names.size(); ++i) hints[names[i]] = t.get_i64(static_cast<int64_t>(i));
  }
}
} // namespace

Result<std::unique_ptr<Session>> open_for_inputs(const std::string& model, SessionOptions& session,
                                                 const std::vector<std::string>& arguments) {
  auto opened = Session::open(model, session);
  const bool waits =
      opened.ok() ? (*opened)->variants().front()->fits_no_call : opened.error().code == ErrorCode::MissingValues;
  if (!waits) return opened;
  SessionOptions guessing = session;
  guessing.import.of_call = true;
  if (opened.ok()) {
    TESSERA_ASSIGN(const Tensors tensors, read_inputs(**opened, arguments));
    add_hints(**opened, tensors, guessing.import.dim_hints);
  }
  auto again = Session::open(model, guessing);
  if (!again.ok()) return opened;
  session = std::move(guessing);
  return again;
}

Result<std::unique_ptr<Session>> open_session(const ModelOptions& o, SessionOptions session,
                                              const std::vector<std::string>& inputs) {
  Progress progress;
  progress.show((is_compiled_file(o.model) ? "loading " : "compiling ") + o.model);
  auto opened = open_for_inputs(o.model, session, inputs);
  progress.clear();
  if (opened.ok())
    for (const auto& w : (*opened)->model_warnings()) say_warning(w);
  if (opened.ok() && !(*opened)->variants().front()->from_plan) { // a compile with warnings is not kept
    const CompileReport& report = (*opened)->variants().front()->compiled->report;
    for (const auto& w : report.plan_warnings) say_warning(w);
    for (const auto& c : report.contained) say_warning(c.str());
  }
  return opened;
}

// ---- results
Json to_json(const Diagnostic& d) {
  Json j;
  const auto& code = info(d.code);
  j["id"] = code.id;
  j["name"] = code.name;
  j["message"] = shown(d.message);
  Json at;
  if (!d.location.file.empty()) at["file"] = d.location.file;
  if (!d.location.node.empty()) at["node"] = d.location.node;
  if (!d.location.op.empty()) at["op"] = d.location.op;
  if (!d.location.output.empty()) at["output"] = d.location.output;
  if (!d.location.source.empty()) at["source"] = d.location.source;
  if (d.location.line > 0) at["line"] = d.location.line, at["column"] = d.location.column;
  if (!at.is_null()) j["location"] = at;
  j["notes"] = Json::array();
  for (const auto& note : d.notes) j["notes"].push_back(shown(note));
  j["exit_code"] = exit_code(d);
  return j;
}

Json variant_counts(const std::string& policy, const Session& session) {
  const CompileTotals totals = session.compile_totals();
  return {{"policy", policy},
          {"variants", totals.variants},
          {"bytes_of_specialized", totals.variant_bytes},
          {"compiles", totals.compiles},
          {"failed_compiles", totals.failures},
          {"contained_failures", totals.contained},
          {"calls_that_compiled", totals.blocking},
          {"background_compiles", totals.background},
          {"evictions", totals.evictions},
          {"swaps", totals.swaps}};
}

std::string variants_text(const Json& j) {
  auto counted = [](const Json& n, const std::string& what) { return n.dump() + " " + what + (n == 1 ? "" : "s"); };
  std::string text = "policy " + j["policy"].get<std::string>() + ": " + counted(j["variants"], "variant") + ", " +
                     counted(j["compiles"], "compile");
  if (j["calls_that_compiled"] != 0) text += " (" + j["calls_that_compiled"].dump() + " in calls)";
  return text + ", " + counted(j["swaps"], "swap");
}

Json to_json(const RunStats& stats) {
  Json j;
  j["total_ms"] = stats.total_ms;
  j["plan_ms"] = stats.plan_ms;
  j["variant"] = stats.variant;
  j["new_shape"] = stats.new_shape;
  j["arena_bytes"] = stats.arena_bytes;
  j["recompiles"] = stats.recompiles;
  j["recompile_ms"] = stats.recompile_ms;
  j["guard_misses"] = Json::array();
  for (const auto& m : stats.misses)
    j["guard_misses"].push_back({{"guard", m.guard}, {"reason", m.reason}, {"where", m.where}, {"sizes", m.sizes}});
  if (!stats.steps.empty()) {
    j["steps"] = Json::array();
    for (const auto& s : stats.steps) j["steps"].push_back({{"name", s.name}, {"ms", s.ms}, {"bytes", s.bytes}});
  }
  return j;
}

Status write_text(const std::string& path, std::string_view text) {
  if (!path.empty() && path != "-") return write_file(path, {text});
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return {};
  return file_error(ErrorCode::FileError, kStandardOutput, "write", errno);
}

std::string json_text(const Json& json) { return json.dump(2, ' ', true, Json::error_handler_t::replace) + "\n"; }

Status write_json(const std::string& path, const Json& json) {
  return path.empty() ? Status() : write_text(path, json_text(json));
}

int exit_code(const Diagnostic& d) {
  return d.code == ErrorCode::FileError && is_output(d.location.file) ? kFailed : info(d.code).exit_code;
}

int fail(const Diagnostic& d, const std::string& json_path) {
  std::fputs(d.str().c_str(), stderr);
  if (auto status = write_json(json_path, Json{{"error", to_json(d)}}); !status.ok())
    std::fputs(status.error().str().c_str(), stderr);
  return exit_code(d);
}

int finish(int code, const std::string& json_path, const Json& json) {
  if (auto status = write_json(json_path, json); !status.ok()) return fail(status.error());
  return code;
}

} // namespace tessera::command
