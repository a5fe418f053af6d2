"""The one place that meets the native part: kernels from text, and their launches."""

from __future__ import annotations

from .. import _native


def load(text: str, device: str) -> _native.TileKernel:
    """A kernel of the tile IR, compiled for "cpu" or "cuda". Raises an error of the package where the text or the device is refused."""
    return _native.TileKernel(text, device)


def launch(kernel: _native.TileKernel, grid: tuple[int, int, int], arguments: tuple[int | float, ...], stream: int) -> None:
    """Runs the programs of a grid; none where an axis has none. arguments: addresses and numbers, in the order of the text's parameters."""
    if min(grid) > 0:
        kernel.launch(grid, arguments, stream)
