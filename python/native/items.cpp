// Session.run_items(): values of every kind, as tuples that tessera._items makes of arrays, lists, dicts and None.
//
//   (dtype, shape, address)   a tensor of numbers; of an output, bytes instead of the address
//   (shape, list of bytes)    one of strings
//   (kind, list of values)    a tessera_item_kind that is no tensor
#include "native.h"
#include <deque>

namespace tessera::python {
namespace {

// Values as C sees them, and what they point to.
class Items {
public:
  // False: a Python error.
  bool take(PyObject* value, tessera_item& out) {
    out.struct_size = sizeof out;
    const Py_ssize_t parts = PyTuple_Check(value) ? PyTuple_Size(value) : 0;
    if (parts == 3) return take_numbers(value, out);
    if (parts == 2) return PyTuple_Check(PyTuple_GetItem(value, 0)) ? take_strings(value, out) : take_list(value, out);
    PyErr_SetString(PyExc_TypeError, "a value is a tuple of two or three");
    return false;
  }

private:
  bool take_shape(PyObject* shape, tessera_tensor& out) {
    if (!PyTuple_Check(shape)) {
      PyErr_SetString(PyExc_TypeError, "a shape is a tuple");
      return false;
    }
    auto& dims = dims_.emplace_back();
    for (Py_ssize_t d = 0; d < PyTuple_Size(shape); ++d) {
      dims.push_back(PyLong_AsLongLong(PyTuple_GetItem(shape, d)));
      if (dims.back() == -1 && PyErr_Occurred()) return false;
    }
    out.rank = static_cast<int32_t>(dims.size());
    out.dims = dims.data();
    return true;
  }
  bool take_numbers(PyObject* value, tessera_item& out) {
    out.tensor.dtype = static_cast<int32_t>(PyLong_AsLong(PyTuple_GetItem(value, 0)));
    if (PyErr_Occurred() || !take_shape(PyTuple_GetItem(value, 1), out.tensor)) return false;
    out.tensor.data = PyLong_AsVoidPtr(PyTuple_GetItem(value, 2));
    return out.tensor.data != nullptr || !PyErr_Occurred();
  }
  bool take_strings(PyObject* value, tessera_item& out) {
    constexpr int32_t kString = 8;
    out.tensor.dtype = kString;
    if (!take_shape(PyTuple_GetItem(value, 0), out.tensor)) return false;
    PyObject* list = PyTuple_GetItem(value, 1);
    auto& texts = texts_.emplace_back();
    auto& lengths = lengths_.emplace_back();
    int64_t count = 1;
    for (int32_t d = 0; d < out.tensor.rank; ++d) count *= out.tensor.dims[d];
    if (!PyList_Check(list) || PyList_Size(list) != count) {
      PyErr_SetString(PyExc_TypeError, "strings are a list of as many bytes as the shape has elements");
      return false;
    }
    for (Py_ssize_t i = 0; i < PyList_Size(list); ++i) {
      char* text = nullptr;
      Py_ssize_t bytes = 0;
      if (PyBytes_AsStringAndSize(PyList_GetItem(list, i), &text, &bytes) != 0) return false;
      texts.push_back(text);
      lengths.push_back(static_cast<size_t>(bytes));
    }
    out.strings = texts.data();
    out.string_bytes = lengths.data();
    return true;
  }
  bool take_list(PyObject* value, tessera_item& out) {
    out.kind = static_cast<int32_t>(PyLong_AsLong(PyTuple_GetItem(value, 0)));
    PyObject* list = PyTuple_GetItem(value, 1);
    if (PyErr_Occurred()) return false;
    if (!PyList_Check(list)) {
      PyErr_SetString(PyExc_TypeError, "the values of a list are a list");
      return false;
    }
    std::vector<tessera_item> items(static_cast<size_t>(PyList_Size(list)));
    if (Py_EnterRecursiveCall(" in values of a model") != 0) return false;
    bool taken = true;
    for (size_t i = 0; taken && i < items.size(); ++i)
      taken = take(PyList_GetItem(list, static_cast<Py_ssize_t>(i)), items[i]);
    Py_LeaveRecursiveCall();
    out.item_count = static_cast<int32_t>(items.size());
    out.items = items_.emplace_back(std::move(items)).data();
    return taken;
  }

  std::deque<std::vector<int64_t>> dims_;
  std::deque<std::vector<const char*>> texts_;
  std::deque<std::vector<size_t>> lengths_;
  std::deque<std::vector<tessera_item>> items_;
};

Ref shown(const tessera_item& item) {
  if (item.kind != TESSERA_TENSOR) {
    Ref list(PyList_New(0));
    for (int32_t i = 0; list && i < item.item_count; ++i) {
      Ref value = shown(item.items[i]);
      if (!value || PyList_Append(list.get(), value.get()) != 0) return Ref();
    }
    return list ? Ref(Py_BuildValue("(iO)", static_cast<int>(item.kind), list.get())) : Ref();
  }
  const tessera_tensor& t = item.tensor;
  Ref shape(PyTuple_New(t.rank));
  int64_t count = 1;
  for (int32_t d = 0; shape && d < t.rank; ++d) {
    count *= t.dims[d];
    PyObject* size = PyLong_FromLongLong(t.dims[d]);
    if (!size || PyTuple_SetItem(shape.get(), d, size) != 0) return Ref();
  }
  if (!shape) return Ref();
  if (item.strings || t.dtype == 8) {
    Ref list(PyList_New(0));
    for (int64_t i = 0; list && i < count; ++i) {
      Ref text(PyBytes_FromStringAndSize(item.strings[i], static_cast<Py_ssize_t>(item.string_bytes[i])));
      if (!text || PyList_Append(list.get(), text.get()) != 0) return Ref();
    }
    return list ? Ref(Py_BuildValue("(OO)", shape.get(), list.get())) : Ref();
  }
  // Types of four and two bits are packed: as many bytes as hold them.
  const size_t whole = element_bytes(t.dtype), bits = whole ? whole * 8 : t.dtype >= 25 ? 2 : 4;
  const size_t bytes = (static_cast<size_t>(count) * bits + 7) / 8;
  Ref data(PyBytes_FromStringAndSize(bytes ? static_cast<const char*>(t.data) : "", static_cast<Py_ssize_t>(bytes)));
  return data ? Ref(Py_BuildValue("(iOO)", static_cast<int>(t.dtype), shape.get(), data.get())) : Ref();
}

} // namespace

PyObject* run_items(Model& model, PyObject* args) {
  if (!PyTuple_Check(args)) {
    PyErr_SetString(PyExc_TypeError, "run_items() takes a tuple of values");
    return nullptr;
  }
  Using lane(model);
  if (!lane.take()) return nullptr;
  Items items;
  std::vector<tessera_item> inputs(static_cast<size_t>(PyTuple_Size(args)));
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!items.take(PyTuple_GetItem(args, static_cast<Py_ssize_t>(i)), inputs[i])) return nullptr;
  const tessera_item* outputs = nullptr;
  int32_t count = 0;
  const char* error = nullptr;
  {
    WithoutLock others;
    error = tessera_run_items(lane->session, inputs.data(), static_cast<int32_t>(inputs.size()), &outputs, &count);
  }
  if (error) return raise_last_error(error);
  Ref all(PyList_New(0));
  for (int32_t i = 0; all && i < count; ++i) {
    Ref value = shown(outputs[i]);
    if (!value || PyList_Append(all.get(), value.get()) != 0) return nullptr;
  }
  return all.release();
}

} // namespace tessera::python
