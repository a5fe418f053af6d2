#include "runtime/cuda/cudnn_choice.h"
#include <charconv>

namespace tessera::cuda {
namespace {

struct FormWord {
  const char* word;
  bool ConvForm::*field;
};
constexpr FormWord kForms[] = {{"fused", &ConvForm::fused},
                               {"compiled", &ConvForm::compiled},
                               {"residual_is_result", &ConvForm::residual_is_result},
                               {"zero_bias", &ConvForm::zero_bias}};

std::optional<int64_t> number(std::string_view text) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return n;
}

std::string_view next_word(std::string_view& text) {
  const size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

} // namespace

std::string text_of(const std::optional<ConvChoice>& choice) {
  if (!choice) return "none";
  std::string out;
  for (const auto& [word, field] : kForms)
    if (choice->form.*field) out += std::string(word) + " ";
  out += "engine " + std::to_string(choice->engine.engine) + " knobs";
  for (const auto& [type, value] : choice->engine.knobs)
    out += " " + std::to_string(type) + "=" + std::to_string(value);
  return out;
}

std::optional<std::optional<ConvChoice>> parse_conv_choice(std::string_view text) {
  if (text == "none") return std::optional<ConvChoice>();
  ConvChoice c;
  std::string_view word = next_word(text);
  for (const auto& [name, field] : kForms)
    if (word == name) {
      c.form.*field = true;
      word = next_word(text);
    }
  if (word != "engine") return std::nullopt;
  const auto engine = number(next_word(text));
  if (!engine || next_word(text) != "knobs") return std::nullopt;
  c.engine.engine = *engine;
  while (!text.empty()) {
    word = next_word(text);
    const size_t equals = std::min(word.find('='), word.size());
    const auto type = number(word.substr(0, equals));
    const auto value = number(word.substr(std::min(equals + 1, word.size())));
    if (!type || !value) return std::nullopt;
    c.engine.knobs.emplace_back(*type, *value);
  }
  return std::optional(std::move(c));
}

} // namespace tessera::cuda
