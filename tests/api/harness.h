// Helpers for the tests of the API: small models as files, options that touch nothing outside of a folder of the test's
// own, and the reference evaluator to compare with.
#pragma once
#include "api/session/variant.h"
#include "graph/reference/evaluator.h"
#include "tests/onnx/model_maker.h"
#include <gtest/gtest.h>

namespace tessera::api_test {

using onnx_test::Maker;
using Inputs = std::map<std::string, Tensor>;

// A folder for models and cached objects, gone when the program ends.
const onnx_test::TemporaryFolder& folder();
// Two threads, poisoned memory, objects cached in the folder.
SessionOptions options();
// The model as a file, opened; a failure is the test's.
std::unique_ptr<Session> open(const Maker& model, SessionOptions options = api_test::options());
std::string write(const Maker& model);

// Numbers that differ from element to element, small enough to add up exactly.
Tensor numbers(Dims dims, int seed = 0);
Tensor integers(Dims dims, int64_t below, int seed = 0);

// Expects the results that the reference yields for these inputs. The reference imports the model with the sizes of the
// inputs as constants, so it assumes nothing.
void expect_right(const Maker& model, const Inputs& inputs, const Result<std::vector<Tensor>>& results);
// Expects an error of this code with each text somewhere in it.
void expect_error(const Result<std::vector<Tensor>>& result, ErrorCode code, const std::vector<std::string>& texts);

// Collects what is written to the log's channels while it lives.
class LogCapture {
public:
  explicit LogCapture(std::string_view channels);
  ~LogCapture();
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;
  [[nodiscard]] const std::string& text() const { return text_; }

private:
  std::string text_;
};

} // namespace tessera::api_test
