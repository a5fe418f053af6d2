// The registering functions of files that share one entry of op.h's list, and what those files have in common.
#pragma once
#include "graph/ops/build.h"

namespace tessera {

void register_einsum_ops(OpTable&);           // einsum.cpp
void register_read_ops(OpTable&);             // read.cpp
void register_list_ops(OpTable&);             // list.cpp
void register_string_ops(OpTable&);           // strings.cpp
void register_image_ops(OpTable&);            // image.cpp: ImageDecoder
void register_attention_ops(OpTable&);        // attention.cpp
void register_narrow_ops(OpTable&);           // narrow.cpp: elements of 8 bits and less as bytes
void register_linear_attention_ops(OpTable&); // linear_attention.cpp
void register_conv_onnx_ops(OpTable&);        // conv_onnx.cpp
void register_pool_onnx_ops(OpTable&);        // pool_onnx.cpp
void register_pool_ops(OpTable&);             // pool.cpp
void register_unpool_ops(OpTable&);           // unpool.cpp: MaxUnpool, Col2Im
void register_roi_ops(OpTable&);              // roi.cpp: RoiAlign, MaxRoiPool
void register_deform_ops(OpTable&);           // deform.cpp: DeformConv
void register_resize_ops(OpTable&);           // resize.cpp
void register_grid_ops(OpTable&);             // grid.cpp: GridSample, AffineGrid
void register_scatter_ops(OpTable&);          // scatter.cpp
void register_select_ops(OpTable&);           // select.cpp: NonZero, Unique, Compress, NonMaxSuppression
void register_loss_ops(OpTable&);             // loss.cpp
void register_signal_ops(OpTable&);           // signal.cpp: windows, DFT, STFT, MelWeightMatrix
void register_random_ops(OpTable&);           // random.cpp
void register_scan_onnx_ops(OpTable&);        // control_scan.cpp
void register_training_ops(OpTable&);         // training.cpp: Adagrad, Adam, Momentum

namespace ops {

// Version of the operator set a node was written in; nodes that Tessera makes itself are of the newest.
[[nodiscard]] inline int opset_of(const Node& node) { return node.opset == 0 ? 1 << 20 : node.opset; }

// Whether an optional operand was given to a reference.
[[nodiscard]] inline bool given(const ReferenceContext& c, size_t operand) {
  return operand < c.operands.size() && operand < c.node.operands.size() && c.node.operands[operand].valid();
}

// The dtype an ONNX dtype number in an Int attribute names; `fallback` where it is absent or 0. Error BadAttribute.
[[nodiscard]] Result<DType> dtype_attribute(const Node& node, std::string_view name, DType fallback);

// Contents of an integer operand as dimensions where they are known when compiling; otherwise `count` fresh symbols
// (the record says data_dependent_shape). Error BadAttribute when the number of known contents is not `count`.
[[nodiscard]] Result<SymShape> known_or_fresh(InferContext& c, int operand, size_t count, std::string_view name);

// ---- windows that slide over spatial dimensions: convolution and pooling
struct Window {
  Ints strides, pads_begin, pads_end, dilations; // one per spatial dimension
};
// Attributes strides, pads, dilations of ONNX with their defaults; pads are zero when auto_pad decides them. Error
// BadAttribute on a wrong count, a stride or dilation below 1, or values beyond any tensor's size.
[[nodiscard]] Result<Window> onnx_window(const Node& node, int spatial);
[[nodiscard]] Status check_window(const Node& node, const Window& window, size_t spatial);
[[nodiscard]] Window
window_of(const Attributes& attributes); // of a primitive: strides, pads_begin, pads_end, dilations
[[nodiscard]] Attributes window_attributes(const Window& window);

// Size of a dilated kernel.
[[nodiscard]] inline SymExpr reach(const SymExpr& kernel, int64_t dilation) { return (kernel - 1) * dilation + 1; }
// Spatial results of sliding kernels; requires that the kernel fits the padded input (an error where it cannot).
[[nodiscard]] Result<SymShape> slide(InferContext& c, std::span<const SymExpr> sizes, std::span<const SymExpr> kernel,
                                     const Window& window);
// Pads as auto_pad requires (SAME_UPPER, SAME_LOWER, VALID, NOTSET): added to the window where they are constants, else
// to `begin` and `end`, one per spatial dimension, for an explicit pad (symbolic sizes with a stride).
[[nodiscard]] Status apply_auto_pad(const Node& node, std::span<const SymExpr> sizes, std::span<const SymExpr> kernel,
                                    Window& window, SymShape& begin, SymShape& end);
// Attribute channels_last 1 of conv, conv_transpose and pool: x is [N, spatial..., C], so is the result; weights do not
// change. Both shapes and tensors are brought into the order [N, C, spatial...] and back; other nodes' stay as they
// are.
[[nodiscard]] bool channels_last(const Node& node);
[[nodiscard]] SymShape channels_first(const Node& node, const SymShape& shape);
[[nodiscard]] SymShape in_own_order(const Node& node, const SymShape& channels_first);
// Runs a reference that is written for [N, C, spatial...].
[[nodiscard]] Status on_channels_first(ReferenceContext& c, const std::function<Status(ReferenceContext&)>& reference);

// kernel_shape must agree with the weight's sizes.
[[nodiscard]] Status check_kernel_shape(B& b, const SymShape& weight);

// ---- scatters: element `at` of `out` becomes the update, or its fold with it ("none", "add", "mul", "max", "min").
void fold_update(Tensor& out, int64_t at, const Tensor& updates, int64_t from, const std::string& reduction);

} // namespace ops
} // namespace tessera
