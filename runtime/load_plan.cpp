#include "runtime/load_plan.h"
#include "base/file.h"
#include <algorithm>
#include <bit>

namespace tessera::file {
namespace {

constexpr int64_t kMaxSteps = INT32_MAX - 1;

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
    j.at("buffers").each([&](const JsonValue& b) { buffer(b); });
    j.at("steps").each([&](const JsonValue& s) {
      exe_->steps.push_back(step(s));
      std::visit([&](auto& made) { made.bytes = expr(s.at("bytes")); }, exe_->steps.back());
    });
    for (const auto& s : exe_->steps) {
      exe_->host_steps += std::holds_alternative<HostStep>(s) ? 1 : 0;
      if (const auto* c = std::get_if<ControlStep>(&s))
        for (const auto& body : c->bodies) exe_->host_steps += body.executable->host_steps;
    }
    bindings(j.at("inputs"), exe_->inputs);
    bindings(j.at("outputs"), exe_->outputs);
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
  static std::vector<std::string> texts(const JsonValue& j) {
    return j.list([](const JsonValue& t) { return t.text(); });
  }
  static std::vector<int64_t> ints(const JsonValue& j) {
    return j.list([](const JsonValue& v) { return v.integer(); });
  }
  static double real(const JsonValue& bits) { return std::bit_cast<double>(bits.integer()); }
  template <class Enum>
  static Enum one_of(const JsonValue& j, Enum last) {
    return static_cast<Enum>(j.integer(0, static_cast<int>(last)));
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

  void buffer(const JsonValue& j) {
    BufferInfo b;
    b.name = j.at("name").text();
    b.kind = one_of(j.at("kind"), BufferInfo::Kind::Temporary);
    b.dtype = j.at("dtype").dtype();
    b.shape = exprs(j.at("shape"));
    b.constant = read_index<int>(j.at("constant"), exe_->constants.size(), -1);
    b.first_step = static_cast<int>(j.at("first").integer<int64_t>(0, kMaxSteps));
    b.last_step = static_cast<int>(j.at("last").integer<int64_t>(-1, kMaxSteps));
    b.in_place_of = buffer_id(j.at("in_place_of"), -1);
    b.dynamic = j.at("dynamic").flag();
    exe_->buffers.push_back(std::move(b));
  }
  void bindings(const JsonValue& j, std::vector<Binding>& out) const {
    j.each([&](const JsonValue& b) {
      out.push_back({b.at("name").text(), buffer_id(b.at("buffer")), exprs(b.at("indexed")), b.at("list").text()});
    });
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
    k.report_sites = j.at("sites").list([&](const JsonValue& s) {
      IndexCheck c{s.at("table").text(), s.at("indices").text(), s.at("node").text()};
      if (!s.at("extent").is_null()) c.extent = expr(s.at("extent"));
      c.from_end = s.at("from_end").flag();
      c.shape = exprs(s.at("shape"));
      c.component = s.at("component").integer(-1, 64);
      c.failure = s.at("failure").text();
      return c;
    });
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
  StridedOperand operand(const JsonValue& j) const {
    return {buffer_id(j.at("buffer")), exprs(j.at("shape")), exprs(j.at("strides")), expr(j.at("offset"))};
  }
  std::optional<EpilogueKernel> epilogue(const JsonValue& j) {
    if (j.is_null()) return std::nullopt;
    return EpilogueKernel{kernel(j.at("kernel")), exprs(j.at("begin")), exprs(j.at("count"))};
  }
  std::optional<LibraryEpilogue> fused(const JsonValue& call) const {
    if (!call.has("fused")) return std::nullopt;
    const auto j = call.at("fused");
    LibraryEpilogue e;
    e.alpha = real(j.at("alpha"));
    e.bias_dim = j.at("bias_dim").integer(-1, 64);
    e.activation = one_of(j.at("activation"), LibraryEpilogue::Activation::Tanh);
    e.clip_low = real(j.at("clip").at(size_t{0}));
    e.clip_high = real(j.at("clip").at(1));
    if (j.has("bias")) e.bias = operand(j.at("bias"));
    if (j.has("residual")) e.residual = operand(j.at("residual"));
    return e;
  }

  Step step(const JsonValue& j) {
    if (j.has("kernel")) return kernel(j.at("kernel"));
    if (j.has("copy")) {
      const auto c = j.at("copy");
      return CopyStep{c.at("name").text(), buffer_id(c.at("source")), buffer_id(c.at("target"))};
    }
    if (j.has("host")) return host(j.at("host"));
    if (j.has("control")) return control(j.at("control"));
    return library(j.at("library"));
  }
  HostStep host(const JsonValue& j) const {
    HostStep s;
    s.name = j.at("name").text();
    s.op = j.at("op").text();
    s.reason = j.at("reason").text();
    s.payload = j.at("payload").text();
    s.inputs = buffer_ids(j.at("inputs"), -1);
    s.outputs = buffer_ids(j.at("outputs"), -1);
    s.defines = defines(j.at("defines"), s.outputs.size());
    return s;
  }
  [[nodiscard]] std::vector<StepDefines> defines(const JsonValue& j, size_t outputs) const {
    constexpr int64_t kMaxDims = 64, kMaxElements = 1024;
    return j.list([&](const JsonValue& d) {
      return StepDefines{expr(d.at(size_t{0})), read_index<int>(d.at(1), outputs),
                         static_cast<int>(d.at(2).integer<int64_t>(-1, kMaxDims - 1)),
                         static_cast<int>(d.at(3).integer<int64_t>(-1, kMaxElements - 1))};
    });
  }
  ControlStep control(const JsonValue& j) const {
    constexpr int kDeepest = 64;
    if (file_.depth >= kDeepest) corrupt("its bodies are nested more than " + std::to_string(kDeepest) + " deep");
    ControlStep s;
    s.name = j.at("name").text();
    s.op = j.at("op").text();
    s.reason = j.at("reason").text();
    s.kind = one_of(j.at("kind"), ControlStep::Kind::Loop);
    j.at("bodies").each([&](const JsonValue& b) {
      ControlBody body;
      const auto& section = file_.sections[read_index<size_t>(b.at("section"), file_.sections.size())];
      auto variants = read_file(file_.path, {file_.bytes.owner, file_.bytes.data + section.first, section.second},
                                file_.parts, file_.depth + 1);
      if (variants.size() != 1) b.at("section").wrong("a body, of one variant");
      body.executable = std::move(variants.front().executable);
      b.at("arguments").each([&](const JsonValue& a) {
        body.arguments.push_back({one_of(a.at(size_t{0}), BodyArgument::Source::Size), buffer_id(a.at(1), -1),
                                  a.at(2).integer(-1, INT32_MAX), a.at(3).flag(), expr(a.at(4))});
      });
      s.bodies.push_back(std::move(body));
    });
    s.condition = buffer_id(j.at("condition"), -1);
    s.trips = buffer_id(j.at("trips"), -1);
    s.continues = j.at("continues").flag();
    s.initial = buffer_ids(j.at("initial"));
    s.outputs = buffer_ids(j.at("outputs"), -1);
    j.at("reverse").each([&](const JsonValue& r) { s.reverse.push_back(r.flag()); });
    s.defines = defines(j.at("defines"), s.outputs.size());
    if (j.has("decided")) s.decided = expr(j.at("decided"));
    if (j.has("trip_count")) s.trip_count = expr(j.at("trip_count"));
    return s;
  }
  LibraryStep library(const JsonValue& j) {
    LibraryStep s;
    s.name = j.at("name").text();
    if (j.has("instead_of")) s.instead_of = static_cast<int>(j.at("instead_of").integer<int64_t>(0, kMaxSteps));
    auto call = j.at("call").text();
    const bool tf32 = j.has("tf32") && j.at("tf32").flag();
    if (call == "matmul") {
      s.call = MatmulCall{operand(j.at("a")),
                          operand(j.at("b")),
                          operand(j.at("c")),
                          epilogue(j.at("epilogue")),
                          fused(j),
                          j.has("scale") ? real(j.at("scale")) : 1.0,
                          tf32};
    } else if (call == "conv") {
      s.call = ConvCall{operand(j.at("x")),
                        operand(j.at("w")),
                        operand(j.at("y")),
                        ints(j.at("strides")),
                        ints(j.at("pads_begin")),
                        ints(j.at("pads_end")),
                        ints(j.at("dilations")),
                        j.at("groups").integer(),
                        j.at("transposed").flag(),
                        ints(j.at("output_padding")),
                        epilogue(j.at("epilogue")),
                        fused(j),
                        tf32};
    } else if (call == "pool") {
      s.call = PoolCall{one_of(j.at("kind"), PoolCall::Kind::AverageIncludePad),
                        operand(j.at("x")),
                        operand(j.at("y")),
                        ints(j.at("kernel")),
                        ints(j.at("strides")),
                        ints(j.at("pads_begin")),
                        ints(j.at("pads_end")),
                        ints(j.at("dilations")),
                        epilogue(j.at("epilogue"))};
    } else if (call == "attention") {
      FusedAttentionCall a{operand(j.at("q")), operand(j.at("k")), operand(j.at("v")), operand(j.at("out"))};
      a.scale = real(j.at("scale"));
      a.causal = j.at("causal").flag();
      if (j.has("bias")) a.bias = operand(j.at("bias"));
      s.call = std::move(a);
    } else {
      j.at("call").wrong("matmul, conv, pool or attention");
    }
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
