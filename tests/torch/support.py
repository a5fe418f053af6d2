"""Helpers for the tests of the PyTorch backend."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from shards import ROOT, Share, shard  # noqa: E402, F401

sys.path.append(str(ROOT / "build" / "python"))  # where neither PYTHONPATH nor an installed wheel has the package

import torch  # noqa: E402

import tessera.backend  # noqa: E402, F401
from tessera._options import statistics, stats  # noqa: E402
from tessera._subgraph import Subgraph  # noqa: E402
from tessera.backend import CompiledGraph, observed  # noqa: E402

logging.getLogger("tessera").setLevel(logging.ERROR)
torch._dynamo.config.automatic_dynamic_shapes = False


class Counted:
    """The backend's counts inside of the block: attributes of Statistics; variants, of the programs that were compiled inside."""

    def __enter__(self) -> Counted:
        self._before = stats()
        self._graphs: list[CompiledGraph] = []
        self._observed = observed(self._graphs.append)
        self._observed.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._observed.__exit__(*error)

    @property
    def programs(self) -> list[Subgraph]:
        return [s for g in self._graphs for s in g.subgraphs]

    @property
    def variants(self) -> int:
        """Variants that the library compiled; as many as programs if no call's sizes needed another one."""
        return sum(s.session.variants for s in self.programs)

    def __getattr__(self, name: str) -> int:
        return getattr(statistics, name) - self._before[name]


def compiled(fn: Callable[..., Any], dynamic: bool = False, **options: Any) -> Callable[..., Any]:
    """`fn` through the backend, with nothing left of earlier compiles."""
    torch._dynamo.reset()
    return torch.compile(fn, backend="tessera", dynamic=dynamic, options=options or None)


def assert_close(got: Any, want: Any, **tolerances: float) -> None:
    """torch.testing's comparison of nested results at its own tolerances; NaN equals NaN."""
    torch.testing.assert_close(got, want, equal_nan=True, check_stride=False, **tolerances)
