// The arguments of a launch as machine code takes them. A word of 64 bits holds an address, or a scalar in its low bytes as
// memory has it: the pointers first, then the scalars, each in the order of the parameters.
#pragma once
#include "codegen/kernels/argument.h"
#include "codegen/tile/tile.h"

namespace tessera {

class ArgumentPacker {
public:
  // `aligned`: the code relies on the alignment that parameters promise; else on that of an element.
  ArgumentPacker(const tile::Kernel& kernel, bool aligned);
  // Errors: BadInput for a number of arguments that is not the kernel's, for one that its parameter cannot take (a
  // float for an integer, a number out of the dtype's range), and for one that breaks a promise of the parameter: its
  // divisor, its alignment, elements behind a null address. Null is the address of a tensor without elements.
  [[nodiscard]] Status pack(std::span<const KernelArgument> arguments, uint64_t* words) const;
  [[nodiscard]] size_t words() const { return slots_.size(); }
  [[nodiscard]] size_t pointers() const { return pointers_; }
  [[nodiscard]] size_t word_of(size_t parameter) const { return slots_[parameter].word; }

private:
  enum class Form : uint8_t { Address, Signed, Unsigned64, Float32, Float64, SmallFloat };
  struct Slot {
    Form form = Form::Signed;
    DType dtype = DType::I64;
    size_t word = 0;
    int64_t least = 0, most = 0; // of an integer
    int64_t multiple = 1;        // a divisor of an i64; of an address
  };
  // Elements that a pointer parameter promises: a number, or the value of a parameter.
  struct Promise {
    size_t pointer = 0; // parameter
    int64_t elements = 0;
    std::optional<size_t> count; // parameter
  };

  [[nodiscard]] bool take(const Slot& slot, const KernelArgument& argument, uint64_t& word) const;
  [[nodiscard]] Diagnostic wrong(size_t parameter, const KernelArgument& argument) const;
  [[nodiscard]] Diagnostic missing_elements(const Promise& promise, int64_t elements) const;
  [[nodiscard]] std::string described(size_t parameter) const;

  std::string kernel_;
  std::vector<std::string> names_;
  std::vector<Slot> slots_; // by parameter
  std::vector<Promise> promises_;
  size_t pointers_ = 0;
};

} // namespace tessera
