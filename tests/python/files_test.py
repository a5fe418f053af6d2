"""tessera.load on files, what a Model says of itself, and the command."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import unittest

import numpy
from support import FOLDER, ROOT, load, save

import tessera
from tessera._command import program

GRAPH = "(float[batch, 4] x, float[4, 3] w) => (float[batch, 3] y) { p = MatMul(x, w)  y = Relu(p) }"


class Files(unittest.TestCase):
    def test_onnx(self) -> None:
        model = load(GRAPH)
        self.assertEqual(model.inputs, (tessera.TensorInfo("x", "float32", ("batch", 4)), tessera.TensorInfo("w", "float32", (4, 3))))
        self.assertEqual(model.outputs, (tessera.TensorInfo("y", "float32", ("batch", 3)),))
        self.assertEqual(str(model.inputs[0]), "x: float32[batch, 4]")
        self.assertEqual(model.device, "cpu")
        self.assertEqual(repr(model), f"<tessera.Model {str(FOLDER / 'model.onnx')!r} on cpu: (x: float32[batch, 4], w: float32[4, 3]) -> (y: float32[batch, 3])>")

    def test_kinds_of_paths(self) -> None:
        path = save(GRAPH)
        for given in (path, str(path), os.fsencode(path)):
            self.assertEqual(tessera.load(given, "cpu").inputs[0].name, "x")

    def test_compiled_file(self) -> None:
        path, compiled = save(GRAPH), FOLDER / "model.tsr"
        subprocess.run([program(), "compile", path, "-o", compiled, "--device", "cpu"], check=True, capture_output=True)
        x, w = numpy.ones((2, 4), numpy.float32), numpy.ones((4, 3), numpy.float32)
        model = tessera.load(compiled, "cpu")
        numpy.testing.assert_array_equal(model(x, w), x @ w)
        self.assertEqual(model.inputs, tessera.load(path, "cpu").inputs)
        self.assertIn("matmul", model.explain())

    def test_exported_program(self) -> None:
        model = tessera.load(ROOT / "tests" / "fuzz" / "seeds" / "pt2" / "nested.pt2", "cpu")
        inputs = [numpy.ones([2 if isinstance(d, str) else d for d in i.shape], i.dtype) for i in model.inputs]
        outputs = model(*inputs)
        for array, info in zip(outputs if isinstance(outputs, tuple) else (outputs,), model.outputs, strict=True):
            self.assertEqual((str(array.dtype), array.ndim), (info.dtype, len(info.shape)))
        self.assertIn("kernel", model.explain())

    def test_refused(self) -> None:
        damaged, text = FOLDER / "damaged.onnx", FOLDER / "text.pt2"
        damaged.write_bytes(save(GRAPH).read_bytes()[:40])
        text.write_text("hello")
        unknown = FOLDER / "unknown.onnx"
        save('(float[n] x) => (float[n] y) { y = Foo<domain = "mine">(x) }'.replace('<domain = "mine">', ""), "unknown.onnx")
        path = save(GRAPH)
        cases = (
            (tessera.FileError, FOLDER / "none.onnx", {}, "none.onnx"),
            (tessera.FileError, FOLDER, {}, str(FOLDER)),
            (tessera.ModelError, damaged, {}, "damaged.onnx"),
            (tessera.ModelError, text, {}, "text.pt2"),
            (tessera.UnsupportedError, unknown, {}, "Foo"),
            (tessera.UsageError, path, {"device": "tpu"}, "auto, cpu, cuda or cuda:N"),
            (tessera.UsageError, path, {"tf32": "never"}, 'one of off, conv, matmul, all'),
            (tessera.UsageError, path, {"threads": -1}, "threads is -1; 0 to 2147483647 are possible"),
        )
        for kind, file, options, part in cases:
            with self.subTest(file=file, options=options):
                with self.assertRaises(tessera.Error) as caught:
                    tessera.load(file, **{"device": "cpu", **options})
                self.assertIs(type(caught.exception), kind, str(caught.exception))
                self.assertIn(part, str(caught.exception))

    def test_errors_are_pythons_too(self) -> None:
        with self.assertRaises(OSError):
            tessera.load(FOLDER / "none.onnx", "cpu")
        with self.assertRaises(tessera.FileError) as caught:
            tessera.load(FOLDER / "none.onnx", "cpu")
        again = pickle.loads(pickle.dumps(caught.exception))
        self.assertEqual((str(again), again.code, again.name, again.notes), (str(caught.exception), "TES-3001", "file-error", caught.exception.notes))


class Explained(unittest.TestCase):
    def test_text_and_json(self) -> None:
        model = load(GRAPH)
        here = os.getcwd()
        try:
            os.chdir("/")
            text = model.explain(batch=8)
        finally:
            os.chdir(here)
        self.assertIn("matmul", text)
        report = json.loads(model.explain("json"))
        done = subprocess.run([program(), "explain", FOLDER / "model.onnx", "--device", "cpu", "--format", "json"], check=True, capture_output=True, text=True)
        self.assertEqual(sorted(report), sorted(json.loads(done.stdout)))
        with self.assertRaisesRegex(tessera.UsageError, "format is 'html'; it may be \"text\" or \"json\""):
            model.explain("html")
        with self.assertRaises(tessera.InputTypeError) as caught:
            model.explain(nobody=3)
        self.assertEqual(caught.exception.message, "neither an input nor a dimension is called 'nobody'")
        self.assertEqual(caught.exception.code, "TES-1002")
        self.assertIn("its symbolic dimensions are batch (dimension 0 of 'x')", caught.exception.notes)

    def test_command(self) -> None:
        run = [sys.executable, "-m", "tessera._command"]
        self.assertIn("explain", subprocess.run([*run, "--help"], check=True, capture_output=True, text=True).stdout)
        done = subprocess.run([*run, "run", save(GRAPH), "--shape", "batch=2", "--device", "cpu"], check=True, capture_output=True, text=True)
        self.assertIn("y", done.stdout)
        self.assertNotEqual(subprocess.run([*run, "fly"], capture_output=True).returncode, 0)


if __name__ == "__main__":
    unittest.main()
