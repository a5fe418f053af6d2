"""Names of CUDA's device library, as triton.language.extra.libdevice has them: functions of float32 and float64 tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import _arithmetic as _a
from ... import _types as _t
from ..._errors import Refusal
from ..._values import tensor, to_tensor
from .. import math as _math

# Names that are one operation of the tile IR.
_ONE = {
    "acos": "acos", "acosh": "acosh", "asin": "asin", "asinh": "asinh", "atan": "atan", "atanh": "atanh", "ceil": "ceil", "cos": "cos", "cosh": "cosh",
    "erf": "erf", "exp": "exp", "exp2": "exp2", "expm1": "expm1", "fast_cosf": "cos", "fast_exp2f": "exp2", "fast_expf": "exp", "fast_log2f": "log2",
    "fast_logf": "log", "fast_sinf": "sin", "fast_tanf": "tan", "fast_tanhf": "tanh", "floor": "floor", "log": "log", "log1p": "log1p", "log2": "log2",
    "nearbyint": "round", "rint": "round", "rsqrt": "rsqrt", "rsqrt_rn": "rsqrt", "sin": "sin", "sinh": "sinh", "sqrt": "sqrt", "sqrt_rn": "sqrt",
    "tan": "tan", "tanh": "tanh", "trunc": "trunc",
}  # fmt: skip


def _float(x: Any) -> tensor:
    t = to_tensor(x)
    return _a.cast(t, _t.float32) if t.dtype.is_int() else t


def _one(name: str, op: str) -> Callable[[Any], tensor]:
    def function(x: Any) -> tensor:
        return _math._one(op, _float(x))

    function.__name__ = name
    function.__doc__ = f"{op} of each element."
    return function


globals().update({name: _one(name, op) for name, op in _ONE.items()})


def pow(x: Any, y: Any) -> tensor:  # noqa: A001
    """x to the power y."""
    a, b, kind = _a.pair(_float(x), y)
    return _a._computed("pow", a, b, kind)


fast_powf = pow


def abs(x: Any) -> Any:  # noqa: A001
    """The absolute value."""
    return _a.absolute(x)


fabs = abs


def isnan(x: Any) -> tensor:
    """Whether each element is NaN; int1."""
    return _a.is_nan(x)


is_nan = isnan


def isinf(x: Any) -> tensor:
    """Whether each element is infinite; int1."""
    return _a.compare("eq", _a.absolute(x), float("inf"))


def finitef(x: Any) -> tensor:
    """Whether each element is finite; int1."""
    return _a.compare("lt", _a.absolute(x), float("inf"))


isfinited = finitef


def div_rn(x: Any, y: Any) -> tensor:
    """x / y, rounded to nearest."""
    return _a.truediv(x, y)


fast_dividef = div_rn


def mul_rn(x: Any, y: Any) -> tensor:
    """x * y, rounded to nearest."""
    return _a.mul(x, y)


def add_rn(x: Any, y: Any) -> tensor:
    """x + y, rounded to nearest."""
    return _a.add(x, y)


def sub_rn(x: Any, y: Any) -> tensor:
    """x - y, rounded to nearest."""
    return _a.sub(x, y)


def fma(x: Any, y: Any, z: Any) -> tensor:
    """x * y + z, rounded once."""
    return _a.fused(x, y, z)


fma_rn = fma


def fmod(x: Any, y: Any) -> tensor:
    """The remainder of x / y, with the sign of x."""
    return _a.mod(x, y)


def div_rz(x: Any, y: Any) -> tensor:
    """x / y rounded to zero: the quotient rounded to nearest, one step nearer to zero where the remainder has the other sign."""
    a, b, kind = _a.pair(_float(x), y)
    if kind != _t.float32:
        raise Refusal(f"div_rz is of fp32, not of {kind}", "cast with .to(tl.float32)")
    q = _a.truediv(a, b)
    rest = _a.fused(_a.negative(q), b, a)  # exact
    lower = _a.bits("xor", _a.compare("lt", rest, 0.0), _a.compare("lt", b, 0.0))  # the quotient lies below q
    over = _a.bits("xor", lower, _a.compare("lt", q, 0.0))
    over = _a.logical("and", over, _a.logical("and", _a.compare("ne", rest, 0.0), _a.logical("and", finitef(rest), finitef(q))))
    return _a.where(over, int_as_float(_a.sub(float_as_int(q), 1)), q)


def atan2(x: Any, y: Any) -> tensor:
    """The angle of the point (y, x), in (-pi, pi]."""
    a, b = (_float(v) for v in (x, y))
    pi = 3.141592653589793
    half = _a.where(signbit_of(a), -pi / 2, pi / 2)
    ratio = _math._one("atan", _a.truediv(a, b))
    turned = _a.add(ratio, _a.where(signbit_of(a), -pi, pi))
    both_infinite = _a.logical("and", isinf(a), isinf(b))
    angle = _a.where(_a.compare("eq", b, 0.0), half, _a.where(_a.compare("lt", b, 0.0), turned, ratio))
    diagonal = _a.where(_a.compare("gt", b, 0.0), pi / 4, 3 * pi / 4)
    angle = _a.where(both_infinite, copysign(diagonal, a), angle)
    on_axis = _a.where(signbit_of(b), pi, 0.0)
    return _a.where(_a.compare("eq", a, 0.0), _a.where(_a.logical("or", is_nan(b), is_nan(a)), angle, copysign(on_axis, a)), angle)


def signbit_of(x: Any) -> tensor:
    """Whether the sign is negative; int1."""
    t = to_tensor(x)
    return _a.compare("lt", _a.cast(t, _t.integer(t.dtype.bits, True), bitcast=True), 0)


def log10(x: Any) -> tensor:
    """The logarithm to base 10."""
    return _a.mul(_math._one("log", _float(x)), 0.4342944819032518)


def round(x: Any) -> tensor:  # noqa: A001
    """Rounded to nearest; halves away from zero."""
    t = _float(x)
    down = _math._one("trunc", t)
    far = _a.compare("ge", _a.absolute(_a.sub(t, down)), 0.5)
    return _a.where(far, _a.add(down, copysign(1.0, t)), down)


def llrint(x: Any) -> tensor:
    """Rounded to nearest, halves to even; int64."""
    return _a.cast(_math._one("round", _float(x)), _t.int64)


def copysign(x: Any, y: Any) -> tensor:
    """The magnitude of x with the sign of y."""
    sign = to_tensor(y)
    size = _a.absolute(_a.cast(x, sign.dtype) if not isinstance(x, tensor) else x)
    bits = _t.integer(sign.dtype.bits, True)
    negative = _a.compare("lt", _a.cast(sign, bits, bitcast=True), 0)
    return _a.where(negative, _a.negative(size), size)


def signbit(x: Any) -> tensor:
    """1 where the sign is negative, else 0; int32."""
    t = to_tensor(x)
    return _a.cast(signbit_of(t), _t.int32)


def fmax(x: Any, y: Any) -> tensor:
    """The greater element; the other one where one is NaN."""
    return _a.extreme("max", x, y)


def fmin(x: Any, y: Any) -> tensor:
    """The lesser element; the other one where one is NaN."""
    return _a.extreme("min", x, y)


max, min = fmax, fmin  # noqa: A001


def umulhi(x: Any, y: Any) -> tensor:
    """The upper half of the product of unsigned integers."""
    return _math.umulhi(x, y)


def float_as_int(x: Any) -> tensor:
    """The bits of float32 as int32."""
    return _a.cast(x, _t.int32, bitcast=True)


def int_as_float(x: Any) -> tensor:
    """The bits of int32 as float32."""
    return _a.cast(x, _t.float32, bitcast=True)
