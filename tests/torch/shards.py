"""The folder of the tests, and the cases that this process takes. Imports nothing of PyTorch or of the package."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def shard() -> tuple[int, int]:
    """(index, count) of TESSERA_SHARD, "0/2": this process takes every count-th case. With TESSERA_TEST_SEEDS=25, as tools/check sets
    it for its quick and middle tiers, all processes together take a quarter of the cases."""
    index, count = os.environ.get("TESSERA_SHARD", "0/1").split("/")
    return int(index), int(count) * 100 // int(os.environ.get("TESSERA_TEST_SEEDS", "100"))
