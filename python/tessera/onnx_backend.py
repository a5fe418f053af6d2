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


# Types that NumPy's arrays hold one to a byte and memory two or four to a byte: outside of the model they are wider.
_T = onnx.TensorProto
_WIDER: dict[int, int] = {_T.INT4: _T.INT8, _T.INT2: _T.INT8, _T.UINT4: _T.UINT8, _T.UINT2: _T.UINT8, _T.FLOAT4E2M1: _T.FLOAT}


def _with_wide_ends(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, int], dict[str, int]]:
    """The model with casts behind inputs and before outputs of narrow types, and these types by name."""

    def narrow(values: Any) -> dict[str, int]:
        types = {v.name: v.type.tensor_type.elem_type for v in values}
        return {name: t for name, t in types.items() if t in _WIDER}

    weights = {w.name for w in model.graph.initializer}
    inputs, outputs = narrow(v for v in model.graph.input if v.name not in weights), narrow(model.graph.output)
    if not inputs and not outputs:
        return model, inputs, outputs
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    # Only the ends have the old names; inside there are others.
    inner = {name: f"{name}/narrow" for name in (*inputs, *outputs)}
    for node in wide.graph.node:
        node.input[:] = [inner.get(name, name) for name in node.input]
        node.output[:] = [inner.get(name, name) for name in node.output]
    before = [onnx.helper.make_node("Cast", [name], [inner[name]], to=t) for name, t in inputs.items()]
    after = [onnx.helper.make_node("Cast", [inner[name]], [name], to=_WIDER[t]) for name, t in outputs.items()]
    nodes = [*before, *wide.graph.node, *after]
    del wide.graph.node[:]
    wide.graph.node.extend(nodes)
    for value in (*wide.graph.input, *wide.graph.output):
        t = value.type.tensor_type.elem_type
        value.type.tensor_type.elem_type = _WIDER.get(t, t) if value.name in inner else t
    return wide, inputs, outputs


def _cast(values: Any, number: int) -> Any:
    return numpy.asarray(values).astype(onnx.helper.tensor_dtype_to_np_dtype(number))


class TesseraRep(BackendRep):
    """A compiled model, and the folder of its file: sizes that the code does not fit are compiled from it later."""

    def __init__(self, model: Model, folder: str, inputs: dict[str, int], outputs: dict[str, int]) -> None:
        self._model = model
        self._narrow_inputs, self._narrow_outputs = inputs, outputs
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._result = namedtupledict("Outputs", [o.name for o in model.outputs])

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:  # noqa: ARG002
        """Computes the outputs, a tuple whose fields are also found by name. inputs: arrays in the order of the model's
        inputs, one array, or a dict by name."""
        if isinstance(inputs, dict):
            named = inputs
        else:
            values = inputs if isinstance(inputs, (list, tuple)) else [inputs]
            named = dict(zip((i.name for i in self._model.inputs), values, strict=False))
        outputs = self._model(**{name: self._input(name, value) for name, value in named.items()})
        if not isinstance(outputs, tuple):
            outputs = (outputs,)
        names = (o.name for o in self._model.outputs)
        narrow = self._narrow_outputs
        return self._result(*(_cast(o, narrow[n]) if n in narrow else o for n, o in zip(names, outputs, strict=True)))

    def _input(self, name: str, value: Any) -> Any:
        if name in self._narrow_inputs:
            return _cast(value, _WIDER[self._narrow_inputs[name]])
        return numpy.asarray(value) if isinstance(value, numpy.generic) else value  # a scalar


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
            wide, inputs, outputs = _with_wide_ends(model)
            onnx.save(wide, path)
            return TesseraRep(load(path, _device(device)), folder, inputs, outputs)
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
