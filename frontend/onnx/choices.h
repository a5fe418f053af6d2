// Choices that an import makes before any call has said what decides them: which branch of an If is taken. Each has a
// usual way. Where the model cannot be built so, the import is made again with the other way of the last choice, and so
// on as in a depth-first search: a branch that squeezes a dimension of size 1 away is what a layer behind it may need.
#pragma once
#include "base/diagnostic.h"
#include <vector>

namespace tessera::onnx {

class Choices {
public:
  // The way of the next choice of this attempt.
  [[nodiscard]] bool next(bool usual) {
    if (at_ == made_.size()) made_.push_back({usual, false});
    return made_[at_++].way;
  }
  // Another combination, for an attempt from the start; false: all were tried, or as many as are.
  [[nodiscard]] bool another() {
    made_.resize(at_); // choices of this attempt
    at_ = 0;
    while (!made_.empty() && made_.back().both) made_.pop_back();
    if (made_.empty() || ++attempts_ >= kMaxAttempts) return false;
    made_.back() = {!made_.back().way, true};
    return true;
  }

private:
  static constexpr int kMaxAttempts = 16;
  struct Choice {
    bool way, both; // `both`: the other way was tried
  };
  std::vector<Choice> made_;
  size_t at_ = 0;
  int attempts_ = 0;
};

// Whether an error says that shapes, types or axes do not fit each other, as those of a branch that no call takes may.
[[nodiscard]] inline bool is_misfit(ErrorCode code) {
  return code == ErrorCode::ShapeMismatch || code == ErrorCode::TypeMismatch || code == ErrorCode::BadAttribute;
}

} // namespace tessera::onnx
