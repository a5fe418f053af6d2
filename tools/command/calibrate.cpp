// tessera calibrate: the figures of the device at hand, measured, as a target file.
#include "measure/calibrate/calibrate.h"
#include "api/device.h"
#include "base/file.h"
#include "base/stopwatch.h"
#include "command.h"
#include "runtime/cuda/context.h"
#include <cstdio>

namespace tessera::command {

namespace {

std::string bound(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

struct CalibrateCommand {
  std::string device = "auto", output, json;
  int threads = 0;
  bool list = false;
};

// The figures of a target file, and the targets that are known.
int list() {
  Table fields({"figure", "of", "unit", "from", "to", "meaning"}, {3, 4});
  for (const TargetField& f : target_fields())
    fields.add({std::string(f.name),
                f.kinds == TargetField::Both  ? "both"
                : f.kinds == TargetField::Cpu ? "cpu"
                                              : "cuda",
                std::string(f.unit), bound(f.least), bound(f.most), std::string(f.meaning)});
  Table targets({"target", "of", "architecture", "device"});
  for (const Target& t : shipped_targets()) targets.add({t.name, std::string(name(t.kind)), t.arch, t.gpu});
  say(fields.str() + "\n" + targets.str());
  return kDone;
}

// "h200.json" of "targets/h200.json" is target h200.
std::string name_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  std::string name = path.substr(slash == std::string::npos ? 0 : slash + 1);
  if (name.ends_with(".json")) name.resize(name.size() - 5);
  return name.empty() ? "calibrated" : name;
}

// The shipped figures to compare with, as they would be taken for this device.
Result<Target> shipped_for(const Target& t) {
  DeviceFacts here;
  here.kind = t.kind;
  here.gpu = t.gpu;
  here.arch = t.arch;
  here.vector_bytes = t.vector_bytes;
  TESSERA_ASSIGN(ChosenTarget chosen, choose_target("", here));
  return std::move(chosen.target);
}

std::string figure(double value) { return format_number(value, value >= 1000 ? 0 : value >= 10 ? 1 : 5); }

int run(const CalibrateCommand& o) {
  if (o.list) return list();
  const Stopwatch watch;
  Progress progress;
  CalibrateOptions options;
  if (!o.output.empty()) options.name = name_of(o.output);
  options.progress = [&](const std::string& what) { progress.show("measuring " + what); };
  auto measured = [&]() -> Result<Target> {
    TESSERA_ASSIGN(DeviceChoice device, choose_device(o.device));
    if (device.device == "cpu") {
      auto pool = ThreadPool::create(o.threads);
      return calibrate_host(*pool, options);
    }
    TESSERA_ASSIGN(auto context, cuda::Context::open(device.gpu));
    return calibrate_gpu(*context, options);
  }();
  progress.clear();
  if (!measured.ok()) return fail(measured.error(), o.json);
  auto shipped = shipped_for(*measured);
  if (!shipped.ok()) return fail(shipped.error(), o.json);

  const double took = watch.seconds();
  Json j{{"target", measured->name}, {"compared_with", shipped->name}, {"seconds", took}, {"figures", Json::array()}};
  Table table({"figure", "value", "unit", shipped->name, "source"}, {1, 3});
  const auto fields = target_fields();
  for (size_t i = 0; i < fields.size(); ++i) {
    if (!fields[i].applies(measured->kind)) continue;
    const double value = fields[i].get(*measured), known = fields[i].get(*shipped);
    const std::string source(name(measured->sources[i]));
    table.add({std::string(fields[i].name), figure(value), std::string(fields[i].unit), figure(known), source});
    j["figures"].push_back(
        {{"name", fields[i].name}, {"value", value}, {"unit", fields[i].unit}, {"shipped", known}, {"source", source}});
  }
  if (!o.output.empty())
    if (auto written = write_file(o.output, {print_target(*measured)}); !written.ok())
      return fail(written.error(), o.json);
  say((measured->is_gpu() ? shown(measured->gpu) + ", " + measured->arch
                          : "the host, " + std::to_string(measured->cores) + " cores") +
      "; " + format_number(took, 1) + " s\n" + table.str());
  if (!o.output.empty()) say("written to " + shown(o.output) + "; use it with --target " + shown(o.output) + "\n");
  return finish(kDone, o.json, j);
}

} // namespace

void add_calibrate(CommandLine& line) {
  auto options = std::make_shared<CalibrateCommand>();
  Subcommand sub = line.add("calibrate", "measure the device at hand and write a target file");
  sub.option("--device", options->device, "what to measure: auto, cpu, cuda or cuda:N").show_default();
  sub.option("-o,--output", options->output, "write the figures to this target file (JSON)").writes_file();
  sub.flag("--list", options->list, "name the figures of a target file, and the known targets");
  sub.option("--threads", options->threads, "cores of the host that are used together, 0 for all").not_negative();
  add_json_option(sub, options->json);
  sub.footer("Run it when nothing else runs on the device. It takes less than two minutes.\n"
             "Examples:\n"
             "  tessera calibrate --device cuda -o my_gpu.json\n"
             "  tessera run model.onnx --target my_gpu.json");
  sub.action([options] { return run(*options); });
}

} // namespace tessera::command
