"""The grid of a launch: up to three axes, of which the first runs fastest, also where the tile IR's grid has one axis."""

from __future__ import annotations

from typing import Any

from . import _launch
from . import _types as types
from ._arithmetic import floordiv, mod
from ._errors import Refusal
from ._text import Ir, Parameter, Writer, writer
from ._values import constant, kind_of, tensor, unwrapped

SMALL_GRID = 1 << 18  # programs along an axis, up to which indices need no wrapping to 32 bits
SMALL_NUMBER = 1 << 30  # magnitude of 32-bit arguments, likewise
NAMES = ("grid_x", "grid_y", "grid_z")


class Grid:
    """Facts about the grid that a kernel is compiled for. ones: axes with one program; small: within SMALL_GRID."""

    def __init__(self, ones: tuple[bool, bool, bool], small: bool) -> None:
        self.ones, self.small = ones, small

    @property
    def most(self) -> int:
        return SMALL_GRID if self.small else 2**31 - 1


_grids: dict[int, Grid] = {}


def set_grid(of: Writer, grid: Grid) -> None:
    """The grid of the kernel that a writer writes."""
    _grids[id(of)] = grid


def forget_grid(of: Writer) -> None:
    _grids.pop(id(of), None)


def _axis(axis: Any) -> int:
    axis = unwrapped(axis)
    if axis not in (0, 1, 2):
        raise Refusal(f"an axis of the grid is 0, 1 or 2, not {kind_of(axis)}")
    return int(axis)


def num_programs(axis: Any) -> tensor:
    """tl.num_programs: a hidden parameter, except that it is 1 where the grid is known to have one program."""
    a, w = _axis(axis), writer()
    grid = _grids[id(w)]
    if grid.ones[a]:
        return constant(1, types.int32)
    if _launch.grid_axes() == 3:
        return tensor(w.value("num_programs", [], "i64", (), low=1, high=grid.most, form=f"num_programs {a}"), types.int32)
    if NAMES[a] not in w.hidden:
        w.hidden[NAMES[a]] = Ir(f"%{NAMES[a]}", "i64", (), 1, grid.most)
        w.parameter(Parameter(NAMES[a], "i64"))
    return tensor(w.hidden[NAMES[a]], types.int32)


def program_id(axis: Any) -> tensor:
    """tl.program_id, of the linear index of the program."""
    a, w = _axis(axis), writer()
    grid = _grids[id(w)]
    if grid.ones[a]:
        return constant(0, types.int32)
    if _launch.grid_axes() == 3:
        return tensor(w.value("program_id", [], "i64", (), low=0, high=grid.most - 1, form=f"program_id {a}"), types.int32)
    others = [i for i in range(3) if i != a and not grid.ones[i]]
    most = grid.most ** (1 + len(others))
    linear = tensor(w.value("program_id", [], "i64", (), low=0, high=min(most, 2**63) - 1, form="program_id 0"), types.int64)
    for faster in (i for i in range(a) if not grid.ones[i]):
        linear = floordiv(linear, tensor(num_programs(faster).base, types.int64))
    if any(i > a for i in others):
        linear = mod(linear, tensor(num_programs(a).base, types.int64))
    return tensor(linear.base.within(0, grid.most - 1), types.int32)

