"""tessera.serve without Ray: what it says, and batches of requests. tests/servers has the rest."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import unittest
from typing import Any

import ml_dtypes
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

    def test_bodies(self) -> None:
        """Bodies of HTTP that are accepted, and the answers to others."""
        path = save("(int64[b, n] x, float[b] w, bool[b] c) => (int64[b, n] y) { y = Neg(x) }")
        replica = tessera.serve.Replica(str(path), {"device": "cpu"}, 1)
        good = {
            "x": {"name": "x", "shape": [1, 2], "datatype": "INT64", "data": [1, -(2**63)]},
            "w": {"name": "w", "shape": [1], "datatype": "FP32", "data": [2]},
            "c": {"name": "c", "shape": [1], "datatype": "BOOL", "data": [True]},
        }

        def arrays(*more: Any, **changed: Any) -> dict[str, Any]:
            inputs = [{**good[name], **changed.get(name, {})} for name in good]
            return replica.arrays_of(json.dumps({"inputs": [*inputs, *more]}).encode())

        self.assertEqual({n: a.tolist() for n, a in arrays().items()}, {"x": [[1, -(2**63)]], "w": [2.0], "c": [True]})
        self.assertEqual(arrays(x={"data": [[3, 4]]})["x"].tolist(), [[3, 4]])
        numpy.testing.assert_array_equal(arrays(w={"shape": [3], "data": [math.nan, math.inf, -math.inf]})["w"], [math.nan, math.inf, -math.inf])
        self.assertEqual(arrays(x={"shape": [2, 0], "data": [[], []]})["x"].shape, (2, 0))
        integers, numbers = "INT64 takes integers", "FP32 takes numbers"
        for message, changed in (
            (f"input 'x': element 1 is 1.9; {integers}", {"x": {"data": [1, 1.9]}}),
            (f"input 'x': element 0 is \"7\"; {integers}", {"x": {"data": ["7", 1]}}),
            (f"input 'x': element 0 is true; {integers}", {"x": {"data": [True, 1]}}),
            (f"input 'x': element 0 is {2**70}; {integers} from {-(2**63)} to {2**63 - 1}", {"x": {"data": [2**70, 1]}}),
            (f"input 'w': element 0 is null; {numbers}", {"w": {"data": [None]}}),
            (f"input 'w': element 0 is 1e+300; {numbers} from -3.4", {"w": {"data": [1e300]}}),
            (f"input 'w': element 0 is {10**400}"[:80], {"w": {"data": [10**400]}}),
            (f"input 'w': element 1 is {10**400}"[:80], {"w": {"datatype": "FP64", "shape": [2], "data": [1e308, 10**400]}}),
            ("input 'w': element 1 is 70000; FP16 takes numbers from -65504.0 to 65504.0", {"w": {"datatype": "FP16", "shape": [2], "data": [65504, 70000]}}),
            ("input 'c': element 0 is 1; BOOL takes true and false", {"c": {"data": [1]}}),
            ("input 'x': \"shape\" is [-1, 2]; a list of integers that are 0 or more is expected", {"x": {"shape": [-1, 2]}}),
            ("input 'x': \"shape\" is null; a list", {"x": {"shape": None}}),
            ("input 'x': \"data\" has 2 elements; shape [1, 3] says 3", {"x": {"shape": [1, 3]}}),
            ("input 'x': \"data\" is nested in another way than shape [1, 2] says", {"x": {"data": [[1], [2]]}}),
            ("input 'x': \"data\" is nested in another way", {"x": {"data": [1, [2]]}}),
            ("input 'x': \"data\" is 5; a list is expected", {"x": {"data": 5}}),
            ("input 'x': \"datatype\" is \"INT63\"; it may be BOOL, UINT8", {"x": {"datatype": "INT63"}}),
            ("input 'x': \"datatype\" is ['INT64']; it may be", {"x": {"datatype": ["INT64"]}}),
            ("inputs[0]: \"name\" is [1]; a string is expected", {"x": {"name": [1]}}),
            ("input 'w' is given twice", {"x": {"name": "w"}}),
            ("the model's inputs are x, w, c", {"x": {"name": "z"}}),
            ("input 'x': shape [4611686018427387904, 4611686018427387904, 0]", {"x": {"shape": [2**62, 2**62, 0], "data": []}}),
        ):  # fmt: skip
            with self.subTest(message=message), self.assertRaisesRegex((tessera.InputError, tessera.InputTypeError), re.escape(message)):
                arrays(**changed)
        for message, body in (
            ("inputs[0] is 5; an object with", b'{"inputs": [5]}'),
            ('the body is no object with a list "inputs"', b"[]"),
            ("the body is not JSON", b"{"),
            ("the body is not JSON", b"\xff"),
            ("the body is JSON that is nested too deeply", b"[" * 200000),
        ):
            with self.subTest(message=message), self.assertRaisesRegex((tessera.InputError, tessera.InputTypeError), re.escape(message)):
                replica.arrays_of(body)

    def test_answers(self) -> None:
        replica = tessera.serve.Replica(str(save("(float[b] x, float[b] w) => (float[b] y) { y = Div(x, w) }")), {"device": "cpu"}, 1)
        answer = replica.one({"x": numpy.float32([1, -1, 0, 1]), "w": numpy.float32([0, 0, 0, 2])})
        text = tessera.serve._text_of(answer, "model")
        self.assertEqual(text, '{"model_name": "model", "outputs": [{"name": "y", "shape": [4], "datatype": "FP32", "data": [Infinity, -Infinity, NaN, 0.5]}]}')
        for value, kind in ((numpy.ones(2, ml_dtypes.bfloat16), "bfloat16"), ([1], "list")):
            with self.assertRaisesRegex(tessera.UnsupportedError, f"output 'y' is {kind}, for which the protocol has no JSON"):
                tessera.serve._text_of({"y": value}, "model")


if __name__ == "__main__":
    unittest.main()
