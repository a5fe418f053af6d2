#include "runtime/cuda/cudnn_graph.h"

namespace tessera::cuda {

std::optional<cudnnDataType_t> cudnn_type(DType dtype) {
  switch (dtype) {
  case DType::F32: return CUDNN_DATA_FLOAT;
  case DType::F16: return CUDNN_DATA_HALF;
  case DType::BF16: return CUDNN_DATA_BFLOAT16;
  default: return std::nullopt;
  }
}

size_t GraphBuilder::keep(Descriptor d) {
  graph_.parts.push_back(std::move(d));
  return graph_.parts.size() - 1;
}

Result<size_t> GraphBuilder::finalized(Descriptor d) {
  TESSERA_TRY(d.finalize());
  return keep(std::move(d));
}

Status GraphBuilder::operation(Descriptor op) {
  TESSERA_TRY(op.finalize());
  graph_.operations.push_back(std::move(op));
  return {};
}

Result<size_t> GraphBuilder::tensor(Extents extents, cudnnDataType_t type, int64_t id, Where where) {
  TESSERA_ASSIGN(Descriptor d, Descriptor::create(library_, CUDNN_BACKEND_TENSOR_DESCRIPTOR));
  TESSERA_TRY(d.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type));
  auto numbers = [&](cudnnBackendAttributeName_t name, std::span<const int64_t> values) {
    return d.set_all(name, CUDNN_TYPE_INT64, static_cast<int64_t>(values.size()), values.data());
  };
  TESSERA_TRY(numbers(CUDNN_ATTR_TENSOR_DIMENSIONS, extents.dims));
  TESSERA_TRY(numbers(CUDNN_ATTR_TENSOR_STRIDES, extents.strides));
  TESSERA_TRY(d.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id));
  TESSERA_TRY(d.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, alignment_));
  if (where == Where::Between) TESSERA_TRY(d.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, true));
  if (where == Where::Argument) TESSERA_TRY(d.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, true));
  return finalized(std::move(d));
}

Result<size_t> GraphBuilder::between(Extents extents, cudnnDataType_t type) {
  constexpr int64_t kFirst = 100; // beyond the roles
  return tensor(extents, type, kFirst + static_cast<int64_t>(graph_.parts.size()), Where::Between);
}

Result<Descriptor> GraphBuilder::function(cudnnPointwiseMode_t mode, cudnnDataType_t precision) {
  TESSERA_ASSIGN(Descriptor d, Descriptor::create(library_, CUDNN_BACKEND_POINTWISE_DESCRIPTOR));
  TESSERA_TRY(d.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode));
  TESSERA_TRY(d.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, precision));
  return d;
}

Status GraphBuilder::apply(size_t function, size_t x, std::optional<size_t> b, std::optional<size_t> t, size_t y,
                           std::optional<Factors> factors) {
  TESSERA_ASSIGN(Descriptor op, Descriptor::create(library_, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR));
  TESSERA_TRY(op.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, part(function)));
  TESSERA_TRY(op.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, part(x)));
  if (b) TESSERA_TRY(op.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, part(*b)));
  if (t) TESSERA_TRY(op.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, part(*t)));
  TESSERA_TRY(op.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, part(y)));
  if (factors) {
    TESSERA_TRY(op.set(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, CUDNN_TYPE_FLOAT, factors->x));
    TESSERA_TRY(op.set(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, CUDNN_TYPE_FLOAT, factors->b));
  }
  return operation(std::move(op));
}

} // namespace tessera::cuda
