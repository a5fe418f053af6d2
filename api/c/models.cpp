#include "api/c/opening.h"
#include "api/c/session_options.h"
#include "api/c/struct.h"
#include "api/c/tensors.h"
#include "api/device.h"
#include "api/session/session_variant.h"
#include "base/guarded.h"
#include "base/text.h"
#include <algorithm>
#include <set>

namespace tessera {
namespace {

// The error that tessera_last_error() shows, and its whole text.
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
    last.parts = {known.id.data(),
                  known.name.data(),
                  last.location.c_str(),
                  last.error.message.c_str(),
                  last.notes.data(),
                  static_cast<int32_t>(last.notes.size()),
                  last.error.location.output.c_str()};
    last.any = true;
    return {};
  });
  return put.ok() ? last_error.text.c_str() : kNoMemoryForError;
}

namespace {
void describe(const std::vector<IoInfo>& all, tessera_session::Shown& shown) {
  for (const IoInfo& io : all) {
    auto& dims = shown.dims.emplace_back();
    if (io.any_rank) continue;
    for (const SymExpr& e : io.shape) dims.push_back(e.str());
  }
  for (size_t i = 0; i < all.size(); ++i) { // once the texts stay where they are
    auto& texts = shown.texts.emplace_back();
    for (const std::string& d : shown.dims[i]) texts.push_back(d.c_str());
  }
  for (size_t i = 0; i < all.size(); ++i)
    shown.ios.push_back({all[i].name.c_str(), info(all[i].dtype).onnx,
                         all[i].any_rank ? -1 : static_cast<int32_t>(all[i].shape.size()), shown.texts[i].data()});
}

// Fills the tensors that a session's interface shows, from the session itself.
void describe(tessera_session& s) {
  s.inputs = s.session->inputs();
  s.outputs = s.session->outputs();
  s.states = s.session->states();
  std::set<uint64_t> bound;
  for (size_t i = 0; i < s.inputs.size(); ++i) {
    s.input_named.emplace(s.inputs[i].name, i);
    for (const SymExpr& d : s.inputs[i].shape)
      for (const SymExpr& symbol : d.symbols()) bound.insert(symbol.symbol_id());
  }
  for (const IoInfo& o : s.outputs) {
    if (o.any_rank) s.sizes_known = false;
    for (const SymExpr& d : o.shape)
      for (const SymExpr& symbol : d.symbols()) s.sizes_known = s.sizes_known && bound.contains(symbol.symbol_id());
  }
  describe(s.inputs, s.shown_inputs);
  describe(s.outputs, s.shown_outputs);
  describe(s.states, s.shown_states);
}

Result<std::shared_ptr<MemoryAccount>> account_of(const tessera_options& given) {
  MemoryAccount::Functions functions;
  if (given.allocator != nullptr) {
    TESSERA_ASSIGN(auto allocator,
                   take_struct("tessera_allocator", *given.allocator, TESSERA_BYTES_WITH(tessera_allocator, context)));
    if (allocator.allocate == nullptr || allocator.release == nullptr)
      return usage("tessera_allocator: the function `" + std::string(allocator.allocate ? "release" : "allocate") +
                   "` is null");
    functions = {allocator.allocate, allocator.release, allocator.context};
  }
  return std::make_shared<MemoryAccount>(static_cast<int64_t>(given.memory_limit), functions);
}

// Open: (SessionOptions) -> Result<std::unique_ptr<Session>>. `caller`: null for the defaults.
template <class Open>
Status open_session(const tessera_options* caller, const Open& open, tessera_session** session) {
  tessera_options given{};
  if (caller != nullptr) {
    TESSERA_ASSIGN(given, take_struct("tessera_options", *caller, TESSERA_BYTES_WITH(tessera_options, allocator)));
  }
  SessionOptions options;
  TESSERA_TRY(take_options(given, as_named, options));
  TESSERA_ASSIGN(DeviceChoice choice, choose_device_here(given.device ? given.device : "auto"));
  choice.apply(options.compile);
  choice.apply(options.executor);
  TESSERA_ASSIGN(options.executor.memory, account_of(given));
  options.executor.pool = ThreadPool::create(given.threads);
  auto out = std::make_unique<tessera_session>();
  out->metrics = std::make_unique<ContextMetrics>(std::make_shared<SharedMetrics>(options.executor.memory));
  out->device = choice.device;
  out->gpu = choice.gpu;
  out->threads = options.executor.pool->threads();
  TESSERA_ASSIGN(out->session, open(std::move(options)));
  describe(*out);
  *session = out.release();
  return {};
}

const char* show_side(tessera_session* session, tessera_session::Shown tessera_session::*side, const char* what,
                      const tessera_io** ios, int32_t* count) {
  return call(session, "describing a model", [&](tessera_session& s) -> Status {
    if (ios == nullptr || count == nullptr) return usage("nowhere to put the " + std::string(what));
    show((s.*side).ios, ios, count);
    return {};
  });
}

Result<ProgramSource> source_of(const tessera_program& given) {
  TESSERA_ASSIGN(const tessera_program program,
                 take_struct("tessera_program", given, TESSERA_BYTES_WITH(tessera_program, strided)));
  if (program.json == nullptr) return usage("the program has no JSON");
  if (program.json_bytes > UINTPTR_MAX - reinterpret_cast<uintptr_t>(program.json))
    return usage("the program's JSON of " + std::to_string(program.json_bytes) +
                 " bytes reaches beyond the end of the address space");
  if (program.weight_count < 0 || (program.weight_count > 0 && program.weights == nullptr))
    return usage("the program's weights are null");
  ProgramSource source;
  source.name = program.name ? program.name : "<program>";
  source.json.assign(program.json, program.json_bytes);
  source.strided = program.strided != 0;
  for (int32_t i = 0; i < program.weight_count; ++i) {
    const tessera_tensor& w = program.weights[i];
    if (w.name == nullptr) return usage("weight " + std::to_string(i) + " has no name");
    TESSERA_ASSIGN(Checked checked, check(w, any_rank(), "weight '" + std::string(w.name) + "'", DataUse::Needed));
    source.weights.insert_or_assign(w.name, view(checked));
  }
  return source;
}

} // namespace
} // namespace tessera

using namespace tessera;

const char* tessera_open(const char* model, const char* device, int32_t threads, tessera_session** session) {
  tessera_options options{};
  options.struct_size = sizeof options;
  options.device = device;
  options.threads = threads;
  return tessera_open_with(model, &options, session);
}

const char* tessera_open_with(const char* model, const tessera_options* options, tessera_session** session) {
  if (session == nullptr) return record_error(usage("nowhere to put the session"));
  return recorded("opening a model", [&]() -> Status {
    if (model == nullptr) return usage("a model is needed");
    return open_session(
        options, [&](SessionOptions o) { return Session::open(model, std::move(o)); }, session);
  });
}

const char* tessera_open_program(const tessera_program* program, const tessera_options* options,
                                 tessera_session** session) {
  if (session == nullptr) return record_error(usage("nowhere to put the session"));
  if (program == nullptr) return record_error(usage("a program is needed"));
  return recorded("opening a program", [&]() -> Status {
    TESSERA_ASSIGN(ProgramSource source, source_of(*program));
    const auto open = [&](SessionOptions o) { return Session::open_program(std::move(source), std::move(o)); };
    return open_session(options, open, session);
  });
}

const char* tessera_survey_program(const tessera_program* program, const char** refusals) {
  if (program == nullptr || refusals == nullptr)
    return record_error(usage("a program, and a place for the answer, are needed"));
  return recorded("surveying a program", [&]() -> Status {
    thread_local std::string text;
    TESSERA_ASSIGN(ProgramSource source, source_of(*program));
    TESSERA_ASSIGN(text, survey_text(source));
    *refusals = text.c_str();
    return {};
  });
}

const char* tessera_known_sizes(const char** sizes) {
  if (sizes == nullptr) return record_error(usage("a place for the answer is needed"));
  return recorded("listing sizes to know", [&]() -> Status {
    TESSERA_ASSIGN(const std::string* text, known_sizes_text());
    *sizes = text->c_str();
    return {};
  });
}

void tessera_close(tessera_session* session) {
  // In a child of fork() it stays: threads that it would wait for are its parent's.
  if (session == nullptr || !session->process.here()) return;
  const InsideLibrary inside;
  delete session;
}

const tessera_error* tessera_last_error(void) { return last_error.any ? &last_error.parts : nullptr; }

const char* tessera_clone(tessera_session* session, tessera_session** clone) {
  if (session == nullptr || clone == nullptr)
    return record_error(usage("a session, and a place for the clone, are needed"));
  // These fields of `session` stay as they were when it was opened.
  return recorded("cloning a session", [&]() -> Status {
    auto out = std::make_unique<tessera_session>();
    out->session = session->session;
    out->device = session->device;
    out->gpu = session->gpu;
    out->threads = session->threads;
    out->metrics = std::make_unique<ContextMetrics>(session->metrics->shared());
    TESSERA_ASSIGN(out->executor, session->session->new_executor());
    describe(*out);
    *clone = out.release();
    return {};
  });
}

const char* tessera_inputs(tessera_session* session, const tessera_io** inputs, int32_t* count) {
  return show_side(session, &tessera_session::shown_inputs, "inputs", inputs, count);
}
const char* tessera_outputs(tessera_session* session, const tessera_io** outputs, int32_t* count) {
  return show_side(session, &tessera_session::shown_outputs, "outputs", outputs, count);
}
const char* tessera_states(tessera_session* session, const tessera_io** states, int32_t* count) {
  return show_side(session, &tessera_session::shown_states, "states", states, count);
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
  return session ? static_cast<int32_t>(session->session->compile_totals().variants) : 0;
}

void tessera_kernels(const tessera_session* session, int32_t* needed, int32_t* cached) {
  if (session == nullptr || needed == nullptr || cached == nullptr) return;
  const auto variant = session->session->variants().front();
  *needed = static_cast<int32_t>(variant->kernels);
  *cached = static_cast<int32_t>(variant->cached_kernels);
}

const char* tessera_device(const tessera_session* session) { return session ? session->device.c_str() : nullptr; }

int32_t tessera_sizes_known(const tessera_session* session) { return session && session->sizes_known ? 1 : 0; }
