// Weights that passes make from others, as copies in host memory.
#pragma once
#include "base/tensor.h"
#include "graph/ir/graph.h"

namespace tessera {

// The tensor of a constant node, with or without its data; null for another value.
[[nodiscard]] const Tensor* constant_tensor(const Graph& graph, ValueId value);

// The parts next to each other along `axis`, and zeros behind them up to `dims`: the dtype and rank of all parts, each of
// whose extents is at most that of `dims`. Copies are kept while one is in use: variants of a model are compiled separately
// and have the same weights. Without data where a part has none. Error OutOfMemory.
[[nodiscard]] Result<Tensor> copied_weights(const std::vector<Tensor>& parts, size_t axis, Dims dims);

} // namespace tessera
