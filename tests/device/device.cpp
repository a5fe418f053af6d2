#include "tests/device/device.h"
#include <cstdlib>

namespace tessera::device_test {

const std::string& device() {
  static const std::string name = [] {
    const char* text = std::getenv("TESSERA_TEST_DEVICE");
    return std::string(text && *text ? text : "cpu");
  }();
  return name;
}

bool is_wanted(size_t i, size_t count) {
  static const size_t most = [] {
    const char* text = std::getenv("TESSERA_TEST_SAMPLES");
    return text ? std::strtoull(text, nullptr, 10) : 0;
  }();
  return most == 0 || count <= most || i % ((count + most - 1) / most) == 0;
}

CompileOptions options() {
  CompileOptions o;
  o.device = device();
  o.find_libraries = o.device == "cuda";
  o.threads = 2;
  if (o.device == "cuda") o.disabled_passes = {"convert-as-here"}; // it makes another operator of a cast that wraps
  return o;
}

Result<std::vector<Tensor>> compile_and_run(Graph graph, const std::map<std::string, Tensor>& inputs, int* host_steps) {
  static const auto pool = ThreadPool::create(2);
  TESSERA_ASSIGN(auto compiled, compile(std::move(graph), options()));
  if (host_steps) *host_steps = compiled.executable->host_steps;
  ExecutorOptions o;
  o.pool = pool;
  o.poison = true;
  TESSERA_ASSIGN(auto executor, Executor::create({compiled.executable}, o));
  return executor->run(inputs);
}

} // namespace tessera::device_test
