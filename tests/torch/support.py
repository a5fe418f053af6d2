"""What the tests of the PyTorch backend share."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if os.environ.get("TESSERA_INSTALLED") != "1":  # else the installed package is tested
    sys.path.insert(0, str(ROOT / "build" / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import torch  # noqa: E402

import tessera.backend  # noqa: E402, F401
from tessera._options import statistics, stats  # noqa: E402

logging.getLogger("tessera").setLevel(logging.ERROR)
torch._dynamo.config.automatic_dynamic_shapes = False


class Counted:
    """What the backend counted inside: attributes of Statistics."""

    def __enter__(self) -> Counted:
        self._before = stats()
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __getattr__(self, name: str) -> int:
        return getattr(statistics, name) - self._before[name]


def compiled(fn: Callable[..., Any], dynamic: bool = False, **options: Any) -> Callable[..., Any]:
    """`fn` through the backend, with nothing left of earlier compiles."""
    torch._dynamo.reset()
    return torch.compile(fn, backend="tessera", dynamic=dynamic, options=options or None)


def assert_close(got: Any, want: Any, **tolerances: float) -> None:
    """torch.testing's comparison of nested results at its own tolerances; NaN equals NaN."""
    torch.testing.assert_close(got, want, equal_nan=True, check_stride=False, **tolerances)


def shard() -> tuple[int, int]:
    """(index, count) of TESSERA_SHARD, "0/2": this process takes every count-th case."""
    index, count = os.environ.get("TESSERA_SHARD", "0/1").split("/")
    return int(index), int(count)
