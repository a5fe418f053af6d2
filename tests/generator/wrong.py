"""Nodes that the generator does not draw although ONNX Runtime 1.32 takes them: what it computes wrongly or crashes on, and what ONNX
leaves undefined, with reasons. Each was seen on a model of one node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import onnx


@dataclass
class Node:
    """operands: draw.Value by position, None where one is left out. results: for each call; None before the node has run."""

    proto: onnx.NodeProto
    operands: list[Any]
    attributes: dict[str, Any]
    results: list[list[numpy.ndarray]] | None

    def integers(self) -> bool:
        return bool(self.operands[0].dtype.kind in "iu")

    def computed(self, *which: int) -> bool:
        """Whether one of these operands is no weight."""
        return any(i < len(self.operands) and self.operands[i] is not None and not self.operands[i].constant for i in which)

    def has(self, result: int) -> bool:
        return len(self.proto.output) > result and bool(self.proto.output[result])

    def empty(self, *which: int) -> bool:
        """Whether one of these operands (all, where none are named) has no elements in some call."""
        values = [self.operands[i] for i in which] if which else self.operands
        return any(v is not None and any(a.size == 0 for a in v.arrays) for v in values)

    def exceeds(self) -> bool:
        """Whether the window of a pooling or convolution is larger than its input with pads, in some call."""
        kernel = self.attributes.get("kernel_shape")
        if not kernel or "Transpose" in self.proto.op_type or "Unpool" in self.proto.op_type or self.attributes.get("auto_pad", b"NOTSET").startswith(b"SAME"):
            return False
        last = "Nhwc" in self.proto.op_type or bool(self.attributes.get("channels_last"))
        pads, dilations = self.attributes.get("pads", [0] * 2 * len(kernel)), self.attributes.get("dilations", [1] * len(kernel))
        total = [a + b for a, b in zip(pads, pads[len(kernel) :])]
        return any(n + p < (k - 1) * d + 1 for a in self.operands[0].arrays for n, p, k, d in zip(a.shape[1:-1] if last else a.shape[2:], total, kernel, dilations))

    def within(self, operand: int, counts: Sequence[int], column: int | None = None) -> bool:
        """Whether the elements of an operand, or of a column of it, are indices below a count, in each call."""
        if len(self.operands) <= operand or self.operands[operand] is None:
            return True
        parts = [a if column is None or not a.size else a[..., column] for a in self.operands[operand].arrays]
        return all(bool(((p >= 0) & (p < n)).all()) for p, n in zip(parts, counts))

    def whole_images(self) -> bool:
        """Whether the roi of Resize spans the first two dimensions."""
        if "axes" in self.attributes or len(self.operands) < 2 or self.operands[1] is None:
            return True
        return all(a.size >= 4 and not a[:2].any() and bool((a[a.size // 2 :][:2] == 1).all()) for a in self.operands[1].arrays)

    def finite(self) -> bool:
        return all(bool(numpy.isfinite(a).all()) for v in self.operands if v is not None and v.dtype.kind == "f" for a in v.arrays)

    def saturates(self) -> bool:
        """Whether two products of u8 and s8 may have a sum beyond 16 bits. Floating-point operands become u8 up to 255 on the way."""
        arrays = [v.arrays for v in self.operands if v is not None and v.arrays]
        signed = max((int(numpy.abs(a.astype(int)).max(initial=0)) for each in arrays for a in each if a.dtype == numpy.int8), default=0)
        unsigned = max((int(a.max(initial=0)) for each in arrays for a in each if a.dtype == numpy.uint8), default=0)
        if self.operands[0].dtype.kind == "f":
            unsigned = 255
        return 2 * unsigned * signed > 32767

    def classes(self) -> bool:
        """Whether the targets of a loss are classes, or those that it ignores."""
        ignored = self.attributes.get("ignore_index")
        pairs = zip(self.operands[1].arrays, self.operands[0].arrays)
        return all(bool((((t >= 0) & (t < x.shape[1])) | (t == ignored if ignored is not None else False)).all()) for t, x in pairs)

    def turned(self) -> int:
        """Elements of a head that RotaryEmbedding of ONNX rotates, in the first call; 0 where nothing says how many heads there are."""
        heads, rank = self.attributes.get("num_heads", 0), self.operands[0].rank
        width = self.operands[0].arrays[0].shape[-1] // (1 if rank == 4 else heads) if rank == 4 or heads else 0
        return int(self.attributes.get("rotary_embedding_dim", 0) or width)

    def unpooled(self) -> list[int]:
        """Elements of the result of MaxUnpool, in each call."""
        kernel = self.attributes["kernel_shape"]
        strides, pads = self.attributes.get("strides", [1] * len(kernel)), self.attributes.get("pads", [0] * 2 * len(kernel))
        if len(self.operands) > 2 and self.operands[2] is not None:
            return [int(numpy.prod(a)) for a in self.operands[2].arrays]
        sizes = [[(n - 1) * s + k - pads[i] - pads[i + len(kernel)] for i, (n, s, k) in enumerate(zip(a.shape[2:], strides, kernel))] for a in self.operands[0].arrays]
        return [a.shape[0] * a.shape[1] * int(numpy.prod(s)) for a, s in zip(self.operands[0].arrays, sizes)]


@dataclass
class Wrong:
    """A known wrong result of the operators `ops` ("Div", "com.microsoft.Attention"; "" is every one)."""

    ops: str
    reason: str
    when: Callable[[Node], bool] = lambda n: True


QUANTIZED_PRODUCTS = (
    "MatMulInteger ConvInteger QLinearMatMul QLinearConv com.microsoft.QLinearConv com.microsoft.QGemm com.microsoft.QAttention"
    " com.microsoft.MatMulIntegerToFloat com.microsoft.DynamicQuantizeMatMul com.microsoft.DynamicQuantizeLSTM"
)
WRONG = [
    # It ends the process.
    Wrong("Div Mod", "integers divided by zero: SIGFPE", lambda n: n.integers() and any(bool((a == 0).any()) for a in n.operands[1].arrays)),
    Wrong("com.microsoft.QLinearWhere", "a scale or zero point that is no weight: SIGSEGV", lambda n: n.computed(2, 3, 5, 6, 7, 8)),
    Wrong("QLinearAveragePool com.microsoft.QLinearAveragePool", "a window that lies in the padding: SIGFPE", lambda n: "pads" in n.attributes or "auto_pad" in n.attributes or bool(n.attributes.get("ceil_mode"))),
    Wrong("Unique", "no elements with an axis: abort", lambda n: n.empty()),
    # It reads or writes outside of its tensors.
    Wrong("MaxUnpool", "positions outside of the result", lambda n: not n.within(1, n.unpooled())),
    Wrong("RoiAlign com.microsoft.CropAndResize", "images that there are none of", lambda n: not n.within(2, [a.shape[0] for a in n.operands[0].arrays])),
    Wrong("MaxRoiPool", "images that there are none of", lambda n: not n.within(1, [a.shape[0] for a in n.operands[0].arrays], column=0)),
    # It writes no result.
    Wrong("com.microsoft.SkipLayerNormalization com.microsoft.SkipSimplifiedLayerNormalization", "mean and deviation, of training, are not written", lambda n: n.has(1) or n.has(2)),
    Wrong("MatMulInteger", "a product over no elements is not written", lambda n: any(a.shape[-1] == 0 for a in n.operands[0].arrays)),
    # It computes another function.
    Wrong("Resize", "align_corners with scales rounds the size that the coordinates are of", lambda n: n.attributes.get("coordinate_transformation_mode") == b"align_corners" and len(n.operands) > 2 and n.operands[2] is not None and n.operands[2].arrays[0].size > 0),
    Wrong("BatchNormalization", "training does not subtract the mean of a batch of few elements, or of f16", lambda n: bool(n.attributes.get("training_mode"))),
    Wrong("MaxUnpool", "an output_shape changes what positions are", lambda n: len(n.operands) > 2 and n.operands[2] is not None),
    Wrong("com.microsoft.CausalConvWithState", "takes a weight of another number of channels than the input's where one of them is 0", lambda n: any(x.shape[1] != w.shape[0] for x, w in zip(n.operands[0].arrays, n.operands[1].arrays))),
    Wrong("ConvTranspose", "SAME does not make the result as large as the strides say where the kernel is smaller", lambda n: n.attributes.get("auto_pad", b"").startswith(b"SAME") and max(n.attributes.get("strides", [1])) > min(min(a.shape[2:]) for a in n.operands[1].arrays)),
    Wrong("Resize", "tf_crop_and_resize leaves out what roi says of N and C", lambda n: n.attributes.get("coordinate_transformation_mode") == b"tf_crop_and_resize" and not n.whole_images()),
    Wrong("com.microsoft.QLinearSoftmax", "rounds its codes down"),
    Wrong("HannWindow HammingWindow BlackmanWindow", "a symmetric window of one element divides by zero", lambda n: n.attributes.get("periodic", 1) == 0 and any((a == 1).all() for a in n.operands[0].arrays)),
    Wrong("Resize", "antialiasing rounds integers after each axis", lambda n: bool(n.attributes.get("antialias")) and n.integers()),
    Wrong("MeanVarianceNormalization", "equal elements are divided by zero, without the epsilon", lambda n: n.results is not None and any(bool(numpy.isnan(r[0]).any()) for r in n.results) and n.finite()),
    Wrong("ai.onnx.ml.TreeEnsembleClassifier", "a class that no leaf of a row votes for does not win with its 0 over negative ones", lambda n: n.results is not None and any(r[1].size and bool(((r[1].min(-1) < 0) & (r[1].max(-1) <= 0)).any()) for r in n.results)),
    Wrong("ReduceMean", "the mean of no elements", lambda n: n.empty(0)),
    Wrong("NonZero", "of a scalar, ONNX has a result of [0, n], and it one of [1, n]", lambda n: n.operands[0].rank == 0),
    Wrong("BlackmanWindow", "its ends are what rounding leaves of a difference that is 0"),
    Wrong("ReduceSumSquare ReduceProd", "sums and products of integers that overflow", lambda n: n.integers() and any(bool((numpy.abs(a.astype(float)) > 100).any()) for a in n.operands[0].arrays)),
    Wrong("HannWindow HammingWindow DFT STFT Gelu", "f64 is computed with constants of f32", lambda n: n.results is not None and n.results[0][0].dtype == numpy.float64),
    Wrong(QUANTIZED_PRODUCTS, "two products of u8 and s8 are added in 16 bits, saturated, on a processor without VNNI", Node.saturates),
    # ONNX says nothing of them.
    Wrong("ReduceLogSumExp ReduceLogSum ReduceL2 ReduceMean", "real numbers as integers: how they are rounded", lambda n: n.integers()),
    Wrong("com.microsoft.MoE com.microsoft.QMoE", "experts of equal scores, or of NaN", lambda n: not n.finite() or any(len(set(row)) < len(row) for a in n.operands[1].arrays if a.size for row in a.reshape(-1, a.shape[-1]).tolist())),
    Wrong("GroupNormalization", "other numbers of scales than groups or channels", lambda n: n.operands[1].dims[0][0] not in (n.attributes["num_groups"], n.operands[0].dims[1][0])),
    Wrong("RotaryEmbedding", "an odd number of elements to turn, or of an unknown number of heads", lambda n: n.turned() == 0 or n.turned() % 2 == 1),
    Wrong("GatherND", "positions of no components", lambda n: n.operands[1].rank > 0 and 0 in n.operands[1].dims[-1]),
    Wrong("", "NaN or infinity as integers", lambda n: n.results is not None and any(r.dtype.kind in "iu" for r in n.results[0]) and not n.finite()),
    Wrong("Pow", "NaN as integers: fractional powers of negative ones", lambda n: n.integers() and n.operands[1].dtype.kind == "f"),
    Wrong("Pow", "zero to a negative power as an integer", lambda n: n.integers() and n.finite() and any(bool((x == 0).any() and (y < 0).any()) for x, y in zip(n.operands[0].arrays, n.operands[1].arrays))),
    Wrong("com.microsoft.EmbedLayerNormalization com.microsoft.QEmbedLayerNormalization com.microsoft.MultiHeadAttention com.microsoft.Attention", "an empty batch is not checked", lambda n: n.empty()),
    Wrong("QuantizeLinear com.microsoft.QuantizeLinear", "a scale of zero", lambda n: any(bool((a == 0).any()) for a in n.operands[1].arrays)),
    Wrong("AffineGrid", "corners of a dimension of one element", lambda n: bool(n.attributes.get("align_corners")) and any(1 in a[2:] for a in n.operands[1].arrays)),
    Wrong("NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss", "targets that are no class", lambda n: not n.classes()),
    Wrong("NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss", "targets of another shape than the scores", lambda n: n.operands[1].dims != n.operands[0].dims[:1] + n.operands[0].dims[2:]),
    Wrong("", "a window larger than its padded input", lambda n: n.exceeds()),
    Wrong("MaxPool", "positions of a window of padding alone", lambda n: n.has(1) and ("pads" in n.attributes or "auto_pad" in n.attributes)),
    Wrong("Compress", "a condition longer than what it chooses from", lambda n: any(a.size > (x.shape[n.attributes["axis"]] if "axis" in n.attributes else x.size) for a, x in zip(n.operands[1].arrays, n.operands[0].arrays))),
]  # fmt: skip
_BY_OP: dict[str, list[Wrong]] = {}
for _wrong in WRONG:
    for _op in _wrong.ops.split() or [""]:
        _BY_OP.setdefault(_op, []).append(_wrong)


def onnxruntime_is_wrong(node: onnx.NodeProto, operands: Sequence[Any], results: list[list[numpy.ndarray]] | None = None) -> bool:
    """`operands`: draw.Value of each name that the node reads. To be called before it runs, and with its results."""
    entries = _BY_OP[""] + _BY_OP.get(f"{node.domain}.{node.op_type}" if node.domain else node.op_type, [])
    named = {v.name: v for v in operands}
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute if a.type != onnx.AttributeProto.GRAPH}
    n = Node(node, [named.get(name) for name in node.input], attributes, results)
    return any(w.when(n) for w in entries)
