// Which engine of cuDNN computes a convolution and how, as a value: made for some sizes, used for others and by later
// processes. As text:
//
//   "fused zero_bias engine 34 knobs 2=5 13=1"    knobs: type = value, as the library numbers them
//   "none"                                        no engine
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::cuda {

struct EngineChoice {
  int64_t engine = 0;                             // its global index
  std::vector<std::pair<int64_t, int64_t>> knobs; // type, value; in the library's order
  bool operator==(const EngineChoice&) const = default;
};

// The form in which the library is given a convolution.
struct ConvForm {
  bool fused = false;    // with its epilogue
  bool compiled = false; // engines that are compiled at run time are taken, too
  // With a residual that is the result itself, times 0; with a bias of zeros.
  bool residual_is_result = false, zero_bias = false;
  bool operator==(const ConvForm&) const = default;
};
struct ConvChoice {
  ConvForm form;
  EngineChoice engine;
  bool operator==(const ConvChoice&) const = default;
};

[[nodiscard]] std::string text_of(const std::optional<ConvChoice>& choice);
// Nothing where the text is no such text.
[[nodiscard]] std::optional<std::optional<ConvChoice>> parse_conv_choice(std::string_view text);

} // namespace tessera::cuda
