"""The folder of the tests, and the cases that this process takes. Imports nothing of PyTorch or of the package."""

from __future__ import annotations

import os
from collections.abc import Hashable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PERCENT = max(int(os.environ.get("TESSERA_TEST_SEEDS", "100")), 1)  # of the cases: 25 in the tiers of tools/check below --all


def shard() -> tuple[int, int]:
    """(index, count) of TESSERA_SHARD, "0/2": this process takes every count-th case. With TESSERA_TEST_SEEDS=25, as tools/check sets
    it for its quick and middle tiers, all processes together take a quarter of the cases."""
    index, count = os.environ.get("TESSERA_SHARD", "0/1").split("/")
    return int(index), int(count) * 100 // PERCENT


def seeds(count: int) -> int:
    """How many of so many random cases run: at least one."""
    return max(count * PERCENT // 100, min(count, 1))


class Share:
    """Says of each case of a test, in their order, whether it runs: of all cases PERCENT, spread evenly, and the first case of each
    kind (an operator, a dtype) whatever the share. What is left out are repetitions, and always the same ones."""

    def __init__(self) -> None:
        self._cases = self._taken = 0
        self._seen: set[tuple[int, Hashable]] = set()

    def takes(self, *kinds: Hashable) -> bool:
        """kinds: of the case; the first is compared with the first of other cases, the second with the second and so on."""
        self._cases += 1
        found = set(enumerate(kinds))
        first = not found <= self._seen
        self._seen |= found
        if not first and self._taken * 100 >= self._cases * PERCENT:
            return False
        self._taken += 1
        return True
