// A model of the server's: its configuration, and a session for each device that its instances run on.
#pragma once
#include "serving/triton/config.h"
#include "serving/triton/copies.h"
#include <mutex>

namespace tessera::triton {

struct CloseSession {
  void operator()(tessera_session* s) const { tessera_close(s); }
};
using SessionHandle = std::unique_ptr<tessera_session, CloseSession>;

class Model {
public:
  // Opens the file in the version's folder on the device that the configuration names first, completes the
  // configuration where the server permits that, and checks it. Errors: those of tessera_open_with(); INVALID_ARG for a
  // configuration that is not the model's; NOT_FOUND without a model file.
  [[nodiscard]] static Error create(TRITONBACKEND_Model* handle, std::unique_ptr<Model>& out);

  // A context for an instance, and where it runs. The model is opened once for each device.
  [[nodiscard]] Error new_context(TRITONBACKEND_ModelInstance* instance, SessionHandle& context, Place& place);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const Interface& interface() const { return interface_; }
  [[nodiscard]] bool batched() const { return batched_; } // inputs and outputs have a batch dimension, dimension 0
  [[nodiscard]] bool has_strings() const { return has_strings_; }

private:
  [[nodiscard]] Error read_config(TRITONBACKEND_Model* handle);
  [[nodiscard]] Error find_file(TRITONBACKEND_Model* handle);
  [[nodiscard]] Error describe(tessera_session* session);
  [[nodiscard]] Error complete(TRITONBACKEND_Model* handle);
  // The session for `device`; opens it where none is there.
  [[nodiscard]] Error session_on(const std::string& device, tessera_session*& session);
  [[nodiscard]] std::string parameter(const std::string& name) const; // empty where it is not given
  [[nodiscard]] Error check_real_place(const std::string& what, const std::string& path) const;

  std::string name_, folder_, file_; // folder_: of the model, file_: the path of the file that is served
  Json config_;
  Interface interface_;
  bool batched_ = false, has_strings_ = false;
  std::mutex opening_;
  std::map<std::string, SessionHandle> sessions_; // by device: "cpu", "cuda:0"
  std::string automatic_;                         // the device among them that "auto" came to; empty: not known yet
};

} // namespace tessera::triton
