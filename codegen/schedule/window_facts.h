// Windows that slide: reductions of a known number of taps in which neighbouring results read the same elements, such as
// depthwise convolutions, pooling and local sums. A thread that computes several neighbours reads each element of their
// common window once and keeps it in registers:
//
//   y[n, h, w, c] = sum over kh, kw of x[n, h + kh, w + kw, c] * k[kh, kw, c]     window 7 x 7, 7 results along w
//   reads of x per result: (7 + 6) * 7 / 7 = 13 instead of 49; of k: 49 / 7 = 7
//
// The tile is [R, V]: R positions of all other outer axes, and V neighbours along the contiguous one. Taps are written
// out, or, where that would be too much code, those of one position of the outermost row axis, and a loop does the rest.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace tessera {

class BlockFacts;

// Bytes of GPU code for an instruction as facts count them (ScalarInfo::cost): 16 for each of about 2.7 machine
// instructions, since addresses, masks and conversions are not counted.
inline constexpr double kInstructionBytes = 128.0 / 3;

class WindowFacts {
public:
  static constexpr int64_t kMaxTaps = 4096;                        // of a window
  static constexpr int64_t kMaxOutputs = 14, kMaxOuterOutputs = 4; // results of a thread along the two axes

  // Nothing where the nest has no windows.
  [[nodiscard]] static std::optional<WindowFacts> find(const BlockFacts& facts);

  int axis = -1, outer = -1; // axes of the domain along which windows slide: the one with the shorter steps, the other
  // A thread with `results` along the two axes and `vector` neighbours along the contiguous one.
  struct Thread {
    double operations = 0;       // instructions, about
    double loads = 0;            // loads among them
    double load_bytes = 0;       // bytes of a load on average
    double registers = 0;        // of accumulators and of what one position of the outermost row axis reads
    int64_t taps = 0;            // that are written out
    int64_t loop_iterations = 1; // over positions of the outermost row axis
  };
  // Nothing where its code would be too long.
  [[nodiscard]] std::optional<Thread> thread(int64_t along_axis, int64_t along_outer, int64_t vector) const;

private:
  // A load of the reduced value: the step of its offset along each axis that a thread unrolls, in numbers that are equal
  // only where the distances are.
  struct Load {
    bool wide = false;   // varies along the contiguous axis
    bool masked = false; // has a predicate
    int bytes = 4;       // of an element
    int64_t along_axis = 0, along_outer = 0;
    std::vector<int64_t> along_taps; // by row axis
    // Distinct elements, at one element along the contiguous axis, by results along the two axes.
    std::array<std::array<int64_t, kMaxOuterOutputs>, kMaxOutputs> distinct{};
  };
  bool find_taps(const BlockFacts& facts);
  bool find_loads(const BlockFacts& facts);
  void find_axes(const BlockFacts& facts);
  [[nodiscard]] int64_t distinct(const Load& load, int64_t step, int64_t results, int64_t outer_step,
                                 int64_t outer_results) const;

  double most_code_ = 0;         // counted instructions between two loop ends that the instruction cache has room for
  std::vector<size_t> rows_;     // row axes
  std::vector<int64_t> extents_; // of them
  int64_t taps_ = 1;             // product of these
  int reduces_ = 0, tap_operations_ = 0, result_operations_ = 0;
  std::vector<Load> loads_;
};

} // namespace tessera
