// LinearLayout: which thread holds which element of a tile, as a linear map over bits.
//
// Threads of a block, registers of a thread and elements of a tile are indexed by integers whose ranges are powers of
// two. The bits of such an index are a vector over F2 (the field of 0 and 1, where 1 + 1 = 0). Nearly every
// distribution of a tile over threads is then a *linear* map. A place is a (register, lane, warp) index; its element is
// the xor of one basis vector for each set bit of the place. The bases define the map.
//
// Example: a tile<[4, 16]> over 4 registers and 16 threads in two warps (of 8 lanes, to keep the table short), each
// thread with 2 adjacent elements of a row, 8 lanes along the row, warps along the rows:
//
//     place bit    basis (row, column)       place                         element
//     register 0   (0, 1)                    register 1                    (0, 1)
//     register 1   (2, 0)                    register 2, lane 3            (2, 6)  = (2, 0) ^ (0, 2) ^ (0, 4)
//     lane 0       (0, 2)                    register 3, lane 7, warp 1    (3, 15)
//     lane 1       (0, 4)
//     lane 2       (0, 8)
//     warp 0       (1, 0)
//
// Consequences:
//  - contiguous elements of a thread are low register bits with bases (0, 1), (0, 2), (0, 4) ...
//  - a zero basis means that the bit does not matter: places that differ in it hold copies of one element. Examples:
//    a tile with fewer elements than the block has threads, and a row's sum that all threads of the row hold.
//  - the mean of each row of the tile above has the layout without the column, register: (2), lane: (0) (0) (0),
//    warp: (1). Lanes hold copies; the reduction folds over register bit 0 and shuffles over the lane bits.
//  - a swizzled arrangement in shared memory is a linear layout, too: its bases have more than one bit set.
//
// The map goes from places to elements because of copies: a place holds one element, but an element may have many
// places, so the inverse exists only up to the choice of a copy (`invert`).
//
// A conversion from layout a to layout b needs, for each place of b, the place in a with the same element: the solution
// x of a(x) = b(place), itself a linear map, b.invert_and_compose(a). If it keeps warp bits, shuffles suffice; if it
// keeps lane bits, too, registers are renamed (conversion.h).
//
// Limits. All sizes are powers of two. Layouts over F2 cannot pad (offset + offset / 32); they swizzle instead. Layouts
// are independent of element types.
//
// Sources: the formalism is that of Triton's linear layouts (Zhou et al., "Linear Layouts: Robust Code Generation of
// Efficient Tensor Computation Using F2").
#pragma once
#include "base/result.h"
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::layout {

// Dimensions of an index: those of places on the left, tile dimensions (Axis0 is the tile's dimension 0) on the right,
// and Offset, elements of shared memory.
enum class Dim : uint8_t {
  Register,
  Lane,
  Warp,
  Block,
  Offset,
  Axis0,
  Axis1,
  Axis2,
  Axis3,
  Axis4,
  Axis5,
  Axis6,
  Axis7
};
[[nodiscard]] std::string_view name(Dim dim); // "register", "lane", ... "axis 0"
[[nodiscard]] inline Dim axis(int i) { return static_cast<Dim>(static_cast<int>(Dim::Axis0) + i); }

inline constexpr int kLanes = 32, kLaneBits = 5;

// A dimension with 2^bits positions.
struct Extent {
  Dim dim = Dim::Register;
  int bits = 0;
  bool operator==(const Extent&) const = default;
};

// A vector over the bits of several extents, packed: the first extent's bits are the lowest. At most 64.
using Bits = uint64_t;

// How a blocked layout spreads a tile, fastest axis first: per axis, contiguous elements of a thread, adjacent lanes,
// adjacent warps. All powers of two; the product of lanes is at most 32, that of warps at most the block's.
struct Blocked {
  std::vector<int> shape;    // of the tile
  std::vector<int> order;    // axes, fastest first
  std::vector<int> elements; // per axis, of one thread before the next lane starts
  std::vector<int> lanes;    // per axis
  std::vector<int> warps;    // per axis
};

class LinearLayout {
public:
  // The layout without dimensions: the neutral element of product.
  LinearLayout() = default;
  // bases: in order of the in-bits, each over the out-bits.
  LinearLayout(std::vector<Extent> in, std::vector<Extent> out, std::vector<Bits> bases);
  // The identity: bit i to bit i.
  [[nodiscard]] static LinearLayout identity(Dim in, Dim out, int bits);
  // All positions of `in` hold element 0 of `out`.
  [[nodiscard]] static LinearLayout zeros(Extent in, std::vector<Extent> out);
  // The layout of a tile on a block of `warps` warps (a power of two). Along each axis: elements, lanes, warps, then
  // the rest of the shape as further registers, in `order`. If the shape ends early, remaining elements are dropped,
  // and remaining and unused lanes and warps hold copies (zero bases, the highest bits of lane and warp).
  [[nodiscard]] static LinearLayout blocked(const Blocked& blocked, int warps);

  [[nodiscard]] const std::vector<Extent>& in() const { return in_; }
  [[nodiscard]] const std::vector<Extent>& out() const { return out_; }
  [[nodiscard]] int in_bits(Dim dim) const; // 0 if there is no such dimension
  [[nodiscard]] int out_bits(Dim dim) const;
  [[nodiscard]] int in_bits() const { return static_cast<int>(bases_.size()); } // of all dimensions
  [[nodiscard]] int out_bits() const;
  [[nodiscard]] std::span<const Bits> bases() const { return bases_; }
  [[nodiscard]] std::span<const Bits> bases(Dim in) const; // of one in-dimension's bits, low first
  // Coordinate along `out` of the basis of bit `bit` of `in`.
  [[nodiscard]] int basis(Dim in, int bit, Dim out) const;
  // For tile layouts: registers of a thread; warps of a block; the tile's shape.
  [[nodiscard]] int registers() const { return 1 << in_bits(Dim::Register); }
  [[nodiscard]] int warps() const { return 1 << in_bits(Dim::Warp); }
  [[nodiscard]] std::vector<int> shape() const;

  [[nodiscard]] Bits apply(Bits place) const;
  // Coordinates per out-dimension of a place. Indices of dimensions that the layout does not have must be 0.
  [[nodiscard]] std::vector<int> apply(int reg, int lane, int warp) const;
  // Out-coordinate `out` of a position along one in-dimension, the others 0: a constant that the emitter xors.
  [[nodiscard]] int apply(Dim in, int position, Dim out) const;
  [[nodiscard]] Bits pack_in(std::span<const int> positions) const; // per in-dimension
  [[nodiscard]] std::vector<int> unpack_out(Bits element) const;    // per out-dimension

  // x -> outer(this(x)); outer's in-dimensions are this one's out-dimensions, in any order.
  [[nodiscard]] LinearLayout compose(const LinearLayout& outer) const;
  // Product: the dimensions of both; in a shared dimension the right one's bits are above the left one's.
  [[nodiscard]] LinearLayout operator*(const LinearLayout& right) const;
  // The x with x * right == *this; nothing if there is none. The other function: left * x == *this.
  [[nodiscard]] std::optional<LinearLayout> divide_right(const LinearLayout& right) const;
  [[nodiscard]] std::optional<LinearLayout> divide_left(const LinearLayout& left) const;
  // Maps an element to a place that holds it; of several, the one with zeros in all redundant bits. The layout must be
  // surjective. invert().compose(*this) is the identity.
  [[nodiscard]] LinearLayout invert() const;
  // The place in `other` of the element that a place of this one holds: x with other(x) == this(place), with zeros in
  // other's redundant bits. Same out-dimensions, and other's image includes this one's. Hence
  // a.invert_and_compose(b).compose(b) == a. A dimension in which both agree is kept if possible: with equal
  // warp bases warp w reads from warp w, copies or not.
  [[nodiscard]] LinearLayout invert_and_compose(const LinearLayout& other) const;

  [[nodiscard]] bool is_injective() const;  // no element twice
  [[nodiscard]] bool is_surjective() const; // every element has a place
  // Bits of `in` that do not change the element, whatever the other bits are: those with a zero basis. Elements of a
  // layout without other dependencies are held once by the places with zeros in these bits.
  [[nodiscard]] uint32_t free_mask(Dim in) const;
  // No element is held twice among places whose free bits are 0, and each basis moves along one axis by one bit:
  // blocked layouts and their slices. Reductions and scans require this.
  [[nodiscard]] bool is_permutation() const;
  // The number of contiguous elements along `out` that a thread holds in consecutive registers: 2^k where register bit
  // i moves by 2^i along `out` and nowhere else, for all i < k.
  [[nodiscard]] int contiguous(Dim out) const;

  // The same places with some in-dimension's zero bases removed (fewer registers).
  [[nodiscard]] LinearLayout without_free(Dim in) const;
  // Coordinates masked: out-dimension i keeps positions below shape[i] (1: it is always 0), the extent shrinks. This
  // is the layout of a tile of that shape that broadcasts to this one. Copies in registers are removed.
  [[nodiscard]] LinearLayout project(std::span<const int> shape) const;
  // For tile layouts: removes an axis, later ones move up; copies in registers are removed. The other function inserts
  // an axis of extent 1.
  [[nodiscard]] LinearLayout drop_axis(int axis) const;
  [[nodiscard]] LinearLayout insert_axis(int axis) const;

  // "register: (0, 1) (2, 0) | lane: (0, 2) (0, 4) (0, 8) | warp: (1, 0) -> [4, 16]"; of no bits "register:".
  [[nodiscard]] std::string str() const;
  bool operator==(const LinearLayout&) const = default;

private:
  std::vector<Extent> in_, out_;
  std::vector<Bits> bases_;
};

// Per register of `to`, the register of the same thread that holds the element in `from`; nothing if a thread would
// need an element of another thread. Both of tiles of one shape, or `from` of project(...) of it: then coordinates
// along from's axes of extent 1 are ignored, and the map is a broadcast.
[[nodiscard]] std::optional<std::vector<int>> register_map(const LinearLayout& from, const LinearLayout& to);

} // namespace tessera::layout
