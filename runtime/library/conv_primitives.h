// oneDNN's primitives for convolutions, each once per process for as long as a plan uses it.
//
// A primitive is generated code for one set of sizes: 40 KB to more than 10 MB that take 0.2 to 100 ms, in proportion to
// the width of a row. oneDNN would keep the last 1,024 of a process, whoever needs them; here they belong to the plans
// of shapes, are counted in a MemoryAccount, and go with the last plan.
#pragma once
#include "runtime/executor.h"
#include "runtime/library/onednn.h"
#include "runtime/memory_account.h"
#include <array>
#include <mutex>
#include <span>

namespace tessera {

// A convolution of dense channels-last operands. Sizes as oneDNN numbers them: x and y [n, c, spatial...], weights
// [groups (if more than one), out, in, kernel...].
struct ConvSizes {
  bool transposed = false;
  int64_t groups = 1;
  Dims strides, dilations, pads_begin, pads_end, x, y, w;
  auto operator<=>(const ConvSizes&) const = default;
};

// Strides of logical dims [n, c, spatial...] laid out densely with channels last.
[[nodiscard]] Dims channels_last(const Dims& dims);
void channels_last(std::span<const int64_t> dims, std::span<int64_t> strides);

struct ConvPrimitive {
  dnnl::primitive primitive;
  dnnl::memory::desc x, w, y, scratchpad;
  int64_t bytes = 0;                   // of generated code, about
  std::shared_ptr<const void> counted; // by the account of who requested it first
};

// A primitive for these sizes. Null: oneDNN has only a reference implementation, which some pads make wrong, or none.
// `made` grows by the bytes of what was not there before. Thread-safe. Errors: OutOfMemory; `name` is the step's.
[[nodiscard]] Result<std::shared_ptr<const ConvPrimitive>>
conv_primitive(const ConvSizes& sizes, MemoryAccount& account, int64_t& made, const std::string& name);

// Primitives of one convolution for blocks of different numbers of rows, which all read the same packed weights: which
// format oneDNN wants for weights depends on the number of rows, and a second one would copy the weights.
class ConvBlockRows {
public:
  static constexpr std::array<int64_t, 5> kRows{16, 32, 64, 128, 256};
  // `sizes`: of a block of one row; the result's dimension `dim` and the input's are set for each number of rows: no
  // pads. Shared as primitives are. Thread-safe.
  [[nodiscard]] static std::shared_ptr<ConvBlockRows> of(const ConvSizes& sizes, size_t dim);
  ConvBlockRows(ConvSizes sizes, size_t dim) : sizes_(std::move(sizes)), dim_(dim) {}

  // Input rows that a block of so many rows reads.
  [[nodiscard]] int64_t input_rows(int64_t rows) const;
  // Whether blocks of kRows[i] rows read weights in the common format.
  [[nodiscard]] bool usable(size_t i);
  // Null where it is not usable. As conv_primitive().
  [[nodiscard]] Result<std::shared_ptr<const ConvPrimitive>> primitive(size_t i, MemoryAccount& account, int64_t& made,
                                                                       const std::string& name);

private:
  static constexpr size_t kFormat = 2; // whose format is the common one: efficient, with little code
  [[nodiscard]] ConvSizes at(size_t i) const;
  [[nodiscard]] bool is_usable(size_t i); // mutex_ is held

  const ConvSizes sizes_;
  const size_t dim_;
  std::mutex mutex_; // of what follows
  enum class State : uint8_t { Unknown, Usable, Refused };
  std::array<State, kRows.size()> states_{};
  dnnl::memory::desc weights_; // once kFormat is known to be usable
  std::array<std::shared_ptr<const ConvPrimitive>, kRows.size()> made_;
};

} // namespace tessera
