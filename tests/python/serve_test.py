"""tessera.serve without Ray: what it says, and batches of requests. tests/servers has the rest."""

from __future__ import annotations

import importlib.util
import unittest
from typing import Any

import numpy
from support import save

import tessera
import tessera.serve


class Serve(unittest.TestCase):
    @unittest.skipIf(importlib.util.find_spec("ray"), "Ray is here")
    def test_without_ray(self) -> None:
        with self.assertRaisesRegex(tessera.UsageError, r"needs Ray Serve(.|\n)*pip install"):
            tessera.serve.deployment("model.onnx")

    def test_requests_of_equal_sizes_are_one_call(self) -> None:
        path = save("(float[batch, n] x) => (float[batch, n] y) { y = Relu(x) }")
        replica = tessera.serve.Replica(str(path), {"device": "cpu"}, 8)
        calls: list[int] = []
        one = replica.one

        def counted(request: dict[str, Any]) -> dict[str, Any]:
            calls.append(len(request["x"]))
            return one(request)

        replica.one = counted  # type: ignore[method-assign]
        given = [numpy.full(s, s[0] - 1.5, numpy.float32) for s in ((1, 3), (2, 4), (3, 3))]
        answers = replica.several([{"x": x} for x in given])
        self.assertEqual(calls, [4, 2])
        for x, answer in zip(given, answers, strict=True):
            numpy.testing.assert_array_equal(answer["y"], numpy.maximum(x, 0))

    def test_a_replica_is_warm(self) -> None:
        path = save("(float[batch, n] x) => (float[batch, n] y) { y = Softmax <axis = -1> (x) }")
        options = {"device": "cpu", "policy": "exact", "warm_up": {"batch": (1, 2, 4), "n": 3}}
        replica = tessera.serve.Replica(str(path), options, 4)
        before = replica._model.metrics()["compiles"]
        replica.several([{"x": numpy.ones((1, 3), numpy.float32)}] * 2)
        self.assertEqual(replica._model.metrics()["compiles"], before)
        with self.assertRaisesRegex(tessera.UsageError, "range of 'n' is missing"):
            tessera.serve.Replica(str(path), {"device": "cpu", "warm_up": "batch=1..2..4"}, 4)

    def test_a_wrong_request_of_a_batch(self) -> None:
        path = save("(float[batch, n] x, float[batch, n] w) => (float[batch, n] y) { y = Mul(x, w) }")
        replica = tessera.serve.Replica(str(path), {"device": "cpu"}, 8)
        ones = numpy.ones((2, 3), numpy.float32)
        answers = replica.several([{"x": ones, "w": ones}, {"x": ones, "w": ones[:1]}, {"x": ones, "w": 2 * ones}])
        self.assertIsInstance(answers[1], tessera.InputError)
        self.assertEqual([answers[i]["y"][0, 0] for i in (0, 2)], [1, 2])


if __name__ == "__main__":
    unittest.main()
