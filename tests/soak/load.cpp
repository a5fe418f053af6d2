#include "load.h"
#include <chrono>
#include <cstdio>
#include <cstring>
#include <future>

namespace tessera::soak {
namespace {

Diagnostic error_of(const char* text) {
  const bool memory = std::strstr(text, "TES-4001") != nullptr;
  return {memory ? ErrorCode::OutOfMemory : ErrorCode::Internal, text};
}

// Catches std::bad_alloc, which this program itself meets while allocations fail.
template <class Body>
void guarded_by(Findings& findings, const char* where, const Body& body) {
  try {
    body();
  } catch (const std::bad_alloc&) {
    findings.error(where, true, "std::bad_alloc");
  }
}

} // namespace

void Findings::wrong(const std::string& text) {
  constexpr int64_t kShown = 20;
  if (++count_ > kShown) return;
  std::lock_guard lock(mutex_);
  std::fprintf(stderr, "wrong: %s\n", text.c_str());
}

void Findings::error(const std::string& where, bool out_of_memory, const std::string& text) {
  if (out_of_memory && expected_)
    ++expected_errors_;
  else
    wrong(where + ": " + text);
}

Result<Opened> open(const Model& model, const SessionOptions& options) {
  Opened out;
  out.model = &model;
  TESSERA_ASSIGN(out.session, Session::open(model.path, options));
  tessera_options c{};
  c.struct_size = sizeof c;
  c.device = model.device.c_str();
  c.threads = options.compile.threads;
  if (!model.path.ends_with(".tsr")) c.policy = "adaptive"; // compiles in the background while calls run
  if (const char* error = tessera_open_with(model.path.c_str(), &c, &out.c)) return error_of(error);
  return out;
}

Result<Context> Context::of_session(Opened& opened, bool c_interface) {
  Context out(*opened.model);
  if (c_interface) {
    if (const char* error = tessera_clone(opened.c, &out.c_)) return error_of(error);
  } else {
    TESSERA_ASSIGN(out.executor_, opened.session->new_executor());
  }
  return out;
}

Context& Context::operator=(Context&& o) noexcept {
  std::swap(model_, o.model_);
  std::swap(executor_, o.executor_);
  std::swap(c_, o.c_);
  std::swap(runs_, o.runs_);
  return *this;
}

Result<std::vector<Tensor>> Context::run(const Inputs& inputs) {
  if (executor_) return executor_->run(inputs);
  std::vector<tessera_tensor> given;
  for (const auto& [name, t] : inputs)
    given.push_back({name.c_str(), info(t.dtype()).onnx, static_cast<int32_t>(t.dims().size()), t.dims().data(),
                     const_cast<std::byte*>(t.data())});
  const tessera_tensor* outputs = nullptr;
  int32_t count = 0;
  ++runs_;
  TESSERA_TRY(between(given));
  if (runs_ % 8 == 0 && tessera_sizes_known(c_)) return run_bound(given);
  if (const char* error = tessera_run_fresh(c_, given.data(), static_cast<int32_t>(given.size()), &outputs, &count))
    return error_of(error);
  std::vector<Tensor> out;
  for (int32_t i = 0; i < count; ++i) {
    const tessera_tensor& o = outputs[i];
    TESSERA_ASSIGN(Tensor t, Tensor::create(*dtype_from_onnx(o.dtype), Dims(o.dims, o.dims + o.rank)));
    if (t.bytes() > 0) std::memcpy(t.mutable_data(), o.data, t.bytes());
    out.push_back(std::move(t));
  }
  return out;
}

// The other uses that a thread makes of its context.
Status Context::between(const std::vector<tessera_tensor>& given) {
  const char* text = nullptr;
  tessera_metrics metrics{};
  metrics.struct_size = sizeof metrics;
  const char* error = runs_ % 50 == 1    ? tessera_trim(c_) // the next call plans its sizes again
                      : runs_ % 50 == 11 ? tessera_metrics_text(c_, "model=\"m\"", &text)
                      : runs_ % 50 == 21 ? tessera_get_metrics(c_, &metrics)
                      : runs_ % 50 == 31 ? tessera_warmup(c_, given.data(), static_cast<int32_t>(given.size()))
                      : runs_ % 50 == 41 ? tessera_last_miss(c_, &text)
                      : runs_ % 500 == 5 ? tessera_report(c_, &text)
                                         : nullptr;
  return error ? Status(error_of(error)) : Status();
}

Result<std::vector<Tensor>> Context::run_bound(const std::vector<tessera_tensor>& given) {
  const tessera_tensor* sizes = nullptr;
  int32_t count = 0;
  const auto inputs = static_cast<int32_t>(given.size());
  if (const char* error = tessera_output_sizes(c_, given.data(), inputs, &sizes, &count)) return error_of(error);
  std::vector<Tensor> out;
  std::vector<std::string> names;
  for (int32_t i = 0; i < count; ++i) {
    names.emplace_back(sizes[i].name);
    TESSERA_ASSIGN(
        Tensor t, Tensor::create(*dtype_from_onnx(sizes[i].dtype), Dims(sizes[i].dims, sizes[i].dims + sizes[i].rank)));
    out.push_back(std::move(t));
  }
  std::vector<tessera_tensor> outputs;
  for (size_t i = 0; i < out.size(); ++i)
    outputs.push_back({names[i].c_str(), info(out[i].dtype()).onnx, static_cast<int32_t>(out[i].dims().size()),
                       out[i].dims().data(), out[i].mutable_data()});
  const char* error = tessera_bind(c_, given.data(), inputs, outputs.data(), count);
  for (int again = 0; !error && again < 2; ++again) error = tessera_run_bound(c_, nullptr);
  std::optional<Diagnostic> failed;
  if (error) failed = error_of(error);
  tessera_unbind(c_);
  if (failed) return *failed;
  return out;
}

void Context::call(const Case& c, Findings& findings) {
  const auto outputs = run(c.inputs);
  if (!outputs.ok())
    findings.error(model_->name, outputs.error().code == ErrorCode::OutOfMemory, outputs.error().str());
  else if (const std::string text = difference(*model_, c, *outputs); !text.empty())
    findings.wrong(model_->name + ": " + text);
}

Load::Load(std::vector<Opened>& opened, const LoadOptions& options, const SessionOptions& session, Findings& findings)
    : opened_(opened), options_(options), session_(session), findings_(findings) {
  for (int i = 0; i < options.threads; ++i) contexts_.emplace_back(opened.size());
  for (size_t i = 0; i < contexts_.size(); ++i) threads_.emplace_back([this, i] { work(i, contexts_[i]); });
  if (options.reopen) threads_.emplace_back([this] { reopen(); });
}

void Load::stop() {
  ends_ = true;
  for (auto& t : threads_) t.join();
  threads_.clear();
  contexts_.clear();
}

void Load::work(uint64_t number, Contexts& contexts) {
  std::mt19937_64 random(options_.seed * 1000 + number);
  while (!ends_)
    guarded_by(findings_, "a thread of calls", [&] {
      const size_t m = random() % opened_.size();
      const auto& cases = opened_[m].model->cases;
      if (!contexts[m] || random() % static_cast<uint64_t>(options_.renew_every) == 0) {
        contexts[m].reset();
        auto context = Context::of_session(opened_[m], number % 2 == 1);
        if (!context.ok()) {
          const bool memory = context.error().code == ErrorCode::OutOfMemory;
          return findings_.error("a new context", memory, context.error().str());
        }
        contexts[m].emplace(std::move(*context));
      }
      contexts[m]->call(cases[random() % cases.size()], findings_);
      ++calls_;
      if (options_.pause_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(options_.pause_us));
    });
}

// A session is opened and closed while contexts of it are called by another thread: through the C interface contexts
// outlive what they are clones of, and through the other one they run what their variants fit.
void Load::reopen() {
  std::mt19937_64 random(options_.seed * 1000 + 999);
  while (!ends_)
    guarded_by(findings_, "the thread that opens", [&] {
      const Model& model = *opened_[random() % opened_.size()].model;
      auto opened = open(model, session_);
      if (!opened.ok())
        return findings_.error("opening " + model.name, opened.error().code == ErrorCode::OutOfMemory,
                               opened.error().str());
      std::optional<Opened> session(std::move(*opened));
      std::vector<Context> contexts;
      for (const bool c_interface : {false, true}) {
        auto context = Context::of_session(*session, c_interface);
        if (!context.ok())
          return findings_.error("a context of " + model.name, context.error().code == ErrorCode::OutOfMemory,
                                 context.error().str());
        contexts.push_back(std::move(*context));
      }
      const Case& fitting = model.cases.front(); // planned before the session is closed
      for (Context& c : contexts) c.call(fitting, findings_);
      auto calls = std::async(std::launch::async, [&] {
        for (int i = 0; i < 50; ++i)
          guarded_by(findings_, "a context of a closed session", [&] {
            for (Context& c : contexts) c.call(fitting, findings_);
          });
      });
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
      session.reset();
      calls.get();
      ++reopened_;
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 500));
    });
}

} // namespace tessera::soak
