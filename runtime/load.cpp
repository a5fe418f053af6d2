#include "graph/support/file.h"
#include "runtime/executor.h"
#include "runtime/file_format.h"
#include "runtime/variant.h"
#include <bit>
#include <map>
#include <nlohmann/json.hpp>

namespace tessera {
namespace {
using Json = nlohmann::json;

// Thrown and caught in this file only, like the exceptions of the JSON library.
struct Corrupt {
  std::string what;
};
[[noreturn]] void corrupt(const std::string& what) { throw Corrupt{what}; }
struct Failed {
  Diagnostic error;
};

class Reader {
public:
  Reader(const std::string& path, Storage file)
      : path_(path), file_(std::move(file)), exe_(std::make_shared<Executable>()) {}

  std::shared_ptr<Executable> run() {
    header();
    Json j = Json::parse(plan_.begin(), plan_.end());
    sections(j);
    exe_->model_name = j.at("model").get<std::string>();
    exe_->target = j.at("target").get<std::string>();
    exe_->host_steps = j.at("host_steps").get<int>();
    exe_->report = j.at("report").get<std::string>();
    environment(j);
    for (const auto& c : j.at("constants")) constant(c);
    for (const auto& b : j.at("buffers")) buffer(b);
    for (const auto& s : j.at("steps")) step(s);
    bindings(j.at("inputs"), exe_->inputs);
    bindings(j.at("outputs"), exe_->outputs);
    return exe_;
  }

private:
  void header() {
    file::Header h;
    if (file_.bytes < sizeof h) corrupt("it is shorter than a header");
    std::memcpy(&h, file_.data, sizeof h);
    if (std::memcmp(h.magic, file::kMagic, sizeof h.magic) != 0) corrupt("it is not an executable of Tessera");
    if (h.version != file::kVersion)
      corrupt("it has format version " + std::to_string(h.version) + ", this program reads version " +
              std::to_string(file::kVersion));
    if (h.file_bytes != file_.bytes)
      corrupt("it should have " + std::to_string(h.file_bytes) + " bytes and has " + std::to_string(file_.bytes));
    if (h.plan_bytes > file::kMaxPlan || h.plan_bytes > file_.bytes - sizeof h) corrupt("its plan does not fit in it");
    plan_ = {reinterpret_cast<const char*>(file_.data) + sizeof h, h.plan_bytes};
    hash_ = h.hash;
  }

  void sections(const Json& j) {
    size_t at = file::aligned(sizeof(file::Header) + plan_.size());
    for (const auto& s : j.at("sections")) {
      auto bytes = s.get<uint64_t>();
      if (at > file_.bytes || bytes > file_.bytes - at) corrupt("a section lies outside of it");
      sections_.push_back({at, bytes});
      at = file::aligned(at + bytes);
    }
    auto objects = j.at("objects").get<uint64_t>();
    if (objects > sections_.size()) corrupt("it has fewer sections than objects");
    Hash128 hash = hash128(plan_);
    for (size_t i = 0; i < objects; ++i) {
      const auto* p = reinterpret_cast<const char*>(file_.data) + sections_[i].first;
      auto h = hash128(p, sections_[i].second, hash.lo);
      hash = {hash_combine(hash.lo, h.lo), hash_combine(hash.hi, h.hi)};
      exe_->objects.emplace_back(p, p + sections_[i].second);
    }
    if (hash != hash_) corrupt("its contents do not match their hash");
  }

  void environment(const Json& j) {
    exe_->env = std::make_shared<ShapeEnv>();
    for (const auto& s : j.at("symbols")) {
      auto name = s.at(0).get<std::string>();
      auto symbol = exe_->env->create_symbol(name, {s.at(1).get<int64_t>(), s.at(2).get<int64_t>()},
                                             std::max<int64_t>(1, s.at(3).get<int64_t>()));
      if (!symbols_.emplace(name, symbol).second) corrupt("symbol '" + name + "' is there twice");
    }
    for (const auto& g : j.at("guards")) {
      Guard guard;
      guard.condition = expr(g.at("condition"));
      guard.cls = g.at("required").get<bool>() ? GuardClass::Required : GuardClass::Assumed;
      guard.reason = g.at("reason").get<std::string>();
      const auto& w = g.at("where");
      guard.where.file = w.at(0).get<std::string>();
      guard.where.node = w.at(1).get<std::string>();
      guard.where.op = w.at(2).get<std::string>();
      guard.where.output = w.at(3).get<std::string>();
      guard.where.line = w.at(4).get<int>();
      guard.where.column = w.at(5).get<int>();
      exe_->env->add_guard(std::move(guard));
    }
  }

  SymExpr expr(const Json& j) {
    auto text = j.get<std::string>();
    auto e = parse_sym(text, [&](std::string_view name) -> Result<SymExpr> {
      auto it = symbols_.find(name);
      if (it != symbols_.end()) return it->second;
      return Diagnostic(ErrorCode::ParseError, "unknown symbol '" + std::string(name) + "'");
    });
    if (!e.ok()) corrupt("the expression '" + text + "' cannot be read: " + e.error().message);
    return *e;
  }
  std::vector<SymExpr> exprs(const Json& j) {
    std::vector<SymExpr> v;
    for (const auto& e : j) v.push_back(expr(e));
    return v;
  }
  static DType dtype(const Json& j) {
    auto d = dtype_from_name(j.get<std::string>());
    if (!d) corrupt("there is no element type '" + j.get<std::string>() + "'");
    return *d;
  }

  void constant(const Json& j) {
    Constant c;
    c.name = j.at("name").get<std::string>();
    auto type = dtype(j.at("dtype"));
    auto dims = j.at("dims").get<Dims>();
    auto count = element_count(dims);
    if (!count.ok()) corrupt("constant '" + c.name + "': " + count.error().message);
    if (type == DType::String) {
      auto strings = j.at("strings").get<std::vector<std::string>>();
      if (static_cast<int64_t>(strings.size()) != *count)
        corrupt("constant '" + c.name + "' has another number of strings than its dims");
      c.value = Tensor::strings(dims, std::move(strings));
      exe_->constants.push_back(std::move(c));
      return;
    }
    auto bytes = static_cast<size_t>(byte_size(type, *count));
    Storage storage;
    std::string source = "the file";
    if (j.contains("section")) {
      auto s = j.at("section").get<uint64_t>();
      if (s >= sections_.size() || sections_[s].second != bytes)
        corrupt("constant '" + c.name + "' has no section of its size");
      storage = {file_.owner, file_.data + sections_[s].first, bytes};
    } else {
      source = j.at("file").get<std::string>();
      const auto& mapped = weights(source, c.name);
      auto offset = j.at("offset").get<uint64_t>();
      if (offset > mapped.bytes || bytes > mapped.bytes - offset)
        corrupt("'" + source + "' is too short for constant '" + c.name + "'");
      storage = {mapped.owner, mapped.data + offset, bytes};
    }
    auto hash = file::sample_hash(storage.data, bytes);
    if (hash.lo != j.at("hash").at(0).get<uint64_t>() || hash.hi != j.at("hash").at(1).get<uint64_t>())
      corrupt("the weights of '" + c.name + "' in '" + source + "' have changed since it was written");
    c.value = Tensor::view(type, std::move(dims), std::move(storage));
    exe_->constants.push_back(std::move(c));
  }

  // A weight file where it was, or beside the executable.
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

  void buffer(const Json& j) {
    BufferInfo b;
    b.name = j.at("name").get<std::string>();
    int kind = j.at("kind").get<int>();
    if (kind < 0 || kind > static_cast<int>(BufferInfo::Kind::Temporary))
      corrupt("buffer '" + b.name + "' is of no kind");
    b.kind = static_cast<BufferInfo::Kind>(kind);
    b.dtype = dtype(j.at("dtype"));
    b.shape = exprs(j.at("shape"));
    b.constant = j.at("constant").get<int>();
    b.first_step = j.at("first").get<int>();
    b.last_step = j.at("last").get<int>();
    b.in_place_of = j.at("in_place_of").get<int>();
    b.dynamic = j.at("dynamic").get<bool>();
    exe_->buffers.push_back(std::move(b));
  }
  void bindings(const Json& j, std::vector<Binding>& out) {
    for (const auto& b : j) {
      out.push_back({b.at("name").get<std::string>(), b.at("buffer").get<BufferId>()});
      for (const auto& d : b.at("indexed")) out.back().indexed.push_back({expr(d.at(0)), d.at(1).get<bool>()});
    }
  }

  KernelLaunch kernel(const Json& j, bool alternative = false) {
    KernelLaunch k;
    k.name = j.at("name").get<std::string>();
    k.symbol = j.at("symbol").get<std::string>();
    k.object = j.at("object").get<int>();
    k.buffers = j.at("buffers").get<std::vector<BufferId>>();
    k.written = j.at("written").get<std::vector<bool>>();
    k.sizes = exprs(j.at("sizes"));
    k.grid = expr(j.at("grid"));
    k.work_per_program = expr(j.at("work"));
    k.scratch_bytes = expr(j.at("scratch"));
    k.report_sites = j.at("sites").get<std::vector<std::string>>();
    if (k.object < 0 || static_cast<size_t>(k.object) >= exe_->objects.size())
      corrupt("kernel '" + k.name + "' has no object");
    if (!j.contains("threads")) return k;
    k.threads = j.at("threads").get<int>();
    k.shared_bytes = j.at("shared").get<int64_t>();
    for (const auto& w : j.at("workspaces")) k.workspaces.push_back({dtype(w.at(0)), expr(w.at(1))});
    k.counters = expr(j.at("counters"));
    k.boxes = expr(j.at("boxes"));
    k.team = expr(j.at("team"));
    for (const auto& c : j.at("conditions"))
      k.conditions.push_back({expr(c.at(0)), c.at(1).get<int64_t>(), c.at(2).get<int64_t>(), c.at(3).get<int64_t>()});
    for (const auto& a : j.at("alternatives")) {
      if (alternative) corrupt("an alternative of kernel '" + k.name + "' has alternatives itself");
      k.alternatives.push_back(kernel(a, true));
    }
    return k;
  }
  StridedOperand operand(const Json& j) {
    StridedOperand o;
    o.buffer = j.at("buffer").get<BufferId>();
    o.shape = exprs(j.at("shape"));
    o.strides = exprs(j.at("strides"));
    o.offset = expr(j.at("offset"));
    return o;
  }
  std::optional<EpilogueKernel> epilogue(const Json& j) {
    if (j.is_null()) return std::nullopt;
    return EpilogueKernel{kernel(j.at("kernel")), exprs(j.at("begin")), exprs(j.at("count"))};
  }
  std::optional<LibraryEpilogue> fused(const Json& call) {
    if (!call.contains("fused")) return std::nullopt;
    const auto& j = call.at("fused");
    auto number = [](const Json& bits) { return std::bit_cast<double>(bits.get<int64_t>()); };
    LibraryEpilogue e;
    e.alpha = number(j.at("alpha"));
    e.bias_dim = j.at("bias_dim").get<int>();
    int activation = j.at("activation").get<int>();
    if (activation < 0 || activation > static_cast<int>(LibraryEpilogue::Activation::Tanh))
      corrupt("the activation of a library call is of no kind");
    e.activation = static_cast<LibraryEpilogue::Activation>(activation);
    e.clip_low = number(j.at("clip").at(0));
    e.clip_high = number(j.at("clip").at(1));
    if (j.contains("bias")) e.bias = operand(j.at("bias"));
    if (j.contains("residual")) e.residual = operand(j.at("residual"));
    return e;
  }
  static std::vector<int64_t> ints(const Json& j) { return j.get<std::vector<int64_t>>(); }

  void step(const Json& j) {
    if (j.contains("kernel")) {
      exe_->steps.emplace_back(kernel(j.at("kernel")));
    } else if (j.contains("copy")) {
      const auto& c = j.at("copy");
      exe_->steps.emplace_back(
          CopyStep{c.at("name").get<std::string>(), c.at("source").get<BufferId>(), c.at("target").get<BufferId>()});
    } else if (j.contains("host")) {
      const auto& h = j.at("host");
      HostStep s;
      s.name = h.at("name").get<std::string>();
      s.op = h.at("op").get<std::string>();
      s.reason = h.at("reason").get<std::string>();
      s.payload = h.at("payload").get<std::string>();
      s.inputs = h.at("inputs").get<std::vector<BufferId>>();
      s.outputs = h.at("outputs").get<std::vector<BufferId>>();
      for (const auto& d : h.at("defines"))
        s.defines.push_back({expr(d.at(0)), d.at(1).get<int>(), d.at(2).get<int>()});
      exe_->steps.emplace_back(std::move(s));
    } else {
      const auto& l = j.at("library");
      LibraryStep s;
      s.name = l.at("name").get<std::string>();
      if (l.contains("instead_of")) s.instead_of = l.at("instead_of").get<int>();
      auto call = l.at("call").get<std::string>();
      if (call == "matmul") {
        s.call = MatmulCall{operand(l.at("a")),
                            operand(l.at("b")),
                            operand(l.at("c")),
                            epilogue(l.at("epilogue")),
                            fused(l),
                            l.contains("scale") ? std::bit_cast<double>(l.at("scale").get<int64_t>()) : 1.0,
                            l.value("tf32", false)};
      } else if (call == "conv") {
        s.call = ConvCall{operand(l.at("x")),
                          operand(l.at("w")),
                          operand(l.at("y")),
                          ints(l.at("strides")),
                          ints(l.at("pads_begin")),
                          ints(l.at("pads_end")),
                          ints(l.at("dilations")),
                          l.at("groups").get<int64_t>(),
                          l.at("transposed").get<bool>(),
                          ints(l.at("output_padding")),
                          epilogue(l.at("epilogue")),
                          fused(l),
                          l.value("tf32", false)};
      } else if (call == "pool") {
        int kind = l.at("kind").get<int>();
        if (kind < 0 || kind > static_cast<int>(PoolCall::Kind::AverageIncludePad))
          corrupt("pooling '" + s.name + "' is of no kind");
        s.call = PoolCall{static_cast<PoolCall::Kind>(kind),
                          operand(l.at("x")),
                          operand(l.at("y")),
                          ints(l.at("kernel")),
                          ints(l.at("strides")),
                          ints(l.at("pads_begin")),
                          ints(l.at("pads_end")),
                          ints(l.at("dilations")),
                          epilogue(l.at("epilogue"))};
      } else if (call == "attention") {
        FusedAttentionCall a{operand(l.at("q")), operand(l.at("k")), operand(l.at("v")), operand(l.at("out"))};
        a.scale = std::bit_cast<double>(l.at("scale").get<int64_t>());
        a.causal = l.at("causal").get<bool>();
        if (l.contains("bias")) a.bias = operand(l.at("bias"));
        s.call = std::move(a);
      } else {
        corrupt("there is no library call '" + call + "'");
      }
      exe_->steps.emplace_back(std::move(s));
    }
  }

  const std::string& path_;
  Storage file_;
  std::shared_ptr<Executable> exe_;
  std::string_view plan_;
  Hash128 hash_;
  std::vector<std::pair<size_t, size_t>> sections_; // offset, bytes
  std::map<std::string, SymExpr, std::less<>> symbols_;
  std::map<std::string, Storage> mapped_;
};

Status link_kernels(Executable& e, const LinkFn& link) {
  TESSERA_ASSIGN(auto linked, link(e));
  e.code = linked.code;
  Status status;
  auto one = [&](KernelLaunch& k) {
    k.function = linked.find ? linked.find(k.symbol) : nullptr;
    if (!k.function) status = Diagnostic(ErrorCode::CorruptFile, "the machine code has no kernel '" + k.symbol + "'");
  };
  for (auto& step : e.steps) {
    if (auto* k = std::get_if<KernelLaunch>(&step)) one(*k);
    if (auto* l = std::get_if<LibraryStep>(&step))
      std::visit(
          [&](auto& call) {
            if constexpr (requires { call.epilogue; })
              if (call.epilogue) one(call.epilogue->kernel);
          },
          l->call);
  }
  return status;
}

} // namespace

Result<std::shared_ptr<Executable>> load_executable(const std::string& path, const LinkFn& link,
                                                    const ResolveHostStepFn& resolve) {
  TESSERA_ASSIGN(auto file, map_file(path));
  auto damaged = [&](const std::string& what) {
    return Diagnostic(ErrorCode::CorruptFile, "'" + path + "' cannot be loaded: " + what)
        .note("write it again with `tessera compile`");
  };
  std::shared_ptr<Executable> exe;
  try {
    exe = Reader(path, std::move(file)).run();
  } catch (const Corrupt& c) {
    return damaged(c.what);
  } catch (Failed& f) {
    return std::move(f.error);
  } catch (const Json::exception& e) {
    return damaged(std::string("its plan is malformed: ") + e.what());
  } catch (const std::bad_alloc&) {
    return Diagnostic(ErrorCode::OutOfMemory, "not enough memory to load '" + path + "'");
  }
  TESSERA_TRY(check_target(exe->target));
  if (link && !is_gpu_target(exe->target)) TESSERA_TRY(link_kernels(*exe, link));
  auto consistent = verify(*exe);
  if (!consistent.ok()) return damaged(consistent.error().message);
  for (auto& step : exe->steps)
    if (auto* h = std::get_if<HostStep>(&step); h && resolve) {
      TESSERA_ASSIGN(h->run, resolve(*h));
    }
  return exe;
}

} // namespace tessera
