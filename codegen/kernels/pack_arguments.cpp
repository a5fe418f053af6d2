#include "codegen/kernels/pack_arguments.h"
#include <algorithm>
#include <bit>
#include <charconv>

namespace tessera {
namespace {

using Kind = KernelArgument::Kind;

// The bits of a float that is narrower than f32.
uint64_t small_bits(DType dtype, double v) {
  if (dtype == DType::F16) return f64_to_f16(v);
  if (dtype == DType::BF16) return f64_to_bf16(v);
  return f64_to_small_float(dtype, v);
}

double as_double(const KernelArgument& a) {
  if (a.kind == Kind::Float) return a.number;
  return a.kind == Kind::Unsigned ? static_cast<double>(a.natural) : static_cast<double>(a.integer);
}

std::string shown(const KernelArgument& a) {
  switch (a.kind) {
  case Kind::Pointer: return a.pointer == nullptr ? "a null pointer" : "a pointer";
  case Kind::Integer: return std::to_string(a.integer);
  case Kind::Unsigned: return std::to_string(a.natural);
  case Kind::Float: break;
  }
  char text[40];
  const auto end = std::to_chars(text, text + sizeof text, a.number).ptr;
  std::string number(text, end);
  const bool whole = number.find_first_not_of("-0123456789") == std::string::npos;
  return "the float " + number + (whole ? ".0" : "");
}

std::string hex(uint64_t address) {
  char text[20];
  return "0x" + std::string(text, std::to_chars(text, text + sizeof text, address, 16).ptr);
}

} // namespace

ArgumentPacker::ArgumentPacker(const tile::Kernel& kernel, bool aligned) : kernel_(kernel.name) {
  auto is_pointer = [](const tile::Param& p) { return p.type.kind == tile::Type::Kind::Pointer; };
  pointers_ = static_cast<size_t>(std::count_if(kernel.params.begin(), kernel.params.end(), is_pointer));
  size_t pointer = 0, scalar = pointers_;
  for (const tile::Param& p : kernel.params) {
    names_.push_back(p.name);
    Slot& slot = slots_.emplace_back();
    slot.dtype = p.type.dtype;
    if (is_pointer(p)) {
      slot.form = Form::Address;
      slot.word = pointer++;
      slot.multiple = aligned ? p.alignment : std::max<int64_t>(1, byte_size(p.type.dtype, 1));
      continue;
    }
    slot.word = scalar++;
    slot.multiple = p.multiple_of;
    const DTypeInfo& d = info(p.type.dtype);
    if (is_float(d.dtype)) {
      slot.form = d.dtype == DType::F32 ? Form::Float32 : d.dtype == DType::F64 ? Form::Float64 : Form::SmallFloat;
    } else if (d.dtype == DType::U64) {
      slot.form = Form::Unsigned64;
    } else {
      const int bits = d.dtype == DType::Bool ? 1 : d.bits;
      const bool negative = d.kind == DTypeKind::Signed;
      slot.most = negative ? INT64_MAX >> (64 - bits) : (int64_t{1} << bits) - 1;
      slot.least = negative ? -slot.most - 1 : 0;
    }
  }
  for (size_t i = 0; i < kernel.params.size(); ++i) {
    const tile::Param& p = kernel.params[i];
    if (p.elements > 0) promises_.push_back({i, p.elements, {}});
    for (size_t n = 0; p.elements_value >= 0 && n < kernel.params.size(); ++n)
      if (kernel.params[n].value == p.elements_value) promises_.push_back({i, 0, n});
  }
}

// False: the parameter does not take the argument.
bool ArgumentPacker::take(const Slot& slot, const KernelArgument& a, uint64_t& word) const {
  switch (slot.form) {
  case Form::Address:
    if (a.kind == Kind::Float || (a.kind == Kind::Integer && a.integer < 0)) return false;
    word = a.natural; // of a pointer, too
    return word % static_cast<uint64_t>(slot.multiple) == 0;
  case Form::Signed:
    if (a.kind == Kind::Unsigned ? a.natural > static_cast<uint64_t>(slot.most)
                                 : a.kind != Kind::Integer || a.integer < slot.least || a.integer > slot.most)
      return false;
    word = a.natural;
    return slot.multiple == 1 || a.integer % slot.multiple == 0;
  case Form::Unsigned64:
    word = a.natural;
    return a.kind == Kind::Unsigned || (a.kind == Kind::Integer && a.integer >= 0);
  case Form::Float32: word = std::bit_cast<uint32_t>(static_cast<float>(as_double(a))); return a.kind != Kind::Pointer;
  case Form::Float64: word = std::bit_cast<uint64_t>(as_double(a)); return a.kind != Kind::Pointer;
  case Form::SmallFloat:
    if (a.kind == Kind::Pointer) return false;
    word = small_bits(slot.dtype, as_double(a));
    return true;
  }
  return false;
}

Status ArgumentPacker::pack(std::span<const KernelArgument> arguments, uint64_t* words) const {
  if (arguments.size() != slots_.size())
    return Diagnostic(ErrorCode::BadInput, "kernel '" + kernel_ + "' takes " + std::to_string(slots_.size()) +
                                               " arguments, got " + std::to_string(arguments.size()));
  for (size_t i = 0; i < slots_.size(); ++i)
    if (!take(slots_[i], arguments[i], words[slots_[i].word])) [[unlikely]]
      return wrong(i, arguments[i]);
  for (const Promise& p : promises_) {
    const int64_t elements = p.count ? static_cast<int64_t>(words[slots_[*p.count].word]) : p.elements;
    if (elements > 0 && words[slots_[p.pointer].word] == 0) return missing_elements(p, elements);
  }
  return {};
}

// "argument 3, 'n' of kernel 'scale' (i64),"
std::string ArgumentPacker::described(size_t parameter) const {
  const std::string dtype(name(slots_[parameter].dtype));
  return "argument " + std::to_string(parameter + 1) + ", '" + names_[parameter] + "' of kernel '" + kernel_ + "' (" +
         (slots_[parameter].form == Form::Address ? "ptr<" + dtype + ">" : dtype) + "),";
}

Diagnostic ArgumentPacker::wrong(size_t parameter, const KernelArgument& a) const {
  const Slot& slot = slots_[parameter];
  const std::string multiple = "a multiple of " + std::to_string(slot.multiple);
  std::string expected;
  std::string seen = shown(a);
  if (slot.form == Form::Address) {
    const bool address = a.kind != Kind::Float && !(a.kind == Kind::Integer && a.integer < 0);
    expected = address ? "an address that is " + multiple : "an address";
    if (address) seen = "the address " + hex(a.natural);
  } else if (slot.form == Form::Signed || slot.form == Form::Unsigned64) {
    const bool whole = slot.form == Form::Unsigned64;
    expected = "an integer from " + std::to_string(slot.least) + " to " +
               (whole ? std::to_string(UINT64_MAX) : std::to_string(slot.most));
    if (slot.multiple > 1) expected += " that is " + multiple;
  } else {
    expected = "a number";
  }
  return {ErrorCode::BadInput, described(parameter) + " is " + seen + ", expected " + expected};
}

Diagnostic ArgumentPacker::missing_elements(const Promise& p, int64_t elements) const {
  return {ErrorCode::BadInput, described(p.pointer) + " is a null pointer, expected the address of " +
                                   std::to_string(elements) + " elements, which the parameter promises"};
}

} // namespace tessera
