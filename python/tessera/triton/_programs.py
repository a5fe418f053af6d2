"""The grid of a launch: up to three axes, of which the first runs fastest."""

from __future__ import annotations

from typing import Any

from . import _types as types
from ._errors import Refusal
from ._text import Writer, writer
from ._values import constant, kind_of, tensor, unwrapped

SMALL_GRID = 1 << 18  # programs along an axis, up to which indices need no wrapping to 32 bits
SMALL_NUMBER = 1 << 30  # magnitude of 32-bit arguments, likewise


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
    """tl.num_programs: 1 where the grid is known to have one program along the axis."""
    a, w = _axis(axis), writer()
    grid = _grids[id(w)]
    if grid.ones[a]:
        return constant(1, types.int32)
    return tensor(w.value("num_programs", [], "i64", (), low=1, high=grid.most, form=f"num_programs {a}"), types.int32)


def program_id(axis: Any) -> tensor:
    """tl.program_id."""
    a, w = _axis(axis), writer()
    grid = _grids[id(w)]
    if grid.ones[a]:
        return constant(0, types.int32)
    return tensor(w.value("program_id", [], "i64", (), low=0, high=grid.most - 1, form=f"program_id {a}"), types.int32)
