// The functions that Triton looks up in libtriton_tessera.so.
#include "serving/triton/instance.h"

using namespace tessera::triton;

namespace {

constexpr uint32_t kMajor = 1;  // of the interface that triton.h declares
constexpr uint32_t kMinor = 15; // TRITONBACKEND_RequestIsCancelled is in it since

// The state of a model or instance, which the server keeps as a pointer. Get: a function of the server's.
template <class State, class Handle, class Get>
State* state_of(Handle* handle, const Get& get) {
  void* state = nullptr;
  log_error(Error(get(handle, &state)));
  return static_cast<State*>(state);
}

} // namespace

TRITONSERVER_Error* TRITONBACKEND_Initialize(TRITONBACKEND_Backend*) {
  return guarded([]() -> Error {
           uint32_t major = 0, minor = 0;
           TESSERA_TRITON_TRY(TRITONBACKEND_ApiVersion(&major, &minor));
           if (major == kMajor && minor >= kMinor) return nullptr;
           return make_error(TRITONSERVER_ERROR_UNSUPPORTED,
                             "the server has version " + std::to_string(major) + "." + std::to_string(minor) +
                                 " of the interface of backends; the backend tessera needs " + std::to_string(kMajor) +
                                 "." + std::to_string(kMinor) + " or a later minor version");
         })
      .release();
}

TRITONSERVER_Error* TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* handle) {
  return guarded([&]() -> Error {
           std::unique_ptr<Model> model;
           TESSERA_TRITON_TRY(Model::create(handle, model));
           TESSERA_TRITON_TRY(TRITONBACKEND_ModelSetState(handle, model.get()));
           (void)model.release(); // until TRITONBACKEND_ModelFinalize()
           return nullptr;
         })
      .release();
}

TRITONSERVER_Error* TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* handle) {
  return guarded([&]() -> Error {
           delete state_of<Model>(handle, TRITONBACKEND_ModelState);
           return nullptr;
         })
      .release();
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceInitialize(TRITONBACKEND_ModelInstance* handle) {
  return guarded([&]() -> Error {
           TRITONBACKEND_Model* model = nullptr;
           TESSERA_TRITON_TRY(TRITONBACKEND_ModelInstanceModel(handle, &model));
           std::unique_ptr<Instance> instance;
           TESSERA_TRITON_TRY(Instance::create(*state_of<Model>(model, TRITONBACKEND_ModelState), handle, instance));
           TESSERA_TRITON_TRY(TRITONBACKEND_ModelInstanceSetState(handle, instance.get()));
           (void)instance.release(); // until TRITONBACKEND_ModelInstanceFinalize()
           return nullptr;
         })
      .release();
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceFinalize(TRITONBACKEND_ModelInstance* handle) {
  return guarded([&]() -> Error {
           delete state_of<Instance>(handle, TRITONBACKEND_ModelInstanceState);
           return nullptr;
         })
      .release();
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance* handle,
                                                       TRITONBACKEND_Request** requests, uint32_t request_count) {
  return guarded([&]() -> Error {
           auto* instance = state_of<Instance>(handle, TRITONBACKEND_ModelInstanceState);
           std::vector<Request> taken;
           taken.reserve(request_count); // the last that may fail: what is taken is answered
           for (uint32_t i = 0; i < request_count; ++i) taken.emplace_back(handle, requests[i]);
           const Error failed = guarded([&]() -> Error {
             instance->execute(std::move(taken));
             return nullptr;
           });
           if (failed) log(TRITONSERVER_LOG_ERROR, TRITONSERVER_ErrorMessage(failed.get()));
           return nullptr;
         })
      .release();
}
