#include "runtime/variant.h"

namespace tessera {

StepBuffers buffers_of(const Step& step) {
  StepBuffers out;
  auto kernel = [&](const KernelLaunch& k) {
    for (size_t i = 0; i < k.buffers.size(); ++i) {
      out.read.push_back(k.buffers[i]); // a kernel may read what it writes
      if (i < k.written.size() && k.written[i]) out.written.push_back(k.buffers[i]);
    }
  };
  if (const auto* k = std::get_if<KernelLaunch>(&step)) kernel(*k);
  if (const auto* h = std::get_if<HostStep>(&step)) {
    for (auto b : h->inputs)
      if (b >= 0) out.read.push_back(b);
    for (auto b : h->outputs)
      if (b >= 0) out.written.push_back(b);
  }
  if (const auto* c = std::get_if<CopyStep>(&step)) {
    out.read.push_back(c->source);
    out.written.push_back(c->target);
  }
  if (const auto* l = std::get_if<LibraryStep>(&step)) {
    const std::optional<EpilogueKernel>* epilogue = nullptr;
    if (const auto* m = std::get_if<MatmulCall>(&l->call)) {
      out.read = {m->a.buffer, m->b.buffer};
      out.written = {m->c.buffer};
      epilogue = &m->epilogue;
    } else if (const auto* c = std::get_if<ConvCall>(&l->call)) {
      out.read = {c->x.buffer, c->w.buffer};
      out.written = {c->y.buffer};
      epilogue = &c->epilogue;
    } else {
      const auto& p = std::get<PoolCall>(l->call);
      out.read = {p.x.buffer};
      out.written = {p.y.buffer};
      epilogue = &p.epilogue;
    }
    if (*epilogue) kernel((*epilogue)->kernel);
  }
  return out;
}

const std::string& name_of(const Step& step) {
  return std::visit([](const auto& s) -> const std::string& { return s.name; }, step);
}

namespace {

Status verify_kernel(const Executable& e, const KernelLaunch& k) {
  auto bad = [&](const std::string& what) {
    return Diagnostic(ErrorCode::Internal, "kernel '" + k.name + "': " + what);
  };
  if (k.written.size() != k.buffers.size()) return bad("one written flag per buffer is needed");
  if (k.object >= 0 && static_cast<size_t>(k.object) >= e.objects.size())
    return bad("object " + std::to_string(k.object) + " does not exist");
  if (!k.function && k.object < 0) return bad("has neither code nor an object");
  return {};
}

Status verify_operand(const Executable& e, const StridedOperand& o, const std::string& step) {
  auto bad = [&](const std::string& what) {
    return Diagnostic(ErrorCode::Internal, "library call '" + step + "': " + what);
  };
  if (o.buffer < 0 || static_cast<size_t>(o.buffer) >= e.buffers.size()) return bad("an operand has no buffer");
  if (o.strides.size() != o.shape.size()) return bad("one stride per dimension is needed");
  if (e.buffers[static_cast<size_t>(o.buffer)].dtype != DType::F32)
    return bad("operand '" + e.buffers[static_cast<size_t>(o.buffer)].name + "' is not f32");
  return {};
}

Status verify_step(const Executable& e, const Step& step) {
  if (const auto* k = std::get_if<KernelLaunch>(&step)) return verify_kernel(e, *k);
  if (const auto* h = std::get_if<HostStep>(&step)) {
    for (const auto& d : h->defines)
      if (!d.symbol.is_symbol() || d.result < 0 || static_cast<size_t>(d.result) >= h->outputs.size() || d.dim < 0 ||
          d.dim >= 64)
        return Diagnostic(ErrorCode::Internal,
                          "host step '" + h->name + "': defines a size of a result that it does not have");
    return {};
  }
  if (const auto* c = std::get_if<CopyStep>(&step)) {
    auto in_range = [&](BufferId b) { return b >= 0 && static_cast<size_t>(b) < e.buffers.size(); };
    if (in_range(c->source) && in_range(c->target)) {
      const auto &from = e.buffers[static_cast<size_t>(c->source)], &to = e.buffers[static_cast<size_t>(c->target)];
      if (from.dtype != to.dtype || from.shape.size() != to.shape.size())
        return Diagnostic(ErrorCode::Internal, "copy '" + c->name + "': types differ");
    }
    return {};
  }
  const auto& l = std::get<LibraryStep>(step);
  auto operands = [&](std::initializer_list<const StridedOperand*> all, const std::optional<EpilogueKernel>& epilogue,
                      size_t rank) -> Status {
    for (const auto* o : all) TESSERA_TRY(verify_operand(e, *o, l.name));
    if (!epilogue) return {};
    bool symbols = epilogue->begin.size() == rank && epilogue->count.size() == rank;
    for (const auto* v : {&epilogue->begin, &epilogue->count})
      for (const auto& s : *v) symbols = symbols && s.is_symbol();
    if (!symbols)
      return Diagnostic(ErrorCode::Internal,
                        "library call '" + l.name +
                            "': the epilogue needs a begin and a count symbol per dimension of the result");
    return verify_kernel(e, epilogue->kernel);
  };
  if (const auto* m = std::get_if<MatmulCall>(&l.call))
    return operands({&m->a, &m->b, &m->c}, m->epilogue, m->c.shape.size());
  if (const auto* c = std::get_if<ConvCall>(&l.call))
    return operands({&c->x, &c->w, &c->y}, c->epilogue, c->y.shape.size());
  const auto& p = std::get<PoolCall>(l.call);
  return operands({&p.x, &p.y}, p.epilogue, p.y.shape.size());
}

} // namespace

Status verify(const Executable& e) {
  auto bad = [&](const std::string& what) {
    return Diagnostic(ErrorCode::Internal, "executable '" + e.model_name + "': " + what);
  };
  auto in_range = [&](BufferId b) { return b >= 0 && static_cast<size_t>(b) < e.buffers.size(); };
  if (!e.env) return bad("has no shape environment");
  for (const auto& b : e.buffers) {
    bool constant = b.kind == BufferInfo::Kind::Constant;
    if (constant && (b.constant < 0 || static_cast<size_t>(b.constant) >= e.constants.size()))
      return bad("buffer '" + b.name + "' shows a constant that does not exist");
    if (constant) {
      const auto& t = e.constants[static_cast<size_t>(b.constant)].value;
      if (t.dtype() != b.dtype || t.dims().size() != b.shape.size())
        return bad("buffer '" + b.name + "' and its constant differ in type");
      for (size_t d = 0; d < b.shape.size(); ++d)
        if (!b.shape[d].is_const(t.dims()[d])) return bad("buffer '" + b.name + "' and its constant differ in shape");
    }
    if (b.in_place_of >= 0 && !in_range(b.in_place_of))
      return bad("buffer '" + b.name + "' takes over a buffer that does not exist");
  }
  for (const auto* bindings : {&e.inputs, &e.outputs})
    for (const auto& b : *bindings)
      if (!in_range(b.buffer)) return bad("'" + b.name + "' has no buffer");
  for (const auto& b : e.inputs)
    if (e.buffers[static_cast<size_t>(b.buffer)].kind != BufferInfo::Kind::Input)
      return bad("input '" + b.name + "' is bound to a buffer of another kind");
  for (const auto& b : e.outputs)
    if (e.buffers[static_cast<size_t>(b.buffer)].kind != BufferInfo::Kind::Output)
      return bad("output '" + b.name + "' is bound to a buffer of another kind");
  for (size_t s = 0; s < e.steps.size(); ++s) {
    TESSERA_TRY(verify_step(e, e.steps[s]));
    auto used = buffers_of(e.steps[s]);
    for (const auto* list : {&used.read, &used.written})
      for (auto id : *list) {
        if (!in_range(id)) return bad("step '" + name_of(e.steps[s]) + "' uses a buffer that does not exist");
        const auto& b = e.buffers[static_cast<size_t>(id)];
        auto at = static_cast<int>(s);
        if (b.kind == BufferInfo::Kind::Temporary && (at < b.first_step || at > b.last_step))
          return bad("step '" + name_of(e.steps[s]) + "' uses '" + b.name + "' outside of its lifetime");
      }
    for (auto id : used.written) {
      auto kind = e.buffers[static_cast<size_t>(id)].kind;
      if (kind == BufferInfo::Kind::Input || kind == BufferInfo::Kind::Constant)
        return bad("step '" + name_of(e.steps[s]) + "' writes '" + e.buffers[static_cast<size_t>(id)].name +
                   "', which is not its to write");
    }
  }
  return {};
}

Status check_target(const std::string& target) {
  auto refuse = [&](const std::string& what) {
    return Diagnostic(ErrorCode::UnsupportedFeature, "the executable was made for '" + target + "': " + what)
        .note("compile the model on this machine");
  };
  std::string word;
  std::vector<std::string> words;
  for (char c : target + " ") {
    if (c != ' ')
      word += c;
    else if (!word.empty())
      words.push_back(std::exchange(word, {}));
  }
  if (words.empty()) return {}; // host code that was handed over in memory
  if (words[0] != "cpu") return refuse("not a host target");
  for (const auto& w : words) {
#if defined(__x86_64__)
    if (w == "aarch64" || w == "arm64") return refuse("this machine is an x86-64");
    if (w == "avx512" && !(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")))
      return refuse("this machine has no AVX-512");
    if (w == "avx2" && !(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")))
      return refuse("this machine has no AVX2");
#else
    if (w == "x86-64" || w == "avx512" || w == "avx2" || w == "sse") return refuse("this machine is no x86-64");
#endif
  }
  return {};
}

} // namespace tessera
