// Parts that the files of the extension share: the limited API of CPython 3.10, owned references, errors, a model's
// inputs and outputs.
//
// One binary serves every CPython from 3.10 on (abi3). A C++ exception never enters the interpreter: the functions that
// it calls run inside protect().
#pragma once
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030A0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "api/c.h"
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tessera::python {

// An owned reference, or null.
class Ref {
public:
  Ref() = default;
  explicit Ref(PyObject* owned) : object_(owned) {}
  Ref(const Ref&) = delete;
  Ref(Ref&& o) noexcept : object_(std::exchange(o.object_, nullptr)) {}
  Ref& operator=(const Ref&) = delete;
  Ref& operator=(Ref&& o) noexcept {
    if (this != &o) reset(std::exchange(o.object_, nullptr));
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }
  static Ref borrow(PyObject* object) {
    Py_XINCREF(object);
    return Ref(object);
  }
  void reset(PyObject* owned = nullptr) { Py_XDECREF(std::exchange(object_, owned)); }
  [[nodiscard]] PyObject* get() const { return object_; }
  [[nodiscard]] PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

private:
  PyObject* object_ = nullptr;
};

// The interpreter's lock is released while this lives.
class WithoutLock {
public:
  WithoutLock() : state_(PyEval_SaveThread()) {}
  WithoutLock(const WithoutLock&) = delete;
  WithoutLock& operator=(const WithoutLock&) = delete;
  ~WithoutLock() { PyEval_RestoreThread(state_); }

private:
  PyThreadState* state_;
};

// body()'s result; `failed`, with a Python error, where it threw.
template <class T, class Body>
T protect(T failed, Body&& body) noexcept {
  try {
    return std::forward<Body>(body)();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (...) {
    PyErr_SetString(PyExc_SystemError, "tessera: an unexpected C++ exception");
  }
  return failed;
}

// Names that are looked up in every call, and what the Python side of the package provides. One per process: the
// extension refuses to be imported into a second interpreter.
struct Names {
  PyObject *data_ptr, *shape, *dtype, *array_struct, *dlpack, *dlpack_device, *is_contiguous, *contiguous, *is_cpu,
      *is_cuda, *is_neg, *get_device;
};
extern Names names;
bool intern_names();

// A str. Text of a model, or of the library, may hold bytes that are no UTF-8.
Ref text(const char* s);
// A Python exception on its way from one thread to another.
class Raised {
public:
  void take();                    // this thread's, which has none afterwards
  [[nodiscard]] bool give_back(); // false: there is none

private:
  Ref type_, value_, trace_;
};
// Sets the Python exception for the error that the last function of libtessera returned on this thread
// (tessera._errors.make_error makes it). Always returns null.
PyObject* raise_last_error(const char* text);
// The same for an error that is found here: `kind` names a class of tessera._errors, `code` and `name` are the
// library's.
PyObject* raise_error(const char* kind, const std::string& message);

// An input or output as the model declares it.
inline constexpr size_t kMaxDims = 64; // of a tensor
struct Io {
  std::string name;
  int32_t dtype = 0;             // onnx.TensorProto.DataType
  std::vector<std::string> dims; // as the library writes them
  std::vector<int64_t> fixed;    // per dimension: its size, or -1 where that is symbolic
  bool any_rank = false;         // calls decide how many dimensions there are
  [[nodiscard]] bool takes_rank(size_t rank) const { return any_rank ? rank <= kMaxDims : rank == dims.size(); }
  [[nodiscard]] size_t most_dims() const { return any_rank ? kMaxDims : dims.size(); }
  [[nodiscard]] bool is_fixed() const;
  [[nodiscard]] std::string text() const; // "float32[batch, 768]"
};
std::vector<Io> describe(const tessera_io* ios, int32_t count);
PyObject* tuple_of(const Io& io);

// One thread's way into a model, used by one call at a time. It keeps the arrays that describe the call's tensors, so
// that a call with the sizes of the one before allocates nothing here.
struct Lane {
  tessera_session* session = nullptr;
  bool prepared = false;
  std::vector<tessera_tensor> inputs, outputs;
  std::vector<int64_t> sizes;                    // of all inputs, one after the other: what `inputs` points to
  std::vector<int64_t> planned;                  // the sizes of inputs for which `output_dims` holds
  bool has_plan = false;                         // there are such
  std::vector<std::vector<int64_t>> output_dims; // of the last call; what `outputs` points to
  std::vector<Ref> output_tuples;                // the same as tuples of int
  std::vector<Ref> held;                         // what keeps the memory of this call's inputs
  std::vector<Ref> made;                         // the outputs of this call
  std::vector<Ref> scratch;                      // what keeps the memory of its intermediate results
  size_t scratch_bytes = 0;                      // that the last call requested first
  const uint8_t* donated = nullptr;              // of this call: tessera_call_options.donated
  size_t index = 0;                              // in Model::lanes

  Lane() = default;
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  ~Lane() { tessera_close(session); }
};

// A model that was opened; the Python type is in session.cpp.
struct Model {
  std::vector<Io> inputs, outputs;
  std::vector<Io> states; // where there are any, calls run one after another on the first lane, which has their values
  std::mutex turn;
  std::atomic<std::thread::id> in_turn; // the thread whose turn it is
  std::vector<size_t> first_size;       // of each input, in Lane::sizes
  size_t size_count = 0;
  bool on_gpu = false, sizes_known = true;
  int gpu = 0;              // which one, as CUDA counts them
  Ref weights;              // what open_program() was given: lives as long as the sessions
  std::vector<Lane*> lanes; // all of them; the first one is what was opened
  // Those that no call uses; guarded by the interpreter's lock. The first one is taken: callers that are alone always have
  // the same, which is then ready to be captured.
  std::vector<Lane*> free_lanes;
  std::vector<Ref> input_dtypes;         // per input: the NumPy dtype that was last seen and that fits
  std::vector<Ref> torch_dtypes;         // per input: the torch.dtype that fits
  std::vector<Ref> numpy_out, torch_out; // per output: the dtype that it is made with
  ~Model();
};

// A lane that nobody uses: a call's own until it ends. Of a model with states it is the first one, once no other thread
// uses it.
class Using {
public:
  explicit Using(Model& model) : model_(model) {}
  Using(const Using&) = delete;
  Using& operator=(const Using&) = delete;
  ~Using();
  [[nodiscard]] bool take(); // false: a Python error
  Lane* operator->() const { return lane_; }
  Lane& operator*() const { return *lane_; }

private:
  Model& model_;
  Lane* lane_ = nullptr;
};

// Makes the tensor of an output once its sizes are known.
class Maker {
public:
  virtual ~Maker() = default;
  // `data`: where its elements go. Null with a Python error. The interpreter's lock is held.
  virtual Ref make(size_t output, int32_t dtype, PyObject* sizes, const std::vector<int64_t>& dims,
                   void*& data) const = 0;
};

// A tuple of two integers, such as a device of DLPack. Raises InputTypeError, whose text begins with `what`.
bool take_pair(PyObject* pair, const std::string& what, int& first, int& second);

// The steps of a call, in order. Each returns false, or null, with a Python error set.
void prepare(const Model& model, Lane& lane);
// Runs on what lane.inputs describes, in a GPU's memory or the host's; lane.made holds the outputs.
// `scratch`: (bytes) -> tensor, whose memory a GPU has for what lies between inputs and outputs; null: the library's own.
bool compute(const Model& model, Lane& lane, const Maker& maker, bool on_gpu, void* stream,
             PyObject* scratch = nullptr);
PyObject* outputs_of(Lane& lane); // as a list

// tensor.data_ptr(), which is null for a tensor without memory, and tensor.shape as the sizes of input `i`.
bool address_of(PyObject* tensor, void*& address);
// Notes how many dimensions an input of any rank has in this call.
void set_rank(const Model& model, Lane& lane, size_t i, size_t rank);
bool take_shape(const Model& model, Lane& lane, size_t i, PyObject* tensor);
// "1 input", "2 inputs"
std::string counted(size_t n, const char* what);
// Raises InputError; false.
bool wrong_rank(const Io& io, const int64_t* dims, size_t rank);

bool no_memory(const Io& io);

// The size of an element of onnx.TensorProto.DataType; 0 for a type that does not fill whole bytes.
size_t element_bytes(int32_t dtype);
const char* dtype_name(int32_t dtype);

// Session.run_items(args): items.cpp
PyObject* run_items(Model& model, PyObject* args);
// Session.call(args, make, stream, scratch, donated): call.cpp
PyObject* call(Model& model, PyObject* args, PyObject* make, PyObject* stream, PyObject* scratch, PyObject* donated);

} // namespace tessera::python
