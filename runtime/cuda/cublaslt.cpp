#include "runtime/cuda/cublaslt.h"
#include "base/environment.h"
#include <cstring>

namespace tessera::cuda {
namespace {

constexpr size_t kOldest = 110600;
constexpr size_t kAnswerBytes = sizeof(int64_t) + sizeof(cublasLtMatmulAlgo_t); // workspace, algorithm

std::string_view status_name(cublasStatus_t status) {
  switch (status) {
  case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
  case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
  case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
  case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
  case CUBLAS_STATUS_ARCH_MISMATCH: return "CUBLAS_STATUS_ARCH_MISMATCH";
  case CUBLAS_STATUS_MAPPING_ERROR: return "CUBLAS_STATUS_MAPPING_ERROR";
  case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
  case CUBLAS_STATUS_INTERNAL_ERROR: return "CUBLAS_STATUS_INTERNAL_ERROR";
  case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
  case CUBLAS_STATUS_LICENSE_ERROR: return "CUBLAS_STATUS_LICENSE_ERROR";
  }
  return "an unknown status";
}

} // namespace

GemmOptions GemmOptions::from_environment() { return {environment_flag("TESSERA_GEMM_POINTERS", true)}; }

Result<std::shared_ptr<CublasLt>> CublasLt::open() {
  auto lt = std::make_shared<CublasLt>();
  LibraryRequest request{"cuBLASLt",
                         {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"},
                         {"cu13", "cublas"},
                         "matrix products by NVIDIA's kernels",
                         "pip install nvidia-cublas"};
  TESSERA_ASSIGN(lt->library_, DynamicLibrary::open(request));
#define TESSERA_CUBLASLT_BIND(function) TESSERA_TRY(lt->library_->bind(lt->function, #function));
  TESSERA_CUBLASLT_FUNCTIONS(TESSERA_CUBLASLT_BIND)
#undef TESSERA_CUBLASLT_BIND
  lt->version = lt->cublasLtGetVersion();
  if (lt->version < kOldest)
    return Diagnostic(ErrorCode::UnsupportedFeature, "cuBLASLt " + std::to_string(lt->version / 10000) + "." +
                                                         std::to_string(lt->version / 100 % 100) + " (" +
                                                         lt->library_->path() +
                                                         ") is too old; 11.6 or later computes matrix products");
  lt->options = GemmOptions::from_environment();
  return lt;
}

Result<std::shared_ptr<CublasLt>> CublasLt::of(Context& context) {
  auto make = [](Context&) -> Result<std::shared_ptr<void>> {
    TESSERA_ASSIGN(auto lt, open());
    if (auto status = lt->cublasLtCreate(&lt->handle); status != CUBLAS_STATUS_SUCCESS)
      return lt->error(status, "cublasLtCreate", "starting " + lt->library_->path());
    return std::shared_ptr<void>(std::move(lt));
  };
  TESSERA_ASSIGN(auto attached, context.attachment(kAttachment, make));
  return std::static_pointer_cast<CublasLt>(attached);
}

CublasLt::~CublasLt() {
  if (handle) cublasLtDestroy(handle);
}

Result<std::optional<CublasLt::Algorithm>>
CublasLt::algorithm(const std::string& key, const std::function<Result<std::optional<Algorithm>>()>& query) {
  {
    std::lock_guard lock(mutex_);
    if (auto it = algorithms_.find(key); it != algorithms_.end()) return it->second;
  }
  TESSERA_ASSIGN(auto found, query());
  std::lock_guard lock(mutex_);
  if (algorithms_.size() >= kMaxAlgorithms) algorithms_.clear();
  return algorithms_.emplace(key, found).first->second;
}

bool CublasLt::knows(const std::string& key) const {
  std::lock_guard lock(mutex_);
  return algorithms_.contains(key);
}

void CublasLt::took(double ms) {
  std::lock_guard lock(mutex_);
  ++queries_;
  queries_ms_ += ms;
}

double CublasLt::mean_ms() const {
  std::lock_guard lock(mutex_);
  return queries_ > 0 ? queries_ms_ / static_cast<double>(queries_) : 0;
}

std::string CublasLt::bytes_of(const std::optional<Algorithm>& answer) {
  static_assert(std::is_trivially_copyable_v<cublasLtMatmulAlgo_t>);
  if (!answer) return {};
  std::string out(kAnswerBytes, '\0');
  std::memcpy(out.data(), &answer->workspace_bytes, sizeof answer->workspace_bytes);
  std::memcpy(out.data() + sizeof answer->workspace_bytes, &answer->algo, sizeof answer->algo);
  return out;
}

std::optional<std::optional<CublasLt::Algorithm>> CublasLt::answer_of(std::string_view bytes) {
  if (bytes.empty()) return std::optional<Algorithm>();
  Algorithm a{};
  if (bytes.size() != kAnswerBytes) return std::nullopt;
  std::memcpy(&a.workspace_bytes, bytes.data(), sizeof a.workspace_bytes);
  std::memcpy(&a.algo, bytes.data() + sizeof a.workspace_bytes, sizeof a.algo);
  return std::optional(a);
}

std::string CublasLt::name() const {
  return "cuBLASLt " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

Diagnostic CublasLt::error(cublasStatus_t status, const char* function, const std::string& doing) const {
  bool memory = status == CUBLAS_STATUS_ALLOC_FAILED;
  return Diagnostic(memory ? ErrorCode::OutOfMemory : ErrorCode::DeviceError,
                    doing + ": " + function + " failed with " + std::string(status_name(status)));
}

} // namespace tessera::cuda
