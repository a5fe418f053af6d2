#include "base/diagnostic.h"
#include "base/check.h"
#include "base/text.h"
#include <array>

namespace tessera {
namespace {
// Identifiers: TES-1xxx wrong use, 2xxx not supported, 3xxx bad model or input, 4xxx failed while running. They are
// stable: a code that goes leaves a gap.
constexpr std::array kCodes = {
    ErrorCodeInfo{ErrorCode::Usage, "TES-1001", "usage", 2, "wrong use of the command or the API"},
    ErrorCodeInfo{ErrorCode::UnknownInput, "TES-1002", "unknown-input", 2,
                  "an input name that the model does not have"},
    ErrorCodeInfo{ErrorCode::MissingInput, "TES-1003", "missing-input", 2, "an input of the model was not given"},
    ErrorCodeInfo{ErrorCode::MissingValues, "TES-1004", "missing-values", 2,
                  "what an input holds decides the model's structure, and was not given"},
    ErrorCodeInfo{ErrorCode::UnsupportedOp, "TES-2001", "unsupported-op", 3,
                  "an operator, or a version of it, without a definition"},
    ErrorCodeInfo{ErrorCode::UnsupportedType, "TES-2002", "unsupported-type", 3,
                  "a type that this operator or device cannot take"},
    ErrorCodeInfo{ErrorCode::UnsupportedFeature, "TES-2003", "unsupported-feature", 3, "valid, but not supported"},
    ErrorCodeInfo{ErrorCode::FileError, "TES-3001", "file-error", 4,
                  "a file cannot be opened, read, mapped or written"},
    ErrorCodeInfo{ErrorCode::MalformedModel, "TES-3002", "malformed-model", 4,
                  "the model's file does not parse or contradicts itself"},
    ErrorCodeInfo{ErrorCode::BadWeights, "TES-3003", "bad-weights", 4,
                  "weights are missing, short, of the wrong size, or outside of the model's folder"},
    ErrorCodeInfo{ErrorCode::BadAttribute, "TES-3004", "bad-attribute", 4,
                  "an attribute is missing, of the wrong type, or out of range"},
    ErrorCodeInfo{ErrorCode::ShapeMismatch, "TES-3005", "shape-mismatch", 4, "shapes that do not go together"},
    ErrorCodeInfo{ErrorCode::TypeMismatch, "TES-3006", "type-mismatch", 4, "element types that contradict each other"},
    ErrorCodeInfo{ErrorCode::SizeOverflow, "TES-3007", "size-overflow", 4, "a size beyond the address space"},
    ErrorCodeInfo{ErrorCode::BadInput, "TES-3008", "bad-input", 4,
                  "an input whose type, rank or dimensions contradict the model"},
    ErrorCodeInfo{ErrorCode::GuardFailed, "TES-3009", "guard-failed", 4,
                  "the inputs violate a condition that the model needs"},
    ErrorCodeInfo{ErrorCode::ParseError, "TES-3010", "parse-error", 4, "a text form does not parse"},
    ErrorCodeInfo{ErrorCode::CorruptFile, "TES-3011", "corrupt-file", 4,
                  "an executable or cache file is damaged or of another version"},
    ErrorCodeInfo{ErrorCode::EarlierCall, "TES-3012", "earlier-call", 4,
                  "an input of an earlier call on the device is wrong, as an index out of range"},
    ErrorCodeInfo{ErrorCode::OutOfMemory, "TES-4001", "out-of-memory", 5, "memory is exhausted"},
    ErrorCodeInfo{ErrorCode::DeviceError, "TES-4002", "device-error", 5, "a call of the device or of a library failed"},
    ErrorCodeInfo{ErrorCode::CodegenError, "TES-4003", "codegen-error", 5,
                  "machine code could not be generated or loaded"},
    ErrorCodeInfo{ErrorCode::Cancelled, "TES-4004", "cancelled", 5, "stopped on request"},
    ErrorCodeInfo{ErrorCode::Internal, "TES-4999", "internal", 5, "a bug in Tessera"},
};

constexpr bool table_is_in_order() {
  for (size_t i = 0; i < kCodes.size(); ++i)
    if (static_cast<size_t>(kCodes[i].code) != i) return false;
  return kCodes.size() == static_cast<size_t>(ErrorCode::Internal) + 1;
}
static_assert(table_is_in_order(), "one row for each ErrorCode, in order");
} // namespace

const ErrorCodeInfo& info(ErrorCode code) {
  size_t i = static_cast<size_t>(code);
  TESSERA_CHECK(i < kCodes.size(), "error code out of range");
  return kCodes[i];
}

std::string Location::str() const {
  std::string out = shown(file);
  if (line > 0) {
    out += (out.empty() ? "line " : ":") + std::to_string(line);
    if (column > 0) out += ":" + std::to_string(column);
  }
  if (node.empty() && op.empty() && output.empty()) return out;
  if (!out.empty()) out += ": ";
  out += node.empty() ? "node" : "node '" + shown(node) + "'";
  if (op.empty() && output.empty() && source.empty()) return out;
  out += " (" + shown(op);
  if (!output.empty()) out += (op.empty() ? "output '" : ", output '") + shown(output) + "'";
  if (!source.empty()) out += (op.empty() && output.empty() ? "" : ", ") + shown(source);
  return out + ")";
}

Diagnostic::Diagnostic() = default;
Diagnostic::Diagnostic(ErrorCode c, std::string msg) : code(c), message(std::move(msg)) {}
Diagnostic::Diagnostic(ErrorCode c, Location loc, std::string msg)
    : code(c), location(std::move(loc)), message(std::move(msg)) {}
Diagnostic::Diagnostic(const Diagnostic&) = default;
Diagnostic::Diagnostic(Diagnostic&&) noexcept = default;
Diagnostic& Diagnostic::operator=(const Diagnostic&) = default;
Diagnostic& Diagnostic::operator=(Diagnostic&&) noexcept = default;
Diagnostic::~Diagnostic() = default;

Diagnostic& Diagnostic::note(std::string text) & {
  notes.push_back(std::move(text));
  return *this;
}

Diagnostic&& Diagnostic::note(std::string text) && {
  notes.push_back(std::move(text));
  return std::move(*this);
}

Diagnostic&& Diagnostic::at(Location loc) && {
  if (location == Location{}) location = std::move(loc);
  return std::move(*this);
}

std::string Diagnostic::str() const {
  const ErrorCodeInfo& row = info(code);
  std::string out = "error " + std::string(row.id) + " " + std::string(row.name) + ": ";
  if (std::string where = location.str(); !where.empty()) out += where + ": ";
  out += shown(message) + "\n";
  // A long chain of notes (calls of functions within functions) is cut to its two ends.
  constexpr size_t kFirst = 8, kLast = 4;
  const bool all = notes.size() <= kFirst + kLast + 1;
  for (size_t i = 0; i < notes.size(); ++i) {
    if (all || i < kFirst || i + kLast >= notes.size())
      out += "  note: " + shown(notes[i]) + "\n";
    else if (i == kFirst)
      out += "  note: ... (" + std::to_string(notes.size() - kFirst - kLast) + " more)\n";
  }
  return out;
}

} // namespace tessera
