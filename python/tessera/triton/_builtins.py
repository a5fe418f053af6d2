"""Functions of Python in kernels: what they do with tensors."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from . import _arithmetic as arithmetic
from . import _types as types
from ._errors import Refusal
from ._execute import Loop, first_tensor
from ._values import constexpr, tensor, unwrapped


def _of_all(op: str, python: Callable[..., Any]) -> Callable[..., Any]:
    def fold(*values: Any) -> Any:
        items = [unwrapped(v) for v in (values[0] if len(values) == 1 and isinstance(values[0], (tuple, list)) else values)]
        if first_tensor(items) is None:
            return python(items)
        result = items[0]
        for item in items[1:]:
            result = arithmetic.extreme(op, result, item)
        return result

    return fold


def _number(dtype: types.dtype, python: Callable[..., Any]) -> Callable[..., Any]:
    def convert(value: Any = 0) -> Any:
        value = unwrapped(value)
        return arithmetic.cast(value, dtype) if isinstance(value, tensor) else python(value)

    return convert


def _isinstance(value: Any, kind: Any) -> bool:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if constexpr in kinds and not isinstance(value, tensor):
        return True
    return isinstance(value, tuple(k for k in kinds if isinstance(k, type)))


def _abs(value: Any) -> Any:
    return arithmetic.absolute(value) if isinstance(value, tensor) else abs(value)


def _print(*values: Any, **keywords: Any) -> None:
    from ._log import device_print

    device_print(*values)


def _len(value: Any) -> int:
    if isinstance(value, tensor):
        raise Refusal(f"a tensor {value!r} has no len()", "use its shape")
    return len(value)


_SUBSTITUTES: dict[Any, Callable[..., Any]] = {
    builtins.range: Loop,
    builtins.max: _of_all("max", builtins.max),
    builtins.min: _of_all("min", builtins.min),
    builtins.abs: _abs,
    builtins.float: _number(types.float32, float),
    builtins.int: _number(types.int32, int),
    builtins.bool: _number(types.int1, bool),
    builtins.isinstance: _isinstance,
    builtins.len: _len,
    builtins.print: _print,
    builtins.pow: lambda a, b: _power(a, b),
}
_PLAIN: set[Callable[..., Any]] = {builtins.tuple, builtins.list, builtins.str, builtins.type, builtins.zip, builtins.enumerate, builtins.getattr, builtins.hasattr, builtins.reversed, builtins.repr}


def _power(a: Any, b: Any) -> Any:
    from ._expressions import power

    return power(a, b) if first_tensor([a, b]) is not None else a**b


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **keywords: Any) -> Any:
        return function(*arguments, **keywords)

    call.__module__ = __name__
    return call


_SUBSTITUTES.update({f: _plain(f) for f in _PLAIN})


def substitute(function: Any) -> Any:
    """The function that a kernel calls in the place of a function of Python."""
    try:
        return _SUBSTITUTES.get(function, function)
    except TypeError:  # not hashable
        return function
