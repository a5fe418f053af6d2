"""Elementwise functions of triton.language, of float32 and float64 where they are not of all types."""

from __future__ import annotations

from typing import Any

from .. import _arithmetic as _a
from .. import _types as _t
from .._errors import Refusal
from .._values import tensor, to_tensor


def _one(op: str, x: Any) -> tensor:
    """An operation of the tile IR on a float32 or float64 tensor."""
    t = to_tensor(x)
    if t.dtype not in (_t.float32, _t.float64):
        raise Refusal(f"{op} is of fp32 and fp64, not of {t.dtype}", "cast with .to(tl.float32)")
    return _a.unary(op, t)


def exp(x: Any) -> tensor:
    """e to the power x."""
    return _one("exp", x)


def exp2(x: Any) -> tensor:
    """2 to the power x."""
    return _one("exp2", x)


def log(x: Any) -> tensor:
    """The natural logarithm."""
    return _one("log", x)


def log2(x: Any) -> tensor:
    """The logarithm to base 2."""
    return _one("log2", x)


def sqrt(x: Any) -> tensor:
    """The square root."""
    return _one("sqrt", x)


def sqrt_rn(x: Any) -> tensor:
    """The square root, rounded to nearest."""
    return _one("sqrt", x)


def rsqrt(x: Any) -> tensor:
    """1 / sqrt(x)."""
    return _one("rsqrt", x)


def sin(x: Any) -> tensor:
    """The sine."""
    return _one("sin", x)


def cos(x: Any) -> tensor:
    """The cosine."""
    return _one("cos", x)


def erf(x: Any) -> tensor:
    """The error function."""
    return _one("erf", x)


def floor(x: Any) -> tensor:
    """Rounded down."""
    return _one("floor", x)


def ceil(x: Any) -> tensor:
    """Rounded up."""
    return _one("ceil", x)


def abs(x: Any) -> Any:  # noqa: A001
    """The absolute value."""
    return _a.absolute(x)


def fma(x: Any, y: Any, z: Any) -> tensor:
    """x * y + z, rounded once."""
    return _a.fused(x, y, z)


def fdiv(x: Any, y: Any, ieee_rounding: Any = False) -> tensor:
    """x / y of floats."""
    return _a.truediv(x, y)


def div_rn(x: Any, y: Any) -> tensor:
    """x / y of floats, rounded to nearest."""
    return _a.truediv(x, y)


def umulhi(x: Any, y: Any) -> tensor:
    """The upper half of the product of unsigned integers of 32 or 64 bits."""
    a, b, kind = _a.pair(x, y)
    if not kind.is_int() or kind.bits not in (32, 64):
        raise Refusal(f"umulhi is of integers of 32 and 64 bits, not of {kind}")
    a, b = (_a.cast(v, _t.integer(kind.bits, False)) for v in (a, b))
    high = _high_32(a, b) if kind.bits == 32 else _high_64(a, b)
    return _a.cast(high, kind)


def _high_32(a: tensor, b: tensor) -> tensor:
    product = _a.mul(_a.cast(a, _t.uint64), _a.cast(b, _t.uint64))
    return _a.cast(_a.shift("shr", product, 32), _t.uint32)


def _high_64(a: tensor, b: tensor) -> tensor:
    low = [_a.bits("and", v, 0xFFFFFFFF) for v in (a, b)]
    high = [_a.shift("shr", v, 32) for v in (a, b)]
    middle = _a.add(_a.mul(high[0], low[1]), _a.shift("shr", _a.mul(low[0], low[1]), 32))
    other = _a.add(_a.mul(low[0], high[1]), _a.bits("and", middle, 0xFFFFFFFF))
    return _a.add(_a.mul(high[0], high[1]), _a.add(_a.shift("shr", middle, 32), _a.shift("shr", other, 32)))


def _install_methods() -> None:
    """The methods that tensor has in Triton."""
    for name in ("exp", "exp2", "log", "log2", "sqrt", "sqrt_rn", "rsqrt", "sin", "cos", "erf", "floor", "ceil", "abs"):
        setattr(tensor, name, globals()[name])


_install_methods()
__all__ = ["abs", "ceil", "cos", "div_rn", "erf", "exp", "exp2", "fdiv", "floor", "fma", "log", "log2", "rsqrt", "sin", "sqrt", "sqrt_rn", "umulhi"]


def __getattr__(name: str) -> Any:
    """Names that older versions of Triton had here are those of libdevice."""
    from .extra import libdevice

    if name.startswith("__") or not hasattr(libdevice, name):
        from . import core, standard

        for module in (core, standard):
            if not name.startswith("_") and hasattr(module, name):
                return getattr(module, name)
        raise AttributeError(f"triton.language.math has no '{name}'")
    return getattr(libdevice, name)
