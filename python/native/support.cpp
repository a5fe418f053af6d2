// Errors, names and descriptions.
#include "native.h"
#include <charconv>
#include <iterator>

namespace tessera::python {

Names names{};

bool intern_names() {
  const std::pair<PyObject**, const char*> all[] = {{&names.data_ptr, "data_ptr"},
                                                    {&names.shape, "shape"},
                                                    {&names.dtype, "dtype"},
                                                    {&names.array_struct, "__array_struct__"},
                                                    {&names.dlpack, "__dlpack__"},
                                                    {&names.dlpack_device, "__dlpack_device__"},
                                                    {&names.is_contiguous, "is_contiguous"},
                                                    {&names.contiguous, "contiguous"},
                                                    {&names.is_cpu, "is_cpu"},
                                                    {&names.is_cuda, "is_cuda"},
                                                    {&names.is_neg, "is_neg"},
                                                    {&names.get_device, "get_device"}};
  for (auto [to, text] : all) {
    if (*to) continue;
    *to = PyUnicode_InternFromString(text);
    if (!*to) return false;
  }
  return true;
}

namespace {
Ref function_of(const char* module, const char* name) {
  Ref m(PyImport_ImportModule(module));
  return m ? Ref(PyObject_GetAttrString(m.get(), name)) : Ref();
}
} // namespace

Ref text(const char* s) {
  return Ref(PyUnicode_DecodeUTF8(s, static_cast<Py_ssize_t>(std::char_traits<char>::length(s)), "backslashreplace"));
}

// The limited API of 3.10 lacks the functions that replace these.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
void Raised::take() {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  type_.reset(type);
  value_.reset(value);
  trace_.reset(trace);
}
bool Raised::give_back() {
  if (!type_) return false;
  PyErr_Restore(type_.release(), value_.release(), trace_.release());
  return true;
}
#pragma GCC diagnostic pop

PyObject* raise_last_error(const char* shown) {
  const tessera_error* e = tessera_last_error();
  if (!e) {
    PyErr_SetString(PyExc_MemoryError, shown);
    return nullptr;
  }
  Ref notes(PyTuple_New(e->note_count));
  if (!notes) return nullptr;
  for (int32_t i = 0; i < e->note_count; ++i) {
    PyObject* note = text(e->notes[i]).release();
    if (!note || PyTuple_SetItem(notes.get(), i, note) != 0) return nullptr;
  }
  Ref code = text(e->code), name = text(e->name), location = text(e->location), message = text(e->message);
  Ref output = text(e->output);
  Ref make = function_of("tessera._errors", "make_error");
  if (!code || !name || !location || !message || !output || !make) return nullptr;
  Ref error(PyObject_CallFunctionObjArgs(make.get(), code.get(), name.get(), location.get(), message.get(), notes.get(),
                                         output.get(), nullptr));
  if (error) PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.get())), error.get());
  return nullptr;
}

PyObject* raise_error(const char* kind, const std::string& message) {
  Ref type = function_of("tessera._errors", kind);
  Ref what = text(message.c_str());
  if (type && what) PyErr_SetObject(type.get(), what.get());
  return nullptr;
}

bool take_pair(PyObject* pair, const std::string& what, int& first, int& second) {
  if (PyTuple_Check(pair) && PyTuple_Size(pair) == 2) {
    if (PyArg_ParseTuple(pair, "ii", &first, &second)) return true;
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) return false; // an integer out of range, or an error of the caller's
    PyErr_Clear();
  }
  Ref shown(PyObject_Repr(pair));
  Ref utf8(shown ? PyUnicode_AsUTF8String(shown.get()) : nullptr);
  const char* seen = utf8 ? PyBytes_AsString(utf8.get()) : nullptr;
  if (!seen) return false;
  raise_error("InputTypeError", what + " " + seen + "; a tuple of two integers is expected");
  return false;
}

bool Io::is_fixed() const {
  if (any_rank) return false;
  for (int64_t d : fixed)
    if (d < 0) return false;
  return true;
}

namespace {
struct TypeRow {
  const char* name;
  size_t bytes;
};
// By number of onnx.TensorProto.DataType.
constexpr TypeRow kTypes[] = {{"undefined", 0},
                              {"float32", 4},
                              {"uint8", 1},
                              {"int8", 1},
                              {"uint16", 2},
                              {"int16", 2},
                              {"int32", 4},
                              {"int64", 8},
                              {"string", 0},
                              {"bool", 1},
                              {"float16", 2},
                              {"float64", 8},
                              {"uint32", 4},
                              {"uint64", 8},
                              {"complex64", 8},
                              {"complex128", 16},
                              {"bfloat16", 2},
                              {"float8_e4m3fn", 1},
                              {"float8_e4m3fnuz", 1},
                              {"float8_e5m2", 1},
                              {"float8_e5m2fnuz", 1},
                              {"uint4", 0},
                              {"int4", 0},
                              {"float4_e2m1fn", 0},
                              {"float8_e8m0fnu", 1},
                              {"uint2", 0},
                              {"int2", 0}};
const TypeRow& type_row(int32_t dtype) {
  return kTypes[dtype > 0 && dtype < static_cast<int32_t>(std::size(kTypes)) ? dtype : 0];
}
} // namespace

size_t element_bytes(int32_t dtype) { return type_row(dtype).bytes; }
const char* dtype_name(int32_t dtype) { return type_row(dtype).name; }

std::string Io::text() const {
  std::string out = dtype_name(dtype);
  if (any_rank) return out + "[...]";
  out += '[';
  for (size_t d = 0; d < dims.size(); ++d) out += (d ? ", " : "") + dims[d];
  return out + ']';
}

std::string counted(size_t n, const char* what) { return std::to_string(n) + " " + what + (n == 1 ? "" : "s"); }

bool wrong_rank(const Io& io, const int64_t* dims, size_t rank) {
  std::string given = "[";
  for (size_t d = 0; d < rank; ++d) given += (d ? ", " : "") + std::to_string(dims[d]);
  raise_error("InputError", "input '" + io.name + "' has " + counted(rank, "dimension") + ", " + given +
                                "]; the model declares " + io.text());
  return false;
}

bool no_memory(const Io& io) {
  raise_error("InputError", "input '" + io.name + "' has no memory: its address is null, as that of a tensor whose " +
                                "storage was freed; elements of " + io.text() + " are expected there");
  return false;
}

std::vector<Io> describe(const tessera_io* ios, int32_t count) {
  std::vector<Io> all;
  for (int32_t i = 0; i < count; ++i) {
    Io io;
    io.name = ios[i].name;
    io.dtype = ios[i].dtype;
    io.any_rank = ios[i].rank < 0;
    for (int32_t d = 0; d < ios[i].rank; ++d) {
      io.dims.emplace_back(ios[i].dims[d]);
      const std::string& shown = io.dims.back();
      int64_t size = -1;
      auto [end, problem] = std::from_chars(shown.data(), shown.data() + shown.size(), size);
      io.fixed.push_back(problem == std::errc() && end == shown.data() + shown.size() ? size : -1);
    }
    all.push_back(std::move(io));
  }
  return all;
}

// (name, dtype, dims): a dimension is an int, or text where it is symbolic; None in the place of dims where calls decide
// the rank.
PyObject* tuple_of(const Io& io) {
  if (io.any_rank) {
    Ref name(text(io.name.c_str()));
    return name ? Py_BuildValue("(OiO)", name.get(), io.dtype, Py_None) : nullptr;
  }
  Ref dims(PyTuple_New(static_cast<Py_ssize_t>(io.dims.size())));
  if (!dims) return nullptr;
  for (size_t d = 0; d < io.dims.size(); ++d) {
    PyObject* dim = io.fixed[d] >= 0 ? PyLong_FromLongLong(io.fixed[d]) : text(io.dims[d].c_str()).release();
    if (!dim || PyTuple_SetItem(dims.get(), static_cast<Py_ssize_t>(d), dim) != 0) return nullptr;
  }
  Ref name = text(io.name.c_str());
  return name ? Py_BuildValue("(OiO)", name.get(), io.dtype, dims.get()) : nullptr;
}

} // namespace tessera::python
