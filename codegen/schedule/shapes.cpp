#include "codegen/schedule/shapes.h"
#include <algorithm>
#include <array>

namespace tessera {

std::vector<int> common_shape(const tile::Kernel& kernel, std::span<const tile::ValueId> values) {
  std::vector<int> shape;
  for (tile::ValueId v : values) {
    const std::vector<int>& s = kernel.type(v).shape;
    if (s.empty()) continue;
    if (shape.empty()) {
      shape = s;
      continue;
    }
    TESSERA_CHECK(s.size() == shape.size(), "operands have tiles of different ranks");
    for (size_t d = 0; d < s.size(); ++d) {
      TESSERA_CHECK(s[d] == shape[d] || s[d] == 1 || shape[d] == 1, "operands have tiles that do not broadcast");
      shape[d] = std::max(shape[d], s[d]);
    }
  }
  return shape;
}

tile::ValueId pointwise(tile::Builder& b, ScalarOp op, std::span<const tile::ValueId> args) {
  std::vector<int> shape = common_shape(b.kernel(), args);
  std::vector<tile::ValueId> same;
  same.reserve(args.size());
  for (tile::ValueId v : args) same.push_back(b.kernel().type(v).is_tile() ? b.broadcast(v, shape) : v);
  return b.scalar(op, same);
}

tile::ValueId conjunction(tile::Builder& b, tile::ValueId x, tile::ValueId y) {
  return x < 0 ? y : y < 0 ? x : pointwise(b, ScalarOp::And, std::array{x, y});
}

} // namespace tessera
