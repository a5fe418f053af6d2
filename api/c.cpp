#include "api/c_session.h"
#include "api/device.h"
#include "api/variant.h"
#include "codegen/driver/compile.h"
#include "codegen/driver/plan_file.h"
#include "frontend/fx/importer.h"
#include "graph/support/guarded.h"
#include "graph/support/text.h"
#include "runtime/cuda/memory.h"
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

struct tessera_memory {
  std::unique_ptr<tessera::cuda::SharedBlock> block;
};

namespace tessera {
namespace {

// What tessera_last_error() shows, and the text of it all.
struct LastError {
  Diagnostic error;
  std::string text, location;
  std::vector<const char*> notes;
  tessera_error parts{};
  bool any = false;
};
thread_local LastError last_error;
} // namespace

const char* record_error(const Diagnostic& error) noexcept {
  auto put = guarded("an error's text", [&]() -> Status {
    LastError& last = last_error;
    last.any = false;
    last.error = error;
    last.text = error.str();
    last.location = error.location.str();
    last.notes.clear();
    for (const std::string& note : last.error.notes) last.notes.push_back(note.c_str());
    const ErrorCodeInfo& known = info(error.code); // texts of a table
    last.parts = {known.id.data(),       known.name.data(),
                  last.location.c_str(), last.error.message.c_str(),
                  last.notes.data(),     static_cast<int32_t>(last.notes.size())};
    last.any = true;
    return {};
  });
  return put.ok() ? last_error.text.c_str() : kNoMemoryForError;
}

namespace {
enum class Side : uint8_t { Input, Output };
enum class Memory : uint8_t { Needed, Ignored };

// A tensor of the caller's that was looked at: nothing that it points to is read before that is known to be there.
struct Checked {
  const IoInfo* io;
  DType dtype;
  Dims dims;
  size_t bytes;
  void* data;
};

Diagnostic unknown_input(const std::vector<IoInfo>& known, const std::string& name) {
  Diagnostic d(ErrorCode::UnknownInput, "the model has no input '" + name + "'");
  std::string names;
  for (const auto& io : known) names += (names.empty() ? "'" : ", '") + io.name + "'";
  return std::move(d).note(names.empty() ? "it has no inputs" : "its inputs are " + names);
}

Status check_memory(const std::string& what, DType dtype, size_t bytes, const void* data) {
  if (bytes == 0) return {};
  if (data == nullptr) return usage(what + " has no memory");
  const auto at = reinterpret_cast<uintptr_t>(data);
  const auto alignment = static_cast<uintptr_t>(std::clamp(info(dtype).bits / 8, 1, 8));
  if (at % alignment != 0)
    return usage(what + " lies at an address that is no multiple of " + std::to_string(alignment) +
                 ", the size of its elements");
  if (at + bytes < at)
    return usage(what + " of " + std::to_string(bytes) + " bytes reaches beyond the end of the address space");
  return {};
}

Result<Checked> check(const tessera_tensor& t, const IoInfo& io, const std::string& what, Memory memory) {
  auto dtype = dtype_from_onnx(t.dtype);
  if (!dtype || !has_bytes(*dtype))
    return usage(what + " has the element type " + std::to_string(t.dtype) + ", which cannot be passed as memory");
  // The model's rank says how many dimensions there are to be read.
  if (t.rank < 0 || static_cast<size_t>(t.rank) != io.shape.size())
    return Diagnostic(ErrorCode::BadInput, what + " has rank " + std::to_string(t.rank) + ", the model declares rank " +
                                               std::to_string(io.shape.size()));
  if (t.rank > 0 && t.dims == nullptr) return usage(what + " has no dimensions");
  Dims dims(t.dims, t.dims + t.rank);
  for (size_t d = 0; d < dims.size(); ++d)
    if (dims[d] < 0)
      return usage(what + " has dimension " + std::to_string(d) + " of " + std::to_string(dims[d]) +
                   ", a size is 0 or more");
  auto elements = element_count(dims);
  if (!elements.ok()) return Diagnostic(elements.error().code, what + ": " + elements.error().message);
  const auto bytes = static_cast<size_t>(byte_size(*dtype, *elements));
  if (memory == Memory::Needed) TESSERA_TRY(check_memory(what, *dtype, bytes, t.data));
  return Checked{&io, *dtype, std::move(dims), bytes, t.data};
}

// All tensors of one side of a call.
Result<std::vector<Checked>> check_all(const tessera_session& s, Side side, const tessera_tensor* tensors,
                                       int32_t count, Memory memory) {
  const bool input = side == Side::Input;
  const auto& known = input ? s.inputs : s.outputs;
  const std::string kind = input ? "input" : "output";
  // More inputs than the model has are not looked at; a missing one is an error of the call, by name.
  const bool wrong =
      count < 0 || (input ? static_cast<size_t>(count) > known.size() : static_cast<size_t>(count) != known.size());
  if (wrong)
    return usage("the model has " + std::to_string(known.size()) + " " + kind + "s, and the number given is " +
                 std::to_string(count));
  if (count > 0 && tensors == nullptr) return usage("the " + kind + "s are null");
  std::vector<Checked> out;
  std::vector<bool> given(known.size());
  for (int32_t i = 0; i < count; ++i) {
    const tessera_tensor& t = tensors[i];
    auto index = static_cast<size_t>(i);
    if (input) {
      if (t.name != nullptr) {
        auto it = s.input_named.find(std::string_view(t.name));
        if (it == s.input_named.end()) return unknown_input(known, t.name);
        index = it->second;
      }
      if (given[index]) return usage("input '" + known[index].name + "' is given twice");
      given[index] = true;
    }
    TESSERA_ASSIGN(auto checked, check(t, known[index], kind + " '" + known[index].name + "'", memory));
    out.push_back(std::move(checked));
  }
  return out;
}

// The caller's memory outlives the call, so that nothing owns it here.
Tensor view(Checked& t) {
  static const std::byte nothing{};
  const auto* data = t.data ? static_cast<const std::byte*>(t.data) : &nothing;
  return Tensor::view(t.dtype, std::move(t.dims), {nullptr, data, t.bytes});
}
DeviceTensor on_device(Checked& t) { return {t.dtype, std::move(t.dims), t.data}; }

template <class To>
auto by_name(std::vector<Checked>& tensors, const To& to) {
  std::map<std::string, decltype(to(tensors.front()))> out;
  for (auto& t : tensors) out.emplace(t.io->name, to(t));
  return out;
}
template <class To>
auto in_order(std::vector<Checked>& tensors, const To& to) {
  std::vector<decltype(to(tensors.front()))> out;
  for (auto& t : tensors) out.push_back(to(t));
  return out;
}

bool is_same(const DeviceTensor& known, const tessera_tensor& t) {
  return known.data == t.data && info(known.dtype).onnx == t.dtype && t.dims != nullptr &&
         std::equal(known.dims.begin(), known.dims.end(), t.dims, t.dims + std::max(t.rank, 0));
}

// All inputs in order, as called_with. Those that the last call gave, as weights are, were looked at then.
Status take_inputs(tessera_session& s, const tessera_tensor* inputs) {
  auto last = std::exchange(s.called_with, {});
  last.resize(s.inputs.size());
  for (size_t i = 0; i < last.size(); ++i) {
    if (is_same(last[i], inputs[i]) && last[i].data != nullptr) continue;
    TESSERA_ASSIGN(auto checked, check(inputs[i], s.inputs[i], "input '" + s.inputs[i].name + "'", Memory::Needed));
    last[i] = on_device(checked);
  }
  s.called_with = std::move(last);
  return {};
}

void show(const std::vector<IoInfo>& all, tessera_session::Shown& shown) {
  for (const IoInfo& io : all) {
    auto& dims = shown.dims.emplace_back();
    for (const SymExpr& e : io.shape) dims.push_back(e.str());
  }
  for (size_t i = 0; i < all.size(); ++i) { // once the texts stay where they are
    auto& texts = shown.texts.emplace_back();
    for (const std::string& d : shown.dims[i]) texts.push_back(d.c_str());
  }
  for (size_t i = 0; i < all.size(); ++i)
    shown.ios.push_back({all[i].name.c_str(), info(all[i].dtype).onnx, static_cast<int32_t>(all[i].shape.size()),
                         shown.texts[i].data()});
}

// Of: DeviceTensor or Tensor. Data: of one of them, the address that is shown.
template <class Of, class Data>
void show_outputs(tessera_session& s, const std::vector<Of>& outputs, const std::vector<DType>& dtypes,
                  std::vector<Dims> dims, const Data& data) {
  s.dims = std::move(dims);
  s.sizes.clear();
  for (size_t i = 0; i < outputs.size(); ++i)
    s.sizes.push_back({s.outputs[i].name.c_str(), info(dtypes[i]).onnx, static_cast<int32_t>(s.dims[i].size()),
                       s.dims[i].data(), data(outputs[i])});
}

Status output_sizes(tessera_session& s, const tessera_tensor* inputs, int32_t input_count) {
  TESSERA_ASSIGN(auto in, check_all(s, Side::Input, inputs, input_count, Memory::Ignored));
  const auto given = by_name(in, on_device);
  TESSERA_ASSIGN(auto sizes, s.executor ? s.executor->output_sizes(given) : s.session->output_sizes(given));
  std::vector<DType> dtypes;
  std::vector<Dims> dims;
  for (auto& t : sizes) {
    dtypes.push_back(t.dtype);
    dims.push_back(std::move(t.dims));
  }
  show_outputs(s, sizes, dtypes, std::move(dims), [](const DeviceTensor&) -> void* { return nullptr; });
  return {};
}

Status run_fresh(tessera_session& s, const tessera_tensor* inputs, int32_t input_count) {
  TESSERA_ASSIGN(auto in, check_all(s, Side::Input, inputs, input_count, Memory::Needed));
  const auto given = by_name(in, view);
  s.sizes.clear();
  s.fresh.clear();
  TESSERA_ASSIGN(s.fresh, s.executor ? s.executor->run(given) : s.session->run(given));
  std::vector<DType> dtypes;
  std::vector<Dims> dims;
  for (size_t i = 0; i < s.fresh.size(); ++i) {
    if (!has_bytes(s.fresh[i].dtype()))
      return Diagnostic(ErrorCode::UnsupportedType, "output '" + s.outputs[i].name + "' holds " +
                                                        std::string(name(s.fresh[i].dtype())) +
                                                        "s, which are no memory of a fixed layout");
    dtypes.push_back(s.fresh[i].dtype());
    dims.push_back(s.fresh[i].dims());
  }
  show_outputs(s, s.fresh, dtypes, std::move(dims),
               [](const Tensor& t) { return static_cast<void*>(const_cast<std::byte*>(t.data())); });
  return {};
}

// What a session's interface shows, from the session itself.
void describe(tessera_session& s) {
  s.inputs = s.session->inputs();
  s.outputs = s.session->outputs();
  std::set<uint64_t> bound;
  for (size_t i = 0; i < s.inputs.size(); ++i) {
    s.input_named.emplace(s.inputs[i].name, i);
    for (const SymExpr& d : s.inputs[i].shape)
      for (const SymExpr& symbol : d.symbols()) bound.insert(symbol.symbol_id());
  }
  for (const IoInfo& o : s.outputs)
    for (const SymExpr& d : o.shape)
      for (const SymExpr& symbol : d.symbols()) s.sizes_known = s.sizes_known && bound.contains(symbol.symbol_id());
  show(s.inputs, s.shown_inputs);
  show(s.outputs, s.shown_outputs);
}

// Open: (SessionOptions) -> Result<std::unique_ptr<Session>>
template <class Open>
Result<std::unique_ptr<tessera_session>> open_session(const tessera_options& given, const Open& open) {
  if (given.threads < 0) return usage("there are no " + std::to_string(given.threads) + " threads");
  SessionOptions options;
  TESSERA_ASSIGN(DeviceChoice choice, choose_device(given.device ? given.device : "auto"));
  choice.apply(options.compile);
  options.executor.gpu = choice.gpu;
  options.compile.threads = given.threads;
  if (given.tf32 != nullptr) {
    auto tf32 = parse_tf32(given.tf32);
    if (!tf32) return usage("tf32 is " + quote(given.tf32) + "; it may be \"off\", \"conv\" or \"all\"");
    options.compile.tf32 = *tf32;
  }
  if (given.plan != nullptr) {
    TESSERA_ASSIGN(options.compile.plan, read_plan_file(given.plan));
  }
  if (given.tune_share != 0) options.tune_share = std::max(given.tune_share, 0.0);
  auto out = std::make_unique<tessera_session>();
  out->device = choice.device;
  out->gpu = choice.gpu;
  TESSERA_ASSIGN(out->session, open(std::move(options)));
  describe(*out);
  return out;
}

Result<ProgramSource> source_of(const tessera_program& program) {
  if (program.json == nullptr) return usage("the program has no JSON");
  if (program.weight_count < 0 || (program.weight_count > 0 && program.weights == nullptr))
    return usage("the program's weights are null");
  ProgramSource source;
  source.name = program.name ? program.name : "<program>";
  source.json.assign(program.json, program.json_bytes);
  source.strided = program.strided != 0;
  for (int32_t i = 0; i < program.weight_count; ++i) {
    const tessera_tensor& w = program.weights[i];
    if (w.name == nullptr) return usage("weight " + std::to_string(i) + " has no name");
    const IoInfo any{w.name, DType::F32, SymShape(static_cast<size_t>(std::max(w.rank, 0)))};
    TESSERA_ASSIGN(Checked checked, check(w, any, "weight '" + any.name + "'", Memory::Needed));
    source.weights.insert_or_assign(any.name, view(checked));
  }
  return source;
}

} // namespace
} // namespace tessera

using namespace tessera;

const char* tessera_open(const char* model, const char* device, int32_t threads, tessera_session** session) {
  const tessera_options options{device, threads, 0};
  return tessera_open_with(model, &options, session);
}

const char* tessera_open_with(const char* model, const tessera_options* options, tessera_session** session) {
  if (session == nullptr) return record_error(usage("nowhere to put the session"));
  auto opened = guarded("opening a model", [&]() -> Result<std::unique_ptr<tessera_session>> {
    if (model == nullptr) return usage("a model is needed");
    return open_session(options ? *options : tessera_options{},
                        [&](SessionOptions o) { return Session::open(model, std::move(o)); });
  });
  if (!opened.ok()) return record_error(opened.error());
  *session = opened->release();
  return nullptr;
}

const char* tessera_open_program(const tessera_program* program, const tessera_options* options,
                                 tessera_session** session) {
  if (session == nullptr) return record_error(usage("nowhere to put the session"));
  if (program == nullptr) return record_error(usage("a program is needed"));
  auto opened = guarded("opening a program", [&]() -> Result<std::unique_ptr<tessera_session>> {
    TESSERA_ASSIGN(ProgramSource source, source_of(*program));
    return open_session(options ? *options : tessera_options{},
                        [&](SessionOptions o) { return Session::open_program(std::move(source), std::move(o)); });
  });
  if (!opened.ok()) return record_error(opened.error());
  *session = opened->release();
  return nullptr;
}

const char* tessera_survey_program(const tessera_program* program, const char** refusals) {
  if (program == nullptr || refusals == nullptr)
    return record_error(usage("a program, and a place for the answer, are needed"));
  thread_local std::string text;
  auto outcome = guarded("surveying a program", [&]() -> Status {
    TESSERA_ASSIGN(ProgramSource source, source_of(*program));
    TESSERA_ASSIGN(auto found, fx::survey(source));
    auto all = nlohmann::json::array();
    for (const auto& r : found)
      all.push_back({{"node", r.node}, {"target", r.target}, {"output", r.output}, {"reason", r.reason.message}});
    text = all.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    return {};
  });
  if (!outcome.ok()) return record_error(outcome.error());
  *refusals = text.c_str();
  return nullptr;
}

void tessera_close(tessera_session* session) { delete session; }

const tessera_error* tessera_last_error(void) { return last_error.any ? &last_error.parts : nullptr; }

const char* tessera_clone(tessera_session* session, tessera_session** clone) {
  if (session == nullptr || clone == nullptr)
    return record_error(usage("a session, and a place for the clone, are needed"));
  // What is read of `session` stays as it was when it was opened.
  auto made = guarded("cloning a session", [&]() -> Result<std::unique_ptr<tessera_session>> {
    auto out = std::make_unique<tessera_session>();
    out->session = session->session;
    out->device = session->device;
    out->gpu = session->gpu;
    TESSERA_ASSIGN(out->executor, session->session->new_executor());
    describe(*out);
    return out;
  });
  if (!made.ok()) return record_error(made.error());
  *clone = made->release();
  return nullptr;
}

const char* tessera_inputs(tessera_session* session, const tessera_io** inputs, int32_t* count) {
  if (inputs == nullptr || count == nullptr) return record_error(usage("nowhere to put the inputs"));
  return call(session, "describing the inputs", [&](tessera_session& s) -> Status {
    *inputs = s.shown_inputs.ios.data();
    *count = static_cast<int32_t>(s.shown_inputs.ios.size());
    return {};
  });
}

const char* tessera_outputs(tessera_session* session, const tessera_io** outputs, int32_t* count) {
  if (outputs == nullptr || count == nullptr) return record_error(usage("nowhere to put the outputs"));
  return call(session, "describing the outputs", [&](tessera_session& s) -> Status {
    *outputs = s.shown_outputs.ios.data();
    *count = static_cast<int32_t>(s.shown_outputs.ios.size());
    return {};
  });
}

const char* tessera_report(tessera_session* session, const char** json) {
  if (json == nullptr) return record_error(usage("nowhere to put the report"));
  return call(session, "reporting", [&](tessera_session& s) -> Status {
    s.report = s.session->report();
    *json = s.report.c_str();
    return {};
  });
}

int32_t tessera_variants(const tessera_session* session) {
  return session ? static_cast<int32_t>(session->session->variants().size()) : 0;
}

void tessera_kernels(const tessera_session* session, int32_t* needed, int32_t* cached) {
  if (session == nullptr || needed == nullptr || cached == nullptr) return;
  const auto variant = session->session->variants().front();
  const CompileReport& report = variant->compiled.report;
  *needed = report.cache_hits + report.cache_misses;
  *cached = report.cache_hits;
}

const char* tessera_device(const tessera_session* session) { return session ? session->device.c_str() : nullptr; }

const char* tessera_output_sizes(tessera_session* session, const tessera_tensor* inputs, int32_t input_count,
                                 const tessera_tensor** outputs, int32_t* output_count) {
  if (outputs == nullptr || output_count == nullptr) return record_error(usage("nowhere to put the outputs"));
  return call(session, "finding the outputs' sizes", [&](tessera_session& s) -> Status {
    TESSERA_TRY(output_sizes(s, inputs, input_count));
    *outputs = s.sizes.data();
    *output_count = static_cast<int32_t>(s.sizes.size());
    return {};
  });
}

int32_t tessera_sizes_known(const tessera_session* session) { return session && session->sizes_known ? 1 : 0; }

const char* tessera_run_fresh(tessera_session* session, const tessera_tensor* inputs, int32_t input_count,
                              const tessera_tensor** outputs, int32_t* output_count) {
  if (outputs == nullptr || output_count == nullptr) return record_error(usage("nowhere to put the outputs"));
  return call(session, "running the model", [&](tessera_session& s) -> Status {
    TESSERA_TRY(run_fresh(s, inputs, input_count));
    *outputs = s.sizes.data();
    *output_count = static_cast<int32_t>(s.sizes.size());
    return {};
  });
}

const char* tessera_run(tessera_session* session, const tessera_tensor* inputs, int32_t input_count,
                        const tessera_tensor* outputs, int32_t output_count) {
  return call(session, "running the model", [&](tessera_session& s) -> Status {
    TESSERA_ASSIGN(auto in, check_all(s, Side::Input, inputs, input_count, Memory::Needed));
    TESSERA_ASSIGN(auto out, check_all(s, Side::Output, outputs, output_count, Memory::Needed));
    auto given = in_order(out, view);
    const auto named = by_name(in, view);
    TESSERA_TRY(s.executor ? s.executor->run(named, nullptr, &given) : s.session->run(named, nullptr, &given));
    return {};
  });
}

const char* tessera_run_on_device(tessera_session* session, const tessera_tensor* inputs, int32_t input_count,
                                  const tessera_tensor* outputs, int32_t output_count, void* stream) {
  return call(session, "running the model", [&](tessera_session& s) -> Status {
    TESSERA_ASSIGN(auto in, check_all(s, Side::Input, inputs, input_count, Memory::Needed));
    TESSERA_ASSIGN(auto out, check_all(s, Side::Output, outputs, output_count, Memory::Needed));
    const auto named = by_name(in, on_device);
    const auto made = in_order(out, on_device);
    return s.executor ? s.executor->run_on_device(named, made, stream) : s.session->run_on_device(named, made, stream);
  });
}

const char* tessera_call(tessera_session* session, const tessera_tensor* inputs, int32_t input_count,
                         tessera_allocate allocate, void* context, void* stream) {
  return call(session, "running the model", [&](tessera_session& s) -> Status {
    if (allocate == nullptr) return usage("the function that gives memory for outputs is null");
    if (input_count < 0 || static_cast<size_t>(input_count) != s.inputs.size())
      return usage("the model has " + std::to_string(s.inputs.size()) + " inputs, and the number given is " +
                   std::to_string(input_count));
    if (input_count > 0 && inputs == nullptr) return usage("the inputs are null");
    TESSERA_TRY(take_inputs(s, inputs));
    OutputAllocator give = [&](size_t output, DType dtype, const Dims& dims) -> Result<void*> {
      return allocate(context, static_cast<int32_t>(output), info(dtype).onnx, static_cast<int32_t>(dims.size()),
                      dims.data());
    };
    return s.executor ? s.executor->call(s.called_with, give, stream) : s.session->call(s.called_with, give, stream);
  });
}

const char* tessera_memory_create(const tessera_session* session, size_t bytes, void* stream, tessera_memory** memory,
                                  void** data) {
  if (session == nullptr || memory == nullptr || data == nullptr)
    return record_error(usage("a session, and places for the memory and its address, are needed"));
  auto made = guarded("allocating memory", [&]() -> Result<std::unique_ptr<tessera_memory>> {
    if (session->device != "cuda") return usage("the session runs on the CPU, and has no memory of a GPU");
    if (bytes > static_cast<size_t>(INT64_MAX)) return usage("no memory has " + std::to_string(bytes) + " bytes");
    TESSERA_ASSIGN(auto context, cuda::Context::open(session->gpu));
    auto out = std::make_unique<tessera_memory>();
    TESSERA_ASSIGN(out->block,
                   cuda::SharedBlock::create(std::move(context), std::max<int64_t>(static_cast<int64_t>(bytes), 1),
                                             static_cast<CUstream>(stream), "a result"));
    return out;
  });
  if (!made.ok()) return record_error(made.error());
  *memory = made->release();
  *data = (*memory)->block->data();
  return nullptr;
}

const char* tessera_memory_wait(tessera_memory* memory, void* stream) {
  if (memory == nullptr) return record_error(usage("the memory is null"));
  auto outcome = guarded("waiting for memory", [&] { return memory->block->wait_on(static_cast<CUstream>(stream)); });
  return outcome.ok() ? nullptr : record_error(outcome.error());
}

void tessera_memory_free(tessera_memory* memory) { delete memory; }
