#include "ops_table.h"
#include "base/processors.h"
#include "base/similar.h"
#include "codegen/driver/devices.h"
#include "frontend/onnx/upgrade.h"
#include "graph/ops/sample_graph.h"
#include "graph/reference/evaluator.h"
#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

namespace tessera::command {

namespace {

// Figures are those of fixed targets, so that the table is the same on every machine.
CompileOptions options_of(std::string_view device) {
  CompileOptions o;
  o.device = device;
  o.target = device == "cuda" ? "h200" : "avx2";
  return o;
}

// Plans one graph after the other for a device.
class DevicePlans {
public:
  static Result<DevicePlans> create(std::string_view device) {
    DevicePlans plans;
    plans.options_ = options_of(device);
    TESSERA_ASSIGN(plans.backend_, make_backend(plans.options_));
    return plans;
  }
  [[nodiscard]] Result<std::vector<PlannedOperator>> plan(Graph graph) {
    return planned_operators(std::move(graph), *backend_, options_);
  }

private:
  CompileOptions options_;
  std::unique_ptr<Backend> backend_;
};

void add(OperatorRoutes& routes, const std::vector<PlannedOperator>& planned) {
  std::optional<ComputedBy> least;
  for (const PlannedOperator& p : planned) {
    if (p.by == ComputedBy::Host && routes.why.empty()) routes.why = p.why;
    least = least ? std::max(*least, p.by) : p.by;
  }
  if (least)
    routes.by.insert(*least);
  else
    routes.nothing_runs = true;
}

// Results of a node become outputs.
void yield_results(Graph& graph, NodeId id) {
  for (ValueId v : std::vector<ValueId>(graph.node(id).results))
    if (v.valid()) graph.add_output("y" + std::to_string(v.index), v);
}

// True if the sample's reference runs on its tensors: a record may take a type that only inference allows.
bool has_reference(const ops::SampleGraph& g, const Sample& sample) {
  std::vector<Tensor> operands = sample.operands;
  operands.resize(g.get().operands.size());
  return evaluate_node(g.graph, g.get(), operands, g.symbols).ok();
}

// The first result has another type than the operand.
bool converts_type(const OpDef& op, const Sample& sample) {
  const auto g = ops::sample_graph(op, sample, ops::Sizes::Static);
  return g.ok() && !g->get().results.empty() && g->graph.type(g->get().results[0]).dtype != ops::element_type(sample);
}

// The samples of each element type: the record's own, and for types that none of them has, the first that can be
// converted.
std::map<DType, std::vector<Sample>> samples_by_type(const OpDef& op, const std::optional<DType>& only) {
  std::map<DType, std::vector<Sample>> out;
  const std::vector<Sample> samples = op.samples ? op.samples() : std::vector<Sample>{};
  for (const Sample& s : samples) {
    auto dtype = ops::element_type(s);
    if (!dtype) { // of no operands: what its result is
      auto g = ops::sample_graph(op, s, ops::Sizes::Static);
      if (!g.ok() || g->get().results.empty()) continue;
      dtype = g->graph.type(g->get().results[0]).dtype;
    }
    if (!only || *only == *dtype) out[*dtype].push_back(s);
  }
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (out.contains(dtype) || (only && *only != dtype)) continue;
    for (const Sample& s : samples) {
      auto other = ops::with_element_type(s, dtype);
      if (!other || ops::element_type(s) == DType::Bool) continue;
      auto g = ops::sample_graph(op, *other, ops::Sizes::Static);
      if (!g.ok() || !has_reference(*g, *other)) continue;
      // A conversion to the type that the operand has already is none: another sample shows what runs.
      const bool converts = converts_type(op, s);
      if (!converts || converts_type(op, *other) || !out.contains(dtype)) out[dtype] = {*other};
      if (!converts || converts_type(op, *other)) break;
    }
  }
  return out;
}

Result<std::vector<OperatorRoutes>> routes_of(const onnx::KnownOperator& op, const std::vector<std::string>& names,
                                              std::vector<DevicePlans>& devices, const std::optional<DType>& only) {
  std::map<std::pair<size_t, DType>, OperatorRoutes> found;
  auto at = [&](size_t device, DType dtype) -> OperatorRoutes& {
    OperatorRoutes& r = found[{device, dtype}];
    r.device = names[device];
    r.dtype = dtype;
    return r;
  };
  if (op.records.empty() && op.domain.empty() && (!only || *only == DType::F32)) {
    TESSERA_ASSIGN(const Graph example, onnx::old_form_example(op.op_type));
    for (size_t d = 0; d < devices.size(); ++d) {
      TESSERA_ASSIGN(auto planned, devices[d].plan(example.clone()));
      add(at(d, DType::F32), planned);
    }
  }
  for (const OpDef* record : op.records)
    for (auto& [dtype, samples] : samples_by_type(*record, only))
      for (const Sample& sample : samples)
        for (auto sizes : {ops::Sizes::Static, ops::Sizes::Symbolic}) {
          auto g = ops::sample_graph(*record, sample, sizes);
          if (!g.ok()) continue; // equal sizes that are one symbol may contradict the operator
          yield_results(g->graph, g->node);
          for (size_t d = 0; d < devices.size(); ++d) {
            auto planned = devices[d].plan(g->graph.clone());
            if (!planned.ok())
              return std::move(planned).take_error().note("while planning a sample of '" + std::string(record->name) +
                                                          "' of " + std::string(name(dtype)));
            add(at(d, dtype), *planned);
          }
        }
  std::vector<OperatorRoutes> out;
  for (auto& [key, routes] : found) out.push_back(std::move(routes));
  return out;
}

// Keeps what the filter names; an error for a name that nothing has.
Status keep_named(std::vector<onnx::KnownOperator>& all, const OperatorFilter& filter) {
  auto named = [](const onnx::KnownOperator& k, const std::string& text) {
    return k.op_type == text || (k.domain.empty() ? "ai.onnx" : k.domain) + "." + k.op_type == text;
  };
  auto unknown = [&](const std::string& what, const std::string& text, const std::vector<std::string>& known) {
    Diagnostic d(ErrorCode::Usage, "there is no " + what + " '" + text + "'");
    if (const std::string close = similar(text, known); !close.empty()) d.note("did you mean '" + close + "'?");
    return d.note("'tessera ops' without it lists all");
  };
  std::vector<std::string> names, domains;
  for (const auto& k : all) {
    names.push_back(k.op_type);
    domains.push_back(k.domain.empty() ? "ai.onnx" : k.domain);
  }
  for (const std::string& text : filter.names)
    if (std::none_of(all.begin(), all.end(), [&](const auto& k) { return named(k, text); }))
      return unknown("operator", text, names);
  for (const std::string& text : filter.domains)
    if (std::find(domains.begin(), domains.end(), text) == domains.end()) return unknown("domain", text, domains);
  std::erase_if(all, [&](const onnx::KnownOperator& k) {
    const bool by_name = filter.names.empty() || std::any_of(filter.names.begin(), filter.names.end(),
                                                             [&](const std::string& t) { return named(k, t); });
    const bool by_domain =
        filter.domains.empty() || std::find(filter.domains.begin(), filter.domains.end(),
                                            k.domain.empty() ? "ai.onnx" : k.domain) != filter.domains.end();
    return !by_name || !by_domain;
  });
  return {};
}

} // namespace

Result<std::vector<OperatorRow>> operator_table(const OperatorFilter& filter) {
  std::vector<onnx::KnownOperator> known = onnx::known_operators();
  TESSERA_TRY(keep_named(known, filter));
  std::vector<OperatorRow> rows(known.size());
  std::mutex mutex;
  std::optional<Diagnostic> error;
  std::atomic<size_t> next = 0;
  auto work = [&] {
    auto plan = [&]() -> Status {
      std::vector<DevicePlans> devices;
      for (const std::string& name : filter.devices) {
        TESSERA_ASSIGN(DevicePlans plans, DevicePlans::create(name));
        devices.push_back(std::move(plans));
      }
      for (size_t i = next++; i < known.size(); i = next++) {
        TESSERA_ASSIGN(rows[i].routes, routes_of(known[i], filter.devices, devices, filter.dtype));
        rows[i].op = known[i];
      }
      return {};
    };
    if (auto status = plan(); !status.ok()) {
      const std::scoped_lock lock(mutex);
      if (!error) error = std::move(status).take_error();
      next = known.size();
    }
  };
  std::vector<std::thread> threads;
  for (size_t t = 1; t < std::min(static_cast<size_t>(usable_processors()), known.size()); ++t)
    threads.emplace_back(work);
  work();
  for (std::thread& t : threads) t.join();
  if (error) return *error;
  return rows;
}

std::string versions_text(const std::vector<onnx::KnownOperator::Versions>& versions) {
  std::string out;
  for (size_t i = 0; i < versions.size();) {
    const int since = versions[i].since;
    int until = versions[i].until;
    for (++i; i < versions.size() && versions[i].since <= until + 1; ++i) until = std::max(until, versions[i].until);
    out += (out.empty() ? "" : ", ") + std::to_string(since);
    if (until >= onnx::KnownOperator::kLatest)
      out += "-";
    else if (until > since)
      out += "-" + std::to_string(until);
  }
  return out;
}

namespace {
struct DTypeClass {
  std::string_view name;
  std::vector<DType> dtypes;
};
const std::vector<DTypeClass>& classes() {
  using enum DType;
  static const std::vector<DTypeClass> table = {
      {"int", {I8, I16, I32, I64, U8, U16, U32, U64}},
      {"float", {F16, BF16, F32, F64}},
      {"float4-8", {F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F8E8M0, F4E2M1}},
      {"int2-4", {I4, U4, I2, U2}},
      {"complex", {C64, C128}}};
  return table;
}
} // namespace

std::string dtypes_text(const std::set<DType>& dtypes) {
  std::set<DType> left = dtypes;
  std::string out;
  auto put = [&](std::string_view text) { out += (out.empty() ? "" : " ") + std::string(text); };
  if (left.erase(DType::Bool) > 0) put(name(DType::Bool));
  for (const DTypeClass& c : classes()) {
    if (std::all_of(c.dtypes.begin(), c.dtypes.end(), [&](DType d) { return dtypes.contains(d); })) {
      put(c.name);
      for (DType d : c.dtypes) left.erase(d);
      continue;
    }
    for (DType d : c.dtypes)
      if (left.erase(d) > 0) put(name(d));
  }
  for (DType d : left) put(name(d));
  return out;
}

std::vector<std::pair<std::string, std::string>> dtype_classes() {
  std::vector<std::pair<std::string, std::string>> out;
  for (const DTypeClass& c : classes()) {
    std::string all;
    for (DType d : c.dtypes) all += (all.empty() ? "" : ", ") + std::string(name(d));
    out.emplace_back(c.name, all);
  }
  return out;
}

std::string operators_page(const std::vector<OperatorRow>& rows) {
  std::string out =
      "<!-- generated: build/bin/tessera ops --markdown docs/operators.md -->\n"
      "# Operators\n\n"
      "Each operator that the importer of ONNX knows, the versions of its domain in which it does, and what "
      "computes it on each device, by element type of\n"
      "its first operand that is not bool. `generated` is a kernel of ours, `library` a call of oneDNN, "
      "cuBLASLt or cuDNN, `host` the reference on the\n"
      "host (CPU fallback); an operator that becomes several has the route of the least of them. Types "
      "stand in several where it depends on shapes or\n"
      "attributes. `-`: nothing runs. Element types: ";
  for (const auto& [c, dtypes] : dtype_classes()) out += "`" + c + "` is " + dtypes + "; ";
  out += "others stand by name.\n`tessera ops --json -` has the whole table, `tessera ops MODEL` what a model uses.\n";
  // Whatever the rows hold, in the order of preference.
  auto cell = [](const OperatorRow& row, std::string_view device) {
    std::string text;
    auto put = [&](std::string_view label, const std::set<DType>& dtypes) {
      if (!dtypes.empty())
        text += (text.empty() ? "" : "; ") + std::string(label) + (label.empty() ? "" : ": ") + dtypes_text(dtypes);
    };
    for (ComputedBy by : {ComputedBy::Generated, ComputedBy::Library, ComputedBy::Host}) {
      std::set<DType> dtypes;
      for (const OperatorRoutes& r : row.routes)
        if (r.device == device && r.by.contains(by)) dtypes.insert(r.dtype);
      put(name(by), dtypes);
    }
    std::set<DType> nothing;
    for (const OperatorRoutes& r : row.routes)
      if (r.device == device && r.by.empty()) nothing.insert(r.dtype);
    put("-", nothing);
    return text.empty() ? std::string("by its parts") : text;
  };
  std::optional<std::string> domain;
  for (const OperatorRow& row : rows) {
    if (domain != row.op.domain) {
      domain = row.op.domain;
      out += "\n## " + (domain->empty() ? "ai.onnx" : *domain) +
             "\n\n| operator | versions | CPU | GPU |\n|---|---|---|---|\n";
    }
    out += "| " + row.op.op_type + " | " + versions_text(row.op.versions) + " | " + cell(row, "cpu") + " | " +
           cell(row, "cuda") + " |\n";
  }
  return out;
}

} // namespace tessera::command
