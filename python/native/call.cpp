// A call: arguments become descriptions of memory, the library runs without the interpreter's lock, outputs are made
// when their sizes are known.
#include "native.h"
#include <cstring>

namespace tessera::python {

// Closing waits for what the session does in the background, which may want the interpreter's lock.
Model::~Model() {
  {
    WithoutLock others;
    for (Lane* lane : lanes) tessera_close(std::exchange(lane->session, nullptr));
  }
  for (Lane* lane : lanes) delete lane;
}

bool Using::take() {
  if (!model_.states.empty()) {
    const auto self = std::this_thread::get_id();
    if (model_.in_turn == self) {
      raise_error("UsageError", "a call of the model is made within a call of it, whose state it would change");
      return false;
    }
    {
      WithoutLock others;
      model_.turn.lock();
    }
    model_.in_turn = self;
    lane_ = model_.lanes.front();
    return true;
  }
  if (!model_.free_lanes.empty()) {
    const auto first = std::min_element(model_.free_lanes.begin(), model_.free_lanes.end(),
                                        [](const Lane* a, const Lane* b) { return a->index < b->index; });
    lane_ = *first;
    model_.free_lanes.erase(first);
    return true;
  }
  tessera_session* clone = nullptr;
  const char* error = nullptr;
  {
    tessera_session* first = model_.lanes.front()->session;
    WithoutLock others;
    error = tessera_clone(first, &clone);
  }
  if (error) {
    raise_last_error(error);
    return false;
  }
  auto lane = std::make_unique<Lane>();
  lane->session = clone;
  model_.lanes.reserve(model_.lanes.size() + 1);
  model_.free_lanes.reserve(model_.lanes.size() + 1); // of all lanes: giving one back must not fail
  lane->index = model_.lanes.size();
  lane_ = lane.release();
  model_.lanes.push_back(lane_);
  return true;
}

Using::~Using() {
  if (!lane_) return;
  for (Ref& r : lane_->held) r.reset();
  for (Ref& r : lane_->made) r.reset();
  lane_->scratch.clear();
  lane_->donated = nullptr;
  if (!model_.states.empty()) {
    model_.in_turn = std::thread::id();
    model_.turn.unlock();
    return;
  }
  model_.free_lanes.push_back(lane_);
}

// Sizes that the model fixes stand in the lane from its first call on.
void prepare(const Model& model, Lane& lane) {
  if (lane.prepared) return;
  lane.sizes.resize(model.size_count);
  lane.inputs.resize(model.inputs.size());
  lane.held.resize(model.inputs.size());
  lane.outputs.resize(model.outputs.size());
  lane.made.resize(model.outputs.size());
  lane.output_dims.resize(model.outputs.size());
  lane.output_tuples.resize(model.outputs.size());
  for (size_t i = 0; i < model.inputs.size(); ++i) {
    const Io& io = model.inputs[i];
    int64_t* dims = lane.sizes.data() + model.first_size[i];
    for (size_t d = 0; d < io.fixed.size(); ++d) dims[d] = io.fixed[d];
    lane.inputs[i] = {nullptr, io.dtype, static_cast<int32_t>(io.dims.size()), dims, nullptr};
  }
  lane.prepared = true;
}

namespace {

std::byte no_elements[64]; // NOLINT: its address is not const

// Output `o` of these sizes, as a tensor in lane.made.
bool make_output(Lane& lane, const Maker& maker, size_t o, int32_t dtype, int32_t rank, const int64_t* dims) {
  auto& known = lane.output_dims[o];
  PyObject* tuple = lane.output_tuples[o].get();
  if (!tuple || !std::equal(known.begin(), known.end(), dims, dims + rank)) {
    Ref fresh(PyTuple_New(rank));
    if (!fresh) return false;
    for (int32_t d = 0; d < rank; ++d) {
      PyObject* size = PyLong_FromLongLong(dims[d]);
      if (!size || PyTuple_SetItem(fresh.get(), d, size) != 0) return false;
    }
    known.assign(dims, dims + rank);
    lane.output_tuples[o] = std::move(fresh);
    tuple = lane.output_tuples[o].get();
  }
  void* data = nullptr;
  lane.made[o] = maker.make(o, dtype, tuple, known, data);
  if (!lane.made[o]) return false;
  if (!data) {
    if (std::find(known.begin(), known.end(), 0) == known.end()) {
      raise_error("RunError", "the tensor that was made for output " + std::to_string(o) +
                                  " has no memory; a tracer or a mode of PyTorch gives such tensors");
      return false;
    }
    data = no_elements; // the library takes null for a refusal
  }
  lane.outputs[o] = {nullptr, dtype, rank, known.data(), data};
  return true;
}

// The call of tessera_call_with() whose memory the library requests. It may do so on a thread of its own, whose Python
// error is kept for the caller.
struct CallMemory {
  Lane& lane;
  const Maker& maker;
  PyObject* make_scratch;
  Raised error;
  // Scratch memory that was made before the lock was released.
  void* ahead = nullptr;
  size_t ahead_bytes = 0;
  bool scratch_requested = false;
};

void* allocate(void* context, int32_t output, int32_t dtype, int32_t rank, const int64_t* dims) {
  CallMemory& memory = *static_cast<CallMemory*>(context);
  const auto o = static_cast<size_t>(output);
  Lane& lane = memory.lane;
  if (lane.made[o]) { // before the lock was released
    const auto& known = lane.output_dims[o];
    if (std::equal(known.begin(), known.end(), dims, dims + rank)) return lane.outputs[o].data;
  }
  PyGILState_STATE state = PyGILState_Ensure();
  const bool made = protect(false, [&] { return make_output(lane, memory.maker, o, dtype, rank, dims); });
  if (!made) memory.error.take();
  PyGILState_Release(state);
  return made ? lane.outputs[o].data : nullptr;
}

// Memory of so many bytes, which lane.scratch keeps; null with a Python error.
void* make_scratch(Lane& lane, PyObject* make, size_t bytes) {
  Ref number(PyLong_FromSize_t(bytes));
  Ref tensor(number ? PyObject_CallFunctionObjArgs(make, number.get(), nullptr) : nullptr);
  void* data = nullptr;
  if (!tensor || !address_of(tensor.get(), data)) return nullptr;
  if (!data)
    return raise_error("RunError", "the tensor that was made for scratch memory of " + std::to_string(bytes) +
                                       " bytes has no memory");
  lane.scratch.push_back(std::move(tensor));
  return data;
}

void* allocate_scratch(void* context, size_t bytes) {
  CallMemory& memory = *static_cast<CallMemory*>(context);
  if (!std::exchange(memory.scratch_requested, true)) memory.lane.scratch_bytes = bytes;
  if (bytes <= std::exchange(memory.ahead_bytes, 0)) return memory.ahead;
  PyGILState_STATE state = PyGILState_Ensure();
  void* data = protect<void*>(nullptr, [&] { return make_scratch(memory.lane, memory.make_scratch, bytes); });
  if (!data) memory.error.take();
  PyGILState_Release(state);
  return data;
}

// Sets inputs_overwritten of the Python error that is set.
void tell_overwritten() {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (value && PyObject_SetAttrString(value, "inputs_overwritten", Py_True) != 0) PyErr_Clear();
  PyErr_Restore(type, value, trace);
}

// In the memory of the session's device.
bool compute_there(const Model& model, Lane& lane, const Maker& maker, void* stream, PyObject* scratch) {
  // Outputs of a call whose sizes are the last one's are made at once, while the lock is held.
  const bool foreseen = lane.has_plan && lane.planned == lane.sizes;
  lane.has_plan = false;
  if (foreseen)
    for (size_t o = 0; o < lane.outputs.size(); ++o) {
      const auto dims = lane.output_dims[o];
      if (!make_output(lane, maker, o, model.outputs[o].dtype, static_cast<int32_t>(dims.size()), dims.data()))
        return false;
    }
  CallMemory memory{lane, maker, scratch, {}};
  if (scratch && foreseen && lane.scratch_bytes > 0) {
    memory.ahead = make_scratch(lane, scratch, lane.scratch_bytes);
    if (!memory.ahead) return false;
    memory.ahead_bytes = lane.scratch_bytes;
  }
  int32_t overwritten = 0;
  const tessera_call_options options{sizeof options, allocate,    scratch ? allocate_scratch : nullptr, &memory, stream,
                                     lane.donated,   &overwritten};
  const char* error = nullptr;
  {
    WithoutLock others;
    error = tessera_call_with(lane.session, lane.inputs.data(), static_cast<int32_t>(lane.inputs.size()), &options);
  }
  if (!memory.scratch_requested) lane.scratch_bytes = 0;
  if (memory.error.give_back()) return false;
  if (error) {
    raise_last_error(error);
    if (overwritten != 0) tell_overwritten();
    return false;
  }
  if (!foreseen) lane.planned = lane.sizes;
  lane.has_plan = model.sizes_known;
  return true;
}

// Host memory for a session on a GPU: the library copies.
bool compute_from_host(const Model& model, Lane& lane, const Maker& maker) {
  lane.has_plan = false;
  const tessera_tensor* outputs = nullptr;
  int32_t count = 0;
  const auto inputs = static_cast<int32_t>(lane.inputs.size());
  const char* error = nullptr;
  {
    WithoutLock others; // a variant may be compiled
    error = model.sizes_known ? tessera_output_sizes(lane.session, lane.inputs.data(), inputs, &outputs, &count)
                              : tessera_run_fresh(lane.session, lane.inputs.data(), inputs, &outputs, &count);
  }
  if (error) {
    raise_last_error(error);
    return false;
  }
  for (size_t o = 0; o < lane.outputs.size(); ++o) {
    if (!make_output(lane, maker, o, outputs[o].dtype, outputs[o].rank, outputs[o].dims)) return false;
    size_t bytes = element_bytes(outputs[o].dtype);
    for (int32_t d = 0; d < outputs[o].rank; ++d) bytes *= static_cast<size_t>(outputs[o].dims[d]);
    if (!model.sizes_known && bytes > 0) std::memcpy(lane.outputs[o].data, outputs[o].data, bytes);
  }
  if (!model.sizes_known) return true;
  {
    WithoutLock others;
    error = tessera_run(lane.session, lane.inputs.data(), inputs, lane.outputs.data(), count);
  }
  if (error) raise_last_error(error);
  return error == nullptr;
}

} // namespace

bool compute(const Model& model, Lane& lane, const Maker& maker, bool on_gpu, void* stream, PyObject* scratch) {
  for (size_t i = 0; i < lane.inputs.size(); ++i) {
    const tessera_tensor& t = lane.inputs[i];
    if (!t.data && std::find(t.dims, t.dims + t.rank, 0) == t.dims + t.rank) return no_memory(model.inputs[i]);
  }
  return on_gpu == model.on_gpu ? compute_there(model, lane, maker, stream, scratch)
                                : compute_from_host(model, lane, maker);
}

PyObject* outputs_of(Lane& lane) {
  Ref list(PyList_New(static_cast<Py_ssize_t>(lane.outputs.size())));
  if (!list) return nullptr;
  for (size_t o = 0; o < lane.outputs.size(); ++o) {
    if (!lane.made[o]) return raise_error("RunError", "output " + std::to_string(o) + " was not computed");
    if (PyList_SetItem(list.get(), static_cast<Py_ssize_t>(o), lane.made[o].release()) != 0) return nullptr;
  }
  return list.release();
}

bool address_of(PyObject* tensor, void*& address) {
  Ref number(PyObject_CallMethodObjArgs(tensor, names.data_ptr, nullptr));
  if (!number) return false;
  address = PyLong_AsVoidPtr(number.get());
  return address || !PyErr_Occurred();
}

void set_rank(const Model& model, Lane& lane, size_t i, size_t rank) {
  const Io& io = model.inputs[i];
  if (!io.any_rank) return;
  lane.inputs[i].rank = static_cast<int32_t>(rank);
  int64_t* dims = lane.sizes.data() + model.first_size[i];
  std::fill(dims + rank, dims + kMaxDims, -1);
}

bool take_shape(const Model& model, Lane& lane, size_t i, PyObject* tensor) {
  const Io& io = model.inputs[i];
  Ref shape(PyObject_GetAttr(tensor, names.shape));
  if (shape && !PyTuple_Check(shape.get())) shape.reset(PySequence_Tuple(shape.get()));
  if (!shape) return false;
  const auto rank = static_cast<size_t>(PyTuple_Size(shape.get()));
  int64_t* dims = lane.sizes.data() + model.first_size[i];
  std::vector<int64_t> given;
  for (size_t d = 0; d < rank; ++d) {
    const int64_t size = PyLong_AsLongLong(PyTuple_GetItem(shape.get(), static_cast<Py_ssize_t>(d)));
    if (size == -1 && PyErr_Occurred()) return false;
    if (io.takes_rank(rank)) {
      dims[d] = size;
    } else {
      given.push_back(size);
    }
  }
  if (!io.takes_rank(rank)) return wrong_rank(io, given.data(), given.size());
  set_rank(model, lane, i, rank);
  return true;
}

namespace {

class PythonMaker final : public Maker {
public:
  explicit PythonMaker(PyObject* make) : make_(make) {}
  Ref make(size_t output, int32_t, PyObject* sizes, const std::vector<int64_t>&, void*& data) const override {
    Ref number(PyLong_FromSize_t(output));
    if (!number) return Ref();
    Ref tensor(PyObject_CallFunctionObjArgs(make_, number.get(), sizes, nullptr));
    if (tensor && !address_of(tensor.get(), data)) return Ref();
    return tensor;
  }

private:
  PyObject* make_;
};

bool take_argument(const Model& model, Lane& lane, size_t i, PyObject* arg) {
  const Io& io = model.inputs[i];
  lane.held[i] = Ref::borrow(arg);
  if (PyLong_Check(arg)) {
    if (io.dims.size() != 1) {
      raise_error("InputTypeError", "input '" + io.name + "' is " + io.text() + "; an integer was given");
      return false;
    }
    int64_t& size = lane.sizes[model.first_size[i]];
    size = PyLong_AsLongLong(arg);
    lane.inputs[i].data = no_elements; // nothing reads them
    return size != -1 || !PyErr_Occurred();
  }
  return address_of(arg, lane.inputs[i].data) && (io.is_fixed() || take_shape(model, lane, i, arg));
}

} // namespace

PyObject* call(Model& model, PyObject* args, PyObject* make, PyObject* stream, PyObject* scratch, PyObject* donated) {
  Ref tuple = PyTuple_Check(args) ? Ref::borrow(args) : Ref(PySequence_Tuple(args));
  if (!tuple) return nullptr;
  const Py_ssize_t count = PyTuple_Size(tuple.get());
  if (static_cast<size_t>(count) != model.inputs.size())
    return raise_error("InputTypeError", "the model has " + counted(model.inputs.size(), "input") +
                                             ", and the number given is " + std::to_string(count));
  void* on = PyLong_AsVoidPtr(stream);
  if (!on && PyErr_Occurred()) return nullptr;
  char* flags = nullptr;
  Py_ssize_t flag_count = count;
  if (donated != Py_None && PyBytes_AsStringAndSize(donated, &flags, &flag_count) != 0) return nullptr;
  if (flag_count != count)
    return raise_error("InputTypeError", "donated has " + std::to_string(flag_count) + " bytes, the model has " +
                                             counted(model.inputs.size(), "input"));
  Using lane(model);
  if (!lane.take()) return nullptr;
  prepare(model, *lane);
  lane->donated = reinterpret_cast<const uint8_t*>(flags);
  for (size_t i = 0; i < model.inputs.size(); ++i)
    if (!take_argument(model, *lane, i, PyTuple_GetItem(tuple.get(), static_cast<Py_ssize_t>(i)))) return nullptr;
  if (!compute(model, *lane, PythonMaker(make), model.on_gpu, on, scratch == Py_None ? nullptr : scratch))
    return nullptr;
  return outputs_of(*lane);
}

} // namespace tessera::python
