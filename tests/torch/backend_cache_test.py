"""Compiled kernels on disk: a second process compiles none of them, another program none of the first one's, and a folder that is
damaged, shared or no folder costs time and nothing else.

    python tests/torch/backend_cache_test.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import support  # noqa: F401  the package of the build folder, for the processes that are started, too
from shards import seeds

PROGRAM = """
import json, sys
sys.path[:0] = json.loads(sys.argv[1])
import torch, tessera.backend
torch.manual_seed(0)
module = torch.nn.Sequential(torch.nn.Linear(24, 48), torch.nn.LayerNorm(48), getattr(torch.nn, sys.argv[2])(), torch.nn.Linear(48, 24), torch.nn.Softmax(-1))
x = torch.randn(5, 24)
with torch.no_grad():
    got = torch.compile(module, backend="tessera")(x)
    torch.testing.assert_close(got, module(x))
print(json.dumps(tessera.stats()))
"""


def start(folder: Path, activation: str = "GELU") -> subprocess.Popen[str]:
    """A process that compiles a small module with kernels in `folder`, and prints what it counted."""
    environment = {**os.environ, "TESSERA_CACHE_DIR": str(folder)}
    return subprocess.Popen([sys.executable, "-c", PROGRAM, json.dumps(sys.path), activation], env=environment, stdout=subprocess.PIPE, text=True)


def counted(process: subprocess.Popen[str]) -> tuple[int, int]:
    """(kernels that were needed, those of them that were in the folder); all compiles succeeded."""
    out, _ = process.communicate()
    assert process.returncode == 0, process.returncode
    stats = json.loads(out.splitlines()[-1])
    assert (stats["compiles"], stats["operators_left"], stats["fallback_calls"]) == (1, 0, 0), stats
    return stats["kernels"], stats["cached_kernels"]


class Cache(unittest.TestCase):
    def setUp(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.addCleanup(self._folder.cleanup)
        self.folder = Path(self._folder.name) / "cache"

    def test_second_process_compiles_nothing(self):
        needed, cached = counted(start(self.folder))
        self.assertGreater(needed, 1)
        self.assertEqual(cached, 0)
        self.assertEqual(counted(start(self.folder)), (needed, needed))
        other, cached = counted(start(self.folder, "Tanh"))  # what follows from the same text is the same kernel
        self.assertLess(cached, other)

    def test_damaged_entries_are_replaced(self):
        needed, _ = counted(start(self.folder))
        entries = list(self.folder.rglob("*.tsc"))
        self.assertEqual(len(entries), needed + 1)  # kernels, and the plan of the program
        for n, entry in enumerate(entries):
            content = entry.read_bytes()
            entry.write_bytes(content[: len(content) // 2] if n % 2 else content[:-1] + b"?")
        self.assertEqual(counted(start(self.folder)), (needed, 0))
        self.assertEqual(counted(start(self.folder)), (needed, needed))

    def test_processes_at_the_same_time(self):
        (needed, _), (again, _) = [counted(p) for p in [start(self.folder) for _ in range(2)]]
        self.assertEqual(needed, again)
        self.assertEqual(counted(start(self.folder)), (needed, needed))

    def test_no_folder(self):
        self.folder.write_text("a file where the folder should be")
        for _ in range(seeds(2)):
            self.assertEqual(counted(start(self.folder))[1], 0)


if __name__ == "__main__":
    unittest.main()
