// Session.run(): arrays of NumPy, tensors of PyTorch, and anything with __dlpack__, checked and used where they lie.
// The outputs are of the first input's kind.
#include "values.h"

namespace tessera::python {
namespace {

enum class Kind : uint8_t { Numpy, Torch, Dlpack };

// PyArrayInterface of NumPy's protocol __array_struct__.
struct ArrayStruct {
  int two;
  int rank;
  char kind;
  int element;
  int flags;
  Py_ssize_t* shape;
  Py_ssize_t* strides; // in bytes
  void* data;
  PyObject* description;
};
constexpr int kContiguous = 0x1, kAligned = 0x100, kNative = 0x200;

// A class or function of a module that is imported already: null, without an error, where it is not.
PyObject* loaded(const char* module, const char* name, PyObject*& known) {
  if (known) return known;
  PyObject* modules = PyImport_GetModuleDict();        // borrowed
  PyObject* m = PyDict_GetItemString(modules, module); // borrowed
  known = m ? PyObject_GetAttrString(m, name) : nullptr;
  if (!known) PyErr_Clear();
  return known;
}
// One of tessera._arrays: null with an error.
PyObject* helper(const char* name, PyObject*& known) {
  if (known) return known;
  Ref module(PyImport_ImportModule("tessera._arrays"));
  if (module) known = PyObject_GetAttrString(module.get(), name);
  return known;
}
PyObject *ndarray_type, *torch_type, *numpy_number, *numpy_dtype, *numpy_contiguous, *numpy_empty, *torch_dtype,
    *torch_stream, *torch_empty, *torch_known, *torch_records, *torch_dispatches;

// Whether `object` is of a class that may not be there. -1: a Python error.
int is_a(PyObject* object, PyObject* type) { return type ? PyObject_IsInstance(object, type) : 0; }

bool wrong_dtype(const Io& io, const std::string& given) {
  raise_error("InputTypeError", "input '" + io.name + "' has dtype " + given + "; the model declares " + io.text());
  return false;
}
// str(object)
std::string text_of(PyObject* object) {
  Ref shown(object ? PyObject_Str(object) : nullptr);
  Ref utf8(shown ? PyUnicode_AsUTF8String(shown.get()) : nullptr);
  const char* text = utf8 ? PyBytes_AsString(utf8.get()) : nullptr;
  if (!text) PyErr_Clear();
  return text ? text : "?";
}

class Arguments {
public:
  Arguments(Model& model, Lane& lane, PyObject* stream, bool recorded)
      : model_(model), lane_(lane), stream_(stream), recorded_(recorded) {}

  bool take(size_t i, PyObject* arg) {
    io_ = &model_.inputs[i];
    const int is_numpy = is_a(arg, loaded("numpy", "ndarray", ndarray_type));
    const int is_torch = is_numpy ? 0 : is_a(arg, loaded("torch", "Tensor", torch_type));
    if (is_numpy < 0 || is_torch < 0) return false;
    const Kind kind = is_numpy ? Kind::Numpy : is_torch ? Kind::Torch : Kind::Dlpack;
    if (i == 0) kind_ = kind;
    if (is_torch && !recorded_) {
      const int records = torch_takes(arg);
      to_record_ = records == 1;
      if (records != 0) return false;
    }
    return is_numpy ? lies_in(i, false) && take_numpy(i, arg) : is_torch ? take_torch(i, arg) : take_dlpack(i, arg);
  }

  // take() was false without a Python error: the call is PyTorch's dispatcher's.
  [[nodiscard]] bool to_record() const { return to_record_; }
  [[nodiscard]] Kind kind() const { return kind_; }
  [[nodiscard]] bool on_gpu() const { return on_gpu_; }
  [[nodiscard]] void* stream() const { return on_; }

private:
  // All inputs lie in the host's memory, or all in that of the model's GPU.
  bool lies_in(size_t i, bool gpu) {
    if (i == 0) on_gpu_ = gpu;
    if (gpu == on_gpu_) return true;
    raise_error("InputError", "input '" + io_->name + "' lies in " + (gpu ? "a GPU's" : "host") +
                                  " memory and input '" + model_.inputs[0].name +
                                  "' does not; all inputs of a call lie in the same memory");
    return false;
  }
  int64_t* dims(size_t i) { return lane_.sizes.data() + model_.first_size[i]; }

  // 1: PyTorch's dispatcher is to see the call, because of the thread's state or the tensor's class; -1: a Python error.
  int torch_takes(PyObject* tensor) {
    if (!std::exchange(looked_, true)) {
      PyObject* records = helper("torch_records", torch_records);
      Ref any(records ? PyObject_CallObject(records, nullptr) : nullptr);
      if (!any) return -1;
      if (any.get() == Py_True) return 1;
    }
    if (reinterpret_cast<PyObject*>(Py_TYPE(tensor)) == torch_type) return 0;
    PyObject* dispatches = helper("torch_dispatches", torch_dispatches);
    Ref own(dispatches ? PyObject_CallFunctionObjArgs(dispatches, tensor, nullptr) : nullptr);
    return own ? static_cast<int>(own.get() == Py_True) : -1;
  }
  bool take_numpy(size_t i, PyObject* arg) {
    Ref dtype(PyObject_GetAttr(arg, names.dtype));
    if (!dtype) return false;
    if (dtype.get() != model_.input_dtypes[i].get()) {
      PyObject* number = helper("numpy_number", numpy_number);
      Ref found(number ? PyObject_CallFunctionObjArgs(number, dtype.get(), nullptr) : nullptr);
      if (!found) return false;
      if (PyLong_AsLong(found.get()) != io_->dtype) return wrong_dtype(*io_, text_of(dtype.get()));
      model_.input_dtypes[i] = Ref::borrow(dtype.get());
    }
    Ref array = Ref::borrow(arg);
    Ref capsule(PyObject_GetAttr(arg, names.array_struct));
    if (!capsule) return false;
    const auto* a = static_cast<const ArrayStruct*>(PyCapsule_GetPointer(capsule.get(), nullptr));
    if (!a) return false;
    constexpr int kAll = kContiguous | kAligned | kNative;
    if ((a->flags & kAll) != kAll) { // a row-major copy in this machine's byte order
      PyObject* contiguous = helper("numpy_contiguous", numpy_contiguous);
      array.reset(contiguous ? PyObject_CallFunctionObjArgs(contiguous, arg, nullptr) : nullptr);
      if (!array) return false;
      capsule.reset(PyObject_GetAttr(array.get(), names.array_struct));
      if (!capsule) return false;
      a = static_cast<const ArrayStruct*>(PyCapsule_GetPointer(capsule.get(), nullptr));
      if (!a) return false;
    }
    const auto rank = static_cast<size_t>(a->rank);
    if (!io_->takes_rank(rank)) {
      const std::vector<int64_t> given(a->shape, a->shape + rank);
      return wrong_rank(*io_, given.data(), rank);
    }
    std::copy(a->shape, a->shape + rank, dims(i));
    set_rank(model_, lane_, i, rank);
    lane_.inputs[i].data = a->data;
    lane_.held[i] = std::move(array);
    return true;
  }

  bool take_torch(size_t i, PyObject* arg) {
    Ref dtype(PyObject_GetAttr(arg, names.dtype));
    if (!dtype) return false;
    Ref& expected = model_.torch_dtypes[i];
    if (!expected) {
      PyObject* of = helper("torch_dtype", torch_dtype);
      expected.reset(of ? PyObject_CallFunction(of, "i", static_cast<int>(io_->dtype)) : nullptr);
      if (!expected) return false;
    }
    if (dtype.get() != expected.get()) return wrong_dtype(*io_, text_of(dtype.get()));
    Ref on_cpu(PyObject_GetAttr(arg, names.is_cpu));
    if (!on_cpu) return false;
    const bool gpu = on_cpu.get() != Py_True;
    if ((gpu && !take_torch_device(i, arg)) || !lies_in(i, gpu)) return false;
    Ref tensor = Ref::borrow(arg);
    Ref contiguous(PyObject_CallMethodObjArgs(arg, names.is_contiguous, nullptr));
    Ref negative(contiguous ? PyObject_CallMethodObjArgs(arg, names.is_neg, nullptr) : nullptr);
    const bool complex = io_->dtype == 14 || io_->dtype == 15;
    Ref conjugate(complex && negative ? PyObject_CallMethod(arg, "is_conj", nullptr) : nullptr);
    if (!negative || (complex && !conjugate)) return false;
    if (contiguous.get() != Py_True || negative.get() == Py_True || conjugate.get() == Py_True) {
      PyObject* copied = helper("torch_contiguous", torch_known);
      tensor.reset(copied ? PyObject_CallFunctionObjArgs(copied, arg, nullptr) : nullptr);
      if (!tensor) return false;
    }
    if (!take_shape(model_, lane_, i, tensor.get()) || !address_of(tensor.get(), lane_.inputs[i].data)) return false;
    lane_.held[i] = std::move(tensor);
    return true;
  }
  // Raises InputError.
  bool elsewhere(const std::string& device) {
    raise_error("InputError",
                "input '" + io_->name + "' lies on '" + device + "'; the model was loaded for " +
                    (model_.on_gpu ? "'cuda:" + std::to_string(model_.gpu) + "'"
                                   : "the CPU. Load it with device=\"cuda\", or copy the input to the host"));
    return false;
  }
  // Takes a tensor that is not in the host's memory. The caller's stream is the given one, else PyTorch's current one.
  bool take_torch_device(size_t i, PyObject* tensor) {
    Ref on_cuda(PyObject_GetAttr(tensor, names.is_cuda));
    Ref gpu(on_cuda ? PyObject_CallMethodObjArgs(tensor, names.get_device, nullptr) : nullptr);
    if (!gpu) return false;
    if (!model_.on_gpu || on_cuda.get() != Py_True || PyLong_AsLong(gpu.get()) != model_.gpu)
      return elsewhere(text_of(Ref(PyObject_GetAttrString(tensor, "device")).get()));
    if (i > 0) return true;
    PyObject* of = helper("torch_stream", torch_stream);
    Ref number(of ? PyObject_CallFunctionObjArgs(of, tensor, stream_, nullptr) : nullptr);
    if (!number) return false;
    on_ = PyLong_AsVoidPtr(number.get());
    return on_ != nullptr || !PyErr_Occurred();
  }

  // A result of __dlpack__ is taken as well, and stays its owner's: a capsule that was not consumed.
  static bool is_capsule(PyObject* object) {
    return PyCapsule_IsValid(object, "dltensor") != 0 || PyCapsule_IsValid(object, "dltensor_versioned") != 0;
  }
  // The tensor in a capsule; null with a Python error.
  const dlpack::Tensor* tensor_of(PyObject* capsule) const {
    if (PyCapsule_IsValid(capsule, "dltensor"))
      return &static_cast<dlpack::ManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"))->tensor;
    const auto* t = static_cast<dlpack::VersionedTensor*>(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
    if (t->major == 1) return &t->tensor;
    refuse("a capsule of version " + std::to_string(t->major) + "." + std::to_string(t->minor) +
           " of DLPack, whose layout is not known here; version 1 is expected");
    return nullptr;
  }
  bool take_dlpack(size_t i, PyObject* arg) {
    if (is_capsule(arg)) {
      const dlpack::Tensor* t = tensor_of(arg);
      return t && take_dlpack_device(i, t->device) && take_capsule(i, Ref::borrow(arg), *t);
    }
    Ref device(PyObject_GetAttr(arg, names.dlpack_device));
    if (!device) {
      PyErr_Clear();
      Ref type(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(arg)), "__name__"));
      raise_error("InputTypeError", "input '" + io_->name + "' is of type " + text_of(type.get()) +
                                        "; a NumPy array, a PyTorch tensor or an object with __dlpack__ is expected, " +
                                        io_->text());
      return false;
    }
    Ref where(PyObject_CallObject(device.get(), nullptr));
    dlpack::Device on{};
    if (!where || !take_pair(where.get(), "input '" + io_->name + "': __dlpack_device__ returned", on.type, on.id))
      return false;
    if (!take_dlpack_device(i, on)) return false;
    Ref capsule = capsule_of(arg, on.type == dlpack::kCuda);
    if (!capsule) return false;
    if (!is_capsule(capsule.get())) {
      raise_error("InputTypeError", "input '" + io_->name + "': __dlpack__ returned no capsule of DLPack");
      return false;
    }
    const dlpack::Tensor* t = tensor_of(capsule.get());
    if (!t) return false;
    if (t->device.type != on.type || t->device.id != on.id)
      return refuse("a capsule of DLPack for device (" + std::to_string(t->device.type) + ", " +
                    std::to_string(t->device.id) + "); __dlpack_device__ returned (" + std::to_string(on.type) + ", " +
                    std::to_string(on.id) + ")");
    return take_capsule(i, std::move(capsule), *t);
  }
  // Version 1 of the protocol, in which read-only memory can be shown, where the owner knows it. Of a GPU's memory the
  // owner sees to it that the stream of the call comes after what fills it.
  Ref capsule_of(PyObject* owner, bool gpu) const {
    static PyObject* const nothing = PyTuple_New(0);
    static PyObject* const newest = Py_BuildValue("{s(ii)}", "max_version", 1, 0);
    Ref method(PyObject_GetAttr(owner, names.dlpack));
    if (!method || !nothing || !newest) return Ref();
    Ref on_stream, with_stream;
    if (gpu) { // 1 is the default stream
      on_stream.reset(PyLong_FromVoidPtr(on_ ? on_ : reinterpret_cast<void*>(1)));
      with_stream.reset(on_stream ? Py_BuildValue("{sOs(ii)}", "stream", on_stream.get(), "max_version", 1, 0)
                                  : nullptr);
      if (!with_stream) return Ref();
    }
    Ref capsule(PyObject_Call(method.get(), nothing, gpu ? with_stream.get() : newest));
    if (capsule || !PyErr_ExceptionMatches(PyExc_TypeError)) return capsule;
    PyErr_Clear();
    if (!gpu) return Ref(PyObject_CallObject(method.get(), nullptr));
    with_stream.reset(Py_BuildValue("{sO}", "stream", on_stream.get()));
    return with_stream ? Ref(PyObject_Call(method.get(), nothing, with_stream.get())) : Ref();
  }
  // The stream is the caller's: what was given, else the default one.
  bool take_dlpack_device(size_t i, dlpack::Device device) {
    if (device.type == dlpack::kCpu || device.type == dlpack::kCudaHost) return lies_in(i, false);
    if (device.type != dlpack::kCuda) {
      raise_error("UnsupportedError", "input '" + io_->name + "' lies on DLPack's device (" +
                                          std::to_string(device.type) + ", " + std::to_string(device.id) +
                                          "); memory of the host (1, 0) and of NVIDIA's GPUs (2, n) is taken");
      return false;
    }
    if (!model_.on_gpu || device.id != model_.gpu) return elsewhere("cuda:" + std::to_string(device.id));
    if (i == 0 && stream_ != Py_None) {
      on_ = PyLong_AsVoidPtr(stream_);
      if (!on_ && PyErr_Occurred()) return false;
    }
    return lies_in(i, true);
  }
  // Raises InputError; false.
  bool refuse(const std::string& has) const {
    raise_error("InputError", "input '" + io_->name + "' is " + has);
    return false;
  }
  // Checks the capsule itself: rank, sizes, and that all elements are in the address space.
  bool check_capsule(const dlpack::Tensor& t) const {
    const std::string name = "a capsule of DLPack ";
    if (t.rank < 0 || t.rank > static_cast<int32_t>(kMaxDims))
      return refuse(name + "of rank " + std::to_string(t.rank) + "; 0 to " + std::to_string(kMaxDims) +
                    " dimensions are possible");
    if (t.rank > 0 && !t.shape)
      return refuse(name + "of rank " + std::to_string(t.rank) + " without a shape: the pointer to it is null");
    const auto element = static_cast<int64_t>(element_bytes(io_->dtype));
    int64_t bytes = element;
    bool fits = true;
    for (int32_t d = 0; d < t.rank; ++d) {
      if (t.shape[d] < 0)
        return refuse(name + "whose dimension " + std::to_string(d) + " is " + std::to_string(t.shape[d]) +
                      "; a size is 0 or more");
      fits = !__builtin_mul_overflow(bytes, t.shape[d], &bytes) && fits;
    }
    if (std::find(t.shape, t.shape + t.rank, 0) != t.shape + t.rank) return true;
    if (!t.data) return no_memory(*io_);
    // Computes the offsets of the first byte behind the elements, and of the lowest element.
    const auto at = reinterpret_cast<uintptr_t>(t.data);
    int64_t first = 0, last = 0, begin = 0, end = 0;
    for (int32_t d = 0; t.strides && d < t.rank; ++d) {
      int64_t& side = t.strides[d] < 0 ? first : last;
      int64_t far = 0;
      fits = fits && !__builtin_mul_overflow(t.shape[d] - 1, t.strides[d], &far) &&
             !__builtin_mul_overflow(far, element, &far) && !__builtin_add_overflow(side, far, &side);
    }
    fits = fits && !__builtin_add_overflow(t.strides ? last : bytes - element, element, &last) &&
           !__builtin_add_overflow(at, t.byte_offset, &begin) && !__builtin_add_overflow(begin, last, &end) &&
           begin + first >= 0;
    return fits || refuse(name + "whose sizes, strides and offset reach beyond the address space");
  }
  bool take_capsule(size_t i, Ref capsule, const dlpack::Tensor& t) {
    if (dtype_of(t.dtype) != io_->dtype) {
      const int32_t known = dtype_of(t.dtype);
      return wrong_dtype(*io_, known ? dtype_name(known)
                                     : "DLPack code " + std::to_string(t.dtype.code) + " of " +
                                           std::to_string(t.dtype.bits) + " bits");
    }
    if (!check_capsule(t)) return false;
    const auto rank = static_cast<size_t>(t.rank);
    if (!io_->takes_rank(rank)) return wrong_rank(*io_, t.shape, rank);
    std::copy(t.shape, t.shape + rank, dims(i));
    set_rank(model_, lane_, i, rank);
    auto* data = static_cast<std::byte*>(t.data) + t.byte_offset;
    const auto element = static_cast<int64_t>(element_bytes(io_->dtype));
    bool row_major = true;
    int64_t expected = 1;
    for (size_t d = rank; t.strides && d-- > 0;) {
      if (t.shape[d] != 1 && t.strides[d] != expected) row_major = false;
      if (t.shape[d] == 0) { // no elements
        row_major = true;
        break;
      }
      expected *= t.shape[d];
    }
    const auto alignment = static_cast<uintptr_t>(std::min<int64_t>(element, 8));
    if (row_major && reinterpret_cast<uintptr_t>(data) % alignment == 0) {
      lane_.inputs[i].data = data;
      lane_.held[i] = std::move(capsule); // whose destructor gives the tensor back: it was not taken over
      return true;
    }
    if (on_gpu_) {
      raise_error("InputError", "input '" + io_->name +
                                    "' is not row-major; of a GPU's memory only PyTorch's tensors are copied. Make it "
                                    "contiguous");
      return false;
    }
    std::vector<int64_t> strides(rank);
    int64_t own = element;
    for (size_t d = rank; d-- > 0;) {
      strides[d] = t.strides ? t.strides[d] * element : own;
      own *= t.shape[d];
    }
    void* to = nullptr;
    Ref copy = new_tensor(io_->dtype, {t.shape, t.shape + rank}, to);
    if (!copy) return false;
    copy_strided(static_cast<std::byte*>(to), data, t.shape, strides.data(), rank, static_cast<size_t>(element));
    lane_.inputs[i].data = to;
    lane_.held[i] = std::move(copy);
    return true;
  }

  Model& model_;
  Lane& lane_;
  PyObject* stream_;
  bool recorded_, looked_ = false, to_record_ = false;
  const Io* io_ = nullptr;
  Kind kind_ = Kind::Numpy;
  bool on_gpu_ = false;
  void* on_ = nullptr;
};

// Outputs of the inputs' kind.
class KindMaker final : public Maker {
public:
  KindMaker(Model& model, const Lane& lane, const Arguments& arguments, PyObject* like)
      : model_(model), lane_(lane), arguments_(arguments), kind_(arguments.kind()), like_(like) {}
  Ref make(size_t output, int32_t dtype, PyObject* sizes, const std::vector<int64_t>& dims,
           void*& data) const override {
    if (kind_ == Kind::Torch) return make_torch(output, dtype, sizes, data);
    if (kind_ == Kind::Numpy) {
      Ref& of = model_.numpy_out[output];
      if (!of) {
        PyObject* find = helper("numpy_dtype", numpy_dtype);
        of.reset(find ? PyObject_CallFunction(find, "i", static_cast<int>(dtype)) : nullptr);
        if (!of) return Ref();
      }
      if (of.get() != Py_None) return make_numpy(of.get(), sizes, data);
    }
    return arguments_.on_gpu() ? new_gpu_tensor(lane_.session, model_.gpu, arguments_.stream(), dtype, dims, data)
                               : new_tensor(dtype, dims, data);
  }

private:
  static Ref make_numpy(PyObject* dtype, PyObject* sizes, void*& data) {
    PyObject* empty = helper("numpy_empty", numpy_empty);
    Ref array(empty ? PyObject_CallFunctionObjArgs(empty, sizes, dtype, nullptr) : nullptr);
    Ref capsule(array ? PyObject_GetAttr(array.get(), names.array_struct) : nullptr);
    if (!capsule) return Ref();
    const auto* a = static_cast<const ArrayStruct*>(PyCapsule_GetPointer(capsule.get(), nullptr));
    if (!a) return Ref();
    data = a->data;
    return array;
  }
  Ref make_torch(size_t output, int32_t dtype, PyObject* sizes, void*& data) const {
    Ref& of = model_.torch_out[output];
    if (!of) {
      PyObject* find = helper("torch_dtype", torch_dtype);
      of.reset(find ? PyObject_CallFunction(find, "i", static_cast<int>(dtype)) : nullptr);
      if (!of) return Ref();
    }
    PyObject* empty = helper("torch_empty", torch_empty);
    Ref tensor(empty ? PyObject_CallFunctionObjArgs(empty, sizes, of.get(), like_, nullptr) : nullptr);
    if (tensor && !address_of(tensor.get(), data)) return Ref();
    return tensor;
  }

  Model& model_;
  const Lane& lane_;
  const Arguments& arguments_;
  Kind kind_;
  PyObject* like_; // the first input
};

} // namespace

PyObject* run(Model& model, PyObject* args, PyObject* stream, bool recorded) {
  const Py_ssize_t count = PyTuple_Size(args);
  if (static_cast<size_t>(count) != model.inputs.size()) {
    std::string all;
    for (const Io& io : model.inputs) all += (all.empty() ? "" : ", ") + ("'" + io.name + "' " + io.text());
    return raise_error("InputTypeError", "the model has " + counted(model.inputs.size(), "input") + " (" + all +
                                             "), and the number given is " + std::to_string(count));
  }
  Using lane(model);
  if (!lane.take()) return nullptr;
  prepare(model, *lane);
  Arguments arguments(model, *lane, stream, recorded);
  for (size_t i = 0; i < model.inputs.size(); ++i)
    if (!arguments.take(i, PyTuple_GetItem(args, static_cast<Py_ssize_t>(i))))
      return arguments.to_record() ? Ref::borrow(Py_None).release() : nullptr;
  const KindMaker maker(model, *lane, arguments, count > 0 ? PyTuple_GetItem(args, 0) : Py_None);
  return compute(model, *lane, maker, arguments.on_gpu(), arguments.stream()) ? outputs_of(*lane) : nullptr;
}

} // namespace tessera::python
