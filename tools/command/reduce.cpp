// tessera reduce: the smallest part of a model that still fails, with its inputs.
#include "api/option_fields.h"
#include "base/file.h"
#include "base/stopwatch.h"
#include "base/temporary_folder.h"
#include "candidate.h"
#include "child.h"
#include "shrink.h"
#include <algorithm>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>

namespace tessera::command {

namespace {

constexpr size_t kShown = 20; // operators of the result that the text names

struct ReduceOptions {
  ModelOptions model;
  std::vector<std::string> inputs;
  std::string fails, output, against = "reference";
  std::optional<double> rtol;
  bool debug = false;
  uint64_t seed = 0;
  int seconds = 300, timeout = 60;
};

// How a candidate ends: what the first one does must happen again.
struct Verdict {
  std::string how; // "departs", "exit code 3", "signal ..."; empty: it does not fail
  Json report;     // of tessera debug
};

// The options of the model that the candidates are compiled with, too.
std::vector<std::string> options_of(const ReduceOptions& o) {
  const ModelOptions& m = o.model;
  std::vector<std::string> out = {"--against", o.against};
  auto add = [&](const std::string& name, const std::string& value) {
    if (!value.empty()) out.insert(out.end(), {name, value});
  };
  if (o.rtol) add("--rtol", Json(*o.rtol).dump());
  for (const auto& [name, value] : given_texts(m))
    if (find_option(name)->plans && name != "plan") out.push_back(flag_of(name) + "=" + value);
  add("--target", m.target);
  add("--cache-dir", m.options.cache_dir);
  for (const auto& pass : m.disabled_passes) add("--disable-pass", pass);
  for (const auto& library : m.operators) add("--operators", library);
  for (const auto& [given, name] :
       {std::pair(m.no_fusion, "--no-fusion"), {m.no_cache, "--no-cache"}, {m.no_tuned, "--no-tuned"}})
    if (given) out.emplace_back(name);
  return out;
}

class Reducer {
public:
  Reducer(const ReduceOptions& o, Candidates candidates, std::string folder)
      : o_(o), candidates_(std::move(candidates)), folder_(std::move(folder)) {}

  Result<Json> run() {
    Candidate best{candidates_.all(), false, {}};
    const size_t before = best.nodes.size();
    TESSERA_ASSIGN(Verdict first, verdict(best));
    if (first.how.empty())
      return Diagnostic(ErrorCode::Usage, "the model does not fail")
          .note(o_.fails.empty()
                    ? "'tessera debug' finds nothing with the same options"
                    : "the command ended with exit code 0; it must end with another one while the model fails");
    how_ = first.how;
    TESSERA_TRY(keep(best));
    by_chain(best, first.report);
    best.nodes = smallest(
        best.nodes,
        [&](const std::set<size_t>& nodes) {
          Candidate c = best;
          c.nodes = nodes;
          return fails(c);
        },
        [&] { return expired(); });
    Candidate fixed = best;
    fixed.fixed = true;
    if (fails(fixed)) best = fixed;
    cut_sizes(best);
    if (error_) return std::move(*error_);
    return result(before);
  }

private:
  [[nodiscard]] bool expired() const { return error_ || watch_.seconds() > o_.seconds; }

  // The nodes that these are computed from, and they themselves.
  [[nodiscard]] std::set<size_t> with_producers(std::set<size_t> nodes) const {
    const auto& all = candidates_.parts().nodes();
    std::set<std::string> read;
    for (size_t n = all.size(); n-- > 0;) { // producers come first
      const bool needed = std::any_of(all[n].results.begin(), all[n].results.end(),
                                      [&](const std::string& name) { return read.contains(name); });
      if (needed && !all[n].constant) nodes.insert(n);
      if (needed || nodes.contains(n)) read.insert(all[n].reads.begin(), all[n].reads.end());
    }
    return nodes;
  }

  // The first operator that departed with the worst of what it is computed from, most often enough; else with all of it.
  void by_chain(Candidate& best, const Json& report) {
    if (!report.contains("chain")) return;
    std::set<size_t> nodes, first;
    auto take = [&](std::set<size_t> candidate) {
      Candidate c = best;
      c.nodes = std::move(candidate);
      if (c.nodes.empty() || c.nodes.size() >= best.nodes.size() || !fails(c)) return false;
      best = std::move(c);
      return true;
    };
    for (const Json& link : report["chain"]) {
      const std::string name = link["operator"];
      for (size_t n : candidates_.all())
        if (candidates_.parts().nodes()[n].name == name) nodes.insert(n);
      if (first.empty()) first = nodes;
      if (take(nodes)) return;
    }
    static_cast<void>(take(with_producers(first)));
  }

  void cut_sizes(Candidate& best) {
    bool smaller = true;
    while (smaller && !expired()) {
      smaller = false;
      auto sizes = candidates_.sizes(best);
      if (!sizes.ok()) return;
      for (int64_t n : *sizes) {
        const int64_t now = best.sizes.contains(n) ? best.sizes.at(n) : n;
        for (int64_t less : {int64_t{1}, int64_t{2}, now / 2}) {
          if (less >= now || less < 1 || expired()) continue;
          Candidate c = best;
          c.sizes[n] = less;
          if (!fails(c)) continue;
          best = c;
          smaller = true;
          break;
        }
      }
    }
  }

  // Whether the candidate fails as the model does; it is the best one then.
  bool fails(const Candidate& candidate) {
    if (expired()) return false;
    auto v = verdict(candidate);
    if (!v.ok() || v->how != how_) return false;
    if (auto kept = keep(candidate); !kept.ok()) error_ = std::move(kept).take_error();
    return !error_;
  }

  Result<Verdict> verdict(const Candidate& candidate) {
    progress_.show(std::to_string(best_nodes_) + " operators, " + std::to_string(tried_) + " candidates tried, now " +
                   std::to_string(candidate.nodes.size()));
    ++tried_;
    TESSERA_TRY(candidates_.write(candidate, trial()));
    const std::string model = trial() + "/model.onnx", json = trial() + "/verdict.json";
    std::vector<std::string> command;
    if (o_.fails.empty()) {
      command = {own_path(), "debug", model, "--case", trial(), "--json", json};
      const auto options = options_of(o_);
      command.insert(command.end(), options.begin(), options.end());
    } else {
      command = {"/bin/sh", "-c", o_.fails + " \"$1\"", "sh", model};
    }
    TESSERA_ASSIGN(ChildEnd end, run_child(command, folder_ + "/output.txt", std::chrono::seconds(o_.timeout)));
    Verdict out;
    if (end.exit_code == 0) return out;
    out.how = end.str();
    if (!o_.fails.empty() || end.exit_code < 0) return out;
    TESSERA_ASSIGN(std::string text, read_file(json));
    out.report = Json::parse(text, nullptr, false);
    if (out.report.is_object() && out.report.contains("error") && out.report["error"].is_object())
      out.how += " " + out.report["error"].value("name", "");
    return out;
  }

  [[nodiscard]] std::string trial() const { return folder_ + "/trial"; }

  // Makes the candidate the output, which is a whole one at any time.
  Status keep(const Candidate& candidate) {
    best_nodes_ = candidate.nodes.size();
    best_ = candidate;
    const std::string next = o_.output + ".next";
    std::error_code error;
    std::filesystem::remove_all(next, error);
    std::filesystem::create_directories(next, error);
    if (!error) std::filesystem::copy(trial(), next, std::filesystem::copy_options::recursive, error);
    if (!error) std::filesystem::remove(next + "/verdict.json", error);
    if (error) return Diagnostic(ErrorCode::FileError, "cannot write '" + next + "': " + error.message());
    if (::renameat2(AT_FDCWD, next.c_str(), AT_FDCWD, o_.output.c_str(), RENAME_EXCHANGE) != 0) {
      std::filesystem::rename(next, o_.output, error); // there is none yet
      if (error) return Diagnostic(ErrorCode::FileError, "cannot write '" + o_.output + "': " + error.message());
    }
    std::filesystem::remove_all(next, error);
    return {};
  }

  Json result(size_t before) {
    progress_.clear();
    Json j{{"model", o_.model.model}, {"fails", how_}, {"operators_before", before}, {"operators", best_.nodes.size()}};
    j["nodes"] = Json::array();
    for (size_t n : best_.nodes) {
      const auto& node = candidates_.parts().nodes()[n];
      j["nodes"].push_back({{"name", node.name}, {"op", node.op}});
    }
    j["candidates"] = tried_;
    j["complete"] = !expired();
    j["folder"] = o_.output;
    std::string command = o_.fails;
    if (command.empty()) {
      command = "tessera debug " + o_.output + "/model.onnx --case " + o_.output;
      for (const auto& option : options_of(o_)) command += " " + option;
    } else {
      command += " " + o_.output + "/model.onnx";
    }
    j["command"] = command;
    return j;
  }

  const ReduceOptions& o_;
  Candidates candidates_;
  const std::string folder_; // for candidates
  const Stopwatch watch_;
  Progress progress_;
  std::string how_;
  Candidate best_;
  size_t best_nodes_ = 0;
  int tried_ = 0;
  std::optional<Diagnostic> error_;
};

std::string text_of(const Json& j) {
  std::string text = std::to_string(j["operators_before"].get<size_t>()) + " operators reduced to " +
                     std::to_string(j["operators"].get<size_t>()) +
                     ", which end with: " + shown(j["fails"].get<std::string>()) + "\n";
  const size_t count = j["nodes"].size();
  for (size_t i = 0; i < std::min(count, kShown); ++i)
    text += "  " + shown(j["nodes"][i]["name"].get<std::string>()) + " (" +
            shown(j["nodes"][i]["op"].get<std::string>()) + ")\n";
  if (count > kShown) text += "  and " + std::to_string(count - kShown) + " more\n";
  if (!j["complete"].get<bool>()) text += "the time is used up: a smaller part may fail, too (--seconds)\n";
  return text + "model and inputs are in " + shown(j["folder"].get<std::string>()) + "\n  " +
         shown(j["command"].get<std::string>()) + "\n";
}

Result<Json> reduce(ReduceOptions o) {
  if (o.model.model.ends_with(".pt2"))
    return Diagnostic(ErrorCode::UnsupportedFeature,
                      "a program of torch.export is not reduced: this writes ONNX files only")
        .note("export the module to ONNX and reduce that");
  TESSERA_TRY(need_model(o.model.model, "reduce"));
  if (o.output.empty()) o.output = std::filesystem::path(o.model.model).stem().string() + ".reduced";
  if (std::filesystem::exists(o.output) && !std::filesystem::exists(o.output + "/model.onnx"))
    return Diagnostic(ErrorCode::Usage, "'" + o.output + "' exists, and is no result of this command")
        .note("give another folder: -o DIR");
  TESSERA_ASSIGN(auto shapes, parse_shapes(o.model.shapes));
  // Inputs of the model, made without the kernels that may be what fails.
  ModelOptions plain = o.model;
  plain.options.device = "cpu";
  plain.no_fusion = true;
  TESSERA_ASSIGN(SessionOptions options, session_options(plain, shapes));
  options.compile_only = true;
  const ImportOptions import = options.import;
  Tensors inputs;
  {
    TESSERA_ASSIGN(auto session, open_session(plain, std::move(options)));
    TESSERA_ASSIGN(inputs, read_inputs(*session, o.inputs));
    std::vector<std::string> notes;
    TESSERA_ASSIGN(Sizes sizes, choose_sizes(*session, inputs, shapes, notes));
    TESSERA_TRY(make_inputs(*session, sizes, o.seed, inputs));
    for (const auto& n : notes) say_note(n);
  }
  TESSERA_ASSIGN(Candidates candidates, Candidates::create(o.model.model, import, inputs));
  TESSERA_ASSIGN(const TemporaryFolder folder, TemporaryFolder::create("tessera-reduce"));
  return Reducer(o, std::move(candidates), folder.path()).run();
}

} // namespace

void add_reduce(CommandLine& line) {
  auto options = std::make_shared<ReduceOptions>();
  Subcommand sub = line.add("reduce", "shrink a failing ONNX model to the smallest part that still fails");
  add_model_options(sub, options->model);
  sub.option("--input", options->inputs, "NAME=FILE.npy (repeatable); inputs not given are random").one_at_a_time();
  sub.option("--seed", options->seed, "of random inputs").show_default();
  auto fails = sub.option("--fails", options->fails,
                          "command that gets the path of a candidate and ends with the same exit code, not 0, as long "
                          "as it fails; its inputs are next to it: inputs/NAME.npy");
  sub.flag("--debug", options->debug, "a model fails if 'tessera debug' departs, or ends with an error (the default)")
      .excludes(fails);
  sub.option("--against", options->against, "as of 'tessera debug'")
      .one_of({"reference", "cpu", "cuda", "strict-rounding"})
      .show_default();
  sub.option("--rtol", options->rtol, "as of 'tessera debug'");
  sub.option("-o,--output", options->output, "folder of the result (default: MODEL.reduced in the current one)")
      .writes_folder();
  sub.option("--seconds", options->seconds, "no candidate is begun after that").range(1, 1 << 20).show_default();
  sub.option("--timeout", options->timeout, "seconds that one candidate may take").range(1, 1 << 20).show_default();
  sub.footer("The folder holds the best candidate at any time: an interrupted run leaves it.\n"
             "Examples:\n"
             "  tessera reduce model.onnx --shape batch=1 --strict-rounding\n"
             "  tessera reduce model.onnx --input x=x.npy --fails 'python check.py' -o small");
  sub.action([options] {
    auto done = reduce(*options);
    if (!done.ok()) return fail(done.error(), options->model.json);
    if (options->model.json != "-") say(text_of(*done));
    return finish(kDone, options->model.json, *done);
  });
}

} // namespace tessera::command
