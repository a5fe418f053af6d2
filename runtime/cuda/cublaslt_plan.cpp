// Products planned for cuBLASLt.
#include "graph/support/log.h"
#include "graph/support/stopwatch.h"
#include "runtime/cuda/cublaslt_product.h"
#include "runtime/cuda/gemm_sizes.h"
#include "runtime/cuda/library_choices.h"
#include "runtime/cuda/product_kernels.h"
#include "runtime/cuda/stream.h"
#include <algorithm>
#include <set>

namespace tessera::cuda {
namespace {

constexpr int64_t kWorkspace = int64_t{32} << 20; // what PyTorch allows on Hopper
constexpr int64_t kAlignment = 256;               // of workspaces, and the most that heuristics request
constexpr int64_t kBaseAlignment = 16;            // of buffers

std::optional<ProductTypes> types_of(DType operand, DType result, bool tf32) {
  auto floats = [&](cudaDataType_t type, int64_t bytes, cublasComputeType_t compute, cudaDataType_t scale) {
    return operand == result ? std::optional(ProductTypes{type, type, scale, compute, bytes, bytes}) : std::nullopt;
  };
  switch (operand) {
  case DType::F32: return floats(CUDA_R_32F, 4, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F);
  case DType::F16: return floats(CUDA_R_16F, 2, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  case DType::BF16: return floats(CUDA_R_16BF, 2, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  case DType::F64: return floats(CUDA_R_64F, 8, CUBLAS_COMPUTE_64F, CUDA_R_64F);
  case DType::I8:
    if (result != DType::I32) return std::nullopt;
    return ProductTypes{CUDA_R_8I, CUDA_R_32I, CUDA_R_32I, CUBLAS_COMPUTE_32I, 1, 4};
  default: return std::nullopt;
  }
}

// Makes descriptors and queries an algorithm, from the best form of the call to the plainest.
class MatmulPlanner {
public:
  MatmulPlanner(const CudaPlanContext& context, const MatmulCall& call, std::span<const Operand> operands)
      : context_(context), call_(call), operands_(operands) {
    size_t next = 3;
    if (call_.fused && call_.fused->bias) bias_ = &operands_[next++];
    if (call_.fused && call_.fused->residual) residual_ = &operands_[next++];
  }

  Result<std::unique_ptr<CudaLibraryPlan>> run() {
    std::shared_ptr<const PreparedProduct> own;
    auto& product = context_.product ? *context_.product : own;
    if (product) return plan(product);
    TESSERA_TRY(open());
    TESSERA_ASSIGN(product, prepare());
    return plan(product);
  }

  // Loads the kernel of a product of this form and these sizes: ProductKernels::At. `seen`: algorithms whose kernels
  // are loaded.
  Result<std::optional<bool>> load(const GemmProblem& problem, bool fused, CUstream stream,
                                   std::set<std::string>& seen) {
    TESSERA_TRY(open());
    problem_ = problem;
    auto elements = [](const GemmMatrix& x) { return x.ld * x.cols; };
    const int64_t bytes =
        (elements(problem.a) + elements(problem.b)) * types_.operand_bytes + elements(problem.c) * types_.result_bytes;
    if (bytes > context_.context.properties().memory_bytes) return std::optional<bool>();
    TESSERA_ASSIGN(std::shared_ptr<PreparedProduct> product, attempt(fused, false));
    if (!product || !seen.insert(CublasLt::bytes_of(product->algorithm)).second) return std::optional(false);
    TESSERA_ASSIGN(auto made, plan(std::move(product)));
    // Nothing is executed, so that one small block stands for all operands.
    const std::string what = "loading the kernel of '" + context_.name + "'";
    const int64_t room = std::max(made->workspace_bytes, kAlignment);
    TESSERA_ASSIGN(const CUdeviceptr block, context_.context.allocate(room, stream, what));
    BufferId last = 0;
    for (const Operand& o : operands_) last = std::max(last, o.buffer);
    const std::vector<void*> pointers(static_cast<size_t>(last) + 1, reinterpret_cast<void*>(block));
    Captured captured = capture(context_.context, stream, what,
                                [&] { return made->run(stream, pointers.data(), reinterpret_cast<void*>(block)); });
    if (captured.graph) context_.context.driver().cuGraphDestroy(captured.graph);
    context_.context.release(block, room, stream);
    TESSERA_TRY(std::move(captured.status));
    return std::optional(true);
  }

private:
  // What the call needs of the library.
  Status open() {
    TESSERA_ASSIGN(library_, CublasLt::of(context_.context));
    const Operand &a = operands_[0], &b = operands_[1], &c = operands_[2];
    auto types = types_of(a.dtype, c.dtype, call_.tf32);
    if (!types || a.dtype != b.dtype)
      return refuse("it multiplies no " + std::string(tessera::name(a.dtype)) + " and " +
                    std::string(tessera::name(b.dtype)) + " into " + std::string(tessera::name(c.dtype)));
    types_ = *types;
    TESSERA_ASSIGN(auto choices, LibraryChoices::of(context_.context));
    choices_ = choices->of_library(library_->name());
    return {};
  }

  Result<std::shared_ptr<const PreparedProduct>> prepare() {
    TESSERA_ASSIGN(problem_, describe_gemm(operands_[0], operands_[1], operands_[2], bias_ ? call_.fused->bias_dim : -1,
                                           context_.name));
    if (problem_.empty()) return std::shared_ptr<const PreparedProduct>(start());
    std::string why;
    bool fusible = call_.fused && epilogue_of(*call_.fused, &why).has_value() && problem_.k > 0;
    if (problem_.k == 0) why = "a product over nothing is a memset";
    if (call_.fused && !fusible && !context_.can_finish) return refuse("it does not compute the epilogue: " + why);
    if (problem_.k == 0) {
      auto zeros = start();
      zeros->epilogue_done = !call_.fused;
      zeros->calls = 0;
      return std::shared_ptr<const PreparedProduct>(std::move(zeros));
    }
    for (bool fused : {true, false}) {
      if (fused ? !fusible && call_.fused.has_value() : !call_.fused || !context_.can_finish) continue;
      for (bool pointers : {true, false}) {
        if (pointers && (problem_.repeats.size() == 1 || !library_->options.pointer_arrays)) continue;
        TESSERA_ASSIGN(auto made, attempt(fused, pointers));
        if (!made) continue;
        if (made->calls > 1)
          TESSERA_LOGF(LogChannel::Perf, "'" + context_.name + "' calls cuBLASLt " + std::to_string(made->calls) +
                                             " times: its batches have no single stride");
        if (!made->epilogue_done)
          TESSERA_LOGF(LogChannel::Perf, "'" + context_.name + "': a kernel computes the epilogue, cuBLASLt does not" +
                                             (why.empty() ? " at these sizes" : ": " + why));
        return std::shared_ptr<const PreparedProduct>(std::move(made));
      }
    }
    return refuse("it has no algorithm for " + key(problem_, call_.fused.has_value(), false));
  }

  Diagnostic refuse(const std::string& why) const {
    return Diagnostic(ErrorCode::UnsupportedFeature, "cuBLASLt does not compute '" + context_.name + "': " + why);
  }

  std::shared_ptr<PreparedProduct> start() const {
    auto out = std::make_shared<PreparedProduct>();
    out->library = library_;
    out->types = types_;
    out->problem = problem_;
    return out;
  }

  // A product of this step's operands.
  Result<std::unique_ptr<CudaLibraryPlan>> plan(std::shared_ptr<const PreparedProduct> product) const {
    auto out = std::make_unique<MatmulPlan>(context_.context);
    out->name = context_.name;
    const bool swapped = product->problem.swapped;
    out->a_buffer = operands_[swapped ? 1 : 0].buffer;
    out->b_buffer = operands_[swapped ? 0 : 1].buffer;
    out->c_buffer = operands_[2].buffer;
    if (product->bias) {
      out->bias_buffer = bias_->buffer;
      out->bias_offset = bias_->offset;
    }
    if (product->residual) {
      out->residual_buffer = residual_->buffer;
      out->residual_offset = residual_->offset;
    }
    out->workspace_bytes = product->workspace_bytes;
    out->calls = product->calls;
    out->epilogue_done = product->epilogue_done;
    if (product->by_pointers) {
      TESSERA_ASSIGN(out->arrays, PinnedArrays::of(context_.context));
    }
    out->product = std::move(product);
    return std::unique_ptr<CudaLibraryPlan>(std::move(out));
  }

  [[nodiscard]] std::optional<cublasLtEpilogue_t> epilogue_of(const LibraryEpilogue& e, std::string* why) const {
    auto no = [&](const char* reason) {
      *why = reason;
      return std::nullopt;
    };
    bool sums_only = types_.scale == CUDA_R_64F || types_.scale == CUDA_R_32I;
    using Activation = LibraryEpilogue::Activation;
    if (sums_only && (e.bias || e.activation != Activation::None)) return no("it has none in this type");
    if (types_.scale == CUDA_R_32I && (e.alpha != 1 || call_.scale != 1)) return no("integers are not scaled");
    if (e.bias && !problem_.bias_along_rows) return no("its bias lies along the dense dimension of the result");
    if (e.bias) {
      const Operand& bias = *bias_;
      auto d = static_cast<size_t>(e.bias_dim);
      if (bias.shape[d] > 1 && bias.strides[d] != 1) return no("its bias is a dense vector");
    }
    switch (e.activation) {
    case Activation::None: return e.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    case Activation::Relu: return e.bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    case Activation::GeluTanh: return e.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    default: return no("it has no such activation");
    }
  }

  // Largest power of two, up to kAlignment, that divides an address at each of the offsets (in elements).
  template <class F>
  [[nodiscard]] uint32_t alignment(int64_t base, int64_t batch_stride, int64_t bytes, bool pointers, F of) const {
    int64_t bits = kBaseAlignment | base * bytes;
    for (const auto& r : problem_.repeats) bits |= of(r) * bytes;
    if (pointers && problem_.batch > 1) bits |= batch_stride * bytes;
    return static_cast<uint32_t>(std::min<int64_t>(bits & -bits, kAlignment));
  }
  struct Alignments {
    uint32_t a, b, c, d, bias;
  };
  [[nodiscard]] Alignments alignments(bool fused, bool pointers) const {
    Alignments out{};
    auto c = [](const GemmOffsets& r) { return r.c; };
    out.a = alignment(problem_.base.a, problem_.a.batch_stride, types_.operand_bytes, pointers,
                      [](const GemmOffsets& r) { return r.a; });
    out.b = alignment(problem_.base.b, problem_.b.batch_stride, types_.operand_bytes, pointers,
                      [](const GemmOffsets& r) { return r.b; });
    out.d = alignment(problem_.base.c, problem_.c.batch_stride, types_.result_bytes, pointers, c);
    out.c = fused && residual_ ? alignment(residual_->offset, problem_.c.batch_stride, types_.result_bytes, pointers, c)
                               : out.d;
    int64_t bits = kBaseAlignment | (fused && bias_ ? bias_->offset * types_.result_bytes : 0);
    out.bias = static_cast<uint32_t>(bits & -bits);
    return out;
  }

  // All that an algorithm depends on; also what errors say.
  [[nodiscard]] std::string key(const GemmProblem& problem, bool fused, bool pointers) const {
    std::string out;
    out.reserve(192);
    auto add = [&out](const auto&... parts) { (out.append(parts), ...); };
    auto text = [](auto number) { return std::to_string(number); };
    add(tessera::name(operands_[0].dtype), " into ", tessera::name(operands_[2].dtype), " ", text(problem.m), "x",
        text(problem.n), "x", text(problem.k));
    if (types_.compute == CUBLAS_COMPUTE_32F_FAST_TF32) add(" in TF32");
    auto matrix = [&](const char* what, const GemmMatrix& x) {
      add(" ", what, x.transposed ? "T" : "N", " ld ", text(x.ld));
      if (problem.batch > 1 && !pointers) add(" stride ", text(x.batch_stride));
    };
    matrix("a", problem.a);
    matrix("b", problem.b);
    matrix("c", problem.c);
    add(pointers ? " pointers " : " batch ", text(matrices(problem, pointers)));
    auto aligned = alignments(fused, pointers);
    for (uint32_t x : {aligned.a, aligned.b, aligned.c, aligned.d, aligned.bias}) add(" @", text(x));
    if (fused && call_.fused) {
      add(" activation ", text(static_cast<int>(call_.fused->activation)));
      if (bias_) add(" bias");
      if (residual_) add(" residual");
    }
    return out;
  }

  [[nodiscard]] static int64_t matrices(const GemmProblem& problem, bool pointers) {
    return pointers ? problem.batch * static_cast<int64_t>(problem.repeats.size()) : problem.batch;
  }

  // The call's product in the library's terms, of these sizes; nothing where it has no words for it.
  Result<std::unique_ptr<ProductDescriptors>> describe(const GemmProblem& problem, bool fused, bool pointers,
                                                       const std::string& doing) const {
    const auto& lt = *library_;
    auto out = std::make_unique<ProductDescriptors>(library_);
    auto& d = *out;
    auto layout = [&](cublasLtMatrixLayout_t& to, cudaDataType_t type, const GemmMatrix& x) -> Result<bool> {
      TESSERA_CUBLAS_TRY(lt, doing, cublasLtMatrixLayoutCreate, &to, type, static_cast<uint64_t>(x.rows),
                         static_cast<uint64_t>(x.cols), x.ld);
      auto count = static_cast<int32_t>(matrices(problem, pointers));
      TESSERA_CUBLAS_TRY(lt, doing, cublasLtMatrixLayoutSetAttribute, to, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                         sizeof count);
      if (!pointers) {
        TESSERA_CUBLAS_TRY(lt, doing, cublasLtMatrixLayoutSetAttribute, to, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                           &x.batch_stride, sizeof x.batch_stride);
        return true;
      }
      uint32_t mode = CUBLASLT_BATCH_MODE_POINTER_ARRAY; // an older library does not know the attribute
      return lt.cublasLtMatrixLayoutSetAttribute(to, CUBLASLT_MATRIX_LAYOUT_BATCH_MODE, &mode, sizeof mode) ==
             CUBLAS_STATUS_SUCCESS;
    };
    TESSERA_ASSIGN(bool known, layout(d.a, types_.operand, problem.a));
    if (!known) return std::unique_ptr<ProductDescriptors>();
    TESSERA_ASSIGN(known, layout(d.b, types_.operand, problem.b));
    TESSERA_ASSIGN(known, layout(d.c, types_.result, problem.c));

    TESSERA_CUBLAS_TRY(lt, doing, cublasLtMatmulDescCreate, &d.product, types_.compute, types_.scale);
    auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) -> Status {
      TESSERA_CUBLAS_TRY(lt, doing, cublasLtMatmulDescSetAttribute, d.product, attribute, &value, sizeof value);
      return {};
    };
    TESSERA_TRY(set(CUBLASLT_MATMUL_DESC_TRANSA, problem.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N));
    TESSERA_TRY(set(CUBLASLT_MATMUL_DESC_TRANSB, problem.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N));
    if (fused && call_.fused) {
      std::string why;
      auto epilogue = *epilogue_of(*call_.fused, &why);
      TESSERA_TRY(set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<uint32_t>(epilogue)));
      if (bias_) { // its alignment is read from the address
        auto* stand_in =
            reinterpret_cast<const void*>(static_cast<uintptr_t>(kAlignment + alignments(fused, pointers).bias));
        TESSERA_TRY(set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, stand_in));
      }
    }
    return out;
  }

  Result<std::shared_ptr<PreparedProduct>> attempt(bool fused, bool pointers) {
    std::string doing = "planning '" + context_.name + "'";
    const int64_t batch = matrices(problem_, pointers);
    if (batch > INT32_MAX) return std::shared_ptr<PreparedProduct>();
    auto out = start();
    out->by_pointers = pointers;
    TESSERA_ASSIGN(out->descriptors, describe(problem_, fused, pointers, doing));
    if (!out->descriptors) return std::shared_ptr<PreparedProduct>();
    const bool epilogue = fused && call_.fused;
    out->bias = epilogue && bias_;
    out->residual = epilogue && residual_;
    TESSERA_ASSIGN(auto algorithm, choose(*out, fused, pointers, doing));
    if (!algorithm) return std::shared_ptr<PreparedProduct>();
    out->algorithm = *algorithm;
    out->alpha = ProductFactor(epilogue ? call_.scale * call_.fused->alpha : call_.scale, types_.scale);
    out->beta = ProductFactor(out->residual ? 1 : 0, types_.scale);
    out->workspace_bytes = algorithm->workspace_bytes;
    if (pointers) {
      GemmProblem from_zero = problem_;
      from_zero.base = {};
      out->matrices = from_zero.all();
      int64_t bytes = 4 * batch * static_cast<int64_t>(sizeof(void*));
      out->array_bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
      out->workspace_bytes += out->array_bytes;
    }
    out->calls = pointers ? 1 : static_cast<int>(problem_.repeats.size());
    out->epilogue_done = fused || !call_.fused;
    return out;
  }

  // Which sizes of the product differ from call to call.
  [[nodiscard]] VaryingSizes varying(bool swapped) const {
    const SymShape& c = call_.c.shape;
    const size_t rank = c.size();
    VaryingSizes v;
    if (rank < 2 || call_.a.shape.empty()) return v;
    v.batch = std::any_of(c.begin(), c.end() - 2, [](const SymExpr& d) { return !d.is_const(); });
    const bool rows = v.batch || !c[rank - 2].is_const(); // those of batches may be among them
    const bool columns = !c[rank - 1].is_const();
    v.m = swapped ? columns : rows;
    v.n = swapped ? rows : columns;
    v.k = !call_.a.shape.back().is_const();
    return v;
  }

  [[nodiscard]] static GemmProblem with_columns(GemmProblem problem, int64_t n) {
    problem.n = problem.b.cols = problem.c.cols = n;
    return problem;
  }

  // Where nothing but the columns of the right matrix and of the result vary, as in activations times weights, kernels of
  // other sizes are loaded in the background.
  void load_others(bool fused, bool pointers) const {
    const VaryingSizes v = varying(problem_.swapped);
    if (!context_.kernels || pointers || !v.n || v.m || v.k || problem_.batch != 1 || problem_.repeats.size() != 1 ||
        problem_.b.transposed)
      return;
    struct Form {
      Context& context;
      std::string name;
      MatmulCall call;
      std::vector<Operand> operands;
      GemmProblem problem;
      std::set<std::string> seen;
    };
    context_.kernels->begin(key(with_columns(problem_, 0), fused, false), rounded_size(problem_.n, kSizeParts),
                            [&]() -> ProductKernels::At {
                              auto form = std::make_shared<Form>(
                                  context_.context, context_.name, call_,
                                  std::vector<Operand>(operands_.begin(), operands_.end()), problem_);
                              return [form, fused](int64_t columns, CUstream stream) {
                                const CudaPlanContext context{form->context, form->name};
                                return MatmulPlanner(context, form->call, form->operands)
                                    .load(with_columns(form->problem, columns), fused, stream, form->seen);
                              };
                            });
  }

  // For a product of varying sizes whose own answer is not known, the algorithm of its cell of the grid, which takes no
  // query; `out` then says how to ask.
  Result<std::optional<CublasLt::Algorithm>> choose(PreparedProduct& out, bool fused, bool pointers,
                                                    const std::string& doing) const {
    const Alignments aligned = alignments(fused, pointers);
    const std::string its_key = key(problem_, fused, pointers);
    load_others(fused, pointers);
    if (!context_.exactly && !library_->knows(its_key) && !choices_->find(its_key)) {
      const GemmProblem like = on_grid(problem_, varying(problem_.swapped), types_.operand_bytes, types_.result_bytes);
      if (const std::string cell = key(like, fused, pointers); cell != its_key) {
        TESSERA_ASSIGN(auto near, library_->algorithm(cell, [&]() -> Result<std::optional<CublasLt::Algorithm>> {
          TESSERA_ASSIGN(auto d, describe(like, fused, pointers, doing));
          return d ? chosen(cell, *d, aligned, doing) : std::optional<CublasLt::Algorithm>();
        }));
        if (near)
          if (const auto bytes = workspace_of(near->algo, *out.descriptors); bytes && *bytes <= kWorkspace) {
            out.ask_exactly = asking(out, its_key, aligned, doing);
            out.ask_ms = library_->mean_ms();
            return std::optional(CublasLt::Algorithm{near->algo, *bytes});
          }
      }
    }
    return library_->algorithm(its_key, [&] { return chosen(its_key, *out.descriptors, aligned, doing); });
  }

  std::function<bool()> asking(const PreparedProduct& product, const std::string& its_key, const Alignments& aligned,
                               const std::string& doing) const {
    return [library = library_, choices = choices_, &product, its_key, aligned, doing] {
      std::lock_guard lock(product.mutex);
      auto found = library->algorithm(its_key, [&]() -> Result<std::optional<CublasLt::Algorithm>> {
        TESSERA_ASSIGN(auto answer, ask(*library, *product.descriptors, aligned, doing));
        choices->put(its_key, CublasLt::bytes_of(answer));
        return answer;
      });
      if (!found.ok()) TESSERA_LOGF(LogChannel::Perf, found.error().message);
      return found.ok() && *found &&
             std::memcmp(&(*found)->algo, &product.algorithm.algo, sizeof product.algorithm.algo) != 0;
    };
  }

  // Bytes of workspace that an algorithm takes for a product; nothing where the library does not take it there.
  [[nodiscard]] std::optional<int64_t> workspace_of(const cublasLtMatmulAlgo_t& algo,
                                                    const ProductDescriptors& d) const {
    cublasLtMatmulHeuristicResult_t found{};
    const auto status =
        library_->cublasLtMatmulAlgoCheck(library_->handle, d.product, d.a, d.b, d.c, d.c, &algo, &found);
    if (status != CUBLAS_STATUS_SUCCESS) return std::nullopt;
    return static_cast<int64_t>(found.workspaceSize);
  }

  // What the library answered in this process or an earlier one. An answer of an earlier one that it does not take any
  // more is replaced.
  Result<std::optional<CublasLt::Algorithm>> chosen(const std::string& its_key, const ProductDescriptors& d,
                                                    const Alignments& aligned, const std::string& doing) const {
    if (const auto kept = choices_->find(its_key)) {
      const auto answer = CublasLt::answer_of(*kept);
      if (answer && !*answer) return *answer;
      if (answer)
        if (const auto bytes = workspace_of((*answer)->algo, d); bytes && *bytes <= (*answer)->workspace_bytes)
          return *answer;
    }
    TESSERA_ASSIGN(auto answer, ask(*library_, d, aligned, doing));
    choices_->put(its_key, CublasLt::bytes_of(answer));
    return answer;
  }

  static Result<std::optional<CublasLt::Algorithm>> ask(CublasLt& lt, const ProductDescriptors& d,
                                                        const Alignments& aligned, const std::string& doing) {
    struct Preference {
      const CublasLt& lt;
      cublasLtMatmulPreference_t handle = nullptr;
      ~Preference() {
        if (handle) lt.cublasLtMatmulPreferenceDestroy(handle);
      }
    } preference{lt};
    TESSERA_CUBLAS_TRY(lt, doing, cublasLtMatmulPreferenceCreate, &preference.handle);
    auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) -> Status {
      TESSERA_CUBLAS_TRY(lt, doing, cublasLtMatmulPreferenceSetAttribute, preference.handle, attribute, &value,
                         sizeof value);
      return {};
    };
    TESSERA_TRY(set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kWorkspace)));
    TESSERA_TRY(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, aligned.a));
    TESSERA_TRY(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, aligned.b));
    TESSERA_TRY(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, aligned.c));
    TESSERA_TRY(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, aligned.d));
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    const Stopwatch watch;
    auto status = lt.cublasLtMatmulAlgoGetHeuristic(lt.handle, d.product, d.a, d.b, d.c, d.c, preference.handle, 1,
                                                    &found, &count);
    lt.took(watch.ms());
    // "No algorithm" and "no such combination" are answers.
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
        (status == CUBLAS_STATUS_SUCCESS && (count == 0 || found.state != CUBLAS_STATUS_SUCCESS)))
      return std::optional<CublasLt::Algorithm>();
    if (status != CUBLAS_STATUS_SUCCESS) return lt.error(status, "cublasLtMatmulAlgoGetHeuristic", doing);
    return std::optional(CublasLt::Algorithm{found.algo, static_cast<int64_t>(found.workspaceSize)});
  }

  const CudaPlanContext& context_;
  const MatmulCall& call_;
  std::span<const Operand> operands_;
  std::shared_ptr<CublasLt> library_;
  std::shared_ptr<KeptChoices> choices_;
  ProductTypes types_{};
  GemmProblem problem_;
  const Operand *bias_ = nullptr, *residual_ = nullptr;
};

} // namespace

std::optional<ProductImprovement> improvement_of(const PreparedProducts& products) {
  std::vector<std::shared_ptr<const PreparedProduct>> near;
  ProductImprovement out;
  for (const auto& product : products)
    if (product && product->ask_exactly) {
      near.push_back(product);
      out.ms += product->ask_ms;
    }
  if (near.empty()) return std::nullopt;
  out.ms *= kSizeParts; // an algorithm for sizes that are larger by a part costs about so much more
  out.ask = [near = std::move(near)] {
    bool other = false;
    for (const auto& product : near) other = product->ask_exactly() || other; // of each
    return other;
  };
  return out;
}

Result<std::unique_ptr<CudaLibraryPlan>> plan_cuda_matmul(const CudaPlanContext& context, const MatmulCall& call,
                                                          std::span<const Operand> operands) {
  return MatmulPlanner(context, call, operands).run();
}

} // namespace tessera::cuda
