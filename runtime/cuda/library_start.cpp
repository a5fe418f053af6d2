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

} // namespace

LibraryStart::~LibraryStart() {
  for (auto& thread : threads_) thread.join();
}

void LibraryStart::begin(const Executable& executable) {
  bool products = false, convolutions = false;
  for (const Step& step : executable.steps)
    if (const auto* l = std::get_if<LibraryStep>(&step)) {
      products = products || std::holds_alternative<MatmulCall>(l->call);
      convolutions = convolutions || std::holds_alternative<ConvCall>(l->call);
    }
  if (products && !context_->attached(CublasLt::kAttachment)) start(start_products);
  if (convolutions && !context_->attached(Cudnn::kAttachment)) start(start_convolutions);
}

void LibraryStart::start(void (*library)(Context&)) {
  threads_.emplace_back([context = context_, library] {
    (void)guarded("starting a library", [&]() -> Status {
      Context::Current current(*context);
      context->keep_out_of_captures();
      if (current.status().ok()) library(*context);
      return {};
    });
  });
}

} // namespace tessera::cuda
