"""The operators that cases are written in: how each becomes nodes of ONNX, and what it is in PyTorch.

An operator is a name, inputs, outputs and attributes. What ONNX takes as constant operands (axes, starts, shapes) are attributes here. A few
names are no ONNX operators but stand for several (Silu, Variance), because a peer has them as one.
"""
import numpy as np


class Op:
    """`torch(attrs, *tensors)`; `constants`: attributes that are int64 operands in ONNX, in their order. `emit(graph, ins, outs, attrs)`: the nodes, where
    they are not the one of that name; `reference`: what is right, where PyTorch leaves it open."""
    def __init__(self, torch, constants=(), emit=None, reference=None):
        self.torch, self.constants, self.emit, self.reference = torch, constants, emit, reference or torch


def _torch():
    import torch
    return torch


def _functional():
    import torch.nn.functional as F
    return F


def _dims(attrs):
    return tuple(attrs["axes"]) if attrs.get("axes") is not None else None


def _keep(attrs):
    return bool(attrs.get("keepdims", 1))


def _reduce(name):
    """Over the axes given, or over all."""
    def apply(attrs, x):
        dims = _dims(attrs)
        return getattr(_torch(), name)(x, dim=tuple(range(x.dim())) if dims is None else dims, keepdim=_keep(attrs))
    return apply


def _extreme(name):
    def apply(attrs, x):
        if x.dtype == _torch().bool:
            return (_torch().any if name == "amax" else _torch().all)(x, dim=_dims(attrs)[0], keepdim=_keep(attrs))
        return _reduce(name)(attrs, x)
    return apply


def _arg(name):
    return lambda attrs, x: getattr(_torch(), name)(x, dim=attrs.get("axis", 0), keepdim=_keep(attrs))


def _first(name):
    """The first of equal ones, as ONNX has it; PyTorch may return any."""
    def apply(attrs, x):
        torch, axis = _torch(), attrs.get("axis", 0)
        at = torch.arange(x.shape[axis], device=x.device).reshape([-1 if d == axis % x.dim() else 1 for d in range(x.dim())])
        return torch.where(x == getattr(x, name)(axis, keepdim=True), at, x.shape[axis]).amin(axis, keepdim=_keep(attrs))
    return apply


def _layer_norm(attrs, x, scale, bias=None):
    return _functional().layer_norm(x, x.shape[attrs.get("axis", -1):], scale, bias, attrs.get("epsilon", 1e-5))


def _rms_norm(attrs, x, scale):
    return _functional().rms_norm(x, x.shape[attrs.get("axis", -1):], scale, attrs.get("epsilon", 1e-5))


def _group_norm(attrs, x, scale, bias):
    return _functional().group_norm(x, attrs["num_groups"], scale, bias, attrs.get("epsilon", 1e-5))


def _convolution(attrs, x, weight):
    return _functional().conv2d(x, weight, None, attrs["strides"], attrs["pads"][:2], attrs["dilations"])


def _slice(attrs, x):
    for axis, start, end, step in zip(attrs["axes"], attrs["starts"], attrs["ends"], attrs.get("steps") or [1] * len(attrs["axes"])):
        index = [slice(None)] * x.dim()
        index[axis] = slice(start, end, step)
        x = x[tuple(index)]
    return x


def _split(attrs, x):
    return _torch().chunk(x, attrs["num_outputs"], attrs.get("axis", 0))


def _cast(attrs, x):
    # The reference computes everything in float64: there a cast between floats changes nothing.
    torch = _torch()
    to = TORCH_TYPES(torch)[attrs["to"]]
    return x if x.dtype == torch.float64 and to.is_floating_point else x.to(to)


def _attention(attrs, q, k, v):
    return _functional().scaled_dot_product_attention(q, k, v, is_causal=bool(attrs.get("is_causal", 0)))


def _where(attrs, mask, x, y):
    return _torch().where(mask, x, y)


def _emit_silu(graph, ins, outs, attrs):
    s = graph.temporary()
    graph.node("Sigmoid", ins, [s])
    graph.node("Mul", [ins[0], s], outs)


def _emit_variance(graph, ins, outs, attrs):
    mean, off, square, axes = (graph.temporary() for _ in range(4))
    graph.constant(axes, attrs["axes"])
    graph.node("ReduceMean", [ins[0], axes], [mean], keepdims=1)
    graph.node("Sub", [ins[0], mean], [off])
    graph.node("Mul", [off, off], [square])
    graph.node("ReduceMean", [square, axes], outs, keepdims=attrs.get("keepdims", 1))


def _emit_cast(graph, ins, outs, attrs):
    graph.node("Cast", ins, outs, to=ONNX_TYPES[attrs["to"]])


NUMPY_TYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "bool": "bool", "i32": "int32", "i64": "int64", "f64": "float64"}
ONNX_TYPES = {"f32": 1, "i32": 6, "i64": 7, "bool": 9, "f16": 10, "f64": 11, "bf16": 16}  # onnx.TensorProto.DataType
SIZES = {"f32": 4, "f16": 2, "bf16": 2, "bool": 1, "i32": 4, "i64": 8, "f64": 8}


def TORCH_TYPES(torch):
    return {short: getattr(torch, name) for short, name in NUMPY_TYPES.items()}


def numpy_type(short):
    if short == "bf16":
        import ml_dtypes
        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(NUMPY_TYPES[short])


OPS = {
    "Add": Op(lambda a, x, y: x + y), "Sub": Op(lambda a, x, y: x - y), "Mul": Op(lambda a, x, y: x * y), "Div": Op(lambda a, x, y: x / y),
    "Neg": Op(lambda a, x: -x), "Abs": Op(lambda a, x: _torch().abs(x)), "Exp": Op(lambda a, x: _torch().exp(x)), "Log": Op(lambda a, x: _torch().log(x)),
    "Sqrt": Op(lambda a, x: _torch().sqrt(x)), "Tanh": Op(lambda a, x: _torch().tanh(x)), "Sigmoid": Op(lambda a, x: _torch().sigmoid(x)),
    "Relu": Op(lambda a, x: _functional().relu(x)), "Max": Op(lambda a, x, y: _torch().maximum(x, y)), "Min": Op(lambda a, x, y: _torch().minimum(x, y)),
    "Gelu": Op(lambda a, x: _functional().gelu(x, approximate=a.get("approximate", "none"))),
    "Silu": Op(lambda a, x: _functional().silu(x), emit=_emit_silu),
    "Greater": Op(lambda a, x, y: x > y), "Less": Op(lambda a, x, y: x < y), "Not": Op(lambda a, x: ~x), "And": Op(lambda a, x, y: x & y), "Or": Op(lambda a, x, y: x | y),
    "Where": Op(_where), "Cast": Op(_cast, emit=_emit_cast),
    "Softmax": Op(lambda a, x: _functional().softmax(x, a.get("axis", -1))), "LogSoftmax": Op(lambda a, x: _functional().log_softmax(x, a.get("axis", -1))),
    "LayerNormalization": Op(_layer_norm), "RMSNormalization": Op(_rms_norm), "GroupNormalization": Op(_group_norm),
    "ReduceSum": Op(_reduce("sum"), constants=("axes",)), "ReduceMean": Op(_reduce("mean"), constants=("axes",)),
    "ReduceMax": Op(_extreme("amax"), constants=("axes",)), "ReduceMin": Op(_extreme("amin"), constants=("axes",)),
    "Variance": Op(lambda a, x: _torch().var(x, dim=_dims(a), unbiased=False, keepdim=_keep(a)), emit=_emit_variance),
    "ArgMax": Op(_arg("argmax"), reference=_first("amax")), "ArgMin": Op(_arg("argmin"), reference=_first("amin")),
    "CumSum": Op(lambda a, x: _torch().cumsum(x, a["axis"]), constants=("axis",)),
    "Conv": Op(_convolution),
    "Transpose": Op(lambda a, x: x.permute(a["perm"])), "Reshape": Op(lambda a, x: x.reshape(a["shape"]), constants=("shape",)),
    "Slice": Op(_slice, constants=("starts", "ends", "axes", "steps")), "Split": Op(_split), "Concat": Op(lambda a, *x: _torch().cat(x, a["axis"])),
    "Expand": Op(lambda a, x: x.expand(a["shape"]), constants=("shape",)),
    "MatMul": Op(lambda a, x, y: x @ y), "Attention": Op(_attention),
}
