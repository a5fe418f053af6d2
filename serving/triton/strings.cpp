// Calls of models that have strings. Triton passes a tensor of strings as BYTES: of each element its length, 4 bytes with
// the lowest first, then its bytes; the C interface takes such a model's values as items (tessera_run_items()).
#include "serving/triton/instance.h"
#include <cstring>
#include <deque>

namespace tessera::triton {

namespace {

struct Strings {
  std::vector<const char*> texts;
  std::vector<size_t> bytes;
};

Error parse(const Value& value, const std::byte* data, size_t bytes, size_t count, Strings& out) {
  for (size_t at = 0; at < bytes;) {
    uint32_t length = 0;
    if (bytes - at < sizeof length)
      return invalid("input '" + value.name + "' ends within the length of element " +
                     std::to_string(out.texts.size()));
    for (size_t i = 0; i < sizeof length; ++i) length |= std::to_integer<uint32_t>(data[at + i]) << (8 * i);
    at += sizeof length;
    if (bytes - at < length)
      return invalid("input '" + value.name + "' ends within element " + std::to_string(out.texts.size()) + " of " +
                     std::to_string(length) + " bytes");
    out.texts.push_back(reinterpret_cast<const char*>(data + at));
    out.bytes.push_back(length);
    at += length;
  }
  if (out.texts.size() != count)
    return invalid("input '" + value.name + "' has " + std::to_string(out.texts.size()) +
                   " strings, and its dimensions are those of " + std::to_string(count));
  return nullptr;
}

size_t count_of(const Dims& dims) {
  size_t count = 1;
  for (int64_t d : dims) count *= static_cast<size_t>(d);
  return count;
}

} // namespace

Error Instance::call_with_strings(Group group) {
  const Interface& model = model_.interface();
  std::vector<tessera_item> items;
  std::vector<Dims> dims;
  std::deque<Strings> strings; // items point into them
  for (size_t i = 0; i < model.inputs.size(); ++i) {
    Place place;
    const void* data = nullptr;
    TESSERA_TRITON_TRY(gather(group, i, place, &data));
    dims.push_back(group_dims(group, i, model_.batched()));
    tessera_item& item = items.emplace_back();
    item.struct_size = sizeof item;
    item.kind = TESSERA_TENSOR;
    item.tensor = {model.inputs[i].name.c_str(), model.inputs[i].onnx, static_cast<int32_t>(dims.back().size()),
                   nullptr, const_cast<void*>(data)};
  }
  TESSERA_TRITON_TRY(copies_->wait());
  for (size_t i = 0; i < items.size(); ++i) {
    items[i].tensor.dims = dims[i].data();
    if (model.inputs[i].onnx != TESSERA_STRING) continue;
    size_t bytes = 0;
    for (const Request& r : group) bytes += r.inputs()[i].bytes;
    Strings& parsed = strings.emplace_back();
    TESSERA_TRITON_TRY(
        parse(model.inputs[i], static_cast<const std::byte*>(items[i].tensor.data), bytes, count_of(dims[i]), parsed));
    items[i].tensor.data = nullptr;
    items[i].strings = parsed.texts.data();
    items[i].string_bytes = parsed.bytes.data();
  }
  const tessera_item* outputs = nullptr;
  int32_t count = 0;
  TESSERA_TRITON_TRY(from_tessera(
      tessera_run_items(session_.get(), items.data(), static_cast<int32_t>(items.size()), &outputs, &count)));
  for (size_t o = 0; o < results_.size(); ++o) {
    const tessera_item& item = outputs[o];
    Produced& result = results_[o];
    result.dims.assign(item.tensor.dims, item.tensor.dims + item.tensor.rank);
    TESSERA_TRITON_TRY(check_rows(group, o, result.dims));
    result.data = item.tensor.data;
    if (model.outputs[o].onnx == TESSERA_STRING)
      for (size_t s = 0; s < count_of(result.dims); ++s)
        result.strings.emplace_back(item.strings[s],
                                    item.string_bytes ? item.string_bytes[s] : std::strlen(item.strings[s]));
  }
  return nullptr;
}

Error Instance::deliver_strings(Group group, size_t output) {
  const Produced& result = results_[output];
  size_t first = 0;
  for (Request& r : group) {
    Dims dims = result.dims;
    if (model_.batched()) dims.front() = r.rows();
    const auto own = std::span(result.strings).subspan(first, count_of(dims));
    first += own.size();
    if (!r.wants(output)) continue;
    std::string all;
    for (std::string_view text : own) {
      const auto length = static_cast<uint32_t>(text.size());
      if (length != text.size()) return invalid("a string of " + std::to_string(text.size()) + " bytes is no BYTES");
      for (size_t i = 0; i < sizeof length; ++i) all += static_cast<char>(length >> (8 * i) & 0xff);
      all += text;
    }
    void* to = nullptr;
    Place place;
    TESSERA_TRITON_TRY(r.output(model_.interface().outputs[output], dims, all.size(), &to, place));
    TESSERA_TRITON_TRY(copies_->copy(to, place, all.data(), {}, all.size()));
    TESSERA_TRITON_TRY(copies_->wait()); // `all` goes
  }
  return nullptr;
}

} // namespace tessera::triton
