#include "frontend/onnx/model_proto.h"
#include <algorithm>
#include <deque>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream.h>
#include <limits>

namespace tessera::onnx {

namespace {

// Fields shorter than this stay in the message.
constexpr size_t kLongField = 1024;
constexpr uint64_t kProtobufLimit = std::numeric_limits<int32_t>::max();

// Field numbers on the way to the weights (onnx-ml.proto).
constexpr uint32_t kModelGraph = proto::ModelProto::kGraphFieldNumber;
constexpr uint32_t kGraphInitializer = proto::GraphProto::kInitializerFieldNumber;
constexpr uint32_t kTensorRawData = proto::TensorProto::kRawDataFieldNumber;

// The message as a list of pieces: parts of the original and new length prefixes.
struct Pieces {
  std::vector<std::string_view> list;
  std::deque<std::string>* prefixes; // a deque keeps its strings where they are
  uint64_t size = 0;

  void append(std::string_view piece) {
    if (piece.empty()) return;
    size += piece.size();
    if (!list.empty() && list.back().data() + list.back().size() == piece.data())
      list.back() = {list.back().data(), list.back().size() + piece.size()};
    else
      list.push_back(piece);
  }
  void append_message(uint32_t field, const Pieces& content) {
    std::string prefix;
    auto varint = [&prefix](uint64_t v) {
      for (; v >= 128; v >>= 7) prefix.push_back(static_cast<char>((v & 127) | 128));
      prefix.push_back(static_cast<char>(v));
    };
    varint(field << 3 | 2);
    varint(content.size);
    prefixes->push_back(std::move(prefix));
    append(prefixes->back());
    for (auto piece : content.list) append(piece);
  }
};

struct Field {
  uint32_t number = 0;
  bool is_message = false;  // length-delimited
  std::string_view whole;   // tag and all
  std::string_view content; // of a length-delimited field
};

// Reads the next field off `rest`; false where the bytes are no wire format, or use groups, which ONNX has never had.
bool next_field(std::string_view& rest, Field& field) {
  size_t at = 0;
  auto varint = [&](uint64_t& v) {
    v = 0;
    for (int shift = 0; shift < 70 && at < rest.size(); shift += 7) {
      auto byte = static_cast<unsigned char>(rest[at++]);
      if (shift < 64) v |= static_cast<uint64_t>(byte & 127) << shift;
      if (byte < 128) return true;
    }
    return false;
  };
  uint64_t tag = 0, length = 0;
  if (!varint(tag) || tag >> 3 == 0 || tag >> 3 > (1u << 29)) return false;
  field.number = static_cast<uint32_t>(tag >> 3);
  field.is_message = (tag & 7) == 2;
  switch (tag & 7) {
  case 0:
    if (!varint(length)) return false;
    length = 0;
    break;
  case 1: length = 8; break;
  case 2:
    if (!varint(length)) return false;
    break;
  case 5: length = 4; break;
  default: return false;
  }
  if (length > rest.size() - at) return false;
  field.content = rest.substr(at, length);
  field.whole = rest.substr(0, at + length);
  rest.remove_prefix(at + length);
  return true;
}

struct Splitter {
  std::deque<std::string> prefixes;
  std::vector<std::string_view> raw;
  const char* broken_at = nullptr; // set once, where the walk could not go on

  Pieces empty() { return {{}, &prefixes, 0}; }

  Pieces tensor(std::string_view rest) {
    Pieces out = empty();
    raw.emplace_back();
    for (Field f; !rest.empty();) {
      if (!next_field(rest, f)) return broken(rest, out);
      if (f.number == kTensorRawData && f.is_message && f.content.size() >= kLongField)
        raw.back() = f.content;
      else
        out.append(f.whole);
    }
    return out;
  }
  Pieces graph(std::string_view rest) {
    Pieces out = empty();
    for (Field f; !rest.empty() && broken_at == nullptr;) {
      if (!next_field(rest, f)) return broken(rest, out);
      if (f.number == kGraphInitializer && f.is_message)
        out.append_message(f.number, tensor(f.content));
      else
        out.append(f.whole);
    }
    return out;
  }
  Pieces model(std::string_view rest) {
    Pieces out = empty();
    for (Field f; !rest.empty() && broken_at == nullptr;) {
      if (!next_field(rest, f)) return broken(rest, out);
      if (f.number == kModelGraph && f.is_message)
        out.append_message(f.number, graph(f.content));
      else
        out.append(f.whole);
    }
    return out;
  }
  Pieces broken(std::string_view rest, Pieces& out) {
    if (broken_at == nullptr) broken_at = rest.data();
    return std::move(out);
  }
};

class PieceStream final : public google::protobuf::io::ZeroCopyInputStream {
public:
  explicit PieceStream(const std::vector<std::string_view>& pieces) : pieces_(pieces) {}
  bool Next(const void** data, int* size) override {
    if (next_ == pieces_.size()) return false;
    auto piece = pieces_[next_++].substr(back_up_from_);
    back_up_from_ = 0;
    *data = piece.data();
    *size = static_cast<int>(piece.size());
    count_ += *size;
    return true;
  }
  void BackUp(int count) override {
    back_up_from_ = pieces_[--next_].size() - static_cast<size_t>(count);
    count_ -= count;
  }
  bool Skip(int count) override {
    const void* data = nullptr;
    for (int size = 0; count > 0; count -= size) {
      if (!Next(&data, &size)) return false;
      if (size > count) {
        BackUp(size - count);
        return true;
      }
    }
    return true;
  }
  [[nodiscard]] int64_t ByteCount() const override { return count_; }

private:
  const std::vector<std::string_view>& pieces_;
  size_t next_ = 0, back_up_from_ = 0;
  int64_t count_ = 0;
};

Location in_file(const std::string& file) {
  Location where;
  where.file = file;
  return where;
}

Status parse_pieces(const Pieces& pieces, google::protobuf::MessageLite& message, const std::string& file) {
  if (pieces.size > kProtobufLimit)
    return Diagnostic(ErrorCode::UnsupportedFeature, in_file(file), "is a protobuf above 2 GiB")
        .note("save the model with its weights as external data");
  PieceStream stream(pieces.list);
  google::protobuf::io::CodedInputStream coded(&stream);
  coded.SetRecursionLimit(kMaxMessageDepth);
  if (!message.ParsePartialFromCodedStream(&coded) || !coded.ConsumedEntireMessage())
    return Diagnostic(ErrorCode::MalformedModel, in_file(file), "is not a valid ONNX protobuf")
        .note("it is damaged, of another kind, or nested deeper than " + std::to_string(kMaxMessageDepth) +
              " messages");
  return {};
}

} // namespace

Result<ParsedModel> parse_model(std::string_view bytes, const std::string& file) {
  if (bytes.empty()) return Diagnostic(ErrorCode::MalformedModel, in_file(file), "is empty");
  Splitter split;
  Pieces pieces = split.model(bytes);
  if (split.broken_at != nullptr)
    return Diagnostic(ErrorCode::MalformedModel, in_file(file),
                      "is not a valid ONNX protobuf: damaged or cut off at byte " +
                          std::to_string(split.broken_at - bytes.data()) + " of " + std::to_string(bytes.size()));
  ParsedModel out;
  out.model = std::make_unique<proto::ModelProto>();
  TESSERA_TRY(parse_pieces(pieces, *out.model, file));
  out.raw = std::move(split.raw);
  out.raw.resize(static_cast<size_t>(out.model->graph().initializer_size()));
  return out;
}

Status parse_message(std::string_view bytes, google::protobuf::MessageLite& message, const std::string& file) {
  std::deque<std::string> prefixes;
  Pieces pieces{{}, &prefixes, 0};
  pieces.append(bytes);
  return parse_pieces(pieces, message, file);
}

} // namespace tessera::onnx
