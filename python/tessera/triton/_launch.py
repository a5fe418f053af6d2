"""The one place that meets the native part: kernels from text, and their launches."""

from __future__ import annotations

from typing import Any

from .. import _native
from .._errors import UnsupportedError


def available() -> bool:
    """True if this build launches kernels."""
    return hasattr(_native, "TileKernel")


def grid_axes() -> int:
    """Axes of the grid of the tile IR that the native part reads."""
    return 3 if available() else 1


def load(text: str, device: str) -> Any:
    """A kernel of the tile IR, compiled for "cpu" or "cuda". Raises an error of the package where the text or the device is refused."""
    if not available():
        raise UnsupportedError("this build of Tessera does not launch kernels of the tile IR", notes=["compile the text of kernel.warmup(...) with the command `tessera kernel`"])
    return getattr(_native, "TileKernel")(text, device)  # noqa: B009  # absent from builds without it


def launch(kernel: Any, grid: tuple[int, int, int], arguments: tuple[Any, ...], stream: int) -> None:
    """Runs the programs of a grid. arguments: addresses and numbers, in the order of the text's parameters."""
    x, y, z = grid
    if x > 0 and y > 0 and z > 0:
        kernel.launch(grid if grid_axes() == 3 else x * y * z, arguments, stream)
