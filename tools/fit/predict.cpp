// Predicts the times of schedules that `tessera tune --log` measured, for parameters of the cost that the script next to
// it varies. Arguments: a target's name or file, log files. Writes one JSON object about the rows on a line, then, for each line "name value
// name value ..." of the input, the predicted time and registers of all rows as pairs of 64-bit floats.
#include "base/file.h"
#include "codegen/schedule/cost.h"
#include "codegen/schedule/legal.h"
#include "codegen/target/select.h"
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

namespace tessera {
namespace {

using Json = nlohmann::json;

struct Row {
  size_t nest;
  Schedule schedule;
  int64_t blocks_per_row = 1;
  double us;
  int registers;
};
struct Nest {
  std::string model, name;
  std::unique_ptr<Graph> graph;
  LoopNest nest;
  Domain domain;
  CallSizes sizes;
  std::unique_ptr<BlockFacts> facts;
  SizedFacts sized;
};

class Log {
public:
  explicit Log(const Target& device) : device_(device) {}

  Status read(const std::string& file) {
    TESSERA_ASSIGN(std::string text, read_file(file));
    std::istringstream lines(text);
    std::string model, graph;
    for (std::string line; std::getline(lines, line);) {
      const Json j = Json::parse(line);
      if (j.contains("graph")) {
        model = j.at("model");
        graph = j.at("graph");
        continue;
      }
      if (auto status = add(model, graph, j); !status.ok())
        std::fprintf(stderr, "%s, %s: %s\n", file.c_str(), j.at("kernel").get<std::string>().c_str(),
                     status.error().message.c_str());
    }
    return {};
  }
  Status add(const std::string& model, const std::string& text, const Json& j) {
    auto n = std::make_unique<Nest>();
    n->model = model;
    n->name = j.at("kernel");
    TESSERA_ASSIGN(Graph graph, parse_graph(text));
    n->graph = std::make_unique<Graph>(std::move(graph));
    TESSERA_ASSIGN(n->nest, parse_nest(*n->graph, j.at("nest").get<std::string>()));
    TESSERA_ASSIGN(n->domain, make_domain(*n->graph, n->nest));
    if (nest_key(*n->graph, n->nest, n->domain).hex() != j.at("key"))
      return Diagnostic(ErrorCode::Usage, "the text is not the nest that was measured");
    for (const auto& [symbol, size] : j.at("sizes").items())
      if (auto s = n->graph->env().find(symbol)) n->sizes[s->symbol_id()] = size;
    n->facts = std::make_unique<BlockFacts>(*n->graph, n->nest, n->domain, device_);
    TESSERA_ASSIGN(n->sized, sized_facts(*n->facts, n->sizes));
    for (const Json& r : j.at("rows")) {
      const double us = r.at(2);
      if (us <= 0) continue;
      TESSERA_ASSIGN(Schedule s, make_schedule(r.at(0).get<std::string>(), r.at(1).get<ScheduleFields>()));
      const Legal l = legal(*n->facts, s, ranges_of(*n->facts, n->sized.extents, n->sizes));
      if (!l) continue;
      int64_t blocks = 1;
      if (l.blocks_per_row)
        if (auto m = l.blocks_per_row->eval(n->sizes); m.ok()) blocks = *m;
      rows.push_back({nests.size(), s, blocks, us, r.at(3)});
    }
    nests.push_back(std::move(n));
    return {};
  }

  std::vector<std::unique_ptr<Nest>> nests;
  std::vector<Row> rows;

private:
  const Target& device_;
};

int run(int argc, char** argv) {
  auto device = argc > 1 ? named_target(argv[1]) : Result<Target>(Diagnostic(ErrorCode::Usage, "a target is missing"));
  if (!device.ok()) {
    std::fprintf(stderr, "%s\n", device.error().message.c_str());
    return 1;
  }
  Log log(*device);
  for (int i = 2; i < argc; ++i)
    if (auto status = log.read(argv[i]); !status.ok()) {
      std::fprintf(stderr, "%s\n", status.error().message.c_str());
      return 1;
    }
  Json head;
  for (const auto& n : log.nests) head["nests"].push_back({n->model, n->name});
  for (const Row& r : log.rows)
    head["rows"].push_back({r.nest, name(r.schedule.kind), r.us, r.registers, fields(r.schedule)});
  CostModel defaults;
  each_parameter(defaults, [&](const char* name, double value) { head["parameters"][name] = value; });
  std::printf("%s\n", head.dump().c_str());
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    CostModel model;
    std::istringstream words(line);
    std::string name;
    for (double value = 0; words >> name >> value;)
      each_parameter(model, [&](const char* n, double& v) { v = name == n ? value : v; });
    std::vector<double> out;
    for (const Row& r : log.rows) {
      const Cost c = cost(log.nests[r.nest]->sized, r.schedule, r.blocks_per_row, *device, model);
      out.insert(out.end(), {c.us, c.taken, c.memory, c.latency, c.issue, c.shared, c.resident, c.blocks, c.most});
    }
    std::fwrite(out.data(), sizeof(double), out.size(), stdout);
    std::fflush(stdout);
  }
  return 0;
}

} // namespace
} // namespace tessera

int main(int argc, char** argv) { return tessera::run(argc, argv); }
