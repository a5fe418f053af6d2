// The .npy format: "\x93NUMPY", version, length of the header, the header (a Python dict), the data.
#include "base/file.h"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/stat.h>

namespace tessera {
namespace {
constexpr char kMagic[] = "\x93NUMPY";
constexpr size_t kMaxHeader = 1 << 20;

struct Header {
  std::string descr;
  bool fortran = false;
  Dims shape;
};

// Reads the dict literal that numpy writes: string keys; a string, a bool and a tuple of integers as values.
class HeaderParser {
public:
  explicit HeaderParser(std::string_view text) : s_(text) {}
  bool parse(Header& h) {
    bool descr = false, order = false, shape = false;
    if (!eat('{')) return false;
    while (!eat('}')) {
      std::string key;
      if (!string(key) || !eat(':')) return false;
      if (key == "descr")
        descr = string(h.descr);
      else if (key == "fortran_order")
        order = boolean(h.fortran);
      else if (key == "shape")
        shape = tuple(h.shape);
      else
        return false;
      if (!eat(',') && !peek('}')) return false;
    }
    return descr && order && shape;
  }

private:
  void space() {
    while (at_ < s_.size() && (s_[at_] == ' ' || s_[at_] == '\n')) ++at_;
  }
  bool peek(char c) {
    space();
    return at_ < s_.size() && s_[at_] == c;
  }
  bool eat(char c) { return peek(c) && ++at_; }
  bool word(std::string_view w) {
    space();
    if (s_.substr(at_, w.size()) != w) return false;
    at_ += w.size();
    return true;
  }
  bool string(std::string& out) {
    space();
    if (at_ >= s_.size() || (s_[at_] != '\'' && s_[at_] != '"')) return false;
    size_t end = s_.find(s_[at_], at_ + 1);
    if (end == std::string_view::npos) return false;
    out = s_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return true;
  }
  bool boolean(bool& out) {
    if (word("True")) return out = true;
    out = false;
    return word("False");
  }
  bool tuple(Dims& out) {
    if (!eat('(')) return false;
    while (!eat(')')) {
      space();
      int64_t v = 0;
      size_t digits = 0;
      for (; at_ < s_.size() && s_[at_] >= '0' && s_[at_] <= '9' && digits < 18; ++at_, ++digits)
        v = v * 10 + (s_[at_] - '0');
      if (digits == 0) return false;
      if (at_ < s_.size() && s_[at_] == 'L') ++at_; // Python 2
      out.push_back(v);
      if (!eat(',') && !peek(')')) return false;
    }
    return true;
  }
  std::string_view s_;
  size_t at_ = 0;
};

void append_utf8(std::string& out, uint32_t c) {
  if (c < 0x80)
    out += static_cast<char>(c);
  else if (c < 0x800)
    (out += static_cast<char>(0xc0 | (c >> 6))) += static_cast<char>(0x80 | (c & 63));
  else if (c < 0x10000)
    ((out += static_cast<char>(0xe0 | (c >> 12))) += static_cast<char>(0x80 | ((c >> 6) & 63))) +=
        static_cast<char>(0x80 | (c & 63));
  else
    (((out += static_cast<char>(0xf0 | (c >> 18))) += static_cast<char>(0x80 | ((c >> 12) & 63))) +=
     static_cast<char>(0x80 | ((c >> 6) & 63))) += static_cast<char>(0x80 | (c & 63));
}
// Code points; a byte that is no UTF-8 stands for itself.
std::vector<uint32_t> code_points(const std::string& s) {
  std::vector<uint32_t> out;
  for (size_t i = 0; i < s.size();) {
    uint8_t b = static_cast<uint8_t>(s[i]);
    int more = b >= 0xf0 && b < 0xf8 ? 3 : b >= 0xe0 ? 2 : b >= 0xc0 ? 1 : 0;
    if (b >= 0xf8) more = 0;
    uint32_t c = more == 3 ? b & 7 : more == 2 ? b & 15 : more == 1 ? b & 31 : b;
    bool good = i + static_cast<size_t>(more) < s.size();
    for (int k = 1; good && k <= more; ++k) {
      uint8_t n = static_cast<uint8_t>(s[i + static_cast<size_t>(k)]);
      good = (n & 0xc0) == 0x80;
      c = c << 6 | (n & 63);
    }
    out.push_back(good ? c : b);
    i += good ? static_cast<size_t>(more) + 1 : 1;
  }
  return out;
}

// Row-major copy of `count` elements of `size` bytes stored in column-major order.
void from_fortran(std::vector<std::byte>& data, const Dims& dims, size_t size) {
  std::vector<std::byte> out(data.size());
  std::vector<int64_t> at(dims.size(), 0), stride(dims.size());
  int64_t step = 1;
  for (size_t k = 0; k < dims.size(); ++k) stride[k] = step, step *= dims[k];
  int64_t count = static_cast<int64_t>(data.size() / std::max<size_t>(size, 1));
  int64_t from = 0;
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(&out[static_cast<size_t>(i) * size], &data[static_cast<size_t>(from) * size], size);
    for (size_t k = dims.size(); k-- > 0;) {
      from += stride[k];
      if (++at[k] < dims[k]) break;
      from -= stride[k] * at[k];
      at[k] = 0;
    }
  }
  data = std::move(out);
}

std::optional<DType> dtype_of_descr(std::string_view descr) {
  if (descr.size() < 2) return std::nullopt;
  for (int i = 0; i < kDTypeCount; ++i) {
    std::string_view numpy = info(static_cast<DType>(i)).numpy;
    if (!numpy.empty() && numpy.substr(1) == descr.substr(1)) return static_cast<DType>(i);
  }
  return std::nullopt;
}

// "<U12" and "|S7": fixed-length strings, zero-padded.
std::optional<size_t> string_length(std::string_view descr) {
  if (descr.size() < 3 || descr.size() > 9 || (descr[1] != 'U' && descr[1] != 'S')) return std::nullopt;
  size_t n = 0;
  for (char c : descr.substr(2)) {
    if (c < '0' || c > '9') return std::nullopt;
    n = n * 10 + static_cast<size_t>(c - '0');
  }
  return n;
}
} // namespace

Result<Tensor> read_npy(const std::string& path) {
  Location where{.file = path};
  auto corrupt = [&](std::string what) {
    return Diagnostic(ErrorCode::BadInput, where, "not a valid .npy file: " + std::move(what));
  };
  TESSERA_ASSIGN(auto file, open_file(path));
  struct stat st {};
  if (::fstat(file.get(), &st) != 0) return file_error(ErrorCode::FileError, path, "examine", errno);
  size_t start = 0; // bytes read
  // Whether so many bytes were there; an error where the system would not read them.
  auto read = [&](void* to, size_t bytes) -> Result<bool> {
    TESSERA_ASSIGN(size_t n, read_some(file, path, to, bytes));
    start += n;
    return n == bytes;
  };
  unsigned char head[12];
  TESSERA_ASSIGN(bool whole, read(head, 10));
  if (!whole || std::memcmp(head, kMagic, 6) != 0) return corrupt("no NUMPY header");
  size_t length = head[8] | static_cast<size_t>(head[9]) << 8;
  if (head[6] < 1 || head[6] > 3) return corrupt("version " + std::to_string(head[6]));
  if (head[6] >= 2) {
    TESSERA_ASSIGN(whole, read(head + 10, 2));
    if (!whole) return corrupt("it is cut short");
    length |= static_cast<size_t>(head[10]) << 16 | static_cast<size_t>(head[11]) << 24;
  }
  if (length > kMaxHeader) return corrupt("its header has " + std::to_string(length) + " bytes");
  std::string text(length, '\0');
  TESSERA_ASSIGN(whole, read(text.data(), length));
  if (!whole) return corrupt("it is cut short");
  Header header;
  if (!HeaderParser(text).parse(header)) return corrupt("its header does not parse");
  std::optional<DType> dtype = dtype_of_descr(header.descr);
  const std::optional<size_t> length_of_string = string_length(header.descr);
  const size_t chars = length_of_string.value_or(0);
  if (!dtype && !length_of_string)
    return Diagnostic(ErrorCode::UnsupportedType, where, "elements of type '" + header.descr + "'");
  auto count = element_count(header.shape);
  if (!count.ok()) return std::move(count).take_error().at(where);
  const size_t size = dtype ? static_cast<size_t>(info(*dtype).bits) / 8 : chars * (header.descr[1] == 'U' ? 4 : 1);
  const size_t have = std::max(static_cast<size_t>(st.st_size), start) - start;
  if (size > 0 && static_cast<size_t>(*count) > have / size)
    return corrupt("it has " + std::to_string(have) + " bytes of data, its header promises " + std::to_string(*count) +
                   " elements of " + std::to_string(size));
  const size_t bytes = size * static_cast<size_t>(*count);
  const bool swap = header.descr[0] == '>', shuffled = header.fortran && header.shape.size() > 1;
  if (dtype && !swap && !shuffled) {
    TESSERA_ASSIGN(Tensor t, Tensor::create(*dtype, std::move(header.shape)));
    TESSERA_ASSIGN(whole, read(t.mutable_data(), bytes));
    if (!whole) return corrupt("it is cut short");
    return t;
  }
  std::vector<std::byte> data(bytes);
  TESSERA_ASSIGN(whole, read(data.data(), bytes));
  if (!whole) return corrupt("it is cut short");
  if (swap) {
    size_t unit = !dtype ? 4 : info(*dtype).kind == DTypeKind::Complex ? size / 2 : size;
    if (dtype || header.descr[1] == 'U')
      for (size_t i = 0; i + unit <= bytes; i += unit) std::reverse(&data[i], &data[i] + unit);
  }
  if (shuffled) from_fortran(data, header.shape, size);
  if (dtype) {
    TESSERA_ASSIGN(Tensor t, Tensor::create(*dtype, std::move(header.shape)));
    std::copy(data.begin(), data.end(), t.mutable_data());
    return t;
  }
  std::vector<std::string> strings(static_cast<size_t>(*count));
  for (size_t i = 0; i < strings.size(); ++i) {
    if (header.descr[1] == 'S') {
      const char* p = reinterpret_cast<const char*>(data.data() + i * size);
      strings[i].assign(p, strnlen(p, size));
      continue;
    }
    for (size_t k = 0; k < chars; ++k) {
      uint32_t c;
      std::memcpy(&c, data.data() + i * size + k * 4, 4);
      if (c == 0) break;
      append_utf8(strings[i], c);
    }
  }
  return Tensor::strings(std::move(header.shape), std::move(strings));
}

Result<Tensor> read_npy(const std::string& path, DType as) {
  TESSERA_ASSIGN(Tensor t, read_npy(path));
  const DTypeInfo& want = info(as);
  if (!want.numpy.empty() || as == DType::String) return t;
  if (want.bits == info(t.dtype()).bits && info(t.dtype()).kind == DTypeKind::Unsigned) return t.reinterpreted(as);
  if (want.bits >= 8 || t.dtype() != DType::U8) return t;
  TESSERA_ASSIGN(Tensor packed, Tensor::create(as, t.dims(), true));
  for (int64_t i = 0; i < t.count(); ++i) {
    int64_t at = i * want.bits;
    packed.mutable_data()[at / 8] |= static_cast<std::byte>((t.get_i64(i) & ((1 << want.bits) - 1)) << (at % 8));
  }
  return packed;
}

Status write_npy(const std::string& path, const Tensor& tensor) {
  if (tensor.dtype() == DType::List)
    return Diagnostic(ErrorCode::UnsupportedType, "'" + path + "': a list (a sequence, optional or map) is no array");
  const DTypeInfo& type = info(tensor.dtype());
  std::string descr(type.numpy);
  std::vector<uint8_t> other; // data that is not the tensor's own bytes
  if (tensor.dtype() == DType::String) {
    std::vector<std::vector<uint32_t>> all;
    size_t longest = 1;
    for (const std::string& s : tensor.string_values())
      longest = std::max(longest, all.emplace_back(code_points(s)).size());
    descr = "<U" + std::to_string(longest);
    other.resize(all.size() * longest * 4);
    for (size_t i = 0; i < all.size(); ++i)
      if (!all[i].empty()) std::memcpy(&other[i * longest * 4], all[i].data(), all[i].size() * 4);
  } else if (type.bits < 8) {
    descr = "|u1";
    other.resize(static_cast<size_t>(tensor.count()));
    for (int64_t i = 0; i < tensor.count(); ++i) {
      int64_t at = i * type.bits;
      other[static_cast<size_t>(i)] = static_cast<uint8_t>(
          (std::to_integer<unsigned>(tensor.data()[at / 8]) >> (at % 8)) & ((1u << type.bits) - 1));
    }
  } else if (descr.empty())
    descr = type.bits == 16 ? "<u2" : "|u1";
  std::string shape;
  for (int64_t d : tensor.dims()) shape += std::to_string(d) + ", ";
  if (tensor.dims().size() > 1)
    shape.resize(shape.size() - 2);
  else if (!shape.empty())
    shape.pop_back();
  std::string header = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  const bool long_header = header.size() > 0xffff;
  if (long_header)
    return Diagnostic(ErrorCode::UnsupportedFeature, Location{.file = path}, "too many dimensions for a .npy file");
  char head[10] = {'\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0};
  head[8] = static_cast<char>(header.size() & 255);
  head[9] = static_cast<char>(header.size() >> 8);
  const void* data = other.empty() ? static_cast<const void*>(tensor.data()) : other.data();
  const size_t bytes = tensor.dtype() == DType::String || type.bits < 8 ? other.size() : tensor.bytes();
  return write_file(
      path, {std::string_view(head, sizeof head), header, std::string_view(static_cast<const char*>(data), bytes)});
}

} // namespace tessera
