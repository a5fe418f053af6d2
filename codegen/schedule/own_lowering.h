// The base of kernels built directly in the tile IR: the kernel under construction, its parameters, and a tile of
// [rows, columns]. Private to own_*.cpp.
#pragma once
#include "codegen/schedule/own_kernels.h"
#include <array>
#include <limits>

namespace tessera {

class OwnLowering {
public:
  OwnLowering(const Graph& graph, const Node& node, const Target& device, const std::string& name)
      : graph_(graph), env_(graph.env()), node_(node), device_(device), b_(out_.kernel) {
    out_.kernel.name = name;
  }

protected:
  using V = tile::ValueId;
  using Values = std::vector<V>;

  [[nodiscard]] bool gpu() const { return device_.is_gpu(); }
  [[nodiscard]] const TensorType& type(size_t operand) const { return graph_.type(node_.operands[operand]); }
  [[nodiscard]] V op(ScalarOp o, V x, V y) { return b_.scalar(o, std::array{x, y}); }
  [[nodiscard]] V select(V condition, V x, V y) { return b_.scalar(ScalarOp::Select, std::array{condition, x, y}); }
  [[nodiscard]] V constant(int64_t v) { return b_.const_i(DType::I64, v); }
  V pointer(const char* name, DType dtype, bool written) {
    V v = b_.param(name, {tile::Type::Kind::Pointer, dtype, {}}, written);
    out_.kernel.params.back().invariant = !written;
    return v;
  }
  // A parameter, for sizes that are known as well: kernels that differ in nothing else are one.
  V parameter(const char* name, const SymExpr& given) {
    out_.sizes.push_back(env_.simplify(given));
    return b_.param(name, {tile::Type::Kind::Data, DType::I64, {}});
  }
  // A number where the size is known, else a parameter.
  V size(const char* name, const SymExpr& given) {
    if (auto n = env_.simplify(given).as_const()) return constant(*n);
    return parameter(name, given);
  }
  // The kernel's grid; on a GPU the kernel has its largest number, where 32 bits hold it.
  void set_grid(const SymExpr& grid) {
    out_.grid = env_.simplify(grid);
    if (const int64_t most = env_.range(out_.grid).hi; gpu() && most <= std::numeric_limits<int32_t>::max())
      out_.kernel.config["programs"] = std::max<int64_t>(1, most);
  }

  const Graph& graph_;
  const ShapeEnv& env_;
  const Node& node_;
  const Target& device_;
  ScheduledKernel out_;
  tile::Builder b_;
};

// With a tile of height x width elements; its type has no dimensions of 1.
class OwnTileLowering : public OwnLowering {
public:
  using OwnLowering::OwnLowering;

protected:
  void set_tile(int height, int width) {
    height_ = height;
    width_ = width;
    if (height_ > 1) shape_.push_back(height_);
    if (width_ > 1) shape_.push_back(width_);
  }
  // Indices from `first` on of the tile's rows or columns: a scalar where it has one.
  V rows_from(V first) { return indices(first, height_, 1); }
  V columns_from(V first) { return indices(first, width_, 0); }
  V full(V v) { return shape_.empty() || b_.kernel().type(v).shape == shape_ ? v : b_.broadcast(v, shape_); }

  int height_ = 1, width_ = 1;

private:
  V indices(V first, int n, int other_axis) {
    if (n == 1) return first;
    V r = b_.range(n);
    if (shape_.size() == 2) r = b_.expand_dims(r, other_axis);
    return op(ScalarOp::Add, r, first);
  }
  std::vector<int> shape_;
};

} // namespace tessera
