"""Values that are no tensors of numbers: strings, sequences, optionals, maps; in and out, against ONNX Runtime where it takes them."""

from __future__ import annotations

import os
import subprocess
import unittest
from typing import Any

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper
from support import FOLDER, ROOT

import tessera

F32, I64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING


def tensor(dtype: int, *dims: int | str) -> onnx.TypeProto:
    return helper.make_tensor_type_proto(dtype, dims)


def save(name: str, nodes: list[Any], inputs: dict[str, onnx.TypeProto], outputs: dict[str, onnx.TypeProto]) -> str:
    value = lambda name, t: onnx.ValueInfoProto(name=name, type=t)  # noqa: E731
    graph = helper.make_graph(nodes, name, [value(*i) for i in inputs.items()], [value(*o) for o in outputs.items()])
    path = os.path.join(FOLDER, name + ".onnx")
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


def node(op: str, inputs: list[str], outputs: list[str], **attributes: Any) -> Any:
    return helper.make_node(op, inputs, outputs, **attributes)


class Lists(unittest.TestCase):
    def same(self, a: Any, b: Any) -> None:
        if isinstance(b, list):
            self.assertIsInstance(a, list)
            self.assertEqual(len(a), len(b))
            for x, y in zip(a, b, strict=True):
                self.same(x, y)
        elif isinstance(b, numpy.ndarray):
            self.assertEqual(a.dtype, b.dtype)
            numpy.testing.assert_array_equal(a, b)
        else:
            self.assertEqual(a, b)

    def against(self, path: str, *inputs: Any) -> Any:
        model = tessera.load(path, "cpu")
        peer = onnxruntime.InferenceSession(path)
        expected = peer.run(None, dict(zip((i.name for i in peer.get_inputs()), inputs, strict=True)))
        outputs = model(*inputs)
        self.same(list(outputs) if isinstance(outputs, tuple) else [outputs], expected)
        return outputs

    def test_strings(self) -> None:
        path = save("strings", [node("StringConcat", ["a", "b"], ["c"])], {"a": tensor(STRING, "n"), "b": tensor(STRING, "n")}, {"c": tensor(STRING, "n")})
        a, b = numpy.array(["x", "", "grün"], object), numpy.array(["1", "\0two", "✓"], object)
        model = tessera.load(path, "cpu")
        self.assertEqual(model.inputs[0].dtype, "string")
        self.assertEqual(model(a, b).tolist(), ["x1", "\0two", "grün✓"])
        self.assertEqual(model(a=["p", "q"], b=numpy.array(["r", "s"])).tolist(), ["pr", "qs"])
        self.assertEqual(model(numpy.array([], object), numpy.array([], object)).shape, (0,))
        self.against(path, numpy.array(["u", "v"], object), numpy.array(["w", ""], object))
        for wrong, words in ((numpy.zeros(2, numpy.float32), "float32; string is expected"), (numpy.array(["x", 3], object), "is expected")):
            with self.assertRaisesRegex(tessera.InputTypeError, words):
                model(wrong, wrong)
        with self.assertRaises(tessera.InputError):
            model(["a"], ["b", "c"])

    def test_strings_of_several_dimensions(self) -> None:
        path = save("split", [node("StringSplit", ["x"], ["y", "n"], delimiter=",")], {"x": tensor(STRING, "a", 2)}, {"y": tensor(STRING, "a", 2, "m"), "n": tensor(I64, "a", 2)})
        words, counts = tessera.load(path, "cpu")(numpy.array([["a,b", "c"], ["", "d,e,f"]], object))
        self.assertEqual(counts.tolist(), [[2, 1], [0, 3]])
        self.assertEqual(words[1, 1].tolist(), ["d", "e", "f"])

    def test_sequences(self) -> None:
        sequence = helper.make_sequence_type_proto(tensor(F32, "n", 2))
        path = save("insert", [node("SequenceInsert", ["s", "x"], ["t"]), node("SequenceLength", ["t"], ["n"])], {"s": sequence, "x": tensor(F32, "m", 2)}, {"t": sequence, "n": tensor(I64)})
        x = numpy.arange(4, dtype=numpy.float32).reshape(2, 2)
        longer, n = self.against(path, [x, x[:1] + 5], x * 2)
        self.assertEqual((len(longer), int(n)), (3, 3))
        self.assertEqual(tessera.load(path, "cpu").inputs[0].dtype, "list")
        model = tessera.load(path, "cpu")
        self.same(model([], x)[0], [x])
        with self.assertRaisesRegex(tessera.InputTypeError, "input 's' is of type ndarray; a list is expected"):
            model(x, x)
        with self.assertRaisesRegex(tessera.InputTypeError, "input 's', item 1 has dtype int64; float32 is expected"):
            model([x, x.astype(numpy.int64)], x)

    def test_sequences_of_strings(self) -> None:
        sequence = helper.make_sequence_type_proto(tensor(STRING, "n"))
        path = save("at", [node("SequenceAt", ["s", "i"], ["y"])], {"s": sequence, "i": tensor(I64)}, {"y": tensor(STRING, "n")})
        model = tessera.load(path, "cpu")
        self.assertEqual(model([["a", "b"], ["c"]], 1).tolist(), ["c"])
        self.assertEqual(model([numpy.array(["a", "b"])], numpy.int64(-1)).tolist(), ["a", "b"])

    def test_optionals(self) -> None:
        optional = helper.make_optional_type_proto(tensor(F32, "n"))
        path = save("optional", [node("OptionalHasElement", ["o"], ["has"])], {"o": optional}, {"has": tensor(TensorProto.BOOL)})
        model = tessera.load(path, "cpu")
        self.assertTrue(bool(model(numpy.ones(3, numpy.float32))))
        self.assertFalse(bool(model(None)))
        path = save("wrapped", [node("Optional", ["x"], ["o"])], {"x": tensor(F32, "n")}, {"o": optional})
        self.same(tessera.load(path, "cpu")(numpy.ones(2, numpy.float32)), numpy.ones(2, numpy.float32))

    def test_maps(self) -> None:
        of_text = onnx.TypeProto(map_type=onnx.TypeProto.Map(key_type=STRING, value_type=tensor(F32)))
        path = save("map", [node("Identity", ["m"], ["y"])], {"m": of_text}, {"y": of_text})
        model = tessera.load(path, "cpu")
        self.assertEqual(model({"a": 1.5, "b": -2.0}), {"a": 1.5, "b": -2.0})
        self.assertEqual(model({}), {})
        with self.assertRaisesRegex(tessera.InputTypeError, "a dict is expected"):
            model([1])

    def test_compiled_files(self) -> None:
        path = save("kept", [node("StringConcat", ["a", "a"], ["c"])], {"a": tensor(STRING, "n")}, {"c": tensor(STRING, "n")})
        compiled = os.path.join(FOLDER, "kept.tsr")
        subprocess.run([str(ROOT / "build/bin/tessera"), "compile", path, "-o", compiled, "--device", "cpu"], check=True, capture_output=True)
        for file in (path, compiled):
            self.assertEqual(tessera.load(file, "cpu")(["ab", ""]).tolist(), ["abab", ""])


if __name__ == "__main__":
    unittest.main()
