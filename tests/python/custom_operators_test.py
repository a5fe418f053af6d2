"""Operators of a shared library: examples/operators, one of each kind, on models of this file; and errors of loading.

The library is what TESSERA_EXAMPLE_OPERATORS names, else build/lib/example_operators.so.
"""
import os, subprocess, tempfile, unittest
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

import tessera
from support import ROOT

TESSERA = os.path.join(ROOT, "build/bin/tessera")
LIBRARY = os.environ.get("TESSERA_EXAMPLE_OPERATORS") or os.path.join(ROOT, "build/lib/example_operators.so")
F32, I64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING


def save(folder, name, nodes, inputs, outputs, opset=21):
    value = lambda v: helper.make_tensor_value_info(v[0], v[1], v[2])
    graph = helper.make_graph(nodes, name, [value(v) for v in inputs], [value(v) for v in outputs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("com.example", 1)], ir_version=10)
    path = os.path.join(folder, name + ".onnx")
    onnx.save(model, path)
    return path


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs, outputs, name=f"n_{outputs[0]}", domain="com.example", **attributes)


class Operators(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        tessera.load_operators(LIBRARY)
        tessera.load_operators(LIBRARY)  # again is no error

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def load(self, *args):
        return tessera.load(save(self.folder.name, *args))

    def command(self, *args, code=0):
        done = subprocess.run([TESSERA, *args], capture_output=True, text=True, cwd=self.folder.name)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_decomposition_fuses(self):
        model = self.load("squared", [helper.make_node("Neg", ["x"], ["n"]), node("SquaredRelu", ["n", "s"], ["y"])], [("x", F32, ["b", 5]), ("s", F32, [5])], [("y", F32, None)])
        s = np.arange(5, dtype=np.float32)
        for rows in (1, 3, 64):
            x = np.random.default_rng(rows).standard_normal((rows, 5), dtype=np.float32)
            np.testing.assert_allclose(model(x, s), s * np.maximum(-x, 0) ** 2, rtol=1e-6)
        without = self.load("squared_without", [node("SquaredRelu", ["x"], ["y"])], [("x", F32, ["b", 5])], [("y", F32, None)])
        np.testing.assert_allclose(without(x), np.maximum(x, 0) ** 2, rtol=1e-6)
        report = self.command("explain", "squared.onnx", "--operators", LIBRARY)
        self.assertIn("2 operators -> 1 kernel ", report)

    def test_several_results_and_symbols(self):
        model = self.load("halves", [node("SplitHalves", ["x"], ["low", "high"])], [("x", F32, ["b", "c"])], [("low", F32, None), ("high", F32, None)])
        for c in (2, 7, 10):
            x = np.arange(3 * c, dtype=np.float32).reshape(3, c)
            low, high = model(x)
            np.testing.assert_array_equal(low, x[:, : c // 2])
            np.testing.assert_array_equal(high, x[:, c // 2 :])

    def test_tile_kernel(self):
        model = self.load("rows", [node("RowScale", ["x", "by"], ["y"])], [("x", F32, ["r", "c"]), ("by", F32, ["r"])], [("y", F32, ["r", "c"])])
        for r, c in ((1, 1), (3, 128), (5, 300), (0, 4)):
            x, by = np.random.default_rng(c).standard_normal((r, c), dtype=np.float32), np.arange(r, dtype=np.float32)
            np.testing.assert_array_equal(model(x, by), x * by[:, None])
        unlike = self.load("unlike", [node("RowScale", ["x", "by"], ["y"])], [("x", F32, ["r", "c"]), ("by", F32, ["q"])], [("y", F32, None)])
        np.testing.assert_array_equal(unlike(x, by), x * by[:, None])
        with self.assertRaisesRegex(tessera.Error, "a number for each row"):
            unlike(np.ones((3, 4), np.float32), np.ones(2, np.float32))
        # The operator is interpreted, when compiling, where its operands are constants.
        constant = lambda name, v: helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(np.array(v, np.float32)))
        folded = self.load("folded", [constant("a", [[1, 2], [3, 4]]), constant("b", [10, 100]), node("RowScale", ["a", "b"], ["c"]), helper.make_node("Add", ["x", "c"], ["y"])],
                           [("x", F32, [2, 2])], [("y", F32, None)])
        np.testing.assert_array_equal(folded(np.zeros((2, 2), np.float32)), [[10, 20], [300, 400]])
        wide = self.load("wide", [node("RowScale", ["x", "by"], ["y"])], [("x", TensorProto.DOUBLE, [2, 3]), ("by", TensorProto.DOUBLE, [2])], [("y", TensorProto.DOUBLE, None)])
        with self.assertRaisesRegex(tessera.Error, "no kernel for these types, and no function on the host"):
            wide(np.ones((2, 3)), np.ones(2))
        for device, words in (("cpu", "generated"), ("cuda", "generated")):
            self.assertIn(words, self.command("ops", "rows.onnx", "--operators", LIBRARY, "--device", device))
        # PTX is made and assembled without a GPU.
        self.command("compile", "rows.onnx", "--operators", LIBRARY, "--arch", "sm_90", "-o", "rows.tsr")

    def test_host_function(self):
        model = self.load("quantile", [node("Quantile", ["x"], ["y"], q=0.25)], [("x", F32, ["b", "c"])], [("y", F32, None)])
        x = np.random.default_rng(0).standard_normal((4, 9), dtype=np.float32)
        np.testing.assert_array_equal(model(x), np.sort(x, axis=1)[:, 2])
        with self.assertRaisesRegex(tessera.Error, "a row without elements has no quantile"):
            model(np.zeros((2, 0), np.float32))
        wrong = self.load("quantile_wrong", [node("Quantile", ["x"], ["y"], q=2.0)], [("x", F32, ["b", "c"])], [("y", F32, None)])
        with self.assertRaisesRegex(tessera.Error, "n_y.*'q' is 2.000000, not in \\[0, 1\\]"):
            wrong(x)
        with self.assertRaisesRegex(tessera.Error, "takes f32 of at least one dimension"):
            self.load("quantile_i64", [node("Quantile", ["x"], ["y"])], [("x", I64, [3])], [("y", I64, None)])
        with self.assertRaisesRegex(tessera.Error, "has no attribute 'p'"):
            self.load("quantile_p", [node("Quantile", ["x"], ["y"], p=1)], [("x", F32, [3])], [("y", F32, None)])

    def test_compiled_files(self):
        path = save(self.folder.name, "kept", [node("Quantile", ["x"], ["q"], q=0.5), node("SquaredRelu", ["q"], ["y"])], [("x", F32, ["b", 3])], [("y", F32, ["b"])])
        self.command("compile", path, "--operators", LIBRARY, "-o", "kept.tsr")
        np.save(os.path.join(self.folder.name, "x.npy"), np.array([[3, 1, 2], [5, -4, -6]], np.float32))
        said = self.command("run", "kept.tsr", "--input", "x=x.npy", code=3)
        self.assertIn("'com.example.Quantile'", said)
        self.assertIn("--operators", said)
        self.command("run", "kept.tsr", "--operators", LIBRARY, "--input", "x=x.npy", "--output-dir", "out")
        np.testing.assert_array_equal(np.load(os.path.join(self.folder.name, "out/y.npy")), [4, 0])

    def test_compiled_files_with_bodies(self):
        rows, lists = helper.make_tensor_type_proto(F32, ["n", 3]), helper.make_sequence_type_proto(helper.make_tensor_type_proto(F32, ["n"]))
        infos = lambda **types: [onnx.ValueInfoProto(name=n, type=t) for n, t in types.items()]  # noqa: E731
        body = helper.make_graph([node("Quantile", ["e"], ["q"], q=0.5)], "body", infos(e=rows), infos(q=helper.make_tensor_type_proto(F32, ["n"])))
        graph = helper.make_graph([helper.make_node("SequenceMap", ["s"], ["t"], body=body)], "g", infos(s=helper.make_sequence_type_proto(rows)), infos(t=lists))
        path = os.path.join(self.folder.name, "mapped.onnx")
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.example", 1)], ir_version=10), path)
        self.command("compile", path, "--operators", LIBRARY, "-o", "mapped.tsr")
        for command in ("run", "explain"):
            said = self.command(command, "mapped.tsr", code=3)
            self.assertIn("'com.example.Quantile'", said)
            self.assertIn("--operators FILE", said)
        items = [np.array([[3, 1, 2]], np.float32), np.array([[5, -4, -6], [0, 1, 7]], np.float32)]
        for got, item in zip(tessera.load(os.path.join(self.folder.name, "mapped.tsr"))(items), items, strict=True):
            np.testing.assert_array_equal(got, np.median(item, axis=1))

    def test_without_the_library(self):
        path = save(self.folder.name, "unknown", [node("Quantile", ["x"], ["y"])], [("x", F32, [2, 3])], [("y", F32, [2])])
        self.assertIn("com.example.Quantile", self.command("run", path, code=3))
        self.assertIn("com.example.Quantile", self.command("ops", path, code=3))

    def test_errors_of_loading(self):
        text = os.path.join(self.folder.name, "text.so")
        Path(text).write_text("no library")
        for path, words in ((os.path.join(self.folder.name, "none.so"), "No such file"), (text, "cannot be loaded"), ("/lib/x86_64-linux-gnu/libm.so.6", "tessera_operators_version")):
            with self.assertRaisesRegex(tessera.Error, words): tessera.load_operators(path)

    def test_wrong_libraries(self):
        for name, code, words in WRONG:
            source, library = (os.path.join(self.folder.name, name + end) for end in (".cpp", ".so"))
            Path(source).write_text('#include "api/operators.hpp"\nusing namespace tessera::operators;\n' + code)
            subprocess.run(["c++", "-std=c++20", "-O0", "-shared", "-fPIC", "-I", ROOT, source, "-o", library], check=True)
            with self.subTest(name), self.assertRaisesRegex(tessera.Error, words):
                tessera.load_operators(library)
                path = save(self.folder.name, name, [node(name, ["x"], ["y"])], [("x", F32, ["b", 4])], [("y", F32, None)])
                tessera.load(path)(np.ones((2, 4), np.float32))


SHAPE = ".shape([](ShapeCall& c) { c.result(0, c.dtype(0), c.shape(0)); })"
RELU = '.decompose([](Decomposition& d) { d.result(0, d.op("Relu", {d.operand(0)})); })'


def library(name, meaning, domain="com.example"):
    return f'TESSERA_OPERATORS(l) {{ l.add(Operator("{domain}", "{name}").operand("x"){meaning}); }}'


# name, source, what the error says
WRONG = [
    ("Newer", 'TESSERA_OPERATORS_EXPORT uint32_t tessera_operators_version(void) { return 7; }\nTESSERA_OPERATORS_EXPORT const char* tessera_register_operators(const tessera_operators_api*, tessera_registry*) { return nullptr; }', "built for version 7"),
    ("Empty", "TESSERA_OPERATORS(l) { (void)l; }", "registers no operators"),
    ("Thrown", 'TESSERA_OPERATORS(l) { (void)l; throw std::runtime_error("not today"); }', "not today"),
    ("Quantile", library("Quantile", RELU), "is defined already"),
    ("Relu", library("Relu", RELU, ""), "'Relu' is defined already"),
    ("Meaningless", library("Meaningless", ""), "neither decompose, nor kernel, nor run"),
    ("Twofold", library("Twofold", RELU + SHAPE + ".run([](Run&) {})"), "a decomposition, and a kernel or a function"),
    ("Shapeless", library("Shapeless", ".run([](Run&) {})"), "has no shape function"),
    ("Untyped", library("Untyped", ".shape([](ShapeCall&) {}).run([](Run&) {})"), "has not set the type of result 0"),
    ("Lying", library("Lying", SHAPE + ".run([](Run& r) { r.result(0, TESSERA_F32, {3, 4}); })"), "yields f32\\[3, 4\\] as result 0, and the shape function said f32\\[b, 4\\]"),
    ("Mistyped", library("Mistyped", SHAPE + ".run([](Run& r) { r.result(0, TESSERA_I64, {2, 4}); })"), "yields i64\\[2, 4\\]"),
    ("Lazy", library("Lazy", SHAPE + ".run([](Run&) {})"), "has not made result 0"),
    ("Throwing", library("Throwing", SHAPE + ".run([](Run&) { throw 3; })"), "no std::exception"),
    ("Typo", library("Typo", '.decompose([](Decomposition& d) { d.result(0, d.op("Reluu", {d.operand(0)})); })'), "did you mean 'Relu'"),
    ("Contrary", library("Contrary", '.shape([](ShapeCall& c) { c.result(0, TESSERA_I64, c.shape(0)); })' + RELU), "says i64.* and its decomposition yields f32"),
    ("Endless", library("Endless", '.decompose([](Decomposition& d) { d.result(0, d.op("Endless", {d.operand(0)}, {}, 1, "com.example")); })'), "without end"),
    ("Garbled", library("Garbled", SHAPE + '.kernel([](KernelCall& c) { c.kernel("tile.kernel @k(%x: ptr<f32>) { nonsense }", {}, c.dim(0, 0)); })'), "kernel of 'com.example.Garbled'"),
    ("Short", library("Short", SHAPE + '.kernel([](KernelCall& c) { c.kernel("tile.kernel @k(%x: ptr<f32>) { %a = load %x[0] : f32 }", {}, c.dim(0, 0)); })'), "has 1 parameters"),
    ("Halfwritten", library("Halfwritten", SHAPE + '.kernel([](KernelCall& c) { c.kernel("tile.kernel @k(%x: ptr<f32>, %y: ptr<f16> written) { %a = load %x[0] : f32 }", {}, c.dim(0, 0)); })'), "expected ptr<f32> written"),
]


if __name__ == "__main__":
    unittest.main()
