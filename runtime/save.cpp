#include "base/json_text.h"
#include "runtime/executor.h"
#include "runtime/file_fields.h"
#include "runtime/file_format.h"
#include "runtime/file_parts.h"
#include "runtime/mapped_regions.h"
#include "runtime/variant.h"
#include "symbols/input_rank.h"
#include <algorithm>
#include <bit>
#include <deque>
#include <map>
#include <mutex>
#include <set>

namespace tessera {
namespace {
using Json = JsonText;

Result<std::string> file_bytes(const Executable& executable, const BytesPlaceFn& place);

// Symbols by name in the file; two of the same name are distinguished by a suffix.
class SymbolNames {
public:
  void add(const SymExpr& e) {
    for (const auto& s : e.symbols()) {
      if (!name_.emplace(s.symbol_id(), "").second) continue;
      place_.emplace(s.symbol_id(), order_.size());
      std::string name = s.symbol_name();
      for (int i = 2; !used_.insert(name).second; ++i) name = s.symbol_name() + "_" + std::to_string(i);
      name_[s.symbol_id()] = name;
      if (name != s.symbol_name()) renamed_.emplace(s.symbol_id(), SymExpr::symbol(name));
      order_.push_back(s);
    }
  }
  std::string text(const SymExpr& e) {
    add(e);
    return renamed_.empty() ? e.str() : e.substitute(renamed_).str();
  }
  [[nodiscard]] const std::vector<SymExpr>& order() const { return order_; }
  [[nodiscard]] const std::string& name(const SymExpr& s) const { return name_.at(s.symbol_id()); }
  [[nodiscard]] size_t place(const SymExpr& s) const { return place_.at(s.symbol_id()); } // in order()

private:
  std::map<uint64_t, std::string> name_;
  std::unordered_map<uint64_t, size_t> place_;
  std::set<std::string> used_;
  std::unordered_map<uint64_t, SymExpr> renamed_;
  std::vector<SymExpr> order_;
};

// The plan of one executable. What it shares with others goes to the parts of the file.
class Writer {
public:
  Writer(const Executable& e, file::FileParts& parts) : e_(e), parts_(parts) {}

  // Adds to an object.
  Status plan(Json& j) {
    for (const auto& o : e_.objects) objects_.push_back(parts_.objects.add(std::as_bytes(std::span(o))));
    j.add("objects", objects_);
    j.add("model", e_.model_name);
    j.add("report", e_.report);
    j.add("buffers", value(e_.buffers));
    Json steps = Json::array();
    for (const auto& s : e_.steps) {
      Json json = step(s);
      json.add("bytes", names_.text(bytes_of(s)));
      steps.push_back(json);
    }
    j.add("steps", steps);
    j.add("inputs", bindings(e_.inputs));
    j.add("outputs", bindings(e_.outputs));
    j.add("states", e_.states);
    Json guards = Json::array();
    auto bound = bound_symbols();
    for (const auto& g : e_.env->guards())
      guards.push_back(Json::object({{"condition", names_.text(rewritten(g.condition, bound))},
                                     {"required", g.cls == GuardClass::Required},
                                     {"reason", g.reason},
                                     {"where", Json::array({g.where.file, g.where.node, g.where.op, g.where.output,
                                                            g.where.line, g.where.column})}}));
    j.add("guards", guards);
    j.add("constants", constants());
    Json symbols = Json::array();
    for (const auto& s : names_.order()) {
      auto range = e_.env->range(s);
      const int64_t divisor = std::max<int64_t>(e_.env->divisor(s), 1); // 0 of a symbol that is always 0
      symbols.push_back(Json::array({names_.name(s), range.lo, range.hi, divisor}));
    }
    j.add("symbols", symbols);
    return std::move(failed_);
  }

private:
  [[nodiscard]] std::set<uint64_t> bound_symbols() const {
    std::set<uint64_t> bound;
    for (const auto& in : e_.inputs)
      for (const auto& d : e_.buffers[static_cast<size_t>(in.buffer)].shape)
        for (const auto& s : d.symbols()) bound.insert(s.symbol_id());
    for (const auto& in : e_.inputs)
      if (const auto rank = e_.env->find(rank_symbol(in.name))) bound.insert(rank->symbol_id());
    for (const auto& step : e_.steps)
      for (const auto& d : defines_of(step)) bound.insert(d.symbol.symbol_id());
    return bound;
  }
  // A guard over a symbol that was replaced by another one, as GuardSet reads it.
  [[nodiscard]] SymExpr rewritten(const SymExpr& condition, const std::set<uint64_t>& bound) const {
    for (const auto& s : condition.symbols())
      if (!bound.count(s.symbol_id())) return condition.substitute(e_.env->substitutions());
    return condition;
  }
  Json bindings(const std::vector<Binding>& v) {
    Json j = Json::array();
    for (const auto& b : v) {
      if (const auto rank = e_.env->find(rank_symbol(b.name))) names_.add(*rank); // that calls decide it
      j.push_back(value(b));
    }
    return j;
  }

  // ---- values of fields (file_fields.h)
  template <class T>
  Json value(const T& v) {
    if constexpr (std::is_same_v<T, double>) {
      return std::bit_cast<int64_t>(v); // JSON has no infinity, and a bound of a clip may be one
    } else if constexpr (std::is_same_v<T, DType>) {
      return name(v);
    } else if constexpr (std::is_enum_v<T>) {
      return static_cast<int>(v);
    } else if constexpr (std::is_integral_v<T> || std::is_same_v<T, std::string>) {
      return v;
    } else if constexpr (std::is_same_v<T, SymExpr>) {
      return names_.text(v);
    } else if constexpr (std::ranges::range<T>) {
      Json all = Json::array();
      for (const auto& one : v) all.push_back(value(one));
      return all;
    } else {
      return object(v);
    }
  }
  template <class T>
  Json value(const std::optional<T>& v) {
    return v ? value(*v) : Json();
  }
  Json value(const std::tuple<const double&, const double&>& v) {
    return Json::array({value(std::get<0>(v)), value(std::get<1>(v))});
  }
  Json value(const KernelLaunch& k) { return kernel(k); }
  Json value(const StepDefines& d) { return Json::array({names_.text(d.symbol), d.result, d.dim, d.element}); }
  // Bodies are files in sections of this one.
  Json value(const ControlBody& body) {
    Json arguments = Json::array();
    for (const auto& a : body.arguments)
      arguments.push_back(Json::array({static_cast<int>(a.source), a.buffer, a.index, a.reverse, names_.text(a.size)}));
    auto bytes = file_bytes(*body.executable, parts_.place);
    if (!bytes.ok()) return fail(std::move(bytes).take_error());
    return Json::object({{"section", parts_.sections.take(std::move(*bytes))}, {"arguments", arguments}});
  }
  template <class T>
  Json object(const T& of) {
    Json j = Json::object();
    add(of, j);
    return j;
  }
  template <class T>
  void add(const T& of, Json& j) {
    file::each_field(of, [&](std::string_view key, const auto& v, const auto&... how) {
      if (!file::is_left_out(v, how...)) j.add(key, value(v));
    });
  }
  Json fail(Diagnostic error) {
    if (failed_.ok()) failed_ = std::move(error);
    return {};
  }

  // A launch: its buffers, and what it gives for the parameters of its kernel's contract.
  Json kernel(const KernelLaunch& k) {
    Json j = Json::object({{"name", k.name}, {"buffers", k.buffers}, {"sites", value(k.report_sites)}});
    contract(k, j);
    if (k.alternatives.empty()) return j;
    Json alternatives = Json::array();
    for (const auto& a : k.alternatives) {
      Json alternative = Json::object({{"sites", value(a.report_sites)}});
      contract(a, alternative);
      alternatives.push_back(alternative);
    }
    j.add("alternatives", alternatives);
    return j;
  }
  // Writes the part of a launch that depends on its code alone: the launch over parameters p0, p1 ... in the place of
  // its symbols. Launches that say the same share it, as layers of a model do.
  void contract(const KernelLaunch& k, Json& launch) {
    if (k.access.size() != k.buffers.size())
      fail({ErrorCode::Internal, "the executable cannot be saved: a kernel does not say what it accesses"});
    auto arguments = symbols_of(k);
    std::unordered_map<uint64_t, SymExpr> parameter;
    for (size_t p = 0; p < arguments.size(); ++p) parameter.emplace(arguments[p].symbol_id(), file::parameter(p));
    auto text = [&](const SymExpr& e) { return e.substitute(parameter).str(); };
    Json contract = Json::object({{"object", file_object(k.object)}, {"parameters", arguments.size()}});
    each_launch_field(k, [&](const LaunchField& field, const auto& value) {
      if constexpr (std::is_same_v<decltype(value), const bool&> || std::is_same_v<decltype(value), const int&>)
        if (!value) return;
      if constexpr (std::is_same_v<decltype(value), const std::vector<TensorMapOf<SymExpr>>&>)
        if (value.empty()) return;
      contract.add(field.key, json(value, k, text));
    });
    launch.add("contract", parts_.contract(contract));
    launch.add("arguments", value(arguments));
  }
  // The value of a field of launch `k`.
  static Json json(std::integral auto value, const KernelLaunch&, const auto&) { return value; }
  static Json json(const std::string& value, const KernelLaunch&, const auto&) { return value; }
  static Json json(const SymExpr& size, const KernelLaunch&, const auto& text) { return text(size); }
  static Json json(const Workspace& w, const KernelLaunch&, const auto& text) {
    return Json::array({name(w.dtype), text(w.count)});
  }
  static Json json(const TensorMapOf<SymExpr>& m, const KernelLaunch& k, const auto& text) {
    return Json::array({m.buffer, name(m.dtype), text(m.offset), json(m.dims, k, text), json(m.strides, k, text), m.box,
                        static_cast<int>(m.swizzle), m.steps});
  }
  static Json json(const SizeCondition& c, const KernelLaunch&, const auto& text) {
    return Json::array({text(c.value), c.multiple_of, c.min, c.max});
  }
  static Json json(const KernelAccess& a, const KernelLaunch& k, const auto& text) {
    const auto buffer = static_cast<size_t>(&a - k.access.data());
    return Json::array(
        {name(a.dtype), text(a.elements), buffer < k.written.size() && k.written[buffer], a.may_overwrite});
  }
  template <class T>
  static Json json(const std::vector<T>& list, const KernelLaunch& k, const auto& text) {
    Json all = Json::array();
    for (const T& one : list) all.push_back(json(one, k, text));
    return all;
  }
  // The number of an object in the file.
  [[nodiscard]] int64_t file_object(int object) const {
    return object < 0 || static_cast<size_t>(object) >= objects_.size()
               ? -1
               : static_cast<int64_t>(objects_[static_cast<size_t>(object)]);
  }
  // In the order in which the file names them: what was loaded is saved the same.
  std::vector<SymExpr> symbols_of(const KernelLaunch& k) {
    std::set<SymExpr> found;
    auto add = [&](const SymExpr& e) {
      names_.add(e);
      for (const auto& s : e.symbols()) found.insert(s);
    };
    each_size(k, add);
    std::vector<SymExpr> ordered(found.begin(), found.end());
    std::sort(ordered.begin(), ordered.end(),
              [&](const SymExpr& a, const SymExpr& b) { return names_.place(a) < names_.place(b); });
    return ordered;
  }
  Json step(const Step& step) {
    if (const auto* k = std::get_if<KernelLaunch>(&step)) return Json::object({{"kernel", kernel(*k)}});
    if (const auto* c = std::get_if<CopyStep>(&step)) return Json::object({{"copy", object(*c)}});
    if (const auto* h = std::get_if<HostStep>(&step)) {
      if (h->payload.empty())
        fail({ErrorCode::UnsupportedFeature, "the executable cannot be saved: '" + h->name + "' (" + h->op +
                                                 ") runs by its reference, and its text cannot be read again"});
      return Json::object({{"host", object(*h)}});
    }
    if (const auto* c = std::get_if<ControlStep>(&step)) return Json::object({{"control", object(*c)}});
    const auto& l = std::get<LibraryStep>(step);
    Json library = object(l);
    library.add("call", file::kCalls[l.call.index()]);
    std::visit([&](const auto& call) { add(call, library); }, l.call);
    return Json::object({{"library", library}});
  }

  Json constants() {
    Json out = Json::array();
    for (const auto& c : e_.constants) {
      const auto& t = c.value;
      Json j = Json::object({{"name", c.name}, {"dtype", name(t.dtype())}, {"dims", t.dims()}});
      if (t.dtype() == DType::String) {
        j.add("section", parts_.sections.take(
                             file::strings_section(t.count() > 0 ? t.string_values() : std::vector<std::string>())));
      } else {
        auto hash = file::sample_hash(t.data(), t.bytes());
        j.add("hash", Json::array({hash.lo, hash.hi}));
        if (const auto place = parts_.place ? parts_.place(t.data(), t.bytes()) : std::nullopt) {
          j.add("file", place->file);
          j.add("offset", place->offset);
        } else {
          j.add("section", parts_.sections.add({t.data(), t.bytes()}));
        }
      }
      out.push_back(j);
    }
    return out;
  }

  const Executable& e_;
  file::FileParts& parts_;
  SymbolNames names_;
  std::vector<size_t> objects_; // by index in the executable, in the file
  Status failed_;               // the first error
};

} // namespace

namespace {
// All of a file but the sections, which follow at aligned places.
struct FileHead {
  explicit FileHead(BytesPlaceFn place) { parts.place = std::move(place); }
  bool exact = false; // a text that is no UTF-8 is an error
  file::FileParts parts;
  file::Header header;
  std::string body; // all that is hashed

  Status make(std::span<const FileExecutable> variants) {
    Json plans = Json::array();
    const std::string& target = variants.front().executable->target;
    for (const FileExecutable& v : variants) {
      if (v.executable->target != target)
        return Diagnostic(ErrorCode::Internal,
                          "variants of one file are for '" + target + "' and '" + v.executable->target + "'");
      Json j = Json::object({{"label", v.label}, {"conditions", v.conditions}});
      TESSERA_TRY(Writer(*v.executable, parts).plan(j));
      plans.push_back(j);
    }
    const auto sizes = [](const file::DistinctBytes& all) {
      Json j = Json::array();
      for (const auto& bytes : all.all()) j.push_back(bytes.size());
      return j;
    };
    // Names come from models: bytes that are no UTF-8 are replaced, which only changes how they print.
    const Json plan = Json::object({{"variants", plans}, {"sections", sizes(parts.sections)}});
    const Json code =
        Json::object({{"target", target}, {"objects", sizes(parts.objects)}, {"kernels", parts.contracts}});
    if (exact && plan.repaired()) return Diagnostic(ErrorCode::UnsupportedFeature, "a name in it is no UTF-8");
    auto align = [&] { body.resize(file::aligned(sizeof(file::Header) + body.size()) - sizeof(file::Header)); };
    std::memcpy(header.magic, file::kMagic, sizeof header.magic);
    body = plan.str();
    header.plan_bytes = body.size();
    body += code.str();
    header.code_bytes = body.size() - header.plan_bytes;
    for (const auto& o : parts.objects.all()) {
      align();
      body.append(reinterpret_cast<const char*>(o.data()), o.size());
    }
    align();
    header.hashed_bytes = body.size();
    header.file_bytes = sizeof header + body.size();
    for (const auto& s : parts.sections.all()) header.file_bytes = file::aligned(header.file_bytes + s.size());
    header.hash = file::contents_hash(header, body);
    return {};
  }
  // Calls write(data, bytes) with everything in order.
  template <class Write>
  Status each(const Write& write) const {
    static constexpr char kZeros[file::kAlignment] = {};
    TESSERA_TRY(write(&header, sizeof header));
    TESSERA_TRY(write(body.data(), body.size()));
    for (const auto& s : parts.sections.all()) {
      TESSERA_TRY(write(s.data(), s.size()));
      TESSERA_TRY(write(kZeros, file::aligned(s.size()) - s.size()));
    }
    return {};
  }
};

// The executable as the only variant of a file, which does not own it.
FileExecutable only(const Executable& executable) {
  return {.executable = std::shared_ptr<const Executable>(std::shared_ptr<void>(), &executable)};
}

// In files that this process has mapped; one that was deleted since is none.
BytesPlaceFn in_mapped_files() {
  auto regions = std::make_shared<const MappedRegions>(MappedRegions::of_this_process());
  return [regions](const void* data, size_t bytes) -> std::optional<BytesPlace> {
    auto place = regions->find(data, bytes);
    if (!place || ::access(place->path.c_str(), R_OK) != 0) return std::nullopt;
    return BytesPlace{std::move(place->path), place->offset};
  };
}

Result<std::string> file_bytes(const FileHead& head) {
  std::string bytes;
  bytes.reserve(head.header.file_bytes);
  TESSERA_TRY(head.each([&](const void* data, size_t count) {
    bytes.append(static_cast<const char*>(data), count);
    return Status();
  }));
  return bytes;
}
Result<std::string> file_bytes(const Executable& executable, const BytesPlaceFn& place) {
  FileHead head(place);
  const FileExecutable variant = only(executable);
  TESSERA_TRY(head.make({&variant, 1}));
  return file_bytes(head);
}
} // namespace

Status save_executables(std::span<const FileExecutable> variants, const std::string& path, bool embed_weights) {
  TESSERA_CHECK(!variants.empty(), "a file has at least one variant");
  FileHead head(embed_weights ? BytesPlaceFn() : in_mapped_files());
  TESSERA_TRY(head.make(variants));
  TESSERA_ASSIGN(auto out, NewFile::create(path));
  TESSERA_TRY(head.each([&](const void* data, size_t count) { return out.write(data, count); }));
  return out.commit(true);
}

Result<std::string> plan_bytes(const Executable& executable, const BytesPlaceFn& place, int64_t most) {
  FileHead head(place);
  head.exact = true;
  const FileExecutable variant = only(executable);
  TESSERA_TRY(head.make({&variant, 1}));
  if (head.header.file_bytes > static_cast<uint64_t>(most))
    return Diagnostic(ErrorCode::UnsupportedFeature, "it has " + std::to_string(head.header.file_bytes) +
                                                         " bytes with the constants that were computed, more than " +
                                                         std::to_string(most));
  return file_bytes(head);
}

Status save_executable(const Executable& executable, const std::string& path, bool embed_weights) {
  const FileExecutable variant = only(executable);
  return save_executables({&variant, 1}, path, embed_weights);
}

} // namespace tessera
