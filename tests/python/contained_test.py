"""Internal failures of a compile through tessera.load() and the command: right results, counted and reported, no process ends."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import unittest

from support import ROOT, save

MLP = "(float[b, 8] x, float[8, 8] w) => (float[b, 8] y) { p = MatMul(x, w) q = Tanh(p) y = Softmax <axis = -1> (q) }"
ATTENTION = """(float[b, s, 16] q, float[b, s, 16] k, float[b, s, 16] v, float[16] g) => (float[b, s, 16] y) {
  t = Transpose <perm = [0, 2, 1]> (k) a = MatMul(q, t) p = Softmax <axis = -1> (a) o = MatMul(p, v) y = LayerNormalization(o, g) }"""
SORTED = """(int64[] n, bool on, float[b, 6] x) => (float[b, 6] y) {
  v = Loop <body = body (int64 i, bool go, float[b, 6] h) => (bool stay, float[b, 6] next) { stay = Identity(go) f = Tanh(h) next = Add(f, x) }> (n, , x)
  z = If <then_branch = yes () => (a) { a = Exp(v) }, else_branch = no () => (c) { c = Neg(v) }> (on)
  k = Constant <value_ints = [6]> () y, at = TopK <axis = -1> (z, k) }"""

# Prints the results of three models as hexadecimal digits, rounded, and how many failures were contained.
PROCESS = """
import sys, numpy, tessera
def values(*dims): return (numpy.arange(numpy.prod(dims), dtype=numpy.float32) % 11 / 8 - 0.5).reshape(dims)
calls = ([values(3, 8), values(8, 8)], [values(1, 5, 16), values(1, 5, 16), values(1, 5, 16), values(16)],
         [numpy.array(3), numpy.array(False), values(2, 6)])
contained = 0
for path, inputs in zip(sys.argv[1:], calls):
    model = tessera.load(path, "cpu")
    y = model(*inputs)
    y = y[0] if isinstance(y, (tuple, list)) else y
    print(numpy.round(y, 3).tolist())
    contained += model.metrics()["contained_failures"]
print(contained)
"""


def outcome(failure: str | None, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as cache:
        env = dict(os.environ, TESSERA_CACHE_DIR=cache, TESSERA_CHECKS="")
        if failure is not None:
            env["TESSERA_INJECT_FAILURE"] = failure
        return subprocess.run(arguments, capture_output=True, text=True, env=env)


class Contained(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.models = [str(save(g, f"m{i}.onnx")) for i, g in enumerate((MLP, ATTENTION, SORTED))]

    def results(self, failure: str | None) -> tuple[list[str], int]:
        done = outcome(failure, [sys.executable, "-c", PROCESS, *self.models])
        self.assertEqual(done.returncode, 0, done.stderr)
        *results, contained = done.stdout.splitlines()
        return results, int(contained)

    def test_results_are_the_same(self) -> None:
        wanted, none = self.results(None)
        self.assertEqual(none, 0)
        for failure in ("merge", "nest", "schedule", "lower", "own", "emit", "llvm", "llvm-emit:1", "link", "kernels", "bodies:1", "step:2", "pass-end/cse"):
            with self.subTest(failure):
                results, contained = self.results(failure)
                self.assertEqual(results, wanted)
                self.assertGreater(contained, 0)

    def test_an_import_that_fails_raises(self) -> None:
        program = 'import sys, tessera\ntry: tessera.load(sys.argv[1], "cpu")\nexcept tessera.RunError as e: print(e)'
        done = outcome("import", [sys.executable, "-c", program, self.models[0]])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("a failure was injected at stage import", done.stdout)

    def test_command(self) -> None:
        tessera = str(ROOT / "build" / "bin" / "tessera")
        for device in ("--device cpu", "--device cuda --arch sm_90a"):
            for failure in ("merge:1", "schedule:1", "emit", "llvm"):
                with self.subTest(device=device, failure=failure):
                    done = outcome(failure, [tessera, "explain", self.models[1], *device.split(), "--format", "json"])
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertIn("warning", done.stderr)
                    self.assertIn("a failure was injected at stage", done.stderr)
                    self.assertIn('"contained"', done.stdout)
        done = outcome("fuse", [tessera, "explain", self.models[0], "--device", "cpu"])
        self.assertEqual(done.returncode, 5)
        self.assertIn("a failure was injected at stage fuse", done.stderr)


if __name__ == "__main__":
    unittest.main()
