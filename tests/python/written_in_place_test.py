"""Files of a loaded model that somebody writes in place, cuts off or replaces: calls give the old values or one error."""

from __future__ import annotations

import os
import shutil
import subprocess
import unittest
from pathlib import Path

import numpy
import onnx
from support import FOLDER

import tessera

ROWS, COLUMNS = 6000, 256
COMMAND = os.environ.get("TESSERA") or str(Path(__file__).resolve().parents[2] / "build" / "bin" / "tessera")
CHANGED = "was written in place since the model was loaded"


def make(name: str) -> tuple[Path, Path]:
    """A model that looks rows up in a table, with weights next to it."""
    table = numpy.arange(ROWS * COLUMNS, dtype=numpy.float32).reshape(ROWS, COLUMNS)
    square = numpy.eye(COLUMNS, dtype=numpy.float32)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Gather", ["table", "i"], ["rows"]), onnx.helper.make_node("MatMul", ["rows", "square"], ["y"])],
        "g",
        [onnx.helper.make_tensor_value_info("i", onnx.TensorProto.INT64, ["n"])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", COLUMNS])],
        [onnx.numpy_helper.from_array(table, "table"), onnx.numpy_helper.from_array(square, "square")],
    )
    folder = FOLDER / name
    folder.mkdir()
    model = folder / "m.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10), model, save_as_external_data=True, location="m.weights")
    return model, folder / "m.weights"


def compiled(model: Path) -> Path:
    out = model.with_suffix(".tsr")
    subprocess.run([COMMAND, "compile", model, "-o", out, "--device", "cpu", "--embed-weights"], check=True, capture_output=True)
    return out


def call(model: tessera.Model, rows: int) -> bool:
    i = numpy.arange(rows, dtype=numpy.int64) * (ROWS // max(1, rows))
    want = i[:, None] * COLUMNS + numpy.arange(COLUMNS)
    return bool(numpy.array_equal(model(i), want.astype(numpy.float32)))


def overwrite(path: Path) -> None:
    with open(path, "r+b") as file:
        file.write(numpy.full(path.stat().st_size // 4, 7, numpy.float32).tobytes())


def cut(path: Path) -> None:
    os.truncate(path, 5000)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def grow(path: Path) -> None:
    with open(path, "ab") as file:
        file.write(bytes(10000))


class WrittenInPlace(unittest.TestCase):
    def check(self, kind: str, change: object) -> None:
        name = f"{kind}_{change.__name__}"  # type: ignore[attr-defined]
        path, weights = make(name)
        if kind == "compiled":
            path = weights = compiled(path)
        model = tessera.load(path, "cpu")
        self.assertTrue(call(model, 5))
        kept = shutil.copy(weights, weights.with_suffix(".kept"))
        change(weights)  # type: ignore[operator]
        for rows in (5, 700, 1):
            with self.assertRaises(tessera.Error) as caught:
                call(model, rows)
            self.assertIn(CHANGED, str(caught.exception))
            self.assertIn(str(weights), str(caught.exception))
        os.replace(kept, weights)
        self.assertTrue(call(tessera.load(path, "cpu"), 700))

    def test_weights(self) -> None:
        for change in (overwrite, cut, empty, grow):
            with self.subTest(change=change.__name__):
                self.check("weights", change)

    def test_compiled_files(self) -> None:
        for change in (overwrite, cut, empty, grow):
            with self.subTest(change=change.__name__):
                self.check("compiled", change)

    def test_files_that_are_replaced_or_removed(self) -> None:
        for kind in ("weights", "compiled"):
            path, weights = make(f"replaced_{kind}")
            if kind == "compiled":
                path = weights = compiled(path)
            model = tessera.load(path, "cpu")
            other = weights.with_suffix(".new")
            shutil.copy(weights, other)
            overwrite(other)
            os.replace(other, weights)
            self.assertTrue(call(model, 5))
            weights.unlink()
            self.assertTrue(call(model, 800))


if __name__ == "__main__":
    unittest.main()
