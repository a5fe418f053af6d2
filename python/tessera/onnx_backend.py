"""ONNX's interface of backends, so that ONNX's own tests run on Tessera:

    from onnx.backend.test import BackendTest
    import tessera.onnx_backend
    globals().update(BackendTest(tessera.onnx_backend, __name__).test_cases)   # unittest or pytest runs them

`prepare` compiles a model, its result's `run` computes. What is not supported is an error, so that a runner counts it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from typing import Any

import numpy
import onnx
from onnx.backend.base import Backend, BackendRep, Device, DeviceType, namedtupledict

from ._errors import Error
from ._session import Model, load

__all__ = ["TesseraBackend", "TesseraRep", "is_compatible", "prepare", "run_model", "run_node", "supports_device"]


class TesseraRep(BackendRep):
    """A compiled model, and the folder of its file: sizes that the code does not fit are compiled from it later."""

    def __init__(self, model: Model, folder: str) -> None:
        self._model = model
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._result = namedtupledict("Outputs", [o.name for o in model.outputs])

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:  # noqa: ARG002
        """Computes the outputs, a tuple whose fields are also found by name. inputs: arrays in the order of the model's
        inputs, one array, or a dict by name."""
        if isinstance(inputs, dict):
            outputs = self._model(**inputs)
        elif isinstance(inputs, (list, tuple)):
            outputs = self._model(*inputs)
        else:
            outputs = self._model(inputs)
        return self._result(*(outputs if isinstance(outputs, tuple) else (outputs,)))


def _device(device: str) -> str:
    """The name that tessera.load takes of "CPU", "CUDA", "CUDA:1"."""
    wanted = Device(device)
    return "cpu" if wanted.type == DeviceType.CPU else f"cuda:{wanted.device_id}"


class TesseraBackend(Backend):
    """Prepares models for the CPU and for NVIDIA's GPUs."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> TesseraRep:  # noqa: ARG003
        """Compiles the model. Raises tessera.Error. kwargs, such as the tolerances that ONNX's runner passes, mean nothing."""
        folder = tempfile.mkdtemp(prefix="tessera-")
        try:
            path = os.path.join(folder, "model.onnx")
            onnx.save(model, path)
            return TesseraRep(load(path, _device(device)), folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[numpy.dtype[Any], tuple[int, ...]]] | None = None,  # noqa: ARG003
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Computes one operator on arrays. opset_version: of the node's domain; the newest one that is known."""
        arrays = [numpy.asarray(i) for i in (inputs.values() if isinstance(inputs, dict) else inputs)]
        names = list(inputs) if isinstance(inputs, dict) else [name for name in node.input if name]
        infos = [
            onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for name, a in zip(names, arrays, strict=True)
        ]
        outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        graph = onnx.helper.make_graph([node], "node", infos, outputs)
        version = kwargs.get("opset_version", onnx.defs.onnx_opset_version() if node.domain in ("", "ai.onnx") else 1)
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid(node.domain, version)])
        return cls.prepare(model, device).run(arrays)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether models can run there: always on "CPU", on "CUDA" where there is a GPU that can be used."""
        try:
            wanted = _device(device)
        except (AttributeError, ValueError):  # a kind of device that ONNX does not know
            return False
        if wanted == "cpu":
            return True
        graph = onnx.helper.make_graph(
            [onnx.helper.make_node("Identity", ["x"], ["y"])],
            "probe",
            [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])],
            [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])],
        )
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)])
        try:
            cls.prepare(model, device)
        except Error:
            return False
        return True


is_compatible = TesseraBackend.is_compatible
prepare = TesseraBackend.prepare
run_model = TesseraBackend.run_model
run_node = TesseraBackend.run_node
supports_device = TesseraBackend.supports_device
