// Products run by cuBLASLt.
#include "runtime/cuda/cublaslt_product.h"
#include <tuple>

namespace tessera::cuda {

Status MatmulPlan::run(CUstream stream, void* const* pointers, void* workspace, bool captured) const {
  const GemmProblem& problem = product->problem;
  const ProductTypes& types = product->types;
  if (problem.empty()) return {};
  if (problem.k == 0) return zero(stream, pointers);
  const auto address = [&](BufferId buffer, int64_t offset, int64_t bytes) {
    return static_cast<std::byte*>(pointers[buffer]) + offset * bytes;
  };
  std::byte* left = address(a_buffer, problem.base.a, types.operand_bytes);
  std::byte* right = address(b_buffer, problem.base.b, types.operand_bytes);
  std::byte* result = address(c_buffer, problem.base.c, types.result_bytes);
  std::byte* residual = residual_buffer < 0 ? result : address(residual_buffer, residual_offset, types.result_bytes);
  const auto& [descriptors, algorithm] = std::tie(product->descriptors, product->algorithm);
  const std::scoped_lock lock(mutex_, product->mutex);
  if (bias_buffer >= 0) {
    const void* bias = address(bias_buffer, bias_offset, types.result_bytes);
    TESSERA_CUBLAS_TRY(*product->library, doing(), cublasLtMatmulDescSetAttribute, descriptors->product,
                       CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
  }
  auto call = [&](const void* a, const void* b, const void* c, void* d, std::byte* work) -> Status {
    TESSERA_CUBLAS_TRY(*product->library, doing(), cublasLtMatmul, product->library->handle, descriptors->product,
                       product->alpha.bytes.data(), a, descriptors->a, b, descriptors->b, product->beta.bytes.data(), c,
                       descriptors->c, d, descriptors->c, &algorithm.algo, work,
                       static_cast<size_t>(algorithm.workspace_bytes), stream);
    return {};
  };
  auto* work = static_cast<std::byte*>(workspace);
  if (!product->by_pointers) {
    for (const auto& r : problem.repeats)
      TESSERA_TRY(call(left + r.a * types.operand_bytes, right + r.b * types.operand_bytes,
                       residual + r.c * types.result_bytes, result + r.c * types.result_bytes, work));
    return {};
  }
  // The arrays lie in front of the workspace.
  const auto& matrices = product->matrices;
  const size_t count = matrices.size();
  const std::array<std::byte*, 4> bases{left, right, residual, result};
  if (bases != bases_) {
    addresses_.resize(4 * count);
    for (size_t i = 0; i < count; ++i) {
      addresses_[i] = left + matrices[i].a * types.operand_bytes;
      addresses_[count + i] = right + matrices[i].b * types.operand_bytes;
      addresses_[2 * count + i] = residual + matrices[i].c * types.result_bytes;
      addresses_[3 * count + i] = result + matrices[i].c * types.result_bytes;
    }
    TESSERA_ASSIGN(pinned_, arrays->find(context_, addresses_));
    bases_ = bases;
  }
  // Without pinned memory a graph cannot hold the copy, and capturing it fails; bytes of pageable memory have been
  // read when the copy returns.
  if (captured && !pinned_)
    return Diagnostic(ErrorCode::OutOfMemory,
                      doing() + ": no pinned memory is left for the addresses of its matrices, which a graph reads")
        .note("graphs that were captured before have taken " + std::to_string(PinnedArrays::kMaxBytes) + " bytes");
  TESSERA_CUDA_TRY(context_, doing(), cuMemcpyHtoDAsync, reinterpret_cast<CUdeviceptr>(work),
                   pinned_ ? pinned_ : addresses_.data(), addresses_.size() * sizeof(std::byte*), stream);
  auto* there = reinterpret_cast<std::byte**>(work);
  return call(there, there + count, there + 2 * count, there + 3 * count, work + product->array_bytes);
}

Status MatmulPlan::zero(CUstream stream, void* const* pointers) const {
  const GemmProblem& problem = product->problem;
  const ProductTypes& types = product->types;
  auto set = [&](int64_t begin, int64_t count) -> Status {
    auto at = reinterpret_cast<CUdeviceptr>(pointers[c_buffer]) + static_cast<CUdeviceptr>(begin * types.result_bytes);
    TESSERA_CUDA_TRY(context_, doing(), cuMemsetD8Async, at, 0, static_cast<size_t>(count * types.result_bytes),
                     stream);
    return {};
  };
  int64_t begin = 0, count = 0; // neighbours are set together
  auto add = [&](int64_t at, int64_t length) -> Status {
    if (count > 0 && at == begin + count) {
      count += length;
      return {};
    }
    if (count > 0) TESSERA_TRY(set(begin, count));
    begin = at;
    count = length;
    return {};
  };
  for (const auto& o : problem.all())
    for (int64_t j = 0; j < problem.c.cols; ++j) TESSERA_TRY(add(o.c + j * problem.c.ld, problem.c.rows));
  return count > 0 ? set(begin, count) : Status();
}

} // namespace tessera::cuda
