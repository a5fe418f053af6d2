// An operand of a library call, as its device plans the call.
#pragma once
#include "runtime/executable.h"

namespace tessera {

// At concrete sizes. Strides and offset in elements.
struct Operand {
  BufferId buffer = -1;
  Dims shape, strides;
  int64_t offset = 0;
  const Tensor* constant = nullptr; // the value, where it is a constant of the executable
  DType dtype = DType::F32;         // of the buffer
};

} // namespace tessera
