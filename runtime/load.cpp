#include "graph/support/file.h"
#include "graph/support/json_reader.h"
#include "runtime/executor.h"
#include "runtime/file_format.h"
#include "runtime/variant.h"
#include <bit>
#include <map>

namespace tessera {
namespace {
using file::corrupt;
using file::JsonValue;
using Json = nlohmann::json;

// Thrown and caught in this file only.
struct Failed {
  Diagnostic error;
};

constexpr int64_t kMostSteps = INT32_MAX - 1;

class Reader {
public:
  Reader(const std::string& path, Storage file, int depth = 0)
      : path_(path), file_(std::move(file)), depth_(depth), exe_(std::make_shared<Executable>()) {}

  std::shared_ptr<Executable> run() {
    const file::Header h = header();
    auto text = [&](uint64_t at, uint64_t bytes) {
      const char* begin = chars(sizeof h + at);
      Json j = Json::parse(begin, begin + bytes, nullptr, false);
      if (j.is_discarded()) corrupt("it is not written as a compiled file is");
      return j;
    };
    const Json code = text(h.plan_bytes, h.code_bytes), plan = text(0, h.plan_bytes);
    read_code({code, "code"}, sizeof h + h.plan_bytes + h.code_bytes, sizeof h + h.hashed_bytes);
    read_plan({plan, "plan"}, sizeof h + h.hashed_bytes);
    return exe_;
  }

private:
  [[nodiscard]] const char* chars(size_t at) const { return reinterpret_cast<const char*>(file_.data) + at; }

  // Nothing behind the header is looked at before the hash is known to be right.
  file::Header header() const {
    file::Header h;
    if (file_.bytes < sizeof h) corrupt("it is shorter than a header");
    std::memcpy(&h, file_.data, sizeof h);
    if (std::memcmp(h.magic, file::kMagic, sizeof h.magic) != 0) corrupt("it is not a compiled model");
    if (h.version != file::kVersion)
      corrupt("it has format version " + std::to_string(h.version) + ", this program reads version " +
              std::to_string(file::kVersion));
    if (h.file_bytes != file_.bytes)
      corrupt("it has " + std::to_string(file_.bytes) + " bytes, its header says " + std::to_string(h.file_bytes));
    if (h.hashed_bytes > file_.bytes - sizeof h || h.plan_bytes > h.hashed_bytes ||
        h.code_bytes > h.hashed_bytes - h.plan_bytes)
      corrupt("the sizes in its header contradict each other");
    if (file::contents_hash(h, {chars(sizeof h), h.hashed_bytes}) != h.hash)
      corrupt("bytes 0 to " + std::to_string(sizeof h + h.hashed_bytes) +
              " do not match their hash: they were changed");
    return h;
  }

  // Sections lie one after the other at aligned places. Returns their offsets and sizes.
  static std::vector<std::pair<size_t, size_t>> sections(const JsonValue& sizes, size_t at, size_t end) {
    std::vector<std::pair<size_t, size_t>> all;
    sizes.each([&](const JsonValue& size) {
      at = file::aligned(at);
      auto bytes = size.word();
      if (at > end || bytes > end - at) size.wrong("a section that lies in the file");
      all.emplace_back(at, bytes);
      at += bytes;
    });
    return all;
  }

  // ---- the code: machine code, and a launch over parameters of its own for each contract
  struct Contract {
    KernelLaunch launch;
    std::vector<SymExpr> parameters;
  };

  void read_code(const JsonValue& j, size_t begin, size_t end) {
    exe_->target = j.at("target").text();
    for (auto [at, bytes] : sections(j.at("objects"), begin, end))
      exe_->objects.emplace_back(chars(at), chars(at) + bytes);
    j.at("kernels").each([&](const JsonValue& k) { contracts_.push_back(contract(k)); });
  }

  Contract contract(const JsonValue& j) const {
    Contract c;
    Symbols symbols;
    constexpr int kMostParameters = 1 << 16;
    for (int p = 0, n = j.at("parameters").integer(0, kMostParameters); p < n; ++p) {
      c.parameters.push_back(file::parameter(static_cast<size_t>(p)));
      symbols.emplace(c.parameters.back().symbol_name(), c.parameters.back());
    }
    auto number = [&](const JsonValue& e) { return expr(e, symbols); };
    auto conditions = [&](const JsonValue& list) {
      return list.list([&](const JsonValue& v) {
        return SizeCondition{number(v.at(size_t{0})), v.at(1).integer<int64_t>(1, INT64_MAX), v.at(2).integer(),
                             v.at(3).integer()};
      });
    };
    KernelLaunch& k = c.launch;
    k.symbol = j.at("symbol").text();
    k.object = index<int>(j.at("object"), exe_->objects.size());
    k.sizes = j.at("sizes").list(number);
    k.grid = number(j.at("grid"));
    k.work_per_program = number(j.at("work"));
    k.scratch_bytes = number(j.at("scratch"));
    const auto buffers = j.at("access").size();
    j.at("access").each([&](const JsonValue& a) {
      auto shared = a.at(3).list([&](const JsonValue& b) { return index<int>(b, buffers); });
      k.access.push_back({a.at(size_t{0}).dtype(), number(a.at(1)), std::move(shared)});
      k.written.push_back(a.at(2).flag());
    });
    j.at("workspaces").each([&](const JsonValue& w) {
      k.workspaces.push_back({w.at(size_t{0}).dtype(), number(w.at(1))});
    });
    k.counters = number(j.at("counters"));
    k.boxes = number(j.at("boxes"));
    k.team = number(j.at("team"));
    k.threads = j.at("threads").integer(0, INT32_MAX);
    k.shared_bytes = j.at("shared").integer<int64_t>(0, INT32_MAX);
    k.conditions = conditions(j.at("conditions"));
    k.facts = conditions(j.at("facts"));
    return c;
  }

  // ---- the plan
  void read_plan(const JsonValue& j, size_t weights_begin) {
    weights_ = sections(j.at("sections"), weights_begin, file_.bytes);
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
  }

  void environment(const JsonValue& j) {
    constexpr int64_t kMost = int64_t{1} << 62;
    exe_->env = std::make_shared<ShapeEnv>();
    j.at("symbols").each([&](const JsonValue& s) {
      auto name = s.at(size_t{0}).text();
      SymRange range{s.at(1).integer(-kMost, kMost), s.at(2).integer(-kMost, kMost)};
      if (range.lo > range.hi) s.at(2).wrong("at least " + std::to_string(range.lo));
      auto symbol = exe_->env->create_symbol(name, range, s.at(3).integer<int64_t>(1, kMost));
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

  using Symbols = std::map<std::string, SymExpr, std::less<>>;
  static SymExpr expr(const JsonValue& j, const Symbols& symbols) {
    auto text = j.text();
    auto e = parse_sym(text, [&](std::string_view name) -> Result<SymExpr> {
      auto it = symbols.find(name);
      if (it != symbols.end()) return it->second;
      return Diagnostic(ErrorCode::ParseError, "there is no symbol '" + std::string(name) + "'");
    });
    if (!e.ok()) j.wrong("a size (" + e.error().message + ")");
    return *e;
  }
  [[nodiscard]] SymExpr expr(const JsonValue& j) const { return expr(j, symbols_); }
  [[nodiscard]] std::vector<SymExpr> exprs(const JsonValue& j) const {
    return j.list([&](const JsonValue& e) { return expr(e); });
  }
  // An index into `count` things; `least` is -1 where there may be none.
  template <class Int>
  static Int index(const JsonValue& j, size_t count, int64_t least = 0) {
    return static_cast<Int>(j.integer<int64_t>(least, static_cast<int64_t>(std::min<size_t>(count, INT32_MAX)) - 1));
  }
  [[nodiscard]] BufferId buffer_id(const JsonValue& j, int64_t least = 0) const {
    return index<BufferId>(j, buffers_, least);
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
    std::string source = path_;
    if (j.has("section")) {
      auto s = index<size_t>(j.at("section"), weights_.size());
      if (weights_[s].second != bytes) j.at("section").wrong("a section of " + std::to_string(bytes) + " bytes");
      storage = {file_.owner, file_.data + weights_[s].first, bytes};
    } else {
      source = j.at("file").text();
      const auto& mapped = weights(source, c.name);
      auto offset = j.at("offset").word();
      if (offset > mapped.bytes || bytes > mapped.bytes - offset)
        corrupt("'" + source + "' is too short for constant '" + c.name + "'");
      storage = {mapped.owner, mapped.data + offset, bytes};
    }
    auto hash = file::sample_hash(storage.data, bytes);
    if (hash.lo != j.at("hash").at(size_t{0}).word() || hash.hi != j.at("hash").at(1).word())
      corrupt("the weights of '" + c.name + "' in '" + source + "' have changed since it was written");
    c.value = Tensor::view(type, std::move(dims), std::move(storage));
    exe_->constants.push_back(std::move(c));
  }

  // Of a section as file::strings_section() writes it.
  [[nodiscard]] std::vector<std::string> strings(const JsonValue& j, size_t count) const {
    const auto [at, bytes] = weights_[index<size_t>(j, weights_.size())];
    if (count > bytes / sizeof(uint64_t)) j.wrong("a section of " + std::to_string(count) + " strings");
    const std::string_view all(chars(at) + count * sizeof(uint64_t), bytes - count * sizeof(uint64_t));
    std::vector<std::string> out;
    out.reserve(count);
    uint64_t begin = 0, end = 0;
    for (size_t i = 0; i < count; ++i, begin = end) {
      std::memcpy(&end, chars(at) + i * sizeof end, sizeof end);
      if (end < begin || end > all.size()) corrupt(j.place() + ": string " + std::to_string(i) + " ends elsewhere");
      out.emplace_back(all.substr(begin, end - begin));
    }
    return out;
  }

  // A weight file where it was, or next to the executable.
  const Storage& weights(const std::string& source, const std::string& constant) {
    auto it = mapped_.find(source);
    if (it != mapped_.end()) return it->second;
    auto mapped = map_file(source);
    if (!mapped.ok()) {
      auto folder = path_.find_last_of('/');
      auto beside = (folder == std::string::npos ? "" : path_.substr(0, folder + 1)) +
                    source.substr(source.find_last_of('/') + 1);
      auto second = map_file(beside);
      if (!second.ok()) {
        Diagnostic d = mapped.error();
        d.note("it holds the weights of '" + constant + "', to which '" + path_ +
               "' refers; compile with embedded weights to make it independent");
        throw Failed{std::move(d)};
      }
      mapped = std::move(second);
    }
    return mapped_.emplace(source, std::move(*mapped)).first->second;
  }

  void buffer(const JsonValue& j) {
    BufferInfo b;
    b.name = j.at("name").text();
    b.kind = one_of(j.at("kind"), BufferInfo::Kind::Temporary);
    b.dtype = j.at("dtype").dtype();
    b.shape = exprs(j.at("shape"));
    b.constant = index<int>(j.at("constant"), exe_->constants.size(), -1);
    b.first_step = static_cast<int>(j.at("first").integer<int64_t>(0, kMostSteps));
    b.last_step = static_cast<int>(j.at("last").integer<int64_t>(-1, kMostSteps));
    b.in_place_of = buffer_id(j.at("in_place_of"), -1);
    b.dynamic = j.at("dynamic").flag();
    exe_->buffers.push_back(std::move(b));
  }
  void bindings(const JsonValue& j, std::vector<Binding>& out) const {
    j.each([&](const JsonValue& b) {
      out.push_back({b.at("name").text(), buffer_id(b.at("buffer")), exprs(b.at("indexed")), b.at("list").text()});
    });
  }

  KernelLaunch kernel(const JsonValue& j) const {
    KernelLaunch k = launch(j);
    k.name = j.at("name").text();
    k.buffers = buffer_ids(j.at("buffers"));
    if (k.buffers.size() != k.access.size()) j.at("buffers").wrong(std::to_string(k.access.size()) + " buffers");
    if (!j.has("alternatives")) return k;
    j.at("alternatives").each([&](const JsonValue& a) {
      KernelLaunch other = launch(a);
      other.name = k.name;
      other.buffers = k.buffers;
      k.alternatives.push_back(std::move(other));
    });
    return k;
  }
  // A contract with the sizes of this launch in the place of its parameters.
  KernelLaunch launch(const JsonValue& j) const {
    const Contract& c = contracts_[index<size_t>(j.at("contract"), contracts_.size())];
    auto arguments = exprs(j.at("arguments"));
    if (arguments.size() != c.parameters.size())
      j.at("arguments").wrong(std::to_string(c.parameters.size()) + " sizes");
    std::unordered_map<uint64_t, SymExpr> by_parameter;
    for (size_t p = 0; p < arguments.size(); ++p) by_parameter.emplace(c.parameters[p].symbol_id(), arguments[p]);
    KernelLaunch k = c.launch;
    auto place = [&](SymExpr& e) { e = e.substitute(by_parameter); };
    for (auto& e : k.sizes) place(e);
    for (auto* e : {&k.grid, &k.work_per_program, &k.scratch_bytes, &k.counters, &k.boxes, &k.team}) place(*e);
    for (auto& w : k.workspaces) place(w.count);
    for (auto& a : k.access) place(a.elements);
    for (auto* list : {&k.conditions, &k.facts})
      for (auto& condition : *list) place(condition.value);
    k.report_sites = j.at("sites").list([&](const JsonValue& s) {
      IndexCheck c{s.at("table").text(), s.at("indices").text(), s.at("node").text()};
      if (!s.at("extent").is_null()) c.extent = expr(s.at("extent"));
      c.from_end = s.at("from_end").flag();
      c.shape = exprs(s.at("shape"));
      c.component = s.at("component").integer(-1, 64);
      return c;
    });
    return k;
  }
  StridedOperand operand(const JsonValue& j) const {
    return {buffer_id(j.at("buffer")), exprs(j.at("shape")), exprs(j.at("strides")), expr(j.at("offset"))};
  }
  std::optional<EpilogueKernel> epilogue(const JsonValue& j) const {
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

  Step step(const JsonValue& j) const {
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
    constexpr int64_t kMostDims = 64, kMostElements = 1024;
    return j.list([&](const JsonValue& d) {
      return StepDefines{expr(d.at(size_t{0})), index<int>(d.at(1), outputs),
                         static_cast<int>(d.at(2).integer<int64_t>(-1, kMostDims - 1)),
                         static_cast<int>(d.at(3).integer<int64_t>(-1, kMostElements - 1))};
    });
  }
  ControlStep control(const JsonValue& j) const {
    constexpr int kDeepest = 64;
    if (depth_ >= kDeepest) corrupt("its bodies are nested more than " + std::to_string(kDeepest) + " deep");
    ControlStep s;
    s.name = j.at("name").text();
    s.op = j.at("op").text();
    s.reason = j.at("reason").text();
    s.kind = one_of(j.at("kind"), ControlStep::Kind::Loop);
    j.at("bodies").each([&](const JsonValue& b) {
      ControlBody body;
      const auto& section = weights_[index<size_t>(b.at("section"), weights_.size())];
      body.executable = Reader(path_, {file_.owner, file_.data + section.first, section.second}, depth_ + 1).run();
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
  LibraryStep library(const JsonValue& j) const {
    LibraryStep s;
    s.name = j.at("name").text();
    if (j.has("instead_of")) s.instead_of = static_cast<int>(j.at("instead_of").integer<int64_t>(0, kMostSteps));
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

  const std::string& path_;
  Storage file_;
  int depth_; // of bodies in bodies
  std::shared_ptr<Executable> exe_;
  std::vector<Contract> contracts_;
  size_t buffers_ = 0;
  std::vector<std::pair<size_t, size_t>> weights_; // offset, bytes
  Symbols symbols_;
  std::map<std::string, Storage> mapped_;
};

} // namespace

Result<std::shared_ptr<Executable>> load_executable(const std::string& path, const LinkFn& link,
                                                    const ResolveHostStepFn& resolve) {
  TESSERA_ASSIGN(auto file, map_file(path));
  return load_executable(std::move(file), path, link, resolve);
}

Result<std::shared_ptr<Executable>> load_executable(Storage file, const std::string& path, const LinkFn& link,
                                                    const ResolveHostStepFn& resolve) {
  auto damaged = [&](const std::string& what) {
    return Diagnostic(ErrorCode::CorruptFile, "'" + path + "' cannot be loaded: " + what)
        .note("compile the model again with `tessera compile`");
  };
  std::shared_ptr<Executable> exe;
  try {
    exe = Reader(path, std::move(file)).run();
  } catch (const file::Corrupt& c) {
    return damaged(c.what);
  } catch (Failed& f) {
    return std::move(f.error);
  } catch (const std::bad_alloc&) {
    return Diagnostic(ErrorCode::OutOfMemory, "not enough memory to load '" + path + "'");
  }
  TESSERA_TRY(check_target(exe->target));
  auto consistent = verify(*exe);
  if (!consistent.ok()) return damaged(consistent.error().message);
  TESSERA_TRY(link_executable(*exe, link, resolve));
  return exe;
}

} // namespace tessera
