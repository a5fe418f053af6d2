#include "runtime/cuda/library_start.h"
#include "base/guarded.h"
#include "base/log.h"
#include "base/stopwatch.h"
#include "runtime/cuda/cublaslt.h"
#include "runtime/cuda/cudnn_attention.h"
#include <atomic>

namespace tessera::cuda {
namespace {

// The first query of a process makes ready what all others use.
Status start_products(Context& context) {
  constexpr int64_t kSize = 64;
  const std::string name = "starting cuBLASLt";
  Operand matrix;
  matrix.dtype = DType::F16;
  matrix.shape = {kSize, kSize};
  matrix.strides = {kSize, 1};
  TESSERA_ASSIGN(auto plan, plan_cuda_matmul({context, name}, MatmulCall{}, std::vector<Operand>(3, matrix)));
  return {};
}

Status start_convolutions(Context& context) {
  TESSERA_ASSIGN(auto library, Cudnn::of(context));
  return {};
}

template <class Library>
Status open_file() {
  TESSERA_ASSIGN(auto library, Library::open());
  return {};
}

// Which have been begun in a context.
struct Begun {
  explicit Begun(Context&) {}
  std::atomic<bool> products = false, convolutions = false;
};

struct Library {
  bool LibraryNeeds::*needed;
  std::atomic<bool> Begun::*begun;
  Status (*open)(); // its file, which needs no context
  Status (*start)(Context&);
};
constexpr Library kLibraries[] = {
    {&LibraryNeeds::products, &Begun::products, open_file<CublasLt>, start_products},
    {&LibraryNeeds::convolutions, &Begun::convolutions, open_file<Cudnn>, start_convolutions},
};

// True for the first who claims it.
bool claim(Context& context, const Library& library) {
  const auto begun = context.attachment_of<Begun>("started libraries");
  return begun.ok() && !((**begun).*library.begun).exchange(true);
}

Status start(Context& context, const Library& library) {
  const Context::Current current(context);
  TESSERA_TRY(current.status());
  return library.start(context);
}

} // namespace

void LibraryNeeds::add(const Executable& executable) {
  for (const Step& step : executable.steps)
    if (const auto* l = std::get_if<LibraryStep>(&step)) {
      products = products || std::holds_alternative<MatmulCall>(l->call);
      convolutions = convolutions || std::holds_alternative<ConvCall>(l->call);
    }
}

LibraryStart::~LibraryStart() {
  for (auto& thread : threads_) thread.join();
}

void LibraryStart::begin(int gpu, const LibraryNeeds& needs) {
  for (const Library& library : kLibraries)
    if (needs.*library.needed)
      run([gpu, &library]() -> Status {
        // The loader opens one file at a time, and cuInit opens some: it goes first.
        if (const auto driver = Driver::load(); !driver.ok()) return driver.error();
        TESSERA_TRY(library.open());
        TESSERA_ASSIGN(const auto context, Context::open(gpu));
        return claim(*context, library) ? start(*context, library) : Status();
      });
}

void LibraryStart::begin(const std::shared_ptr<Context>& context, const LibraryNeeds& needs) {
  for (const Library& library : kLibraries)
    if (needs.*library.needed && claim(*context, library))
      run([context, &library] { return start(*context, library); });
}

void LibraryStart::begin(const std::shared_ptr<Context>& context, std::vector<AttentionProblem> attentions) {
  run([context, attentions = std::move(attentions)]() -> Status {
    const Context::Current current(*context);
    TESSERA_TRY(current.status());
    TESSERA_ASSIGN(const auto engines, AttentionEngines::of(*context));
    for (const AttentionProblem& problem : attentions) (void)engines->engine(problem, false);
    return {};
  });
}

void LibraryStart::run(std::function<Status()> body) {
  // Without a thread the library starts when it is first used.
  (void)guarded("starting a thread", [&]() -> Status {
    threads_.emplace_back([body = std::move(body)] {
      const Stopwatch watch;
      const Status done = guarded("starting a library", body);
      TESSERA_LOGF(LogChannel::Perf, "a library's start took " + std::to_string(watch.ms()) + " ms" +
                                         (done.ok() ? "" : ": " + done.error().str()));
    });
    return {};
  });
}

} // namespace tessera::cuda
