#include "api/c.h"
#include "api/device.h"
#include "api/session.h"

struct tessera_session {
  std::unique_ptr<tessera::Session> session;
  std::string device;
};

namespace tessera {
namespace {

const char* told(const Diagnostic& error) {
  thread_local std::string text;
  text = error.str();
  return text.c_str();
}
Diagnostic usage(std::string message) { return {ErrorCode::Usage, std::move(message)}; }

Result<std::pair<DType, Dims>> type_of(const tessera_tensor& t, const std::string& what) {
  auto dtype = dtype_from_onnx(t.dtype);
  if (!dtype || *dtype == DType::String)
    return usage(what + " has the element type " + std::to_string(t.dtype) + ", which cannot be passed as memory");
  if (t.rank < 0 || (t.rank > 0 && t.dims == nullptr)) return usage(what + " has no dimensions");
  return std::pair(*dtype, Dims(t.dims, t.dims + t.rank));
}

// Calls each(what it is for a message, tensor, dtype, dims) for inputs or outputs.
template <class Each>
Status for_each(const tessera_tensor* tensors, int32_t count, const char* kind, Each each) {
  if (count < 0 || (count > 0 && tensors == nullptr)) return usage(std::string("no ") + kind + "s are given");
  for (int32_t i = 0; i < count; ++i) {
    const tessera_tensor& t = tensors[i];
    std::string what = std::string(kind) + " " + (t.name ? "'" + std::string(t.name) + "'" : std::to_string(i));
    TESSERA_ASSIGN(auto type, type_of(t, what));
    TESSERA_ASSIGN(int64_t elements, element_count(type.second));
    if (t.data == nullptr && elements > 0) return usage(what + " has no memory");
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
  TESSERA_TRY(
      for_each(inputs, input_count, "input", [&](const auto& t, DType dtype, Dims dims, int64_t elements) -> Status {
        if (t.name == nullptr) return usage("an input has no name");
        in.insert_or_assign(t.name, view(t, dtype, std::move(dims), elements));
        return {};
      }));
  std::vector<Tensor> out;
  TESSERA_TRY(
      for_each(outputs, output_count, "output", [&](const auto& t, DType dtype, Dims dims, int64_t elements) -> Status {
        out.push_back(view(t, dtype, std::move(dims), elements));
        return {};
      }));
  TESSERA_TRY(session.run(in, nullptr, &out));
  return {};
}

Status run_on_device(Session& session, const tessera_tensor* inputs, int32_t input_count, const tessera_tensor* outputs,
                     int32_t output_count, void* stream) {
  std::map<std::string, DeviceTensor> in;
  TESSERA_TRY(for_each(inputs, input_count, "input", [&](const auto& t, DType dtype, Dims dims, int64_t) -> Status {
    if (t.name == nullptr) return usage("an input has no name");
    in.insert_or_assign(t.name, DeviceTensor{dtype, std::move(dims), t.data});
    return {};
  }));
  std::vector<DeviceTensor> out;
  TESSERA_TRY(for_each(outputs, output_count, "output", [&](const auto& t, DType dtype, Dims dims, int64_t) -> Status {
    out.push_back({dtype, std::move(dims), t.data});
    return {};
  }));
  return session.run_on_device(in, out, stream);
}

Result<std::unique_ptr<tessera_session>> open_session(const char* model, const char* device, int32_t threads) {
  if (model == nullptr || device == nullptr) return usage("model and device are needed");
  if (threads < 0) return usage("there are no " + std::to_string(threads) + " threads");
  SessionOptions options;
  TESSERA_ASSIGN(DeviceChoice choice, choose_device(device));
  choice.apply(options.compile);
  options.compile.threads = threads;
  auto out = std::make_unique<tessera_session>();
  out->device = choice.device;
  TESSERA_ASSIGN(out->session, Session::open(model, std::move(options)));
  return out;
}

} // namespace
} // namespace tessera

using namespace tessera;

const char* tessera_open(const char* model, const char* device, int32_t threads, tessera_session** session) {
  if (session == nullptr) return told(usage("nowhere to put the session"));
  auto opened = open_session(model, device, threads);
  if (!opened.ok()) return told(opened.error());
  *session = opened->release();
  return nullptr;
}

void tessera_close(tessera_session* session) { delete session; }

const char* tessera_device(const tessera_session* session) { return session->device.c_str(); }

const char* tessera_run(tessera_session* session, const tessera_tensor* inputs, int32_t input_count,
                        const tessera_tensor* outputs, int32_t output_count) {
  auto status = run_on_host(*session->session, inputs, input_count, outputs, output_count);
  return status.ok() ? nullptr : told(status.error());
}

const char* tessera_run_on_device(tessera_session* session, const tessera_tensor* inputs, int32_t input_count,
                                  const tessera_tensor* outputs, int32_t output_count, void* stream) {
  auto status = run_on_device(*session->session, inputs, input_count, outputs, output_count, stream);
  return status.ok() ? nullptr : told(status.error());
}
