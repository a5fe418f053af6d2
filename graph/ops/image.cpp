// ImageDecoder: pixels of a compressed image, on the host. Debian's libraries decode; BMP and PNM are read here. Sizes
// are checked before anything is allocated for them: an image may have kMaxPixels pixels at most.
//
// libtiff is not linked but loaded when the first TIFF comes: Debian's needs libjbig, which is under the GPL, and what
// is linked is shipped.
#include "graph/ops/parts.h"
#include <algorithm>
#include <cctype>
#include <csetjmp>
#include <cstdarg>
#include <cstdio>
#include <dlfcn.h>
#include <jpeglib.h>
#include <memory>
#include <openjpeg.h>
#include <png.h>
#include <tiffio.h>
#include <webp/decode.h>

namespace tessera {

namespace {
using namespace ops;
using Bytes = std::span<const uint8_t>;

constexpr int64_t kMaxPixels = int64_t{1} << 27;

struct Image {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> rgb; // rows from the top
  [[nodiscard]] uint8_t* row(int64_t y) { return rgb.data() + 3 * width * y; }
};

Diagnostic bad(const std::string& format, std::string what) {
  while (what.ends_with('\n')) what.pop_back(); // messages of libraries
  return {ErrorCode::BadInput, {}, "the image is no " + format + " file that can be read: " + what};
}

Result<Image> sized(const std::string& format, int64_t width, int64_t height) {
  if (width < 1 || height < 1 || width > kMaxPixels || height > kMaxPixels / width)
    return bad(format, "it has " + std::to_string(width) + " x " + std::to_string(height) + " pixels, and 1 to " +
                           std::to_string(kMaxPixels) + " are supported");
  Image out{width, height, {}};
  out.rgb.resize(static_cast<size_t>(3 * width * height));
  return out;
}

// ---- JPEG
// Errors jump back: what is alive then is in here.
struct JpegState {
  jpeg_decompress_struct decoder{};
  jpeg_error_mgr errors{};
  std::jmp_buf back{};
  char message[JMSG_LENGTH_MAX] = "";
  Bytes bytes;
  std::optional<Diagnostic> refused;
  Image out;
};

// True when it is done; false after an error, with a message.
bool read_jpeg(JpegState* s) {
  if (setjmp(s->back) != 0) return false;
  jpeg_create_decompress(&s->decoder);
  jpeg_mem_src(&s->decoder, s->bytes.data(), static_cast<unsigned long>(s->bytes.size()));
  jpeg_read_header(&s->decoder, TRUE);
  s->decoder.out_color_space = JCS_RGB; // an error for CMYK
  if (auto image = sized("JPEG", s->decoder.image_width, s->decoder.image_height); image.ok())
    s->out = std::move(image).value();
  else
    s->refused = image.error();
  if (s->refused) return true;
  jpeg_start_decompress(&s->decoder);
  while (s->decoder.output_scanline < s->decoder.output_height) {
    JSAMPROW row = s->out.row(s->decoder.output_scanline);
    jpeg_read_scanlines(&s->decoder, &row, 1);
  }
  jpeg_finish_decompress(&s->decoder);
  return true;
}

Result<Image> jpeg(Bytes bytes) {
  auto s = std::make_unique<JpegState>();
  s->bytes = bytes;
  s->decoder.err = jpeg_std_error(&s->errors);
  s->decoder.client_data = s.get();
  s->errors.error_exit = [](j_common_ptr c) {
    auto* state = static_cast<JpegState*>(c->client_data);
    c->err->format_message(c, state->message);
    std::longjmp(state->back, 1);
  };
  s->errors.output_message = [](j_common_ptr) {};
  const bool done = read_jpeg(s.get());
  jpeg_destroy_decompress(&s->decoder);
  if (!done) return bad("JPEG", s->message);
  if (s->refused) return *s->refused;
  return std::move(s->out);
}

// ---- PNG
Result<Image> png(Bytes bytes) {
  png_image decoder{};
  decoder.version = PNG_IMAGE_VERSION;
  struct Free {
    png_image* image;
    ~Free() { png_image_free(image); }
  } free{&decoder};
  if (png_image_begin_read_from_memory(&decoder, bytes.data(), bytes.size()) == 0) return bad("PNG", decoder.message);
  TESSERA_ASSIGN(Image out, sized("PNG", decoder.width, decoder.height));
  decoder.format = PNG_FORMAT_RGBA; // alpha is dropped rather than laid over a background
  std::vector<uint8_t> pixels(PNG_IMAGE_SIZE(decoder));
  if (png_image_finish_read(&decoder, nullptr, pixels.data(), 0, nullptr) == 0) return bad("PNG", decoder.message);
  for (size_t i = 0; i < pixels.size() / 4; ++i) std::memcpy(&out.rgb[3 * i], &pixels[4 * i], 3);
  return out;
}

// ---- what libraries read: a file in memory
struct Reader {
  Bytes bytes;
  size_t at = 0;
  std::string error;
  size_t read(void* to, size_t n) {
    n = std::min(n, bytes.size() - at);
    if (n > 0) std::memcpy(to, bytes.data() + at, n);
    at += n;
    return n;
  }
  bool seek(uint64_t to) {
    if (to > bytes.size()) return false;
    at = static_cast<size_t>(to);
    return true;
  }
};

// ---- TIFF
struct LibTiff {
  static constexpr const char* kName = "libtiff.so.6"; // of version 4.5, the first with TIFFOpenOptions, and later ones
  decltype(&TIFFOpenOptionsAlloc) options_alloc = nullptr;
  decltype(&TIFFOpenOptionsFree) options_free = nullptr;
  decltype(&TIFFOpenOptionsSetMaxSingleMemAlloc) options_max_alloc = nullptr;
  decltype(&TIFFOpenOptionsSetErrorHandlerExtR) options_error_handler = nullptr;
  decltype(&TIFFOpenOptionsSetWarningHandlerExtR) options_warning_handler = nullptr;
  decltype(&TIFFClientOpenExt) open = nullptr;
  decltype(&TIFFClose) close = nullptr;
  decltype(&TIFFGetField) get_field = nullptr;
  decltype(&TIFFReadRGBAImageOriented) read_rgba = nullptr;
  std::string missing; // why it cannot be used; empty where it can

  LibTiff() {
    void* library = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
    auto find = [&](auto& function, const char* name) {
      if (!missing.empty()) return;
      void* address = library != nullptr ? dlsym(library, name) : nullptr;
      if (address == nullptr) missing = dlerror();
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
    };
    find(options_alloc, "TIFFOpenOptionsAlloc");
    find(options_free, "TIFFOpenOptionsFree");
    find(options_max_alloc, "TIFFOpenOptionsSetMaxSingleMemAlloc");
    find(options_error_handler, "TIFFOpenOptionsSetErrorHandlerExtR");
    find(options_warning_handler, "TIFFOpenOptionsSetWarningHandlerExtR");
    find(open, "TIFFClientOpenExt");
    find(close, "TIFFClose");
    find(get_field, "TIFFGetField");
    find(read_rgba, "TIFFReadRGBAImageOriented");
  }
};

Result<Image> tiff(Bytes bytes) {
  static const LibTiff library;
  if (!library.missing.empty())
    return Diagnostic(ErrorCode::UnsupportedFeature, {},
                      std::string("the image is a TIFF file, which ") + LibTiff::kName +
                          " of the system decodes, and that cannot be loaded: " + library.missing)
        .note("install it (Debian: libtiff6), or store the image in another format");
  Reader reader{bytes, 0, {}};
  TIFFOpenOptions* options = library.options_alloc();
  library.options_max_alloc(options, 4 * kMaxPixels);
  library.options_error_handler(
      options,
      [](TIFF*, void* user, const char*, const char* format, va_list arguments) {
        char text[256];
        std::vsnprintf(text, sizeof text, format, arguments);
        static_cast<Reader*>(user)->error = text;
        return 1;
      },
      &reader);
  library.options_warning_handler(
      options, [](TIFF*, void*, const char*, const char*, va_list) { return 1; }, nullptr);
  std::unique_ptr<TIFF, void (*)(TIFF*)> file(
      library.open(
          "image", "rm", &reader,
          [](thandle_t h, void* to, tmsize_t n) {
            return static_cast<tmsize_t>(static_cast<Reader*>(h)->read(to, static_cast<size_t>(n)));
          },
          [](thandle_t, void*, tmsize_t) { return tmsize_t{0}; },
          [](thandle_t h, toff_t to, int whence) -> toff_t {
            auto* r = static_cast<Reader*>(h);
            const uint64_t base = whence == SEEK_CUR ? r->at : whence == SEEK_END ? r->bytes.size() : 0;
            return r->seek(base + to) ? r->at : static_cast<toff_t>(-1);
          },
          [](thandle_t) { return 0; }, [](thandle_t h) -> toff_t { return static_cast<Reader*>(h)->bytes.size(); },
          nullptr, nullptr, options),
      library.close);
  library.options_free(options);
  if (!file) return bad("TIFF", reader.error);
  uint32_t width = 0, height = 0;
  library.get_field(file.get(), TIFFTAG_IMAGEWIDTH, &width);
  library.get_field(file.get(), TIFFTAG_IMAGELENGTH, &height);
  TESSERA_ASSIGN(Image out, sized("TIFF", width, height));
  std::vector<uint32_t> pixels(static_cast<size_t>(out.width * out.height));
  if (library.read_rgba(file.get(), width, height, pixels.data(), ORIENTATION_TOPLEFT, 1) == 0)
    return bad("TIFF", reader.error);
  for (size_t i = 0; i < pixels.size(); ++i) {
    out.rgb[3 * i] = static_cast<uint8_t>(TIFFGetR(pixels[i]));
    out.rgb[3 * i + 1] = static_cast<uint8_t>(TIFFGetG(pixels[i]));
    out.rgb[3 * i + 2] = static_cast<uint8_t>(TIFFGetB(pixels[i]));
  }
  return out;
}

// ---- WebP
Result<Image> webp(Bytes bytes) {
  int width = 0, height = 0;
  if (WebPGetInfo(bytes.data(), bytes.size(), &width, &height) == 0) return bad("WebP", "its header is damaged");
  TESSERA_ASSIGN(Image out, sized("WebP", width, height));
  if (WebPDecodeRGBInto(bytes.data(), bytes.size(), out.rgb.data(), out.rgb.size(), 3 * width) == nullptr)
    return bad("WebP", "its data are damaged");
  return out;
}

// ---- JPEG 2000
Result<Image> jpeg2000(Bytes bytes, OPJ_CODEC_FORMAT format) {
  Reader reader{bytes, 0, {}};
  std::unique_ptr<opj_codec_t, void (*)(opj_codec_t*)> codec(opj_create_decompress(format), opj_destroy_codec);
  std::unique_ptr<opj_stream_t, void (*)(opj_stream_t*)> stream(opj_stream_default_create(OPJ_TRUE),
                                                                opj_stream_destroy);
  if (!codec || !stream) return Diagnostic(ErrorCode::OutOfMemory, {}, "no memory to decode a JPEG 2000 image");
  opj_set_error_handler(
      codec.get(), [](const char* text, void* r) { static_cast<Reader*>(r)->error = text; }, &reader);
  opj_stream_set_user_data(stream.get(), &reader, nullptr);
  opj_stream_set_user_data_length(stream.get(), bytes.size());
  opj_stream_set_read_function(stream.get(), [](void* to, OPJ_SIZE_T n, void* r) -> OPJ_SIZE_T {
    const size_t got = static_cast<Reader*>(r)->read(to, n);
    return got == 0 ? static_cast<OPJ_SIZE_T>(-1) : got;
  });
  opj_stream_set_skip_function(stream.get(), [](OPJ_OFF_T n, void* r) -> OPJ_OFF_T {
    auto* reader = static_cast<Reader*>(r);
    return n >= 0 && reader->seek(reader->at + static_cast<uint64_t>(n)) ? n : -1;
  });
  opj_stream_set_seek_function(stream.get(), [](OPJ_OFF_T to, void* r) -> OPJ_BOOL {
    return to >= 0 && static_cast<Reader*>(r)->seek(static_cast<uint64_t>(to)) ? OPJ_TRUE : OPJ_FALSE;
  });
  opj_dparameters_t parameters;
  opj_set_default_decoder_parameters(&parameters);
  opj_image_t* read = nullptr;
  const bool header = opj_setup_decoder(codec.get(), &parameters) == OPJ_TRUE &&
                      opj_read_header(stream.get(), codec.get(), &read) == OPJ_TRUE;
  std::unique_ptr<opj_image_t, void (*)(opj_image_t*)> image(read, opj_image_destroy);
  if (!header || !image) return bad("JPEG 2000", reader.error);
  TESSERA_ASSIGN(Image out, sized("JPEG 2000", static_cast<int64_t>(image->x1) - image->x0,
                                  static_cast<int64_t>(image->y1) - image->y0));
  const uint32_t n = image->numcomps;
  if (n < 1 || n > 4) return bad("JPEG 2000", "it has " + std::to_string(n) + " components, and 1 to 4 are supported");
  if (opj_decode(codec.get(), stream.get(), image.get()) != OPJ_TRUE ||
      opj_end_decompress(codec.get(), stream.get()) != OPJ_TRUE)
    return bad("JPEG 2000", reader.error);
  if (image->color_space == OPJ_CLRSPC_SYCC || image->color_space == OPJ_CLRSPC_EYCC ||
      image->color_space == OPJ_CLRSPC_CMYK)
    return bad("JPEG 2000", "its colors are neither RGB nor gray");
  for (int64_t c = 0; c < 3; ++c) {
    const opj_image_comp_t& from = image->comps[n < 3 ? 0 : c];
    if (from.data == nullptr || from.w == 0 || from.h == 0 || from.dx == 0 || from.dy == 0 || from.prec > 31)
      return bad("JPEG 2000", "a component has no data");
    const int64_t most = (int64_t{1} << from.prec) - 1, low = from.sgnd != 0 ? int64_t{1} << (from.prec - 1) : 0;
    for (int64_t y = 0; y < out.height; ++y)
      for (int64_t x = 0; x < out.width; ++x) {
        const int64_t i =
            std::min<int64_t>(y / from.dy, from.h - 1) * from.w + std::min<int64_t>(x / from.dx, from.w - 1);
        const int64_t v = std::clamp<int64_t>(from.data[i] + low, 0, most);
        out.row(y)[3 * x + c] = static_cast<uint8_t>(from.prec == 8 ? v : (v * 255 + most / 2) / most);
      }
  }
  return out;
}

// ---- BMP: of 8 bits with a palette, 24 or 32 bits, not compressed
Result<Image> bmp(Bytes bytes) {
  auto u = [&](size_t at, int n) {
    uint32_t v = 0;
    for (int i = 0; i < n; ++i) v |= static_cast<uint32_t>(bytes[at + static_cast<size_t>(i)]) << (8 * i);
    return v;
  };
  if (bytes.size() < 54) return bad("BMP", "it has " + std::to_string(bytes.size()) + " bytes");
  const size_t data = u(10, 4), header = u(14, 4);
  const int64_t width = static_cast<int32_t>(u(18, 4)), given = static_cast<int32_t>(u(22, 4));
  const uint32_t bits = u(28, 2), compression = u(30, 4);
  if (header < 40 || (bits != 8 && bits != 24 && bits != 32) || (compression != 0 && !(compression == 3 && bits == 32)))
    return bad("BMP", "it has " + std::to_string(bits) + " bits a pixel and compression " +
                          std::to_string(compression) + "; 8, 24 and 32 bits without compression are supported");
  TESSERA_ASSIGN(Image out, sized("BMP", width, given < 0 ? -given : given));
  const size_t each = bits / 8, line = (static_cast<size_t>(width) * each + 3) / 4 * 4, palette = 14 + header;
  const size_t colors = bits > 8 ? 0 : u(46, 4) == 0 ? 256 : std::min<size_t>(u(46, 4), 256);
  if (palette > bytes.size() || colors * 4 > bytes.size() - palette || data > bytes.size() ||
      line * static_cast<size_t>(out.height) > bytes.size() - data)
    return bad("BMP", "it ends within its pixels");
  for (int64_t y = 0; y < out.height; ++y) {
    const size_t from = data + line * static_cast<size_t>(given < 0 ? y : out.height - 1 - y);
    for (int64_t x = 0; x < width; ++x) {
      size_t at = from + each * static_cast<size_t>(x);
      if (bits == 8) {
        if (bytes[at] >= colors) return bad("BMP", "a pixel has a color that the palette lacks");
        at = palette + size_t{4} * bytes[at];
      }
      for (size_t c = 0; c < 3; ++c) out.row(y)[3 * x + static_cast<int64_t>(c)] = bytes[at + 2 - c];
    }
  }
  return out;
}

// ---- PNM: P1 to P6
class Pnm {
public:
  explicit Pnm(Bytes bytes) : bytes_(bytes) {}
  Result<Image> read() {
    const int kind = bytes_[1] - '0';
    at_ = 2;
    const int64_t width = number(), height = number(), most = kind == 1 || kind == 4 ? 1 : number();
    if (width < 0 || height < 0 || most < 1 || most > 65535) return bad("PNM", "its header is damaged");
    TESSERA_ASSIGN(Image out, sized("PNM", width, height));
    const int channels = kind % 3 == 0 ? 3 : 1;
    if (kind > 3) ++at_; // one white space
    for (int64_t y = 0; y < height; ++y) {
      int64_t bit = 8;
      uint8_t byte = 0;
      for (int64_t i = 0; i < width * channels; ++i) {
        int64_t v = kind > 3 ? 0 : kind == 1 ? digit() : number();
        if (kind == 4) {
          if (bit == 8) byte = static_cast<uint8_t>(next()), bit = 0;
          v = byte >> (7 - bit++) & 1;
        } else if (kind > 3) {
          v = next();
          if (most > 255) v = v << 8 | next();
        }
        if (ended_ || v < 0 || v > most) return bad("PNM", "it ends within its pixels, or one is out of range");
        if (kind == 1 || kind == 4) v = 1 - v; // 1 is black
        const auto value = static_cast<uint8_t>((v * 255 + most / 2) / most);
        if (channels == 3)
          out.row(y)[i] = value;
        else
          std::memset(out.row(y) + 3 * i, value, 3);
      }
    }
    return out;
  }

private:
  int64_t next() {
    ended_ = ended_ || at_ >= bytes_.size();
    return ended_ ? 0 : bytes_[at_++];
  }
  void skip() {
    while (at_ < bytes_.size() && (std::isspace(bytes_[at_]) != 0 || bytes_[at_] == '#'))
      if (bytes_[at_++] == '#')
        while (at_ < bytes_.size() && bytes_[at_] != '\n') ++at_;
  }
  int64_t digit() {
    skip();
    const int64_t v = next() - '0';
    return v == 0 || v == 1 ? v : -1;
  }
  int64_t number() { // -1 where there is none
    skip();
    int64_t v = -1;
    while (at_ < bytes_.size() && std::isdigit(bytes_[at_]) != 0 && v <= kMaxPixels)
      v = std::max<int64_t>(v, 0) * 10 + bytes_[at_++] - '0';
    return v;
  }
  Bytes bytes_;
  size_t at_ = 0;
  bool ended_ = false;
};

Result<Image> decode(Bytes bytes) {
  auto begins = [&](std::initializer_list<int> with, size_t at = 0) {
    return bytes.size() >= at + with.size() &&
           std::equal(with.begin(), with.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at),
                      [](int a, uint8_t b) { return a == b; });
  };
  if (begins({0xff, 0xd8, 0xff})) return jpeg(bytes);
  if (begins({0x89, 'P', 'N', 'G'})) return png(bytes);
  if (begins({'I', 'I', 42, 0}) || begins({'M', 'M', 0, 42})) return tiff(bytes);
  if (begins({'R', 'I', 'F', 'F'}) && begins({'W', 'E', 'B', 'P'}, 8)) return webp(bytes);
  if (begins({0, 0, 0, 12, 'j', 'P', ' ', ' '})) return jpeg2000(bytes, OPJ_CODEC_JP2);
  if (begins({0xff, 0x4f, 0xff, 0x51})) return jpeg2000(bytes, OPJ_CODEC_J2K);
  if (begins({'B', 'M'})) return bmp(bytes);
  if (begins({'P'}) && bytes.size() > 2 && bytes[1] >= '1' && bytes[1] <= '6') return Pnm(bytes).read();
  return Diagnostic(ErrorCode::BadInput, {},
                    "the image is of no known format; JPEG, PNG, TIFF, WebP, JPEG 2000, BMP and PNM are supported");
}

// ---- the record
Result<int64_t> channels(const Node& n) {
  const std::string format = n.attributes.s("pixel_format");
  if (format == "RGB" || format == "BGR") return 3;
  if (format == "Grayscale") return 1;
  return Diagnostic(ErrorCode::BadAttribute, n.location,
                    "pixel_format '" + format + "' is none of RGB, BGR and Grayscale");
}

Status run(ReferenceContext& c) {
  TESSERA_ASSIGN(const int64_t n, channels(c.node));
  auto decoded = decode(c.operands[0].as<uint8_t>());
  if (!decoded.ok()) return std::move(decoded).take_error().at(c.node.location);
  const Image image = std::move(decoded).value();
  TESSERA_ASSIGN(Tensor y, Tensor::create(DType::U8, {image.height, image.width, n}));
  const auto out = y.mutable_as<uint8_t>();
  if (n == 1) // luma of ITU-R 601, in 16 bits
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<uint8_t>(
          (image.rgb[3 * i] * 19595U + image.rgb[3 * i + 1] * 38470U + image.rgb[3 * i + 2] * 7471U + 0x8000U) >> 16);
  else if (c.node.attributes.s("pixel_format") == "RGB")
    std::copy(image.rgb.begin(), image.rgb.end(), out.begin());
  else
    for (size_t i = 0; i < out.size(); ++i) out[i] = image.rgb[i / 3 * 3 + 2 - i % 3];
  c.results = {y};
  return {};
}

Tensor stream(std::string_view text) {
  std::vector<int64_t> bytes;
  for (char c : text) bytes.push_back(static_cast<uint8_t>(c));
  return Tensor::of<int64_t>(DType::U8, {static_cast<int64_t>(bytes.size())}, bytes);
}

} // namespace

void register_image_ops(OpTable& table) {
  OpDef def;
  def.name = "image_decoder";
  def.summary = "pixels u8[height, width, channels] of the bytes of an image file";
  def.onnx = {{"ImageDecoder", "", 20}};
  def.operands = {{"encoded_stream", TypeSet::Integer}};
  def.attributes = {{"pixel_format", AttrKind::String, false, std::string("RGB")}};
  def.infer = [](InferContext& c) -> Status {
    if (c.type(0).dtype != DType::U8 || c.type(0).rank() != 1)
      return c.error(ErrorCode::TypeMismatch, "takes the bytes of a file, u8[n], not " + c.type(0).str());
    TESSERA_ASSIGN(const int64_t n, channels(c.node));
    return set_result(c, DType::U8, {c.env().create_symbol("height"), c.env().create_symbol("width"), n});
  };
  def.meaning = StructuredOp{};
  def.reference = run;
  def.data_dependent_shape = true;
  def.samples = [] {
    std::vector<Sample> out;
    for (const char* format : {"RGB", "BGR", "Grayscale"}) {
      out.push_back(sample({stream("P3 2 1 255\n1 2 3 250 0 9\n")}, {{"pixel_format", std::string(format)}}, 20));
      out.push_back(sample({stream("P5\n# gray\n2 2\n255\nabcd")}, {{"pixel_format", std::string(format)}}, 20));
    }
    return out;
  };
  def.error_samples = [] {
    auto refused = [](std::string_view text, std::string_view part) {
      return wrong({stream(text)}, {}, ErrorCode::BadInput, part, 20);
    };
    return std::vector<ErrorSample>{
        refused("GIF89a", "no known format"),
        refused("P6\n2 2\n255\nabc", "ends within"),
        refused("P6 99999999 99999999 255\n", "pixels"),
        refused("\xff\xd8\xff nothing", "JPEG"),
        refused("\x89PNG and nothing", "PNG"),
        refused("BM and nothing", "BMP"),
        refused("RIFF1234WEBPVP8 ", "WebP"),
        refused(std::string_view("II*\0\0\0\0\0", 8), "TIFF"),
        refused("\xff\x4f\xff\x51 nothing", "JPEG 2000"),
        wrong({stream("P1 1 1 0")}, {{"pixel_format", std::string("YUV")}}, ErrorCode::BadAttribute, "none of RGB", 20),
        wrong({vec({1})}, {}, ErrorCode::TypeMismatch, "u8[n]", 20)};
  };
  table.add(std::move(def));
}

} // namespace tessera
