"""A case: a model and the inputs of several calls. A kept one is a text file that a test replays."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy
import onnx
from google.protobuf import text_format
from onnx import numpy_helper

Feeds = dict[str, numpy.ndarray]
MARK = "# ---- "


@dataclass
class Case:
    model: onnx.ModelProto
    calls: list[Feeds]

    def size(self) -> tuple[int, int, int]:
        """The size that reduction makes smaller: nodes, calls, elements."""
        elements = sum(a.size for feeds in self.calls for a in feeds.values())
        elements += sum(int(numpy.prod(t.dims, dtype=int)) for t in self.model.graph.initializer)
        return (count_nodes(self.model.graph), len(self.calls), elements)

    def text(self) -> str:
        """The model and the tensors of each call as protobuf's text, in blocks that begin with MARK."""
        blocks = [MARK + "model", text_format.MessageToString(_legible(self.model))]
        for feeds in self.calls:
            blocks.append(MARK + "call\n")
            for name, array in feeds.items():
                blocks += [MARK + "input", text_format.MessageToString(_typed(numpy_helper.from_array(array, name)))]
        return "\n".join(blocks)

    @staticmethod
    def parse(text: str) -> Case:
        model, calls = onnx.ModelProto(), []
        for block in text.split(MARK)[1:]:
            kind, _, body = block.partition("\n")
            if kind == "model":
                text_format.Parse(body, model)
            elif kind == "call":
                calls.append({})
            else:
                tensor = text_format.Parse(body, onnx.TensorProto())
                calls[-1][tensor.name] = numpy_helper.to_array(tensor)
        return Case(model, calls)

    def save_backend_test(self, folder: Path, expected: list[list[numpy.ndarray]]) -> None:
        """The layout of ONNX's backend tests, which `tessera test` runs on any device."""
        folder.mkdir(parents=True, exist_ok=True)
        onnx.save(self.model, folder / "model.onnx")
        for i, (feeds, results) in enumerate(zip(self.calls, expected)):
            data = folder / f"test_data_set_{i}"
            data.mkdir(exist_ok=True)
            inputs = [(v.name, feeds[v.name]) for v in self.model.graph.input]
            outputs = [(v.name, r) for v, r in zip(self.model.graph.output, results)]
            for kind, tensors in (("input", inputs), ("output", outputs)):
                for k, (name, array) in enumerate(tensors):
                    (data / f"{kind}_{k}.pb").write_bytes(numpy_helper.from_array(array, name).SerializeToString())


def count_nodes(graph: onnx.GraphProto) -> int:
    """Nodes of the graph and of its subgraphs."""
    return sum(1 + sum(count_nodes(a.g) for a in node.attribute if a.type == onnx.AttributeProto.GRAPH) for node in graph.node)


def _typed(tensor: onnx.TensorProto) -> onnx.TensorProto:
    """The same with its elements in the typed fields where those hold them exactly: text that people can read."""
    kinds = {onnx.TensorProto.FLOAT: "float_data", onnx.TensorProto.DOUBLE: "double_data", onnx.TensorProto.INT64: "int64_data"}
    kinds |= dict.fromkeys((onnx.TensorProto.INT32, onnx.TensorProto.INT8, onnx.TensorProto.UINT8, onnx.TensorProto.BOOL), "int32_data")
    if tensor.data_type not in kinds or not tensor.raw_data:
        return tensor
    array = numpy_helper.to_array(tensor)
    if array.dtype.kind == "f" and not numpy.isfinite(array).all():
        return tensor
    out = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    getattr(out, kinds[tensor.data_type]).extend((array.astype(int) if array.dtype == bool else array).ravel().tolist())
    return out


def _legible(model: onnx.ModelProto) -> onnx.ModelProto:
    out = onnx.ModelProto()
    out.CopyFrom(model)
    for tensor in out.graph.initializer:
        tensor.CopyFrom(_typed(tensor))
    return out
