#include "frontend/onnx/weights.h"
#include "base/missing_weights.h"
#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace tessera::onnx {

static_assert(std::endian::native == std::endian::little, "raw data of ONNX is little-endian and is used as it lies");

namespace {

Diagnostic bad(const Location& where, const std::string& what, const std::string& message) {
  return {ErrorCode::BadWeights, where, what + " " + message};
}

std::string quoted(const std::string& name) { return "tensor '" + name + "'"; }

// The real path with a '/' at the end; empty where there is none.
std::string real_folder(const std::string& path) {
  char buffer[PATH_MAX];
  if (::realpath(path.empty() ? "." : path.c_str(), buffer) == nullptr) return "";
  std::string out = buffer;
  if (out.back() != '/') out += '/';
  return out;
}

// Booleans are bytes of 0 or 1 everywhere in Tessera; files may hold others.
bool all_zero_or_one(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](char c) { return c == 0 || c == 1; });
}

template <class To, class From>
Result<Tensor> convert(DType dtype, Dims dims, const From& values) {
  TESSERA_ASSIGN(Tensor out, Tensor::create(dtype, std::move(dims)));
  auto* to = reinterpret_cast<To*>(out.mutable_data());
  // Bit patterns and small integers arrive in wider fields; the low bits are the value.
  for (auto v : values) {
    if constexpr (std::is_same_v<To, bool>)
      *reinterpret_cast<uint8_t*>(to++) = v != 0 ? 1 : 0;
    else
      *to++ = static_cast<To>(v);
  }
  return out;
}

// The typed field that holds elements of a type, and how many entries it must have.
enum class FieldKind { Float, Int32, Int64, Double, Uint64, String };
struct FieldUse {
  FieldKind kind;
  const char* name;
  int64_t per_element = 1;
};
FieldUse field_of(DType dtype) {
  switch (dtype) {
  case DType::F32: return {FieldKind::Float, "float_data"};
  case DType::C64: return {FieldKind::Float, "float_data", 2};
  case DType::I64: return {FieldKind::Int64, "int64_data"};
  case DType::F64: return {FieldKind::Double, "double_data"};
  case DType::C128: return {FieldKind::Double, "double_data", 2};
  case DType::U32:
  case DType::U64: return {FieldKind::Uint64, "uint64_data"};
  case DType::String: return {FieldKind::String, "string_data"};
  default: return {FieldKind::Int32, "int32_data"};
  }
}

int64_t entries_in(const proto::TensorProto& t, FieldKind kind) {
  switch (kind) {
  case FieldKind::Float: return t.float_data_size();
  case FieldKind::Int32: return t.int32_data_size();
  case FieldKind::Int64: return t.int64_data_size();
  case FieldKind::Double: return t.double_data_size();
  case FieldKind::Uint64: return t.uint64_data_size();
  case FieldKind::String: return t.string_data_size();
  }
  return 0;
}

Result<Tensor> from_typed(const proto::TensorProto& t, DType dtype, Dims dims, FieldKind kind) {
  int bits = info(dtype).bits;
  switch (kind) {
  case FieldKind::Float: return convert<float>(dtype, std::move(dims), t.float_data());
  case FieldKind::Int64: return convert<int64_t>(dtype, std::move(dims), t.int64_data());
  case FieldKind::Double: return convert<double>(dtype, std::move(dims), t.double_data());
  case FieldKind::Uint64:
    if (bits == 32) return convert<uint32_t>(dtype, std::move(dims), t.uint64_data());
    return convert<uint64_t>(dtype, std::move(dims), t.uint64_data());
  case FieldKind::String: return Tensor::strings(std::move(dims), {t.string_data().begin(), t.string_data().end()});
  case FieldKind::Int32: break;
  }
  if (dtype == DType::Bool) return convert<bool>(dtype, std::move(dims), t.int32_data());
  if (bits == 32) return convert<int32_t>(dtype, std::move(dims), t.int32_data());
  if (bits == 16) return convert<uint16_t>(dtype, std::move(dims), t.int32_data());
  return convert<uint8_t>(dtype, std::move(dims), t.int32_data()); // 8 bits, and 4 or 2 packed into bytes
}

Result<uint64_t> parse_size(const std::string& text, const char* key, const Location& where, const std::string& what) {
  uint64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range)
    return bad(where, what, std::string("has an external data ") + key + " that overflows: " + text);
  if (error != std::errc() || end != text.data() + text.size())
    return bad(where, what, std::string("has an external data ") + key + " that is no number: '" + text + "'");
  return value;
}

} // namespace

std::string onnx_type_name(int data_type) {
  if (!proto::TensorProto_DataType_IsValid(data_type)) return "type " + std::to_string(data_type);
  return proto::TensorProto_DataType_Name(static_cast<proto::TensorProto_DataType>(data_type));
}

Result<DType> element_type(int data_type, const Location& where, const std::string& what) {
  if (data_type == proto::TensorProto_DataType_UNDEFINED)
    return Diagnostic(ErrorCode::MalformedModel, where, what + " has no element type");
  if (auto dtype = dtype_from_onnx(data_type)) return *dtype;
  if (!proto::TensorProto_DataType_IsValid(data_type))
    return Diagnostic(ErrorCode::MalformedModel, where,
                      what + " has element type " + std::to_string(data_type) + ", which does not exist");
  return Diagnostic(ErrorCode::UnsupportedType, where,
                    what + " has element type " + onnx_type_name(data_type) + ", which is not supported");
}

WeightLoader::WeightLoader(std::string directory, const std::string& model_path, std::shared_ptr<const void> model_file,
                           ImportOptions::MissingWeights missing)
    : directory_(std::move(directory)), model_file_(std::move(model_file)), missing_(missing) {
  if (auto root = real_folder(directory_); !root.empty()) roots_.push_back(root);
  // Download caches keep links: a model's file and its weights are then links to files that lie together elsewhere.
  char buffer[PATH_MAX];
  if (!model_path.empty() && ::realpath(model_path.c_str(), buffer) != nullptr) {
    std::string real = buffer;
    auto root = real.substr(0, real.rfind('/') + 1);
    if (std::find(roots_.begin(), roots_.end(), root) == roots_.end()) roots_.push_back(root);
  }
}

Result<Tensor> WeightLoader::without_data(DType dtype, Dims dims, int64_t bytes) {
  ++absent_;
  absent_bytes_ += bytes;
  return missing_weight(dtype, std::move(dims), missing_ == ImportOptions::MissingWeights::MadeUp);
}

std::vector<std::string> WeightLoader::files() const {
  std::vector<std::string> out;
  for (const auto& [location, file] : files_)
    if (file) out.push_back(location);
  return out;
}

Result<WeightLoader::External> WeightLoader::open_external(const std::string& location, const Location& where,
                                                           const std::string& what) {
  if (auto it = files_.find(location); it != files_.end()) return it->second;
  auto leaves = [&](const std::string& how) {
    return bad(where, what, "has external data outside of the model's folder: '" + location + "' " + how)
        .note("external data must lie in the folder of the model or below it");
  };
  if (location.empty()) return bad(where, what, "has external data without a location");
  if (location.find('\0') != std::string::npos)
    return bad(where, what, "has an external data location with a zero byte");
  std::filesystem::path path(location);
  if (path.is_absolute()) return leaves("is an absolute path");
  auto normal = path.lexically_normal();
  if (normal.empty() || *normal.begin() == "..") return leaves("leads out of it");

  std::string full = directory_.empty() ? normal.string() : directory_ + "/" + normal.string();
  char buffer[PATH_MAX];
  if (::realpath(full.c_str(), buffer) == nullptr) {
    int error = errno;
    if (error == ENOENT && missing_ != ImportOptions::MissingWeights::Refuse) return files_[location] = External{};
    return bad(where, what, "has external data that cannot be found: '" + full + "': " + std::strerror(error))
        .note("the model refers to weights in '" + location + "'; put that file next to the model");
  }
  std::string real = buffer;
  bool inside = std::any_of(roots_.begin(), roots_.end(),
                            [&](const std::string& root) { return (real + "/").starts_with(root); });
  if (!inside) return leaves("is a link to '" + real + "'");
  auto file = map_file(real, ErrorCode::BadWeights);
  if (!file.ok() && file.error().code == ErrorCode::OutOfMemory) return file.error();
  if (!file.ok()) return bad(where, what, "has external data in '" + full + "', which " + file.error().message);
  return files_[location] = std::move(file).value();
}

Result<Tensor> WeightLoader::from_raw(DType dtype, Dims dims, std::string_view raw,
                                      const std::shared_ptr<const void>& owner) {
  bool rewrite = dtype == DType::Bool && !all_zero_or_one(raw);
  auto alignment = static_cast<uintptr_t>(std::clamp(info(dtype).bits / 8, 1, 8));
  bool aligned = reinterpret_cast<uintptr_t>(raw.data()) % alignment == 0;
  if (owner != nullptr && aligned && !rewrite && !raw.empty())
    return Tensor::view(dtype, std::move(dims), {owner, reinterpret_cast<const std::byte*>(raw.data()), raw.size()});
  TESSERA_ASSIGN(Tensor out, Tensor::create(dtype, std::move(dims)));
  if (rewrite) {
    std::transform(raw.begin(), raw.end(), reinterpret_cast<char*>(out.mutable_data()), [](char c) { return c != 0; });
  } else if (!raw.empty()) {
    std::memcpy(out.mutable_data(), raw.data(), raw.size());
    if (owner != nullptr)
      copied_.push_back({out.owner(), out.data(), {owner, reinterpret_cast<const std::byte*>(raw.data()), raw.size()}});
  }
  if (owner != nullptr) drop_pages(raw.data(), raw.size());
  return out;
}

Result<Tensor> WeightLoader::from_external(const proto::TensorProto& tensor, DType dtype, Dims dims, int64_t bytes,
                                           const Location& where, const std::string& what) {
  std::string location;
  uint64_t offset = 0;
  std::optional<uint64_t> length;
  for (const auto& entry : tensor.external_data()) {
    if (entry.key() == "location") location = entry.value();
    if (entry.key() == "offset") {
      TESSERA_ASSIGN(offset, parse_size(entry.value(), "offset", where, what));
    }
    if (entry.key() == "length") {
      TESSERA_ASSIGN(length, parse_size(entry.value(), "length", where, what));
    }
  }
  auto need = static_cast<uint64_t>(bytes);
  if (length && *length != need)
    return bad(where, what,
               "needs " + std::to_string(need) + " bytes, and its external data has " + std::to_string(*length));
  TESSERA_ASSIGN(External external, open_external(location, where, what));
  if (!external) return without_data(dtype, std::move(dims), bytes);
  std::string_view all(reinterpret_cast<const char*>(external->data), external->bytes);
  if (all.starts_with("version https://git-lfs.github.com/"))
    return bad(where, what, "has external data in '" + location + "', which is a Git LFS pointer")
        .note("`git lfs pull` in the model's repository gets the weights");
  if (offset > all.size() || need > all.size() - offset)
    return bad(where, what,
               "reaches beyond the end of '" + location + "': " + std::to_string(need) + " bytes at offset " +
                   std::to_string(offset) + ", and the file has " + std::to_string(all.size()))
        .note("the file is short: it was cut off, or belongs to another model");
  return from_raw(dtype, std::move(dims), all.substr(offset, need), external->owner);
}

Result<Tensor> WeightLoader::load(const proto::TensorProto& tensor, const Location& where, std::string_view raw) {
  std::string what = quoted(tensor.name());
  TESSERA_ASSIGN(DType dtype, element_type(tensor.data_type(), where, what));
  if (tensor.dims_size() > kMaxRank)
    return Diagnostic(ErrorCode::UnsupportedFeature, where,
                      what + " has " + std::to_string(tensor.dims_size()) + " dimensions; at most " +
                          std::to_string(kMaxRank) + " are supported");
  Dims dims(tensor.dims().begin(), tensor.dims().end());
  for (int64_t d : dims)
    if (d < 0) return bad(where, what, "has a negative dimension: " + std::to_string(d));
  auto counted = element_count(dims);
  // Bits must not overflow either, in byte_size().
  if (!counted.ok() || *counted > std::numeric_limits<int64_t>::max() / 128)
    return Diagnostic(ErrorCode::SizeOverflow, where, what + " has more elements than can be addressed");
  int64_t count = *counted, bytes = byte_size(dtype, count);
  if (tensor.has_segment()) return bad(where, what, "is stored in segments, which ONNX does not define how to join");

  if (tensor.data_location() == proto::TensorProto::EXTERNAL) {
    if (dtype == DType::String) return bad(where, what, "has strings as external data");
    return from_external(tensor, dtype, std::move(dims), bytes, where, what);
  }
  if (tensor.has_raw_data() || !raw.empty()) {
    if (dtype == DType::String) return bad(where, what, "has strings as raw data");
    if (tensor.has_raw_data() && !raw.empty()) return bad(where, what, "has raw data twice");
    bool in_file = !raw.empty();
    std::string_view data = in_file ? raw : std::string_view(tensor.raw_data());
    if (static_cast<int64_t>(data.size()) != bytes)
      return bad(where, what,
                 "needs " + std::to_string(bytes) + " bytes, and its raw data has " + std::to_string(data.size()));
    return from_raw(dtype, std::move(dims), data, in_file ? model_file_ : nullptr);
  }
  FieldUse field = field_of(dtype);
  bool packed = dtype != DType::String && info(dtype).bits < 8;
  int64_t want = packed ? bytes : count * field.per_element, have = entries_in(tensor, field.kind);
  if (have == 0 && want != 0) {
    if (missing_ != ImportOptions::MissingWeights::Refuse && dtype != DType::String)
      return without_data(dtype, std::move(dims), bytes);
    return bad(where, what,
               "has no data; " + std::to_string(count) + " elements of " + std::string(name(dtype)) +
                   " are expected as raw_data or " + field.name);
  }
  if (have != want)
    return bad(where, what,
               "needs " + std::to_string(want) + " entries in " + field.name + ", and there are " +
                   std::to_string(have));
  return from_typed(tensor, dtype, std::move(dims), field.kind);
}

Result<Tensor> WeightLoader::load_sparse(const proto::SparseTensorProto& sparse, const Location& where) {
  std::string what = "sparse " + quoted(sparse.values().name());
  TESSERA_ASSIGN(Tensor values, load(sparse.values(), where));
  TESSERA_ASSIGN(Tensor indices, load(sparse.indices(), where));
  Dims dims(sparse.dims().begin(), sparse.dims().end());
  if (dims.size() > kMaxRank) return bad(where, what, "has too many dimensions");
  auto counted = element_count(dims);
  if (!counted.ok())
    return Diagnostic(ErrorCode::SizeOverflow, where, what + " has more elements than can be addressed");
  DType dtype = values.dtype();
  if (dtype == DType::String || info(dtype).bits < 8)
    return Diagnostic(ErrorCode::UnsupportedType, where,
                      what + " of " + std::string(name(dtype)) + " is not supported");
  int64_t element = info(dtype).bits / 8, rank = static_cast<int64_t>(dims.size()), entries = values.count();
  if (*counted > kMaxDenseBytes / element)
    return Diagnostic(ErrorCode::UnsupportedFeature, where,
                      what + " would take more than " + std::to_string(kMaxDenseBytes >> 30) + " GiB when made dense");
  if (values.data() == nullptr || indices.data() == nullptr) {
    if (entries != 0) return bad(where, what, "has no data");
  }
  if (values.dims().size() != 1) return bad(where, what, "has values that are no vector");
  bool linear = indices.dims().size() == 1;
  if (indices.dtype() != DType::I64 || indices.count() != (linear ? entries : entries * rank) ||
      (!linear && indices.dims() != Dims{entries, rank}))
    return bad(where, what,
               "has indices that are neither i64[" + std::to_string(entries) + "] nor i64[" + std::to_string(entries) +
                   ", " + std::to_string(rank) + "]");
  TESSERA_ASSIGN(Tensor dense, Tensor::create(dtype, dims, true));
  auto index = indices.as<int64_t>();
  for (int64_t e = 0; e < entries; ++e) {
    int64_t flat = 0;
    bool inside = true;
    if (linear) {
      flat = index[static_cast<size_t>(e)];
      inside = flat >= 0 && flat < *counted;
    } else {
      for (int64_t d = 0; d < rank && inside; ++d) {
        int64_t i = index[static_cast<size_t>(e * rank + d)], extent = dims[static_cast<size_t>(d)];
        inside = i >= 0 && i < extent;
        if (inside) flat = flat * extent + i;
      }
    }
    if (!inside) return bad(where, what, "has an index outside of its dimensions, at entry " + std::to_string(e));
    std::memcpy(dense.mutable_data() + flat * element, values.data() + e * element, static_cast<size_t>(element));
  }
  return dense;
}

} // namespace tessera::onnx
