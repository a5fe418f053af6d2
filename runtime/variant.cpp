#include "runtime/control.h"
#include "runtime/library_classes.h"
#include "symbols/input_rank.h"
#include <algorithm>
#include <set>

namespace tessera {

Result<std::unique_ptr<Variant>> Variant::create(std::shared_ptr<const Executable> executable) {
  TESSERA_CHECK(executable != nullptr, "an executor needs an executable");
  TESSERA_TRY(verify(*executable));
  TESSERA_TRY(check_target(executable->target));
  for (const auto& step : executable->steps) {
    auto linked = [&](const KernelLaunch& k) -> Status {
      if (k.function || k.threads > 0) return {}; // a GPU's code is loaded when it is first launched
      return Diagnostic(ErrorCode::UnsupportedFeature, "kernel '" + k.name + "' is not linked")
          .note("load_executable() takes the function that links");
    };
    if (const auto* k = std::get_if<KernelLaunch>(&step)) TESSERA_TRY(linked(*k));
    if (const auto* h = std::get_if<HostStep>(&step); h && !h->run)
      return Diagnostic(ErrorCode::UnsupportedFeature, "host step '" + h->name + "' (" + h->op + ") has no function")
          .note("load_executable() takes the function that resolves host steps");
    if (const auto* l = std::get_if<LibraryStep>(&step))
      if (const auto& epilogue = *operands_of(*l).epilogue) TESSERA_TRY(linked(epilogue->kernel));
  }
  auto v = std::make_unique<Variant>();
  v->on_gpu = is_gpu_target(executable->target);
  v->exe = executable.get();
  v->owner = std::move(executable);
  TESSERA_TRY(v->number_symbols());
  TESSERA_TRY(v->compile_inputs());
  TESSERA_ASSIGN(v->guards, GuardSet::compile(*v->exe->env, v->slots));
  TESSERA_TRY(v->compile_sizes());
  TESSERA_TRY(v->check_buffers());
  v->place_outputs();
  return v;
}

Status Variant::number_symbols() {
  std::set<uint64_t> known;
  auto add = [&](const SymExpr& s, int segment) {
    if (!known.insert(s.symbol_id()).second) return;
    slots.push_back(s);
    slot_segment.push_back(segment);
  };
  // Symbols that an input dimension is, then those that can be solved for.
  for (const auto& in : exe->inputs)
    for (const auto& d : exe->buffers[static_cast<size_t>(in.buffer)].shape)
      if (d.is_symbol()) add(d, 0);
  for (const auto& in : exe->inputs)
    for (const auto& d : exe->buffers[static_cast<size_t>(in.buffer)].shape)
      if (auto symbols = d.symbols(); !d.is_symbol() && symbols.size() == 1) {
        auto linear = d.linear_in(symbols[0]);
        if (linear && linear->first.is_const() && linear->second.is_const() && !linear->first.is_const(0))
          add(symbols[0], 0);
      }
  for (const auto& in : exe->inputs)
    if (const auto rank = exe->env->find(rank_symbol(in.name))) add(*rank, 0);
  segment_begin = {0};
  for (size_t s = 0; s < exe->steps.size(); ++s) {
    const auto& defines = defines_of(exe->steps[s]);
    if (defines.empty()) continue;
    auto segment = static_cast<int>(segment_begin.size());
    segment_begin.push_back(static_cast<int>(s) + 1);
    for (const auto& d : defines) add(d.symbol, segment);
  }
  segment_begin.push_back(static_cast<int>(exe->steps.size()));
  return {};
}

Status Variant::compile_inputs() {
  input_program = SymProgram(slots);
  std::unordered_map<uint64_t, int> slot_of;
  for (size_t i = 0; i < slots.size(); ++i) slot_of.emplace(slots[i].symbol_id(), static_cast<int>(i));
  std::vector<bool> binds(slots.size(), false);
  for (const auto& in : exe->inputs) {
    const auto rank = exe->env->find(rank_symbol(in.name));
    inputs.push_back({&in, {}, rank ? slot_of.at(rank->symbol_id()) : -1});
  }
  auto dims_of = [&](const InputForm& form) -> const SymShape& {
    return exe->buffers[static_cast<size_t>(form.binding->buffer)].shape;
  };
  for (auto& form : inputs)
    for (const auto& d : dims_of(form)) {
      DimForm dim;
      if (auto c = d.as_const())
        dim = {DimForm::Kind::Constant, *c, 0, -1, -1};
      else if (d.is_symbol()) {
        dim.kind = DimForm::Kind::Bind;
        dim.slot = slot_of.at(d.symbol_id());
        binds[static_cast<size_t>(dim.slot)] = true;
      } else {
        dim.kind = DimForm::Kind::Check;
        dim.reg = input_program.add(d);
        if (input_program.has_unbound(dim.reg))
          return Diagnostic(ErrorCode::UnsupportedFeature, "input '" + form.binding->name + "': dimension " + d.str() +
                                                               " cannot be solved for its symbols")
              .note("give each of them as a dimension of its own");
      }
      form.dims.push_back(dim);
    }
  for (auto& form : inputs)
    for (size_t i = 0; i < form.dims.size(); ++i) {
      auto& dim = form.dims[i];
      if (dim.kind != DimForm::Kind::Check) continue;
      auto symbols = dims_of(form)[i].symbols();
      if (symbols.size() != 1 || binds[static_cast<size_t>(slot_of.at(symbols[0].symbol_id()))]) continue;
      auto linear = dims_of(form)[i].linear_in(symbols[0]);
      if (!linear || !linear->first.is_const() || !linear->second.is_const()) continue;
      dim.kind = DimForm::Kind::Solve;
      dim.slot = slot_of.at(symbols[0].symbol_id());
      dim.a = linear->first.const_value();
      dim.b = linear->second.const_value();
    }
  return {};
}

namespace {
KernelForm compile_kernel(SymProgram& program, const KernelLaunch& k) {
  KernelForm form{convert_sizes<int>(k, [&](const LaunchField&, const SymExpr& size) { return program.add(size); })};
  for (const auto& a : k.alternatives) form.alternatives.push_back(compile_kernel(program, a));
  return form;
}
} // namespace

Status Variant::compile_sizes() {
  program = SymProgram(slots);
  auto contradiction = [&](const std::string& what) {
    return Diagnostic(ErrorCode::Internal, "executable '" + exe->model_name + "': " + what);
  };
  std::unordered_map<uint64_t, int> segment_of;
  for (size_t i = 0; i < slots.size(); ++i) segment_of.emplace(slots[i].symbol_id(), slot_segment[i]);
  std::map<std::vector<int>, int> shape_of;
  for (const auto& b : exe->buffers) {
    std::vector<int> dims;
    int segment = 0;
    for (const auto& d : b.shape) {
      dims.push_back(program.add(d));
      if (program.has_unbound(dims.back()))
        return contradiction("the size " + d.str() + " of '" + b.name + "' is defined by no input and no step");
      for (const auto& s : d.symbols()) segment = std::max(segment, segment_of.at(s.symbol_id()));
    }
    const auto [shape, fresh] = shape_of.try_emplace(std::move(dims), static_cast<int>(shapes.size()));
    if (fresh) shapes.push_back(shape->first);
    buffer_shape.push_back(shape->second);
    buffer_segment.push_back(segment);
  }
  auto operand = [&](const StridedOperand& o) {
    OperandForm form;
    form.buffer = o.buffer;
    for (const auto& d : o.shape) form.shape.push_back(program.add(d));
    for (const auto& s : o.strides) form.strides.push_back(program.add(s));
    form.offset = program.add(o.offset);
    return form;
  };
  LibraryClasses classes;
  for (const auto& step : exe->steps) {
    StepForm form;
    form.step = &step;
    if (const auto* k = std::get_if<KernelLaunch>(&step)) {
      form.kernel = compile_kernel(program, *k);
      max_kernel_pointers = std::max(max_kernel_pointers, k->buffers.size() + k->workspaces.size() + 1);
    }
    if (const auto* l = std::get_if<LibraryStep>(&step)) {
      auto library = operands_of(*l);
      const auto* epilogue = library.epilogue;
      form.result = library.result;
      for (const auto* o : library.all) form.operands.push_back(operand(*o));
      form.library_class = classes.of(*exe, buffer_shape, *l, form);
      library_classes = std::max(library_classes, static_cast<size_t>(form.library_class) + 1);
      if (*epilogue) {
        auto symbols = slots;
        symbols.insert(symbols.end(), (*epilogue)->begin.begin(), (*epilogue)->begin.end());
        symbols.insert(symbols.end(), (*epilogue)->count.begin(), (*epilogue)->count.end());
        form.epilogue.emplace();
        form.epilogue->source = &**epilogue;
        form.epilogue->program = SymProgram(symbols);
        form.epilogue->kernel = compile_kernel(form.epilogue->program, (*epilogue)->kernel);
        max_kernel_pointers = std::max(max_kernel_pointers, (*epilogue)->kernel.buffers.size());
      }
    }
    if (const auto* c = std::get_if<ControlStep>(&step))
      for (const SymExpr& e : control_numbers(*c)) form.control.push_back(program.add(e));
    form.bytes = program.add(bytes_of(step));
    steps.push_back(std::move(form));
  }
  return {};
}

namespace {
// Whether two buffers may lie in the same memory while a step runs that may use both.
bool may_share(const Step& step, BufferId a, BufferId b) {
  const KernelLaunch* k = std::get_if<KernelLaunch>(&step);
  if (const auto* l = std::get_if<LibraryStep>(&step))
    if (const auto& epilogue = *operands_of(*l).epilogue) k = &epilogue->kernel;
  if (!k) {
    auto used = buffers_of(step).read;
    auto uses = [&](BufferId id) { return std::find(used.begin(), used.end(), id) != used.end(); };
    return !uses(a) || !uses(b);
  }
  for (size_t i = 0; i < k->buffers.size(); ++i)
    for (size_t j = 0; j < k->buffers.size(); ++j)
      if (k->buffers[i] == a && k->buffers[j] == b && !shares_memory(*k, i, j)) return false;
  return true;
}
} // namespace

Status Variant::check_buffers() {
  auto count = exe->buffers.size();
  temporaries.resize(segment_begin.size() - 1);
  constant_pointers.assign(count, nullptr);
  device_reads.assign(count, false);
  device_writes.assign(count, false);
  std::vector<bool> from_host(count, false), placed_later(count, false); // results of which the next segment has room
  for (size_t s = 0; s < exe->steps.size(); ++s) {
    const auto& step = exe->steps[s];
    auto used = buffers_of(step);
    auto on_device = [&](const std::vector<BufferId>& ids, std::vector<bool>& marks) {
      for (auto b : ids)
        if (!std::holds_alternative<HostStep>(step) && has_bytes(exe->buffers[static_cast<size_t>(b)].dtype))
          marks[static_cast<size_t>(b)] = true;
    };
    on_device(used.read, device_reads);
    on_device(used.written, device_writes);
    if (std::holds_alternative<HostStep>(step))
      for (auto b : used.written) from_host[static_cast<size_t>(b)] = placed_later[static_cast<size_t>(b)] = true;
    if (std::holds_alternative<ControlStep>(step))
      for (auto b : used.written)
        placed_later[static_cast<size_t>(b)] = buffer_segment[static_cast<size_t>(b)] > segment_of(static_cast<int>(s));
    for (auto b : used.written) { // a temporary has no place before
      const auto& made = exe->buffers[static_cast<size_t>(b)];
      if (placed_later[static_cast<size_t>(b)] && made.kind == BufferInfo::Kind::Temporary &&
          made.first_step < static_cast<int>(s))
        return Diagnostic(ErrorCode::Internal,
                          "step '" + name_of(step) + "' makes '" + made.name + "', which is used before");
    }
  }

  TESSERA_TRY(check_segments());

  // Taking over memory: the source must be ours, of the same segment, and dead after the step that writes the taker,
  // and that step must not be a library call that reads it as an operand (other blocks may still read what this block
  // overwrites).
  in_place_of.assign(count, -1);
  std::vector<std::set<BufferId>> library_operands(exe->steps.size());
  for (size_t s = 0; s < exe->steps.size(); ++s)
    for (const auto& o : steps[s].operands) library_operands[s].insert(o.buffer);
  for (size_t i = 0; i < count; ++i) {
    const auto& b = exe->buffers[i];
    if (b.kind == BufferInfo::Kind::Constant) {
      constant_pointers[i] = const_cast<std::byte*>(exe->constants[static_cast<size_t>(b.constant)].value.data());
      continue;
    }
    if (b.kind != BufferInfo::Kind::Temporary || b.last_step < b.first_step) continue;
    // A host step's result stays in its own memory; on a GPU, steps there read a copy of it in the arena.
    if (from_host[i] && !(on_gpu && device_reads[i])) continue;
    // A temporary is placed in the segment where its size is known, at the earliest the one in which it is first used:
    // for a host step's result that is after it.
    int first_step = b.first_step + (placed_later[i] ? 1 : 0);
    if (segment_of(first_step) < buffer_segment[i])
      return Diagnostic(ErrorCode::Internal, "buffer '" + b.name + "' is used before its size is known");
    temporaries[static_cast<size_t>(buffer_segment[i])].push_back(static_cast<BufferId>(i));
    if (b.in_place_of < 0 || placed_later[i]) continue;
    auto from = static_cast<size_t>(b.in_place_of);
    const auto& source = exe->buffers[from];
    bool fits = source.kind == BufferInfo::Kind::Temporary && !from_host[from] &&
                buffer_segment[from] == buffer_segment[i] && source.last_step == b.first_step;
    if (fits && static_cast<size_t>(b.first_step) < steps.size()) {
      const auto& form = steps[static_cast<size_t>(b.first_step)];
      bool own_result = !form.operands.empty() && form.operands[form.result].buffer == b.in_place_of;
      fits = (own_result || !library_operands[static_cast<size_t>(b.first_step)].count(b.in_place_of)) &&
             may_share(*form.step, static_cast<BufferId>(i), b.in_place_of);
    }
    if (fits) in_place_of[i] = b.in_place_of;
  }
  return {};
}

namespace {
// Whether a run may end as it does not fit: a guard, or a library call that a GPU's libraries refuse.
bool may_miss(const Executable& body) {
  const auto& guards = body.env->guards();
  const auto assumes = [&](const SymExpr& size) {
    const auto symbols = size.symbols();
    return std::any_of(symbols.begin(), symbols.end(),
                       [&](const SymExpr& s) { return body.env->fact_class(s) != GuardClass::Required; });
  };
  return std::any_of(guards.begin(), guards.end(), [](const Guard& g) { return g.cls != GuardClass::Required; }) ||
         std::any_of(body.buffers.begin(), body.buffers.end(),
                     [&](const BufferInfo& b) { return std::any_of(b.shape.begin(), b.shape.end(), assumes); }) ||
         std::any_of(body.steps.begin(), body.steps.end(), [&](const Step& step) {
           const auto* control = std::get_if<ControlStep>(&step);
           return (is_gpu_target(body.target) && std::holds_alternative<LibraryStep>(step)) ||
                  (control && std::any_of(control->bodies.begin(), control->bodies.end(),
                                          [](const ControlBody& b) { return may_miss(*b.executable); }));
         });
}
} // namespace

void Variant::place_outputs() {
  // The first segment that begins when no other variant can take over the call any more.
  int final_segment = 0;
  const auto last = static_cast<int>(segment_begin.size()) - 2;
  for (int g = 0; g < guards.count(); ++g)
    if (!guards.required(g))
      for (const SymExpr& symbol : guards.guard(g).condition.symbols()) {
        const auto slot = std::find(slots.begin(), slots.end(), symbol) - slots.begin();
        const bool known = static_cast<size_t>(slot) < slots.size(); // else the guard is over what stands for it
        final_segment = std::max(final_segment, known ? slot_segment[static_cast<size_t>(slot)] : last);
      }
  std::vector<int> written(exe->buffers.size(), static_cast<int>(segment_begin.size())); // first in which steps do it
  for (size_t s = 0; s < exe->steps.size(); ++s) {
    const int segment = segment_of(static_cast<int>(s));
    if (on_gpu && std::holds_alternative<LibraryStep>(exe->steps[s])) final_segment = std::max(final_segment, segment);
    if (const auto* control = std::get_if<ControlStep>(&exe->steps[s]))
      for (const ControlBody& body : control->bodies)
        if (may_miss(*body.executable)) final_segment = std::max(final_segment, segment + 1);
    for (BufferId b : buffers_of(exe->steps[s]).written)
      written[static_cast<size_t>(b)] = std::min(written[static_cast<size_t>(b)], segment);
  }
  for (size_t o = 0; o < exe->outputs.size(); ++o) {
    const auto b = static_cast<size_t>(exe->outputs[o].buffer);
    const int known = buffer_segment[b], last_use = std::max(known, final_segment);
    const bool changes = o < exe->call_outputs() && (last_use > last || std::max(written[b], known) < last_use);
    output_may_change.push_back(changes);
    output_segment.push_back(changes || o >= exe->call_outputs() ? known : last_use);
  }
}

void Variant::append_key(const CallState& call, std::vector<int64_t>& key) {
  for (size_t i = 0; i < call.bound.size(); ++i) key.push_back(call.bound[i] ? call.values[i] : -1);
  if (!call.lends_outputs) return;
  key.push_back(-2);
  for (size_t i = 0; i < call.donated.size(); i += 63) {
    int64_t bits = 0;
    for (size_t k = i; k < std::min(i + 63, call.donated.size()); ++k) bits = bits * 2 + (call.donated[k] ? 1 : 0);
    key.push_back(bits);
  }
}

bool Variant::may_lend() const {
  return segment_begin.size() == 2 && std::all_of(exe->steps.begin(), exe->steps.end(), [](const Step& step) {
           return !std::holds_alternative<HostStep>(step) && !std::holds_alternative<ControlStep>(step);
         });
}

int Variant::segment_of(int step) const {
  auto after = std::upper_bound(segment_begin.begin(), segment_begin.end() - 1, step);
  return static_cast<int>(after - segment_begin.begin()) - 1;
}

// A buffer has a place from the segment on in which its size is known. Results of a step that defines sizes are stored
// when the next segment begins.
Status Variant::check_segments() const {
  for (size_t s = 0; s < exe->steps.size(); ++s) {
    int segment = segment_of(static_cast<int>(s));
    const bool defines = !defines_of(exe->steps[s]).empty();
    auto used = buffers_of(exe->steps[s]);
    auto known = [&](const std::vector<BufferId>& ids, int by) {
      return std::all_of(ids.begin(), ids.end(),
                         [&](BufferId b) { return buffer_segment[static_cast<size_t>(b)] <= by; });
    };
    if (!known(used.read, segment) || !known(used.written, segment + (defines ? 1 : 0)))
      return Diagnostic(ErrorCode::Internal,
                        "step '" + name_of(exe->steps[s]) + "' uses a buffer before its size is known");
  }
  return {};
}

std::unordered_map<uint64_t, int64_t> Variant::symbol_values(const std::vector<int64_t>& values,
                                                             const std::vector<bool>& bound) const {
  std::unordered_map<uint64_t, int64_t> symbols;
  for (size_t i = 0; i < slots.size(); ++i)
    if (bound[i]) symbols.emplace(slots[i].symbol_id(), values[i]);
  return symbols;
}

void Variant::prepare(CallState& call) const {
  call.values.assign(slots.size(), 0);
  call.bound.assign(slots.size(), false);
  call.tensors.assign(inputs.size(), nullptr);
  guards.prepare(call.guards);
  input_program.prepare(call.inputs);
  program.prepare(call.sizes);
}

std::string Variant::declared(const InputForm& input) const {
  const auto& b = exe->buffers[static_cast<size_t>(input.binding->buffer)];
  return std::string(name(b.dtype)) + str(b.shape);
}

namespace {
std::string given_text(const Tensor& t) {
  std::string s(name(t.dtype()));
  s += '[';
  for (size_t i = 0; i < t.dims().size(); ++i) s += (i ? ", " : "") + std::to_string(t.dims()[i]);
  return s + ']';
}
} // namespace

Status Variant::bind_dims(const InputForm& input, const Tensor& tensor, CallState& call) const {
  auto bad = [&](const std::string& what) {
    return Diagnostic(ErrorCode::BadInput, "input '" + input.binding->name + "': " + what + ", the model declares " +
                                               declared(input) + " and " + given_text(tensor) + " was given");
  };
  const auto& b = exe->buffers[static_cast<size_t>(input.binding->buffer)];
  if (!tensor.defined())
    return Diagnostic(ErrorCode::BadInput, "input '" + input.binding->name + "' is an undefined tensor");
  if (tensor.dtype() != b.dtype) return bad("wrong type of elements");
  if (input.rank_slot >= 0) {
    const auto slot = static_cast<size_t>(input.rank_slot);
    call.values[slot] = static_cast<int64_t>(tensor.dims().size());
    call.bound[slot] = true;
  } else if (tensor.dims().size() != b.shape.size()) {
    return bad("wrong number of dimensions");
  }
  // The first dimensions of an input of another rank than the variant's, whose guard says so, are worth knowing.
  for (size_t d = 0; d < std::min(input.dims.size(), tensor.dims().size()); ++d) {
    const auto& form = input.dims[d];
    int64_t given = tensor.dims()[d], value = given;
    switch (form.kind) {
    case DimForm::Kind::Constant:
      if (given != form.a) return bad("dimension " + std::to_string(d) + " must be " + std::to_string(form.a));
      continue;
    case DimForm::Kind::Check: continue; // when all symbols are bound
    case DimForm::Kind::Solve: {
      int64_t rest = 0;
      if (__builtin_sub_overflow(given, form.b, &rest) || rest % form.a != 0)
        return bad("dimension " + std::to_string(d) + " must be " + b.shape[d].str());
      value = rest / form.a;
      break;
    }
    case DimForm::Kind::Bind: break;
    }
    auto slot = static_cast<size_t>(form.slot);
    if (call.bound[slot] && call.values[slot] != value)
      return bad("dimension " + std::to_string(d) + " must be " + b.shape[d].str() + ", where " +
                 slots[slot].symbol_name() + " is " + std::to_string(call.values[slot]) + " by another dimension");
    call.values[slot] = value;
    call.bound[slot] = true;
  }
  return {};
}

Status Variant::in_order(const std::map<std::string, Tensor>& given, std::vector<const Tensor*>& ordered) const {
  ordered.clear();
  const std::span<const InputForm> wanted(inputs.data(), exe->call_inputs());
  for (const InputForm& input : wanted) {
    auto it = given.find(input.binding->name);
    if (it == given.end()) {
      Diagnostic d(ErrorCode::MissingInput, "input '" + input.binding->name + "' was not given");
      d.note("the model declares it as " + declared(input));
      return d;
    }
    ordered.push_back(&it->second);
  }
  if (ordered.size() != given.size())
    for (const auto& one : given) {
      const std::string& key = one.first; // a binding cannot be captured by every compiler
      if (std::none_of(wanted.begin(), wanted.end(), [&](const InputForm& f) { return f.binding->name == key; })) {
        Diagnostic d(ErrorCode::UnknownInput, "the model has no input '" + key + "'");
        std::string names;
        for (const auto& f : wanted) names += (names.empty() ? "'" : ", '") + f.binding->name + "'";
        d.note(names.empty() ? "it has no inputs" : "its inputs are " + names);
        return d;
      }
    }
  return {};
}
Status Variant::bind(std::span<const Tensor* const> given, CallState& call) const {
  std::fill(call.bound.begin(), call.bound.end(), false);
  if (given.size() != inputs.size())
    return Diagnostic(ErrorCode::BadInput, std::to_string(given.size()) + " inputs were given, the model has " +
                                               std::to_string(inputs.size()));
  for (size_t i = 0; i < inputs.size(); ++i) {
    call.tensors[i] = given[i];
    TESSERA_TRY(bind_dims(inputs[i], *given[i], call));
  }
  bool ran = false;
  for (size_t i = 0; i < inputs.size(); ++i)
    for (size_t d = 0; d < inputs[i].dims.size(); ++d) {
      const auto& form = inputs[i].dims[d];
      if (form.kind != DimForm::Kind::Check || inputs[i].dims.size() != given[i]->dims().size()) continue;
      if (!std::exchange(ran, true)) {
        for (size_t s = 0; s < slots.size(); ++s) {
          call.inputs.value[s] = call.values[s];
          call.inputs.fault[s] = call.bound[s] ? SymFault::None : SymFault::Unbound;
        }
        input_program.run(call.inputs);
      }
      auto r = static_cast<size_t>(form.reg);
      if (call.inputs.fault[r] == SymFault::None && call.inputs.value[r] == call.tensors[i]->dims()[d]) continue;
      const auto& e = exe->buffers[static_cast<size_t>(inputs[i].binding->buffer)].shape[d];
      std::string must = call.inputs.fault[r] == SymFault::None
                             ? std::to_string(call.inputs.value[r])
                             : "a size that " + std::string(describe(call.inputs.fault[r]));
      return Diagnostic(ErrorCode::BadInput, "input '" + inputs[i].binding->name + "': dimension " + std::to_string(d) +
                                                 " must be " + e.str() + " = " + must + ", the model declares " +
                                                 declared(inputs[i]) + " and " + given_text(*call.tensors[i]) +
                                                 " was given");
    }
  return {};
}

} // namespace tessera
