#include "options.h"

namespace tessera::python {
namespace {

// The text of a str. False where it is none, or has a zero character: an exception is set.
bool text_of(PyObject* value, std::string& out) {
  Ref utf8(PyUnicode_AsUTF8String(value));
  char* text = nullptr;
  if (!utf8 || PyBytes_AsStringAndSize(utf8.get(), &text, nullptr) != 0) return false;
  out = text;
  return true;
}

bool take_number(const OptionField& f, PyObject* value, int64_t& out) {
  int overflow = 0;
  out = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (overflow == 0 && out == -1 && PyErr_Occurred()) return false;
  if (overflow == 0 && out >= 0 && out <= largest(f.kind)) return true;
  Ref shown(PyObject_Str(value));
  std::string text;
  if (shown && text_of(shown.get(), text))
    raise_error("UsageError",
                std::string(f.name) + " is " + text + "; 0 to " + std::to_string(largest(f.kind)) + " are possible");
  return false;
}

// False: an exception is set.
bool take_option(const OptionField& f, PyObject* value, stable::Options& options) {
  const auto take = [&](auto member) {
    auto& to = options.*member;
    using T = std::remove_reference_t<decltype(to)>;
    if constexpr (std::is_same_v<T, std::string>) {
      if (!is_path(f.kind)) {
        if (PyUnicode_Check(value)) return text_of(value, to);
        PyErr_Format(PyExc_TypeError, "%s is %R; it must be a str", f.name.data(), value);
        return false;
      }
      PyObject* path = nullptr;
      if (!PyUnicode_FSConverter(value, &path)) return false;
      Ref bytes(path);
      to = PyBytes_AsString(path);
    } else if constexpr (std::is_same_v<T, bool>) {
      const int truth = PyObject_IsTrue(value);
      to = truth == 1;
      return truth >= 0;
    } else if constexpr (std::is_same_v<T, double>) {
      to = given_share(PyFloat_AsDouble(value));
      return !PyErr_Occurred();
    } else {
      int64_t number = 0;
      if (!take_number(f, value, number)) return false;
      to = static_cast<T>(number);
    }
    return true;
  };
  return std::visit(take, f.member);
}

} // namespace

bool take_options(PyObject* given, stable::Options& options) {
  Py_ssize_t at = 0;
  PyObject *key = nullptr, *value = nullptr;
  while (PyDict_Next(given, &at, &key, &value)) {
    std::string name;
    if (!text_of(key, name)) return false;
    const OptionField* f = find_option(name);
    if (!f) {
      PyErr_Format(PyExc_TypeError, "tessera has no option '%s'; its options are %s", name.c_str(),
                   option_names().c_str());
      return false;
    }
    if (value != Py_None && !take_option(*f, value, options)) return false;
  }
  return true;
}

PyObject* option_table(PyObject*, PyObject*) {
  return protect<PyObject*>(nullptr, [&]() -> PyObject* {
    static constexpr const char* kinds[] = {"text", "choice", "sizes", "file", "folder",
                                            "flag", "count",  "bytes", "share"};
    Ref all(PyList_New(0));
    for (const OptionField& f : kOptionFields) { // texts of literals, which end with a zero
      Ref row(all ? Py_BuildValue("(ssssss)", f.name.data(), kinds[static_cast<size_t>(f.kind)], f.values.data(),
                                  f.standard.data(), f.help.data(), f.no_torch.data())
                  : nullptr);
      if (!row || PyList_Append(all.get(), row.get()) != 0) return nullptr;
    }
    return all.release();
  });
}

} // namespace tessera::python
