// A call whose arguments are known to fit: tensors that have data_ptr() and shape, and sizes as integers.
#include "native.h"
#include <cstring>

namespace tessera::python {

Model::~Model() {
  for (Lane* lane : lanes) delete lane;
}

bool Using::take() {
  if (!model_.free_lanes.empty()) {
    lane_ = model_.free_lanes.back();
    model_.free_lanes.pop_back();
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
  model_.lanes.reserve(model_.lanes.size() + 1);
  model_.free_lanes.reserve(model_.lanes.size() + 1); // giving a lane back must not fail
  lane_ = new Lane;
  lane_->session = clone;
  model_.lanes.push_back(lane_);
  return true;
}

Using::~Using() {
  if (!lane_) return;
  for (Ref& r : lane_->held) r.reset();
  for (Ref& r : lane_->made) r.reset();
  model_.free_lanes.push_back(lane_);
}

// The arrays of a call, and where dimensions go. Sizes that the model fixes stand there from the beginning.
static void prepare(const Model& model, Lane& lane) {
  if (lane.sizes.size() == model.size_count && lane.inputs.size() == model.inputs.size()) return;
  lane.sizes.resize(model.size_count);
  lane.inputs.resize(model.inputs.size());
  lane.held.resize(model.inputs.size());
  lane.made.resize(model.outputs.size());
  for (size_t i = 0; i < model.inputs.size(); ++i) {
    const Io& io = model.inputs[i];
    int64_t* dims = lane.sizes.data() + model.first_size[i];
    for (size_t d = 0; d < io.fixed.size(); ++d) dims[d] = io.fixed[d];
    lane.inputs[i] = {nullptr, io.dtype, static_cast<int32_t>(io.dims.size()), dims, nullptr};
  }
}

bool plan_outputs(const Model& model, Lane& lane) {
  if (lane.has_plan && lane.planned == lane.sizes) return true;
  lane.has_plan = false;
  const tessera_tensor* outputs = nullptr;
  int32_t count = 0;
  const char* error = nullptr;
  {
    WithoutLock others; // a variant may be compiled
    const auto inputs = static_cast<int32_t>(lane.inputs.size());
    error = model.sizes_known ? tessera_output_sizes(lane.session, lane.inputs.data(), inputs, &outputs, &count)
                              : tessera_run_fresh(lane.session, lane.inputs.data(), inputs, &outputs, &count);
  }
  if (error) {
    raise_last_error(error);
    return false;
  }
  lane.output_sizes.clear();
  lane.output_tuples.clear();
  for (int32_t o = 0; o < count; ++o) {
    Ref tuple(PyTuple_New(outputs[o].rank));
    if (!tuple) return false;
    for (int32_t d = 0; d < outputs[o].rank; ++d) {
      PyObject* size = PyLong_FromLongLong(outputs[o].dims[d]);
      if (!size || PyTuple_SetItem(tuple.get(), d, size) != 0) return false;
    }
    lane.output_sizes.insert(lane.output_sizes.end(), outputs[o].dims, outputs[o].dims + outputs[o].rank);
    lane.output_tuples.push_back(std::move(tuple));
  }
  lane.outputs.assign(outputs, outputs + count);
  const int64_t* dims = lane.output_sizes.data();
  for (tessera_tensor& t : lane.outputs) {
    t.name = nullptr;
    t.dims = dims;
    dims += t.rank;
  }
  lane.planned = lane.sizes;
  lane.has_plan = model.sizes_known;
  lane.results.clear();
  if (!model.sizes_known) {
    for (int32_t o = 0; o < count; ++o) lane.results.push_back(outputs[o].data);
  }
  return true;
}

bool execute(const Model& model, Lane& lane, bool on_device, void* stream) {
  if (!model.sizes_known) {
    for (size_t o = 0; o < lane.outputs.size(); ++o) {
      size_t elements = 1;
      for (int32_t d = 0; d < lane.outputs[o].rank; ++d) elements *= static_cast<size_t>(lane.outputs[o].dims[d]);
      const size_t bytes = elements * element_bytes(lane.outputs[o].dtype);
      if (bytes) std::memcpy(lane.outputs[o].data, lane.results[o], bytes);
    }
    return true;
  }
  const char* error = nullptr;
  {
    WithoutLock others;
    const auto inputs = static_cast<int32_t>(lane.inputs.size()), outputs = static_cast<int32_t>(lane.outputs.size());
    error = on_device
                ? tessera_run_on_device(lane.session, lane.inputs.data(), inputs, lane.outputs.data(), outputs, stream)
                : tessera_run(lane.session, lane.inputs.data(), inputs, lane.outputs.data(), outputs);
  }
  if (error) raise_last_error(error);
  return error == nullptr;
}

namespace {

// The address that tensor.data_ptr() says.
bool address_of(PyObject* tensor, void*& address) {
  Ref number(PyObject_CallMethodObjArgs(tensor, names.data_ptr, nullptr));
  if (!number) return false;
  address = PyLong_AsVoidPtr(number.get());
  return address != nullptr || !PyErr_Occurred();
}

// A size is passed by the dimension of an input whose elements nothing reads.
std::byte never_read[16]; // NOLINT: its address is not const

bool take_argument(const Model& model, Lane& lane, size_t i, PyObject* arg) {
  const Io& io = model.inputs[i];
  int64_t* dims = lane.sizes.data() + model.first_size[i];
  lane.held[i] = Ref::borrow(arg);
  if (PyLong_Check(arg)) {
    if (io.dims.size() != 1)
      return raise_error("InputTypeError",
                         "input '" + io.name + "' is a tensor, " + io.text() + "; an integer was given") != nullptr;
    dims[0] = PyLong_AsLongLong(arg);
    lane.inputs[i].data = never_read;
    return dims[0] != -1 || !PyErr_Occurred();
  }
  if (!address_of(arg, lane.inputs[i].data)) return false;
  if (io.is_fixed()) return true;
  Ref shape(PyObject_GetAttr(arg, names.shape));
  if (!shape) return false;
  if (!PyTuple_Check(shape.get())) shape.reset(PySequence_Tuple(shape.get()));
  if (!shape) return false;
  if (static_cast<size_t>(PyTuple_Size(shape.get())) != io.dims.size())
    return raise_error("InputError", "input '" + io.name + "' has " + std::to_string(PyTuple_Size(shape.get())) +
                                         " dimensions; the model declares " + io.text()) != nullptr;
  for (size_t d = 0; d < io.dims.size(); ++d) {
    dims[d] = PyLong_AsLongLong(PyTuple_GetItem(shape.get(), static_cast<Py_ssize_t>(d)));
    if (dims[d] == -1 && PyErr_Occurred()) return false;
  }
  return true;
}

// Tensors that make(output, sizes) makes, with what was computed already. `data`: of the outputs.
bool make_outputs(Lane& lane, PyObject* make) {
  for (size_t o = 0; o < lane.outputs.size(); ++o) {
    Ref number(PyLong_FromSize_t(o));
    if (!number) return false;
    lane.made[o].reset(PyObject_CallFunctionObjArgs(make, number.get(), lane.output_tuples[o].get(), nullptr));
    if (!lane.made[o] || !address_of(lane.made[o].get(), lane.outputs[o].data)) return false;
  }
  return true;
}

} // namespace

PyObject* call(Model& model, PyObject* args, PyObject* make, PyObject* stream) {
  Ref tuple = PyTuple_Check(args) ? Ref::borrow(args) : Ref(PySequence_Tuple(args));
  if (!tuple) return nullptr;
  const Py_ssize_t count = PyTuple_Size(tuple.get());
  if (static_cast<size_t>(count) != model.inputs.size())
    return raise_error("InputTypeError", "the model has " + std::to_string(model.inputs.size()) + " inputs; " +
                                             std::to_string(count) + " were given");
  void* on = PyLong_AsVoidPtr(stream);
  if (!on && PyErr_Occurred()) return nullptr;
  Using lane(model);
  if (!lane.take()) return nullptr;
  prepare(model, *lane);
  for (size_t i = 0; i < model.inputs.size(); ++i)
    if (!take_argument(model, *lane, i, PyTuple_GetItem(tuple.get(), static_cast<Py_ssize_t>(i)))) return nullptr;
  if (!plan_outputs(model, *lane) || !make_outputs(*lane, make) || !execute(model, *lane, model.on_gpu, on))
    return nullptr;
  Ref list(PyList_New(static_cast<Py_ssize_t>(lane->outputs.size())));
  if (!list) return nullptr;
  for (size_t o = 0; o < lane->outputs.size(); ++o)
    if (PyList_SetItem(list.get(), static_cast<Py_ssize_t>(o), lane->made[o].release()) != 0) return nullptr;
  return list.release();
}

} // namespace tessera::python
