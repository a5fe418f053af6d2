#include "serving/triton/model.h"
#include "api/option_fields.h"
#include <algorithm>
#include <charconv>
#include <filesystem>

namespace tessera::triton {

namespace {

constexpr const char* kFiles[] = {"model.tsr", "model.onnx", "model.pt2"};

struct DeleteMessage {
  void operator()(TRITONSERVER_Message* m) const { log_error(Error(TRITONSERVER_MessageDelete(m))); }
};
using Message = std::unique_ptr<TRITONSERVER_Message, DeleteMessage>;

Error refused(const Refusal& refusal) { return invalid(refusal.message + "; " + refusal.hint); }

template <class Number>
Error read_number(const std::string& name, const std::string& text, Number& out) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error == std::errc() && end == text.data() + text.size()) return nullptr;
  return invalid("the parameter '" + name + "' is '" + text + "', and has to be a number");
}

// The key of a session: "cuda" is its first GPU.
std::string key_of(const std::string& device) { return device == "cuda" ? "cuda:0" : device; }

Place place_of(const std::string& key) {
  Place place;
  if (!key.starts_with("cuda:")) return place;
  place.memory = TRITONSERVER_MEMORY_GPU;
  std::from_chars(key.data() + 5, key.data() + key.size(), place.device); // a number, as the session was opened
  return place;
}

// A path that the configuration gives, which leads nowhere but into the model's folder.
Error check_inside(const std::string& what, const std::string& given) {
  const std::filesystem::path path(given);
  if (!path.is_absolute() && std::find(path.begin(), path.end(), "..") == path.end()) return nullptr;
  return invalid(what + " is '" + given + "', and has to be a path inside of the model's folder");
}

Error take_parameter(const OptionField& f, const std::string& text, stable::Options& options) {
  const std::string name(f.name);
  const auto take = [&](auto member) -> Error {
    auto& value = options.*member;
    using T = std::remove_reference_t<decltype(value)>;
    if constexpr (std::is_same_v<T, std::string>) {
      value = text;
    } else if constexpr (std::is_same_v<T, bool>) {
      if (text != "true" && text != "false")
        return invalid("the parameter '" + name + "' is '" + text + "', and has to be true or false");
      value = text == "true";
    } else {
      TESSERA_TRITON_TRY(read_number(name, text, value));
      if constexpr (std::is_same_v<T, double>) value = given_share(value);
    }
    return nullptr;
  };
  return std::visit(take, f.member);
}

} // namespace

// The same where links are followed. What cannot be looked at cannot be opened either.
Error Model::check_real_place(const std::string& what, const std::string& path) const {
  std::error_code failed;
  const auto real = std::filesystem::weakly_canonical(path, failed);
  const auto folder = std::filesystem::weakly_canonical(folder_, failed);
  if (std::mismatch(folder.begin(), folder.end(), real.begin(), real.end()).first == folder.end()) return nullptr;
  return invalid(what + " leads to '" + real.string() + "', which is not inside of the model's folder");
}

std::string Model::parameter(const std::string& name) const {
  if (!config_.contains("parameters") || !config_["parameters"].contains(name)) return "";
  return config_["parameters"][name].value("string_value", std::string());
}

Error Model::read_config(TRITONBACKEND_Model* handle) {
  TRITONSERVER_Message* raw = nullptr;
  TESSERA_TRITON_TRY(TRITONBACKEND_ModelConfig(handle, 1, &raw));
  const Message message(raw);
  const char* text = nullptr;
  size_t bytes = 0;
  TESSERA_TRITON_TRY(TRITONSERVER_MessageSerializeToJson(raw, &text, &bytes));
  config_ = Json::parse(text, text + bytes, nullptr, false);
  if (!config_.is_object()) return invalid("the server's configuration is no JSON object");
  const Json parameters = config_.value("parameters", Json::object());
  for (const auto& [name, value] : parameters.items())
    if (find_option(name) == nullptr)
      return invalid("the backend tessera has no parameter '" + name + "'; it has " + option_names());
  return nullptr;
}

Error Model::find_file(TRITONBACKEND_Model* handle) {
  TRITONBACKEND_ArtifactType type{};
  const char* location = nullptr;
  uint64_t version = 0;
  TESSERA_TRITON_TRY(TRITONBACKEND_ModelRepository(handle, &type, &location));
  TESSERA_TRITON_TRY(TRITONBACKEND_ModelVersion(handle, &version));
  if (type != TRITONBACKEND_ARTIFACT_FILESYSTEM)
    return make_error(TRITONSERVER_ERROR_UNSUPPORTED, "the model repository is no folder of a file system");
  folder_ = location;
  const std::string versioned = folder_ + "/" + std::to_string(version) + "/";
  std::vector<std::string> names;
  if (auto given = config_.value("default_model_filename", std::string()); !given.empty()) {
    names.push_back(given);
  } else {
    names.assign(std::begin(kFiles), std::end(kFiles));
  }
  std::string all;
  for (const std::string& name : names) {
    TESSERA_TRITON_TRY(check_inside("default_model_filename", name));
    std::error_code ignored; // a file that cannot be looked at is none that can be opened
    if (std::filesystem::exists(versioned + name, ignored)) {
      file_ = versioned + name;
      return nullptr;
    }
    all += (all.empty() ? "" : ", ") + name;
  }
  return make_error(TRITONSERVER_ERROR_NOT_FOUND,
                    "there is no model in " + versioned + "; a file is expected there: " + all);
}

Error Model::session_on(const std::string& device, tessera_session*& session) {
  const std::lock_guard lock(opening_);
  if (auto it = sessions_.find(device == "auto" ? automatic_ : key_of(device)); it != sessions_.end()) {
    session = it->second.get();
    return nullptr;
  }
  stable::Options options;
  for (const OptionField& f : kOptionFields) {
    std::string text = parameter(std::string(f.name));
    if (text.empty()) continue;
    if (is_path(f.kind)) {
      const std::string what = "the parameter '" + std::string(f.name) + "'";
      TESSERA_TRITON_TRY(check_inside(what, text));
      text = folder_ + "/" + text;
      TESSERA_TRITON_TRY(check_real_place(what, text));
    }
    TESSERA_TRITON_TRY(take_parameter(f, text, options));
  }
  options.device = device;
  const tessera_options c = options.c();
  tessera_session* opened = nullptr;
  TESSERA_TRITON_TRY(from_tessera(tessera_open_with(file_.c_str(), &c, &opened)));
  SessionHandle owned(opened);
  const std::string key = key_of(device == "auto" ? tessera_device(opened) : device);
  if (device == "auto") automatic_ = key;
  auto [it, is_new] = sessions_.try_emplace(key, std::move(owned));
  session = it->second.get();
  int32_t needed = 0, cached = 0;
  tessera_kernels(session, &needed, &cached);
  if (is_new)
    log(TRITONSERVER_LOG_INFO, "model '" + name_ + "': " + file_ + " on " + it->first + ", " + std::to_string(needed) +
                                   " kernels, " + std::to_string(cached) + " of them from the cache");
  return nullptr;
}

Error Model::describe(tessera_session* session) {
  auto side = [](const char* error, const tessera_io* ios, int32_t count, std::vector<Value>& out) -> Error {
    TESSERA_TRITON_TRY(from_tessera(error));
    for (int32_t i = 0; i < count; ++i) {
      Value& v = out.emplace_back(Value{ios[i].name, ios[i].dtype, {}, ios[i].rank < 0});
      for (int32_t d = 0; d < ios[i].rank; ++d) v.dims.emplace_back(ios[i].dims[d]);
    }
    return nullptr;
  };
  const tessera_io* ios = nullptr;
  int32_t count = 0;
  const char* error = tessera_inputs(session, &ios, &count);
  TESSERA_TRITON_TRY(side(error, ios, count, interface_.inputs));
  error = tessera_outputs(session, &ios, &count);
  TESSERA_TRITON_TRY(side(error, ios, count, interface_.outputs));
  for (const auto* values : {&interface_.inputs, &interface_.outputs})
    for (const Value& v : *values) has_strings_ = has_strings_ || v.onnx == TESSERA_STRING;
  return nullptr;
}

Error Model::complete(TRITONBACKEND_Model* handle) {
  bool permitted = false;
  TESSERA_TRITON_TRY(TRITONBACKEND_ModelAutoCompleteConfig(handle, &permitted));
  if (permitted) {
    auto completed = complete_config(config_, interface_);
    if (const auto* why = std::get_if<Refusal>(&completed)) return refused(*why);
    config_ = std::get<Json>(std::move(completed));
    const std::string text = config_.dump();
    TRITONSERVER_Message* raw = nullptr;
    TESSERA_TRITON_TRY(TRITONSERVER_MessageNewFromSerializedJson(&raw, text.data(), text.size()));
    const Message message(raw);
    TESSERA_TRITON_TRY(TRITONBACKEND_ModelSetConfig(handle, 1, raw));
  }
  if (auto why = check_config(config_, interface_)) return refused(*why);
  batched_ = config_.value("max_batch_size", int64_t{0}) > 0;
  return nullptr;
}

Error Model::create(TRITONBACKEND_Model* handle, std::unique_ptr<Model>& out) {
  auto model = std::make_unique<Model>();
  const char* name = nullptr;
  TESSERA_TRITON_TRY(TRITONBACKEND_ModelName(handle, &name));
  model->name_ = name;
  TESSERA_TRITON_TRY(model->read_config(handle));
  TESSERA_TRITON_TRY(model->find_file(handle));
  // The device of the first instances, which come later, so that one session serves both.
  std::string device = model->parameter("device"), kind;
  if (const Json groups = model->config_.value("instance_group", Json::array()); !groups.empty()) {
    kind = groups.front().value("kind", std::string());
    const Json gpus = groups.front().value("gpus", Json::array());
    if (kind == "KIND_GPU") kind = "cuda:" + (gpus.empty() ? "0" : gpus.front().dump());
  }
  if (device.empty()) device = kind == "KIND_CPU" ? "cpu" : kind.starts_with("cuda") ? kind : "auto";
  tessera_session* session = nullptr;
  TESSERA_TRITON_TRY(model->session_on(device, session));
  TESSERA_TRITON_TRY(model->describe(session));
  TESSERA_TRITON_TRY(model->complete(handle));
  out = std::move(model);
  return nullptr;
}

Error Model::new_context(TRITONBACKEND_ModelInstance* instance, SessionHandle& context, Place& place) {
  TRITONSERVER_InstanceGroupKind kind{};
  int32_t gpu = 0;
  TESSERA_TRITON_TRY(TRITONBACKEND_ModelInstanceKind(instance, &kind));
  TESSERA_TRITON_TRY(TRITONBACKEND_ModelInstanceDeviceId(instance, &gpu));
  std::string device = parameter("device");
  if (device.empty() || device == "auto") {
    device = kind == TRITONSERVER_INSTANCEGROUPKIND_CPU   ? "cpu"
             : kind == TRITONSERVER_INSTANCEGROUPKIND_GPU ? "cuda:" + std::to_string(gpu)
                                                          : "auto";
  }
  tessera_session* session = nullptr;
  TESSERA_TRITON_TRY(session_on(device, session));
  tessera_session* clone = nullptr;
  TESSERA_TRITON_TRY(from_tessera(tessera_clone(session, &clone)));
  context.reset(clone);
  place = place_of(key_of(device == "auto" ? tessera_device(session) : device));
  return nullptr;
}

} // namespace tessera::triton
