// The C interface as classes of C++20, in this header alone: a program needs the symbols of c.h, which stay within an ABI
// version, and may be built with another compiler and C++ library than Tessera. session.h has more, and promises less.
//
//   tessera::stable::Session session("model.onnx", {.device = "cpu"});
//   std::vector<float> x(6), y(6);
//   const int64_t dims[] = {2, 3};
//   const tessera::stable::Tensor in[] = {{"x", std::span(x), dims}}, out[] = {{std::span(y), dims}};
//   session.run(in, out);
//
// Errors are exceptions (Error): objects are opened by constructors, std::expected is not of C++20, and what opens, binds or
// runs a model is no place where an exception's cost counts. What must not throw calls c.h by Session::get(). Each function
// says by its name which one of c.h it calls, and holds what that says: sizes, memory, threads.
#pragma once
#include "api/c.h"
#include <array>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera::stable {

class Error : public std::runtime_error {
public:
  explicit Error(const char* text) : std::runtime_error(text) {
    const tessera_error* e = tessera_last_error();
    if (e == nullptr) return;
    code_ = e->code;
    name_ = e->name;
    location_ = e->location;
    message_ = e->message;
    notes_.assign(e->notes, e->notes + e->note_count);
    output_ = e->output;
  }
  [[nodiscard]] const std::string& code() const { return code_; }                // "TES-3008"
  [[nodiscard]] const std::string& name() const { return name_; }                // "bad-input"
  [[nodiscard]] const std::string& location() const { return location_; }        // may be empty
  [[nodiscard]] const std::string& message() const { return message_; }          // without the rest
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; } // causes, and what to do
  [[nodiscard]] const std::string& output() const { return output_; } // first result of the node at fault, or empty

private:
  std::string code_, name_, location_, message_, output_;
  std::vector<std::string> notes_;
};

inline void check(const char* error) {
  if (error != nullptr) throw Error(error);
}

// The element type of a C++ type; others (f16, bf16, ...) are given as tessera_dtype.
template <class T>
[[nodiscard]] constexpr tessera_dtype dtype_of() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<U, float>)
    return TESSERA_F32;
  else if constexpr (std::is_same_v<U, double>)
    return TESSERA_F64;
  else if constexpr (std::is_same_v<U, bool>)
    return TESSERA_BOOL;
  else {
    static_assert(std::is_integral_v<U>, "give the element type as a tessera_dtype");
    constexpr bool is_signed = std::is_signed_v<U>;
    if constexpr (sizeof(U) == 1)
      return is_signed ? TESSERA_I8 : TESSERA_U8;
    else if constexpr (sizeof(U) == 2)
      return is_signed ? TESSERA_I16 : TESSERA_U16;
    else if constexpr (sizeof(U) == 4)
      return is_signed ? TESSERA_I32 : TESSERA_U32;
    else
      return is_signed ? TESSERA_I64 : TESSERA_U64;
  }
}

// A tensor in memory of the caller's, who keeps that, the sizes and the name.
struct Tensor : tessera_tensor {
  Tensor(const char* name, int32_t dtype, std::span<const int64_t> dims, const void* data)
      : tessera_tensor{name, dtype, static_cast<int32_t>(dims.size()), dims.data(), const_cast<void*>(data)} {}
  template <class T>
  Tensor(const char* name, std::span<T> values, std::span<const int64_t> dims)
      : Tensor(name, dtype_of<T>(), dims, values.data()) {
    int64_t count = 1;
    for (const int64_t d : dims) count *= d;
    if (count != static_cast<int64_t>(values.size()))
      throw std::invalid_argument("tessera: a tensor of " + std::to_string(count) + " elements is given " +
                                  std::to_string(values.size()) + " values");
  }
  template <class T>
  Tensor(std::span<T> values, std::span<const int64_t> dims) : Tensor(nullptr, values, dims) {}
};
static_assert(sizeof(Tensor) == sizeof(tessera_tensor)); // an array of one is an array of the other

// The sizes and values of a tensor that a function has returned.
[[nodiscard]] inline std::span<const int64_t> dims_of(const tessera_tensor& t) {
  return {t.dims, static_cast<size_t>(t.rank)};
}
template <class T>
[[nodiscard]] std::span<const T> values_of(const tessera_tensor& t) {
  if (t.dtype != dtype_of<T>())
    throw std::invalid_argument("tessera: the element type is " + std::to_string(t.dtype) + ", not " +
                                std::to_string(dtype_of<T>()));
  size_t count = 1;
  for (const int64_t d : dims_of(t)) count *= static_cast<size_t>(d);
  return {static_cast<const T*>(t.data), count};
}

// The options of an opening: fields of the types and names in options.def. Empty and 0 are the defaults.
//   tessera::stable::Options{.device = "cuda:1", .memory_limit = 1 << 30, .warm_up = "batch=1..8..32"}
struct Options { // tessera_options
#define TESSERA_OPTION(type, name, initial, ...) type name initial;
#define TESSERA_OTHER_FIELD(type, name) type name{};
#include "api/options.def"

  [[nodiscard]] tessera_options c() const {
    tessera_options o{};
    o.struct_size = sizeof o;
    // The first that is given counts of two fields that are one of C.
    const auto give = [](const auto& from, auto& to) {
      if constexpr (std::is_same_v<decltype(from), const std::string&>)
        to = to == nullptr && !from.empty() ? from.c_str() : to;
      else
        to = from;
    };
#define TESSERA_OPTION(type, name, initial, field, ...) give(name, o.field);
#define TESSERA_OTHER_FIELD(type, name) give(name, o.name);
#include "api/options.def"
    return o;
  }
};

struct Io { // tessera_io
  std::string name;
  int32_t dtype;
  std::vector<std::string> dims;
  bool any_rank = false; // each call decides how many dimensions there are
};

// A context of a session: used by one thread at a time. Copies are made by clone().
class Session {
public:
  using Tensors = std::span<const Tensor>;
  using Shown = std::span<const tessera_tensor>; // the session's, good until its next request
  // Memory for an output: (output, dtype, sizes) -> address, or null.
  using Allocate = std::function<void*(int32_t, int32_t, std::span<const int64_t>)>;

  explicit Session(const std::string& model, const Options& options = {}) {
    const tessera_options o = options.c();
    tessera_session* session = nullptr;
    check(tessera_open_with(model.c_str(), &o, &session));
    session_.reset(session);
  }
  explicit Session(const tessera_program& program, const Options& options = {}) {
    const tessera_options o = options.c();
    tessera_session* session = nullptr;
    check(tessera_open_program(&program, &o, &session));
    session_.reset(session);
  }
  [[nodiscard]] Session clone() const {
    tessera_session* session = nullptr;
    check(tessera_clone(get(), &session));
    return Session(session);
  }
  [[nodiscard]] tessera_session* get() const { return session_.get(); }

  [[nodiscard]] std::string device() const { return tessera_device(get()); }
  [[nodiscard]] std::vector<Io> inputs() const { return ios(tessera_inputs); }
  [[nodiscard]] std::vector<Io> outputs() const { return ios(tessera_outputs); }
  [[nodiscard]] std::vector<Io> states() const { return ios(tessera_states); }
  template <class T>
  void read_state(int index, std::span<T> values) {
    check(tessera_read_state(get(), index, values.data(), values.size_bytes()));
  }
  template <class T>
  void write_state(int index, std::span<const T> values) {
    check(tessera_write_state(get(), index, values.data(), values.size_bytes()));
  }
  void reset_states() { check(tessera_reset_states(get())); }
  [[nodiscard]] bool sizes_known() const { return tessera_sizes_known(get()) != 0; }
  [[nodiscard]] std::string report() const {
    const char* json = nullptr;
    check(tessera_report(get(), &json));
    return json;
  }

  [[nodiscard]] Shown output_sizes(Tensors inputs) {
    const tessera_tensor* outputs = nullptr;
    int32_t count = 0;
    check(tessera_output_sizes(get(), inputs.data(), size(inputs), &outputs, &count));
    return {outputs, static_cast<size_t>(count)};
  }
  void run(Tensors inputs, Tensors outputs) {
    check(tessera_run(get(), inputs.data(), size(inputs), outputs.data(), size(outputs)));
  }
  [[nodiscard]] Shown run_fresh(Tensors inputs) {
    const tessera_tensor* outputs = nullptr;
    int32_t count = 0;
    check(tessera_run_fresh(get(), inputs.data(), size(inputs), &outputs, &count));
    return {outputs, static_cast<size_t>(count)};
  }
  void run_on_device(Tensors inputs, Tensors outputs, void* stream) {
    check(tessera_run_on_device(get(), inputs.data(), size(inputs), outputs.data(), size(outputs), stream));
  }
  // An exception of `allocate` ends the call and is thrown from here.
  void call(Tensors inputs, const Allocate& allocate, void* stream = nullptr) {
    Allocation allocation{allocate, nullptr};
    const char* error = tessera_call(get(), inputs.data(), size(inputs), Allocation::answer, &allocation, stream);
    if (allocation.thrown) std::rethrow_exception(allocation.thrown);
    check(error);
  }
  void bind(Tensors inputs, Tensors outputs) {
    check(tessera_bind(get(), inputs.data(), size(inputs), outputs.data(), size(outputs)));
  }
  void run_bound(void* stream = nullptr) { check(tessera_run_bound(get(), stream)); }
  void unbind() { tessera_unbind(get()); }
  void trim() { check(tessera_trim(get())); }
  // Tensors without data: of these sizes.
  void warmup(Tensors inputs) { check(tessera_warmup(get(), inputs.data(), size(inputs))); }
  void warmup_ranges(const std::string& ranges, Tensors values = {}) {
    check(tessera_warmup_ranges(get(), ranges.c_str(), values.data(), size(values)));
  }

  [[nodiscard]] tessera_metrics metrics() const {
    tessera_metrics m{};
    m.struct_size = sizeof m;
    check(tessera_get_metrics(get(), &m));
    return m;
  }
  [[nodiscard]] std::string metrics_text(const std::string& labels = "") {
    const char* text = nullptr;
    check(tessera_metrics_text(get(), labels.c_str(), &text));
    return text;
  }
  [[nodiscard]] std::optional<std::string> last_miss() {
    const char* text = nullptr;
    check(tessera_last_miss(get(), &text));
    return text ? std::optional<std::string>(text) : std::nullopt;
  }

private:
  struct Close {
    void operator()(tessera_session* s) const { tessera_close(s); }
  };
  struct Allocation {
    const Allocate& allocate;
    std::exception_ptr thrown;
    static void* answer(void* self, int32_t output, int32_t dtype, int32_t rank, const int64_t* dims) noexcept {
      auto& allocation = *static_cast<Allocation*>(self);
      try {
        return allocation.allocate(output, dtype, {dims, static_cast<size_t>(rank)});
      } catch (...) {
        allocation.thrown = std::current_exception();
        return nullptr;
      }
    }
  };
  explicit Session(tessera_session* session) : session_(session) {}
  static int32_t size(Tensors tensors) { return static_cast<int32_t>(tensors.size()); }
  template <class Describe>
  [[nodiscard]] std::vector<Io> ios(const Describe& describe) const {
    const tessera_io* shown = nullptr;
    int32_t count = 0;
    check(describe(get(), &shown, &count));
    std::vector<Io> out;
    for (const tessera_io& io : std::span(shown, static_cast<size_t>(count)))
      out.push_back({io.name, io.dtype, {io.dims, io.dims + (io.rank > 0 ? io.rank : 0)}, io.rank < 0});
    return out;
  }

  std::unique_ptr<tessera_session, Close> session_;
};

// A GPU's memory: tessera_memory_create().
class Memory {
public:
  Memory(const Session& session, size_t bytes, void* stream) {
    tessera_memory* memory = nullptr;
    check(tessera_memory_create(session.get(), bytes, stream, &memory, &data_));
    memory_.reset(memory);
  }
  void wait(void* stream) { check(tessera_memory_wait(memory_.get(), stream)); }
  [[nodiscard]] void* data() const { return data_; }

private:
  struct Free {
    void operator()(tessera_memory* m) const { tessera_memory_free(m); }
  };
  std::unique_ptr<tessera_memory, Free> memory_;
  void* data_ = nullptr;
};

// The options of a kernel: tessera_kernel_options. Empty and 0 are the defaults.
struct KernelOptions {
  std::string device, name, cache_dir;
  int32_t threads = 0;
};
// The programs of a launch along each axis.
struct Grid {
  int64_t x = 1, y = 1, z = 1;
};
// An argument of a launch: an address, an integer or a float.
struct Argument : tessera_kernel_argument {
  template <class T>
  Argument(T* address) : tessera_kernel_argument{TESSERA_ARGUMENT_POINTER, address, 0, 0} {}
  Argument(std::nullptr_t) : tessera_kernel_argument{TESSERA_ARGUMENT_POINTER, nullptr, 0, 0} {}
  template <class T>
  requires std::is_arithmetic_v<T> Argument(T value) : tessera_kernel_argument{kind_of<T>(), nullptr, 0, 0} {
    if constexpr (std::is_floating_point_v<T>)
      number = value;
    else
      integer = static_cast<int64_t>(value);
  }

private:
  template <class T>
  static constexpr int32_t kind_of() {
    if constexpr (std::is_floating_point_v<T>) return TESSERA_ARGUMENT_FLOAT;
    return std::is_signed_v<T> ? TESSERA_ARGUMENT_INTEGER : TESSERA_ARGUMENT_UNSIGNED;
  }
};
static_assert(sizeof(Argument) == sizeof(tessera_kernel_argument)); // an array of one is an array of the other

// A tile kernel by itself: tessera_kernel_create(). Any thread may launch it.
//   tessera::stable::Kernel kernel(text, {.device = "cpu"});
//   kernel.launch({.x = (n + 63) / 64}, x, y, n);
class Kernel {
public:
  explicit Kernel(const std::string& text, const KernelOptions& options = {}) {
    const auto given = [](const std::string& s) { return s.empty() ? nullptr : s.c_str(); };
    tessera_kernel_options o{};
    o.struct_size = sizeof o;
    o.device = given(options.device);
    o.threads = options.threads;
    o.name = given(options.name);
    o.cache_dir = given(options.cache_dir);
    tessera_kernel* kernel = nullptr;
    check(tessera_kernel_create(text.c_str(), &o, &kernel));
    kernel_.reset(kernel);
  }
  [[nodiscard]] tessera_kernel* get() const { return kernel_.get(); }
  [[nodiscard]] std::span<const tessera_kernel_parameter> parameters() const {
    const tessera_kernel_parameter* all = nullptr;
    int32_t count = 0;
    check(tessera_kernel_parameters(get(), &all, &count));
    return {all, static_cast<size_t>(count)};
  }
  [[nodiscard]] tessera_kernel_info info() const {
    tessera_kernel_info i{};
    i.struct_size = sizeof i;
    check(tessera_kernel_get_info(get(), &i));
    return i;
  }
  void launch_on(void* stream, const Grid& grid, std::span<const Argument> arguments) {
    check(tessera_kernel_launch(get(), grid.x, grid.y, grid.z, arguments.data(), static_cast<int32_t>(arguments.size()),
                                stream));
  }
  // On the host, or on the default stream.
  template <class... Values>
  void launch(const Grid& grid, const Values&... values) {
    const std::array<Argument, sizeof...(Values)> arguments{Argument(values)...};
    launch_on(nullptr, grid, arguments);
  }

private:
  struct Destroy {
    void operator()(tessera_kernel* k) const { tessera_kernel_destroy(k); }
  };
  std::unique_ptr<tessera_kernel, Destroy> kernel_;
};

// The log of the process to a function (level, channel, text), which must neither throw nor call Tessera; an empty one: as
// before. tessera_set_logger().
using Write = std::function<void(tessera_log_level, const char*, const char*)>;
inline void set_logger(tessera_log_level level, Write write, const std::string& channels = {}) {
  static std::mutex changing;
  static std::unique_ptr<Write> current;
  std::lock_guard lock(changing);
  auto next = write ? std::make_unique<Write>(std::move(write)) : nullptr;
  if (next) {
    tessera_logger logger{};
    logger.struct_size = sizeof logger;
    logger.level = level;
    logger.channels = channels.empty() ? nullptr : channels.c_str();
    logger.context = next.get();
    logger.write = [](void* self, int32_t l, const char* channel, const char* text) {
      (*static_cast<Write*>(self))(static_cast<tessera_log_level>(l), channel, text);
    };
    check(tessera_set_logger(&logger));
  } else {
    check(tessera_set_logger(nullptr));
  }
  current = std::move(next); // the function before is in no call any more
}

[[nodiscard]] inline tessera_version_numbers version() { return *tessera_version(); }

} // namespace tessera::stable
