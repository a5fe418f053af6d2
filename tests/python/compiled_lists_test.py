"""Compiled files of models with values that are no tensors of numbers, and with operators that run on the host: compiled in
another process, loaded here, and compared with the model itself and ONNX Runtime."""

from __future__ import annotations

import os
import subprocess
import unittest
from typing import Any

import numpy
import onnx
import onnx.parser
import onnxruntime
from onnx import TensorProto, helper
from support import FOLDER, ROOT

import tessera

F32, I64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
TESSERA = str(ROOT / "build/bin/tessera")


def x(*shape: int) -> numpy.ndarray:
    return ((numpy.arange(numpy.prod(shape, dtype=int)) * 37 % 11 - 5) / 7).reshape(shape).astype(numpy.float32)


def tensor(dtype: int, *dims: int | str) -> onnx.TypeProto:
    return helper.make_tensor_type_proto(dtype, dims)


def sequence(item: onnx.TypeProto) -> onnx.TypeProto:
    return helper.make_sequence_type_proto(item)


def map_of(keys: int) -> onnx.TypeProto:
    return onnx.TypeProto(map_type=onnx.TypeProto.Map(key_type=keys, value_type=tensor(F32)))


def words(*values: str) -> numpy.ndarray:
    return numpy.array(values, object)


def node(op: str, inputs: list[str], outputs: list[str], **attributes: Any) -> Any:
    return helper.make_node(op, inputs, outputs, **attributes)


def ml(op: str, inputs: list[str], outputs: list[str], **attributes: Any) -> Any:
    return helper.make_node(op, inputs, outputs, domain="ai.onnx.ml", **attributes)


def body(name: str, nodes: list[Any], inputs: dict[str, onnx.TypeProto], outputs: dict[str, onnx.TypeProto], weights: list[Any] | None = None) -> Any:
    infos = [[onnx.ValueInfoProto(name=n, type=t) for n, t in values.items()] for values in (inputs, outputs)]
    return helper.make_graph(nodes, name, *infos, weights or [])


def text_weight(name: str, values: list[bytes]) -> Any:
    return helper.make_tensor(name, STRING, [len(values)], values)


ROWS, BOOL = tensor(F32, "n", 2), tensor(TensorProto.BOOL)
APPEND = body("append", [node("Mul", ["x", "scale"], ["y"]), node("SequenceInsert", ["s", "y"], ["t"]), node("Identity", ["on"], ["more"])],
              {"i": tensor(I64), "on": BOOL, "s": sequence(ROWS)}, {"more": BOOL, "t": sequence(ROWS)})
CASES: dict[str, tuple[Any, list[tuple[Any, ...]]]] = {
    "sequence": (body("g", [node("SequenceInsert", ["s", "x"], ["t"]), node("SequenceLength", ["t"], ["n"])], {"s": sequence(ROWS), "x": ROWS}, {"t": sequence(ROWS), "n": tensor(I64)}),
                 [([x(1, 2), x(3, 2)], x(2, 2)), ([x(2, 2)] * 4, x(1, 2))]),
    "split": (body("g", [node("SplitToSequence", ["x", "by"], ["s"], axis=0)], {"x": ROWS, "by": tensor(I64)}, {"s": sequence(ROWS)}), [(x(5, 2), numpy.int64(2))]),
    "strings": (body("g", [node("StringConcat", ["a", "b"], ["c"]), node("StringConcat", ["c", "c"], ["d"])], {"a": tensor(STRING, "n")}, {"c": tensor(STRING, "n"), "d": tensor(STRING, "n")}, [text_weight("b", ["ü".encode()])]),
                [(words("x", "", "grün"),), (words("one"),)]),
    "labels": (body("g", [ml("LabelEncoder", ["a"], ["i"], keys_strings=["p", "q\n", "é"], values_int64s=[3, 4, 5], default_int64=-1), node("Add", ["i", "i"], ["y"])], {"a": tensor(STRING, "n", 2)}, {"y": tensor(I64, "n", 2)}),
               [(words("p", "é", "q\n", "r").reshape(2, 2),)]),
    "maps in": (body("g", [ml("DictVectorizer", ["m"], ["v"], string_vocabulary=["a", "b", "c"]), node("Neg", ["v"], ["y"])], {"m": map_of(STRING)}, {"y": tensor(F32, 1, 3)}), [({"b": 1.5, "c": -2.0},), ({"a": 4.0},)]),
    "maps out": (body("g", [node("Softmax", ["x"], ["p"]), ml("ZipMap", ["p"], ["z"], classlabels_strings=["no", "yes"])], {"x": ROWS}, {"z": sequence(map_of(STRING))}), [(x(3, 2),), (x(1, 2),)]),
    "a loop on the host": (body("g", [node("SequenceEmpty", [], ["s0"]), node("Loop", ["trips", "", "s0"], ["s"], body=APPEND), node("SequenceLength", ["s"], ["n"])],
                                {"trips": tensor(I64), "x": ROWS, "scale": tensor(F32)}, {"s": sequence(ROWS), "n": tensor(I64)}),
                           [(numpy.int64(3), x(2, 2), numpy.float32(0.5)), (numpy.int64(0), x(1, 2), numpy.float32(2))]),
    "branches of lists": (body("g", [node("If", ["c"], ["s"], then_branch=body("t", [node("SequenceConstruct", ["x", "w"], ["p"])], {}, {"p": sequence(ROWS)}, [helper.make_tensor("w", F32, [40, 2], x(40, 2).ravel())]),
                                                else_branch=body("e", [node("Neg", ["x"], ["m"]), node("SequenceConstruct", ["m"], ["q"])], {}, {"q": sequence(ROWS)}))], {"c": BOOL, "x": ROWS}, {"s": sequence(ROWS)}),
                          [(numpy.bool_(c), x(3, 2)) for c in (True, False)]),
    "a map over a sequence": (body("g", [node("SequenceMap", ["s", "k"], ["t"], body=body("f", [node("Mul", ["e", "k0"], ["m"]), node("Tanh", ["m"], ["o"])], {"e": ROWS, "k0": tensor(F32)}, {"o": ROWS}))],
                                   {"s": sequence(ROWS), "k": tensor(F32)}, {"t": sequence(ROWS)}),
                              [([x(1, 2), x(4, 2)], numpy.float32(3)), ([x(2, 2)], numpy.float32(-1))]),
    "an optional": (body("g", [node("SequenceInsert", ["s", "x"], ["t"]), node("Optional", ["t"], ["o"])], {"s": sequence(ROWS), "x": ROWS}, {"o": helper.make_optional_type_proto(sequence(ROWS))}), [([x(1, 2)], x(2, 2))]),
}
ALONE = {"an optional"}  # what ONNX Runtime does not take


def save(name: str, graph: Any) -> str:
    path = os.path.join(FOLDER, name.replace(" ", "_") + ".onnx")
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 2)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=9), path)
    return path


def compiled(path: str, *options: str) -> str:
    file = path.replace(".onnx", ".tsr")
    subprocess.run([TESSERA, "compile", path, "-o", file, *options], check=True, capture_output=True)
    return file


class CompiledLists(unittest.TestCase):
    def same(self, a: Any, b: Any) -> None:
        if isinstance(b, (list, tuple)):
            self.assertIsInstance(a, (list, tuple))
            self.assertEqual(len(a), len(b))
            for p, q in zip(a, b, strict=True):
                self.same(p, q)
        elif isinstance(b, dict):
            self.assertEqual(list(a), list(b))
            numpy.testing.assert_allclose(list(a.values()), list(b.values()), rtol=1e-5, atol=1e-6)
        elif numpy.asarray(b).dtype.kind in "OUS":
            self.assertEqual(numpy.asarray(a).tolist(), numpy.asarray(b).tolist())
        else:
            self.assertEqual(numpy.asarray(a).dtype, numpy.asarray(b).dtype)
            numpy.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)

    def test_run_as_the_model_does(self) -> None:
        for name, (graph, calls) in CASES.items():
            with self.subTest(name):
                path = save(name, graph)
                model, file = tessera.load(path, "cpu"), tessera.load(compiled(path, "--device", "cpu"), "cpu")
                self.assertEqual((file.inputs, file.outputs), (model.inputs, model.outputs))
                peer = None if name in ALONE else onnxruntime.InferenceSession(path)
                for call in calls:
                    expected = model(*call)
                    self.same(file(*call), expected)
                    if peer is not None:
                        arrays = (numpy.asarray(v) if isinstance(v, numpy.generic) else v for v in call)
                        outputs = peer.run(None, dict(zip((i.name for i in peer.get_inputs()), arrays, strict=True)))
                        self.same(expected if isinstance(expected, tuple) else (expected,), outputs)

    def test_made_for_a_gpu(self) -> None:
        for name, (graph, _) in CASES.items():
            with self.subTest(name):
                file = compiled(save(name, graph), "--arch", "sm_90")
                report = subprocess.run([TESSERA, "explain", file], capture_output=True, text=True, check=True).stdout
                self.assertIn("cuda sm_90", report)

    def test_strings_that_are_no_text(self) -> None:
        graph = body("g", [node("StringConcat", ["a", "b"], ["c"])], {"a": tensor(STRING, 70)}, {"c": tensor(STRING, 70)},
                     [text_weight("b", [b"\xff\x00%d" % k for k in range(70)])])  # more than the operator's text holds
        path = save("bytes", graph)
        given = numpy.array([b"<"] * 70, object)
        for file in (path, compiled(path, "--device", "cpu")):
            got = tessera.load(file, "cpu")(given).tolist()
            self.assertEqual([g if isinstance(g, bytes) else g.encode("utf-8", "surrogateescape") for g in got], [b"<\xff\x00%d" % k for k in range(70)])

    def test_lists_are_checked(self) -> None:
        file = tessera.load(compiled(save("sequence", CASES["sequence"][0]), "--device", "cpu"), "cpu")
        with self.assertRaisesRegex(tessera.InputTypeError, "item 0 has dtype int64; float32 is expected"):
            file([x(1, 2).astype(numpy.int64)], x(1, 2))

    def test_outputs_of_the_command(self) -> None:
        file = compiled(save("maps out", CASES["maps out"][0]), "--device", "cpu")
        numpy.save(os.path.join(FOLDER, "x.npy"), x(2, 2))
        subprocess.run([TESSERA, "run", file, "--input", f"x={FOLDER}/x.npy", "--output-dir", str(FOLDER)], check=True, capture_output=True)
        self.assertIn("yes", (FOLDER / "z.json").read_text())


if __name__ == "__main__":
    unittest.main()
