// Options of an opening as a dict of Python.
#pragma once
#include "api/option_fields.h"
#include "native.h"

namespace tessera::python {

// `given`: by name; None is the default. False: an exception is set.
bool take_options(PyObject* given, stable::Options& options);
// The function options() of the module.
PyObject* option_table(PyObject* module, PyObject* none);

} // namespace tessera::python
