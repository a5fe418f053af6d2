// The type tessera._native.Tensor: an output for a caller whose inputs are neither NumPy's nor PyTorch's. It owns
// memory of the host or of a GPU and gives it to others by DLPack, without a copy.
#include "values.h"
#include <atomic>
#include <cstdlib>
#include <cstring>

namespace tessera::python {

dlpack::DataType dlpack_type(int32_t dtype) {
  const auto bits = static_cast<uint8_t>(element_bytes(dtype) * 8);
  switch (dtype) {
  case 3:
  case 5:
  case 6:
  case 7: return {0, bits, 1};
  case 2:
  case 4:
  case 12:
  case 13: return {1, bits, 1};
  case 1:
  case 10:
  case 11: return {2, bits, 1};
  case 16: return {4, bits, 1};
  case 14:
  case 15: return {5, bits, 1};
  case 9: return {6, bits, 1};
  case 17: return {10, bits, 1};
  case 18: return {11, bits, 1};
  case 19: return {12, bits, 1};
  case 20: return {13, bits, 1};
  case 24: return {14, bits, 1};
  default: return {0, 0, 0};
  }
}

int32_t dtype_of(dlpack::DataType type) {
  for (int32_t dtype = 1; dtype <= 26; ++dtype) {
    const auto t = dlpack_type(dtype);
    if (t.lanes && t.code == type.code && t.bits == type.bits && t.lanes == type.lanes) return dtype;
  }
  return 0;
}

namespace {

// Shared by the Python object and by every capsule that was made of it.
struct Memory {
  std::atomic<int> users{1};
  int32_t dtype = 0;
  std::vector<int64_t> dims, strides;
  void* data = nullptr;
  size_t bytes = 0;
  dlpack::Device device{dlpack::kCpu, 0};
  tessera_memory* of_gpu = nullptr; // what `data` lies in; null for the host's

  Memory(int32_t of, const std::vector<int64_t>& sizes) : dtype(of), dims(sizes), strides(sizes.size(), 1) {
    bytes = element_bytes(dtype);
    for (size_t d = dims.size(); d-- > 0;) {
      if (d + 1 < dims.size()) strides[d] = strides[d + 1] * dims[d + 1];
      bytes *= static_cast<size_t>(dims[d]);
    }
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    if (of_gpu) {
      tessera_memory_free(of_gpu);
    } else {
      std::free(data); // NOLINT: of aligned_alloc
    }
  }
  void leave() {
    if (users.fetch_sub(1) == 1) delete this;
  }
};

struct TensorObject {
  PyObject_HEAD Memory* memory;
};
PyTypeObject* tensor_type = nullptr;
Memory& memory_of(PyObject* self) { return *reinterpret_cast<TensorObject*>(self)->memory; }

void dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  reinterpret_cast<TensorObject*>(self)->memory->leave();
  auto* release = reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free));
  release(self);
  Py_DECREF(type);
}

PyObject* get_shape(PyObject* self, void*) {
  const auto& dims = memory_of(self).dims;
  Ref shape(PyTuple_New(static_cast<Py_ssize_t>(dims.size())));
  if (!shape) return nullptr;
  for (size_t d = 0; d < dims.size(); ++d) {
    PyObject* size = PyLong_FromLongLong(dims[d]);
    if (!size || PyTuple_SetItem(shape.get(), static_cast<Py_ssize_t>(d), size) != 0) return nullptr;
  }
  return shape.release();
}
PyObject* get_dtype(PyObject* self, void*) { return PyUnicode_FromString(dtype_name(memory_of(self).dtype)); }

PyObject* repr(PyObject* self) {
  Ref shape(get_shape(self, nullptr));
  return shape ? PyUnicode_FromFormat("tessera.Tensor(shape=%R, dtype='%s')", shape.get(),
                                      dtype_name(memory_of(self).dtype))
               : nullptr;
}

PyObject* dlpack_device(PyObject* self, PyObject*) {
  const auto& device = memory_of(self).device;
  return Py_BuildValue("(ii)", device.type, device.id);
}

// The consumer's stream, of __dlpack__, comes after what was put on the producer's. None: the default stream; -1: the
// consumer sees to it.
bool order_for(Memory& m, PyObject* stream) {
  if (!m.of_gpu) return true;
  void* on = nullptr;
  if (stream && stream != Py_None) {
    const long long number = PyLong_AsLongLong(stream);
    if (number == -1) return !PyErr_Occurred();
    on = PyLong_AsVoidPtr(stream);
    if (!on && PyErr_Occurred()) return false;
  }
  const char* error = tessera_memory_wait(m.of_gpu, on);
  if (error) raise_last_error(error);
  return error == nullptr;
}

dlpack::Tensor describe_memory(Memory& m) {
  return {m.data,           m.device, static_cast<int32_t>(m.dims.size()), dlpack_type(m.dtype), m.dims.data(),
          m.strides.data(), 0};
}

// A capsule that nobody has taken still owns its tensor.
template <class Managed>
void drop(PyObject* capsule, const char* name) {
  if (!PyCapsule_IsValid(capsule, name)) return;
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  managed->deleter(managed);
}
template <class Managed>
PyObject* capsule_of(Managed* managed, const char* name, PyCapsule_Destructor destructor) {
  PyObject* capsule = PyCapsule_New(managed, name, destructor);
  if (!capsule) managed->deleter(managed);
  return capsule;
}
template <class Managed>
void release(Managed* managed) {
  static_cast<Memory*>(managed->context)->leave();
  delete managed;
}

PyObject* dlpack_of(PyObject* self, PyObject* args, PyObject* keywords) {
  static const char* names_of[] = {"stream", "max_version", "dl_device", "copy", nullptr};
  PyObject *stream = nullptr, *version = nullptr, *device = nullptr, *copy = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "|$OOOO:__dlpack__", const_cast<char**>(names_of), &stream, &version,
                                   &device, &copy))
    return nullptr;
  Memory& own = memory_of(self);
  int major = 0, minor = 0, kind = own.device.type, id = own.device.id;
  if (version && version != Py_None && !take_pair(version, "max_version is", major, minor)) return nullptr;
  if (device && device != Py_None && !take_pair(device, "dl_device is", kind, id)) return nullptr;
  if (kind != own.device.type || id != own.device.id || (copy == Py_True && own.of_gpu)) {
    PyErr_Format(PyExc_BufferError, "this tensor lies on dl_device (%d, %d), and a copy to (%d, %d) is not made here",
                 own.device.type, own.device.id, kind, id);
    return nullptr;
  }
  if (!order_for(own, stream)) return nullptr;
  return protect<PyObject*>(nullptr, [&]() -> PyObject* {
    Ref shown = Ref::borrow(self);
    if (copy == Py_True) {
      void* data = nullptr;
      const Memory& from = memory_of(self);
      shown = new_tensor(from.dtype, from.dims, data);
      if (!shown) return nullptr;
      std::memcpy(data, from.data, from.bytes);
    }
    Memory& m = memory_of(shown.get());
    if (major >= 1) {
      const uint64_t flags = copy == Py_True ? dlpack::kCopied : 0;
      auto* managed =
          new dlpack::VersionedTensor{1, 0, &m, release<dlpack::VersionedTensor>, flags, describe_memory(m)};
      m.users.fetch_add(1);
      return capsule_of(managed, "dltensor_versioned",
                        [](PyObject* c) { drop<dlpack::VersionedTensor>(c, "dltensor_versioned"); });
    }
    auto* managed = new dlpack::ManagedTensor{describe_memory(m), &m, release<dlpack::ManagedTensor>};
    m.users.fetch_add(1);
    return capsule_of(managed, "dltensor", [](PyObject* c) { drop<dlpack::ManagedTensor>(c, "dltensor"); });
  });
}

PyMethodDef methods[] = {
    {"__dlpack__", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(dlpack_of)), METH_VARARGS | METH_KEYWORDS,
     "__dlpack__(*, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n"
     "The memory as a capsule of DLPack. stream: of a GPU, on which it will be used. Raises BufferError."},
    {"__dlpack_device__", dlpack_device, METH_NOARGS,
     "__dlpack_device__()\n--\n\n(1, 0): host memory; (2, n): memory of GPU n."},
    {nullptr, nullptr, 0, nullptr}};
PyGetSetDef attributes[] = {{"shape", get_shape, nullptr, "tuple of int", nullptr},
                            {"dtype", get_dtype, nullptr, "its name, such as \"bfloat16\"", nullptr},
                            {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                       {Py_tp_repr, reinterpret_cast<void*>(repr)},
                       {Py_tp_methods, methods},
                       {Py_tp_getset, attributes},
                       {Py_tp_doc, const_cast<char*>("An output, row-major, that other libraries take by DLPack.")},
                       {0, nullptr}};
PyType_Spec spec = {"tessera.Tensor", sizeof(TensorObject), 0, Py_TPFLAGS_DEFAULT | (1UL << 7), slots};

Ref tensor_over(std::unique_ptr<Memory> memory) {
  auto* allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(tensor_type, Py_tp_alloc));
  Ref self(allocate(tensor_type, 0));
  if (self) reinterpret_cast<TensorObject*>(self.get())->memory = memory.release();
  return self;
}

} // namespace

bool add_tensor_type(PyObject* module) {
  Ref type(PyType_FromSpec(&spec));
  if (!type) return false;
  tensor_type = reinterpret_cast<PyTypeObject*>(type.get());
  Py_INCREF(type.get()); // the module's
  if (PyModule_AddObject(module, "Tensor", type.get()) != 0) return false;
  (void)type.release();
  return true;
}

Ref new_tensor(int32_t dtype, const std::vector<int64_t>& dims, void*& data) {
  auto memory = std::make_unique<Memory>(dtype, dims);
  memory->data = std::aligned_alloc(64, std::max<size_t>((memory->bytes + 63) / 64 * 64, 64));
  if (!memory->data) throw std::bad_alloc();
  data = memory->data;
  return tensor_over(std::move(memory));
}

Ref new_gpu_tensor(const tessera_session* session, int gpu, void* stream, int32_t dtype,
                   const std::vector<int64_t>& dims, void*& data) {
  auto memory = std::make_unique<Memory>(dtype, dims);
  memory->device = {dlpack::kCuda, gpu};
  if (const char* error = tessera_memory_create(session, memory->bytes, stream, &memory->of_gpu, &memory->data)) {
    raise_last_error(error);
    return Ref();
  }
  data = memory->data;
  return tensor_over(std::move(memory));
}

void copy_strided(std::byte* to, const std::byte* from, const int64_t* dims, const int64_t* strides, size_t rank,
                  size_t element) {
  if (rank == 0) {
    std::memcpy(to, from, element);
    return;
  }
  int64_t inner = 1;
  for (size_t d = 1; d < rank; ++d) inner *= dims[d];
  const size_t step = static_cast<size_t>(inner) * element;
  if (step == 0) return;
  for (int64_t i = 0; i < dims[0]; ++i, to += step, from += strides[0])
    copy_strided(to, from, dims + 1, strides + 1, rank - 1, element);
}

} // namespace tessera::python
