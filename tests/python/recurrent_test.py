"""Recurrent layers of any length, known or not, against ONNX Runtime."""

from __future__ import annotations

import unittest

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from support import FOLDER

import tessera

F32 = numpy.float32
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
SIZES = [(5, 2), (1, 1), (40, 3), (77, 1), (1, 4), (33, 2)]  # steps and batch of the calls in turn


def random(seed: int, *shape: int) -> numpy.ndarray:
    return numpy.random.default_rng(seed).uniform(-0.5, 0.5, shape).astype(F32)


def layer(
    kind: str, direction: str, weights: bool = True, steps: object = "steps", batch: object = "batch", **given: object
) -> onnx.ModelProto:
    """A model of one layer with 6 inputs and 8 units; `given`: what inputs it has besides X, and attributes."""
    d, g, inputs, hidden = 2 if direction == "bidirectional" else 1, GATES[kind], 6, 8
    lengths, states, bias, peephole = (given.pop(k, False) for k in ("lengths", "states", "bias", "peephole"))
    constants = {"W": random(1, d, g * hidden, inputs), "R": random(2, d, g * hidden, hidden)}
    if bias:
        constants["B"] = random(3, d, 2 * g * hidden)
    if peephole:
        constants["P"] = random(4, d, 3 * hidden)
    shapes = {"X": ("float", [steps, batch, inputs])}
    if not weights:
        shapes |= {name: ("float", list(value.shape)) for name, value in constants.items()}
    if lengths:
        shapes["lengths"] = ("int32", [batch])
    if states:
        shapes["h"] = ("float", [d, batch, hidden])
        if kind == "LSTM":
            shapes["c"] = ("float", [d, batch, hidden])
    names = ["X", "W", "R", "B" if bias else "", "lengths" if lengths else "", "h" if states else ""]
    if kind == "LSTM":
        names += ["c" if states else "", "P" if peephole else ""]
    outputs = ["Y", "Y_h"] + (["Y_c"] if kind == "LSTM" else [])
    node = helper.make_node(kind, names, outputs, direction=direction, hidden_size=hidden, **given)
    types = {"float": TensorProto.FLOAT, "int32": TensorProto.INT32}
    graph = helper.make_graph(
        [node],
        "layer",
        [helper.make_tensor_value_info(n, types[t], s) for n, (t, s) in shapes.items()],
        [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs],
        [numpy_helper.from_array(v, n) for n, v in constants.items()] if weights else [],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def inputs_of(model: onnx.ModelProto, steps: int, batch: int, seed: int) -> dict[str, numpy.ndarray]:
    out = {}
    for k, value in enumerate(model.graph.input):
        dims = [{"steps": steps, "batch": batch}.get(d.dim_param, d.dim_value) for d in value.type.tensor_type.shape.dim]
        if value.type.tensor_type.elem_type == TensorProto.INT32:
            # A sequence of no steps keeps its state here; ONNX Runtime makes it 0.
            out[value.name] = (1 + numpy.arange(batch) * 3 % max(steps, 1)).astype(numpy.int32)
        else:
            out[value.name] = random(seed + k, *dims)
    return out


CASES = {
    "rnn": layer("RNN", "forward"),
    "rnn relu reverse": layer("RNN", "reverse", activations=["Relu"], clip=0.4),
    "gru": layer("GRU", "forward", bias=True, states=True),
    "gru linear before reset": layer("GRU", "bidirectional", bias=True, lengths=True, linear_before_reset=1),
    "lstm": layer("LSTM", "forward", bias=True),
    "lstm peephole": layer("LSTM", "reverse", bias=True, peephole=True, states=True),
    "lstm lengths": layer("LSTM", "bidirectional", bias=True, lengths=True, states=True),
    "lstm weights given": layer("LSTM", "bidirectional", bias=True, weights=False),
    "lstm 100 steps": layer("LSTM", "forward", bias=True, steps=100),
    "gru 97 steps": layer("GRU", "reverse", bias=True, steps=97, lengths=True),
    "lstm 3 steps": layer("LSTM", "bidirectional", bias=True, steps=3, states=True),
}


def norm(got: numpy.ndarray, expected: numpy.ndarray) -> float:
    got, expected = numpy.asarray(got, numpy.float64), numpy.asarray(expected, numpy.float64)
    return float(numpy.linalg.norm(got - expected) / max(numpy.linalg.norm(expected), 1e-12))


class Recurrent(unittest.TestCase):
    def test_any_length_is_right(self) -> None:
        for name, proto in CASES.items():
            with self.subTest(case=name):
                path = FOLDER / "layer.onnx"
                onnx.save(proto, path)
                model = tessera.load(path, "cpu")
                other = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
                fixed = proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value
                for k, (steps, batch) in enumerate([(fixed, b) for b in (1, 3)] if fixed else SIZES):
                    inputs = inputs_of(proto, steps, batch, 10 * k)
                    got, expected = model(**inputs), other.run(None, inputs)
                    for g, e in zip(got, expected, strict=True):
                        self.assertEqual((g.dtype, g.shape), (e.dtype, e.shape), f"call {k}")
                        self.assertLess(norm(g, e), 1e-5, f"call {k}")

    def test_without_steps_the_state_stays(self) -> None:
        proto = layer("LSTM", "bidirectional", states=True)
        onnx.save(proto, FOLDER / "empty.onnx")
        inputs = inputs_of(proto, 0, 2, 1)
        y, h, c = tessera.load(FOLDER / "empty.onnx", "cpu")(**inputs)
        self.assertEqual(y.shape, (0, 2, 2, 8))
        numpy.testing.assert_array_equal(h, inputs["h"])
        numpy.testing.assert_array_equal(c, inputs["c"])


if __name__ == "__main__":
    unittest.main()
