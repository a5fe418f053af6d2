"""Helpers for the tests of the Python package: models in ONNX's text form, and arrays that only speak DLPack."""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if importlib.util.find_spec("tessera") is None:  # neither PYTHONPATH nor an installed wheel has it
    sys.path.append(str(ROOT / "build" / "python"))
    os.environ["PYTHONPATH"] = sys.path[-1]
_folder = tempfile.TemporaryDirectory()
FOLDER = Path(_folder.name)
os.environ.setdefault("TESSERA_CACHE_DIR", str(FOLDER / "cache"))

import numpy  # noqa: E402
import onnx.parser  # noqa: E402

import tessera  # noqa: E402


def save(graph: str, name: str = "model.onnx") -> Path:
    """A file of the graph, such as "(float[n] x) => (float[n] y) { y = Relu(x) }"; "float[]" is a scalar."""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> g {graph}')
    for io in (*model.graph.input, *model.graph.output):
        io.type.tensor_type.shape.SetInParent()
    onnx.save(model, FOLDER / name)
    return FOLDER / name


def load(graph: str, **options: Any) -> tessera.Model:
    return tessera.load(save(graph), "cpu", **options)


class Dlpack:
    """A NumPy array that other libraries see by DLPack alone. `before`: called when they request the memory."""

    def __init__(self, array: numpy.ndarray, before: Any = None) -> None:
        self._array, self._before = array, before

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **options: Any) -> Any:
        if self._before:
            self._before()
        return self._array.__dlpack__(**options)
