// Arrays as arguments and results: Session.run() takes these and what Session.call() takes.
#pragma once
#include "dlpack.h"
#include "native.h"

namespace tessera::python {

// Session.run(args, stream, recorded): run.cpp
PyObject* run(Model& model, PyObject* args, PyObject* stream, bool recorded);

// tessera._native.Tensor, memory with __dlpack__: tensor.cpp
bool add_tensor_type(PyObject* module);
// tessera._native.TileKernel: kernel.cpp
bool add_kernel_type(PyObject* module);
// A new one, row-major; `data`: where its elements go.
Ref new_tensor(int32_t dtype, const std::vector<int64_t>& dims, void*& data);
// The same in the memory of the GPU that `session` runs on, to be written on `stream`. Null with a Python error.
Ref new_gpu_tensor(const tessera_session* session, int gpu, void* stream, int32_t dtype,
                   const std::vector<int64_t>& dims, void*& data);

// DLPack's type of a number of onnx.TensorProto.DataType, and back; 0 where there is none.
dlpack::DataType dlpack_type(int32_t dtype);
int32_t dtype_of(dlpack::DataType type);

// Copies an array with strides (in bytes) to row-major memory of `to`.
void copy_strided(std::byte* to, const std::byte* from, const int64_t* dims, const int64_t* strides, size_t rank,
                  size_t element);

} // namespace tessera::python
