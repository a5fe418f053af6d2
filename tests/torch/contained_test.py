"""Internal failures of compiles under torch.compile: eager's results whatever fails, counted; nothing raises and no process ends.

    python tests/torch/contained_test.py [Class[.test] ...]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

import torch
from shards import ROOT

import tessera
from tessera import _subgraph
from tessera._errors import make_error

# Three modules forward and backward, in two sizes each.
PROGRAM = """
import logging, sys
sys.path.insert(0, sys.argv[1])
import support, torch, torch.nn.functional as F
logging.getLogger("tessera").setLevel(logging.CRITICAL)
torch.manual_seed(0)
mlp = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 8), torch.nn.Softmax(-1))
norm = torch.nn.LayerNorm(16)
def attention(x):
    return norm(F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None]))[:, 0]
def ordered(x):
    for _ in range(3): x = x.tanh() + x
    return torch.where(x > 0, x, -x).sort(-1).values
for fn, width in ((mlp, 8), (attention, 16), (ordered, 6)):
    compiled = support.compiled(fn, dynamic=True)
    for rows in (4, 7):
        x = torch.randn(2, rows, width, requires_grad=True)
        z = x.detach().clone().requires_grad_()
        want, got = fn(z), compiled(x)
        support.assert_close(got, want, rtol=1e-4, atol=1e-5)
        want.square().sum().backward(); got.square().sum().backward()
        support.assert_close(x.grad, z.grad, rtol=1e-3, atol=1e-4)
stats = support.stats()
print(stats["contained_failures"], stats["operators_left"], stats["fallback_calls"])
"""


class EarlierCalls(unittest.TestCase):
    def test_an_error_of_an_earlier_call_is_raised(self) -> None:
        """A GPU finds an index out of range when the call has returned: the next one says so, and is not made in PyTorch instead."""
        f = torch.compile(lambda x: x * 2 + 1, backend="tessera")
        x = torch.ones(4)
        f(x)
        error = make_error("TES-3012", "earlier-call", "", "index 50 of 'ids' is out of range [0, 50)", ())
        with unittest.mock.patch.object(_subgraph.Subgraph, "_call", side_effect=error), self.assertRaisesRegex(tessera.InputError, "index 50 of 'ids'"):
            f(x)
        self.assertTrue(torch.equal(f(x), x * 2 + 1))


class Contained(unittest.TestCase):
    def numbers(self, failure: str) -> tuple[int, ...]:
        env = dict(os.environ, TESSERA_CHECKS="", TESSERA_INJECT_FAILURE=failure, PYTHONPATH=os.environ.get("PYTHONPATH", str(ROOT / "build" / "python")))
        folder = str(Path(__file__).resolve().parent)
        with tempfile.TemporaryDirectory() as cache:  # a kernel that is there is not compiled
            env["TESSERA_CACHE_DIR"] = cache
            done = subprocess.run([sys.executable, "-c", PROGRAM, folder], capture_output=True, text=True, env=env)
        self.assertEqual(done.returncode, 0, done.stderr)
        return tuple(map(int, done.stdout.split()))

    def test_kernels(self) -> None:
        contained, left, fallbacks = self.numbers("emit")
        self.assertGreater(contained, 0)
        self.assertEqual((left, fallbacks), (0, 0))

    def test_programs_that_do_not_compile_run_in_pytorch(self) -> None:
        for failure in ("import", "executable:2"):
            with self.subTest(failure):
                contained, left, fallbacks = self.numbers(failure)
                self.assertGreater(contained + left + fallbacks, 0)


if __name__ == "__main__":
    unittest.main()
