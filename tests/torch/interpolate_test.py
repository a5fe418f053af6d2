"""F.interpolate at symbolic sizes: every mode, with factors that no fraction of a power of two is; forward, backward, exported.

    python tests/torch/interpolate_test.py [Class[.test] ...]
"""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path
from typing import Any

import support
import torch
import torch.nn.functional as F

import tessera

MODES = {1: ("nearest", "nearest-exact", "linear"), 2: ("nearest", "nearest-exact", "bilinear", "bicubic"), 3: ("nearest", "nearest-exact", "trilinear")}
SMOOTH = ("linear", "bilinear", "bicubic", "trilinear")
SIZES = (10, 13, 90)  # of 90 elements a factor of 0.7 makes 62.99999999999999 in f64, whose floor counts
CLOSE = {"rtol": 1e-4, "atol": 2e-5}


def resamplings() -> dict[int, list[dict[str, Any]]]:
    """Arguments of F.interpolate by rank: a share of them, each mode of a rank among them."""
    out: dict[int, list[dict[str, Any]]] = {}
    share = support.Share()
    for rank, modes in MODES.items():
        how: list[dict[str, Any]] = []
        for mode in modes:
            how.append({"scale_factor": 0.7, "mode": mode})
            how.append({"scale_factor": 1.3, "mode": mode, "recompute_scale_factor": True})
            if mode in SMOOTH:
                how.append({"scale_factor": 0.7, "mode": mode, "align_corners": True})
        out[rank] = [h for h in how if share.takes((rank, h["mode"]), tuple(h))]
    return out


RESAMPLINGS = resamplings()


class Resize(torch.nn.Module):
    def __init__(self, rank: int) -> None:
        super().__init__()
        self.resamplings = RESAMPLINGS[rank]

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [F.interpolate(x.sin(), **how) * 2 for how in self.resamplings]


def image(rank: int, size: int) -> torch.Tensor:
    return torch.randn(2, 2, size, *[11, 7][: rank - 1], generator=torch.Generator().manual_seed(size))


class Interpolate(unittest.TestCase):
    def test_compiled(self) -> None:
        for rank in MODES:
            module = Resize(rank)
            compiled = support.compiled(module, dynamic=True)
            with support.Counted() as c:
                for size in SIZES:
                    x = image(rank, size).requires_grad_()
                    got, want = compiled(x), module(x)
                    support.assert_close(got, want, **CLOSE)
                    weights = [torch.rand(y.shape, generator=torch.Generator().manual_seed(1)) for y in want]
                    support.assert_close(torch.autograd.grad(got, x, weights), torch.autograd.grad(want, x, weights), rtol=1e-4, atol=1e-4)
            self.assertEqual((c.operators_left, c.fallback_calls), (0, 0))

    def test_exported(self) -> None:
        sizes = {2: torch.export.Dim("n", min=3, max=512)}
        with tempfile.TemporaryDirectory() as folder:
            for rank in MODES:
                module = Resize(rank)
                path = str(Path(folder) / "resize.pt2")
                torch.export.save(torch.export.export(module, (image(rank, 20),), dynamic_shapes=(sizes,)), path)
                loaded = tessera.load(path, device="cpu")
                for size in SIZES:
                    x = image(rank, size)
                    support.assert_close(list(loaded(x)), module(x), **CLOSE)


if __name__ == "__main__":
    unittest.main()
