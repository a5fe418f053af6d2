"""Operators of the domain com.microsoft against ONNX Runtime's kernels for the CPU, over their forms and odd sizes."""

from __future__ import annotations

import unittest
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from support import ROOT  # noqa: F401  finds the package

import tessera.onnx_backend as backend

RANDOM = numpy.random.default_rng(25)


def f(*shape: int) -> numpy.ndarray:
    return RANDOM.uniform(-1, 1, shape).astype(numpy.float32)


def positive(*shape: int) -> numpy.ndarray:
    return RANDOM.uniform(0.01, 0.1, shape).astype(numpy.float32)


def u8(*shape: int) -> numpy.ndarray:
    return RANDOM.integers(0, 256, shape).astype(numpy.uint8)


def i8(*shape: int) -> numpy.ndarray:
    return RANDOM.integers(-128, 128, shape).astype(numpy.int8)


def factor8(*shape: int) -> numpy.ndarray:
    """A factor of 7 bits: without VNNI, ONNX Runtime adds two products of u8 and s8 in 16 bits, saturated."""
    return RANDOM.integers(-64, 64, shape).astype(numpy.int8)


def i32(values: Any) -> numpy.ndarray:
    return numpy.array(values, numpy.int32)


def scalar(value: float, dtype: Any = numpy.float32) -> numpy.ndarray:
    return numpy.array(value, dtype)


@dataclass
class Case:
    """inputs: in the operator's order, None where one is left out; weights: which of them are weights of the model.
    left_out: outputs that the node does not name; only: outputs that are compared, where others hold undefined rows."""

    op: str
    inputs: list[numpy.ndarray | None]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    left_out: tuple[int, ...] = ()
    only: tuple[int, ...] | None = None
    weights: tuple[int, ...] = ()
    domain: str = "com.microsoft"
    rtol: float = 1e-4
    step: int = 0  # of codes: a result on the border between two may be either

    def model(self) -> onnx.ModelProto:
        names = ["" if x is None else f"x{i}" for i, x in enumerate(self.inputs)]
        outputs = [f"y{i}" if i not in self.left_out else "" for i in range(self.outputs)]
        node = helper.make_node(self.op, names, outputs, domain=self.domain, **self.attributes)
        infos, weights = [], []
        for i, x in enumerate(self.inputs):
            if x is None:
                continue
            if i in self.weights:
                weights.append(numpy_helper.from_array(x, names[i]))
            else:
                infos.append(helper.make_tensor_value_info(names[i], helper.np_dtype_to_tensor_dtype(x.dtype), x.shape))
        graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name=y) for y in outputs if y], weights)
        imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=10)

    def feeds(self) -> dict[str, numpy.ndarray]:
        return {f"x{i}": x for i, x in enumerate(self.inputs) if x is not None and i not in self.weights}


def heads(**more: Any) -> dict[str, Any]:
    return {"num_heads": 2, **more}


def attention() -> list[Case]:
    x, w, bias = f(2, 5, 12), f(12, 24), f(24)
    past = f(2, 2, 2, 3, 4)
    cases = [
        Case("Attention", [x, w, bias], heads()),
        Case("Attention", [x, w, bias], heads(unidirectional=1, scale=0.3)),
        Case("Attention", [x, w, bias, i32([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])], heads()),
        Case("Attention", [x, w, bias, i32([[0, 1, 1, 1, 1], [0, 0, 1, 1, 1]])], heads(unidirectional=1)),
        Case("Attention", [x, w, bias, i32([3, 5])], heads()),
        Case("Attention", [x, w, bias, i32([4, 5, 1, 2])], heads(mask_filter_value=-1e30)),
        Case("Attention", [x, w, bias, i32(RANDOM.integers(0, 2, (2, 5, 5)) | numpy.eye(5, dtype=int))], heads()),
        Case("Attention", [x, w, bias, None, past], heads(unidirectional=1), 2),
        Case("Attention", [x, w, bias, i32([[1] * 8, [0, 0] + [1] * 6]), past], heads(), 2),
        Case("Attention", [x, w, bias, None, None, f(1, 2, 5, 5)], heads()),
        Case("Attention", [x, f(12, 20), f(20)], heads(qkv_hidden_sizes=[8, 8, 4])),
        Case("QAttention", [u8(2, 5, 12), factor8(12, 24), bias, scalar(0.02), scalar(0.01), None, scalar(120, numpy.uint8), scalar(3, numpy.int8)], heads(), weights=(1, 2, 3, 4, 6, 7)),
        Case("QAttention", [u8(2, 5, 12), factor8(12, 24), bias, scalar(0.02), positive(24), i32([[1, 1, 1, 0, 0]] * 2), scalar(120, numpy.uint8), i8(24)], heads(unidirectional=1), weights=(1, 2, 3, 4, 6, 7)),
    ]  # fmt: skip
    q, k, v = f(2, 3, 8), f(2, 5, 8), f(2, 5, 6)
    own_k, own_v = f(2, 3, 8), f(2, 3, 8)
    cases += [
        Case("MultiHeadAttention", [q, k, v, f(22)], heads()),
        Case("MultiHeadAttention", [q, k, v, None, i32([3, 5])], heads()),
        Case("MultiHeadAttention", [q, k, v, f(22), i32([[1, 1, 0, 0, 0], [1, 1, 1, 1, 1]]), f(2, 2, 3, 5)], heads()),
        Case("MultiHeadAttention", [q, k, v, None, i32(RANDOM.integers(0, 2, (2, 3, 5)) | 1)], heads(scale=0.2)),
        Case("MultiHeadAttention", [q, f(2, 2, 5, 4), f(2, 2, 5, 4)], heads()),
        Case("MultiHeadAttention", [q, own_k, own_v, None, None, None, f(2, 2, 4, 4), f(2, 2, 4, 4)], heads(unidirectional=1), 3),
        Case("MultiHeadAttention", [q, own_k, own_v, None, None, f(1, 1, 3, 7), f(2, 2, 4, 4), f(2, 2, 4, 4)], heads(), 3),
        Case("MultiHeadAttention", [q, own_k, own_v], heads(unidirectional=1)),
    ]  # fmt: skip
    cos, sin = f(16, 2), f(16, 2)
    positions = numpy.array([[3, 4, 5], [0, 1, 2]], numpy.int64)
    return cases + [
        Case("RotaryEmbedding", [f(2, 3, 8), positions, cos, sin]),
        Case("RotaryEmbedding", [f(2, 3, 8), numpy.array([2], numpy.int64), cos, sin], {"interleaved": 1}),
        Case("RotaryEmbedding", [f(2, 2, 3, 4), positions, cos, sin]),
        Case("RotaryEmbedding", [f(2, 3, 12), positions, cos, sin], heads(rotary_embedding_dim=4)),
    ]


def grouped() -> list[Case]:
    def case(length: int, past: int, seqlens: list[int], total: int, only: tuple[int, ...] | None = None, packed: bool = False, **more: Any) -> Case:
        batch, q_heads, kv_heads, width = len(seqlens), 4, 2, 16
        q, k, v = f(batch, length, q_heads * width), f(batch, length, kv_heads * width), f(batch, length, kv_heads * width)
        cache: list[numpy.ndarray | None] = [f(batch, kv_heads, past, width), f(batch, kv_heads, past, width)] if past else [None, None]
        inputs: list[numpy.ndarray | None] = [q, k, v, *cache, i32(seqlens), i32([total])]
        if packed:
            inputs[:3] = [numpy.concatenate([q, k, v], 2), None, None]
        if more.get("do_rotary"):
            inputs += [f(32, width // 2), f(32, width // 2)]
        for name, place in (("bias", 10), ("sink", 11)):
            if name in more:
                inputs += [None] * (place - len(inputs)) + [more.pop(name)]
        return Case("GroupQueryAttention", inputs, {"num_heads": q_heads, "kv_num_heads": kv_heads, **more}, 3, only=only, weights=(6,))

    return [
        case(5, 0, [4, 4], 5),
        case(5, 0, [4, 4], 5, packed=True),
        case(5, 0, [4, 4], 5, do_rotary=1),
        case(1, 4, [4, 4], 5, do_rotary=1),
        case(1, 4, [4, 4], 5, do_rotary=1, rotary_interleaved=1, packed=True),
        case(1, 9, [4, 6], 7, only=(0,), do_rotary=1),
        case(1, 9, [4, 6], 7, only=(0,), local_window_size=3),
        case(6, 0, [5, 5], 6, local_window_size=3),
        case(6, 0, [5], 6, local_window_size=1),
        case(5, 9, [4, 4], 5, only=(0,), do_rotary=1),
        case(3, 4, [6], 7, do_rotary=1),
        case(5, 0, [4, 4], 5, softcap=2.0, scale=0.5),
        case(4, 0, [3], 4, bias=f(1, 1, 4, 4)),
        case(1, 4, [4], 5, bias=f(1, 4, 1, 5)),
        case(4, 0, [3, 3], 4, smooth_softmax=1),
        case(4, 0, [3, 3], 4, sink=f(4)),
        case(1, 4, [4, 4], 5, sink=3 * f(4), local_window_size=3),
        case(4, 0, [3, 3], 4, causal=0),
    ]


def norms() -> list[Case]:
    x, skip, v = f(2, 3, 8), f(2, 3, 8), f(8)
    ids, segments = i32(RANDOM.integers(0, 9, (2, 5))), i32(RANDOM.integers(0, 2, (2, 5)))
    words, places, kinds = f(9, 8), f(7, 8), f(2, 8)
    mask = i32([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    return [
        Case("SkipLayerNormalization", [x, skip, v, f(8), f(8)], {"epsilon": 1e-5}, 4, (1, 2)),
        Case("SkipLayerNormalization", [x, f(3, 8), v], {"epsilon": 1e-5}),
        Case("SkipLayerNormalization", [x, f(1, 3, 8), v, f(8)], {"epsilon": 0.1}),
        Case("SkipSimplifiedLayerNormalization", [x, skip, v, f(8)], {"epsilon": 1e-5}, 4, (1, 2)),
        Case("SkipSimplifiedLayerNormalization", [f(5, 8), f(5, 8), v], {"epsilon": 1e-5}),
        Case("SimplifiedLayerNormalization", [x, v], {"epsilon": 1e-5}, 2, domain=""),
        Case("SimplifiedLayerNormalization", [x, f(3, 8)], {"axis": 1}, domain=""),
        Case("EmbedLayerNormalization", [ids, segments, words, places, kinds, v, f(8), mask], {"epsilon": 1e-5}, 2),
        Case("QEmbedLayerNormalization", [ids, segments, u8(9, 8), u8(7, 8), u8(2, 8), u8(8), u8(8), mask, *[scalar(s) for s in RANDOM.uniform(0.01, 0.05, 5)], *[scalar(z, numpy.uint8) for z in RANDOM.integers(99, 160, 5)]], {"epsilon": 1e-5}, 2),
        Case("EmbedLayerNormalization", [ids, None, words, places, None, v, f(8)], {}, 3),
        Case("EmbedLayerNormalization", [ids, segments, words, places, kinds, v, f(8), None, i32(RANDOM.integers(0, 7, (2, 5)))], {}, 3),
    ]


def activations() -> list[Case]:
    x = 3 * f(2, 3, 8)
    return [
        Case("Gelu", [x]), Case("FastGelu", [x]), Case("FastGelu", [x, f(8)]), Case("BiasGelu", [x, f(8)]),
        Case("QuickGelu", [x]), Case("QuickGelu", [x], {"alpha": 1.2}),
    ]  # fmt: skip


def products() -> list[Case]:
    bits = {"K": 40, "N": 6, "block_size": 16}
    scales = positive(6, 3)
    z = scalar(120, numpy.uint8)
    table = {"block_size": 16}
    rows = numpy.array([[1, -1], [3, 0]], numpy.int64)
    return [
        Case("FusedMatMul", [f(2, 3, 4), f(2, 5, 4)], {"transB": 1, "alpha": 0.5}),
        Case("FusedMatMul", [f(4, 3), f(4, 5)], {"transA": 1}),
        Case("FusedMatMul", [f(3, 2, 4), f(2, 4, 5)], {"transBatchA": 1}),
        Case("FusedMatMul", [f(4, 2, 3), f(5, 2, 4)], {"transBatchA": 1, "transBatchB": 1, "transA": 1, "transB": 1}),
        Case("FusedMatMul", [f(5, 4, 2, 3), f(4, 2, 3, 5)], {"transBatchA": 1}),
        Case("TransposeMatMul", [f(2, 3, 4), f(5, 4)], {"transB": 1}),
        Case("FusedGemm", [f(3, 4), f(4, 5), f(5)], {"activation": "Relu"}),
        Case("FusedGemm", [f(3, 4), f(5, 4)], {"activation": "LeakyRelu", "activation_alpha": 0.3, "transB": 1}),
        Case("FusedConv", [f(1, 2, 6, 7), f(3, 2, 3, 3), f(3)], {"activation": "Relu", "pads": [1, 1, 1, 1], "kernel_shape": [3, 3], "strides": [1, 1], "dilations": [1, 1]}),
        Case("FusedConv", [f(1, 2, 6, 7), f(3, 2, 3, 3), None, f(1, 3, 4, 5)], {"activation": "Tanh", "kernel_shape": [3, 3], "strides": [1, 1], "dilations": [1, 1]}),
        Case("FusedConv", [f(1, 2, 6, 7), f(3, 2, 3, 3)], {"activation": "Clip", "activation_params": [-0.5, 0.5], "kernel_shape": [3, 3], "strides": [1, 1], "dilations": [1, 1]}),
        Case("MatMulNBits", [f(2, 3, 40), u8(6, 3, 8), scales.ravel()], {**bits, "bits": 4}, weights=(1, 2)),
        Case("MatMulNBits", [f(3, 40), u8(6, 3, 8), scales.ravel(), u8(12)], {**bits, "bits": 4}, weights=(1, 2, 3)),
        Case("MatMulNBits", [f(3, 40), u8(6, 3, 16), scales.ravel(), None, None, f(6)], {**bits, "bits": 8}, weights=(1, 2)),
        Case("GatherBlockQuantized", [u8(4, 16), rows, positive(4, 2)], {**table, "bits": 4}, weights=(0, 2)),
        Case("GatherBlockQuantized", [u8(4, 32), rows, positive(4, 2), u8(4, 2)], {**table, "bits": 8}, weights=(0, 2, 3)),
        Case("GatherBlockQuantized", [u8(4, 16), numpy.array([2], numpy.int64), positive(4, 2), u8(4, 1)], {**table, "bits": 4}, weights=(0, 2, 3)),
        Case("MatMulIntegerToFloat", [u8(2, 3, 4), factor8(4, 5), scalar(0.02), scalar(0.03)]),
        Case("MatMulIntegerToFloat", [u8(3, 4), factor8(4, 5), scalar(0.02), positive(5), z, i8(5), f(5)], weights=(1, 3, 5)),
        Case("DynamicQuantizeMatMul", [f(2, 3, 4), factor8(4, 5), scalar(0.03), scalar(4, numpy.int8), f(5)], weights=(1,)),
        Case("DynamicQuantizeMatMul", [f(3, 4), u8(4, 5), positive(5), u8(5)], weights=(1, 2, 3)),
        Case("QGemm", [u8(3, 4), scalar(0.02), z, factor8(5, 4), positive(5), i8(5), i32(RANDOM.integers(-99, 99, 5))], {"transB": 1}, weights=(3, 4, 5, 6)),
        Case("QGemm", [u8(3, 4), scalar(0.02), z, factor8(4, 5), scalar(0.05), scalar(0, numpy.int8), None, scalar(0.1), z], {"alpha": 0.5}, weights=(3, 4, 5), step=1),
    ]  # fmt: skip


def quantised() -> list[Case]:
    def q(*shape: int) -> list[numpy.ndarray | None]:
        return [u8(*shape), scalar(RANDOM.uniform(0.02, 0.05)), scalar(RANDOM.integers(90, 160), numpy.uint8)]

    y: list[numpy.ndarray | None] = [scalar(0.04), scalar(110, numpy.uint8)]
    signed: list[numpy.ndarray | None] = [i8(2, 3), scalar(0.03), scalar(-4, numpy.int8)]
    pool = {"kernel_shape": [3, 2], "strides": [1, 1], "pads": [1, 0, 1, 1]}
    cases = [
        Case("QLinearAdd", [*q(2, 3, 4), *q(3, 4), *y]), Case("QLinearAdd", [*q(5), *q(1), *y]),
        Case("QLinearAdd", [*signed, *signed, scalar(0.05), scalar(3, numpy.int8)]),
        Case("QLinearMul", [*q(2, 3, 4), *q(4), *y]),
        Case("QLinearSigmoid", [*q(2, 3, 4), scalar(1 / 256), scalar(0, numpy.uint8)], weights=(1, 2, 3, 4)),
        Case("QLinearLeakyRelu", [*q(2, 3, 4), *y], {"alpha": 0.2}, weights=(1, 2, 3, 4)),
        Case("QLinearSoftmax", [*q(2, 3, 4), scalar(1 / 256), scalar(0, numpy.uint8)], {"opset": 13, "axis": -1}, weights=(1, 2, 3, 4)),
        Case("QLinearSoftmax", [*q(2, 3, 4), scalar(1 / 256), scalar(0, numpy.uint8)], {"opset": 12, "axis": 1}, weights=(1, 2, 3, 4)),
        Case("QLinearSoftmax", [*q(2, 3, 4), scalar(1 / 256), scalar(0, numpy.uint8)], {"opset": 13, "axis": 1}, weights=(1, 2, 3, 4)),
        Case("QLinearGlobalAveragePool", [*q(2, 3, 4, 5), *y], {"channels_last": 0}),
        Case("QLinearGlobalAveragePool", [*q(2, 4, 5, 3), *y], {"channels_last": 1}),
        Case("QLinearAveragePool", [*q(1, 3, 6, 5), *y], pool), Case("QLinearAveragePool", [*q(1, 3, 6, 5), *y], {**pool, "count_include_pad": 1}),
        Case("QLinearAveragePool", [*q(1, 6, 5, 3), *y], {**pool, "channels_last": 1}),
        Case("QLinearConcat", [*y, *q(2, 3), *q(2, 4)], {"axis": 1}, weights=(0, 1, 3, 4, 6, 7)),
        Case("QLinearConv", [*q(1, 6, 5, 3), factor8(4, 3, 3, 3), positive(4), numpy.zeros(4, numpy.int8), *y, i32(RANDOM.integers(-99, 99, 4))], {"channels_last": 1, "pads": [1, 1, 1, 1]}, weights=(1, 2, 3, 4, 5, 6, 7, 8)),
        Case("NhwcMaxPool", [u8(1, 6, 5, 3)], {"kernel_shape": [2, 3], "strides": [2, 1]}),
        Case("QLinearWhere", [RANDOM.integers(0, 2, (2, 3)).astype(bool), *q(2, 3), *q(3), *y], weights=(2, 3, 5, 6, 7, 8)),
    ]  # fmt: skip
    for case in cases:
        case.step = 1
    return cases


def experts() -> list[Case]:
    x, router = f(5, 16), 2 * f(5, 4)
    plain: list[numpy.ndarray | None] = [x, router, f(4, 6, 16), f(4, 6), f(4, 16, 6), f(4, 16)]
    swiglu: list[numpy.ndarray | None] = [x, router, f(4, 12, 16), f(4, 12), f(4, 16, 6), f(4, 16)]
    cases = [Case("MoE", plain, {"k": 2, "activation_type": kind}) for kind in ("relu", "gelu", "silu", "identity")]
    cases += [
        Case("MoE", plain, {"k": 1, "activation_type": "gelu", "normalize_routing_weights": 1}),
        Case("MoE", swiglu, {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1, "normalize_routing_weights": 1}),
        Case("MoE", swiglu, {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1, "activation_alpha": 1.7, "activation_beta": 1.0, "swiglu_limit": 0.5}),
        Case("QMoE", [x, router, u8(4, 6, 16), positive(4, 6), None, u8(4, 16, 6), positive(4, 16), None], {"k": 2, "expert_weight_bits": 8, "activation_type": "silu"}),
        Case("QMoE", [x, router, u8(4, 12, 8), positive(4, 12), f(4, 12), u8(4, 16, 3), positive(4, 16), f(4, 16)], {"k": 2, "expert_weight_bits": 4, "activation_type": "swiglu", "swiglu_fusion": 1, "normalize_routing_weights": 1}, weights=(2, 3, 5, 6)),
    ]  # fmt: skip
    return cases


def others() -> list[Case]:
    image, boxes = f(2, 3, 6, 5), RANDOM.uniform(-0.1, 1.1, (3, 4)).astype(numpy.float32)
    crops: list[numpy.ndarray | None] = [image, boxes, i32([0, 1, 1])]
    i64 = numpy.int64
    tokens = numpy.array([1, 2, 3, 4, 2, 5, 1, 2], i64)
    cases = [
        Case("Trilu", [f(2, 3, 4)]), Case("Trilu", [f(3, 5), scalar(1, i64)], {"upper": 0}, weights=(1,)),
        Case("Inverse", [f(2, 4, 4) + 2 * numpy.eye(4, dtype=numpy.float32)]),
        Case("Unique", [numpy.array([2, 1, 1, 3, 4, 3], numpy.float32)], outputs=3),
        Case("QuantizeLinear", [f(2, 3), scalar(0.001), scalar(32768, numpy.uint16)]),
        Case("DequantizeLinear", [RANDOM.integers(0, 65536, (2, 3)).astype(numpy.uint16), scalar(0.001), scalar(32768, numpy.uint16)]),
        Case("DequantizeLinear", [i8(2, 3), positive(3), i8(3)]),
        Case("ConvTransposeWithDynamicPads", [f(1, 2, 4, 4), f(2, 3, 3, 3), numpy.array([1, 0, 1, 1], i64), f(3)], {"strides": [2, 2]}, weights=(2,)),
        Case("LinearAttention", [f(2, 3, 16), f(2, 3, 8), f(2, 3, 6), None, -f(2, 3, 8) ** 2, f(2, 3, 2) ** 2], {"q_num_heads": 4, "kv_num_heads": 2}, 2),
        Case("LinearAttention", [f(2, 3, 8), f(2, 3, 8), f(2, 3, 6), f(2, 2, 4, 3)], {"q_num_heads": 2, "kv_num_heads": 2, "update_rule": "linear"}, 2),
        Case("CausalConvWithState", [f(2, 3, 5), f(3, 1, 4), f(3), f(2, 3, 3)], {"activation": "silu"}, 2),
        Case("CausalConvWithState", [f(2, 3, 5), f(3, 1, 4)], {}, 2),
    ]  # fmt: skip
    cases += [Case("NGramRepeatBlock", [RANDOM.integers(0, 3, (3, 9)).astype(i64), f(3, 4)], {"ngram_size": n}) for n in (1, 2, 3)]
    for mode in ("bilinear", "nearest"):
        cases += [Case("CropAndResize", [*crops, i32(size)], {"mode": mode, "extrapolation_value": 0.5}, weights=(3,)) for size in ([3, 4], [1, 2])]
    predicted = {0: [1, 2, 9, 0, 0, 0, 0, 0, 0], 2: [3, 4, 2, 7, 0, 0, 0]}
    for start, more in predicted.items():
        cases += [Case("BifurcationDetector", [tokens, numpy.array([7, 1], i64), scalar(start, i64), numpy.array(more, i64)], {"min_ngram_size": n, "max_ngram_size": 3}, 2) for n in (1, 2)]
    for last in ([1, 2], [3, 4], [2, 5], [9]):
        cases.append(Case("BifurcationDetector", [tokens, numpy.array(last, i64), scalar(0, i64)], {"min_ngram_size": 1, "max_ngram_size": 2}, 2))
    return cases


def ties() -> list[Case]:
    """Scales are powers of two, so that many results lie halfway between two codes: bit for bit."""
    cases = []
    for kind in (numpy.int8, numpy.uint8):
        lowest = int(numpy.iinfo(kind).min)
        codes = lambda *shape: RANDOM.integers(lowest, lowest + 256, shape).astype(kind)  # noqa: B023, E731
        factor = lambda *powers: scalar(2.0 ** int(RANDOM.choice(powers)))  # noqa: E731
        for _ in range(4):
            x = [codes(1, 2, 5, 6), factor(-4, -3, -2), numpy.array(codes(1)[0])]
            y = [factor(-2, -1, 0), numpy.array(codes(1)[0])]
            cases += [Case(op, [*x, codes(5, 6), factor(-4, -3), numpy.array(codes(1)[0]), *y], rtol=0) for op in ("QLinearAdd", "QLinearMul")]
            cases.append(Case("QLinearAveragePool", [*x, *y], {"kernel_shape": [2, 2]}, weights=(1, 2, 3, 4), rtol=0))
            cases.append(Case("QLinearGlobalAveragePool", [*x, *y], weights=(1, 2, 3, 4), rtol=0))
            cases.append(Case("QLinearLeakyRelu", [*x, *y], {"alpha": 0.125}, weights=(1, 2, 3, 4), rtol=0))
    return cases


def quantised_lstm() -> Case:
    """Every operand and attribute; weights of either sign, scales of each direction or of each column."""
    draw: Callable[[float], bool] = lambda chance: bool(RANDOM.random() < chance)  # noqa: E731
    steps, batch, width, hidden = (int(v) for v in RANDOM.integers(1, 6, 4))
    direction = ("forward", "reverse", "bidirectional")[int(RANDOM.integers(3))]
    directions = 2 if direction == "bidirectional" else 1
    signed, columns = draw(0.5), draw(0.5)
    kind = numpy.int8 if signed else numpy.uint8
    low, high = (-64, 64) if signed else (0, 256)  # as factor8's
    weight = lambda rows: RANDOM.integers(low, high, (directions, rows, 4 * hidden)).astype(kind)  # noqa: E731
    shape = (directions, 4 * hidden) if columns else (directions,)
    scale = lambda: RANDOM.uniform(0.002, 0.012, shape).astype(numpy.float32)  # noqa: E731
    zero = lambda: numpy.full(shape, 0 if columns else RANDOM.integers(low // 2, high // 2), kind)  # noqa: E731
    inputs: list[numpy.ndarray | None] = [
        2 * f(steps, batch, width), weight(width), weight(hidden), f(directions, 8 * hidden) if draw(0.6) else None,
        i32(RANDOM.integers(1, steps + 1, batch)) if draw(0.4) else None, f(directions, batch, hidden) if draw(0.5) else None,
        f(directions, batch, hidden) if draw(0.5) else None, f(directions, 3 * hidden) if draw(0.4) else None, scale(), zero(), scale(), zero(),
    ]  # fmt: skip
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    attributes |= ({"input_forget": 1} if draw(0.2) else {}) | ({"clip": 1.5} if draw(0.2) else {})
    return Case("DynamicQuantizeLSTM", inputs, attributes, 3, weights=(1, 2, 8, 9, 10, 11), rtol=1e-5)


class AgainstOnnxRuntime(unittest.TestCase):
    def check(self, cases: list[Case]) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1  # more of them quantise parts of a batch by themselves
        for number, case in enumerate(cases):
            with self.subTest(op=case.op, case=number, attributes=case.attributes):
                model = case.model()
                session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
                expected = session.run(None, case.feeds())
                outputs = backend.prepare(model).run(case.feeds())
                self.assertEqual(len(outputs), len(expected))
                for i, (ours, theirs) in enumerate(zip(outputs, expected, strict=True)):
                    self.assertEqual((ours.dtype, ours.shape), (theirs.dtype, theirs.shape))
                    if case.only is not None and i not in case.only:
                        continue
                    if case.step:
                        self.assertLessEqual(numpy.abs(ours.astype(int) - theirs.astype(int)).max(), case.step)
                    else:
                        scale = numpy.abs(theirs[numpy.isfinite(theirs)]).max(initial=0)
                        numpy.testing.assert_allclose(ours, theirs, rtol=case.rtol, atol=case.rtol * 0.1 * scale)

    def test_attention(self) -> None:
        self.check(attention())

    def test_ties(self) -> None:
        self.check(ties())

    def test_quantised_lstm(self) -> None:
        self.check([quantised_lstm() for _ in range(24)])

    def test_attention_with_a_cache(self) -> None:
        self.check(grouped())

    def test_normalizations(self) -> None:
        self.check(norms())

    def test_activations(self) -> None:
        self.check(activations())

    def test_products(self) -> None:
        self.check(products())

    def test_quantised_tensors(self) -> None:
        self.check(quantised())

    def test_experts(self) -> None:
        self.check(experts())

    def test_the_rest(self) -> None:
        self.check(others())


if __name__ == "__main__":
    unittest.main()
