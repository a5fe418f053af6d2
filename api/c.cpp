#include "api/c.h"
#include "api/device.h"
#include "api/session.h"
#include "graph/support/guarded.h"
#include <algorithm>

struct tessera_session {
  std::unique_ptr<tessera::Session> session;
  std::string device;
  // What tessera_output_sizes() shows.
  std::vector<std::string> names;
  std::vector<tessera::Dims> dims;
  std::vector<tessera_tensor> outputs;
};

namespace tessera {
namespace {

const char* told(const Diagnostic& error) noexcept {
  thread_local std::string text;
  auto put = guarded("an error's text", [&]() -> Status {
    text = error.str();
    return {};
  });
  return put.ok() ? text.c_str() : kNoMemoryForError;
}
Diagnostic usage(std::string message) { return {ErrorCode::Usage, std::move(message)}; }

Result<std::pair<DType, Dims>> type_of(const tessera_tensor& t, const std::string& what) {
  auto dtype = dtype_from_onnx(t.dtype);
  if (!dtype || *dtype == DType::String)
    return usage(what + " has the element type " + std::to_string(t.dtype) + ", which cannot be passed as memory");
  if (t.rank < 0 || (t.rank > 0 && t.dims == nullptr)) return usage(what + " has no dimensions");
  return std::pair(*dtype, Dims(t.dims, t.dims + t.rank));
}

enum class Memory : uint8_t { Needed, Ignored };

// Calls each(what it is for a message, tensor, dtype, dims) for inputs or outputs.
template <class Each>
Status for_each(const tessera_tensor* tensors, int32_t count, const char* kind, Memory memory, Each each) {
  if (count < 0 || (count > 0 && tensors == nullptr)) return usage(std::string("no ") + kind + "s are given");
  for (int32_t i = 0; i < count; ++i) {
    const tessera_tensor& t = tensors[i];
    std::string what = std::string(kind) + " " + (t.name ? "'" + std::string(t.name) + "'" : std::to_string(i));
    TESSERA_ASSIGN(auto type, type_of(t, what));
    TESSERA_ASSIGN(int64_t elements, element_count(type.second));
    if (memory == Memory::Needed && t.data == nullptr && elements > 0) return usage(what + " has no memory");
    TESSERA_TRY(each(t, type.first, std::move(type.second), elements));
  }
  return {};
}

Status run_on_host(Session& session, const tessera_tensor* inputs, int32_t input_count, const tessera_tensor* outputs,
                   int32_t output_count) {
  // The caller's memory outlives the call, so that nothing owns it here.
  auto view = [](const tessera_tensor& t, DType dtype, Dims dims, int64_t elements) {
    static const std::byte nothing{};
    const auto* data = t.data ? static_cast<const std::byte*>(t.data) : &nothing;
    return Tensor::view(dtype, std::move(dims), {nullptr, data, static_cast<size_t>(byte_size(dtype, elements))});
  };
  std::map<std::string, Tensor> in;
  TESSERA_TRY(for_each(inputs, input_count, "input", Memory::Needed,
                       [&](const auto& t, DType dtype, Dims dims, int64_t elements) -> Status {
                         if (t.name == nullptr) return usage("an input has no name");
                         in.insert_or_assign(t.name, view(t, dtype, std::move(dims), elements));
                         return {};
                       }));
  std::vector<Tensor> out;
  TESSERA_TRY(for_each(outputs, output_count, "output", Memory::Needed,
                       [&](const auto& t, DType dtype, Dims dims, int64_t elements) -> Status {
                         out.push_back(view(t, dtype, std::move(dims), elements));
                         return {};
                       }));
  TESSERA_TRY(session.run(in, nullptr, &out));
  return {};
}

Result<std::map<std::string, DeviceTensor>> device_inputs(const tessera_tensor* inputs, int32_t count, Memory memory) {
  std::map<std::string, DeviceTensor> in;
  TESSERA_TRY(for_each(inputs, count, "input", memory, [&](const auto& t, DType dtype, Dims dims, int64_t) -> Status {
    if (t.name == nullptr) return usage("an input has no name");
    in.insert_or_assign(t.name, DeviceTensor{dtype, std::move(dims), t.data});
    return {};
  }));
  return in;
}

Status output_sizes(tessera_session& s, const tessera_tensor* inputs, int32_t input_count) {
  TESSERA_ASSIGN(auto in, device_inputs(inputs, input_count, Memory::Ignored));
  TESSERA_ASSIGN(auto sizes, s.session->output_sizes(in));
  auto infos = s.session->outputs();
  s.names.clear();
  s.dims.clear();
  s.outputs.clear();
  for (size_t i = 0; i < sizes.size(); ++i) {
    s.names.push_back(infos[i].name);
    s.dims.push_back(std::move(sizes[i].dims));
  }
  for (size_t i = 0; i < sizes.size(); ++i)
    s.outputs.push_back({s.names[i].c_str(), info(sizes[i].dtype).onnx, static_cast<int32_t>(s.dims[i].size()),
                         s.dims[i].data(), nullptr});
  return {};
}

Status run_on_device(Session& session, const tessera_tensor* inputs, int32_t input_count, const tessera_tensor* outputs,
                     int32_t output_count, void* stream) {
  TESSERA_ASSIGN(auto in, device_inputs(inputs, input_count, Memory::Needed));
  std::vector<DeviceTensor> out;
  TESSERA_TRY(for_each(outputs, output_count, "output", Memory::Needed,
                       [&](const auto& t, DType dtype, Dims dims, int64_t) -> Status {
                         out.push_back({dtype, std::move(dims), t.data});
                         return {};
                       }));
  return session.run_on_device(in, out, stream);
}

Result<std::unique_ptr<tessera_session>> open_session(const char* model, const tessera_options& given) {
  if (model == nullptr) return usage("a model is needed");
  if (given.threads < 0) return usage("there are no " + std::to_string(given.threads) + " threads");
  SessionOptions options;
  TESSERA_ASSIGN(DeviceChoice choice, choose_device(given.device ? given.device : "auto"));
  choice.apply(options.compile);
  options.compile.threads = given.threads;
  if (given.tune_share != 0) options.tune_share = std::max(given.tune_share, 0.0);
  auto out = std::make_unique<tessera_session>();
  out->device = choice.device;
  TESSERA_ASSIGN(out->session, Session::open(model, std::move(options)));
  return out;
}

} // namespace
} // namespace tessera

using namespace tessera;

const char* tessera_open(const char* model, const char* device, int32_t threads, tessera_session** session) {
  const tessera_options options{device, threads, 0};
  return tessera_open_with(model, &options, session);
}

const char* tessera_open_with(const char* model, const tessera_options* options, tessera_session** session) {
  if (session == nullptr) return told(usage("nowhere to put the session"));
  auto opened = guarded("opening a model", [&] { return open_session(model, options ? *options : tessera_options{}); });
  if (!opened.ok()) return told(opened.error());
  *session = opened->release();
  return nullptr;
}

void tessera_close(tessera_session* session) { delete session; }

const char* tessera_device(const tessera_session* session) { return session->device.c_str(); }

const char* tessera_output_sizes(tessera_session* session, const tessera_tensor* inputs, int32_t input_count,
                                 const tessera_tensor** outputs, int32_t* output_count) {
  if (outputs == nullptr || output_count == nullptr) return told(usage("nowhere to put the outputs"));
  auto status = guarded("finding the outputs' sizes", [&] { return output_sizes(*session, inputs, input_count); });
  if (!status.ok()) return told(status.error());
  *outputs = session->outputs.data();
  *output_count = static_cast<int32_t>(session->outputs.size());
  return nullptr;
}

const char* tessera_run(tessera_session* session, const tessera_tensor* inputs, int32_t input_count,
                        const tessera_tensor* outputs, int32_t output_count) {
  auto status = guarded("running the model",
                        [&] { return run_on_host(*session->session, inputs, input_count, outputs, output_count); });
  return status.ok() ? nullptr : told(status.error());
}

const char* tessera_run_on_device(tessera_session* session, const tessera_tensor* inputs, int32_t input_count,
                                  const tessera_tensor* outputs, int32_t output_count, void* stream) {
  auto status = guarded("running the model", [&] {
    return run_on_device(*session->session, inputs, input_count, outputs, output_count, stream);
  });
  return status.ok() ? nullptr : told(status.error());
}
