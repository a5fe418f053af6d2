// Threads that call models through both interfaces, each with contexts of its own, and compare every result.
#pragma once
#include "api/c.h"
#include "api/session.h"
#include "models.h"
#include "runtime/memory_account.h"
#include <atomic>
#include <mutex>
#include <thread>

namespace tessera::soak {

// The failures that any thread found. Errors that an injected fault explains are counted apart.
class Findings {
public:
  void wrong(const std::string& text);
  // An error of a call: expected while faults are injected that exhaust memory, if it says so.
  void error(const std::string& where, bool out_of_memory, const std::string& text);
  void expect_out_of_memory(bool yes) { expected_ = yes; }
  [[nodiscard]] bool any() const { return count_ > 0; }
  [[nodiscard]] int64_t expected_errors() const { return expected_errors_; }

private:
  std::atomic<bool> expected_{false};
  std::atomic<int64_t> count_{0}, expected_errors_{0};
  std::mutex mutex_; // of standard error
};

// A model opened through both interfaces.
struct Opened {
  const Model* model = nullptr;
  std::unique_ptr<Session> session;
  tessera_session* c = nullptr;

  Opened() = default;
  Opened(Opened&& o) noexcept : model(o.model), session(std::move(o.session)), c(std::exchange(o.c, nullptr)) {}
  Opened& operator=(Opened&&) = delete;
  ~Opened() { tessera_close(c); }
};
[[nodiscard]] Result<Opened> open(const Model& model, const SessionOptions& options);

// One context of a session, of either interface.
class Context {
public:
  [[nodiscard]] static Result<Context> of_session(Opened& opened, bool c_interface);
  Context(Context&& o) noexcept
      : model_(o.model_), executor_(std::move(o.executor_)), c_(std::exchange(o.c_, nullptr)) {}
  Context& operator=(Context&& o) noexcept;
  ~Context() { tessera_close(c_); }
  // Runs a case and compares.
  void call(const Case& c, Findings& findings);

private:
  explicit Context(const Model& model) : model_(&model) {}
  [[nodiscard]] Result<std::vector<Tensor>> run(const Inputs& inputs);
  [[nodiscard]] Result<std::vector<Tensor>> run_bound(const std::vector<tessera_tensor>& given);
  [[nodiscard]] Status between(const std::vector<tessera_tensor>& given);
  const Model* model_;
  std::unique_ptr<Executor> executor_;
  tessera_session* c_ = nullptr;
  int64_t runs_ = 0;
};

struct LoadOptions {
  int threads = 16;
  uint64_t seed = 1;
  int renew_every = 500; // calls of a context until a new one takes its place
  bool reopen = true;    // sessions are opened and closed during the calls
  int64_t pause_us = 0;  // between two calls of a thread
};

class Load {
public:
  Load(std::vector<Opened>& opened, const LoadOptions& options, const SessionOptions& session, Findings& findings);
  ~Load() { stop(); }
  void stop();
  [[nodiscard]] int64_t calls() const { return calls_; }
  [[nodiscard]] int64_t reopened() const { return reopened_; }

private:
  using Contexts = std::vector<std::optional<Context>>; // by model
  void work(uint64_t number, Contexts& contexts);
  void reopen();
  std::vector<Opened>& opened_;
  LoadOptions options_;
  SessionOptions session_;
  Findings& findings_;
  std::atomic<bool> ends_{false};
  std::atomic<int64_t> calls_{0}, reopened_{0};
  std::vector<Contexts> contexts_; // by thread
  std::vector<std::thread> threads_;
};

} // namespace tessera::soak
