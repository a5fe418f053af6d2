"""tessera.onnx_backend: ONNX's interface of backends, and a slice of ONNX's own tests through ONNX's own runner."""

from __future__ import annotations

import unittest
import warnings

import numpy
import onnx.parser
from onnx.backend.base import namedtupledict
from onnx.backend.test import BackendTest
from support import ROOT  # noqa: F401  finds the package

import tessera
import tessera.onnx_backend as backend
ADD = '<ir_version: 10, opset_import: ["": 21]> g (float[n] a, float[n] b) => (float[n] sum, float[n] twice) { sum = Add(a, b) twice = Add(a, a) }'
SLICE = r"^test_(softmax_|gemm_|attention_4d_|cast_FLOAT_|cast_(INT|UINT|FLOAT4)|castlike_FLOAT_to_INT|blackmanwindow|Conv2d|operator_(add|clip|concat)|sequence_insert|identity_(sequence|opt)|optional_(get|has)|string_(concat|split)|split_to_sequence|single_relu|expand_shape).*_cpu$"


class Interface(unittest.TestCase):
    def setUp(self) -> None:
        self.model = onnx.parser.parse_model(ADD)
        self.a, self.b = numpy.arange(3, dtype=numpy.float32), numpy.ones(3, numpy.float32)

    def test_prepare_and_run(self) -> None:
        prepared = backend.prepare(self.model, "CPU")
        for inputs in ([self.a, self.b], (self.a, self.b), {"b": self.b, "a": self.a}):
            outputs = prepared.run(inputs)
            numpy.testing.assert_array_equal(outputs[0], [1, 2, 3])
            numpy.testing.assert_array_equal(outputs["twice"], [0, 2, 4])
        self.assertEqual(type(outputs).__name__, namedtupledict("Outputs", ["sum"]).__name__)
        numpy.testing.assert_array_equal(backend.run_model(self.model, [self.a, self.b])[0], [1, 2, 3])

    def test_one_operator(self) -> None:
        node = onnx.helper.make_node("Sub", ["p", "q"], ["r"])
        numpy.testing.assert_array_equal(backend.run_node(node, [self.a, self.b])[0], [-1, 0, 1])
        numpy.testing.assert_array_equal(backend.run_node(node, {"p": self.a, "q": self.b}, opset_version=14)[0], [-1, 0, 1])
        old = onnx.helper.make_node("Sub", ["p", "q"], ["r"], axis=0, broadcast=1)
        column = numpy.array([[1, 1], [2, 2]], numpy.float32)
        numpy.testing.assert_array_equal(backend.run_node(old, [column, column[:, 0]], opset_version=6)[0], numpy.zeros((2, 2)))

    def test_dropout_in_training(self) -> None:
        node = onnx.helper.make_node("Dropout", ["x", "ratio", "training"], ["y", "mask"], seed=7)
        x = numpy.full((100, 100), 3, numpy.float32)
        for training in (False, True):
            y, mask = backend.run_node(node, [x, numpy.float32(0.25), numpy.bool_(training)])
            numpy.testing.assert_allclose(y, numpy.where(mask, x / (0.75 if training else 1), 0), rtol=1e-6)
            self.assertAlmostEqual(mask.mean(), 0.75 if training else 1, delta=0.02)

    def test_devices(self) -> None:
        self.assertTrue(backend.supports_device("CPU"))
        self.assertFalse(backend.supports_device("ABACUS"))
        with self.assertRaises(tessera.UnsupportedError):
            backend.run_node(onnx.helper.make_node("Frobnicate", ["x"], ["y"]), [self.a])


class Runner(unittest.TestCase):
    def test_a_slice(self) -> None:
        result = unittest.TestResult()
        with warnings.catch_warnings(), numpy.errstate(all="ignore"):  # of the generators of ONNX's tests
            warnings.simplefilter("ignore")
            suite = BackendTest(backend, __name__).include(SLICE).test_suite
        suite.run(result)
        ran = result.testsRun - len(result.skipped)
        self.assertEqual([str(test) + text for test, text in result.failures + result.errors], [])
        self.assertGreater(ran, 50)


if __name__ == "__main__":
    unittest.main()
