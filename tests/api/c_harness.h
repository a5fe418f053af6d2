// Helpers for the tests of the C interface.
#pragma once
#include "api/c.h"
#include "harness.h"

namespace tessera::api_test {

inline tessera_options on_cpu() {
  tessera_options o{};
  o.struct_size = sizeof o;
  o.device = "cpu";
  o.threads = 2;
  return o;
}

// A session that is closed at the end; a failure to open it is the test's.
struct Opened {
  tessera_session* session = nullptr;
  explicit Opened(const std::string& path, const tessera_options& options = on_cpu()) {
    const char* error = tessera_open_with(path.c_str(), &options, &session);
    EXPECT_EQ(error, nullptr) << error;
  }
  explicit Opened(const Maker& model, const tessera_options& options = on_cpu()) : Opened(write(model), options) {}
  ~Opened() { tessera_close(session); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
};

inline void says(const char* error, const std::string& text) {
  ASSERT_NE(error, nullptr) << text;
  EXPECT_NE(std::string(error).find(text), std::string::npos) << error;
}

} // namespace tessera::api_test
