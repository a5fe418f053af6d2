// The type tessera._native.TileKernel: a tile kernel that is compiled from its text and launched on addresses.
#include "native.h"
#include "values.h"
#include <array>
#include <cstring>

namespace tessera::python {
namespace {

struct KernelObject {
  PyObject_HEAD tessera_kernel* kernel;
};

tessera_kernel* kernel_of(PyObject* self) { return reinterpret_cast<KernelObject*>(self)->kernel; }

// TileKernel(text, device="auto", *, name=None, threads=0, cache_dir=None)
PyObject* make(PyTypeObject* type, PyObject* args, PyObject* keywords) {
  static const char* names_of[] = {"text", "device", "name", "threads", "cache_dir", nullptr};
  const char *text = nullptr, *device = "auto", *name = nullptr, *cache_dir = nullptr;
  int threads = 0;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "s|s$ziz:TileKernel", const_cast<char**>(names_of), &text, &device,
                                   &name, &threads, &cache_dir))
    return nullptr;
  return protect<PyObject*>(nullptr, [&]() -> PyObject* {
    const tessera_kernel_options options{sizeof options, device, threads, name, cache_dir};
    tessera_kernel* kernel = nullptr;
    const char* error = nullptr;
    {
      WithoutLock others;
      error = tessera_kernel_create(text, &options, &kernel);
    }
    if (error) return raise_last_error(error);
    auto* allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
    PyObject* self = allocate(type, 0);
    if (self)
      reinterpret_cast<KernelObject*>(self)->kernel = kernel;
    else
      tessera_kernel_destroy(kernel);
    return self;
  });
}

void dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  if (tessera_kernel* kernel = kernel_of(self)) {
    WithoutLock others; // on a GPU it waits for what runs
    tessera_kernel_destroy(kernel);
  }
  auto* release = reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free));
  release(self);
  Py_DECREF(type);
}

PyObject* get_parameters(PyObject* self, void*) {
  return protect<PyObject*>(nullptr, [&]() -> PyObject* {
    const tessera_kernel_parameter* all = nullptr;
    int32_t count = 0;
    if (const char* error = tessera_kernel_parameters(kernel_of(self), &all, &count)) return raise_last_error(error);
    Ref out(PyTuple_New(count));
    if (!out) return nullptr;
    for (int32_t i = 0; i < count; ++i) {
      const tessera_kernel_parameter& p = all[i];
      PyObject* one = Py_BuildValue("(sssNLL)", p.name, p.is_pointer ? "pointer" : "scalar", dtype_name(p.dtype),
                                    PyBool_FromLong(p.written), static_cast<long long>(p.alignment),
                                    static_cast<long long>(p.multiple));
      if (!one || PyTuple_SetItem(out.get(), i, one) != 0) return nullptr;
    }
    return out.release();
  });
}

// body(info) of the kernel's tessera_kernel_info.
template <class Body>
PyObject* of_info(PyObject* self, const Body& body) {
  tessera_kernel_info info{};
  info.struct_size = sizeof info;
  if (const char* error = tessera_kernel_get_info(kernel_of(self), &info)) return raise_last_error(error);
  return body(info);
}
template <auto member>
PyObject* get_info(PyObject* self, void*) {
  return of_info(self, [](const tessera_kernel_info& info) -> PyObject* {
    using Value = std::remove_cvref_t<decltype(info.*member)>;
    if constexpr (std::is_pointer_v<Value>)
      return text(info.*member).release();
    else if constexpr (std::is_floating_point_v<Value>)
      return PyFloat_FromDouble(info.*member);
    else
      return PyLong_FromLongLong(info.*member);
  });
}
PyObject* get_cached(PyObject* self, void*) {
  return of_info(self, [](const tessera_kernel_info& info) { return PyBool_FromLong(info.cached); });
}

// ---- a launch

// An int of any size that a parameter has: signed, else unsigned.
bool take_int(PyObject* value, tessera_kernel_argument& to) {
  int overflow = 0;
  to.kind = TESSERA_ARGUMENT_INTEGER;
  to.integer = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (overflow == 0) return to.integer != -1 || !PyErr_Occurred();
  if (overflow > 0) {
    to.kind = TESSERA_ARGUMENT_UNSIGNED;
    to.integer = static_cast<int64_t>(PyLong_AsUnsignedLongLong(value));
    if (to.integer != -1 || !PyErr_Occurred()) return true;
    PyErr_Clear();
  }
  raise_error("InputError", "an argument of a kernel is an int of more than 64 bits");
  return false;
}

// An object that is neither an int nor a float, but stands for one, as NumPy's numbers do.
bool take_other(PyObject* value, size_t at, tessera_kernel_argument& to) {
  if (PyIndex_Check(value)) {
    Ref index(PyNumber_Index(value));
    return index && take_int(index.get(), to);
  }
  to.kind = TESSERA_ARGUMENT_FLOAT;
  to.number = PyFloat_AsDouble(value); // by __float__
  if (to.number != -1.0 || !PyErr_Occurred()) return true;
  if (!PyErr_ExceptionMatches(PyExc_TypeError)) return false;
  PyErr_Clear();
  Ref type(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(value)), "__name__"));
  Ref name(type ? PyUnicode_AsUTF8String(type.get()) : nullptr);
  if (!name) return false;
  raise_error("InputTypeError", "argument " + std::to_string(at + 1) + " of a kernel is a " +
                                    PyBytes_AsString(name.get()) + ", expected an int or a float");
  return false;
}

inline bool take_argument(PyObject* value, size_t at, tessera_kernel_argument& to) {
  if (PyLong_Check(value)) return take_int(value, to);
  if (!PyFloat_Check(value)) return take_other(value, at, to);
  to.kind = TESSERA_ARGUMENT_FLOAT;
  to.number = PyFloat_AsDouble(value);
  return true;
}

// An int, or a tuple of one to three of them.
bool take_grid(PyObject* grid, std::array<int64_t, 3>& to) {
  const bool alone = !PyTuple_Check(grid);
  const Py_ssize_t axes = alone ? 1 : PyTuple_Size(grid);
  if (axes < 1 || axes > static_cast<Py_ssize_t>(to.size())) {
    raise_error("InputError", "a grid has one to three extents, not " + std::to_string(axes));
    return false;
  }
  for (Py_ssize_t axis = 0; axis < axes; ++axis) {
    PyObject* extent = alone ? grid : PyTuple_GetItem(grid, axis);
    int64_t& n = to[static_cast<size_t>(axis)];
    if (PyLong_Check(extent)) {
      n = PyLong_AsLongLong(extent);
    } else {
      Ref index(PyNumber_Index(extent));
      if (!index) return false;
      n = PyLong_AsLongLong(index.get());
    }
    if (n == -1 && PyErr_Occurred()) return false;
  }
  return true;
}

// launch(grid, arguments, stream=0)
PyObject* launch(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  const Py_ssize_t named = keywords ? PyTuple_Size(keywords) : 0;
  const bool stream_named =
      named == 1 && count == 2 && PyUnicode_CompareWithASCIIString(PyTuple_GetItem(keywords, 0), "stream") == 0;
  if (count < 2 || count + named > 3 || (named > 0 && !stream_named) || !PyTuple_Check(args[1])) {
    PyErr_SetString(PyExc_TypeError, "launch() takes a grid, a tuple of arguments, and a stream");
    return nullptr;
  }
  return protect<PyObject*>(nullptr, [&]() -> PyObject* {
    constexpr size_t kFew = 64;
    std::array<tessera_kernel_argument, kFew> few;
    std::vector<tessera_kernel_argument> many;
    const auto size = static_cast<size_t>(PyTuple_Size(args[1]));
    if (size > kFew) many.resize(size);
    tessera_kernel_argument* arguments = size > kFew ? many.data() : few.data();
    for (size_t i = 0; i < size; ++i)
      if (!take_argument(PyTuple_GetItem(args[1], static_cast<Py_ssize_t>(i)), i, arguments[i])) return nullptr;
    std::array<int64_t, 3> grid{1, 1, 1};
    if (!take_grid(args[0], grid)) return nullptr;
    void* stream = count + named > 2 ? PyLong_AsVoidPtr(args[2]) : nullptr;
    if (!stream && PyErr_Occurred()) return nullptr;
    const char* error = nullptr;
    {
      WithoutLock others;
      error = tessera_kernel_launch(kernel_of(self), grid[0], grid[1], grid[2], arguments, static_cast<int32_t>(size),
                                    stream);
    }
    return error ? raise_last_error(error) : Ref::borrow(Py_None).release();
  });
}

PyMethodDef methods[] = {{"launch", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(launch)),
                          METH_FASTCALL | METH_KEYWORDS,
                          "launch(grid, arguments, stream=0)\n--\n\n"
                          "Runs the programs of a grid: an int, or a tuple of one to three, x first.\n\n"
                          "arguments: a tuple in the order of `parameters`: an int for the address of elements in the "
                          "device's memory (0 where "
                          "there are none), an int or a float for a scalar. On the CPU the programs have ended when it "
                          "returns; on a GPU they "
                          "are put on `stream`. Raises tessera.Error."},
                         {nullptr, nullptr, 0, nullptr}};
PyGetSetDef attributes[] = {
    {"parameters", get_parameters, nullptr,
     "(name, \"pointer\" or \"scalar\", dtype, whether it is written, alignment in bytes, divisor) of each", nullptr},
    {"name", get_info<&tessera_kernel_info::name>, nullptr, "in the text", nullptr},
    {"device", get_info<&tessera_kernel_info::device>, nullptr, "\"cpu\", or the GPU's architecture: \"sm_90a\"",
     nullptr},
    {"threads", get_info<&tessera_kernel_info::threads>, nullptr, "of a block of a GPU; 0 on the CPU", nullptr},
    {"registers", get_info<&tessera_kernel_info::registers>, nullptr, "of a thread of a GPU; -1: unknown", nullptr},
    {"spill_bytes", get_info<&tessera_kernel_info::spill_bytes>, nullptr,
     "bytes of a thread's registers that a GPU keeps in memory; -1: unknown", nullptr},
    {"shared_bytes", get_info<&tessera_kernel_info::shared_bytes>, nullptr, "shared memory of a block of a GPU",
     nullptr},
    {"cached", get_cached, nullptr, "whether the cache folder had the machine code", nullptr},
    {"create_ms", get_info<&tessera_kernel_info::create_ms>, nullptr,
     "milliseconds that reading, compiling and loading took", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(make)},
    {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
    {Py_tp_methods, methods},
    {Py_tp_getset, attributes},
    {Py_tp_doc, const_cast<char*>(
                    "TileKernel(text, device=\"auto\", *, name=None, threads=0, cache_dir=None)\n--\n\n"
                    "A tile kernel, compiled from its text for \"cpu\", \"cuda\", \"cuda:N\" or \"auto\". Any thread "
                    "may launch it. Raises tessera.Error.")},
    {0, nullptr}};
PyType_Spec spec = {"tessera._native.TileKernel", sizeof(KernelObject), 0, Py_TPFLAGS_DEFAULT, slots};

} // namespace

bool add_kernel_type(PyObject* module) {
  Ref type(PyType_FromSpec(&spec));
  if (!type || PyModule_AddObject(module, "TileKernel", type.get()) != 0) return false;
  (void)type.release();
  return true;
}

} // namespace tessera::python
