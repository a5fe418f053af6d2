#include "runtime/control.h"
#include <algorithm>
#include <set>

namespace tessera {

LibraryOperands operands_of(const LibraryStep& step) {
  LibraryOperands out;
  auto fused = [&](const std::optional<LibraryEpilogue>& epilogue) {
    if (!epilogue) return;
    if (epilogue->bias) out.all.push_back(&*epilogue->bias);
    if (epilogue->residual) out.all.push_back(&*epilogue->residual);
  };
  if (const auto* m = std::get_if<MatmulCall>(&step.call)) {
    out = {{&m->a, &m->b, &m->c}, 2, &m->epilogue};
    fused(m->fused);
  } else if (const auto* c = std::get_if<ConvCall>(&step.call)) {
    out = {{&c->x, &c->w, &c->y}, 2, &c->epilogue};
    fused(c->fused);
  } else if (const auto* a = std::get_if<FusedAttentionCall>(&step.call)) {
    static const std::optional<EpilogueKernel> kNone;
    out = {{&a->q, &a->k, &a->v, &a->out}, 3, &kNone};
    if (a->bias) out.all.push_back(&*a->bias);
  } else {
    const auto& p = std::get<PoolCall>(step.call);
    out = {{&p.x, &p.y}, 1, &p.epilogue};
  }
  return out;
}

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
  if (const auto* c = std::get_if<ControlStep>(&step)) {
    auto add = [](std::vector<BufferId>& to, BufferId b) {
      if (b >= 0) to.push_back(b);
    };
    add(out.read, c->condition);
    add(out.read, c->trips);
    for (auto b : c->initial) add(out.read, b);
    for (const auto& body : c->bodies)
      for (const auto& a : body.arguments) add(out.read, a.buffer);
    for (auto b : c->outputs) add(out.written, b);
  }
  if (const auto* l = std::get_if<LibraryStep>(&step)) {
    auto library = operands_of(*l);
    for (size_t i = 0; i < library.all.size(); ++i)
      (i == library.result ? out.written : out.read).push_back(library.all[i]->buffer);
    if (*library.epilogue) kernel((*library.epilogue)->kernel);
  }
  return out;
}

const std::string& name_of(const Step& step) {
  return std::visit([](const auto& s) -> const std::string& { return s.name; }, step);
}

std::vector<std::string> step_ids(const Executable& executable) {
  std::vector<std::string> ids;
  std::unordered_map<std::string, int> times;
  for (const Step& step : executable.steps) {
    const std::string& name = name_of(step);
    const int time = ++times[name];
    ids.push_back(time > 1 ? name + "#" + std::to_string(time) : name);
  }
  return ids;
}

const SymExpr& bytes_of(const Step& step) {
  return std::visit([](const auto& s) -> const SymExpr& { return s.bytes; }, step);
}

const std::vector<StepDefines>& defines_of(const Step& step) {
  static const std::vector<StepDefines> kNone;
  if (const auto* h = std::get_if<HostStep>(&step)) return h->defines;
  if (const auto* c = std::get_if<ControlStep>(&step)) return c->defines;
  return kNone;
}

bool shares_memory(const KernelLaunch& k, size_t a, size_t b) {
  auto may = [&](size_t over, size_t under) {
    const auto& list = k.access[over].may_overwrite;
    return std::find(list.begin(), list.end(), static_cast<int>(under)) != list.end();
  };
  return k.access.empty() || (!k.written[a] && !k.written[b]) || may(a, b) || may(b, a);
}

namespace {

// Returns a function that makes errors of one part: "kernel 'softmax': has no object". The name outlives it.
auto errors_of(const char* part, const std::string& name) {
  return [part, &name](const std::string& what) {
    return Diagnostic(ErrorCode::Internal, std::string(part) + " '" + name + "': " + what);
  };
}

bool in_range(const Executable& e, BufferId b) { return b >= 0 && static_cast<size_t>(b) < e.buffers.size(); }

// Whether code may access elements of `dtype` in a buffer of another one: the same bytes, read as another type.
bool same_bytes(DType dtype, DType buffer) {
  if (dtype == buffer) return true;
  if (dtype == DType::String || buffer == DType::String) return false;
  const int code = info(dtype).bits, there = info(buffer).bits;
  return code == there || (code == 8 && there < 8) || (code < 8 && there == 8); // packed elements and their bytes
}

// The buffers of a launch are those that its code was made for.
Status verify_access(const Executable& e, const KernelLaunch& k) {
  const auto bad = errors_of("kernel", k.name);
  for (auto b : k.buffers)
    if (!in_range(e, b)) return bad("uses a buffer that does not exist");
  if (k.access.empty()) return {};
  if (k.access.size() != k.buffers.size())
    return bad("has " + std::to_string(k.buffers.size()) + " buffers, its code needs " +
               std::to_string(k.access.size()));
  for (size_t i = 0; i < k.buffers.size(); ++i) {
    const auto& b = e.buffers[static_cast<size_t>(k.buffers[i])];
    if (!same_bytes(k.access[i].dtype, b.dtype))
      return bad("its code needs " + std::string(name(k.access[i].dtype)) + " elements where '" + b.name + "' has " +
                 std::string(name(b.dtype)));
    for (size_t j = 0; j < i; ++j)
      if (k.buffers[i] == k.buffers[j] && !shares_memory(k, i, j))
        return bad("its code needs two buffers where it has '" + b.name + "' twice");
  }
  return {};
}

Status verify_kernel(const Executable& e, const KernelLaunch& k, bool is_alternative = false) {
  const auto bad = errors_of("kernel", k.name);
  bool gpu = is_gpu_target(e.target);
  if (k.written.size() != k.buffers.size()) return bad("one written flag per buffer is needed");
  TESSERA_TRY(verify_access(e, k));
  if (k.object >= 0 && static_cast<size_t>(k.object) >= e.objects.size())
    return bad("object " + std::to_string(k.object) + " does not exist");
  if (!k.function && k.object < 0) return bad("has neither code nor an object");
  if (gpu && (k.threads <= 0 || k.threads > 1024 || k.object < 0))
    return bad("a block of " + std::to_string(k.threads) + " threads is none for a GPU, or it has no object");
  if (!gpu && k.threads != 0) return bad("it is for a GPU, the executable is not");
  if (k.shared_bytes < 0 || k.shared_bytes > INT32_MAX) return bad("its shared memory has no valid size");
  if (k.threads == 0 && has(k, LaunchUse::Waits))
    return bad("its programs wait for each other, which they do on a GPU alone");
  if (k.cluster != 0 && (k.threads == 0 || k.cluster < 0 || has(k, LaunchUse::Waits)))
    return bad("a cluster of " + std::to_string(k.cluster) +
               " blocks is one of a GPU, whose programs do not wait for all others");
  if (k.threads == 0 && !k.tensor_maps.empty()) return bad("has tensor maps, which a GPU has alone");
  for (const auto& m : k.tensor_maps) {
    const auto buffer = static_cast<size_t>(m.buffer);
    if (m.buffer < 0 || buffer >= k.buffers.size()) return bad("has a tensor map of a buffer that it does not have");
    if (!k.access.empty() && !same_bytes(m.dtype, k.access[buffer].dtype))
      return bad("has a tensor map of " + std::string(name(m.dtype)) + " elements of a buffer of " +
                 std::string(name(k.access[buffer].dtype)));
  }
  for (const auto& w : k.workspaces)
    if (info(w.dtype).bits < 8 || info(w.dtype).kind == DTypeKind::Held)
      return bad("has a workspace of " + std::string(name(w.dtype)));
  if (!is_alternative && !k.cooperative_blocks.is_const(0))
    return bad("has programs that wait, and there is no other kernel");
  for (const auto* list : {&k.conditions, &k.facts})
    for (const auto& c : *list)
      if (c.multiple_of < 1 || c.min > c.max) return bad("a condition on a size can never be checked");
  if (is_alternative && !k.alternatives.empty()) return bad("an alternative has alternatives itself");
  if (!is_alternative && !k.conditions.empty()) return bad("has conditions and is no alternative");
  for (const auto& a : k.alternatives) {
    if (a.buffers != k.buffers || a.written != k.written) return bad("an alternative has other buffers");
    TESSERA_TRY(verify_kernel(e, a, true));
  }
  return {};
}

// The types that a call's operands may have: f32 on the host, where constant weights may be half precision, too. A
// GPU's libraries take more; which of them together is theirs to say.
bool library_type(DType dtype, bool gpu, bool weight) {
  switch (dtype) {
  case DType::F32: return true;
  case DType::F16:
  case DType::BF16: return gpu || weight;
  case DType::F64:
  case DType::I8:
  case DType::U8:
  case DType::I32: return gpu;
  default: return false;
  }
}

Status verify_operands(const Executable& e, const LibraryStep& step) {
  const auto bad = errors_of("library call", step.name);
  bool gpu = is_gpu_target(e.target);
  auto library = operands_of(step);
  for (const auto* o : library.all) {
    if (!in_range(e, o->buffer)) return bad("an operand has no buffer");
    if (o->strides.size() != o->shape.size()) return bad("one stride per dimension is needed");
    const auto& b = e.buffers[static_cast<size_t>(o->buffer)];
    bool weight = o == library.all[1] && library.all.size() > 2 && b.kind == BufferInfo::Kind::Constant;
    if (!library_type(b.dtype, gpu, weight))
      return bad("operand '" + b.name + "' is not f32" + (gpu ? ", nor another type that a GPU's libraries take" : ""));
  }
  return {};
}

// Windows that some device can compute: what sizes of operands allow is checked when a shape is planned.
Status verify_windows(const LibraryStep& step) {
  constexpr int64_t kMax = int64_t{1} << 30;
  const auto bad = errors_of("library call", step.name);
  auto each = [&](std::initializer_list<const std::vector<int64_t>*> lists, size_t count, int64_t least) {
    return std::all_of(lists.begin(), lists.end(), [&](const std::vector<int64_t>* list) {
      return list->size() == count &&
             std::all_of(list->begin(), list->end(), [&](int64_t v) { return v >= least && v <= kMax; });
    });
  };
  if (const auto* c = std::get_if<ConvCall>(&step.call)) {
    size_t rank = c->x.shape.size();
    if (rank < 3 || c->w.shape.size() != rank || c->y.shape.size() != rank) return bad("ranks of the operands");
    if (c->groups < 1 || c->groups > kMax || !each({&c->strides, &c->dilations}, rank - 2, 1) ||
        !each({&c->pads_begin, &c->pads_end}, rank - 2, -kMax))
      return bad("groups, strides, dilations or pads out of range");
  }
  if (const auto* p = std::get_if<PoolCall>(&step.call)) {
    size_t rank = p->x.shape.size();
    if (rank < 3 || p->y.shape.size() != rank) return bad("ranks of the operands");
    if (!each({&p->kernel, &p->strides, &p->dilations}, rank - 2, 1) ||
        !each({&p->pads_begin, &p->pads_end}, rank - 2, -kMax))
      return bad("window, strides, dilations or pads out of range");
  }
  return {};
}

Status verify_library(const Executable& e, const LibraryStep& l) {
  const auto bad = errors_of("library call", l.name);
  TESSERA_TRY(verify_operands(e, l));
  TESSERA_TRY(verify_windows(l));
  auto library = operands_of(l);
  if (const auto* a = std::get_if<FusedAttentionCall>(&l.call)) {
    auto rank = a->q.shape.size();
    bool same = rank >= 2 && is_gpu_target(e.target);
    for (const auto* o : library.all) same = same && o->shape.size() == rank;
    if (!same) return bad("no attention that a GPU computes");
  }
  const LibraryEpilogue* fused = nullptr;
  if (const auto* m = std::get_if<MatmulCall>(&l.call)) fused = m->fused ? &*m->fused : nullptr;
  if (const auto* c = std::get_if<ConvCall>(&l.call)) fused = c->fused ? &*c->fused : nullptr;
  size_t rank = library.all[library.result]->shape.size();
  if (fused && !is_gpu_target(e.target)) return bad("an epilogue that only a GPU's library computes");
  if (fused && ((fused->bias && (fused->bias->shape.size() != rank || fused->bias_dim < 0 ||
                                 static_cast<size_t>(fused->bias_dim) >= rank)) ||
                (fused->residual && fused->residual->shape.size() != rank)))
    return bad("bias or residual do not fit the result");
  const auto& epilogue = *library.epilogue;
  if (!epilogue) return {};
  bool symbols = epilogue->begin.size() == rank && epilogue->count.size() == rank;
  for (const auto* v : {&epilogue->begin, &epilogue->count})
    for (const auto& s : *v) symbols = symbols && s.is_symbol();
  if (!symbols) return bad("the epilogue needs a begin and a count symbol per dimension of the result");
  auto meets = [](const KernelLaunch& k) { return has(k, LaunchUse::Shared); };
  const auto& alternatives = epilogue->kernel.alternatives;
  if (meets(epilogue->kernel) || std::any_of(alternatives.begin(), alternatives.end(), meets))
    return bad("an epilogue has a grid barrier");
  return verify_kernel(e, epilogue->kernel);
}

Status verify_step(const Executable& e, const Step& step) {
  if (const auto* k = std::get_if<KernelLaunch>(&step)) return verify_kernel(e, *k);
  if (const auto* h = std::get_if<HostStep>(&step)) {
    for (const auto& d : h->defines)
      if (!d.symbol.is_symbol() || d.result < 0 || static_cast<size_t>(d.result) >= h->outputs.size() || d.dim >= 64 ||
          (d.dim < 0) == (d.element < 0))
        return errors_of("host step", h->name)("defines a size of a result that it does not have");
    return {};
  }
  if (const auto* c = std::get_if<CopyStep>(&step)) {
    if (in_range(e, c->source) && in_range(e, c->target)) {
      const auto &from = e.buffers[static_cast<size_t>(c->source)], &to = e.buffers[static_cast<size_t>(c->target)];
      if (!same_bytes(from.dtype, to.dtype) || (from.dtype == to.dtype && from.shape.size() != to.shape.size()))
        return errors_of("copy", c->name)("types differ");
    }
    return {};
  }
  if (const auto* c = std::get_if<ControlStep>(&step)) return verify_control(e, *c);
  return verify_library(e, std::get<LibraryStep>(step));
}

// The steps that a library call replaces belong to its own segment and write what it writes.
Status verify_instead(const Executable& e, size_t s) {
  const auto* l = std::get_if<LibraryStep>(&e.steps[s]);
  if (!l || l->instead_of == 0) return {};
  auto bad = [&](const std::string& what) {
    return Diagnostic(ErrorCode::Internal, "library call '" + l->name + "': the steps instead of it " + what);
  };
  if (l->instead_of < 0 || static_cast<size_t>(l->instead_of) > e.steps.size() - s - 1) return bad("do not exist");
  auto wanted = buffers_of(e.steps[s]).written;
  for (size_t i = s + 1; i <= s + static_cast<size_t>(l->instead_of); ++i) {
    const auto* inner = std::get_if<LibraryStep>(&e.steps[i]);
    if (std::holds_alternative<HostStep>(e.steps[i]) || std::holds_alternative<ControlStep>(e.steps[i]) ||
        (inner && inner->instead_of != 0))
      return bad("are not all plain ones");
    for (auto b : buffers_of(e.steps[i]).written) std::erase(wanted, b);
  }
  return wanted.empty() ? Status() : bad("do not write its result");
}

// Inputs and outputs: each has one buffer of its kind, and no other has it.
Status verify_bindings(const Executable& e) {
  const auto bad = errors_of("executable", e.model_name);
  std::vector<bool> bound(e.buffers.size());
  auto bind = [&](const std::vector<Binding>& bindings, BufferInfo::Kind kind, const std::string& what) -> Status {
    std::set<std::string> names;
    for (const auto& b : bindings) {
      if (!in_range(e, b.buffer)) return bad("'" + b.name + "' has no buffer");
      if (e.buffers[static_cast<size_t>(b.buffer)].kind != kind)
        return bad(what + " '" + b.name + "' is bound to a buffer of another kind");
      if (bound[static_cast<size_t>(b.buffer)])
        return bad(what + " '" + b.name + "' shares its buffer with another one");
      if (!names.insert(b.name).second) return bad("there are two " + what + "s '" + b.name + "'");
      bound[static_cast<size_t>(b.buffer)] = true;
    }
    return {};
  };
  TESSERA_TRY(bind(e.inputs, BufferInfo::Kind::Input, "input"));
  TESSERA_TRY(bind(e.outputs, BufferInfo::Kind::Output, "output"));
  if (e.states.size() > e.inputs.size() || e.states.size() > e.outputs.size())
    return bad("it has more states than inputs or outputs");
  for (size_t s = 0; s < e.states.size(); ++s) {
    if (e.states[s] < 0 || static_cast<size_t>(e.states[s]) >= e.constants.size())
      return bad("a state has no first value");
    const Tensor& first = e.constants[static_cast<size_t>(e.states[s])].value;
    const SymShape shape(first.dims().begin(), first.dims().end());
    for (const BufferId b : {e.inputs[e.call_inputs() + s].buffer, e.outputs[e.call_outputs() + s].buffer}) {
      const auto& buffer = e.buffers[static_cast<size_t>(b)];
      if (!has_bytes(buffer.dtype) || buffer.dtype != first.dtype() || buffer.shape != shape)
        return bad("state '" + e.constants[static_cast<size_t>(e.states[s])].name + "' is of another type than '" +
                   buffer.name + "'");
    }
  }
  for (size_t i = 0; i < e.buffers.size(); ++i) {
    auto kind = e.buffers[i].kind;
    if ((kind == BufferInfo::Kind::Input || kind == BufferInfo::Kind::Output) && !bound[i])
      return bad("buffer '" + e.buffers[i].name + "' is no input or output of the model");
  }
  return {};
}

Status verify_buffers(const Executable& e) {
  auto bad = [&](const BufferInfo& b, const std::string& what) {
    return Diagnostic(ErrorCode::Internal, "executable '" + e.model_name + "': buffer '" + b.name + "' " + what);
  };
  for (const auto& b : e.buffers) {
    if (b.kind == BufferInfo::Kind::Constant) {
      if (b.constant < 0 || static_cast<size_t>(b.constant) >= e.constants.size())
        return bad(b, "shows a constant that does not exist");
      const auto& t = e.constants[static_cast<size_t>(b.constant)].value;
      if (t.dtype() != b.dtype || t.dims().size() != b.shape.size()) return bad(b, "and its constant differ in type");
      for (size_t d = 0; d < b.shape.size(); ++d)
        if (!b.shape[d].is_const(t.dims()[d])) return bad(b, "and its constant differ in shape");
    }
    if (b.in_place_of >= 0 && !in_range(e, b.in_place_of)) return bad(b, "takes over a buffer that does not exist");
    // A temporary that nobody uses lives from 0 to -1.
    if (b.kind == BufferInfo::Kind::Temporary &&
        (b.first_step < 0 || b.last_step < -1 || b.last_step >= static_cast<int>(e.steps.size())))
      return bad(b, "lives in steps that do not exist");
  }
  return {};
}

// The buffers that a step reads before it writes.
std::vector<BufferId> needed_by(const Step& step) {
  std::vector<BufferId> needed;
  auto kernel = [&](const KernelLaunch& k) {
    for (size_t i = 0; i < k.buffers.size(); ++i)
      if (!k.written[i]) needed.push_back(k.buffers[i]);
  };
  if (const auto* k = std::get_if<KernelLaunch>(&step)) {
    kernel(*k);
  } else if (const auto* l = std::get_if<LibraryStep>(&step)) {
    auto library = operands_of(*l);
    if (*library.epilogue) kernel((*library.epilogue)->kernel);
    std::erase(needed, library.all[library.result]->buffer);
    for (size_t i = 0; i < library.all.size(); ++i)
      if (i != library.result) needed.push_back(library.all[i]->buffer);
  } else {
    needed = buffers_of(step).read;
  }
  return needed;
}

// Every step uses buffers that are alive, writes what is its to write, and reads what was written before.
Status verify_uses(const Executable& e) {
  std::vector<bool> defined;
  for (const auto& b : e.buffers)
    defined.push_back(b.kind == BufferInfo::Kind::Input || b.kind == BufferInfo::Kind::Constant);
  for (size_t s = 0; s < e.steps.size(); ++s) {
    auto bad = [&](const std::string& what) {
      return Diagnostic(ErrorCode::Internal,
                        "executable '" + e.model_name + "': step '" + name_of(e.steps[s]) + "' " + what);
    };
    auto used = buffers_of(e.steps[s]);
    for (const auto* list : {&used.read, &used.written})
      for (auto id : *list) {
        if (!in_range(e, id)) return bad("uses a buffer that does not exist");
        const auto& b = e.buffers[static_cast<size_t>(id)];
        auto at = static_cast<int>(s);
        if (b.kind == BufferInfo::Kind::Temporary && (at < b.first_step || at > b.last_step))
          return bad("uses '" + b.name + "' outside of its lifetime");
      }
    for (auto id : needed_by(e.steps[s]))
      if (!defined[static_cast<size_t>(id)])
        return bad("reads '" + e.buffers[static_cast<size_t>(id)].name + "' before it is written");
    for (auto id : used.written) {
      const auto& b = e.buffers[static_cast<size_t>(id)];
      if (b.kind == BufferInfo::Kind::Input || b.kind == BufferInfo::Kind::Constant)
        return bad("writes '" + b.name + "', which is not its to write");
      defined[static_cast<size_t>(id)] = true;
    }
  }
  for (const auto& output : e.outputs)
    if (!defined[static_cast<size_t>(output.buffer)])
      return errors_of("executable", e.model_name)("no step writes the output '" + output.name + "'");
  return {};
}

} // namespace

Status verify(const Executable& e) {
  if (!e.env) return errors_of("executable", e.model_name)("has no shape environment");
  TESSERA_TRY(verify_buffers(e));
  TESSERA_TRY(verify_bindings(e));
  for (size_t s = 0; s < e.steps.size(); ++s) {
    TESSERA_TRY(verify_step(e, e.steps[s]));
    TESSERA_TRY(verify_instead(e, s));
  }
  return verify_uses(e);
}

bool is_gpu_target(const std::string& target) { return target == "cuda" || target.starts_with("cuda "); }

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
  if (words[0] == "cuda") {
    if (words.size() > 1 && !words[1].starts_with("sm_")) return refuse("'" + words[1] + "' is no GPU architecture");
    return {};
  }
  if (words[0] != "cpu") return refuse("there is no such kind of device");
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
