// The type tessera._native.Session, and the functions that open one.
#include "api/metric_fields.h"
#include "api/operators.h"
#include "native.h"
#include "options.h"
#include "values.h"
#include <cstdlib>
#include <cstring>

namespace tessera::python {
namespace {

struct SessionObject {
  PyObject_HEAD Model* model;
};
PyTypeObject* session_type = nullptr;

Model& model_of(PyObject* self) { return *reinterpret_cast<SessionObject*>(self)->model; }

// Takes `session` over. `weights` lives as long as it does. `device`: as it was opened for.
PyObject* make_session(tessera_session* session, const char* device, Ref weights) {
  auto model = std::make_unique<Model>();
  model->lanes.reserve(1);
  auto lane = std::make_unique<Lane>();
  lane->session = session;
  model->weights = std::move(weights);
  model->free_lanes.push_back(lane.get());
  model->lanes.push_back(lane.release());
  const tessera_io* ios = nullptr;
  int32_t count = 0;
  if (const char* error = tessera_inputs(session, &ios, &count)) return raise_last_error(error);
  model->inputs = describe(ios, count);
  if (const char* error = tessera_outputs(session, &ios, &count)) return raise_last_error(error);
  model->outputs = describe(ios, count);
  if (const char* error = tessera_states(session, &ios, &count)) return raise_last_error(error);
  model->states = describe(ios, count);
  for (const Io& io : model->inputs) {
    model->first_size.push_back(model->size_count);
    model->size_count += io.most_dims();
  }
  model->on_gpu = std::string(tessera_device(session)) == "cuda";
  if (const char* number = std::strchr(device, ':')) model->gpu = std::atoi(number + 1); // the library has checked it
  model->sizes_known = tessera_sizes_known(session) != 0;
  model->input_dtypes.resize(model->inputs.size());
  model->torch_dtypes.resize(model->inputs.size());
  model->numpy_out.resize(model->outputs.size());
  model->torch_out.resize(model->outputs.size());
  auto* allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(session_type, Py_tp_alloc));
  PyObject* self = allocate(session_type, 0);
  if (self) reinterpret_cast<SessionObject*>(self)->model = model.release();
  return self;
}

void session_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  delete reinterpret_cast<SessionObject*>(self)->model;
  auto* release = reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free));
  release(self);
  Py_DECREF(type);
}

PyObject* tuple_of_all(const std::vector<Io>& ios) {
  Ref all(PyTuple_New(static_cast<Py_ssize_t>(ios.size())));
  if (!all) return nullptr;
  for (size_t i = 0; i < ios.size(); ++i) {
    PyObject* io = tuple_of(ios[i]);
    if (!io || PyTuple_SetItem(all.get(), static_cast<Py_ssize_t>(i), io) != 0) return nullptr;
  }
  return all.release();
}
PyObject* get_inputs(PyObject* self, void*) {
  return protect<PyObject*>(nullptr, [&] { return tuple_of_all(model_of(self).inputs); });
}
PyObject* get_outputs(PyObject* self, void*) {
  return protect<PyObject*>(nullptr, [&] { return tuple_of_all(model_of(self).outputs); });
}
PyObject* get_states(PyObject* self, void*) {
  return protect<PyObject*>(nullptr, [&] { return tuple_of_all(model_of(self).states); });
}
// The type of each input, then of each output, that is a list; None for any other.
PyObject* get_list_types(PyObject* self, void*) {
  return protect<PyObject*>(nullptr, [&]() -> PyObject* {
    const Model& model = model_of(self);
    Ref out(PyList_New(0));
    for (const bool output : {false, true})
      for (size_t i = 0; out && i < (output ? model.outputs : model.inputs).size(); ++i) {
        const char* type = tessera_list_type(model.lanes.front()->session, output ? 1 : 0, static_cast<int32_t>(i));
        Ref shown = type ? text(type) : Ref::borrow(Py_None);
        if (!shown || PyList_Append(out.get(), shown.get()) != 0) return nullptr;
      }
    return out.release();
  });
}
PyObject* get_kernels(PyObject* self, void*) {
  int32_t needed = 0, cached = 0;
  tessera_kernels(model_of(self).lanes.front()->session, &needed, &cached);
  return Py_BuildValue("(ii)", needed, cached);
}
PyObject* get_variants(PyObject* self, void*) {
  return PyLong_FromLong(tessera_variants(model_of(self).lanes.front()->session));
}
PyObject* get_device(PyObject* self, void*) { return PyUnicode_FromString(model_of(self).on_gpu ? "cuda" : "cpu"); }

PyObject* report(PyObject* self, PyObject*) {
  return protect<PyObject*>(nullptr, [&]() -> PyObject* {
    Using lane(model_of(self));
    if (!lane.take()) return nullptr;
    const char *json = nullptr, *error = nullptr;
    {
      WithoutLock others;
      error = tessera_report(lane->session, &json);
    }
    return error ? raise_last_error(error) : PyUnicode_FromString(json);
  });
}

// ---- a server's queries
bool put(PyObject* dict, const char* name, PyObject* owned) {
  Ref value(owned);
  return value && PyDict_SetItemString(dict, name, value.get()) == 0;
}

PyObject* metrics(PyObject* self, PyObject*) {
  return protect<PyObject*>(nullptr, [&]() -> PyObject* {
    tessera_metrics m{};
    m.struct_size = sizeof m;
    if (const char* error = tessera_get_metrics(model_of(self).lanes.front()->session, &m))
      return raise_last_error(error);
    Ref out(PyDict_New());
    if (!out) return nullptr;
    auto number = [&](auto member) -> PyObject* {
      if constexpr (std::is_same_v<decltype(member), double tessera_metrics::*>)
        return PyFloat_FromDouble(m.*member);
      else
        return PyLong_FromUnsignedLongLong(m.*member);
    };
    for (const MetricField& field : kMetricFields)
      if (!put(out.get(), field.name.data(), std::visit(number, field.member))) return nullptr;
    if (!put(out.get(), "latency_us", PyLong_FromUnsignedLongLong(m.latency_us))) return nullptr;
    Ref latency(PyList_New(0));
    for (const uint64_t calls : m.latency) {
      Ref count(PyLong_FromUnsignedLongLong(calls));
      if (!latency || !count || PyList_Append(latency.get(), count.get()) != 0) return nullptr;
    }
    return put(out.get(), "latency", latency.release()) ? out.release() : nullptr;
  });
}

PyObject* last_miss(PyObject* self, PyObject*) {
  return protect<PyObject*>(nullptr, [&]() -> PyObject* {
    Using lane(model_of(self));
    if (!lane.take()) return nullptr;
    const char* miss = nullptr;
    if (const char* error = tessera_last_miss(lane->session, &miss)) return raise_last_error(error);
    return miss ? text(miss).release() : Ref::borrow(Py_None).release();
  });
}

// metrics_text(labels)
PyObject* metrics_text(PyObject* self, PyObject* given) {
  return protect<PyObject*>(nullptr, [&]() -> PyObject* {
    Using lane(model_of(self));
    Ref labels(PyUnicode_AsUTF8String(given));
    if (!labels || !lane.take()) return nullptr;
    const char* metrics = nullptr;
    if (const char* error = tessera_metrics_text(lane->session, PyBytes_AsString(labels.get()), &metrics))
      return raise_last_error(error);
    return text(metrics).release();
  });
}

// warmup(shapes)
PyObject* warmup(PyObject* self, PyObject* shapes) {
  return protect<PyObject*>(nullptr, [&]() -> PyObject* {
    Model& model = model_of(self);
    Ref all(PySequence_Tuple(shapes));
    if (!all) return nullptr;
    if (static_cast<size_t>(PyTuple_Size(all.get())) != model.inputs.size())
      return raise_error("InputTypeError", "the model has " + counted(model.inputs.size(), "input") +
                                               ", and the number of shapes given is " +
                                               std::to_string(PyTuple_Size(all.get())));
    std::vector<std::vector<int64_t>> dims(model.inputs.size());
    std::vector<tessera_tensor> inputs;
    for (size_t i = 0; i < dims.size(); ++i) {
      Ref sizes(PySequence_Tuple(PyTuple_GetItem(all.get(), static_cast<Py_ssize_t>(i))));
      if (!sizes) return nullptr;
      for (Py_ssize_t d = 0; d < PyTuple_Size(sizes.get()); ++d) {
        dims[i].push_back(PyLong_AsLongLong(PyTuple_GetItem(sizes.get(), d)));
        if (dims[i].back() == -1 && PyErr_Occurred()) return nullptr;
      }
      inputs.push_back({nullptr, model.inputs[i].dtype, static_cast<int32_t>(dims[i].size()), dims[i].data(), nullptr});
    }
    Using lane(model);
    if (!lane.take()) return nullptr;
    const char* error = nullptr;
    {
      WithoutLock others;
      error = tessera_warmup(lane->session, inputs.data(), static_cast<int32_t>(inputs.size()));
    }
    return error ? raise_last_error(error) : Ref::borrow(Py_None).release();
  });
}

// warmup_ranges(ranges)
PyObject* warmup_ranges(PyObject* self, PyObject* ranges) {
  return protect<PyObject*>(nullptr, [&]() -> PyObject* {
    Ref utf8(PyUnicode_AsUTF8String(ranges));
    if (!utf8) return nullptr;
    const char* text = PyBytes_AsString(utf8.get());
    Using lane(model_of(self));
    if (!text || !lane.take()) return nullptr;
    const char* error = nullptr;
    {
      WithoutLock others;
      error = tessera_warmup_ranges(lane->session, text, nullptr, 0);
    }
    return error ? raise_last_error(error) : Ref::borrow(Py_None).release();
  });
}

// trim()
PyObject* trim(PyObject* self, PyObject*) {
  return protect<PyObject*>(nullptr, [&]() -> PyObject* {
    Using lane(model_of(self));
    if (!lane.take()) return nullptr;
    const char* error = nullptr;
    {
      WithoutLock others;
      error = tessera_trim(lane->session);
    }
    return error ? raise_last_error(error) : Ref::borrow(Py_None).release();
  });
}

// read_states(places), write_states(places): a list of (index, address, bytes). No call comes between them.
template <class Move>
PyObject* move_states(PyObject* self, PyObject* places, const Move& move) {
  struct Place {
    int index;
    void* data;
    size_t bytes;
  };
  return protect<PyObject*>(nullptr, [&]() -> PyObject* {
    Ref all(PySequence_Tuple(places));
    if (!all) return nullptr;
    std::vector<Place> found;
    for (Py_ssize_t i = 0; i < PyTuple_Size(all.get()); ++i) {
      int index = 0;
      PyObject* address = nullptr;
      Py_ssize_t bytes = 0;
      PyObject* place = PyTuple_GetItem(all.get(), i);
      if (!PyTuple_Check(place) || !PyArg_ParseTuple(place, "iOn", &index, &address, &bytes)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a place is a tuple (index, address, bytes)");
        return nullptr;
      }
      void* data = PyLong_AsVoidPtr(address);
      if (!data && PyErr_Occurred()) return nullptr;
      found.push_back({index, data, static_cast<size_t>(bytes)});
    }
    Using lane(model_of(self));
    if (!lane.take()) return nullptr;
    const char* error = nullptr;
    {
      WithoutLock others;
      for (const Place& p : found)
        if (!error) error = move(lane->session, p.index, p.data, p.bytes);
    }
    return error ? raise_last_error(error) : Ref::borrow(Py_None).release();
  });
}
PyObject* read_states(PyObject* self, PyObject* places) { return move_states(self, places, tessera_read_state); }
PyObject* write_states(PyObject* self, PyObject* places) { return move_states(self, places, tessera_write_state); }

// reset_states()
PyObject* reset_states(PyObject* self, PyObject*) {
  return protect<PyObject*>(nullptr, [&]() -> PyObject* {
    Using lane(model_of(self));
    if (!lane.take()) return nullptr;
    const char* error = nullptr;
    {
      WithoutLock others;
      error = tessera_reset_states(lane->session);
    }
    return error ? raise_last_error(error) : Ref::borrow(Py_None).release();
  });
}

// call(args, make, stream[, scratch[, donated]])
PyObject* session_call(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  if (count < 3 || count > 5) {
    PyErr_Format(PyExc_TypeError, "call() takes args, make, stream, scratch and donated; %zd arguments were given",
                 count);
    return nullptr;
  }
  return protect<PyObject*>(nullptr, [&] {
    return call(model_of(self), args[0], args[1], args[2], count > 3 ? args[3] : Py_None,
                count > 4 ? args[4] : Py_None);
  });
}
// run(args, stream[, recorded])
PyObject* session_run(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  if (count < 2 || count > 3 || !PyTuple_Check(args[0])) {
    PyErr_SetString(PyExc_TypeError,
                    "run() takes a tuple of arrays, a stream or None, and whether PyTorch has recorded the call");
    return nullptr;
  }
  return protect<PyObject*>(nullptr,
                            [&] { return run(model_of(self), args[0], args[1], count > 2 && args[2] == Py_True); });
}

// run_items(args)
PyObject* session_run_items(PyObject* self, PyObject* args) {
  return protect<PyObject*>(nullptr, [&] { return run_items(model_of(self), args); });
}

PyMethodDef methods[] = {
    {"run_items", session_run_items, METH_O,
     "run_items(args, /)\n--\n\n"
     "Runs the model on values of every kind: a tuple with one for each input, each of them a tuple\n"
     "(dtype, shape, address), (shape, list of bytes), or (kind, list of values). Returns a list of such values, with\n"
     "bytes where the address stands. tessera._items makes them. Raises tessera.Error."},
    {"run", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(session_run)), METH_FASTCALL,
     "run(args, stream, recorded=False, /)\n--\n\n"
     "Runs the model on arrays, one for each input: NumPy arrays, PyTorch tensors, or objects with __dlpack__.\n"
     "recorded: PyTorch's dispatcher makes this call. Else the result is None, and nothing was done, where it is to "
     "make "
     "it.\nReturns the list of outputs, of the first input's kind. Raises tessera.Error."},
    {"call", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(session_call)), METH_FASTCALL,
     "call(args, make, stream, scratch=None, donated=None, /)\n--\n\n"
     "Runs the model on tensors that lie where the session runs, of the dtypes and layout that it declares.\n\n"
     "args: a sequence, one entry for each input: an object with data_ptr() and shape, or an int, the size that an "
     "input\n"
     "of one dimension stands for. Sizes that the model fixes are not looked at.\n"
     "make(output, sizes): a tensor with data_ptr() for that output, sizes being a tuple of int.\n"
     "stream: of the GPU, as an int; 0 is the default stream. Not looked at on the host.\n"
     "scratch(bytes): a tensor with data_ptr() aligned to 256, of the GPU's memory, for what lies between; it is "
     "dropped "
     "when\n"
     "the call returns. None: the library's own.\n"
     "donated: bytes, one for each input: not 0 where the caller does not need its contents any more, so that what "
     "lies "
     "between\n"
     "may lie in its memory, which overlaps no other input, or in that of outputs. An error that is raised when "
     "such\n"
     "memory has been written has a true attribute inputs_overwritten.\n"
     "Returns the list of what make returned. Other threads run meanwhile. Raises tessera.Error."},
    {"metrics", metrics, METH_NOARGS, "metrics()\n--\n\nThe fields of tessera_metrics (api/c.h), as a dict."},
    {"metrics_text", metrics_text, METH_O, "metrics_text(labels)\n--\n\nThe text of tessera_metrics_text()."},
    {"last_miss", last_miss, METH_NOARGS, "last_miss()\n--\n\nThe text of tessera_last_miss(), or None."},
    {"trim", trim, METH_NOARGS,
     "trim()\n--\n\n"
     "Gives back the memory that earlier calls have left behind. Raises tessera.Error."},
    {"warmup", warmup, METH_O,
     "warmup(shapes, /)\n--\n\n"
     "Makes ready for calls of these sizes, one sequence of int for each input. Raises tessera.Error."},
    {"warmup_ranges", warmup_ranges, METH_O,
     "warmup_ranges(ranges, /)\n--\n\n"
     "Makes ready for calls of sizes in ranges: \"batch=1..8..32,seq=1..512\". Raises tessera.Error."},
    {"read_states", read_states, METH_O,
     "read_states(places, /)\n--\n\n"
     "Values of states to host memory; places: of each (index, address, bytes). Raises tessera.Error."},
    {"write_states", write_states, METH_O,
     "write_states(places, /)\n--\n\nOther values of states from such places. Raises tessera.Error."},
    {"reset_states", reset_states, METH_NOARGS,
     "reset_states()\n--\n\nAll states to the model's values. Raises tessera.Error."},
    {"report", report, METH_NOARGS,
     "report()\n--\n\nWhat `tessera explain --format json` shows, as text. Raises tessera.Error."},
    {nullptr, nullptr, 0, nullptr}};
PyGetSetDef attributes[] = {{"inputs", get_inputs, nullptr,
                             "(name, number of onnx.TensorProto.DataType, dimensions: int or str) of each", nullptr},
                            {"outputs", get_outputs, nullptr, "the same of the outputs", nullptr},
                            {"states", get_states, nullptr, "the same of what calls keep and change", nullptr},
                            {"list_types", get_list_types, nullptr,
                             "of each input, then each output: \"sequence f32[?, 4]\" and the like; None of a tensor",
                             nullptr},
                            {"kernels", get_kernels, nullptr,
                             "(kernels that opening needed, those of them that were in the cache folder)", nullptr},
                            {"variants", get_variants, nullptr,
                             "how many variants were compiled; each call whose sizes fit none adds one", nullptr},
                            {"device", get_device, nullptr, "\"cpu\" or \"cuda\"", nullptr},
                            {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(session_dealloc)},
                       {Py_tp_methods, methods},
                       {Py_tp_getset, attributes},
                       {Py_tp_doc, const_cast<char*>("A compiled model. Several threads may use it at the same time.")},
                       {0, nullptr}};
PyType_Spec spec = {"tessera._native.Session", sizeof(SessionObject), 0, Py_TPFLAGS_DEFAULT | (1UL << 7), slots};

// ---- opening

// Open: (const tessera_options*, tessera_session**) -> const char*
template <class Open>
PyObject* open_with(PyObject* given, Ref weights, const Open& open) {
  stable::Options options;
  if (!take_options(given, options)) return nullptr;
  tessera_session* session = nullptr;
  const char* error = nullptr;
  const tessera_options c = options.c();
  {
    WithoutLock others;
    error = open(&c, &session);
  }
  return error ? raise_last_error(error) : make_session(session, options.device.c_str(), std::move(weights));
}

PyObject* open_model(PyObject*, PyObject* args) {
  PyObject *path = nullptr, *options = nullptr;
  if (!PyArg_ParseTuple(args, "O&O!:open", PyUnicode_FSConverter, &path, &PyDict_Type, &options)) return nullptr;
  Ref bytes(path);
  return protect<PyObject*>(nullptr, [&]() -> PyObject* {
    const char* file = PyBytes_AsString(bytes.get());
    if (!file) return nullptr;
    return open_with(options, Ref(),
                     [&](const tessera_options* o, tessera_session** s) { return tessera_open_with(file, o, s); });
  });
}

// A program as C sees it, and what that points to.
struct Program {
  std::vector<std::string> names;
  std::vector<std::vector<int64_t>> dims;
  std::vector<tessera_tensor> weights;
  tessera_program c{};

  // `given`: dict of name -> (dtype, shape, address, owner), or None.
  bool take(const char* name, PyObject* json, PyObject* given, bool strided) {
    char* text = nullptr;
    Py_ssize_t bytes = 0;
    if (PyBytes_AsStringAndSize(json, &text, &bytes) != 0) return false;
    if (given && given != Py_None) {
      if (!PyDict_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "weights must be a dict of name to (dtype, shape, address, owner)");
        return false;
      }
      Py_ssize_t at = 0;
      PyObject *key = nullptr, *value = nullptr;
      while (PyDict_Next(given, &at, &key, &value)) {
        int dtype = 0;
        PyObject *shape = nullptr, *address = nullptr, *owner = nullptr;
        Ref utf8(PyUnicode_AsUTF8String(key));
        if (!utf8) return false;
        if (!PyTuple_Check(value) || !PyArg_ParseTuple(value, "iOOO", &dtype, &shape, &address, &owner)) {
          if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a weight is a tuple (dtype, shape, address, owner)");
          return false;
        }
        Ref sizes(PySequence_Tuple(shape));
        if (!sizes) return false;
        auto& into = dims.emplace_back();
        for (Py_ssize_t d = 0; d < PyTuple_Size(sizes.get()); ++d) {
          into.push_back(PyLong_AsLongLong(PyTuple_GetItem(sizes.get(), d)));
          if (into.back() == -1 && PyErr_Occurred()) return false;
        }
        void* data = PyLong_AsVoidPtr(address);
        if (!data && PyErr_Occurred()) return false;
        names.emplace_back(PyBytes_AsString(utf8.get()));
        weights.push_back({nullptr, dtype, static_cast<int32_t>(into.size()), nullptr, data});
      }
      for (size_t i = 0; i < weights.size(); ++i) { // once they stay where they are
        weights[i].name = names[i].c_str();
        weights[i].dims = dims[i].data();
      }
    }
    c = {sizeof c,       name, text, static_cast<size_t>(bytes), weights.data(), static_cast<int32_t>(weights.size()),
         strided ? 1 : 0};
    return true;
  }
};

PyObject* open_program(PyObject*, PyObject* args) {
  const char* name = nullptr;
  PyObject *json = nullptr, *weights = nullptr, *options = nullptr;
  int strided = 0;
  if (!PyArg_ParseTuple(args, "zOOpO!:open_program", &name, &json, &weights, &strided, &PyDict_Type, &options))
    return nullptr;
  return protect<PyObject*>(nullptr, [&]() -> PyObject* {
    Program program;
    if (!program.take(name, json, weights, strided != 0)) return nullptr;
    Ref held(weights != Py_None ? PyDict_Copy(weights) : nullptr);
    if (PyErr_Occurred()) return nullptr;
    return open_with(options, std::move(held), [&](const tessera_options* o, tessera_session** s) {
      return tessera_open_program(&program.c, o, s);
    });
  });
}

PyObject* load_operators(PyObject*, PyObject* args, PyObject* keywords) {
  static const char* names_of[] = {"path", nullptr};
  PyObject* path = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "O&:load_operators", const_cast<char**>(names_of),
                                   PyUnicode_FSConverter, &path))
    return nullptr;
  Ref bytes(path);
  const char* file = PyBytes_AsString(bytes.get());
  if (!file) return nullptr;
  const char* error = nullptr;
  {
    WithoutLock others;
    error = tessera_load_operators(file);
  }
  if (error) return raise_last_error(error);
  Py_RETURN_NONE;
}

PyObject* survey_program(PyObject*, PyObject* args, PyObject* keywords) {
  static const char* names_of[] = {"json", "weights", "strided", nullptr};
  PyObject *json = nullptr, *weights = nullptr;
  int strided = 0;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|Op:survey_program", const_cast<char**>(names_of), &json, &weights,
                                   &strided))
    return nullptr;
  return protect<PyObject*>(nullptr, [&]() -> PyObject* {
    Program program;
    if (!program.take(nullptr, json, weights, strided != 0)) return nullptr;
    const char *refusals = nullptr, *error = nullptr;
    {
      WithoutLock others;
      error = tessera_survey_program(&program.c, &refusals);
    }
    return error ? raise_last_error(error) : PyUnicode_FromString(refusals);
  });
}

PyObject* known_sizes(PyObject*, PyObject*) {
  return protect<PyObject*>(nullptr, [&]() -> PyObject* {
    const char* sizes = nullptr;
    const char* error = tessera_known_sizes(&sizes);
    return error ? raise_last_error(error) : PyUnicode_FromString(sizes);
  });
}

PyMethodDef functions[] = {
    {"open", open_model, METH_VARARGS,
     "open(path, options, /)\n--\n\n"
     "A Session of a model file. options: of the table, by name; None is the default. Raises tessera.Error."},
    {"open_program", open_program, METH_VARARGS,
     "open_program(name, json, weights, strided, options, /)\n--\n\n"
     "A Session of a program in the JSON of torch.export (bytes).\n\n"
     "weights: None, or name -> (number of onnx.TensorProto.DataType, shape, address in host memory, owner of that "
     "memory).\n"
     "The dict's values live as long as the session. options: as of open(). Raises tessera.Error."},
    {"options", option_table, METH_NOARGS,
     "options()\n--\n\n"
     "The table of options: of each (name, kind, values, default, help, why torch.compile does not take it)."},
    {"survey_program", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(survey_program)),
     METH_VARARGS | METH_KEYWORDS,
     "survey_program(json, weights=None, strided=False)\n--\n\n"
     "What of a program is not taken, as JSON: a list of {node, target, output, reason}. Raises tessera.Error."},
    {"known_sizes", known_sizes, METH_NOARGS,
     "known_sizes()\n--\n\n"
     "Dimensions that ATen operators' fast code on a GPU has as constants, as JSON: a list of {argument, dim, "
     "differs_from} "
     "by name of the operator. Raises tessera.Error."},
    {"load_operators", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(load_operators)),
     METH_VARARGS | METH_KEYWORDS,
     "load_operators(path)\n--\n\n"
     "Registers the operators of a shared library for this process (api/operators.h). Raises tessera.Error."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "tessera._native",
                          "Tessera's C interface for this package's modules.",
                          -1,
                          functions,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

} // namespace
} // namespace tessera::python

PyMODINIT_FUNC PyInit__native() {
  using namespace tessera::python;
  if (!intern_names()) return nullptr;
  Ref module(PyModule_Create(&definition));
  if (!module) return nullptr;
  Ref type(PyType_FromSpec(&spec));
  if (!type) return nullptr;
  session_type = reinterpret_cast<PyTypeObject*>(type.get());
  if (PyModule_AddObject(module.get(), "Session", type.get()) != 0) return nullptr;
  Py_INCREF(type.get()); // session_type
  (void)type.release();
  if (!add_tensor_type(module.get()) || !add_kernel_type(module.get())) return nullptr;
  return module.release();
}
