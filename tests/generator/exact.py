"""Results of models whose every element one rule decides to the bit: chains of conversions between types and of operators that
round once. The rules are ONNX's, and Tessera's own where ONNX leaves a result open: a float that an integer does not hold saturates,
NaN is 0. ONNX's table and its tests differ about infinities as FNUZ types; the tests' largest number is taken. ONNX Runtime runs each
node by itself on the same operands, and is compared where it takes the types and ONNX decides."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy
import onnx
import oracle
from case import Case, Feeds
from onnx import TensorProto, helper, numpy_helper

PRODUCER = "tessera-generator-exact"  # of models that these rules decide
Array = numpy.ndarray
FLOATS = tuple(numpy.dtype(t) for t in (numpy.float64, numpy.float32, numpy.float16, ml_dtypes.bfloat16))
FLOATS8 = tuple(numpy.dtype(t) for t in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz))
INTEGERS = tuple(numpy.dtype(f"{sign}{width}") for sign in "iu" for width in (1, 2, 4, 8))
BOOL = numpy.dtype(bool)
TYPES = {helper.np_dtype_to_tensor_dtype(t): t for t in (*FLOATS, *FLOATS8, *INTEGERS, BOOL)}


def is_float(dtype: numpy.dtype) -> bool:
    return dtype in FLOATS or dtype in FLOATS8


# ---- conversions
def _to_odd(x: Array, narrow: type) -> Array:
    """x in a narrower type, rounded to the odd neighbour: rounding that again gives what rounding x once does."""
    y = x.astype(narrow)
    y = numpy.where(numpy.abs(y.astype(x.dtype)) > numpy.abs(x), numpy.nextafter(y, narrow(0)), y)
    bits = y.view(f"u{y.dtype.itemsize}")
    return numpy.where(y.astype(x.dtype) != x, bits | 1, bits).view(narrow)


def _to_float(x: Array, to: numpy.dtype, saturate: bool) -> Array:
    if to in (numpy.float64, numpy.float32):
        return x.astype(to)
    if not is_float(x.dtype):
        x = _to_odd(x.astype(numpy.longdouble), numpy.float64)  # 64 bits of mantissa
    if to == numpy.float16:
        return x.astype(to)
    x = _to_odd(x.astype(numpy.float64), numpy.float32)
    y = x.astype(to)
    if to not in FLOATS8 or not saturate:
        return y
    most, wide = ml_dtypes.finfo(to).max, y.astype(numpy.float32)
    beyond = ~numpy.isnan(x) & ~numpy.isfinite(wide)
    return numpy.where(beyond, numpy.copysign(numpy.float32(most), x), wide).astype(to)


def holds(x: Array, to: numpy.dtype) -> Array:
    """Which elements of a float an integer type holds, truncated."""
    real = numpy.trunc(x.astype(numpy.float64))
    limits = numpy.iinfo(to)
    return numpy.asarray((real >= float(limits.min)) & (real < float(limits.max + 1)))


def convert(x: Array, to: numpy.dtype, saturate: bool = True) -> Array:
    if to == x.dtype:
        return x
    if to == BOOL:
        return x.astype(numpy.float64) != 0 if is_float(x.dtype) else x != 0
    if is_float(to):
        return _to_float(x, to, saturate)
    if not is_float(x.dtype):
        return x.astype(to)
    real, inside, limits = x.astype(numpy.float64), holds(x, to), numpy.iinfo(to)
    over = numpy.where(numpy.isnan(real), 0, numpy.where(real > 0, to.type(limits.max), to.type(limits.min))).astype(to)
    return numpy.where(inside, numpy.where(inside, real, 0).astype(to), over)


# ---- operators
def _sign(x: Array) -> Array:
    if x.dtype.kind == "u":
        return (x != 0).astype(x.dtype)
    return ((x > 0).astype(numpy.int8) - (x < 0).astype(numpy.int8)).astype(x.dtype)


def _quotient(x: Array, y: Array) -> Array:
    if is_float(x.dtype):
        return x / y
    q = x // y
    return (q + ((x % y != 0) & ((x < 0) != (y < 0)))).astype(x.dtype)


def _mod(x: Array, y: Array, fmod: int) -> Array:
    return numpy.fmod(x, y) if fmod else x % y


def _clip(x: Array, low: Array, high: Array) -> Array:
    return numpy.minimum(numpy.maximum(x, low), high)


def _shift(x: Array, y: Array, direction: bytes) -> Array:
    return x << y if direction == b"LEFT" else x >> y


def _in_f32(f: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Lends a function of float32 to bfloat16, for which NumPy has none; exact."""
    return lambda x: f(x.astype(numpy.float32)).astype(x.dtype) if x.dtype in FLOATS[2:] else f(x)


RULES: dict[str, Callable[..., Array]] = {
    "Add": numpy.add, "Sub": numpy.subtract, "Mul": numpy.multiply, "Div": _quotient, "Mod": _mod, "Min": numpy.minimum, "Max": numpy.maximum,
    "Neg": numpy.negative, "Abs": numpy.abs, "Sign": _sign, "Floor": _in_f32(numpy.floor), "Ceil": _in_f32(numpy.ceil), "Round": _in_f32(numpy.rint),
    "Relu": lambda x: numpy.maximum(x, x.dtype.type(0)), "Clip": _clip, "Where": numpy.where, "Identity": lambda x: x,
    "Less": numpy.less, "LessOrEqual": numpy.less_equal, "Greater": numpy.greater, "GreaterOrEqual": numpy.greater_equal, "Equal": numpy.equal,
    "IsNaN": lambda x: numpy.isnan(x), "IsInf": lambda x: numpy.isinf(x.astype(numpy.float64)),
    "BitShift": _shift, "BitwiseAnd": numpy.bitwise_and, "BitwiseOr": numpy.bitwise_or, "BitwiseXor": numpy.bitwise_xor, "BitwiseNot": numpy.invert,
    "And": numpy.logical_and, "Or": numpy.logical_or, "Xor": numpy.logical_xor, "Not": numpy.logical_not,
}  # fmt: skip


def evaluate(node: onnx.NodeProto, operands: Sequence[Array]) -> Array:
    """The node's result. Raises KeyError for an operator without a rule."""
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    with numpy.errstate(all="ignore"):
        if node.op_type in ("Cast", "CastLike"):
            to = TYPES[attributes["to"]] if node.op_type == "Cast" else operands[1].dtype
            return numpy.asarray(convert(operands[0], to, bool(attributes.get("saturate", 1))))
        if node.op_type == "Mod":
            attributes.setdefault("fmod", 0)
        return numpy.asarray(RULES[node.op_type](*operands, **attributes))


def _zeros(*operands: Array) -> Array:
    """True where zeros of both signs meet, of which Min and Max may take either."""
    found = numpy.zeros((), bool)
    for i, x in enumerate(operands):
        for y in operands[:i]:
            found = found | ((x == 0) & (y == 0) & (numpy.signbit(x) != numpy.signbit(y)))
    return found


def left_open(node: onnx.NodeProto, operands: Sequence[Array]) -> Array:
    """Elements of the result that ONNX does not decide, and for which Tessera has no rule of its own."""
    x = operands[0]
    if is_float(x.dtype) and node.op_type in ("Min", "Max", "Clip"):
        odd = _zeros(*operands)
        return odd | numpy.isnan(operands[1]) | numpy.isnan(operands[2]) if node.op_type == "Clip" else odd
    if is_float(x.dtype) and node.op_type == "Relu":
        return numpy.signbit(x) & (x == 0)
    if is_float(x.dtype) and node.op_type == "Sign":
        return numpy.isnan(x)
    return numpy.zeros((), bool)


# ---- ONNX Runtime
@dataclass
class Departs:
    """Elements for which ONNX Runtime 1.32 has another result than ONNX."""

    ops: str
    reason: str
    where: Callable[[onnx.NodeProto, Sequence[Array], Array], Any]


def _unsaturated(node: onnx.NodeProto) -> bool:
    return any(a.name == "saturate" and a.i == 0 for a in node.attribute)


def _binade_beyond(x: Array, to: numpy.dtype) -> Array:
    """Which numbers exceed the largest of an 8-bit type, and are less than the next power of 2."""
    size, most = numpy.abs(x.astype(numpy.float64)), float(ml_dtypes.finfo(to).max)
    return numpy.asarray((size > most) & (size < 2.0 ** numpy.ceil(numpy.log2(most))))


DEPARTS = [
    Departs("Cast CastLike", "ONNX leaves a float open that an integer does not hold", lambda n, a, y: ~holds(a[0], y.dtype) if is_float(a[0].dtype) and y.dtype.kind in "iu" else False),
    Departs("Cast CastLike", "-0 of 8 bits is true", lambda n, a, y: a[0] == 0 if a[0].dtype in FLOATS8 and y.dtype == BOOL else False),
    Departs("Cast CastLike", "f64 and integers become narrower floats by way of f32, rounded twice", lambda n, a, y: ~same_bits(convert(convert(a[0], FLOATS[1]), y.dtype, not _unsaturated(n)), y) if a[0].dtype.itemsize > 2 and y.dtype in (*FLOATS[2:], *FLOATS8) else False),
    Departs("Cast CastLike", "without saturation, a number in the binade beyond the largest one becomes another than NaN of E4M3FN, or infinity of E5M2", lambda n, a, y: _binade_beyond(a[0], y.dtype) if _unsaturated(n) else False),
]  # fmt: skip
_sessions: dict[bytes, Any] = {}


def onnxruntime_result(node: onnx.NodeProto, operands: Sequence[Array]) -> Array | None:
    """None where ONNX Runtime does not take the node."""
    from onnxruntime import OrtValue

    infos = [helper.make_tensor_value_info(f"x{i}", helper.np_dtype_to_tensor_dtype(a.dtype), [None] * a.ndim) for i, a in enumerate(operands)]
    single = onnx.NodeProto()
    single.CopyFrom(node)
    del single.input[:], single.output[:]
    single.name = ""
    single.input.extend(i.name for i in infos)
    single.output.append("y")
    model = helper.make_model(helper.make_graph([single], "node", infos, [onnx.ValueInfoProto(name="y")]), opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    key = model.SerializeToString()
    if key not in _sessions:
        try:
            _sessions[key] = oracle.session(model)
        except Exception:  # noqa: BLE001  every error of ONNX Runtime is a refusal
            _sessions[key] = None
    session = _sessions[key]
    if session is None:
        return None
    feeds = {}
    for i, a in enumerate(operands):
        a = numpy.ascontiguousarray(a)
        native = a.dtype in INTEGERS or a.dtype in FLOATS[:3] or a.dtype == BOOL
        kind = helper.np_dtype_to_tensor_dtype(a.dtype)
        feeds[f"x{i}"] = OrtValue.ortvalue_from_numpy(a) if native else OrtValue.ortvalue_from_numpy_with_onnx_type(a.view(f"u{a.dtype.itemsize}"), kind)
    result = session.run_with_ort_values(None, feeds)[0]
    dtype = TYPES[result.element_type()]
    return numpy.frombuffer(ctypes.string_at(result.data_ptr(), int(numpy.prod(result.shape())) * dtype.itemsize), dtype).reshape(result.shape())


def same_bits(x: Array, y: Array) -> Array:
    """Elements that are equal to the bit, any NaN the same."""
    equal = x.view(f"u{x.dtype.itemsize}") == y.view(f"u{y.dtype.itemsize}")
    return equal | (numpy.isnan(x.astype(numpy.float64)) & numpy.isnan(y.astype(numpy.float64))) if is_float(x.dtype) else equal


def departure(node: onnx.NodeProto, operands: Sequence[Array], ours: Array) -> str:
    """How ONNX Runtime's result differs from the rules', where no entry of DEPARTS says why."""
    if node.op_type in ("Div", "Mod") and not is_float(ours.dtype) and bool(numpy.isin(operands[1].astype(float), (0, -1)).any()):
        return ""  # by zero, and of the least number by -1, ONNX Runtime ends the process
    theirs = onnxruntime_result(node, operands)
    if theirs is None:
        return ""
    if theirs.dtype != ours.dtype or theirs.shape != ours.shape:
        return f"{node.op_type}: {theirs.dtype}{list(theirs.shape)} instead of {ours.dtype}{list(ours.shape)}"
    other = ~same_bits(ours, theirs) & ~left_open(node, operands)
    for d in DEPARTS:
        if node.op_type in d.ops.split():
            other = other & ~numpy.asarray(d.where(node, operands, ours))
    if not other.any():
        return ""
    i = tuple(numpy.argwhere(other)[0])
    given = [numpy.broadcast_to(a, ours.shape)[i] for a in operands]
    return f"{node.op_type} of {', '.join(f'{a.dtype} {g!r}' for a, g in zip(operands, given))}: {theirs[i]!r}, by the rule {ours[i]!r}"


# ---- whole models
@dataclass
class Expected:
    outputs: list[Array]
    open: list[Array]  # elements that are not compared
    departs: str  # the first departure of ONNX Runtime that has no known reason


def run(model: onnx.ModelProto, feeds: Feeds, onnxruntime: bool) -> Expected:
    """Results of a call; with `onnxruntime`, its departures, too."""
    values = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer} | feeds
    free: dict[str, Array] = {}
    departs = ""
    for node in model.graph.node:
        operands = [values[name] for name in node.input]
        result = evaluate(node, operands)
        if onnxruntime and not departs:
            departs = departure(node, operands, result)
        values[node.output[0]] = result
        unknown = left_open(node, operands)
        for name in node.input:
            unknown = unknown | free.get(name, numpy.zeros((), bool))
        free[node.output[0]] = numpy.asarray(unknown)
    names = [o.name for o in model.graph.output]
    return Expected([values[n] for n in names], [free.get(n, numpy.zeros((), bool)) for n in names], departs)


def is_exact(case: Case) -> bool:
    return bool(case.model.producer_name == PRODUCER)


def takes(op: str, dtype: numpy.dtype, operand: int = 0) -> bool:
    """Whether ONNX has the operator for the type."""
    schema = onnx.defs.get_schema(op, 23)
    name = TensorProto.DataType.Name(helper.np_dtype_to_tensor_dtype(dtype)).lower()
    return f"tensor({name})" in schema.inputs[operand].types
