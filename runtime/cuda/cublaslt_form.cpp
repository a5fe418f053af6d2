#include "runtime/cuda/cublaslt_form.h"
#include <algorithm>

namespace tessera::cuda {
namespace {
constexpr int64_t kBaseAlignment = 16; // of buffers, in bytes
} // namespace

std::optional<ProductTypes> product_types(DType operand, DType result, bool tf32) {
  auto floats = [&](cudaDataType_t type, int64_t bytes, cublasComputeType_t compute, cudaDataType_t scale) {
    if (operand == result) return std::optional(ProductTypes{type, type, scale, compute, bytes, bytes});
    if (bytes != 2 || result != DType::F32) return std::optional<ProductTypes>();
    return std::optional(ProductTypes{type, CUDA_R_32F, scale, compute, bytes, 4});
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

ProductForm::ProductForm(const MatmulCall& call, std::span<const Operand> operands) : call_(call), operands_(operands) {
  size_t next = 3;
  if (call_.fused && call_.fused->bias) bias_ = &operands_[next++];
  if (call_.fused && call_.fused->residual) residual_ = &operands_[next++];
}

std::optional<cublasLtEpilogue_t> ProductForm::epilogue_of(const LibraryEpilogue& e, std::string* why) const {
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

// Largest power of two, up to kProductAlignment, that divides an address at each of the offsets (in elements).
template <class F>
uint32_t ProductForm::alignment(int64_t base, int64_t batch_stride, int64_t bytes, bool pointers, F of) const {
  int64_t bits = kBaseAlignment | base * bytes;
  for (const auto& r : problem_.repeats) bits |= of(r) * bytes;
  if (pointers && problem_.batch > 1) bits |= batch_stride * bytes;
  return static_cast<uint32_t>(std::min<int64_t>(bits & -bits, kProductAlignment));
}
ProductForm::Alignments ProductForm::alignments(bool fused, bool pointers) const {
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

std::string ProductForm::key(const GemmProblem& problem, bool fused, bool pointers) const {
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

int64_t ProductForm::matrices(const GemmProblem& problem, bool pointers) {
  return pointers ? problem.batch * static_cast<int64_t>(problem.repeats.size()) : problem.batch;
}

Result<std::unique_ptr<ProductDescriptors>> ProductForm::describe(const GemmProblem& problem, bool fused, bool pointers,
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
          reinterpret_cast<const void*>(static_cast<uintptr_t>(kProductAlignment + alignments(fused, pointers).bias));
      TESSERA_TRY(set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, stand_in));
    }
  }
  return out;
}

VaryingSizes ProductForm::varying(bool swapped) const {
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

} // namespace tessera::cuda
