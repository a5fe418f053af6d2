"""Specialisations of kernels: the kinds of its arguments, and the values of those that are constants."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from . import _types as types
from ._errors import Refusal
from ._execute import run
from ._memory import block_pointer, parameter_pointer
from ._programs import SMALL_NUMBER, Grid, forget_grid, set_grid
from ._source import Source
from ._text import Ir, Parameter, Writer, writing
from ._values import tensor


@dataclasses.dataclass(frozen=True)
class Pointer:
    """An argument that is a tensor. divisible: its address, by 16."""

    dtype: types.dtype
    divisible: bool


@dataclasses.dataclass(frozen=True)
class Scalar:
    """An argument that is a number. divisible: by 16; low, high: a range that it is in, of integers; None for all of the dtype."""

    dtype: types.dtype
    divisible: bool = False
    low: int | None = None
    high: int | None = None


@dataclasses.dataclass(frozen=True)
class Constant:
    """An argument that is known at compile time."""

    value: Any

    def __hash__(self) -> int:
        try:
            return hash((type(self.value), self.value))
        except TypeError:
            return hash(repr(self.value))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and type(self.value) is type(other.value) and bool(self.value == other.value)


@dataclasses.dataclass(frozen=True)
class Descriptor:
    """An argument that is a host's tensor descriptor: a pointer, sizes and strides."""

    pointer: Pointer
    rank: int
    block: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Group:
    """An argument that is a tuple."""

    items: tuple[Any, ...]


Kind = Any  # one of the classes above


@dataclasses.dataclass
class Compiled:
    """A kernel in tile IR: its text, name and parameters."""

    text: str
    name: str
    parameters: list[Parameter]


def kernel_name(source: Source) -> str:
    """The name of a kernel, as the tile IR writes it."""
    return re.sub(r"\W", "_", source.tree.name)


def compile_text(source: Source, kinds: dict[str, Kind], grid: Grid, options: dict[str, Any]) -> Compiled:
    """A kernel for kinds of arguments. options: num_warps and num_stages."""
    w = Writer(options.get("num_stages") or 0)
    set_grid(w, grid)
    try:
        with writing(w):
            env = {name: _value(w, name, kind) for name, kind in kinds.items()}
            run(source, env)
    finally:
        forget_grid(w)
    config = {"warps": options["num_warps"]} if options.get("num_warps") else {}
    return Compiled(w.text(kernel_name(source), config), kernel_name(source), w.parameters)


def _value(w: Writer, name: str, kind: Kind) -> Any:
    if isinstance(kind, Constant):
        return kind.value
    if isinstance(kind, Group):
        return tuple(_value(w, f"{name}_{i}", k) for i, k in enumerate(kind.items))
    if isinstance(kind, Pointer):
        return _pointer(w, name, kind)
    if isinstance(kind, Scalar):
        return _scalar(w, name, kind)
    base = _pointer(w, name, kind.pointer)
    sizes = [_scalar(w, f"{name}_size_{d}", Scalar(types.int64, low=0)) for d in range(kind.rank)]
    strides: list[Any] = [_scalar(w, f"{name}_stride_{d}", Scalar(types.int64, low=0)) for d in range(kind.rank - 1)]
    return block_pointer(base, sizes, [*strides, 1], [0] * kind.rank, kind.block, checked=True)


def _pointer(w: Writer, name: str, kind: Pointer) -> Any:
    w.parameter(Parameter(_safe(name), f"ptr<{kind.dtype.ir}>", kind.divisible, item_bytes=kind.dtype.itemsize))
    return parameter_pointer(len(w.parameters) - 1, _safe(name), kind.dtype)


def _scalar(w: Writer, name: str, kind: Scalar) -> tensor:
    dtype = kind.dtype
    wide = dtype in (types.int32, types.int64)
    w.parameter(Parameter(_safe(name), "i64" if wide else dtype.ir, kind.divisible and wide))
    if not wide:
        return tensor(Ir(f"%{_safe(name)}", dtype.ir, (), *((dtype.low, dtype.high) if dtype.is_int() else (0, 0))), dtype)
    low, high = dtype.low if kind.low is None else kind.low, dtype.high if kind.high is None else kind.high
    return tensor(Ir(f"%{_safe(name)}", "i64", (), low, high), dtype)


def _safe(name: str) -> str:
    """A parameter's name in the text: not all of digits, and not one that the launch adds."""
    return f"p_{name}" if name in ("grid_x", "grid_y", "grid_z") else name


def range_of(value: int, dtype: types.dtype) -> tuple[int | None, int | None]:
    """The range that a kernel is compiled for: by sign, and of 32 bits by magnitude."""
    near = dtype == types.int32 and -SMALL_NUMBER <= value <= SMALL_NUMBER
    if dtype not in (types.int32, types.int64):
        return None, None
    return (0 if value >= 0 else -SMALL_NUMBER if near else None), (SMALL_NUMBER if near else None)


def kind_of_number(value: Any, specialised: bool = True, aligned: bool = True) -> Kind:
    """The kind of a number: 1 is a constant, divisibility by 16 is known. specialised, aligned: whether they are."""
    if isinstance(value, bool):
        return Scalar(types.int1)
    if isinstance(value, float):
        return Scalar(types.float32)
    if value == 1 and specialised:
        return Constant(1)
    for dtype in (types.int32, types.int64, types.uint64):
        if dtype.low <= value <= dtype.high:
            return Scalar(dtype, aligned and specialised and value % 16 == 0, *range_of(value, dtype))
    raise Refusal(f"{value} does not fit 64 bits")
