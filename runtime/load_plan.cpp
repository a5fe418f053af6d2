#include "runtime/load_plan.h"
#include "base/file.h"
#include "runtime/file_fields.h"
#include <algorithm>
#include <bit>

namespace tessera::file {
namespace {

class PlanReader {
public:
  explicit PlanReader(OpenedFile& file) : file_(file) {}

  std::shared_ptr<Executable> run(const JsonValue& j) {
    exe_->target = file_.target;
    j.at("objects").each([&](const JsonValue& o) {
      const auto number = read_index<size_t>(o, file_.objects.size());
      const auto [at, bytes] = file_.objects[number];
      if (object_.emplace(number, static_cast<int>(exe_->objects.size())).second)
        exe_->objects.emplace_back(file_.chars(at), file_.chars(at) + bytes);
    });
    exe_->model_name = j.at("model").text();
    exe_->report = j.at("report").text();
    environment(j);
    j.at("constants").each([&](const JsonValue& c) { constant(c); });
    buffers_ = j.at("buffers").size();
    read(j.at("buffers"), exe_->buffers);
    j.at("steps").each([&](const JsonValue& s) {
      exe_->steps.push_back(step(s));
      std::visit([&](auto& made) { made.bytes = expr(s.at("bytes")); }, exe_->steps.back());
    });
    for (const auto& s : exe_->steps) {
      exe_->host_steps += std::holds_alternative<HostStep>(s) ? 1 : 0;
      if (const auto* c = std::get_if<ControlStep>(&s))
        for (const auto& body : c->bodies) exe_->host_steps += body.executable->host_steps;
    }
    read(j.at("inputs"), exe_->inputs);
    read(j.at("outputs"), exe_->outputs);
    exe_->states = j.at("states").list([&](const JsonValue& s) { return read_index<int>(s, exe_->constants.size()); });
    return exe_;
  }

private:
  void environment(const JsonValue& j) {
    constexpr int64_t kMax = int64_t{1} << 62;
    exe_->env = std::make_shared<ShapeEnv>();
    j.at("symbols").each([&](const JsonValue& s) {
      auto name = s.at(size_t{0}).text();
      SymRange range{s.at(1).integer(-kMax, kMax), s.at(2).integer(-kMax, kMax)};
      if (range.lo > range.hi) s.at(2).wrong("at least " + std::to_string(range.lo));
      auto symbol = exe_->env->create_symbol(name, range, s.at(3).integer<int64_t>(1, kMax));
      if (!symbols_.emplace(name, symbol).second) s.at(size_t{0}).wrong("a name that no other symbol has");
    });
    j.at("guards").each([&](const JsonValue& g) {
      Guard guard;
      guard.condition = expr(g.at("condition"));
      guard.cls = g.at("required").flag() ? GuardClass::Required : GuardClass::Assumed;
      guard.reason = g.at("reason").text();
      const auto w = g.at("where");
      guard.where.file = w.at(size_t{0}).text();
      guard.where.node = w.at(1).text();
      guard.where.op = w.at(2).text();
      guard.where.output = w.at(3).text();
      guard.where.line = w.at(4).integer(INT32_MIN, INT32_MAX);
      guard.where.column = w.at(5).integer(INT32_MIN, INT32_MAX);
      exe_->env->add_guard(std::move(guard));
    });
  }

  [[nodiscard]] SymExpr expr(const JsonValue& j) const { return read_expr(j, symbols_); }
  [[nodiscard]] std::vector<SymExpr> exprs(const JsonValue& j) const {
    return j.list([&](const JsonValue& e) { return expr(e); });
  }
  [[nodiscard]] BufferId buffer_id(const JsonValue& j, int64_t least = 0) const {
    return read_index<BufferId>(j, buffers_, least);
  }
  [[nodiscard]] std::vector<BufferId> buffer_ids(const JsonValue& j, int64_t least = 0) const {
    return j.list([&](const JsonValue& b) { return buffer_id(b, least); });
  }
  static std::vector<int64_t> ints(const JsonValue& j) {
    return j.list([](const JsonValue& v) { return v.integer(); });
  }
  template <class Enum>
  static Enum one_of(const JsonValue& j, Enum last) {
    return static_cast<Enum>(j.integer(0, static_cast<int>(last)));
  }

  // ---- values of fields (file_fields.h)
  template <class T>
  void read(const JsonValue& j, T& v) {
    if constexpr (std::is_same_v<T, bool>)
      v = j.flag();
    else if constexpr (std::is_same_v<T, int64_t>)
      v = j.integer();
    else if constexpr (std::is_same_v<T, double>)
      v = std::bit_cast<double>(j.integer());
    else if constexpr (std::is_same_v<T, std::string>)
      v = j.text();
    else if constexpr (std::is_same_v<T, DType>)
      v = j.dtype();
    else if constexpr (std::is_same_v<T, SymExpr>)
      v = expr(j);
    else if constexpr (std::is_same_v<T, KernelLaunch>)
      v = kernel(j);
    else
      each_field(v, [&](std::string_view key, auto& field, const auto&... how) {
        if (!is_left_out(field, how...) || j.has(key)) read(j.at(key), field, how...); // as it is before
      });
  }
  template <class T, class... How>
  void read(const JsonValue& j, std::vector<T>& list, How... how) {
    j.each([&](const JsonValue& one) {
      T v{};
      read(one, v, how...);
      list.push_back(std::move(v));
    });
  }
  template <class T>
  void read(const JsonValue& j, std::optional<T>& v) {
    read(j, v.emplace());
  }
  template <class T>
  void read(const JsonValue& j, std::optional<T>& v, OrNull) {
    if (!j.is_null()) read(j, v.emplace());
  }
  template <class Enum>
  void read(const JsonValue& j, Enum& v, Last<Enum> of) {
    v = one_of(j, of.last);
  }
  void read(const JsonValue& j, int& v, Within in) { v = static_cast<int>(j.integer(in.least, in.most)); }
  void read(const JsonValue& j, int& v, UnlessZero) { v = static_cast<int>(j.integer<int64_t>(0, kMaxSteps)); }
  void read(const JsonValue& j, double& v, UnlessOne) { read(j, v); }
  void read(const JsonValue& j, bool& v, UnlessFalse) { read(j, v); }
  void read(const JsonValue& j, BufferId& v, BufferRef ref) { v = buffer_id(j, ref.least); }
  void read(const JsonValue& j, int& v, ConstantRef) { v = read_index<int>(j, exe_->constants.size(), -1); }
  void read(const JsonValue& j, std::tuple<double&, double&>& both) {
    read(j.at(size_t{0}), std::get<0>(both));
    read(j.at(1), std::get<1>(both));
  }
  void read(const JsonValue& j, std::vector<StepDefines>& v, ResultsOf step) {
    constexpr int64_t kMaxDims = 64, kMaxElements = 1024;
    v = j.list([&](const JsonValue& d) {
      return StepDefines{expr(d.at(size_t{0})), read_index<int>(d.at(1), step.count),
                         static_cast<int>(d.at(2).integer<int64_t>(-1, kMaxDims - 1)),
                         static_cast<int>(d.at(3).integer<int64_t>(-1, kMaxElements - 1))};
    });
  }
  void read(const JsonValue& j, ControlBody& body) {
    constexpr int kDeepest = 64;
    if (file_.depth >= kDeepest) corrupt("its bodies are nested more than " + std::to_string(kDeepest) + " deep");
    const auto& section = file_.sections[read_index<size_t>(j.at("section"), file_.sections.size())];
    auto variants = read_file(file_.path, {file_.bytes.owner, file_.bytes.data + section.first, section.second},
                              file_.parts, file_.depth + 1);
    if (variants.size() != 1) j.at("section").wrong("a body, of one variant");
    body.executable = std::move(variants.front().executable);
    j.at("arguments").each([&](const JsonValue& a) {
      body.arguments.push_back({one_of(a.at(size_t{0}), BodyArgument::Source::Size), buffer_id(a.at(1), -1),
                                a.at(2).integer(-1, INT32_MAX), a.at(3).flag(), expr(a.at(4))});
    });
  }
  template <class T>
  T made(const JsonValue& j) {
    T out{};
    read(j, out);
    return out;
  }

  void constant(const JsonValue& j) {
    Constant c;
    c.name = j.at("name").text();
    auto type = j.at("dtype").dtype();
    Dims dims = ints(j.at("dims"));
    auto count = element_count(dims);
    if (!count.ok()) j.at("dims").wrong("dimensions of a tensor (" + count.error().message + ")");
    if (type == DType::List) j.at("dtype").wrong("a type of tensors");
    if (type == DType::String) {
      c.value = Tensor::strings(dims, strings(j.at("section"), static_cast<size_t>(*count)));
      exe_->constants.push_back(std::move(c));
      return;
    }
    auto bytes = static_cast<size_t>(byte_size(type, *count));
    Storage storage;
    std::string source = file_.path;
    if (j.has("section")) {
      auto s = read_index<size_t>(j.at("section"), file_.sections.size());
      if (file_.sections[s].second != bytes) j.at("section").wrong("a section of " + std::to_string(bytes) + " bytes");
      storage = {file_.bytes.owner, file_.bytes.data + file_.sections[s].first, bytes};
    } else {
      source = j.at("file").text();
      const auto& mapped = weights(source, c.name);
      auto offset = j.at("offset").word();
      if (offset > mapped.bytes || bytes > mapped.bytes - offset)
        corrupt("'" + source + "' is too short for constant '" + c.name + "'");
      storage = {mapped.owner, mapped.data + offset, bytes};
    }
    auto hash = sample_hash(storage.data, bytes);
    if (hash.lo != j.at("hash").at(size_t{0}).word() || hash.hi != j.at("hash").at(1).word())
      corrupt("the weights of '" + c.name + "' in '" + source + "' have changed since it was written");
    const auto alignment = static_cast<uintptr_t>(std::clamp(info(type).bits / 8, 1, 8));
    if (reinterpret_cast<uintptr_t>(storage.data) % alignment == 0) {
      c.value = Tensor::view(type, std::move(dims), std::move(storage));
    } else {
      auto copy = Tensor::create(type, std::move(dims));
      if (!copy.ok()) throw Failed{std::move(copy).take_error()};
      std::memcpy(copy->mutable_data(), storage.data, bytes);
      drop_pages(storage.data, bytes);
      c.value = std::move(*copy);
    }
    exe_->constants.push_back(std::move(c));
  }

  // The strings of a section as strings_section() writes it.
  [[nodiscard]] std::vector<std::string> strings(const JsonValue& j, size_t count) const {
    const auto [at, bytes] = file_.sections[read_index<size_t>(j, file_.sections.size())];
    if (count > bytes / sizeof(uint64_t)) j.wrong("a section of " + std::to_string(count) + " strings");
    const std::string_view all(file_.chars(at) + count * sizeof(uint64_t), bytes - count * sizeof(uint64_t));
    std::vector<std::string> out;
    out.reserve(count);
    uint64_t begin = 0, end = 0;
    for (size_t i = 0; i < count; ++i, begin = end) {
      std::memcpy(&end, file_.chars(at) + i * sizeof end, sizeof end);
      if (end < begin || end > all.size()) corrupt(j.place() + ": string " + std::to_string(i) + " ends elsewhere");
      out.emplace_back(all.substr(begin, end - begin));
    }
    return out;
  }

  // A weight file where it was, or next to the executable.
  const Storage& weights(const std::string& source, const std::string& constant) {
    if (file_.parts) {
      const auto part = file_.parts->find(source);
      if (part == file_.parts->end()) corrupt("the model has no part '" + source + "' for constant '" + constant + "'");
      return part->second;
    }
    auto it = file_.mapped.find(source);
    if (it != file_.mapped.end()) return it->second;
    auto mapped = map_file(source);
    if (!mapped.ok()) {
      auto folder = file_.path.find_last_of('/');
      auto weights_path = (folder == std::string::npos ? "" : file_.path.substr(0, folder + 1)) +
                          source.substr(source.find_last_of('/') + 1);
      auto second = map_file(weights_path);
      if (!second.ok()) {
        Diagnostic d = mapped.error();
        d.note("it holds the weights of '" + constant + "', to which '" + file_.path +
               "' refers; compile with embedded weights to make it independent");
        throw Failed{std::move(d)};
      }
      mapped = std::move(second);
    }
    return file_.mapped.emplace(source, std::move(*mapped)).first->second;
  }

  KernelLaunch kernel(const JsonValue& j) {
    KernelLaunch k{launch(j)};
    k.name = j.at("name").text();
    k.buffers = buffer_ids(j.at("buffers"));
    if (k.buffers.size() != k.access.size()) j.at("buffers").wrong(std::to_string(k.access.size()) + " buffers");
    if (!j.has("alternatives")) return k;
    j.at("alternatives").each([&](const JsonValue& a) {
      KernelLaunch other{launch(a)};
      other.name = k.name;
      other.buffers = k.buffers;
      k.alternatives.push_back(std::move(other));
    });
    return k;
  }
  // A contract with the sizes of this launch in the place of its parameters: that of a launch before where they are
  // equal, as in layers of a model.
  LaunchSpec launch(const JsonValue& j) {
    const auto number = read_index<size_t>(j.at("contract"), file_.contracts.size());
    std::string key = std::to_string(number);
    j.at("arguments").each([&](const JsonValue& a) { key += '\n' + a.text(); });
    auto known = launches_.find(key);
    if (known == launches_.end()) known = launches_.emplace(std::move(key), placed(j, file_.contracts[number])).first;
    LaunchSpec k = known->second;
    read(j.at("sites"), k.report_sites);
    return k;
  }
  LaunchSpec placed(const JsonValue& j, const Contract& c) const {
    auto arguments = exprs(j.at("arguments"));
    if (arguments.size() != c.parameters.size())
      j.at("arguments").wrong(std::to_string(c.parameters.size()) + " sizes");
    std::unordered_map<uint64_t, SymExpr> by_parameter;
    for (size_t p = 0; p < arguments.size(); ++p) by_parameter.emplace(c.parameters[p].symbol_id(), arguments[p]);
    LaunchSpec k = c.launch;
    const auto object = object_.find(static_cast<size_t>(k.object));
    if (object == object_.end()) j.at("contract").wrong("a kernel whose code the variant has");
    k.object = object->second;
    static_cast<LaunchSizes<SymExpr>&>(k) = convert_sizes<SymExpr>(
        c.launch, [&](const LaunchField&, const SymExpr& size) { return size.substitute(by_parameter); });
    return k;
  }
  Step step(const JsonValue& j) {
    if (j.has("kernel")) return kernel(j.at("kernel"));
    if (j.has("copy")) return made<CopyStep>(j.at("copy"));
    if (j.has("host")) return made<HostStep>(j.at("host"));
    if (j.has("control")) return made<ControlStep>(j.at("control"));
    return library(j.at("library"));
  }
  LibraryStep library(const JsonValue& j) {
    static const decltype(LibraryStep::call) empty[] = {MatmulCall(), ConvCall(), PoolCall(), FusedAttentionCall()};
    auto s = made<LibraryStep>(j);
    const auto* name = std::find(std::begin(kCalls), std::end(kCalls), j.at("call").text());
    if (name == std::end(kCalls)) j.at("call").wrong("matmul, conv, pool or attention");
    s.call = empty[name - std::begin(kCalls)];
    std::visit([&](auto& call) { read(j, call); }, s.call);
    return s;
  }

  OpenedFile& file_;
  std::shared_ptr<Executable> exe_ = std::make_shared<Executable>();
  size_t buffers_ = 0;
  std::unordered_map<size_t, int> object_; // by number in the file, in the executable
  Symbols symbols_;
  std::map<std::string, LaunchSpec> launches_; // by contract and arguments
};

} // namespace

SymExpr read_expr(const JsonValue& j, const Symbols& symbols) {
  auto text = j.text();
  auto e = parse_sym(text, [&](std::string_view name) -> Result<SymExpr> {
    auto it = symbols.find(name);
    if (it != symbols.end()) return it->second;
    return Diagnostic(ErrorCode::ParseError, "there is no symbol '" + std::string(name) + "'");
  });
  if (!e.ok()) j.wrong("a size (" + e.error().message + ")");
  return *e;
}

std::shared_ptr<Executable> read_plan(OpenedFile& file, const JsonValue& plan) { return PlanReader(file).run(plan); }

} // namespace tessera::file
