// The runtime's interface to the rest of the compiler: executors (run.h), and executables as files.
#pragma once
#include "runtime/executable.h"
#include "runtime/run.h"
#include <span>

namespace tessera {

// The variants of a model, which its executors share: which there are, compiled when none fits a call, replaced by
// better code. Any thread calls these functions; none of them may use the executor that calls it.
class ExecutableSource {
public:
  struct Entry {
    uint64_t number = 0;      // of the variant; better code for it keeps the number
    int index = 0;            // RunStats::variant
    bool specialized = false; // made for fewer calls than the generic one
    std::shared_ptr<const Executable> executable;
  };
  // Calls try the variants in this order.
  struct Order {
    uint64_t generation = 0;
    std::vector<Entry> variants;
    size_t generic = 0; // index of the variant whose required guards are the model's
  };
  virtual ~ExecutableSource() = default;
  [[nodiscard]] virtual Order order() const = 0;
  [[nodiscard]] virtual uint64_t generation() const = 0; // of order(); changes with it
  // Whether specialize() is to be called before each call.
  [[nodiscard]] virtual bool specializes() const { return false; }
  // Ensures that there is the variant that is wanted for calls of these sizes, and says in `stats` what that cost. The
  // error ends the call.
  [[nodiscard]] virtual Status specialize(const std::map<std::string, int64_t>& /*sizes*/, RunStats& /*stats*/) {
    return {};
  }
  // For a call that no variant of an executor fits, which has those of these numbers. True: order() has another one for
  // it. Error OutOfMemory ends the call; others say in its error why there is none.
  [[nodiscard]] virtual Result<bool> compile_for(const GuardMiss& miss, std::span<const uint64_t> numbers) = 0;
  // A call begins, and ends. `ran`: what was run, null where the call failed before that; `values`: the sizes of its
  // inputs, of these symbols; `swaps`: variants and plans that were exchanged for it. Neither waits for anything.
  virtual void begins() {}
  virtual void ended(const std::shared_ptr<const Executable>& /*ran*/, std::span<const SymExpr> /*symbols*/,
                     std::span<const int64_t> /*values*/, int /*swaps*/) {}
};

// An executor of the variants that `source` has, now and before each call. Errors: those of Executor::create.
[[nodiscard]] Result<std::unique_ptr<Executor>> make_executor(std::shared_ptr<ExecutableSource> source,
                                                              ExecutorOptions options);

// Files written by `tessera compile`: the plan as JSON (sizes and guards as text), machine code, and weights. Weights
// that a mapped file shows (the model's own external data) are referred to by path, offset and a hash of samples,
// unless `embed_weights`. The file appears whole or not at all. Errors: FileError (a full disk is named),
// UnsupportedFeature (a host step without payload cannot be made again).
[[nodiscard]] Status save_executable(const Executable& executable, const std::string& path, bool embed_weights);

// One of the executables of a file. They are for the same device; what they share is written once.
struct FileExecutable {
  std::string label = "generic"; // "generic", "batch=4, seq%8=0"
  int conditions = 0;            // dimensions that it is made for
  std::shared_ptr<const Executable> executable;
};
// Files of several variants, the generic one first.
[[nodiscard]] Status save_executables(std::span<const FileExecutable> variants, const std::string& path,
                                      bool embed_weights);

// The functions that loading needs from others. `link`: machine code to functions, found by symbol; `resolve`: the
// function of a host step from its op and payload.
struct LinkedCode {
  std::shared_ptr<const void> code; // keeps it alive
  std::function<HostKernelFn(const std::string& symbol)> find;
};
using LinkFn = std::function<Result<LinkedCode>(const Executable&)>;
using ResolveHostStepFn = std::function<Result<decltype(HostStep::run)>(const HostStep&, const Executable&)>;
// The variants of a file. Weights are mapped, not read. Errors: FileError, CorruptFile (damaged, truncated, of another
// version, weights that have changed), UnsupportedFeature (made for another machine), and those of the functions.
// Without `link` the executables can be examined but not run.
[[nodiscard]] Result<std::vector<FileExecutable>> load_executables(const std::string& path, const LinkFn& link = {},
                                                                   const ResolveHostStepFn& resolve = {});
// The same of a file's bytes; `path` is what errors call it, and where weights are looked for.
[[nodiscard]] Result<std::vector<FileExecutable>>
load_executables(Storage file, const std::string& path, const LinkFn& link = {}, const ResolveHostStepFn& resolve = {});
// The first variant of a file.
[[nodiscard]] Result<std::shared_ptr<const Executable>>
load_executable(const std::string& path, const LinkFn& link = {}, const ResolveHostStepFn& resolve = {});

// Gives an executable that nobody else has yet, and those of its bodies, the functions that they need to run.
[[nodiscard]] Status link_executable(Executable& executable, const LinkFn& link, const ResolveHostStepFn& resolve);
// Calls f with an executable that nobody else has yet, and with those of its control steps' bodies, until one fails.
[[nodiscard]] Status each_executable(Executable& executable, const std::function<Status(Executable&)>& f);

// An executor of a body of a control step. A miss ends the call of the step's own executor, which sees to what
// OutputAllocator promises; RunStats::misses has it. Errors: those of Executor::create.
[[nodiscard]] Result<std::unique_ptr<Executor>> make_body_executor(std::shared_ptr<const Executable> body,
                                                                   ExecutorOptions options);

} // namespace tessera
