// cuDNN 9 as a table of functions, a handle per context, and the plans of its graph API that were made: convolutions
// with bias, residual and activation in one plan, pooling by the older interface (plan_cuda_conv, plan_cuda_pool of
// library.h are here).
//
// The engine of a convolution is the first of those that its heuristics propose for a graph (mode A, then the fallback
// ones) which finalizes into a plan, computes in f32 where the operands are f32 (in TF32 only where the call allows it),
// gives the same result every time, and is compiled already. An epilogue that only engines compiled at run time would
// compute is left to the call's EpilogueKernel, if it has one; only then are those engines tried.
// TESSERA_CUDNN_COMPILE=1 lets them compete from the start.
//
// Sizes of convolutions that vary from call to call do not each query the heuristics: the engine that is chosen for
// sizes of a grid (on_grid, library_conv.h) is taken for all that are rounded up to them, with the same knobs, where it
// takes them. Choices are kept for later processes (library_choices.h).
#pragma once
#include "runtime/cuda/cudnn_choice.h"
#include "runtime/cuda/dynamic_library.h"
#include "runtime/cuda/library.h"
#include "runtime/cuda/library_conv.h"
#include <cudnn.h>
#include <map>
#include <mutex>

namespace tessera::cuda {

#define TESSERA_CUDNN_FUNCTIONS(X)                                                                                     \
  X(cudnnCreate)                                                                                                       \
  X(cudnnDestroy)                                                                                                      \
  X(cudnnSetStream)                                                                                                    \
  X(cudnnGetVersion)                                                                                                   \
  X(cudnnGetErrorString)                                                                                               \
  X(cudnnBackendCreateDescriptor)                                                                                      \
  X(cudnnBackendDestroyDescriptor)                                                                                     \
  X(cudnnBackendFinalize)                                                                                              \
  X(cudnnBackendSetAttribute)                                                                                          \
  X(cudnnBackendGetAttribute)                                                                                          \
  X(cudnnBackendExecute)                                                                                               \
  X(cudnnCreateTensorDescriptor)                                                                                       \
  X(cudnnDestroyTensorDescriptor)                                                                                      \
  X(cudnnSetTensorNdDescriptor)                                                                                        \
  X(cudnnCreatePoolingDescriptor)                                                                                      \
  X(cudnnDestroyPoolingDescriptor)                                                                                     \
  X(cudnnSetPoolingNdDescriptor)                                                                                       \
  X(cudnnPoolingForward)

class Cudnn;

// A backend descriptor: created, given attributes, finalized; destroyed with its owner.
class Descriptor {
public:
  [[nodiscard]] static Result<Descriptor> create(const Cudnn& library, cudnnBackendDescriptorType_t type);
  Descriptor(Descriptor&& o) noexcept : library_(o.library_), handle_(std::exchange(o.handle_, nullptr)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor();

  template <class T>
  [[nodiscard]] Status set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    return set_all(name, type, 1, &value);
  }
  [[nodiscard]] Status set(cudnnBackendAttributeName_t name, const std::vector<int64_t>& values) {
    return set_all(name, CUDNN_TYPE_INT64, static_cast<int64_t>(values.size()), values.data());
  }
  [[nodiscard]] Status set(cudnnBackendAttributeName_t name, const Descriptor& other) {
    return set_all(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other.handle_);
  }
  [[nodiscard]] Status set_all(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                               const void* values);
  // Error as the library's; what it does not support is UnsupportedFeature.
  [[nodiscard]] Status finalize();
  [[nodiscard]] cudnnBackendDescriptor_t handle() const { return handle_; }

private:
  Descriptor(const Cudnn& library, cudnnBackendDescriptor_t handle) : library_(&library), handle_(handle) {}
  const Cudnn* library_;
  cudnnBackendDescriptor_t handle_;
};

// A finalized execution plan. Its tensors are identified by these numbers.
enum class ConvRole : int64_t { X = 1, W, Y, Bias, Residual };
struct ConvEngine {
  Descriptor plan;
  int64_t workspace_bytes = 0;
  std::optional<EngineChoice> choice; // nothing where the library does not say what it proposed
};
// How a convolution of some sizes is computed; no engine: not at all.
struct ConvSolution {
  ConvForm form;
  std::shared_ptr<const ConvEngine> engine;
};

class Cudnn {
public:
  static constexpr const char* kAttachment = "cuDNN";
  // That of the context, opened at the first request. Errors: UnsupportedFeature where the library is missing or
  // too old (9.0 at least); DeviceError where it does not start.
  [[nodiscard]] static Result<std::shared_ptr<Cudnn>> of(Context& context);
  // The functions alone: descriptors can be made without a GPU.
  [[nodiscard]] static Result<std::shared_ptr<Cudnn>> open();
  // An empty table, for tests that fill it themselves and attach it to a context as "cuDNN".
  Cudnn() = default;
  ~Cudnn();
  Cudnn(const Cudnn&) = delete;
  Cudnn& operator=(const Cudnn&) = delete;

#define TESSERA_CUDNN_FIELD(function) decltype(&::function) function = nullptr;
  TESSERA_CUDNN_FUNCTIONS(TESSERA_CUDNN_FIELD)
#undef TESSERA_CUDNN_FIELD
  size_t version = 0; // 90100 is 9.1.0
  bool compile_at_run_time = false, wait_for_plans = false;
  cudnnHandle_t handle = nullptr;
  mutable std::mutex running; // the handle has one stream at a time

  // The solution of a problem, from memory after the first query. Of those that no plan of a call uses any more,
  // kMaxSolutions stay in memory, the ones that were used last.
  static constexpr size_t kMaxSolutions = 512;
  [[nodiscard]] Result<ConvSolution> solution(const std::string& key,
                                              const std::function<Result<ConvSolution>()>& solve);
  [[nodiscard]] size_t solutions() const;
  [[nodiscard]] std::string name() const; // with its version: "cuDNN 9.19.0"
  // Zeros in device memory, `bytes` of them; null where that are more than are kept. The context is current.
  static constexpr int64_t kZeros = 64 << 10;
  [[nodiscard]] Result<void*> zeros(Context& context, int64_t bytes);
  // DeviceError with the library's name of the status, UnsupportedFeature for CUDNN_STATUS_NOT_SUPPORTED and its kinds,
  // OutOfMemory.
  [[nodiscard]] Diagnostic error(cudnnStatus_t status, const char* function, const std::string& doing = {}) const;

private:
  std::shared_ptr<const DynamicLibrary> library_;
  struct Kept {
    ConvSolution solution;
    uint64_t used = 0; // at which request
  };
  mutable std::mutex mutex_; // of what follows
  std::map<std::string, Kept> solutions_;
  uint64_t requests_ = 0;
  CUdeviceptr zeros_ = 0;
  decltype(Driver::cuMemFree) free_zeros_ = nullptr;
};

#define TESSERA_CUDNN_TRY(library, doing, function, ...)                                                               \
  do {                                                                                                                 \
    if (auto tessera_s_ = (library).function(__VA_ARGS__); tessera_s_ != CUDNN_STATUS_SUCCESS) [[unlikely]]            \
      return (library).error(tessera_s_, #function, doing);                                                            \
  } while (0)

struct EngineOptions {
  DType dtype = DType::F32; // of operands and result
  bool compiled = false;    // engines that are compiled at run time are taken, too
  bool tf32 = false;        // f32 operands may be rounded to TF32
};
// The first engine of a graph's proposals that will do (above), null where there is none. `handle` is for this thread's
// use alone.
[[nodiscard]] Result<std::shared_ptr<const ConvEngine>> find_engine(const Cudnn& library, cudnnHandle_t handle,
                                                                    std::span<const Descriptor> operations,
                                                                    const EngineOptions& options);
// A plan of that engine with those knobs, if it will do; null where it will not, or where the library refuses it.
[[nodiscard]] Result<std::shared_ptr<const ConvEngine>> make_engine(const Cudnn& library, cudnnHandle_t handle,
                                                                    std::span<const Descriptor> operations,
                                                                    const EngineOptions& options,
                                                                    const EngineChoice& choice);
// Queues an engine: data[i] is the address of the tensor that the graph calls ids[i]. `name`: of the call, for errors.
[[nodiscard]] Status run_engine(const Cudnn& library, const std::string& name, const ConvEngine& engine,
                                CUstream stream, const std::vector<int64_t>& ids, const std::vector<void*>& data,
                                void* workspace);
// A graph that the library does not take is an answer, whatever it calls the reason: null, and the log has its words.
// Errors: OutOfMemory.
[[nodiscard]] Result<std::shared_ptr<const ConvEngine>> no_engine(const Diagnostic& why);

struct OperationGraph {
  std::vector<Descriptor> operations; // in order
  std::vector<Descriptor> parts;      // tensors and parameters that they refer to
};
struct ConvGraphOptions {
  DType dtype = DType::F32;
  const LibraryEpilogue* fused = nullptr; // of ConvCall; null: none
  // Parts that the call lacks, but the only form with a kernel has: a residual that is y itself, times 0; a bias that
  // is bound to zeros.
  bool residual_is_result = false, zero_bias = false;
  int64_t alignment = 16; // bytes, of every tensor
};
// The operations of a convolution and what follows: y = activation(alpha * (x * w) + residual + bias), everything
// between them in f32 and in no memory. Needs no GPU.
[[nodiscard]] Result<OperationGraph> make_conv_graph(const Cudnn& library, const ConvProblem& problem,
                                                     const ConvGraphOptions& options);

} // namespace tessera::cuda
