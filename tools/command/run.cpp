// tessera run: one model, one or several sets of inputs, results written, compared and summed up.
#include "inputs.h"
#include <cmath>
#include <cstdio>
#include <filesystem>

namespace tessera::command {

namespace {

struct RunOptions {
  ModelOptions model;
  std::vector<std::string> inputs, cases;
  std::string output_dir, expect;
  double rtol = 1e-4, atol = 1e-5, norm_tolerance = 0;
  uint64_t seed = 0;
  bool poison = false, profile = false, nvtx = false;
};

// One set of inputs and what is to come out.
struct Case {
  std::string name; // folder, "" for the one on the command line
  std::string inputs_dir, expect_dir;
};

struct Summary {
  double min = 0, max = 0, mean = 0;
  int64_t nan = 0;
};
Summary summarize(const Tensor& t) {
  Summary s;
  double sum = 0;
  int64_t counted = 0;
  for (int64_t i = 0; i < t.count(); ++i) {
    double v = t.get_f64(i);
    if (std::isnan(v)) {
      ++s.nan;
      continue;
    }
    s.min = counted == 0 ? v : std::min(s.min, v);
    s.max = counted == 0 ? v : std::max(s.max, v);
    sum += v;
    ++counted;
  }
  s.mean = counted > 0 ? sum / static_cast<double>(counted) : 0;
  return s;
}
bool has_numbers(DType d) { return has_bytes(d) && info(d).kind != DTypeKind::Complex; }

std::string shown_number(double v) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.6g", v);
  return buffer;
}

// A tensor as nested arrays from element `at` on; a sequence or optional as an array, a map as an object.
Json elements(const Tensor& t, size_t dim, int64_t& at) {
  if (dim < t.dims().size()) {
    Json out = Json::array();
    for (int64_t i = 0; i < t.dims()[dim]; ++i) out.push_back(elements(t, dim + 1, at));
    return out;
  }
  const int64_t i = at++;
  if (t.dtype() == DType::String) return t.string_values()[static_cast<size_t>(i)];
  if (t.dtype() == DType::Bool) return t.get_i64(i) != 0;
  return is_float(t.dtype()) ? Json(t.get_f64(i)) : Json(t.get_i64(i));
}
Json values_of(const Tensor& t) {
  int64_t first = 0;
  if (t.dtype() != DType::List) return info(t.dtype()).kind == DTypeKind::Complex ? Json() : elements(t, 0, first);
  if (type_of(t).items->container == ItemType::Container::Map) {
    const Tensor &keys = t.items()[0], &values = t.items()[1];
    Json out = Json::object();
    for (int64_t i = 0, at = 0; i < keys.count(); ++i) {
      const std::string key = keys.dtype() == DType::String ? keys.string_values()[static_cast<size_t>(i)]
                                                            : std::to_string(keys.get_i64(i));
      out[key] = elements(values, 1, at);
    }
    return out;
  }
  Json out = Json::array();
  for (const Tensor& item : t.items()) out.push_back(values_of(item));
  return out;
}

Status write_output(const std::string& path, const Tensor& t) {
  if (t.dtype() != DType::List) return write_npy(path, t);
  return write_json(path, values_of(t));
}

std::string type_text(const Tensor& t) { return type_of(t).str(); }

// Compares the outputs with DIR/NAME.npy; false where one differs.
Result<bool> compare_outputs(const RunOptions& o, const std::vector<IoInfo>& ios, const std::vector<Tensor>& outputs,
                             const std::string& dir, Json& json, std::string& text) {
  bool all_same = true;
  int compared = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    std::string path = dir + "/" + file_name(ios[i].name, outputs[i].dtype());
    if (outputs[i].dtype() == DType::List || !std::filesystem::exists(path)) {
      text += "  " + shown(ios[i].name) + ": not compared, " +
              (outputs[i].dtype() == DType::List ? "it is a list" : "there is no " + shown(path)) + "\n";
      continue;
    }
    TESSERA_ASSIGN(Tensor expected, read_npy(path, outputs[i].dtype()));
    // A reference in a wider type is rounded to the model's: f16 models are held against f32 results.
    Tensor actual = outputs[i];
    if (is_float(actual.dtype()) && is_float(expected.dtype()) && actual.dtype() != expected.dtype() &&
        actual.dims() == expected.dims()) {
      TESSERA_ASSIGN(Tensor same_type, Tensor::create(expected.dtype(), actual.dims()));
      for (int64_t k = 0; k < actual.count(); ++k) same_type.set_f64(k, actual.get_f64(k));
      actual = std::move(same_type);
    }
    Comparison c = compare(actual, expected, o.rtol, o.atol);
    bool same = o.norm_tolerance > 0 && actual.dims() == expected.dims() && actual.dtype() == expected.dtype()
                    ? c.norm_ratio <= o.norm_tolerance
                    : c.same;
    all_same = all_same && same;
    ++compared;
    json[i]["norm_ratio"] = c.norm_ratio;
    json[i]["max_abs"] = c.max_abs;
    json[i]["same"] = same;
    if (!same) json[i]["difference"] = c.message;
    text += "  " + shown(ios[i].name) + ": " + (same ? "agrees" : "differs") +
            ", norm of the difference over the norm " + shown_number(c.norm_ratio) + ", largest difference " +
            shown_number(c.max_abs) + (same || c.message.empty() ? "" : "\n    " + shown(c.message)) + "\n";
  }
  if (compared == 0)
    return Diagnostic(ErrorCode::BadInput, "'" + dir + "' has an expected result for none of the outputs")
        .note("it should hold " +
              file_name(ios.empty() ? "OUTPUT" : ios[0].name, ios.empty() ? DType::F32 : ios[0].dtype));
  return all_same;
}

struct StepCounts {
  int kernels = 0, library_calls = 0, host_steps = 0, copies = 0;
};
StepCounts count_steps(const Executable& e) {
  StepCounts c;
  int instead = 0; // of the last library call: not counted in addition
  for (const Step& s : e.steps) {
    if (instead > 0) {
      --instead;
      continue;
    }
    if (const auto* l = std::get_if<LibraryStep>(&s)) instead = l->instead_of;
    c.kernels += std::holds_alternative<KernelLaunch>(s) ? 1 : 0;
    c.library_calls += std::holds_alternative<LibraryStep>(s) ? 1 : 0;
    c.host_steps += std::holds_alternative<HostStep>(s) ? 1 : 0;
    c.copies += std::holds_alternative<CopyStep>(s) ? 1 : 0;
    if (const auto* control = std::get_if<ControlStep>(&s))
      for (const auto& body : control->bodies) {
        const StepCounts inner = count_steps(*body.executable);
        c.kernels += inner.kernels;
        c.library_calls += inner.library_calls;
        c.host_steps += inner.host_steps;
        c.copies += inner.copies;
      }
  }
  return c;
}

Result<bool> run_case(const RunOptions& o, const std::vector<ShapeArgument>& shapes, Session& session, const Case& what,
                      Json& json) {
  Tensors tensors;
  if (what.inputs_dir.empty()) {
    TESSERA_ASSIGN(tensors, read_inputs(session, o.inputs));
  } else {
    TESSERA_ASSIGN(tensors, read_input_folder(session, what.inputs_dir));
  }
  std::vector<std::string> notes;
  TESSERA_ASSIGN(Sizes sizes, choose_sizes(session, tensors, shapes, notes));
  size_t given = tensors.size();
  TESSERA_TRY(make_inputs(session, sizes, o.seed, tensors));
  if (given < tensors.size())
    notes.push_back(std::to_string(tensors.size() - given) + " of " + std::to_string(tensors.size()) +
                    " inputs are random, from seed " + std::to_string(o.seed));
  for (const auto& n : notes) say_note(n);

  RunStats stats;
  TESSERA_ASSIGN(std::vector<Tensor> outputs, session.run(tensors, &stats));
  auto ios = session.outputs();
  const auto states = session.states(); // what the call made of them is shown as outputs are
  for (size_t s = 0; s < states.size(); ++s) {
    TESSERA_ASSIGN(outputs.emplace_back(), session.read_state(s));
    ios.push_back(states[s]);
  }
  json["name"] = what.name;
  json["sizes"] = sizes;
  json["run"] = to_json(stats);
  json["outputs"] = Json::array();
  Table table({"output", "type", "min", "max", "mean"}, {2, 3, 4});
  for (size_t i = 0; i < outputs.size(); ++i) {
    Json j;
    j["name"] = ios[i].name;
    j["dtype"] = name(outputs[i].dtype());
    j["dims"] = outputs[i].dims();
    std::vector<std::string> row = {ios[i].name, type_text(outputs[i])};
    if (has_numbers(outputs[i].dtype()) && outputs[i].count() > 0) {
      Summary s = summarize(outputs[i]);
      j["min"] = s.min, j["max"] = s.max, j["mean"] = s.mean, j["nan"] = s.nan;
      row.insert(row.end(), {shown_number(s.min), shown_number(s.max), shown_number(s.mean)});
      if (s.nan > 0) row.push_back(std::to_string(s.nan) + " NaN");
    }
    table.add(row);
    json["outputs"].push_back(std::move(j));
  }
  std::string text = (what.name.empty() ? "" : shown(what.name) + "\n") + table.str("  ");
  if (!o.output_dir.empty()) {
    std::string dir =
        what.name.empty() ? o.output_dir : o.output_dir + "/" + std::filesystem::path(what.name).filename().string();
    std::error_code error;
    std::filesystem::create_directories(dir, error);
    if (error) return Diagnostic(ErrorCode::FileError, "cannot make the folder '" + dir + "': " + error.message());
    for (size_t i = 0; i < outputs.size(); ++i)
      TESSERA_TRY(write_output(dir + "/" + file_name(ios[i].name, outputs[i].dtype()), outputs[i]));
    text += "  written to " + shown(dir) + "\n";
  }
  bool same = true;
  if (!what.expect_dir.empty()) {
    TESSERA_ASSIGN(same, compare_outputs(o, ios, outputs, what.expect_dir, json["outputs"], text));
    json["same"] = same;
  }
  for (const auto& m : stats.misses)
    text += "  " +
            (m.refused.empty() ? "guard missed: " + shown(m.guard)
                               : std::to_string(m.refused.size()) + " library calls refused, now loops") +
            " (" + shown(m.reason) + "), recompiled in " + format_ms(stats.recompile_ms) + "\n";
  text += "  run in " + format_ms(stats.total_ms) +
          (stats.new_shape ? ", " + format_ms(stats.plan_ms) + " of that to plan for new sizes" : "") + "\n";
  if (const auto variants = session.variants(); variants.size() > 1)
    text += "  variant " + shown(variants[static_cast<size_t>(stats.variant)]->label) + ", one of " +
            std::to_string(variants.size()) + "\n";
  if (o.profile) {
    Table steps({"step", "time", "bytes"}, {1, 2});
    for (const auto& s : stats.steps) steps.add({s.name, format_ms(s.ms), format_bytes(static_cast<double>(s.bytes))});
    text += steps.str("    ");
  }
  if (o.model.json != "-") say(text);
  return same;
}

int run(const RunOptions& o) {
  auto done = [&]() -> Result<std::pair<bool, Json>> {
    TESSERA_ASSIGN(auto shapes, parse_shapes(o.model.shapes));
    TESSERA_ASSIGN(SessionOptions options, session_options(o.model, shapes));
    options.executor.poison = o.poison;
    options.executor.profile = o.profile;
    TESSERA_TRY(add_ranges(o.nvtx, options.executor));
    TESSERA_ASSIGN(auto session, open_session(o.model, std::move(options), o.inputs));
    Progress progress;
    std::vector<Case> cases;
    for (const auto& dir : o.cases)
      cases.push_back({dir, dir + "/inputs", std::filesystem::exists(dir + "/expected") ? dir + "/expected" : ""});
    if (cases.empty()) cases.push_back({"", "", o.expect});

    Json json;
    json["model"] = o.model.model;
    bool same = true;
    json["cases"] = Json::array();
    for (const Case& c : cases) {
      if (cases.size() > 1) progress.show("running " + c.name);
      Json j;
      auto result = run_case(o, shapes, *session, c, j);
      progress.clear();
      if (!result.ok()) return std::move(result).take_error();
      same = same && *result;
      json["cases"].push_back(std::move(j));
    }
    const auto generic = session->variants().front();
    const auto counts = count_steps(*generic->executable);
    json["kernels"] = counts.kernels;
    json["library_calls"] = counts.library_calls;
    json["host_steps"] = counts.host_steps;
    json["copies"] = counts.copies;
    json["variants"] = session->variants().size();
    json["variant_labels"] = Json::array();
    for (const auto& v : session->variants()) json["variant_labels"].push_back(v->label);
    json["variant_counts"] = variant_counts(o.model.options.policy, *session);
    const bool from_plan = generic->from_plan; // without a compile's report
    const CompileReport r = from_plan ? CompileReport() : generic->compiled->report;
    json["compile"] = {{"plan_from_cache", from_plan},
                       {"import_ms", r.import_ms},
                       {"passes_ms", r.passes_ms},
                       {"fusion_ms", r.fusion_ms},
                       {"codegen_ms", r.codegen_ms},
                       {"link_ms", r.link_ms},
                       {"total_ms", r.import_ms + r.total_ms},
                       {"cache_hits", r.cache_hits},
                       {"cache_misses", r.cache_misses}};
    if (!r.cache_warnings.empty()) json["compile"]["warnings"] = r.cache_warnings;
    for (const auto& w : r.cache_warnings) say_warning(w);
    if (o.model.json != "-") {
      const bool compiled = !from_plan && !generic->from_file;
      const CompileTotals totals = session->compile_totals();
      std::string text = std::string(compiled    ? "  compiled in "
                                     : from_plan ? "  plan from the cache in "
                                                 : "  loaded in ") +
                         format_ms(compiled ? r.import_ms + r.total_ms : totals.ms + totals.load_ms) + " (" +
                         std::to_string(counts.kernels) + " kernels, " + std::to_string(counts.library_calls) +
                         " library calls";
      if (counts.host_steps > 0) text += ", " + std::to_string(counts.host_steps) + " CPU fallbacks";
      if (compiled)
        text += "; " + std::to_string(r.cache_hits) + " of " + std::to_string(r.cache_hits + r.cache_misses) +
                " objects from the cache";
      say(text + ")\n  " + variants_text(json["variant_counts"]) + "\n");
    }
    return std::pair(same, std::move(json));
  }();
  if (!done.ok()) return fail(done.error(), o.model.json);
  return finish(done->first ? kDone : kDiffers, o.model.json, done->second);
}

} // namespace

void add_run(CommandLine& line) {
  auto options = std::make_shared<RunOptions>();
  Subcommand sub = line.add("run", "compile a model and run it");
  add_model_options(sub, options->model);
  auto inputs =
      sub.option("--input", options->inputs, "NAME=FILE.npy (repeatable); inputs not given are random").one_at_a_time();
  auto cases = sub.option("--case", options->cases, "folder with inputs/NAME.npy and expected/NAME.npy (repeatable)")
                   .one_at_a_time();
  sub.option("--output-dir", options->output_dir, "write outputs there as NAME.npy, lists as NAME.json")
      .writes_folder();
  auto expect = sub.option("--expect", options->expect, "folder with NAME.npy to compare the outputs with");
  cases.excludes(inputs).excludes(expect);
  sub.option("--rtol", options->rtol, "relative tolerance of comparisons").not_negative().show_default();
  sub.option("--atol", options->atol, "absolute tolerance of comparisons").not_negative().show_default();
  sub.option("--norm-tolerance", options->norm_tolerance,
             "compare norms instead: |out - expected| / |expected| at most this")
      .positive();
  sub.option("--seed", options->seed, "of random inputs").show_default();
  sub.flag("--poison", options->poison,
           "fill memory with NaN before each run, to find reads of what was never written");
  sub.flag("--profile", options->profile, "show the time of each step");
  sub.flag("--nvtx", options->nvtx, kNvtxHelp);
  sub.footer("Examples:\n"
             "  tessera run model.onnx --shape batch=4 --shape seq=128\n"
             "  tessera run model.onnx --input input_ids=ids.npy --input attention_mask=mask.npy --output-dir out\n"
             "  tessera run model.onnx --input x=x.npy --expect reference --rtol 1e-3\n"
             "  tessera run model.pt2 --shape x=8x3x224x224\n"
             "  tessera run model.onnx --shape batch=4 --specialize batch=exact,seq=div:8\n"
             "  tessera run model.onnx --shape batch=4,seq=77 --warm-up batch=1..8..32,seq=1..128..512",
             "outputs differ from those of --expect or --case");
  sub.action([options] { return run(*options); });
}

} // namespace tessera::command
