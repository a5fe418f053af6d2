"""Policies, ranges of sizes and determinism of tessera.load()."""

from __future__ import annotations

import subprocess
import sys
import unittest

import numpy
from support import load, save

import tessera

ROWS = "(float[batch, seq] x) => (float[batch, seq] y) { y = Softmax <axis = -1> (x) }"
BROADCASTING = "(float[n, 4] x, float[k, 4] y) => (float[m, 4] z) { z = Add(x, y) }"  # first taken for equal n and k


def rows(batch: int, seq: int) -> numpy.ndarray:
    return (numpy.arange(batch * seq, dtype=numpy.float32) / 7).reshape(batch, seq)


# Prints the answers to calls in an order that the arguments say, as hexadecimal digits by sizes.
PROCESS = """
import sys, numpy, tessera
model = tessera.load(sys.argv[1], "cpu", policy=sys.argv[2], deterministic=True, warm_up=sys.argv[3] or None)
for sizes in sys.argv[4:]:
    n, k = map(int, sizes.split(","))
    x, y = (numpy.arange(c * 4, dtype=numpy.float32).reshape(c, 4) / 7 for c in (n, k))
    print(sizes, model(x, y).tobytes().hex())
"""


class Policies(unittest.TestCase):
    def test_exact_makes_variants_in_calls(self) -> None:
        model = load(ROWS, policy="exact", max_variants=2)
        for batch in (1, 2, 3):
            model(rows(batch, 5))
        metrics = model.metrics()
        self.assertEqual((metrics["variants"], metrics["blocking_compiles"], metrics["evictions"]), (3, 3, 1))
        self.assertGreater(metrics["variant_bytes"], 0)
        self.assertEqual(metrics["load_ms"], 0)

    def test_specialize(self) -> None:
        for specialize in ("batch=exact,seq=div:8", {"batch": "exact", "seq": "div:8"}):
            model = load(ROWS, specialize=specialize)
            model(rows(2, 16))
            model(rows(2, 24))
            self.assertEqual(model.metrics()["variants"], 2)
            model(rows(2, 25))
            self.assertEqual(model.metrics()["variants"], 3)

    def test_mistakes(self) -> None:
        for options, text in (
            ({"policy": "best"}, 'policy is "best"'),
            ({"policy": "adaptive", "deterministic": True}, "deterministic excludes"),
            ({"specialize": "batch=sometimes"}, "neither exact nor div:8"),
            ({"specialize": {"bach": "exact"}}, "did you mean 'batch'"),
            ({"warm_up": "batch=1..8"}, "range of 'seq' is missing"),
            ({"warm_up": {"batch": (8, 1), "seq": 4}}, "the smallest size, 8, is above the largest, 1"),
            ({"warm_up": {"batch": (1, 9, 8), "seq": 4}}, "the typical size, 9, is not between 1 and 8"),
            ({"warm_up": {"batch": 0, "seq": 4}}, "'0' is no size"),
            ({"max_variants": -1}, "max_variants is -1"),
        ):
            with self.subTest(options), self.assertRaisesRegex(tessera.UsageError, text):
                load(ROWS, **options)

    def test_ranges_leave_calls_nothing_to_compile(self) -> None:
        ranges = {"n": (1, 4, 9), "k": "1..4..9"}
        warm, later = load(BROADCASTING, warm_up=ranges), load(BROADCASTING)
        later.warmup_ranges(**ranges)
        text = load(BROADCASTING)
        text.warmup_ranges("n=1..4..9,k=1..4..9")
        for model in (warm, later, text):
            before = model.metrics()
            for n, k in ((4, 4), (4, 1), (1, 7), (9, 1)):
                z = model(numpy.ones((n, 4), numpy.float32), numpy.ones((k, 4), numpy.float32))
                self.assertTrue((z == 2).all())
            after = model.metrics()
            self.assertEqual((after["compiles"], after["blocking_compiles"]), (before["compiles"], 0))
        with self.assertRaisesRegex(tessera.UsageError, "did you mean|it has 'k', 'n'"):
            warm.warmup_ranges(q=3, n=1, k=1)

    def test_memory_of_the_largest_sizes(self) -> None:
        with self.assertRaisesRegex(tessera.OutOfMemoryError, "largest sizes of the ranges: batch=4096, seq=1024"):
            load(ROWS, memory_limit=1 << 20, warm_up={"batch": (1, 4096), "seq": 1024})

    def test_processes_agree_where_that_is_promised(self) -> None:
        path = save(BROADCASTING, "broadcasting.onnx")
        calls = ["4,4", "4,1", "1,1", "1,5", "9,1", "33,33"]

        def answers(policy: str, warm_up: str, order: list[str]) -> dict[str, str]:
            out = subprocess.run(
                [sys.executable, "-c", PROCESS, str(path), policy, warm_up, *order], check=True, capture_output=True, text=True
            ).stdout
            return dict(line.split() for line in out.splitlines())

        for policy, warm_up in (("exact", ""), ("generic", "n=1..4..40,k=1..4..40")):
            one, two = answers(policy, warm_up, calls), answers(policy, warm_up, calls[::-1])
            self.assertEqual(one, two)
            self.assertEqual(len(one), len(calls))


if __name__ == "__main__":
    unittest.main()
