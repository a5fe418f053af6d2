#include "runtime/cuda/library_start.h"
#include "graph/support/guarded.h"
#include "runtime/cuda/cublaslt.h"
#include "runtime/cuda/cudnn.h"

namespace tessera::cuda {
namespace {

// The first query of a process makes ready what all others use.
void start_products(Context& context) {
  constexpr int64_t kSize = 64;
  const std::string name = "starting cuBLASLt";
  Operand matrix;
  matrix.dtype = DType::F16;
  matrix.shape = {kSize, kSize};
  matrix.strides = {kSize, 1};
  (void)plan_cuda_matmul({context, name}, MatmulCall{}, std::vector<Operand>(3, matrix));
}

void start_convolutions(Context& context) { (void)Cudnn::of(context); }

struct Needs {
  bool products = false, convolutions = false;
  explicit Needs(const Executable& executable) {
    for (const Step& step : executable.steps)
      if (const auto* l = std::get_if<LibraryStep>(&step)) {
        products = products || std::holds_alternative<MatmulCall>(l->call);
        convolutions = convolutions || std::holds_alternative<ConvCall>(l->call);
      }
  }
};

} // namespace

LibraryStart::~LibraryStart() {
  for (auto& thread : threads_) thread.join();
}

void LibraryStart::open(const Executable& executable) {
  if (opened_) return;
  const Needs needs(executable);
  if (needs.products) run([] { (void)CublasLt::open(); });
  if (needs.convolutions) run([] { (void)Cudnn::open(); });
  opened_ = needs.products || needs.convolutions;
}

void LibraryStart::begin(const std::shared_ptr<Context>& context, const Executable& executable) {
  auto start = [&](const char* attachment, void (*library)(Context&)) {
    if (context->attached(attachment)) return;
    run([context, library] {
      Context::Current current(*context);
      context->keep_out_of_captures();
      if (current.status().ok()) library(*context);
    });
  };
  const Needs needs(executable);
  if (needs.products) start(CublasLt::kAttachment, start_products);
  if (needs.convolutions) start(Cudnn::kAttachment, start_convolutions);
}

void LibraryStart::run(std::function<void()> body) {
  threads_.emplace_back([body = std::move(body)] {
    (void)guarded("starting a library", [&]() -> Status {
      body();
      return {};
    });
  });
}

} // namespace tessera::cuda
