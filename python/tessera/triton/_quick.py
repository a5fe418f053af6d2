"""Launches whose kinds of arguments were seen before: one key of the arguments, without inspecting their signature.

A key has, for each parameter, what compiling depends on: a constant itself, of a number its dtype's range and divisibility, of an array its
dtype and alignment. Readers, by the class of an argument, yield that token and what the launch passes.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

from ._programs import SMALL_NUMBER

Reader = Callable[[Any], tuple[Any, Any]]


def _read_int(value: int) -> tuple[Any, Any]:
    if value == 1:
        return 1, 1
    if 0 <= value <= SMALL_NUMBER:
        return (16 if not value & 15 else 2), value
    return _large(value, not value & 15), value


def _read_plain_int(value: int) -> tuple[Any, Any]:
    """The token of a number whose value is not specialised."""
    return (2 if 0 <= value <= SMALL_NUMBER else _large(value, False)), value


def _large(value: int, divisible: bool) -> tuple[Any, ...]:
    """The token of a number that is negative or large: its dtype, its range and divisibility."""
    return (-(2**31) <= value < 2**31, value > 2**63 - 1, value < 0, -SMALL_NUMBER <= value <= SMALL_NUMBER, divisible)


def _read_tensor(value: Any) -> tuple[Any, Any]:
    at = value.data_ptr()
    return (value.dtype, not at & 15, value.is_cuda), at


def _read_ndarray(value: Any) -> tuple[Any, Any]:
    at = value.ctypes.data
    return (value.dtype, not at & 15), at


def _unaligned(read: Reader) -> Reader:
    def plain(value: Any) -> tuple[Any, Any]:
        token, at = read(value)
        return (token[0], *token[2:]), at

    return plain


class Readers(dict[type, Reader]):
    """Readers by class; those of arrays are added when the first one is seen."""

    def __init__(self, specialised: bool, aligned: bool) -> None:
        integers = _read_int if specialised and aligned else _read_plain_int if not specialised else _read_unaligned_int
        super().__init__({int: integers, float: lambda v: (0.5, v), bool: lambda v: (True, int(v)), type(None): lambda v: (None, None)})
        self.aligned = aligned

    def __missing__(self, kind: type) -> Reader:
        if hasattr(kind, "data_ptr") and hasattr(kind, "is_cuda"):
            read: Reader = _read_tensor
        elif kind.__module__ == "numpy" and kind.__name__ == "ndarray":
            read = _read_ndarray
        else:
            raise KeyError(kind)
        self[kind] = read if self.aligned else _unaligned(read)
        return self[kind]


def _read_unaligned_int(value: int) -> tuple[Any, Any]:
    return (1, 1) if value == 1 else _read_plain_int(value)


_READERS = {(s, a): Readers(s, a) for s in (True, False) for a in (True, False)}


class Quick:
    """The key of a kernel's arguments. bind(*args, **keywords): (values in order, options); key(values): (tokens, what launches pass)."""

    bind: Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]
    key: Callable[[tuple[Any, ...]], tuple[tuple[Any, ...], tuple[Any, ...]]]

    def __init__(self, signature: inspect.Signature, constants: list[str], unspecialised: set[str], unaligned: set[str]) -> None:
        names = list(signature.parameters)
        space: dict[str, Any] = {}
        parameters, tokens, lines = [], [], []
        for i, (name, p) in enumerate(signature.parameters.items()):
            default = p.default is not inspect.Parameter.empty
            space[f"_d{i}"] = p.default
            parameters.append(f"{name}=_d{i}" if default else name)
            if name in constants:
                tokens.append(f"v[{i}].__class__, v[{i}]")
                lines.append(f"    p{i} = None")
                continue
            space[f"_r{i}"] = _READERS[name not in unspecialised, name not in unaligned]
            lines.append(f"    k{i}, p{i} = _r{i}[v[{i}].__class__](v[{i}])")
            tokens.append(f"k{i}")
        passed = ", ".join(f"p{i}" for i in range(len(names)))
        text = [f"def bind({', '.join([*parameters, '**_options'])}): return ({''.join(n + ', ' for n in names)}), _options"]
        text += ["def key(v):", *lines, f"    return ({''.join(t + ', ' for t in tokens)}), ({passed}{',' if names else ''})"]
        exec("\n".join(text), space)  # noqa: S102  # straight-line code for one signature
        self.bind, self.key = space["bind"], space["key"]


def supports(signature: inspect.Signature) -> bool:
    """True of signatures of plain parameters."""
    return all(p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD and p.name != "_options" for p in signature.parameters.values())


def picker(indices: list[int]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """A function that takes items of a tuple, as a tuple."""
    if not indices:
        return lambda values: ()
    if len(indices) == 1:
        at = indices[0]
        return lambda values: (values[at],)
    return operator.itemgetter(*indices)
