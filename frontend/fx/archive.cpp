#include "frontend/fx/archive.h"
#include "base/file.h"
#include "base/missing_weights.h"
#include "frontend/fx/importer.h"
#include <algorithm>
#include <cstring>
#include <numeric>

namespace tessera::fx {
namespace {

constexpr std::string_view kVersion = "0"; // of archives

Diagnostic unsupported(const std::string& what) {
  return Diagnostic(ErrorCode::UnsupportedFeature, what).note(kSaveAgain);
}

std::string_view view_of(const Storage& s) { return {reinterpret_cast<const char*>(s.data), s.bytes}; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.remove_suffix(1);
  return text;
}

// Quoted, and not the whole of it where it is long.
std::string in_quotes(std::string_view text) {
  constexpr size_t kMax = 40;
  return "'" + std::string(text.substr(0, kMax)) + (text.size() > kMax ? "..." : "") + "'";
}

std::string shape_text(const Dims& dims) {
  std::string text;
  for (int64_t d : dims) text += (text.empty() ? "" : ", ") + std::to_string(d);
  return "[" + text + "]";
}

// The layout of a tensor's elements in its storage.
struct Layout {
  Dims sizes, strides; // strides in elements
  int64_t offset = 0;  // of the first element, in elements
  int64_t count = 0;   // of elements
};

Result<Layout> layout_of(const TensorMeta& meta) {
  Layout l;
  auto constant = [](const Size& s, const char* what) -> Result<int64_t> {
    if (!s.expression.empty()) return Diagnostic(ErrorCode::BadWeights, std::string("has a symbolic ") + what);
    if (s.constant < 0)
      return Diagnostic(ErrorCode::BadWeights, std::string("has the ") + what + " " + std::to_string(s.constant) +
                                                   ", expected one of 0 or more");
    return s.constant;
  };
  for (const Size& s : meta.sizes) {
    TESSERA_ASSIGN(int64_t size, constant(s, "size"));
    l.sizes.push_back(size);
  }
  for (const Size& s : meta.strides) {
    TESSERA_ASSIGN(int64_t stride, constant(s, "stride"));
    l.strides.push_back(stride);
  }
  TESSERA_ASSIGN(l.offset, constant(meta.storage_offset, "storage offset"));
  TESSERA_ASSIGN(l.count, element_count(l.sizes));
  return l;
}

// Elements from the start of the storage to behind the last one of a tensor that has some; nothing where that number
// has no 64 bits.
std::optional<int64_t> extent(const Layout& l) {
  int64_t end = 0;
  if (__builtin_add_overflow(l.offset, 1, &end)) return {};
  for (size_t k = 0; k < l.sizes.size(); ++k) {
    int64_t step = 0;
    if (__builtin_mul_overflow(l.sizes[k] - 1, l.strides[k], &step) || __builtin_add_overflow(end, step, &end))
      return {};
  }
  return end;
}

// Dimensions of more than one element, from the outermost in memory to the innermost.
Ints by_stride(const Layout& l) {
  Ints order;
  for (size_t k = 0; k < l.sizes.size(); ++k)
    if (l.sizes[k] > 1) order.push_back(static_cast<int64_t>(k));
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return l.strides[static_cast<size_t>(a)] > l.strides[static_cast<size_t>(b)];
  });
  return order;
}

bool is_dense(const Layout& l, const Ints& order) {
  int64_t expected = 1;
  for (size_t i = order.size(); i-- > 0;) {
    auto k = static_cast<size_t>(order[i]);
    if (l.strides[k] != expected) return false;
    expected *= l.sizes[k];
  }
  return true;
}

// Elements of any strides, one after the other.
void gather(const Layout& l, size_t element_bytes, const std::byte* from, std::byte* to) {
  const size_t rank = l.sizes.size();
  Dims index(rank, 0);
  for (int64_t i = 0, at = l.offset; i < l.count; ++i) {
    std::memcpy(to + static_cast<size_t>(i) * element_bytes, from + static_cast<size_t>(at) * element_bytes,
                element_bytes);
    for (size_t k = rank; k-- > 0;) {
      at += l.strides[k];
      if (++index[k] < l.sizes[k]) break;
      at -= l.strides[k] * l.sizes[k];
      index[k] = 0;
    }
  }
}

bool all_zero_or_one(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](char c) { return c == 0 || c == 1; });
}

// A tensor of `bytes` consecutive bytes: a view, or a copy where they are not aligned or are booleans other than 0
// and 1.
Result<Tensor> from_bytes(DType dtype, Dims dims, Storage bytes) {
  const bool rewrite = dtype == DType::Bool && !all_zero_or_one(view_of(bytes));
  const auto alignment = static_cast<uintptr_t>(std::clamp(info(dtype).bits / 8, 1, 8));
  if (!rewrite && reinterpret_cast<uintptr_t>(bytes.data) % alignment == 0)
    return Tensor::view(dtype, std::move(dims), std::move(bytes));
  TESSERA_ASSIGN(Tensor out, Tensor::create(dtype, std::move(dims)));
  if (rewrite)
    std::transform(bytes.data, bytes.data + bytes.bytes, out.mutable_data(),
                   [](std::byte b) { return std::byte{b != std::byte{0}}; });
  else
    std::memcpy(out.mutable_data(), bytes.data, bytes.bytes);
  drop_pages(bytes.data, bytes.bytes);
  return out;
}

Result<StoredWeight> load(DType dtype, Layout l, const Storage& storage, ImportOptions::MissingWeights missing) {
  auto bad = [](const std::string& what) { return Diagnostic(ErrorCode::BadWeights, what); };
  const auto element_bytes = static_cast<size_t>(byte_size(dtype, 1));
  StoredWeight out;
  if (l.count == 0) {
    TESSERA_ASSIGN(out.tensor, Tensor::create(dtype, l.sizes));
    return out;
  }
  // Along dimensions of stride 0 one element stands for all.
  Dims sizes = l.sizes;
  for (size_t k = 0; k < l.sizes.size(); ++k)
    if (l.strides[k] == 0) l.sizes[k] = 1;
  if (l.sizes != sizes) out.sizes = sizes;
  TESSERA_ASSIGN(l.count, element_count(l.sizes));
  if (storage.bytes == 0) {
    if (missing == ImportOptions::MissingWeights::Refuse)
      return bad("has no bytes in the archive")
          .note("export the module with its real weights, not on the 'meta' device or as fake tensors");
    TESSERA_ASSIGN(out.tensor, missing_weight(dtype, l.sizes, missing == ImportOptions::MissingWeights::MadeUp));
    out.absent = true;
    return out;
  }
  const auto end = extent(l);
  const size_t elements = storage.bytes / element_bytes;
  if (!end || static_cast<uint64_t>(*end) > elements)
    return bad("needs " + (end ? std::to_string(*end) : "more than 2^63") + " elements of " +
               std::to_string(element_bytes) + " bytes, and its entry has " + std::to_string(storage.bytes) + " bytes");
  const Ints order = by_stride(l);
  if (!is_dense(l, order)) {
    if (static_cast<uint64_t>(l.count) > elements)
      return bad("has " + std::to_string(l.count) + " elements that overlap in an entry of " +
                 std::to_string(elements));
    TESSERA_ASSIGN(out.tensor, Tensor::create(dtype, l.sizes));
    gather(l, element_bytes, storage.data, out.tensor.mutable_data());
    if (dtype == DType::Bool) {
      const auto bytes = out.tensor.bytes();
      std::byte* data = out.tensor.mutable_data();
      std::transform(data, data + bytes, data, [](std::byte b) { return std::byte{b != std::byte{0}}; });
    }
    return out;
  }
  Dims stored = l.sizes;
  if (!std::is_sorted(order.begin(), order.end())) {
    // Dimensions of one element come first; the others follow as they lie.
    Ints memory;
    for (size_t k = 0; k < l.sizes.size(); ++k)
      if (l.sizes[k] == 1) memory.push_back(static_cast<int64_t>(k));
    memory.insert(memory.end(), order.begin(), order.end());
    out.perm.resize(memory.size());
    for (size_t i = 0; i < memory.size(); ++i) {
      stored[i] = l.sizes[static_cast<size_t>(memory[i])];
      out.perm[static_cast<size_t>(memory[i])] = static_cast<int64_t>(i);
    }
  }
  const Storage bytes{storage.owner, storage.data + static_cast<size_t>(l.offset) * element_bytes,
                      static_cast<size_t>(l.count) * element_bytes};
  TESSERA_ASSIGN(out.tensor, from_bytes(dtype, std::move(stored), bytes));
  return out;
}

} // namespace

Result<Archive> Archive::open(const std::string& path) {
  TESSERA_ASSIGN(Storage file, map_file(path));
  return from_memory(std::move(file), path);
}

Result<Archive> Archive::from_memory(Storage file, const std::string& path) {
  auto read = [&]() -> Result<Archive> {
    TESSERA_ASSIGN(Zip zip, Zip::read(std::move(file), path));
    Archive archive(std::move(zip));
    TESSERA_TRY(archive.find_root());
    TESSERA_TRY(archive.check_format());
    TESSERA_TRY(archive.find_model());
    TESSERA_TRY(archive.read_lists());
    return archive;
  };
  auto archive = read();
  if (archive.ok()) return archive;
  Location where;
  where.file = path;
  return std::move(archive).take_error().at(std::move(where));
}

Result<std::string_view> Archive::text(const std::string& name) const {
  TESSERA_ASSIGN(Storage bytes, zip_.bytes(root_ + name));
  return view_of(bytes);
}

// The folder that holds archive_format. Without one it is another kind of zip.
Status Archive::find_root() {
  constexpr std::string_view format = "archive_format";
  const std::vector<std::string> names = zip_.names();
  auto has = [&](std::string_view name) {
    return std::any_of(names.begin(), names.end(), [&](const std::string& n) {
      return n == name || (n.ends_with(name) && n[n.size() - name.size() - 1] == '/');
    });
  };
  std::vector<std::string> roots;
  for (const std::string& n : names)
    if (n.ends_with(format) && (n == format || n.find('/') == n.size() - format.size() - 1))
      roots.push_back(n.substr(0, n.size() - format.size()));
  if (roots.size() > 1)
    return Diagnostic(ErrorCode::MalformedModel, "the archive has the folders " + in_quotes(roots[0]) + " and " +
                                                     in_quotes(roots[1]) +
                                                     " with an archive_format each, expected one");
  if (roots.size() == 1) {
    root_ = roots[0];
    return {};
  }
  if (has("serialized_exported_program.json"))
    return unsupported("the file is an exported program of PyTorch 2.8 or older, which holds its weights as pickles");
  if (has("constants.pkl") && has("data.pkl"))
    return unsupported("the file is a TorchScript module (torch.jit.save), not an exported program");
  if (has("data.pkl"))
    return unsupported("the file is a checkpoint (torch.save): it holds tensors by name and no program");
  if (std::any_of(names.begin(), names.end(), [](const std::string& n) { return n.ends_with(".npy"); }))
    return unsupported("the file is an archive of NumPy arrays (.npz), not an exported program");
  return unsupported("the file is a zip without archive_format, not an exported program");
}

Status Archive::check_format() const {
  TESSERA_ASSIGN(std::string_view format, text("archive_format"));
  if (trimmed(format) != "pt2")
    return unsupported("the archive has the format " + in_quotes(trimmed(format)) + ", expected 'pt2'");
  if (zip_.has(root_ + "archive_version")) {
    TESSERA_ASSIGN(std::string_view version, text("archive_version"));
    if (trimmed(version) != kVersion)
      return unsupported("the archive has version " + in_quotes(trimmed(version)) + ", expected " +
                         in_quotes(kVersion));
  }
  if (zip_.has(root_ + "byteorder")) {
    TESSERA_ASSIGN(std::string_view order, text("byteorder"));
    if (trimmed(order) != "little")
      return Diagnostic(ErrorCode::UnsupportedFeature, "the archive's weights have the byte order " +
                                                           in_quotes(trimmed(order)) + ", expected 'little'")
          .note("export the model on a machine of little-endian byte order");
  }
  return {};
}

Status Archive::find_model() {
  const std::string folder = root_ + "models/";
  constexpr std::string_view ending = ".json";
  std::vector<std::string> models;
  bool aot = false;
  for (const std::string& n : zip_.names()) {
    aot = aot || n.starts_with(root_ + "data/aotinductor/");
    if (n.starts_with(folder) && n.ends_with(ending) && n.find('/', folder.size()) == std::string::npos)
      models.push_back(n.substr(folder.size(), n.size() - folder.size() - ending.size()));
  }
  if (models.empty() && aot) return unsupported("the archive holds code that AOTInductor compiled, and no program");
  if (models.empty()) return unsupported("the archive holds no program in '" + folder + "'");
  if (models.size() == 1) {
    model_ = models[0];
  } else if (std::find(models.begin(), models.end(), "model") != models.end()) {
    model_ = "model"; // what torch.export.save calls the one that it is given
  } else {
    std::string all;
    for (const auto& m : models) all += (all.empty() ? "" : ", ") + in_quotes(m);
    return Diagnostic(ErrorCode::UnsupportedFeature, "the archive holds " + std::to_string(models.size()) +
                                                         " programs (" + all + "), none named 'model'")
        .note("save each in an archive of its own, or name the one to run 'model'");
  }
  TESSERA_ASSIGN(program_, text("models/" + model_ + ".json"));
  return {};
}

Status Archive::read_lists() {
  for (const auto& [kind, specs] : {std::pair("weights", &weights_), std::pair("constants", &constants_)}) {
    const std::string folder = std::string("data/") + kind + "/", name = folder + model_ + "_" + kind + "_config.json";
    if (!zip_.has(root_ + name)) {
      if (zip_.has(root_ + folder + model_ + ".pt"))
        return unsupported("the archive holds its " + std::string(kind) + " as a pickle ('" + folder + model_ +
                           ".pt'), as PyTorch 2.8 writes them");
      return Diagnostic(ErrorCode::MalformedModel,
                        "the archive has no '" + root_ + name + "', the list of its " + kind);
    }
    TESSERA_ASSIGN(std::string_view json, text(name));
    TESSERA_ASSIGN(*specs, parse_payloads(json, name));
  }
  return {};
}

Result<StoredWeight> Archive::weight(const std::string& name, const TensorMeta& meta,
                                     ImportOptions::MissingWeights missing) const {
  Location where;
  where.file = zip_.path();
  auto bad = [&](const std::string& what) {
    return Diagnostic(ErrorCode::BadWeights, where, "weight '" + name + "' " + what);
  };
  const char* folder = "data/weights/";
  auto it = weights_.find(name);
  if (it == weights_.end()) {
    folder = "data/constants/";
    it = constants_.find(name);
    if (it == constants_.end()) return bad("is in neither of the archive's lists of weights and constants");
  }
  const PayloadSpec& spec = it->second;
  if (spec.pickled)
    return Diagnostic(ErrorCode::UnsupportedFeature, where,
                      "weight '" + name + "' is pickled, as tensors of subclasses are; plain bytes are expected")
        .note("turn the module's weights into plain tensors before torch.export.export");
  if (!spec.meta) return bad("has no sizes in the archive's list");
  const TensorMeta& stored = *spec.meta;
  if (!stored.dtype)
    return Diagnostic(ErrorCode::UnsupportedType, where,
                      "weight '" + name + "' has element type " + dtype_name_of_schema(stored.dtype_number) +
                          ", which is not supported");
  if (stored.dtype_number != meta.dtype_number)
    return bad("has element type " + dtype_name_of_schema(stored.dtype_number) +
               " in the archive's list, and the program says " + dtype_name_of_schema(meta.dtype_number));
  auto read = [&]() -> Result<StoredWeight> {
    TESSERA_ASSIGN(Layout layout, layout_of(stored));
    TESSERA_ASSIGN(Layout stated, layout_of(meta));
    if (layout.sizes != stated.sizes)
      return Diagnostic(ErrorCode::BadWeights, "has the shape " + shape_text(layout.sizes) +
                                                   " in the archive's list, and the program says " +
                                                   shape_text(stated.sizes));
    TESSERA_ASSIGN(Storage bytes, zip_.bytes(root_ + folder + spec.file));
    return load(*stored.dtype, std::move(layout), bytes, missing);
  };
  auto out = read();
  if (out.ok()) return out;
  Diagnostic d = std::move(out).take_error();
  d.message = "weight '" + name + "': " + d.message;
  if (d.code == ErrorCode::MalformedModel || d.code == ErrorCode::SizeOverflow) d.code = ErrorCode::BadWeights;
  return std::move(d).at(std::move(where));
}

} // namespace tessera::fx
