// Indices out of range, as kernels report them and as errors name them.
//
// A kernel has one report for all its checks. Each bad index has a key, (site, position), and a value of 64 bits. Four
// words of 64 bits take the largest of
//
//   word w   (2^48 - 1 - key) << 16 | bits [16 w, 16 w + 16) of the value
//
// by an atomic maximum each: in every word the lowest key wins, so that the words, whose order does not matter, end with
// the four parts of one value. Sites are numbered in the order of the graph: the report is that of the first operator
// and of its first bad position, whatever the order of the threads. All words are 0 before a launch and after one
// without a bad index; once a report has come, it is complete when the kernel has ended.
#pragma once
#include "symbols/expr.h"
#include <algorithm>
#include <array>

namespace tessera {

class IndexReport {
public:
  static constexpr int kWords = 4, kPositionBits = 36, kValueBits = 16;
  static constexpr int kSites = (1 << 12) - 1;                              // sites are in [0, kSites): no word is 0
  static constexpr int64_t kNoPosition = (int64_t{1} << kPositionBits) - 1; // unknown: also what is not below it

  // The words that a bad index at `site` reports.
  [[nodiscard]] static std::array<uint64_t, kWords> words(int site, int64_t position, int64_t value) {
    const uint64_t at = std::min(static_cast<uint64_t>(position), static_cast<uint64_t>(kNoPosition));
    const uint64_t key = ~(static_cast<uint64_t>(site) << kPositionBits | at) << kValueBits;
    std::array<uint64_t, kWords> out;
    for (size_t w = 0; w < out.size(); ++w) out[w] = key | (static_cast<uint64_t>(value) >> (kValueBits * w) & 0xffff);
    return out;
  }
  void add(int site, int64_t position, int64_t value) {
    const auto more = words(site, position, value);
    for (size_t w = 0; w < more.size(); ++w) words_[w] = std::max(words_[w], more[w]);
  }
  [[nodiscard]] bool any() const { return words_[0] != 0; }
  [[nodiscard]] int site() const { return static_cast<int>(key() >> kPositionBits); }
  [[nodiscard]] int64_t position() const { return static_cast<int64_t>(key()) & kNoPosition; }
  [[nodiscard]] int64_t value() const {
    uint64_t v = 0;
    for (size_t w = 0; w < words_.size(); ++w) v |= (words_[w] & 0xffff) << (kValueBits * w);
    return static_cast<int64_t>(v);
  }
  bool operator==(const IndexReport&) const = default;

private:
  [[nodiscard]] uint64_t key() const { return ~words_[0] >> kValueBits; }

  std::array<uint64_t, kWords> words_{};
};
static_assert(sizeof(IndexReport) == 32);

// One check of a kernel: what the error of a bad index says.
struct IndexCheck {
  std::string table, indices, node; // the indexed value, the tensor of indices, the operator, by their names; may be ""
  std::optional<SymExpr> extent;    // of the indexed dimension; none: unknown
  bool from_end = false;            // negative indices count from the end
  SymShape shape;                   // of the tensor of indices; of one of tuples, without its last dimension
  int component = -1;               // of a tuple; -1: an index stands alone
  std::string failure = {};         // what is wrong where a condition does not hold; empty: the check is of an index
};

// "index 7 at [1, 2] of 'ids' is out of range [-5, 5) of 'table' in Gather_3", or "division by zero at [1, 2] of 'b' in
// div_3". Sizes that `symbols` does not give stay expressions; the position is then a number.
[[nodiscard]] std::string index_error(const IndexCheck& check, int64_t position, int64_t value,
                                      const std::unordered_map<uint64_t, int64_t>& symbols);

} // namespace tessera
