"""Features of a model that servers use: warm-up, metrics, why a variant did not fit, a memory limit."""

from __future__ import annotations

import re
import threading
import unittest

import numpy
from support import load, save

import tessera

BROADCASTING = "(float[n, 4] x, float[k, 4] y) => (float[m, 4] z) { z = Add(x, y) }"  # first taken for equal n and k


class Serving(unittest.TestCase):
    def call(self, model: tessera.Model, n: int, k: int) -> None:
        z = model(numpy.ones((n, 4), numpy.float32), numpy.ones((k, 4), numpy.float32))
        self.assertTrue((z == 2).all())

    def test_after_a_warmup_a_call_compiles_nothing(self) -> None:
        model = load(BROADCASTING)
        self.assertIsNone(model.last_miss())
        model.warmup((5, 4), (1, 4))
        self.assertIn("k=1", model.last_miss() or "")
        model.warmup(y=(3, 4), x=(3, 4))
        warm = model.metrics()
        self.assertEqual((warm["warmups"], warm["calls"], warm["variants"]), (2, 0, 2))
        self.call(model, 5, 1)
        self.call(model, 3, 3)
        after = model.metrics()
        self.assertEqual(after["calls"], 2)
        self.assertEqual((after["compiles"], after["new_shapes"]), (warm["compiles"], warm["new_shapes"]))
        self.assertEqual(sum(after["latency"]), 2)

    def test_metrics_in_the_format_of_prometheus(self) -> None:
        model = load(BROADCASTING)
        for n in range(1, 6):
            self.call(model, n, n)
        metrics, samples, families = model.metrics(), {}, {}
        for line in model.metrics_text(model='a "b"', version=2).splitlines():
            if line.startswith("# TYPE "):
                _, _, family, kind = line.split(" ")
                families[family] = kind
            elif not line.startswith("# HELP "):
                name, labels, value = re.fullmatch(r'(\w+)\{model="a \\"b\\"",version="2"(?:,le="(\S+)")?\} (\S+)', line).groups()
                samples[name, labels] = float(value)
        self.assertEqual(families["tessera_calls_total"], "counter")
        self.assertEqual(families["tessera_latency_seconds"], "histogram")
        self.assertEqual(samples["tessera_calls_total", None], 5)
        self.assertEqual(samples["tessera_threads", None], metrics["threads"])
        self.assertAlmostEqual(samples["tessera_compile_seconds_total", None], metrics["compile_ms"] / 1e3)
        self.assertEqual(samples["tessera_latency_seconds_bucket", "+Inf"], 5)
        below = [value for (name, le), value in samples.items() if name == "tessera_latency_seconds_bucket"]
        self.assertEqual((below, len(below)), (sorted(below), len(metrics["latency"])))
        for name, _ in samples:
            self.assertIn(re.sub("_(bucket|sum|count)$", "", name), families)
        for field in metrics:  # each is there, in base units
            self.assertTrue(any(name.startswith("tessera_" + re.sub("_(ms|us)$", "", field)) for name in families), field)
        self.assertNotIn("{", model.metrics_text().replace('{le="', ""))

    def test_wrong_shapes_are_errors(self) -> None:
        model = load(BROADCASTING)
        with self.assertRaisesRegex(tessera.InputTypeError, "2 inputs"):
            model.warmup((5, 4))
        with self.assertRaisesRegex(tessera.InputTypeError, "no input 'q'"):
            model.warmup((5, 4), q=(1, 4))
        with self.assertRaisesRegex(tessera.InputError, "rank 3"):
            model.warmup((5, 4, 1), (5, 4))
        with self.assertRaises(TypeError):
            model.warmup(5, 4)  # type: ignore[arg-type]

    def test_threads_count_for_one_model(self) -> None:
        model = load(BROADCASTING)

        def work() -> None:
            for _ in range(20):
                self.call(model, 2, 2)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(model.metrics()["calls"], 80)

    def test_trim_gives_memory_back(self) -> None:
        model = load("(float[n, n] x) => (float[n, n] y) { p = MatMul(x, x) \n q = MatMul(p, x) \n y = Relu(q) }")
        x = numpy.ones((200, 200), numpy.float32)
        first = model(x)
        held = model.metrics()["host_bytes"]
        model.trim()
        self.assertLess(model.metrics()["host_bytes"], held)
        self.assertEqual(numpy.asarray(model(x)).tolist(), numpy.asarray(first).tolist())

    def test_numbers_of_options(self) -> None:
        """The error about one that does not fit shows it as it was given."""
        path = save("(float[n] x) => (float[n] y) { y = Relu(x) }")
        for option, most in (("memory_limit", (1 << 63) - 1), ("threads", (1 << 31) - 1), ("max_variants", (1 << 31) - 1)):
            for given in (-1, most + 1, 1 << 70, -(1 << 70)):
                with self.subTest(option=option, given=given), self.assertRaises(tessera.UsageError) as caught:
                    tessera.load(path, "cpu", **{option: given})
                self.assertEqual(caught.exception.message, f"{option} is {given}; 0 to {most} are possible")
            with self.assertRaises(TypeError):
                tessera.load(path, "cpu", **{option: "1"})

    def test_a_call_beyond_the_memory_limit_is_refused(self) -> None:
        model = load("(float[n, n] x) => (float[n, n] y) { p = MatMul(x, x) \n q = MatMul(p, x) \n y = Relu(q) }", memory_limit=1 << 20)
        model(numpy.ones((16, 16), numpy.float32))
        with self.assertRaisesRegex(tessera.OutOfMemoryError, "the limit is 1048576"):
            model(numpy.ones((1024, 1024), numpy.float32))
        model(numpy.ones((16, 16), numpy.float32))
        m = model.metrics()
        self.assertEqual((m["errors"], m["memory_limit"]), (1, 1 << 20))
        self.assertLessEqual(m["peak_bytes"], 1 << 20)


if __name__ == "__main__":
    unittest.main()
