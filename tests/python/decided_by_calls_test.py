"""Facts that only a call decides: ranks of inputs without a shape, branches of different ranks, heads that share a key. Compared with ONNX Runtime."""

from __future__ import annotations

import os
import subprocess
import tempfile
import unittest
from collections.abc import Sequence
from typing import Any
from unittest import mock

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from support import FOLDER, ROOT

import tessera

F32, I64 = numpy.float32, numpy.int64
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
Value = tuple[str, int, Any]  # name, element type, shape or None
Feeds = dict[str, numpy.ndarray]


def x(*shape: int, seed: int = 0) -> numpy.ndarray:
    return numpy.random.default_rng(seed).standard_normal(shape).astype(F32)


def save(nodes: Sequence[onnx.NodeProto], inputs: Sequence[Value], outputs: Sequence[Value], opset: int = 18, name: str = "m.onnx", **weights: Any) -> str:
    tensors = [numpy_helper.from_array(numpy.asarray(w), k) for k, w in weights.items()]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(*v) for v in inputs], [helper.make_tensor_value_info(*v) for v in outputs], tensors)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=11 if opset > 20 else 9), FOLDER / name)
    return str(FOLDER / name)


def branch(nodes: Sequence[onnx.NodeProto], *outputs: str) -> onnx.GraphProto:
    return helper.make_graph(nodes, "b", [], [helper.make_tensor_value_info(o, FLOAT, None) for o in outputs])


def choice(condition: str, then: Sequence[onnx.NodeProto], otherwise: Sequence[onnx.NodeProto], output: str) -> onnx.NodeProto:
    return helper.make_node("If", [condition], [output], then_branch=branch(then, then[-1].output[0]), else_branch=branch(otherwise, otherwise[-1].output[0]))


node = helper.make_node


class DecidedByCalls(unittest.TestCase):
    def check(self, path: str, calls: Sequence[Feeds]) -> tessera.Model:
        reference = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        with tempfile.TemporaryDirectory() as cache, mock.patch.dict(os.environ, TESSERA_CACHE_DIR=cache):
            for _ in range(2):  # the second model finds the plans of the first one
                model = tessera.load(path, "cpu")
                for feeds in (*calls, *calls):
                    expected = reference.run(None, feeds)
                    got = model(**feeds)
                    for g, e in zip(got if isinstance(got, (list, tuple)) else [got], expected, strict=True):
                        self.assertEqual((numpy.asarray(g).dtype, numpy.asarray(g).shape), (e.dtype, e.shape))
                        numpy.testing.assert_allclose(numpy.asarray(g), e, rtol=1e-5, atol=1e-5)
        return model

    # ---- inputs without a shape
    def test_an_input_without_a_shape_has_the_rank_of_the_call(self) -> None:
        path = save([node("Relu", ["x"], ["r"]), node("Add", ["r", "r"], ["y"])], [("x", FLOAT, None)], [("y", FLOAT, None)])
        model = self.check(path, [{"x": x(2, 3)}, {"x": x(4)}, {"x": x()}, {"x": x(2, 3, 1, 5)}, {"x": x(7, 2)}])
        self.assertIsNone(model.inputs[0].shape)
        self.assertEqual(str(model.inputs[0]), "x: float32[...]")

    def test_inputs_with_and_without_shapes(self) -> None:
        nodes = [node("MatMul", ["x", "w"], ["m"]), node("Softmax", ["m"], ["s"], axis=-1), node("Mul", ["s", "k"], ["y"])]
        path = save(nodes, [("x", FLOAT, None), ("w", FLOAT, ["i", "o"]), ("k", FLOAT, None)], [("y", FLOAT, None)])
        calls = [{"x": x(2, 4), "w": x(4, 3), "k": x(3)}, {"x": x(5, 2, 4), "w": x(4, 3), "k": x()}, {"x": x(4), "w": x(4, 3), "k": x(2, 3)}, {"x": x(2, 4), "w": x(4, 6), "k": x(6)}]
        model = self.check(path, calls)
        self.assertEqual([i.shape for i in model.inputs], [None, ("i", "o"), None])

    def test_integers_without_a_shape_that_decide(self) -> None:
        path = save([node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)], [("x", FLOAT, None), ("axes", INT64, None)], [("y", FLOAT, None)])
        axes = lambda *a: numpy.array(a, I64)  # noqa: E731
        self.check(path, [{"x": x(2, 3, 4), "axes": axes(0, 2)}, {"x": x(2, 3), "axes": axes(1)}, {"x": x(2, 3, 4), "axes": axes(-1)}])

    def test_too_many_dimensions_are_refused(self) -> None:
        model = tessera.load(save([node("Relu", ["x"], ["y"])], [("x", FLOAT, None)], [("y", FLOAT, None)]), "cpu")
        model(x(2))
        with self.assertRaises(tessera.Error):
            model(x(2).astype(numpy.float64))
        numpy.testing.assert_array_equal(model(x(3, 2)), numpy.maximum(x(3, 2), 0))

    # ---- branches of different ranks
    def test_branches_of_different_ranks_as_an_output(self) -> None:
        axes = {"ax": numpy.array([0], I64)}
        inputs: list[Value] = [("c", BOOL, []), ("x", FLOAT, ["n", 3])]
        nodes = [choice("c", [node("Unsqueeze", ["x", "ax"], ["t"])], [node("Relu", ["x"], ["e"])], "y")]
        model = self.check(save(nodes, inputs, [("y", FLOAT, None)], **axes), [{"c": numpy.array(c), "x": x(n, 3)} for c, n in ((True, 2), (False, 2), (False, 4), (True, 1))])
        self.assertIsNone(model.outputs[0].shape)
        # The graph also has nodes before the choice, and one that reads the result.
        nodes = [node("Exp", ["x"], ["a"]), choice("c", [node("ReduceMax", ["a", "ax"], ["t"], keepdims=0)], [node("Identity", ["a"], ["e"])], "v"), node("Neg", ["v"], ["y"]), node("Abs", ["x"], ["z"])]
        self.check(save(nodes, inputs, [("y", FLOAT, None), ("z", FLOAT, None)], **axes), [{"c": numpy.array(c), "x": x(n, 3)} for c, n in ((False, 2), (True, 2), (True, 5))])

    def test_a_branch_in_a_branch_as_an_output(self) -> None:
        inner = choice("d", [node("Unsqueeze", ["x", "ax"], ["it"])], [node("Relu", ["x"], ["ie"])], "i")
        nodes = [choice("c", [node("Neg", ["x"], ["t"])], [inner, node("Abs", ["i"], ["e"])], "y")]
        path = save(nodes, [("c", BOOL, []), ("d", BOOL, [1]), ("x", FLOAT, ["n", 3])], [("y", FLOAT, None)], ax=numpy.array([1], I64))
        self.check(path, [{"c": numpy.array(c), "d": numpy.array([d]), "x": x(2, 3)} for c in (True, False) for d in (True, False)])

    def test_a_computed_condition_as_an_output(self) -> None:
        nodes = [node("ReduceSum", ["x"], ["s"], keepdims=0), node("Greater", ["s", "zero"], ["c"]), choice("c", [node("Unsqueeze", ["x", "ax"], ["t"])], [node("Neg", ["x"], ["e"])], "y")]
        path = save(nodes, [("x", FLOAT, ["n"])], [("y", FLOAT, None)], ax=numpy.array([0], I64), zero=numpy.array(0, F32))
        self.check(path, [{"x": x(3) + k} for k in (3, -3, 4)])

    def squeezed_recurrent(self, then_axes: list[int]) -> tuple[list[onnx.NodeProto], dict[str, numpy.ndarray]]:
        """Rows [n, t, 4] or [n, 4] in front of an LSTM, which takes what the branch that squeezes makes of them."""
        h = 3
        nodes = [
            node("Shape", ["x"], ["shape"]), node("Gather", ["shape", "one"], ["t"]), node("Equal", ["t", "number"], ["c"]),
            choice("c", [node("Squeeze", ["x", "one_d"], ["p"])], [node("Identity", ["x"], ["q"])], "v"),
            node("Unsqueeze", ["v", "zero_d"], ["u"]), node("LSTM", ["u", "w", "r"], ["all", "last"], hidden_size=h), node("Squeeze", ["last", "zero_d"], ["y"]),
        ]  # fmt: skip
        weights = {"one": numpy.array(1, I64), "number": numpy.array(then_axes[0], I64), "one_d": numpy.array([1], I64), "zero_d": numpy.array([0], I64), "w": x(1, 4 * h, 4), "r": x(1, 4 * h, h, seed=1)}
        return nodes, weights

    def test_a_layer_takes_what_only_one_branch_makes(self) -> None:
        nodes, weights = self.squeezed_recurrent([1])
        path = save(nodes, [("x", FLOAT, ["n", "t", 4])], [("y", FLOAT, None)], **weights)
        model = self.check(path, [{"x": x(n, 1, 4)} for n in (2, 1, 5)])
        with self.assertRaisesRegex(tessera.Error, "rank 3"):
            model(x(2, 2, 4))
        self.check(path, [{"x": x(3, 1, 4)}])

    def test_each_of_two_branches_fits_other_sizes(self) -> None:
        """A rate chooses a branch, which needs windows of its own length: the other one cannot be built then."""
        h = 3
        weights: dict[str, Any] = {"rate": numpy.array(16, I64), "one": numpy.array(1, I64), "last_d": numpy.array([2], I64), "zero_d": numpy.array([0], I64)}
        sides: dict[str, list[onnx.NodeProto]] = {}
        for side, window in (("a", 8), ("b", 4)):
            weights |= {f"f{side}": x(5, 1, window), f"w{side}": x(1, 4 * h, 5), f"r{side}": x(1, 4 * h, h)}
            sides[side] = [
                node("Conv", ["x", f"f{side}"], [f"c{side}"], strides=[window]), node("Shape", [f"c{side}"], [f"s{side}"]), node("Gather", [f"s{side}", "two"], [f"n{side}"]),
                node("Equal", [f"n{side}", "one"], [f"e{side}"]),
                choice(f"e{side}", [node("Squeeze", [f"c{side}", "last_d"], [f"p{side}"])], [node("Identity", [f"c{side}"], [f"q{side}"])], f"v{side}"),
                node("Unsqueeze", [f"v{side}", "zero_d"], [f"u{side}"]), node("LSTM", [f"u{side}", f"w{side}", f"r{side}"], [f"o{side}"], hidden_size=h),
            ]  # fmt: skip
        weights["two"] = numpy.array(2, I64)
        nodes = [node("Equal", ["sr", "rate"], ["is"]), choice("is", sides["a"], sides["b"], "y")]
        path = save(nodes, [("x", FLOAT, ["n", 1, "t"]), ("sr", INT64, [])], [("y", FLOAT, None)], **weights)
        calls = [{"x": x(n, 1, t), "sr": numpy.array(sr, I64)} for n, t, sr in ((2, 8, 16), (1, 4, 8), (3, 8, 16), (2, 5, 8), (1, 15, 16))]
        model = self.check(path, calls)
        with self.assertRaises(tessera.Error):
            model(x(1, 1, 8), numpy.array(8, I64))
        self.check(path, calls[::-1])

    # ---- heads that share a key
    def test_symbolic_heads_that_share_a_key(self) -> None:
        inputs: list[Value] = [("q", FLOAT, ["n", "a", "s", 8]), ("k", FLOAT, ["n", "b", "t", 8]), ("v", FLOAT, ["n", "b", "t", 8])]
        path = save([node("Attention", ["q", "k", "v"], ["y"], is_causal=1)], inputs, [("y", FLOAT, None)], opset=23)
        heads = ((4, 2), (2, 2), (6, 2), (4, 1), (4, 4), (6, 3))
        model = self.check(path, [{"q": x(2, h, 3, 8), "k": x(2, k, 5, 8, seed=1), "v": x(2, k, 5, 8, seed=2)} for h, k in heads])
        with self.assertRaisesRegex(tessera.Error, "5 heads of Q share 2 of K"):
            model(x(1, 5, 2, 8), x(1, 2, 2, 8), x(1, 2, 2, 8))

    # ---- values and sizes of calls
    def test_slices_of_as_many_axes_as_a_call_says(self) -> None:
        names = ("starts", "ends", "axes", "steps")
        path = save([node("Slice", ["x", *names], ["y"])], [("x", FLOAT, ["m", "n"])] + [(n, INT64, ["k"]) for n in names], [("y", FLOAT, None)])
        vectors = (((1,), (4,), (0,), (1,)), ((0, 1), (9, 9), (0, 1), (2, 1)), ((-1, 3), (-9, 0), (1, 0), (-1, -2)), ((0,), (5,), (1,), (3,)))
        self.check(path, [{"x": x(5, 6), **{n: numpy.array(v, I64) for n, v in zip(names, values, strict=True)}} for values in vectors])

    def test_rows_without_elements(self) -> None:
        for op in ("Hardmax", "Softmax", "LogSoftmax"):
            path = save([node(op, ["x"], ["y"], axis=-1)], [("x", FLOAT, ["m", "n"])], [("y", FLOAT, None)])
            self.check(path, [{"x": x(2, 3)}, {"x": x(2, 0)}, {"x": x(0, 3)}, {"x": x(0, 0)}])

    def test_a_condition_of_one_element(self) -> None:
        path = save([choice("c", [node("Relu", ["x"], ["t"])], [node("Neg", ["x"], ["e"])], "y")], [("x", FLOAT, ["n"]), ("c", BOOL, ["k"])], [("y", FLOAT, ["n"])])
        model = self.check(path, [{"x": x(3), "c": numpy.array([c])} for c in (True, False)])
        with self.assertRaises(tessera.Error):
            model(x(3), numpy.array([True, False]))
        with self.assertRaisesRegex(tessera.Error, "elements of the condition of an If"):
            tessera.load(save([choice("c", [node("Relu", ["x"], ["t"])], [node("Neg", ["x"], ["e"])], "y")], [("x", FLOAT, ["n"]), ("c", BOOL, [2])], [("y", FLOAT, ["n"])]), "cpu")

    def test_a_sequence_that_a_loop_builds_from_nothing(self) -> None:
        types: list[onnx.ValueInfoProto] = [helper.make_tensor_value_info("i", INT64, []), helper.make_tensor_value_info("on", BOOL, []), helper.make_tensor_sequence_value_info("s", FLOAT, None)]
        results = [helper.make_tensor_value_info("on2", BOOL, []), helper.make_tensor_sequence_value_info("s2", FLOAT, None)]
        for sizes, grown in (("n", [node("Cast", ["i"], ["f"], to=FLOAT), node("Add", ["x", "f"], ["e"])]), ("varying", [node("Reshape", ["i", "one"], ["a"]), node("Slice", ["x", "a", "most", "zero"], ["e"])])):
            body = helper.make_graph([*grown, node("SequenceInsert", ["s", "e"], ["s2"]), node("Identity", ["on"], ["on2"])], "body", types, results)
            for stacks in (0, 1) if sizes == "n" else (0,):
                nodes = [node("SequenceEmpty", [], ["s0"], dtype=FLOAT), node("Loop", ["m", "", "s0"], ["all"], body=body), node("ConcatFromSequence", ["all"], ["y"], axis=0, new_axis=stacks)]
                weights = {"one": numpy.array([1], I64), "most": numpy.array([99], I64), "zero": numpy.array([0], I64)}
                path = save(nodes, [("x", FLOAT, ["n", 3]), ("m", INT64, [])], [("y", FLOAT, None)], **weights)
                self.check(path, [{"x": x(4, 3), "m": numpy.array(m, I64)} for m in (1, 3, 40)])

    def test_a_call_that_the_model_cannot_take_says_why(self) -> None:
        path = save([node("CumSum", ["x", "axis"], ["y"])], [("x", FLOAT, ["n"]), ("axis", INT64, ["k"])], [("y", FLOAT, ["n"])])
        model = self.check(path, [{"x": x(3), "axis": numpy.array([0], I64)}])
        for axis, why in (([0, 0], "must be one number"), ([3], r"axis 3 of 'CumSum' is not in \[-1, 1\)")):
            with self.assertRaisesRegex(tessera.InputError, why):
                model(x(3), numpy.array(axis, I64))

    # ---- the command
    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([os.environ.get("TESSERA", str(ROOT / "build" / "bin" / "tessera")), *arguments], capture_output=True, text=True, check=False)

    def test_the_command_makes_or_takes_what_decides(self) -> None:
        inputs: list[Value] = [("x", FLOAT, [2, 3, 4]), ("axes", INT64, [2])]
        path = save([node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)], inputs, [("y", FLOAT, None)], name="axes.onnx")
        numpy.save(FOLDER / "axes.npy", numpy.array([2, 0], I64))
        numpy.save(FOLDER / "x.npy", x(2, 3, 4))
        (FOLDER / "out").mkdir(exist_ok=True)
        for arguments in (["run", path], ["compile", path, "-o", str(FOLDER / "axes.tsr")], ["bench", path, "--seconds", "0", "--no-cold"]):
            done = self.command(*arguments, *(["--device", "cpu"]))
            self.assertEqual(done.returncode, 0, done.stderr)
        files = ["--input", f"axes={FOLDER}/axes.npy", "--input", f"x={FOLDER}/x.npy", "--output-dir", str(FOLDER / "out")]
        done = self.command("run", path, "--device", "cpu", *files)
        self.assertEqual(done.returncode, 0, done.stderr)
        numpy.testing.assert_allclose(numpy.load(FOLDER / "out" / "y.npy"), x(2, 3, 4).sum((0, 2)), rtol=1e-5)


if __name__ == "__main__":
    unittest.main()
