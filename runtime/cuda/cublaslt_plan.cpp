// Products planned for cuBLASLt.
#include "base/log.h"
#include "base/stopwatch.h"
#include "runtime/cuda/cublaslt_form.h"
#include "runtime/cuda/library_choices.h"
#include "runtime/cuda/product_kernels.h"
#include <algorithm>
#include <atomic>
#include <set>

namespace tessera::cuda {
namespace {

class FormKernels;

constexpr int64_t kWorkspace = int64_t{32} << 20; // what PyTorch allows on Hopper

int64_t elements(const GemmMatrix& x) { return x.ld * x.cols; }

GemmProblem with_columns(GemmProblem problem, int64_t n) {
  problem.n = problem.b.cols = problem.c.cols = n;
  return problem;
}

// Makes descriptors and queries an algorithm, from the best form of the call to the plainest.
class MatmulPlanner : ProductForm {
public:
  MatmulPlanner(const CudaPlanContext& context, const MatmulCall& call, std::span<const Operand> operands)
      : ProductForm(call, operands), context_(context) {}

  Result<std::unique_ptr<CudaLibraryPlan>> run() {
    std::shared_ptr<const PreparedProduct> own;
    auto& product = context_.product ? *context_.product : own;
    if (product) return plan(product);
    TESSERA_TRY(open());
    TESSERA_ASSIGN(product, prepare());
    return plan(product);
  }

  using Seen = std::set<std::string>; // algorithms whose kernels are loaded

  // ProductKernels::Form::make_ready() for the products of a form.
  Result<std::optional<bool>> make_ready(const GemmProblem& problem, bool fused, CUstream stream, Seen& seen) {
    TESSERA_TRY(open());
    problem_ = problem;
    if (elements(problem.a) * types_.operand_bytes + elements(problem.c) * types_.result_bytes >
        context_.context.properties().memory_bytes)
      return std::optional<bool>();
    TESSERA_ASSIGN(const auto chosen, attempt(fused, false));
    if (!chosen) return std::optional(false);
    TESSERA_ASSIGN(const bool fresh, load(chosen->algorithm, fused, stream, seen));
    return std::optional(fresh);
  }

  // The library's answer for the very sizes of a product, which others find under the key once its kernel is loaded.
  Result<std::optional<CublasLt::Algorithm>> query_exactly(const std::string& its_key, const GemmProblem& problem,
                                                           bool fused, CUstream stream, Seen& seen) {
    TESSERA_TRY(open());
    problem_ = problem;
    return library_->algorithm(its_key, [&]() -> Result<std::optional<CublasLt::Algorithm>> {
      const std::string doing = "querying '" + context_.name + "'";
      TESSERA_ASSIGN(const auto descriptors, describe(problem, fused, false, doing));
      if (!descriptors) return std::optional<CublasLt::Algorithm>();
      TESSERA_ASSIGN(auto answer, query(*library_, *descriptors, alignments(fused, false), doing));
      if (answer) TESSERA_TRY(load(*answer, fused, stream, seen));
      choices_->put(its_key, CublasLt::bytes_of(answer));
      return answer;
    });
  }

private:
  // Launches a product of problem_ by the algorithm, unless that has been `seen`, in memory that nobody else uses. False
  // where it has.
  Result<bool> load(const CublasLt::Algorithm& algorithm, bool fused, CUstream stream, Seen& seen) {
    if (!seen.insert(CublasLt::bytes_of(algorithm)).second) return false;
    // The contents of the memory do not matter, so that one block is all of the operands; where it would be larger than
    // a workspace, for fewer columns.
    const bool bias = fused && call_.fused && bias_, residual = fused && call_.fused && residual_;
    const GemmProblem problem = problem_;
    auto bytes = [&](int64_t columns) {
      const GemmProblem p = with_columns(problem, columns);
      int64_t most = std::max((p.base.a + elements(p.a)) * types_.operand_bytes,
                              (p.base.b + elements(p.b)) * types_.operand_bytes);
      most = std::max(most, (p.base.c + elements(p.c)) * types_.result_bytes);
      if (bias) most = std::max(most, (bias_->offset + p.m) * types_.result_bytes);
      if (residual) most = std::max(most, (residual_->offset + elements(p.c)) * types_.result_bytes);
      return (most + kProductAlignment - 1) / kProductAlignment * kProductAlignment;
    };
    int64_t columns = problem.n;
    while (columns > 0 && bytes(columns) > kWorkspace) columns = size_below(columns, kSizeParts);
    if (columns == 0) return true; // the left matrix alone is larger
    problem_ = with_columns(problem, columns);
    TESSERA_ASSIGN(std::shared_ptr<PreparedProduct> product, attempt(fused, false, &algorithm));
    if (!product) return true; // the library does not take it there
    TESSERA_ASSIGN(const auto made, plan(std::move(product)));
    const int64_t room = bytes(columns) + made->workspace_bytes;
    TESSERA_ASSIGN(const CUdeviceptr block, context_.context.allocate(room, stream, "loading '" + context_.name + "'"));
    BufferId last = 0;
    for (const Operand& o : operands_) last = std::max(last, o.buffer);
    const std::vector<void*> pointers(static_cast<size_t>(last) + 1, reinterpret_cast<void*>(block));
    Status ran = made->run(stream, pointers.data(), reinterpret_cast<std::byte*>(block) + bytes(columns), false);
    context_.context.release(block, room, stream);
    TESSERA_TRY(std::move(ran));
    return true;
  }

  // Sets the library, types and problem of the call.
  Status open() {
    TESSERA_ASSIGN(library_, CublasLt::of(context_.context));
    const Operand &a = operands_[0], &b = operands_[1], &c = operands_[2];
    auto types = product_types(a.dtype, c.dtype, call_.tf32);
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

  // Null where the library does not compute it so. `given`: by this algorithm.
  Result<std::shared_ptr<PreparedProduct>> attempt(bool fused, bool pointers,
                                                   const CublasLt::Algorithm* given = nullptr) {
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
    std::optional<CublasLt::Algorithm> algorithm;
    if (!given) {
      TESSERA_ASSIGN(algorithm, choose(*out, fused, pointers, doing));
    } else if (const auto takes = workspace_of(given->algo, *out->descriptors)) {
      algorithm = {given->algo, *takes};
    }
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
      out->array_bytes = (bytes + kProductAlignment - 1) / kProductAlignment * kProductAlignment;
      out->workspace_bytes += out->array_bytes;
    }
    out->calls = pointers ? 1 : static_cast<int>(problem_.repeats.size());
    out->epilogue_done = fused || !call_.fused;
    return out;
  }

  // The background loader of kernels of such products, where nothing but the columns of the right matrix and of the
  // result vary, as in activations times weights; null for any other.
  std::shared_ptr<FormKernels> kernels_of_form(bool fused, bool pointers) const;

  // The algorithm of the product's cell of the grid, which takes no query, where its sizes vary and its own answer is
  // not known; `out` then has the query for it.
  Result<std::optional<CublasLt::Algorithm>> choose(PreparedProduct& out, bool fused, bool pointers,
                                                    const std::string& doing) const {
    const Alignments aligned = alignments(fused, pointers);
    const std::string its_key = key(problem_, fused, pointers);
    auto form = kernels_of_form(fused, pointers);
    if (!context_.exactly && !library_->knows(its_key) && !choices_->find(its_key)) {
      const GemmProblem like = on_grid(problem_, varying(problem_.swapped), types_.operand_bytes, types_.result_bytes);
      if (const std::string cell = key(like, fused, pointers); cell != its_key) {
        TESSERA_ASSIGN(auto near, library_->algorithm(cell, [&]() -> Result<std::optional<CublasLt::Algorithm>> {
          TESSERA_ASSIGN(auto d, describe(like, fused, pointers, doing));
          return d ? chosen(cell, *d, aligned, doing) : std::optional<CublasLt::Algorithm>();
        }));
        if (near)
          if (const auto bytes = workspace_of(near->algo, *out.descriptors); bytes && *bytes <= kWorkspace) {
            out.query_exactly = exact_query(out, its_key, aligned, doing, std::move(form));
            out.query_ms = library_->mean_ms();
            return std::optional(CublasLt::Algorithm{near->algo, *bytes});
          }
      }
    }
    return library_->algorithm(its_key, [&] { return chosen(its_key, *out.descriptors, aligned, doing); });
  }

  std::function<bool(CUstream)> exact_query(const PreparedProduct& product, const std::string& its_key,
                                            const Alignments& aligned, const std::string& doing,
                                            std::shared_ptr<FormKernels> form) const;

  // Bytes of workspace that an algorithm takes for a product; nothing where the library does not take it there.
  [[nodiscard]] std::optional<int64_t> workspace_of(const cublasLtMatmulAlgo_t& algo,
                                                    const ProductDescriptors& d) const {
    cublasLtMatmulHeuristicResult_t found{};
    const auto status =
        library_->cublasLtMatmulAlgoCheck(library_->handle, d.product, d.a, d.b, d.c, d.c, &algo, &found);
    if (status != CUBLAS_STATUS_SUCCESS) return std::nullopt;
    return static_cast<int64_t>(found.workspaceSize);
  }

  // The library's answer in this process or an earlier one. An answer of an earlier one that it does not take any more
  // is replaced.
  Result<std::optional<CublasLt::Algorithm>> chosen(const std::string& its_key, const ProductDescriptors& d,
                                                    const Alignments& aligned, const std::string& doing) const {
    if (const auto kept = choices_->find(its_key)) {
      const auto answer = CublasLt::answer_of(*kept);
      if (answer && !*answer) return *answer;
      if (answer)
        if (const auto bytes = workspace_of((*answer)->algo, d); bytes && *bytes <= (*answer)->workspace_bytes)
          return *answer;
    }
    TESSERA_ASSIGN(auto answer, query(*library_, d, aligned, doing));
    choices_->put(its_key, CublasLt::bytes_of(answer));
    return answer;
  }

  static Result<std::optional<CublasLt::Algorithm>> query(CublasLt& lt, const ProductDescriptors& d,
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
  std::shared_ptr<KeptChoices> choices_;
};

// Products of a form, for ProductKernels. It keeps what a planner takes of a call that may be gone.
class FormKernels final : public ProductKernels::Form {
public:
  FormKernels(Context& context, const std::string& name, const MatmulCall& call, std::span<const Operand> operands,
              const GemmProblem& problem, bool fused)
      : name_(name), place_{context, name_}, call_(call), operands_(operands.begin(), operands.end()),
        problem_(problem), fused_(fused) {}

  Result<std::optional<bool>> make_ready(int64_t columns, CUstream stream) override {
    return MatmulPlanner(place_, call_, operands_).make_ready(with_columns(problem_, columns), fused_, stream, seen_);
  }
  Result<std::optional<CublasLt::Algorithm>> query_exactly(const std::string& key, int64_t columns, CUstream stream) {
    return MatmulPlanner(place_, call_, operands_)
        .query_exactly(key, with_columns(problem_, columns), fused_, stream, seen_);
  }

private:
  const std::string name_;
  const CudaPlanContext place_;
  const MatmulCall call_;
  const std::vector<Operand> operands_;
  const GemmProblem problem_;
  const bool fused_;
  MatmulPlanner::Seen seen_;
};

std::shared_ptr<FormKernels> MatmulPlanner::kernels_of_form(bool fused, bool pointers) const {
  const VaryingSizes v = varying(problem_.swapped);
  if (!context_.kernels || !context_.loads_ahead || pointers || !v.n || v.m || v.k || problem_.batch != 1 ||
      problem_.repeats.size() != 1 || problem_.b.transposed)
    return nullptr;
  return std::static_pointer_cast<FormKernels>(
      context_.kernels->form(key(with_columns(problem_, 0), fused, false), rounded_size(problem_.n, kSizeParts), [&] {
        return std::make_shared<FormKernels>(context_.context, context_.name, call_, operands_, problem_, fused);
      }));
}

std::function<bool(CUstream)> MatmulPlanner::exact_query(const PreparedProduct& product, const std::string& its_key,
                                                         const Alignments& aligned, const std::string& doing,
                                                         std::shared_ptr<FormKernels> form) const {
  return [library = library_, choices = choices_, &product, its_key, aligned, doing,
          form = std::move(form)](CUstream stream) {
    auto found = form ? form->query_exactly(its_key, product.problem.n, stream)
                      : library->algorithm(its_key, [&]() -> Result<std::optional<CublasLt::Algorithm>> {
                          std::lock_guard lock(product.mutex);
                          TESSERA_ASSIGN(auto answer, query(*library, *product.descriptors, aligned, doing));
                          choices->put(its_key, CublasLt::bytes_of(answer));
                          return answer;
                        });
    if (!found.ok()) TESSERA_LOGF(LogChannel::Perf, found.error().message);
    return found.ok() && *found &&
           std::memcmp(&(*found)->algo, &product.algorithm.algo, sizeof product.algorithm.algo) != 0;
  };
}

} // namespace

std::optional<ProductImprovement> improvement_of(const PreparedProducts& products, ProductKernels* kernels) {
  struct Queries {
    PreparedProducts products;
    size_t done = 0; // of them
    bool any = false;
    std::atomic<bool> others = false;
    bool next(CUstream stream) {
      any = products[done++]->query_exactly(stream) || any;
      if (done < products.size()) return true;
      others = any;
      return false;
    }
  };
  auto queries = std::make_shared<Queries>();
  ProductImprovement out;
  for (const auto& product : products)
    if (product && product->query_exactly) {
      queries->products.push_back(product);
      out.ms += product->query_ms;
    }
  if (queries->products.empty()) return std::nullopt;
  out.ms *= kSizeParts; // an algorithm for sizes that are larger by a part costs about so much more
  out.begin = [queries, kernels] {
    if (kernels) return kernels->add_query([queries](CUstream stream) { return queries->next(stream); });
    while (queries->next(nullptr)) {
    }
    return true;
  };
  out.outdated = [queries] { return queries->others.load(); };
  return out;
}

Result<std::unique_ptr<CudaLibraryPlan>> plan_cuda_matmul(const CudaPlanContext& context, const MatmulCall& call,
                                                          std::span<const Operand> operands) {
  return MatmulPlanner(context, call, operands).run();
}

} // namespace tessera::cuda
