"""What the tests of the PyTorch backend share."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from shards import ROOT, shard  # noqa: E402, F401

sys.path.append(str(ROOT / "build" / "python"))  # where neither PYTHONPATH nor an installed wheel has the package

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
