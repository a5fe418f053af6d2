"""Where the tests are, and which of their cases this process takes. Imports nothing of PyTorch or of the package."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def shard() -> tuple[int, int]:
    """(index, count) of TESSERA_SHARD, "0/2": this process takes every count-th case."""
    index, count = os.environ.get("TESSERA_SHARD", "0/1").split("/")
    return int(index), int(count)
