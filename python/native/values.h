// Arrays as arguments and results: what Session.run() takes beside what Session.call() does.
#pragma once
#include "native.h"
#include <memory>

namespace tessera::python {

// Session.run(args, stream): run.cpp
PyObject* run(Model& model, PyObject* args, PyObject* stream);

// tessera._native.Tensor, an owner of memory with __dlpack__: tensor.cpp
bool add_tensor_type(PyObject* module);

} // namespace tessera::python
